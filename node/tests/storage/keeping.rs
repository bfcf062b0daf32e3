//! How long orphans are kept, and how starts are counted.

use std::collections::BTreeMap;
use std::path::Path;

use quorate_core::batch::Batch;
use quorate_core::id::{Offset, PartitionId};
use quorate_core::time::Timestamp;
use quorate_node::disk::memory::{Fault, MemoryDisk};
use quorate_node::storage::StorageConfig;

use crate::crash::WAYS;
use crate::cuts::{Known, orphans, shared};
use crate::support::{Engine, config, partition};

#[tokio::test]
async fn orphans_go_with_their_topic_and_by_size_and_age() {
    let disk = MemoryDisk::tracked(64 << 20);
    let bounded = StorageConfig { orphan_bytes_max: 6_000, ..config("/data") };
    let mut engine = Engine::open(shared(&disk), bounded).await.expect("opens");
    let mut known = BTreeMap::new();
    engine.storage.believe(Timestamp(1_000_000)).await.expect("believed");
    for number in [1, 2, 3] {
        let log = partition(number);
        engine.open_log(log).await.expect("new");
        for tag in 0..6 {
            engine.append(log, tag, 1, 400).await;
        }
        let known = known.entry(log).or_insert_with(Known::default);
        assert!(known.cut(&mut engine, log, Offset(1), false).await);
    }
    engine.storage.checkpoint().await.expect("a checkpoint");
    let size = |files: &BTreeMap<PartitionId, Vec<Batch>>| files.len();
    settle_removals(&engine).await;
    let found = orphans(&disk).await;
    assert_eq!(size(&found), 2, "the oldest went for want of room");
    assert!(found.contains_key(&partition(3)));
    let other = *found.keys().find(|&&log| log != partition(3)).expect("two");
    engine.storage.remove_log(other).await.expect("removed");
    assert_eq!(size(&orphans(&disk).await), 2, "a copy that moves away leaves them");
    engine.storage.remove_orphans(|topic| topic == other.topic).await.expect("removed");
    assert_eq!(orphans(&disk).await.keys().collect::<Vec<_>>(), [&partition(3)]);
    let later = Timestamp(1_000_000 + 31 * 86_400_000);
    for tag in 0..6 {
        engine.append(partition(3), 20 + tag, 1, 40).await;
    }
    let known = known.get_mut(&partition(3)).expect("known");
    engine.storage.believe(later).await.expect("believed");
    assert!(known.cut(&mut engine, partition(3), Offset(3), false).await);
    settle_removals(&engine).await;
    let left = orphans(&disk).await;
    assert_eq!(left[&partition(3)].len(), 4, "the one of a month ago went: {left:?}");
}

/// Removals stand in a lane; whoever removes a log waits for those before.
async fn settle_removals(engine: &Engine) {
    engine.storage.remove_log(partition(9)).await.expect("removed");
}

#[tokio::test]
async fn starts_are_counted_for_ever() {
    let mut disk = MemoryDisk::tracked(64 << 20);
    for start in 1..=4 {
        let engine = Engine::open(shared(&disk), config("/data")).await.expect("opens");
        assert_eq!(engine.report.start, start);
        drop(engine);
        disk = disk.after_power_loss(|| false);
    }
    let whole = MemoryDisk::tracked(64 << 20);
    drop(Engine::open(shared(&whole), config("/data")).await.expect("opens"));
    for at in 0..=whole.operations() {
        for kept in WAYS {
            let disk = MemoryDisk::tracked(64 << 20);
            disk.strike_at(at, Fault::PowerLoss);
            let first = Engine::open(shared(&disk), config("/data")).await;
            let first = first.map_or(0, |engine| engine.report.start);
            let again = shared(&disk.after_power_loss(kept.draw()));
            let second = Engine::open(again, config("/data")).await.expect("opens").report.start;
            assert!(second > first, "{at} {kept:?}: {first}, {second}");
        }
    }
    let path = Path::new("/data/starts");
    disk.flip(path, 18).expect("there");
    let opened = Engine::open(shared(&disk), config("/data")).await;
    assert!(opened.is_err_and(|error| error.to_string().contains("starts")));
}
