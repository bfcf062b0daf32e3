//! Many lives of one data directory: random writes, a power loss or a kill at a random operation,
//! recovery, and on. What one life was shown, every later life must still have.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_core::batch::Batch;
use quorate_core::id::{Offset, PartitionId};
use quorate_core::partition::interface::Flush;
use quorate_node::disk::Disk;
use quorate_node::disk::memory::{Fault, MemoryDisk};

use crate::support::{Engine, config, partition};

/// A small generator of our own: the same seed tells the same story for ever.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// What a log may hold, and what it must hold.
#[derive(Default)]
struct Model {
    batches: Vec<Batch>,
    end: Offset,
    start: Offset,
    start_max: Offset,
}

impl Model {
    /// Compares with what a life finds; from here on, that is what counts.
    async fn meet(&mut self, engine: &mut Engine, log: PartitionId, what: &str) {
        let state = engine.log(log).state.clone();
        let (start, end) = (state.log_start, state.end);
        assert!(end >= self.end, "{what}: {log} ends at {end}, promised {}", self.end);
        assert!(
            self.start <= start && start <= self.start_max,
            "{what}: {log} starts at {start}, promised {} to {}",
            self.start,
            self.start_max
        );
        let found = engine.read_all(log).await;
        self.batches.retain(|batch| batch.header().next_offset() <= end);
        let inside = self.batches.iter().filter(|batch| batch.header().next_offset() > start);
        let expected: Vec<_> = inside.cloned().collect();
        assert_eq!(found, expected, "{what}: {log} from {start} to {end}");
        (self.start, self.end, self.start_max) = (start, end, start);
        engine.logs.get_mut(&log).expect("open").batches.clone_from(&self.batches);
    }

    /// Takes over what this life has promised.
    fn learn(&mut self, engine: &Engine, log: PartitionId) {
        let live = engine.log(log);
        let written = engine.recorder.written(log);
        self.batches.clone_from(&live.batches);
        let kept = live.appends.iter().filter(|(_, flush, _)| *flush == Flush::Durable);
        for (write, _, end) in kept {
            if *write <= written {
                self.end = self.end.max(*end);
            }
        }
        for (write, start) in &live.starts {
            self.start_max = self.start_max.max(*start);
            if *write <= written {
                self.start = self.start.max(*start);
            }
        }
    }
}

async fn act(engine: &mut Engine, log: PartitionId, draws: &mut Draws, tag: &mut u64) {
    *tag += 1;
    let active = engine.log(log).state.segments.last().map(|active| active.bytes);
    match draws.below(20) {
        0 | 1 if active.is_some_and(|bytes| bytes > 0) => {
            engine.roll(log).await;
        }
        2 => {
            let state = &engine.log(log).state;
            let (start, end) = (state.log_start.0, state.end.0);
            let to = start + i64::try_from(draws.below((end - start + 1) as u64)).expect("small");
            engine.delete_before(log, Offset(to)).await;
        }
        3 => {
            let flush = [Flush::Durable, Flush::Replicated][draws.below(2) as usize];
            engine.logs.get_mut(&log).expect("open").flush = flush;
        }
        4 => {
            let _ = engine.storage.checkpoint().await;
        }
        5 | 6 => {
            let _ = engine.settle(log).await;
        }
        7 => {
            engine.append(log, *tag, 1, 9_000).await;
        }
        8 | 9 => {
            engine.checkpoint_log(log).await;
        }
        kind => {
            let bytes = draws.below(700) as usize;
            engine.append(log, *tag, 1 + (kind as usize) % 3, bytes).await;
        }
    }
}

pub(crate) async fn story(seed: u64) {
    let mut draws = Draws(seed);
    let logs = [partition(1), partition(2), partition(3)];
    let mut models: BTreeMap<_, _> = logs.map(|log| (log, Model::default())).into();
    let mut disk = MemoryDisk::tracked(256 << 20);
    let mut tag = 0;
    for life in 0..6 {
        let what = format!("seed {seed}, life {life}");
        disk.strike_at(disk.operations() + draws.below(150), Fault::PowerLoss);
        let opened = Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, config("/data")).await;
        let mut alive = false;
        if let Ok(mut engine) = opened {
            assert_eq!(engine.report.rot, [], "{what}");
            alive = true;
            for log in logs {
                match engine.open_log(log).await {
                    Ok(()) => {}
                    Err(quorate_node::storage::LogError::Rot(rot)) => panic!("{what}: {rot}"),
                    Err(_) => alive = false,
                }
            }
            if alive && !disk.is_dark() {
                for (log, model) in &mut models {
                    model.meet(&mut engine, *log, &what).await;
                }
                for _ in 0..draws.below(80) {
                    let log = logs[draws.below(3) as usize];
                    act(&mut engine, log, &mut draws, &mut tag).await;
                }
                if draws.below(3) == 0 {
                    for log in logs {
                        let _ = engine.settle(log).await;
                    }
                }
                for (log, model) in &mut models {
                    model.learn(&engine, *log);
                }
                if draws.below(4) == 0 && !disk.is_dark() {
                    for log in logs {
                        engine.checkpoint_log(log).await;
                    }
                    let _ = engine.storage.close().await;
                }
            }
        }
        let mut coins = Draws(seed * 1000 + life);
        disk = match draws.below(4) {
            0 if alive && !disk.is_dark() => disk.after_kill(),
            1 => disk.after_power_loss(|| false),
            2 => disk.after_power_loss(|| true),
            _ => disk.after_power_loss(|| coins.below(2) == 0),
        };
    }
    let mut engine = Engine::open(Arc::new(disk) as Arc<dyn Disk>, config("/data"))
        .await
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    for (log, model) in &mut models {
        engine.open_log(*log).await.expect("whole");
        model.meet(&mut engine, *log, &format!("seed {seed}, at last")).await;
    }
}

#[tokio::test]
async fn what_one_life_was_shown_every_later_life_has() {
    for seed in 0..200 {
        story(seed).await;
    }
}
