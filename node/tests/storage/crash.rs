//! The power is cut at every operation of a script, several ways each, and whatever the next start
//! finds must hold what was promised: every completed append, in order, nothing invented; and the
//! same again when the power is cut during recovery.

use std::path::Path;
use std::sync::Arc;

use quorate_core::batch::Batch;
use quorate_core::id::{Offset, PartitionId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::Flush;
use quorate_core::segment::frame::FRAME_HEADER_BYTES;
use quorate_core::time::Timestamp;
use quorate_node::disk::Disk;
use quorate_node::disk::memory::{Fault, MemoryDisk};
use quorate_node::storage::Believed;

use crate::support::{Engine, config, partition};

/// A draw per unsynced sector or name: nothing, everything, or a coin that a seed tosses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept {
    Nothing,
    Everything,
    Tossed(u64),
}

pub(crate) const WAYS: [Kept; 5] =
    [Kept::Nothing, Kept::Everything, Kept::Tossed(1), Kept::Tossed(2), Kept::Tossed(3)];

impl Kept {
    pub(crate) fn draw(self) -> impl FnMut() -> bool {
        let mut state = match self {
            Self::Tossed(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            _ => 0,
        };
        move || match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Tossed(_) => {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.is_multiple_of(2)
            }
        }
    }
}

/// What a log's readers were promised, and what else may be there.
#[derive(Debug)]
struct Promise {
    partition: PartitionId,
    /// Everything that was ever sent to be appended, in order.
    sent: Vec<Batch>,
    /// The log's end and start as far as they were acknowledged under `Durable`.
    end: Offset,
    start: Offset,
    /// The highest start that was asked for.
    start_max: Offset,
    removed: bool,
}

type Script = fn(&mut Engine) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>>;

/// Appends to two logs, with rolls, a raised start, changes of flush, and a checkpoint.
fn busy(engine: &mut Engine) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>> {
    Box::pin(async {
        let (a, b) = (partition(1), partition(2));
        for tag in 0..12 {
            engine.append(a, tag, 2, 300).await;
            if tag % 4 == 1 {
                engine.append(b, tag, 1, 900).await;
            }
            match tag {
                3 | 6 => {
                    engine.roll(a).await;
                }
                2 | 10 => {
                    engine.checkpoint_log(a).await;
                }
                5 => engine.logs.get_mut(&b).expect("open").flush = Flush::Replicated,
                7 => engine.delete_before(a, Offset(9)).await,
                8 => {
                    let _ = engine.storage.checkpoint().await;
                }
                9 => engine.logs.get_mut(&b).expect("open").flush = Flush::Durable,
                _ => {}
            }
            if tag % 3 == 0 && !engine.settle(a).await {
                return;
            }
        }
        let _ = engine.settle(a).await && engine.settle(b).await;
    })
}

/// Large batches, which go past the journal, between small ones.
fn large(engine: &mut Engine) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>> {
    Box::pin(async {
        let a = partition(1);
        for tag in 0..9 {
            let bytes = if tag % 3 == 1 { 9000 } else { 200 };
            engine.append(a, tag, 1, bytes).await;
            if !engine.settle(a).await {
                return;
            }
        }
    })
}

/// A log is removed while another lives on.
fn removal(engine: &mut Engine) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>> {
    Box::pin(async {
        let (a, b) = (partition(1), partition(2));
        for tag in 0..3 {
            engine.append(a, tag, 1, 100).await;
            engine.append(b, tag, 1, 100).await;
        }
        if !engine.settle(b).await {
            return;
        }
        let _ = engine.storage.checkpoint().await;
        engine.append(b, 3, 1, 100).await;
        let removed = engine.storage.remove_log(b).await.is_ok();
        engine.logs.get_mut(&b).expect("open").flush = Flush::Replicated;
        if removed {
            engine.append(a, 4, 1, 100).await;
            engine.settle(a).await;
        }
    })
}

/// Runs the script until the power fails; what was promised until then.
async fn play(disk: &MemoryDisk, script: Script) -> Option<Vec<Promise>> {
    let opened = Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, config("/data")).await;
    let Ok(mut engine) = opened else { return Some(Vec::new()) };
    let logs = [partition(1), partition(2)];
    for log in logs {
        if engine.open_log(log).await.is_err() {
            return Some(Vec::new());
        }
    }
    script(&mut engine).await;
    let on_disk = disk.operations();
    let promises = logs.map(|log| {
        let live = engine.log(log);
        let written = engine.recorder.written(log);
        let done = live.appends.iter().filter(|(write, ..)| *write <= written);
        let durable = done.filter(|(_, flush, _)| *flush == Flush::Durable);
        let starts = live.starts.iter();
        Promise {
            partition: log,
            sent: live.batches.clone(),
            end: durable.map(|(.., end)| *end).next_back().unwrap_or_default(),
            start: starts
                .clone()
                .filter(|(write, _)| *write <= written)
                .map(|(_, start)| *start)
                .next_back()
                .unwrap_or_default(),
            start_max: starts.map(|(_, start)| *start).next_back().unwrap_or_default(),
            removed: false,
        }
    });
    let _ = on_disk;
    Some(promises.into())
}

/// Recovers and compares with what was promised. Returns the states found.
async fn judge(disk: &MemoryDisk, promises: &[Promise], what: &str) -> Vec<Recovered> {
    let opened = Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, config("/data")).await;
    let mut engine = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(engine.report.rot, [], "{what}");
    let mut states = Vec::new();
    for promise in promises {
        let log = promise.partition;
        let opened = engine.open_log(log).await;
        opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        let state = engine.log(log).state.clone();
        states.push(state.clone());
        if promise.removed {
            continue;
        }
        let (start, end) = (state.log_start, state.end);
        assert!(end >= promise.end, "{what}: {log} ends at {end}, promised {}", promise.end);
        assert!(
            promise.start <= start && start <= promise.start_max,
            "{what}: {log} starts at {start}, promised {}",
            promise.start
        );
        let found = engine.read_all(log).await;
        let sent = promise.sent.iter();
        let expected: Vec<_> = sent
            .filter(|batch| batch.header().next_offset() > start)
            .filter(|batch| batch.header().base_offset() < end)
            .cloned()
            .collect();
        assert_eq!(found, expected, "{what}: {log} from {start} to {end}");
        assert_eq!(rebuilt(promise, &state).producers, state.producers, "{what}: {log}");
        assert_eq!(rebuilt(promise, &state).leader_epochs, state.leader_epochs, "{what}: {log}");
        assert_eq!(rebuilt(promise, &state).open, state.open, "{what}: {log}");
    }
    states
}

/// The state that the same batches give when they are applied one after another.
fn rebuilt(promise: &Promise, found: &Recovered) -> Recovered {
    let mut state = Recovered::default();
    for batch in &promise.sent {
        if batch.header().base_offset() < found.end {
            let bytes = (FRAME_HEADER_BYTES + batch.len()) as u64;
            state.apply(batch, bytes).expect("in order");
        }
    }
    state.delete_before(found.log_start);
    state
}

/// Cuts the power at each operation of the script and of the recoveries behind it.
async fn everywhere(script: Script) {
    let whole = MemoryDisk::tracked(64 << 20);
    play(&whole, script).await;
    for at in 0..=whole.operations() {
        for kept in WAYS {
            let disk = MemoryDisk::tracked(64 << 20);
            disk.strike_at(at, Fault::PowerLoss);
            let promises = play(&disk, script).await.expect("played");
            let what = format!("power cut at operation {at}, {kept:?}");
            let after = disk.after_power_loss(kept.draw());
            let first = judge(&after, &promises, &what).await;
            let killed = after.after_kill();
            let again = judge(&killed, &promises, &format!("{what}, again")).await;
            assert_eq!(first, again, "{what}: recovery is not idempotent");
        }
    }
}

#[tokio::test]
async fn whatever_was_acknowledged_survives_a_power_loss_at_any_moment() {
    everywhere(busy).await;
}

#[tokio::test]
async fn large_batches_past_the_journal_survive_as_well() {
    everywhere(large).await;
}

#[tokio::test]
async fn a_log_that_is_removed_harms_no_other() {
    let whole = MemoryDisk::tracked(64 << 20);
    play(&whole, removal).await;
    for at in 0..=whole.operations() {
        for kept in WAYS {
            let disk = MemoryDisk::tracked(64 << 20);
            disk.strike_at(at, Fault::PowerLoss);
            let mut promises = play(&disk, removal).await.expect("played");
            // The second log may be there or gone, but not be called rotten.
            promises.iter_mut().skip(1).for_each(|promise| promise.removed = true);
            let what = format!("power cut at operation {at}, {kept:?}");
            judge(&disk.after_power_loss(kept.draw()), &promises, &what).await;
        }
    }
}

#[tokio::test]
async fn the_power_may_fail_during_recovery_too() {
    let disk = MemoryDisk::tracked(64 << 20);
    let promises = play(&disk, busy).await.expect("played");
    let torn = || disk.after_power_loss(Kept::Tossed(5).draw());
    let whole = torn();
    judge(&whole, &promises, "the first recovery").await;
    for at in 0..=whole.operations() {
        for kept in WAYS {
            let first = torn();
            first.strike_at(at, Fault::PowerLoss);
            let opened = Engine::open(Arc::new(first.clone()) as Arc<dyn Disk>, config("/data"));
            if let Ok(mut engine) = opened.await {
                for promise in &promises {
                    let _ = engine.open_log(promise.partition).await;
                }
            }
            let what = format!("power cut at operation {at} of the recovery, {kept:?}");
            let second = first.after_power_loss(kept.draw());
            judge(&second, &promises, &what).await;
        }
    }
}

#[tokio::test]
async fn the_believed_time_is_the_old_one_or_the_new_one() {
    let times = [Timestamp(1_000), Timestamp(2_000)];
    let tell = async |disk: &MemoryDisk| {
        let engine = Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, config("/data")).await;
        let Ok(engine) = engine else { return Believed::Never };
        let mut told = Believed::Never;
        for at in times {
            if engine.storage.believe(at).await.is_ok() {
                told = Believed::At(at);
            }
        }
        told
    };
    let whole = MemoryDisk::tracked(64 << 20);
    assert_eq!(tell(&whole).await, Believed::At(times[1]));
    for at in 0..=whole.operations() {
        for kept in WAYS {
            let disk = MemoryDisk::tracked(64 << 20);
            disk.strike_at(at, Fault::PowerLoss);
            let told = tell(&disk).await;
            let after = Arc::new(disk.after_power_loss(kept.draw())) as Arc<dyn Disk>;
            let found = Engine::open(after, config("/data")).await.expect("opens").report.believed;
            let asked = times.map(Believed::At);
            let one = told == found || asked.contains(&found);
            assert!(one && (told == Believed::Never || found != Believed::Never), "{at} {kept:?}");
            assert_ne!((told, found), (asked[1], asked[0]), "{at} {kept:?}");
        }
    }
}

#[tokio::test]
async fn a_believed_time_that_rotted_is_told_to_be_lost() {
    let disk = MemoryDisk::tracked(64 << 20);
    let open = async |disk: &MemoryDisk| {
        Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, config("/data")).await.expect("opens")
    };
    let engine = open(&disk).await;
    assert_eq!(engine.report.believed, Believed::Never);
    engine.storage.believe(Timestamp(5)).await.expect("written");
    drop(engine);
    let after = disk.after_kill();
    assert_eq!(open(&after).await.report.believed, Believed::At(Timestamp(5)));
    let after = after.after_kill();
    after.flip(Path::new("/data/clock"), 20).expect("the file is there");
    assert_eq!(open(&after).await.report.believed, Believed::Lost);
}
