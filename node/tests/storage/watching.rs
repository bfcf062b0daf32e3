//! What the engine asks of the disk: how much a start reads, how many files are open, and who waits
//! for files to be unlinked.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use quorate_core::id::Offset;
use quorate_node::disk::Disk;
use quorate_node::disk::memory::MemoryDisk;
use quorate_node::storage::{ReadError, StorageConfig};

use crate::support::{Engine, config, partition};
use crate::watched::{Watched, hold};

/// The first of a log.
const SEGMENT: &str = "00000000000000000000.segment";

fn disk() -> MemoryDisk {
    MemoryDisk::tracked(256 << 20)
}

/// Grows a log, whose machine tells its state now and then, and syncs it; some more is not synced.
async fn grow(engine: &mut Engine, kib: u64, tag: &mut u64) {
    let log = partition(1);
    for kibibyte in 0..kib {
        *tag += 1;
        engine.append(log, *tag, 1, 900).await;
        if kibibyte % 16 == 0 {
            engine.checkpoint_log(log).await;
        }
    }
    assert!(engine.settle(log).await);
    engine.storage.checkpoint().await.expect("a checkpoint");
    for _ in 0..10 {
        *tag += 1;
        engine.append(log, *tag, 1, 900).await;
    }
    assert!(engine.settle(log).await);
}

#[tokio::test]
async fn a_start_reads_no_more_of_a_log_the_more_it_holds() {
    let mut read = Vec::new();
    let log = partition(1);
    for kib in [100, 400, 1600] {
        let memory = disk();
        let mut tag = 0;
        let mut engine =
            Engine::open(Arc::new(memory.clone()), config("/data")).await.expect("opens");
        engine.open_log(log).await.expect("new");
        grow(&mut engine, kib, &mut tag).await;
        let (batches, state) = (engine.log(log).batches.clone(), engine.log(log).state.clone());
        drop(engine);
        // A kill, and a power loss behind the start that follows.
        let mut memory = memory.after_kill();
        for again in [false, true] {
            if again {
                memory = memory.after_power_loss(|| false);
            }
            let watched = Watched::new(memory.clone());
            let mut engine = Engine::open(watched.clone(), config("/data")).await.expect("opens");
            engine.open_log(log).await.expect("whole");
            read.push(watched.seen.segment_bytes_read.load(Ordering::SeqCst));
            assert_eq!(engine.log(log).state.segments, state.segments);
            assert_eq!(engine.log(log).state.producers, state.producers);
            assert_eq!(engine.read_all(log).await, batches, "{kib} KiB");
            // Nothing in the middle, and nothing at a time, is lost for the reader.
            for batch in batches.iter().step_by(37) {
                let offset = batch.header().base_offset();
                let end = offset.plus(1);
                let one = engine.log(log).reader.read(offset, end, 10, true).await;
                assert_eq!(one.expect("readable"), std::slice::from_ref(batch));
            }
        }
    }
    // Two pieces, each of them with the room behind the end that is searched for torn writes.
    assert!(read.iter().all(|&bytes| bytes < 80 << 10), "{read:?}");
}

#[tokio::test]
async fn what_a_start_resumes_from_may_rot_or_be_missing() {
    let log = partition(1);
    let memory = disk();
    let mut tag = 0;
    let mut engine = Engine::open(Arc::new(memory.clone()), config("/data")).await.expect("opens");
    engine.open_log(log).await.expect("new");
    grow(&mut engine, 100, &mut tag).await;
    engine.roll(log).await;
    grow(&mut engine, 100, &mut tag).await;
    let (batches, state) = (engine.log(log).batches.clone(), engine.log(log).state.clone());
    drop(engine);
    let beside = |(path, bytes): (PathBuf, u64)| {
        let extension = path.extension()?.to_str()?;
        ["index", "snapshot"].contains(&extension).then_some((path.clone(), bytes))
    };
    for harm in ["rot at the front", "rot at the end", "missing"] {
        let sides: Vec<_> = memory.files().into_iter().filter_map(beside).collect();
        assert!(sides.len() >= 4, "{sides:?}");
        // Each alone, then all of them at once.
        for place in 0..=sides.len() {
            let disk = memory.after_kill();
            let harmed = sides.get(place..=place).unwrap_or(&sides);
            for (path, bytes) in harmed {
                match harm {
                    "missing" => disk.remove(path).await.expect("the file is there"),
                    "rot at the end" => disk.flip(path, bytes - 1).expect("the file is there"),
                    _ => disk.flip(path, 20).expect("the file is there"),
                }
            }
            let what = format!("{harm}: {harmed:?}");
            let mut engine =
                Engine::open(Arc::new(disk.clone()), config("/data")).await.expect("opens");
            engine.open_log(log).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(engine.report.rot, [], "{what}");
            assert_eq!(engine.log(log).state.segments, state.segments, "{what}");
            assert_eq!(engine.log(log).state.producers, state.producers, "{what}");
            assert_eq!(engine.read_all(log).await, batches, "{what}");
        }
    }
}

#[tokio::test]
async fn rot_below_what_a_start_reads_is_told_by_whoever_reads_it() {
    let log = partition(1);
    let memory = disk();
    let mut tag = 0;
    let mut engine = Engine::open(Arc::new(memory.clone()), config("/data")).await.expect("opens");
    engine.open_log(log).await.expect("new");
    grow(&mut engine, 100, &mut tag).await;
    let (batches, end) = (engine.log(log).batches.clone(), engine.log(log).state.end);
    drop(engine);
    let after = memory.after_kill();
    let segment = after.files().into_iter().find(|(path, _)| path.ends_with(SEGMENT));
    after.flip(&segment.expect("the segment is there").0, 20_000).expect("flipped");
    let mut engine = Engine::open(Arc::new(after.clone()), config("/data")).await.expect("opens");
    engine.open_log(log).await.expect("the start does not look there");
    let reader = engine.log(log).reader.clone();
    let (mut told, mut read) = (0, 0);
    for batch in &batches {
        match reader.read(batch.header().base_offset(), end, 10, true).await {
            Ok(some) => {
                assert_eq!(some, std::slice::from_ref(batch), "rot is never served");
                read += 1;
            }
            Err(ReadError::Rot(rot)) => {
                assert!(rot.to_string().contains("segment"), "{rot}");
                told += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(told >= 1 && read > batches.len() / 2, "{told} told, {read} read");
}

#[tokio::test]
async fn every_life_goes_on_where_the_last_one_was_told() {
    let log = partition(1);
    let mut memory = disk();
    let (mut tag, mut batches) = (0, Vec::new());
    for life in 0..5 {
        let watched = Watched::new(memory.clone());
        let mut engine = Engine::open(watched.clone(), config("/data")).await.expect("opens");
        engine.open_log(log).await.expect("whole");
        let bytes = watched.seen.segment_bytes_read.load(Ordering::SeqCst);
        assert!(bytes < 80 << 10, "life {life} reads {bytes} bytes");
        engine.logs.get_mut(&log).expect("open").batches.clone_from(&batches);
        grow(&mut engine, 200, &mut tag).await;
        batches.clone_from(&engine.log(log).batches);
        assert_eq!(engine.read_all(log).await, batches, "life {life}");
        memory = memory.after_kill();
    }
    let left = memory.files();
    let snapshots =
        left.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "snapshot"));
    // The last life's, this life's, and one that goes with the next checkpoint.
    assert!(snapshots.count() <= 3, "those that nobody needs any more go: {left:?}");
}

#[tokio::test]
async fn files_are_held_open_within_their_limit() {
    for open_files_max in [4, 16, 64] {
        let config = StorageConfig { open_files_max, ..config("/data") };
        let watched = Watched::new(disk());
        let mut engine = Engine::open(watched.clone(), config.clone()).await.expect("opens");
        let logs: Vec<_> = (1..=40).map(partition).collect();
        for &log in &logs {
            engine.open_log(log).await.expect("new");
        }
        let mut tag = 0;
        for round in 0..4 {
            for &log in &logs {
                tag += 1;
                engine.append(log, tag, 1, 300).await;
                engine.checkpoint_log(log).await;
                if round % 2 == 1 {
                    engine.roll(log).await;
                }
            }
            for &log in &logs {
                assert!(engine.settle(log).await);
                assert_eq!(engine.read_all(log).await.len(), round + 1);
            }
        }
        for &log in &logs {
            engine.checkpoint_log(log).await;
        }
        engine.storage.close().await.expect("closed");
        // The journal's files, two side files at a time, the marks, and one file that is being read
        // while the table gives its place to another.
        let most = open_files_max + config.journal_files_max + 2 + 1 + 1;
        let seen = watched.seen.handles_max.load(Ordering::SeqCst);
        assert!(seen <= most, "{seen} files were open, of {open_files_max}");
    }
}

#[tokio::test]
async fn writes_do_not_wait_for_files_to_be_unlinked() {
    let watched = Watched::new(disk());
    let mut engine = Engine::open(watched.clone(), config("/data")).await.expect("opens");
    let (a, b, c) = (partition(1), partition(2), partition(3));
    for log in [a, b, c] {
        engine.open_log(log).await.expect("new");
    }
    for tag in 0..4 {
        engine.append(a, tag, 1, 300).await;
        engine.roll(a).await;
        engine.append(b, tag, 1, 300).await;
    }
    assert!(engine.settle(a).await && engine.settle(b).await);
    let held = hold(&watched.seen.removals);
    engine.delete_before(a, Offset(4)).await;
    assert!(engine.settle(a).await);
    // Checkpoints, syncs and appends go on, though not one file can be removed.
    for tag in 4..200 {
        engine.append(a, tag, 1, 300).await;
        engine.append(c, tag, 1, 300).await;
        if tag % 50 == 0 {
            engine.storage.checkpoint().await.expect("a checkpoint");
        }
    }
    assert!(engine.settle(a).await && engine.settle(c).await);
    let segments = |directory: &str| {
        let files = watched_files(&watched);
        files.iter().filter(|path| path.contains(directory) && path.ends_with("segment")).count()
    };
    assert!(segments("01010101") > 4, "not one is gone");
    watched.seen.removals.add_permits(held);
    engine.storage.remove_log(b).await.expect("removed, behind the others");
    assert_eq!(segments("02020202"), 0);
    assert_eq!(segments("01010101"), 1, "the lane keeps its order");
    engine.close().await;
}

/// The states that logs tell wait in memory: enough of them bring a checkpoint about.
#[tokio::test]
async fn states_that_are_told_do_not_gather_in_memory() {
    let watched = Watched::new(disk());
    let mut engine = Engine::open(watched.clone(), config("/data")).await.expect("opens");
    for number in 1..=5 {
        let log = partition(number);
        engine.open_log(log).await.expect("new");
        engine.append(log, 1, 1, 300).await;
        engine.tell(log, Bytes::from(vec![0; 4 << 20])).await;
        assert!(engine.settle(log).await);
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let files = watched_files(&watched);
    assert!(files.iter().any(|path| path.ends_with("snapshot")), "{files:?}");
}

/// A log may tell another state for the same offset: until the new one is whole, the old one is.
#[tokio::test]
async fn no_snapshot_is_written_over() {
    let watched = Watched::new(disk());
    let mut engine = Engine::open(watched.clone(), config("/data")).await.expect("opens");
    let log = partition(1);
    engine.open_log(log).await.expect("new");
    engine.append(log, 1, 1, 300).await;
    for _ in 0..2 {
        engine.checkpoint_log(log).await;
        assert!(engine.settle(log).await);
        engine.storage.checkpoint().await.expect("a checkpoint");
    }
    let files = watched_files(&watched);
    let snapshots = files.iter().filter(|path| path.ends_with("snapshot")).count();
    assert_eq!((snapshots, watched.seen.written_in_place.load(Ordering::SeqCst)), (1, 0));
    assert!(!files.iter().any(|path| path.ends_with(".new")), "{files:?}");
}

/// A checkpoint that has much to sync holds up the journal, and with it every acknowledgement.
#[tokio::test]
async fn what_has_grown_is_synced_before_a_checkpoint_does_it() {
    for ahead_bytes in [4 << 10, 1 << 30] {
        let watched = Watched::new(disk());
        let limits = StorageConfig {
            ahead_bytes,
            checkpoint_bytes: 1 << 30,
            journal_file_bytes: 1 << 20,
            direct_bytes_min: 1 << 30,
            ..config("/data")
        };
        let mut engine = Engine::open(watched.clone(), limits).await.expect("opens");
        let log = partition(1);
        engine.open_log(log).await.expect("new");
        let held = hold(&watched.seen.segment_syncs);
        watched.seen.segment_syncs.add_permits(1000);
        for tag in 0..100 {
            engine.append(log, tag, 1, 900).await;
            assert!(engine.settle(log).await);
        }
        let syncs = 1000 - hold(&watched.seen.segment_syncs);
        let bytes: usize = engine.log(log).batches.iter().map(|batch| batch.len()).sum();
        let due = bytes / ahead_bytes as usize;
        assert!((due / 2..=due * 2).contains(&syncs), "{syncs} syncs for {bytes} bytes");
        assert_eq!(due > 10, ahead_bytes < 1 << 20);
        watched.seen.segment_syncs.add_permits(held);
        engine.close().await;
    }
}

/// The system tells of lost pages once: whoever hears of it must not keep it to himself.
#[tokio::test]
async fn a_failed_sync_ahead_ends_all_writing() {
    let watched = Watched::new(disk());
    let limits = StorageConfig { ahead_bytes: 4 << 10, ..config("/data") };
    let mut engine = Engine::open(watched.clone(), limits).await.expect("opens");
    let log = partition(1);
    engine.open_log(log).await.expect("new");
    watched.seen.segment_syncs_fail.store(true, Ordering::SeqCst);
    let mut tag = 0;
    while engine.recorder.failed().is_empty() {
        assert!(tag < 20, "nobody heard of it");
        tag += 1;
        engine.append(log, tag, 1, 900).await;
        engine.settle(log).await;
    }
    assert!(engine.storage.close().await.is_err());
}

fn watched_files(watched: &Watched) -> Vec<String> {
    watched.files().iter().map(|(path, _)| path.display().to_string()).collect()
}
