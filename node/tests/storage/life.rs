//! A log's life on a disk that does nothing wrong.

use std::sync::Arc;

use bytes::Bytes;
use quorate_core::batch::Batch;
use quorate_core::id::{LeaderEpoch, Offset};
use quorate_core::partition::interface::Flush;
use quorate_core::time::Timestamp;
use quorate_node::disk::memory::MemoryDisk;
use quorate_node::disk::os::OsDisk;
use quorate_node::disk::{Disk, Open};
use quorate_node::storage::{ReadError, Unpack, Unpacked};

use crate::support::{Engine, config, partition};

/// Every test here runs on both disks.
fn disks() -> [(Arc<dyn Disk>, tempfile::TempDir); 2] {
    let memory: Arc<dyn Disk> = Arc::new(MemoryDisk::tracked(64 << 20));
    let os: Arc<dyn Disk> = Arc::new(OsDisk::start().expect("threads"));
    [memory, os].map(|disk| (disk, tempfile::tempdir().expect("a directory")))
}

#[tokio::test]
async fn what_was_appended_is_read_and_survives_a_clean_close() {
    for (disk, directory) in disks() {
        let data = directory.path().join("data");
        let mut engine = Engine::open(disk.clone(), config(&data)).await.expect("opens");
        assert!(engine.report.fresh && engine.report.clean);
        let (a, b) = (partition(1), partition(2));
        for log in [a, b] {
            engine.open_log(log).await.expect("new");
        }
        for tag in 0..40 {
            engine.append(a, tag, 3, 50).await;
            engine.append(b, tag, 1, 700).await;
            if tag % 10 == 9 {
                engine.roll(a).await;
            }
        }
        assert!(engine.settle(a).await && engine.settle(b).await);
        let (batches_a, batches_b) = (engine.read_all(a).await, engine.read_all(b).await);
        assert_eq!(batches_a, engine.log(a).batches);
        assert_eq!(batches_b, engine.log(b).batches);
        let (state_a, state_b) = (engine.log(a).state.clone(), engine.log(b).state.clone());
        engine.close().await;

        let mut engine = Engine::open(disk, config(&data)).await.expect("opens");
        assert!(!engine.report.fresh && engine.report.clean, "{:?}", engine.report);
        assert_eq!(engine.report.logs, 2);
        for log in [a, b] {
            engine.open_log(log).await.expect("whole");
        }
        assert_eq!(engine.log(a).state, state_a);
        assert_eq!(engine.log(b).state, state_b);
        assert_eq!(engine.read_all(a).await, batches_a);
        assert_eq!(engine.read_all(b).await, batches_b);
    }
}

#[tokio::test]
async fn a_killed_node_finds_everything_again() {
    for (disk, directory) in disks() {
        let data = directory.path().join("data");
        let mut engine = Engine::open(disk.clone(), config(&data)).await.expect("opens");
        let log = partition(1);
        engine.open_log(log).await.expect("new");
        for tag in 0..200 {
            engine.append(log, tag, 2, 300).await;
            if tag % 30 == 29 {
                engine.roll(log).await;
            }
        }
        engine.delete_before(log, Offset(100)).await;
        assert!(engine.settle(log).await);
        let (state, batches) = (engine.log(log).state.clone(), engine.read_all(log).await);
        drop(engine);
        // The writer task notices that nobody can reach it any more.
        tokio::task::yield_now().await;

        let mut engine = Engine::open(disk, config(&data)).await.expect("opens");
        assert!(!engine.report.clean);
        engine.open_log(log).await.expect("whole");
        assert_eq!(engine.log(log).state, state);
        assert_eq!(engine.read_all(log).await, batches);
    }
}

#[tokio::test]
async fn a_log_that_changes_its_mind_about_syncing_has_no_gap() {
    for (disk, directory) in disks() {
        let data = directory.path().join("data");
        let mut engine = Engine::open(disk.clone(), config(&data)).await.expect("opens");
        let log = partition(1);
        engine.open_log(log).await.expect("new");
        for tag in 0..60 {
            let flush = if tag / 7 % 2 == 0 { Flush::Replicated } else { Flush::Durable };
            engine.logs.get_mut(&log).expect("open").flush = flush;
            engine.append(log, tag, 1, 200).await;
            if tag % 5 == 0 {
                assert!(engine.settle(log).await);
            }
        }
        assert!(engine.settle(log).await);
        let state = engine.log(log).state.clone();
        assert_eq!(engine.read_all(log).await, engine.log(log).batches);
        drop(engine);
        tokio::task::yield_now().await;
        let mut engine = Engine::open(disk, config(&data)).await.expect("opens");
        engine.open_log(log).await.expect("whole");
        assert_eq!(engine.log(log).state, state);
    }
}

/// Looks into a batch without any bound.
struct Plain;

impl Unpack for Plain {
    fn unpack<'a>(&'a self, batch: &'a Batch) -> Unpacked<'a> {
        Box::pin(async { batch.uncompressed(usize::MAX).map_err(|error| error.to_string()) })
    }
}

#[tokio::test]
async fn offsets_are_found_by_time_in_every_segment() {
    for (disk, directory) in disks() {
        let data = directory.path().join("data");
        let mut engine = Engine::open(disk, config(&data)).await.expect("opens");
        let log = partition(1);
        engine.open_log(log).await.expect("new");
        // Batch `tag` has two records of time 1000 + 10 * tag, at offsets 2 * tag and beyond.
        for tag in 0..90 {
            engine.append(log, tag, 2, 400).await;
            if tag % 20 == 19 {
                engine.roll(log).await;
            }
        }
        assert!(engine.settle(log).await);
        let (reader, end) = (engine.log(log).reader.clone(), engine.log(log).state.end);
        let ask = |time, start| {
            let reader = reader.clone();
            async move {
                let found = reader.offset_for_timestamp(Timestamp(time), start, end, &Plain).await;
                found.expect("readable").map(|(offset, time, epoch)| {
                    assert_eq!(epoch, LeaderEpoch(3));
                    (offset.0, time.0)
                })
            }
        };
        for tag in 0..90 {
            let time = 1000 + 10 * tag;
            assert_eq!(ask(time, Offset::ZERO).await, Some((2 * tag, time)));
            assert_eq!(ask(time - 5, Offset::ZERO).await, Some((2 * tag, time)));
        }
        assert_eq!(ask(1000, Offset(77)).await, Some((77, 1380)), "from within a batch");
        assert_eq!(ask(1900, Offset::ZERO).await, None);
    }
}

#[tokio::test]
async fn reads_answer_whole_batches_within_their_bounds() {
    for (disk, directory) in disks() {
        let data = directory.path().join("data");
        let mut engine = Engine::open(disk, config(&data)).await.expect("opens");
        let log = partition(1);
        engine.open_log(log).await.expect("new");
        for tag in 0..10 {
            engine.append(log, tag, 5, 100).await;
        }
        assert!(engine.settle(log).await);
        let live = engine.log(log);
        let one = live.batches[0].len();
        let end = live.state.end;
        let read = |from, up_to, bytes, least| {
            let reader = live.reader.clone();
            async move {
                let batches = reader.read(Offset(from), up_to, bytes, least).await;
                batches.map(|batches| {
                    batches.iter().map(|batch| batch.header().base_offset().0).collect::<Vec<_>>()
                })
            }
        };
        assert_eq!(read(7, end, 1, true).await.expect("readable"), [5]);
        assert_eq!(read(7, end, 1, false).await.expect("readable"), [] as [i64; 0]);
        assert_eq!(read(0, end, 3 * one, true).await.expect("readable"), [0, 5, 10]);
        assert_eq!(read(0, end, 3 * one - 1, true).await.expect("readable"), [0, 5]);
        assert_eq!(read(0, Offset(10), usize::MAX, true).await.expect("readable"), [0, 5]);
        assert_eq!(read(50, end, 1000, true).await.expect("readable"), [] as [i64; 0]);
        let beyond = read(51, Offset(99), 1000, true).await;
        assert!(matches!(beyond, Err(ReadError::OutOfRange { .. })), "{beyond:?}");
        engine.delete_before(log, Offset(6)).await;
        assert!(engine.settle(log).await);
        // The completion stands before the unlink; the start is raised with it.
        engine.storage.checkpoint().await.expect("a checkpoint");
        let below = engine.log(log).reader.read(Offset(5), end, 1000, true).await;
        assert!(matches!(below, Err(ReadError::OutOfRange { start: Offset(6), .. })), "{below:?}");
    }
}

#[tokio::test]
async fn a_removed_log_is_gone_for_readers_and_for_the_next_start() {
    for (disk, directory) in disks() {
        let data = directory.path().join("data");
        let mut engine = Engine::open(disk.clone(), config(&data)).await.expect("opens");
        let (a, b) = (partition(1), partition(2));
        for log in [a, b] {
            engine.open_log(log).await.expect("new");
            engine.append(log, 1, 2, 100).await;
            assert!(engine.settle(log).await);
        }
        engine.storage.remove_log(a).await.expect("removed");
        let read = engine.log(a).reader.read(Offset(0), Offset(1), 1000, true).await;
        assert!(matches!(read, Err(ReadError::Removed)), "{read:?}");
        assert_eq!(engine.storage.logs().await.expect("listed"), [b]);
        drop(engine);
        tokio::task::yield_now().await;
        let mut engine = Engine::open(disk, config(&data)).await.expect("opens");
        assert_eq!(engine.storage.logs().await.expect("listed"), [b]);
        engine.open_log(b).await.expect("whole");
        assert_eq!(engine.log(b).state.end, Offset(2));
        assert!(engine.report.rot.is_empty());
    }
}

#[tokio::test]
async fn where_nothing_was_written_no_data_are_said_to_be() {
    for (disk, directory) in disks() {
        let data = directory.path().join("data");
        disk.make_directory(&data).await.expect("made");
        let file = disk.open(&data.join("file"), Open::Create).await.expect("created");
        assert_eq!(file.data_from(0).await.expect("told"), None);
        file.allocate(1 << 20).await.expect("allocated");
        for at in [700_000, 4096] {
            file.write_at(at, vec![Bytes::from_static(b"x")]).await.expect("written");
            let found = file.data_from(0).await.expect("told");
            assert!(found.is_some_and(|found| found <= at), "{found:?}");
        }
        for from in [4096, 4097, 600_000, 700_000] {
            let found = file.data_from(from).await.expect("told");
            let last = if from == 4096 { 4096 } else { 700_000 };
            assert!(found.is_some_and(|found| from <= found && found <= last), "{found:?}");
        }
        assert_eq!(file.data_from(1 << 20).await.expect("told"), None);
        assert_eq!(file.data_from(u64::MAX).await.expect("told"), None);
    }
}
