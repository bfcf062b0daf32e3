//! Logs that are cut back or begun anew: after a power loss at any operation each is what it was
//! before or what it is after, never a mixture, and what went stands whole in the orphan files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use quorate_core::batch::Batch;
use quorate_core::id::{LeaderEpoch, NodeId, Offset, PartitionId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::{Flush, LogOp, Parted};
use quorate_core::segment::frame::{FRAME_HEADER_BYTES, Frame};
use quorate_core::segment::orphan::{HEAD_BYTES, Orphan};
use quorate_node::disk::memory::{Fault, MemoryDisk};
use quorate_node::disk::{Disk, Open};
use quorate_node::storage::ReadError;

use crate::crash::{Kept, WAYS};
use crate::lives::Draws;
use crate::support::{Engine, config, partition};

/// One line of a log's history; each cut begins another.
#[derive(Clone, Debug, Default)]
struct Line {
    /// Where it began when it was begun anew.
    base: Offset,
    /// All that was ever sent in it.
    batches: Vec<Batch>,
    rolls: Vec<Offset>,
    /// Promised.
    start: Offset,
    end: Offset,
    start_max: Offset,
}

/// A log as its owner knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    line: Line,
    /// The line before a cut of which nobody knows whether it was done.
    before: Option<Line>,
    /// What was cut off, without doubt.
    orphans: Vec<Batch>,
    /// Some appends were not synced; their producers may be lost with them.
    replicated: bool,
    /// Leader epochs never come back, whatever was lost or cut.
    cuts: i32,
}

impl Line {
    /// Takes over what a life has promised.
    fn learn(&mut self, engine: &Engine, log: PartitionId) {
        let live = engine.log(log);
        let written = engine.recorder.written(log);
        self.batches.clone_from(&live.batches);
        let kept = live.appends.iter().filter(|(_, flush, _)| *flush == Flush::Durable);
        for (_, _, end) in kept.filter(|(write, ..)| *write <= written) {
            self.end = self.end.max(*end);
        }
        for (write, start) in &live.starts {
            self.start_max = self.start_max.max(*start);
            if *write <= written {
                self.start = self.start.max(*start);
            }
        }
    }

    /// What a fold over the line makes of it, up to `end`.
    fn fold(&self, start: Offset, end: Offset) -> Recovered {
        let mut state = Recovered { log_start: self.base, end: self.base, ..Recovered::default() };
        for batch in self.batches.iter().filter(|batch| batch.header().next_offset() <= end) {
            if self.rolls.contains(&batch.header().base_offset()) {
                let _ = state.roll(batch.header().base_offset());
            }
            let bytes = (FRAME_HEADER_BYTES + batch.len()) as u64;
            state.apply(batch, bytes).expect("in order");
        }
        state.delete_before(start);
        state
    }

    /// Why this is not what was found.
    fn differs(&self, state: &Recovered, found: &[Batch]) -> Option<String> {
        let (start, end) = (state.log_start, state.end);
        if end < self.end || start < self.start || start > self.start_max {
            let (from, to) = (self.start, self.end);
            return Some(format!("promised {from}..{to}, found {start}..{end}"));
        }
        let inside = |batch: &&Batch| {
            batch.header().next_offset() > start && batch.header().next_offset() <= end
        };
        let expected: Vec<_> = self.batches.iter().filter(inside).cloned().collect();
        (found != expected).then(|| format!("other batches in {start}..{end}"))
    }
}

impl Known {
    /// The log is cut back to `offset`, or begins anew there; `false` if nobody says that it is.
    pub(crate) async fn cut(
        &mut self,
        engine: &mut Engine,
        log: PartitionId,
        offset: Offset,
        anew: bool,
    ) -> bool {
        self.line.learn(engine, log);
        let before = self.line.clone();
        let live = engine.logs.get_mut(&log).expect("open");
        let (start, old_end) = (live.state.log_start, live.state.end);
        let empties = anew || offset < start;
        let stays = |batch: &Batch| batch.header().next_offset() <= offset;
        let kept = live.batches.partition_point(stays);
        let gone = live.batches.split_off(kept);
        let mut end = gone.first().map_or(live.state.end, |batch| batch.header().base_offset());
        self.line.rolls.retain(|base| *base <= end);
        if empties {
            live.batches.clear();
            (end, self.line.base) = (offset, offset);
            self.line.rolls.clear();
        }
        // All that was written before is done once the cut is.
        let start = if empties { offset } else { start };
        (self.line.start, self.line.start_max) = (start, start);
        self.line.batches.clone_from(&live.batches);
        self.line.end = end.max(start);
        live.appends.clear();
        live.starts.clear();
        let (leader, leader_epoch) = (NodeId(2), live.epoch);
        self.cuts += 1;
        live.epoch = LeaderEpoch(3 + self.cuts);
        let reason = Parted { leader, leader_epoch, end: old_end };
        let op =
            if anew { LogOp::ResetTo { offset } } else { LogOp::TruncateTo { offset, reason } };
        self.before = Some(before);
        let write = engine.send(log, op).await;
        if !engine.written(log, write).await {
            return false;
        }
        let (told, recovered) = engine.recorder.truncated(log).expect("told");
        assert_eq!(told, write);
        recovered.check();
        if !self.replicated {
            let expected = self.line.fold(start, end);
            let place = |state: &Recovered| (state.log_start, state.end, state.max_timestamp);
            assert_eq!(place(&recovered), place(&expected));
            assert_eq!(recovered.leader_epochs, expected.leader_epochs);
            assert_eq!(recovered.producers, expected.producers);
        }
        if !anew {
            self.orphans
                .extend(gone.into_iter().filter(|batch| batch.header().next_offset() > start));
        }
        self.before = None;
        engine.logs.get_mut(&log).expect("open").state = recovered;
        true
    }

    /// Compares with what a life finds, which counts from here on.
    async fn meet(&mut self, engine: &mut Engine, log: PartitionId, what: &str) {
        let state = engine.log(log).state.clone();
        let found = engine.read_all(log).await;
        let after = self.line.differs(&state, &found);
        let before = self.before.as_ref().map(|before| before.differs(&state, &found));
        // A cut that nobody told of is done, or the log is what it was.
        match (after, before) {
            (None, None | Some(Some(_))) => {}
            (Some(_), Some(None)) => self.line = self.before.clone().unwrap_or_default(),
            (None, Some(None))
                if self.before.as_ref().is_some_and(|before| {
                    before.end <= state.end && before.batches.len() > self.line.batches.len()
                }) =>
            {
                self.line = self.before.clone().unwrap_or_default()
            }
            (None, Some(None)) => {}
            (Some(why), None) => panic!("{what}: {log}: {why}"),
            (Some(after), Some(Some(before))) => {
                panic!("{what}: {log} is neither what it was ({before}) nor cut ({after})")
            }
        }
        self.before = None;
        let (start, end) = (state.log_start, state.end);
        self.line.batches.retain(|batch| batch.header().next_offset() <= end);
        (self.line.start, self.line.end, self.line.start_max) = (start, end, start);
        if !self.replicated {
            let fold = self.line.fold(start, end);
            assert_eq!(state.producers, fold.producers, "{what}: {log}");
            assert_eq!(state.leader_epochs, fold.leader_epochs, "{what}: {log}");
        }
        let live = engine.logs.get_mut(&log).expect("open");
        live.batches.clone_from(&self.line.batches);
        live.epoch = LeaderEpoch(3 + self.cuts);
    }
}

/// All that stands in the orphan files, log by log.
pub(crate) async fn orphans(disk: &dyn Disk) -> BTreeMap<PartitionId, Vec<Batch>> {
    let directory = PathBuf::from("/data/orphans");
    let mut found: BTreeMap<_, Vec<Batch>> = BTreeMap::new();
    for name in disk.list(&directory).await.unwrap_or_default() {
        if name.extension().is_some_and(|extension| extension == "new") {
            continue;
        }
        let file = disk.open(&directory.join(&name), Open::Read).await.expect("opens");
        let bytes = file.read_at(0, file.len() as usize).await.expect("read");
        let head = Orphan::decode(&bytes).unwrap_or_else(|error| panic!("{name:?}: {error}"));
        assert_eq!(Some(head.name.to_string().as_str()), name.to_str());
        let mut rest = bytes.slice(HEAD_BYTES..);
        assert_eq!(rest.len() as u64, head.bytes, "{name:?}");
        let batches = found.entry(head.name.partition).or_default();
        let mut next = head.name.first;
        while !rest.is_empty() {
            let frame = Frame::decode(&rest).expect("whole").expect("a frame");
            assert_eq!(frame.header.base_offset, next, "{name:?}");
            next = frame.batch.header().next_offset();
            rest = rest.slice(frame.header.frame_bytes() as usize..);
            batches.push(frame.batch);
        }
        assert_eq!(next, head.name.end, "{name:?}");
    }
    found
}

pub(crate) fn shared(disk: &MemoryDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

type Play<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Script = for<'a> fn(&'a mut Engine, &'a mut BTreeMap<PartitionId, Known>) -> Play<'a>;

/// Cuts inside the active segment, at a segment's base, in a closed segment, and all of it; a
/// neighbour lives on, and a checkpoint comes in between.
fn cuts<'a>(engine: &'a mut Engine, known: &'a mut BTreeMap<PartitionId, Known>) -> Play<'a> {
    Box::pin(async move {
        let (a, b) = (partition(1), partition(2));
        let mut tag = 0;
        for (round, offset) in [(0, 9), (1, 4), (2, 3), (3, 8), (4, 0)] {
            for _ in 0..4 {
                tag += 1;
                engine.append(a, tag, 2, 300).await;
                if tag % 3 == 0 {
                    known.get_mut(&a).expect("known").line.rolls.push(engine.log(a).state.end);
                    engine.roll(a).await;
                }
                engine.append(b, tag, 1, 100).await;
            }
            if round == 1 {
                engine.checkpoint_log(a).await;
                let _ = engine.storage.checkpoint().await;
                engine.append(a, 90, 1, 100).await;
            }
            let offset = Offset(offset).min(engine.log(a).state.end);
            if !known.get_mut(&a).expect("known").cut(engine, a, offset, false).await {
                return;
            }
        }
        engine.append(a, 99, 1, 100).await;
        let _ = engine.settle(a).await && engine.settle(b).await;
    })
}

/// A log is cut and begun anew further on, twice, with deleted records before.
fn anew<'a>(engine: &'a mut Engine, known: &'a mut BTreeMap<PartitionId, Known>) -> Play<'a> {
    Box::pin(async move {
        let (a, b) = (partition(1), partition(2));
        for (round, offset) in [(0, 30), (1, 31), (2, 60)] {
            for tag in 0..5 {
                engine.append(a, tag + 5 * round, 2, 300).await;
                engine.append(b, tag, 1, 9000 * (tag % 2) as usize).await;
                if tag == 2 {
                    known.get_mut(&a).expect("known").line.rolls.push(engine.log(a).state.end);
                    engine.roll(a).await;
                }
            }
            if round == 1 {
                let start = engine.log(a).state.log_start;
                engine.delete_before(a, start.plus(3)).await;
                if !engine.settle(a).await {
                    return;
                }
                let end = engine.log(a).state.end;
                let cut = known.get_mut(&a).expect("known");
                if !cut.cut(engine, a, Offset(end.0 - 3), false).await {
                    return;
                }
            }
            let offset = Offset(offset).max(engine.log(a).state.end.plus(1));
            if !known.get_mut(&a).expect("known").cut(engine, a, offset, true).await {
                return;
            }
        }
        engine.append(a, 99, 1, 100).await;
        let _ = engine.settle(a).await && engine.settle(b).await;
    })
}

async fn play(disk: &MemoryDisk, script: Script) -> BTreeMap<PartitionId, Known> {
    let mut known = BTreeMap::from([1, 2].map(|log| (partition(log), Known::default())));
    let Ok(mut engine) = Engine::open(shared(disk), config("/data")).await else { return known };
    for log in [1, 2] {
        if engine.open_log(partition(log)).await.is_err() {
            return known;
        }
    }
    script(&mut engine, &mut known).await;
    for (&log, known) in &mut known {
        if known.before.is_none() {
            known.line.learn(&engine, log);
        }
    }
    known
}

async fn judge(
    disk: &MemoryDisk,
    known: &BTreeMap<PartitionId, Known>,
    what: &str,
) -> Vec<Recovered> {
    let set_aside = orphans(disk).await;
    let opened = Engine::open(shared(disk), config("/data")).await;
    let mut engine = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(engine.report.rot, [], "{what}");
    let mut states = Vec::new();
    for (&log, known) in known {
        engine.open_log(log).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut known = known.clone();
        known.meet(&mut engine, log, what).await;
        let own = set_aside.get(&log).map(Vec::as_slice).unwrap_or_default();
        for batch in &known.orphans {
            assert!(own.contains(batch), "{what}: {batch:?} was not set aside");
        }
        states.push(engine.log(log).state.clone());
    }
    states
}

async fn everywhere(script: Script) {
    let whole = MemoryDisk::tracked(64 << 20);
    let known = play(&whole, script).await;
    assert!(known.values().all(|known| known.before.is_none()));
    for at in 0..=whole.operations() {
        for kept in WAYS {
            let disk = MemoryDisk::tracked(64 << 20);
            disk.strike_at(at, Fault::PowerLoss);
            let known = play(&disk, script).await;
            let what = format!("power cut at operation {at}, {kept:?}");
            let after = disk.after_power_loss(kept.draw());
            let first = judge(&after, &known, &what).await;
            let again = judge(&after.after_kill(), &known, &format!("{what}, again")).await;
            assert_eq!(first, again, "{what}: recovery is not idempotent");
        }
    }
}

#[tokio::test]
async fn a_cut_is_done_or_not_done_after_a_power_loss_at_any_moment() {
    everywhere(cuts).await;
}

#[tokio::test]
async fn a_log_that_begins_anew_has_nothing_of_the_old_one() {
    everywhere(anew).await;
}

#[tokio::test]
async fn the_power_may_fail_while_a_start_finishes_a_cut() {
    let whole = MemoryDisk::tracked(64 << 20);
    play(&whole, cuts).await;
    let mut finished = 0;
    for at in 0..=whole.operations() {
        let disk = MemoryDisk::tracked(64 << 20);
        disk.strike_at(at, Fault::PowerLoss);
        let known = play(&disk, cuts).await;
        if known.values().all(|known| known.before.is_none()) {
            continue;
        }
        finished += 1;
        let torn = || disk.after_power_loss(Kept::Tossed(5).draw());
        let start = torn();
        drop(Engine::open(shared(&start), config("/data")).await);
        for second in 0..=start.operations() {
            let first = torn();
            first.strike_at(second, Fault::PowerLoss);
            drop(Engine::open(shared(&first), config("/data")).await);
            let what = format!("power cut at {at}, and at {second} of the start");
            for kept in [Kept::Nothing, Kept::Everything, Kept::Tossed(2)] {
                judge(&first.after_power_loss(kept.draw()), &known, &what).await;
            }
        }
    }
    assert!(finished > 10, "{finished} cuts were interrupted");
}

/// Many lives, with cuts at random; states are compared whole.
pub(crate) async fn story(seed: u64) {
    let mut draws = Draws(seed);
    let logs = [partition(1), partition(2)];
    let replicated = draws.below(3) == 0;
    let mut known: BTreeMap<_, _> =
        logs.map(|log| (log, Known { replicated, ..Known::default() })).into();
    let mut disk = MemoryDisk::tracked(256 << 20);
    let mut tag = 0;
    for life in 0..5 {
        let what = format!("seed {seed}, life {life}");
        disk.strike_at(disk.operations() + draws.below(250), Fault::PowerLoss);
        if let Ok(mut engine) = Engine::open(shared(&disk), config("/data")).await {
            assert_eq!(engine.report.rot, [], "{what}");
            let mut alive = true;
            for log in logs {
                alive &= engine.open_log(log).await.is_ok();
            }
            if alive && !disk.is_dark() {
                for (log, known) in &mut known {
                    known.meet(&mut engine, *log, &what).await;
                }
                for _ in 0..draws.below(60) {
                    let log = logs[draws.below(2) as usize];
                    let known = known.get_mut(&log).expect("known");
                    if known.before.is_none() {
                        tag += 1;
                        act(&mut engine, known, log, &mut draws, tag).await;
                    }
                }
                for (log, known) in &mut known {
                    if known.before.is_none() {
                        known.line.learn(&engine, *log);
                    }
                }
            }
        }
        let mut coins = Draws(seed * 1000 + life);
        disk = match draws.below(4) {
            0 if !disk.is_dark() => disk.after_kill(),
            1 => disk.after_power_loss(|| false),
            2 => disk.after_power_loss(|| true),
            _ => disk.after_power_loss(|| coins.below(2) == 0),
        };
        let set_aside = orphans(&disk).await;
        for (log, known) in &known {
            let own = set_aside.get(log).map(Vec::as_slice).unwrap_or_default();
            let lost = known.orphans.iter().find(|batch| !own.contains(batch));
            assert_eq!(lost, None, "{what}: not set aside");
        }
    }
    judge(&disk, &known, &format!("seed {seed}, at last")).await;
}

async fn act(
    engine: &mut Engine,
    known: &mut Known,
    log: PartitionId,
    draws: &mut Draws,
    tag: u64,
) {
    let state = &engine.log(log).state;
    let (start, end) = (state.log_start.0, state.end.0);
    let active = state.segments.last().map(|active| active.bytes);
    let within = |draws: &mut Draws| {
        Offset(start + i64::try_from(draws.below((end - start + 1) as u64)).expect("small"))
    };
    match draws.below(24) {
        0 | 1 if active.is_some_and(|bytes| bytes > 0) => {
            known.line.rolls.push(Offset(end));
            engine.roll(log).await;
        }
        2 => {
            let to = within(draws);
            engine.delete_before(log, to).await;
        }
        3 if known.replicated => {
            let flush = [Flush::Durable, Flush::Replicated][draws.below(2) as usize];
            engine.logs.get_mut(&log).expect("open").flush = flush;
        }
        4 => {
            let _ = engine.storage.checkpoint().await;
        }
        5 => {
            let _ = engine.settle(log).await;
        }
        6 => {
            engine.append(log, tag, 1, 9_000).await;
        }
        7 | 8 => {
            engine.checkpoint_log(log).await;
        }
        9..12 => {
            let to = within(draws);
            let _ = known.cut(engine, log, to, false).await;
        }
        12 if draws.below(3) == 0 => {
            let to = Offset(end + 1 + draws.below(20) as i64);
            let _ = known.cut(engine, log, to, true).await;
        }
        kind => {
            let bytes = draws.below(700) as usize;
            engine.append(log, tag, 1 + (kind as usize) % 3, bytes).await;
        }
    }
}

#[tokio::test]
async fn every_life_finds_each_log_cut_or_whole() {
    for seed in 0..150 {
        story(seed).await;
    }
}

#[tokio::test]
async fn what_is_read_while_a_log_is_cut_is_not_served() {
    let disk = MemoryDisk::tracked(64 << 20);
    let mut engine = Engine::open(shared(&disk), config("/data")).await.expect("opens");
    let log = partition(1);
    engine.open_log(log).await.expect("new");
    let mut known = Known::default();
    for tag in 0..10 {
        engine.append(log, tag, 1, 600).await;
    }
    assert!(engine.settle(log).await);
    let reader = engine.log(log).reader.clone();
    let below = reader.read(Offset(0), Offset(3), 10_000, true).await.expect("readable");
    assert!(known.cut(&mut engine, log, Offset(5), false).await);
    assert_eq!(reader.read(Offset(0), Offset(3), 10_000, true).await.expect("readable"), below);
    let above = reader.read(Offset(6), Offset(10), 10_000, true).await;
    assert!(matches!(above, Err(ReadError::OutOfRange { end: Offset(5), .. })), "{above:?}");
    engine.append(log, 50, 2, 100).await;
    assert!(engine.settle(log).await);
    let fresh = reader.read(Offset(5), Offset(7), 10_000, true).await.expect("readable");
    assert_eq!(fresh[0].header().leader_epoch(), LeaderEpoch(4));
}
