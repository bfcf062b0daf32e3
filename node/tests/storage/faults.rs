//! What the engine does when the disk fails, fills up, rots, or is not the one it should be.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use quorate_core::id::{NodeId, Offset, PartitionId};
use quorate_core::segment::{FileKind, directory_name, file_name};
use quorate_node::disk::memory::{Fault, MemoryDisk};
use quorate_node::disk::{Disk, Open};
use quorate_node::storage::directory::FORMAT;
use quorate_node::storage::{LogError, ReadError, Rot, StorageError};

use crate::support::{Engine, IDENTITY, config, partition};
use crate::watched::{Watched, hold};

fn disk() -> MemoryDisk {
    MemoryDisk::tracked(64 << 20)
}

async fn open(disk: &MemoryDisk) -> Result<Engine, StorageError> {
    Engine::open(Arc::new(disk.clone()), config("/data")).await
}

fn segment(log: PartitionId, base: i64) -> PathBuf {
    let directory = Path::new("/data/logs").join(directory_name(log));
    directory.join(file_name(Offset(base), FileKind::Segment))
}

async fn read_file(disk: &MemoryDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, Open::Read).await.expect("the file is there");
    file.read_at(0, file.len() as usize).await.expect("readable").to_vec()
}

#[tokio::test]
async fn a_failed_operation_fails_everything_behind_it_and_loses_nothing_before_it() {
    fail_everything_behind().await;
}

pub(crate) async fn fail_everything_behind() {
    for fault in [Fault::Failure, Fault::Full] {
        for later in 0..12 {
            let disk = disk();
            let mut engine = open(&disk).await.expect("opens");
            let (a, b) = (partition(1), partition(2));
            for log in [a, b] {
                engine.open_log(log).await.expect("new");
            }
            engine.append(a, 1, 2, 100).await;
            assert!(engine.settle(a).await);
            disk.strike_at(disk.operations() + later, fault);
            let mut failed = false;
            for tag in 2..20 {
                engine.append(a, tag, 1, 100).await;
                engine.append(b, tag, 1, 100).await;
                let (first, second) = (engine.settle(a).await, engine.settle(b).await);
                assert!(
                    !(failed && (first || second)),
                    "{fault:?} {later}: written after a failure"
                );
                failed |= !(first && second);
            }
            assert!(failed, "the fault struck");
            assert!(engine.storage.checkpoint().await.is_err());
            let promised = [a, b].map(|log| {
                let written = engine.recorder.written(log);
                let done = engine.log(log).appends.iter().filter(|(write, ..)| *write <= written);
                (log, done.map(|(.., end)| *end).next_back().unwrap_or_default())
            });
            assert!(engine.storage.close().await.is_err(), "no clean close after a failure");
            let mut engine = open(&disk.after_power_loss(|| false)).await.expect("opens");
            for (log, end) in promised {
                engine.open_log(log).await.expect("whole");
                assert!(engine.log(log).state.end >= end, "{fault:?} {later}");
            }
        }
    }
}

/// A log of three segments, synced and marked, and another log beside it.
async fn three_segments(disk: &MemoryDisk) -> Engine {
    let mut engine = open(disk).await.expect("opens");
    let (a, b) = (partition(1), partition(2));
    for log in [a, b] {
        engine.open_log(log).await.expect("new");
    }
    for tag in 0..30 {
        engine.append(a, tag, 1, 300).await;
        if tag % 10 == 9 && tag < 29 {
            engine.roll(a).await;
        }
    }
    engine.append(b, 1, 1, 100).await;
    assert!(engine.settle(a).await && engine.settle(b).await);
    engine.storage.checkpoint().await.expect("a checkpoint");
    engine
}

#[tokio::test]
async fn rot_below_the_durable_mark_is_told_and_nothing_is_cut() {
    tell_rot().await;
}

pub(crate) async fn tell_rot() {
    let log = partition(1);
    // In the active segment, so that an unclean start looks at it; in a header and in records.
    for position in [4, 60, 130, 900, 3000] {
        let disk = disk();
        drop(three_segments(&disk).await);
        let after = disk.after_kill();
        let path = segment(log, 20);
        after.flip(&path, position).expect("the file is there");
        let before = read_file(&after, &path).await;
        for _ in 0..2 {
            let mut engine = open(&after).await.expect("the node starts");
            engine.open_log(partition(2)).await.expect("the other log is whole");
            let rot = match engine.open_log(log).await {
                Err(LogError::Rot(rot)) => rot,
                other => panic!("byte {position}: {other:?}"),
            };
            assert_eq!(rot.path, path);
            assert!(rot.position <= position, "{rot}");
            assert!(rot.to_string().contains("Nothing was cut"), "{rot}");
            assert_eq!(read_file(&after, &path).await, before, "the file is as it was");
            drop(engine);
            tokio::task::yield_now().await;
        }
    }
}

/// Somebody cuts a segment short under a node that runs. A reader that is asked for what is gone
/// says so; it once asked the file again and again.
#[tokio::test]
async fn a_segment_that_is_cut_short_is_rot_to_its_readers() {
    let (disk, log) = (disk(), partition(1));
    let engine = three_segments(&disk).await;
    let path = segment(log, 0);
    let whole = read_file(&disk, &path).await.len() as u64;
    let end = engine.log(log).state.end;
    let reader = &engine.log(log).reader;
    for left in [whole - 1, whole / 2, 30, 0] {
        let file = disk.open(&path, Open::Write).await.expect("the file is there");
        file.set_len(left).await.expect("it is cut");
        let met = reader.read(Offset::ZERO, end, 1 << 20, true).await;
        let Err(ReadError::Rot(rot)) = met else { panic!("{left} bytes left: {met:?}") };
        assert!(rot.path == path && rot.position <= left, "{rot}");
    }
}

/// The node starts without a log that has rotted, and uses the journal again, where the log's last
/// records stood. When the disk gave back what it had had, the log came back without them.
#[tokio::test]
async fn a_log_that_was_offline_does_not_come_back_shorter() {
    let log = partition(1);
    let disk = disk();
    let mut engine = open(&disk).await.expect("opens");
    engine.open_log(log).await.expect("new");
    for tag in 0..9 {
        engine.append(log, tag, 1, 300).await;
        assert!(engine.settle(log).await);
        if tag == 4 {
            engine.storage.checkpoint().await.expect("a checkpoint");
        }
    }
    drop(engine);
    let rotten = disk.after_power_loss(|| false);
    rotten.flip(&segment(log, 0), 500).expect("the file is there");
    let mut engine = open(&rotten).await.expect("the node starts");
    assert!(matches!(engine.open_log(log).await, Err(LogError::Rot(_))));
    drop(engine);
    let healed = rotten.after_power_loss(|| false);
    healed.flip(&segment(log, 0), 500).expect("the file is there");
    let mut engine = open(&healed).await.expect("the node starts");
    let opened = engine.open_log(log).await;
    let Err(LogError::Rot(rot)) = opened else { panic!("it is short: {opened:?}") };
    assert_eq!((rot.offset, rot.why.as_str()), (Offset(5), "the log goes on"));
}

#[tokio::test]
async fn rot_in_an_old_segment_is_told_to_the_reader_who_meets_it() {
    let disk = disk();
    let engine = three_segments(&disk).await;
    let log = partition(1);
    disk.flip(&segment(log, 10), 1000).expect("the file is there");
    let reader = &engine.log(log).reader;
    let whole = reader.read(Offset(0), Offset(10), 100_000, true).await.expect("whole");
    assert_eq!(whole.len(), 10);
    let met = reader.read(Offset(10), Offset(30), 100_000, true).await;
    let Err(ReadError::Rot(Rot { offset, .. })) = met else { panic!("{met:?}") };
    assert!(offset >= Offset(10) && offset < Offset(20));
    let behind = reader.read(Offset(20), Offset(30), 100_000, true).await.expect("whole");
    assert_eq!(behind.len(), 10);
}

#[tokio::test]
async fn a_segment_that_is_missing_is_told() {
    for base in [0, 10, 20] {
        let disk = disk();
        drop(three_segments(&disk).await);
        let after = disk.after_kill();
        let path = segment(partition(1), base);
        after.remove(&path).await.expect("the file is there");
        let mut engine = open(&after).await.expect("the node starts");
        let opened = engine.open_log(partition(1)).await;
        let Err(LogError::Rot(rot)) = opened else { panic!("{base}: {opened:?}") };
        assert_eq!(rot.path, path);
    }
}

#[tokio::test]
async fn rot_in_the_journal_stops_the_start_and_a_torn_tail_does_not() {
    let log = partition(1);
    let disk = disk();
    let mut engine = open(&disk).await.expect("opens");
    engine.open_log(log).await.expect("new");
    for tag in 0..6 {
        engine.append(log, tag, 1, 300).await;
        assert!(engine.settle(log).await);
    }
    let journal = PathBuf::from("/data/journal/0000.journal");
    // Groups stand at pages 1 to 6. A power loss that keeps nothing else needs them all.
    let broken = disk.after_power_loss(|| false);
    broken.flip(&journal, 4096 * 3 + 200).expect("the file is there");
    let refused = open(&broken).await.err().expect("refused");
    assert!(matches!(refused, StorageError::JournalRot { .. }), "{refused}");
    assert!(refused.to_string().contains("Nothing was cut"), "{refused}");
    let torn = disk.after_power_loss(|| false);
    torn.flip(&journal, 4096 * 6 + 200).expect("the file is there");
    let mut engine = open(&torn).await.expect("a torn tail is cut");
    engine.open_log(log).await.expect("whole");
    assert_eq!(engine.log(log).state.end, Offset(5));
}

#[tokio::test]
async fn indexes_and_snapshots_are_made_anew_where_they_are_missing_or_wrong() {
    for kind in [FileKind::Index, FileKind::Snapshot] {
        for wrong in [false, true] {
            let disk = disk();
            let engine = three_segments(&disk).await;
            let log = partition(1);
            let (state, batches) = (engine.log(log).state.clone(), engine.read_all(log).await);
            engine.close().await;
            let after = disk.after_kill();
            for (path, bytes) in after.files() {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if quorate_core::segment::parse_file_name(name).is_none_or(|(_, is)| is != kind) {
                    continue;
                }
                if wrong {
                    after.flip(&path, bytes / 2).expect("the file is there");
                } else {
                    after.remove(&path).await.expect("the file is there");
                }
            }
            let mut engine = open(&after).await.expect("opens");
            engine.open_log(log).await.expect("whole");
            assert_eq!(engine.log(log).state, state, "{kind:?} {wrong}");
            assert_eq!(engine.read_all(log).await, batches);
        }
    }
}

#[tokio::test]
async fn a_directory_that_is_not_ours_is_left_alone() {
    let disk = disk();
    open(&disk).await.expect("opens").close().await;

    let engine = open(&disk).await.expect("opens again");
    let locked = open(&disk).await.err().expect("refused");
    assert!(matches!(locked, StorageError::Locked { .. }), "{locked}");
    engine.close().await;

    let mut other = config("/data");
    other.identity.node = NodeId(2);
    let refused = Engine::open(Arc::new(disk.clone()), other).await.err().expect("refused");
    assert!(matches!(refused, StorageError::OtherNode { found: NodeId(1), .. }), "{refused}");

    let mut guest = config("/data");
    guest.identity.directory = [2; 16];
    let engine = Engine::open(Arc::new(disk.clone()), guest).await.expect("opens");
    assert_eq!(engine.report.identity, IDENTITY, "the directory keeps its ids");
    engine.close().await;

    disk.remove(Path::new("/data/identity")).await.expect("the file is there");
    let lost = open(&disk).await.err().expect("refused");
    assert!(matches!(lost, StorageError::NotOurs { .. }), "{lost}");
}

#[tokio::test]
async fn what_cannot_be_made_anew_is_refused_when_it_is_damaged_or_missing() {
    for name in ["/data/identity", "/data/marks"] {
        let disk = disk();
        drop(three_segments(&disk).await);
        let after = disk.after_kill();
        after.flip(Path::new(name), 20).expect("the file is there");
        let refused = open(&after).await.err().expect("refused");
        assert!(matches!(refused, StorageError::Damaged { .. }), "{refused}");
    }
    let disk = disk();
    drop(three_segments(&disk).await);
    let after = disk.after_kill();
    after.remove(Path::new("/data/marks")).await.expect("the file is there");
    let refused = open(&after).await.err().expect("refused");
    assert!(matches!(refused, StorageError::Damaged { .. }), "{refused}");
}

#[tokio::test]
async fn the_files_of_a_data_directory_keep_their_bytes() {
    let disk = disk();
    let mut engine = open(&disk).await.expect("opens");
    let log = partition(1);
    engine.open_log(log).await.expect("new");
    engine.append(log, 1, 1, 10).await;
    assert!(engine.settle(log).await);
    engine.close().await;
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let identity = hex(read_file(&disk, Path::new("/data/identity")).await);
    let clean = hex(read_file(&disk, Path::new("/data/clean")).await);
    let marks = hex(read_file(&disk, Path::new("/data/marks")).await);
    // A change here is a change of format: raise `directory::FORMAT`, and keep reading the old.
    let nines = "09".repeat(16);
    assert_eq!(identity, format!("514944590002000000000014ed26040f00000001{nines}"));
    assert_eq!(clean, "51434c4e000100000000000831db8e430000000000000002");
    let ones = "01".repeat(16);
    let numbers = "0000000100000000000000000000000000000000000000000000007e0000000000000001";
    let front = "514d524b000200000000004555404b180000000000000002";
    assert_eq!(marks, format!("{front}{ones}{numbers}000000000000000000"));
}

#[tokio::test]
async fn another_format_is_refused_and_not_touched() {
    let disk = disk();
    open(&disk).await.expect("opens").close().await;
    let path = Path::new("/data/identity");
    let file = disk.open(path, Open::Write).await.expect("the file is there");
    for format in [FORMAT - 1, FORMAT + 1] {
        let other = quorate_core::segment::checkpoint::seal(*b"QIDY", format, &[0; 36]);
        file.write_at(0, vec![other.clone()]).await.expect("written");
        let refused = open(&disk).await.err().expect("refused");
        match format {
            1 => assert!(matches!(refused, StorageError::Older { found: 1, .. }), "{refused}"),
            _ => assert!(matches!(refused, StorageError::Newer { .. }), "{refused}"),
        }
        assert_eq!(read_file(&disk, path).await, other);
    }
}

#[tokio::test]
async fn a_closed_segment_that_lost_its_end_is_told() {
    let disk = disk();
    let mut engine = open(&disk).await.expect("opens");
    let log = partition(1);
    engine.open_log(log).await.expect("new");
    for tag in 0..5 {
        engine.append(log, tag, 1, 300).await;
    }
    engine.roll(log).await;
    assert!(engine.settle(log).await);
    engine.storage.checkpoint().await.expect("a checkpoint");
    drop(engine);
    let after = disk.after_kill();
    after.remove(&segment(log, 0).with_extension("snapshot")).await.err();
    let file = after.open(&segment(log, 0), Open::Write).await.expect("the file is there");
    file.set_len(0).await.expect("cut");
    let mut engine = open(&after).await.expect("the node starts");
    let opened = engine.open_log(log).await;
    assert!(matches!(opened, Err(LogError::Rot(_))), "{opened:?}");
}

#[tokio::test]
async fn a_journal_file_without_its_header_still_gives_its_groups() {
    let log = partition(1);
    let disk = disk();
    let mut engine = open(&disk).await.expect("opens");
    engine.open_log(log).await.expect("new");
    engine.append(log, 1, 1, 300).await;
    assert!(engine.settle(log).await);
    let after = disk.after_power_loss(|| false);
    after.flip(Path::new("/data/journal/0000.journal"), 20).expect("the file is there");
    let mut engine = open(&after).await.expect("opens");
    engine.open_log(log).await.expect("whole");
    assert_eq!(engine.log(log).state.end, Offset(1));
}

#[tokio::test]
async fn a_background_sync_that_fails_is_told_though_nobody_waits() {
    let disk = disk();
    let mut engine = open(&disk).await.expect("opens");
    let log = partition(1);
    engine.open_log(log).await.expect("new");
    engine.append(log, 1, 1, 300).await;
    assert!(engine.settle(log).await);
    disk.strike_at(disk.operations(), Fault::Failure);
    assert!(engine.storage.checkpoint().await.is_err());
    assert_eq!(engine.recorder.failed().len(), 1);
}

/// Lets the writer go as far as it can.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// The sync of a checkpoint that runs while a write fails says nothing of what the write lost: its
/// marks would make the journal's copy superfluous.
#[tokio::test]
async fn a_failed_write_ends_the_running_checkpoint() {
    let (memory, log) = (disk(), partition(1));
    let watched = Watched::new(memory.clone());
    let mut engine = Engine::open(watched.clone(), config("/data")).await.expect("opens");
    engine.open_log(log).await.expect("new");
    engine.append(log, 1, 1, 300).await;
    assert!(engine.settle(log).await);
    let held = hold(&watched.seen.segment_syncs);
    let marks = Path::new("/data/marks");
    let before = read_file(&memory, marks).await;
    // It is asked for, and held up.
    assert!(engine.storage.checkpoint().now_or_never().is_none());
    settle().await;
    memory.strike_at(memory.operations(), Fault::Failure);
    engine.append(log, 2, 1, 300).await;
    assert!(!engine.settle(log).await);
    watched.seen.segment_syncs.add_permits(held);
    settle().await;
    assert!(engine.storage.close().await.is_err());
    assert_eq!(read_file(&memory, marks).await, before, "no mark is raised after a failure");
}

/// The system tells of lost pages once, and may have told the other sync: a group whose own sync
/// went well is not said to be written.
#[tokio::test]
async fn a_group_that_is_synced_beside_a_failing_checkpoint_is_not_written() {
    let watched = Watched::new(disk());
    let mut engine = Engine::open(watched.clone(), config("/data")).await.expect("opens");
    let log = partition(1);
    engine.open_log(log).await.expect("new");
    engine.append(log, 1, 1, 300).await;
    assert!(engine.settle(log).await);
    let held = hold(&watched.seen.journal_syncs);
    let write = engine.append(log, 2, 1, 300).await;
    settle().await;
    watched.seen.segment_syncs_fail.store(true, Ordering::SeqCst);
    assert!(engine.storage.checkpoint().await.is_err());
    watched.seen.journal_syncs.add_permits(held);
    settle().await;
    assert!(engine.storage.close().await.is_err());
    assert!(engine.recorder.failed().contains(&(log, write)), "{:?}", engine.recorder.failed());
    assert!(engine.recorder.written(log) < write);
}

#[tokio::test]
async fn clean_closes_leave_one_snapshot_and_its_forerunner() {
    let disk = disk();
    let log = partition(1);
    for life in 0..5 {
        let mut engine = open(&disk).await.expect("opens");
        engine.open_log(log).await.expect("whole");
        engine.append(log, life, 1, 100).await;
        engine.close().await;
    }
    let files = disk.files();
    let is_snapshot = |path: &Path| path.extension().is_some_and(|kind| kind == "snapshot");
    assert!(files.iter().filter(|(path, _)| is_snapshot(path)).count() <= 2);
}

#[tokio::test]
async fn a_journal_that_is_gone_is_not_an_empty_one() {
    miss_the_journal().await;
}

pub(crate) async fn miss_the_journal() {
    let disk = disk();
    let mut engine = open(&disk).await.expect("opens");
    let log = PartitionId::METADATA;
    engine.open_log(log).await.expect("new");
    engine.append(log, 1, 1, 100).await;
    assert!(engine.settle(log).await);
    engine.storage.checkpoint().await.expect("a checkpoint");
    engine.append(log, 2, 1, 100).await;
    assert!(engine.settle(log).await, "acknowledged, and in the journal only");
    drop(engine);
    let after = disk.after_kill();
    let journal = after.files().into_iter().map(|(path, _)| path);
    for path in journal.filter(|path| path.starts_with("/data/journal")) {
        after.remove(&path).await.expect("the file is there");
    }
    let refused = open(&after).await.err().expect("refused");
    assert!(matches!(refused, StorageError::Damaged { .. }), "{refused}");
    assert!(refused.to_string().contains("journal"), "{refused}");
}
