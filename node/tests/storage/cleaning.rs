//! Compaction of a log's files: what remains, what readers see meanwhile, and what a power loss at
//! any step leaves. Whatever step that is, the log is the one before the pass, or the one after it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::maybe_done;
use quorate_core::batch::{Batch, BatchBuilder, Codec, Records};
use quorate_core::compaction::Rules;
use quorate_core::id::{LeaderEpoch, Offset, PartitionId, ProducerEpoch, ProducerId, WriteId};
use quorate_core::partition::interface::{Clean, Flush, LogOp};
use quorate_core::segment::cleaned::Cleaned;
use quorate_core::segment::frame::FRAME_HEADER_BYTES;
use quorate_core::time::Timestamp;
use quorate_node::disk::Disk;
use quorate_node::disk::memory::{Fault, MemoryDisk};
use quorate_node::storage::clean::{CleanError, Pace, Pause, Tools};
use quorate_node::storage::{LogError, StorageConfig, Unpack, Unpacked};

use crate::lives::Draws;
use crate::support::{Engine, config, partition};
use crate::watched::{Watched, hold};

struct Whole;

impl Unpack for Whole {
    fn unpack<'a>(&'a self, batch: &'a Batch) -> Unpacked<'a> {
        let records = batch.uncompressed(1 << 20).map_err(|error| error.to_string());
        Box::pin(std::future::ready(records))
    }
}

struct AtOnce;

impl Pace for AtOnce {
    fn spent(&self, _: u64) -> Pause<'_> {
        Box::pin(std::future::ready(()))
    }

    fn is_over(&self) -> bool {
        false
    }
}

/// A batch of one key, `tag` is its value.
fn keyed(at: Offset, key: u64, tag: u64, bytes: usize) -> Batch {
    let producer = ProducerId(i64::try_from(key % 2).expect("small"));
    let sequence = i32::try_from(tag).expect("small");
    let mut builder = BatchBuilder::new(Codec::None).producer(producer, ProducerEpoch(0), sequence);
    let mut value = format!("{tag}:").into_bytes();
    value.resize(bytes.max(value.len()), b'.');
    let time = Timestamp(1_000 + i64::try_from(tag).expect("small"));
    builder.append(time, Some(&key.to_be_bytes()), Some(&value), []);
    let mut batch = builder.build();
    batch.stamp(at, LeaderEpoch(3));
    batch
}

async fn append(engine: &mut Engine, log: PartitionId, key: u64, tag: u64, bytes: usize) {
    let live = engine.logs.get_mut(&log).expect("open");
    let batch = keyed(live.state.end, key, tag, bytes);
    let frame_bytes = (FRAME_HEADER_BYTES + batch.len()) as u64;
    live.state.apply(&batch, frame_bytes).expect("it stands at the end");
    live.batches.push(batch.clone());
    let (flush, end) = (live.flush, live.state.end);
    let op = LogOp::Append { batch, levels: quorate_core::batch::Levels::DEFAULT };
    let write = engine.send(log, op).await;
    engine.logs.get_mut(&log).expect("open").appends.push((write, flush, end));
}

/// A pass over all closed segments, as the log's machine would ask for it.
async fn make(engine: &Engine, log: PartitionId, memory: usize) -> Result<Cleaned, CleanError> {
    make_within(engine, log, memory, 2_000).await
}

/// ... into segments of so many bytes.
async fn make_within(
    engine: &Engine,
    log: PartitionId,
    memory: usize,
    segment_bytes_max: u64,
) -> Result<Cleaned, CleanError> {
    let live = engine.log(log);
    let until = live.state.segments.last().map_or(Offset::ZERO, |active| active.base);
    let batches = live.state.producers.iter().flat_map(|(_, producer)| &producer.batches);
    let mut sequences: Vec<_> = batches.map(|batch| batch.base_offset).collect();
    sequences.sort_unstable();
    let rules = Rules {
        now: Some(Timestamp(5_000)),
        tombstone_time: Duration::from_secs(1),
        sequences,
        aborted: Vec::new(),
    };
    let dirty = live.state.cleaned.to;
    let clean = Clean { pass: 1, dirty, until, segment_bytes_max, rules };
    for _ in 0..2 {
        engine.storage.checkpoint().await.map_err(|_| CleanError::Changed)?;
    }
    let tools = Tools { unpack: &Whole, pace: &AtOnce, key_bytes_max: memory, hash_key: [5; 16] };
    live.reader.clean(&clean, &tools).await.map(|(cleaned, _)| cleaned)
}

async fn replace(engine: &mut Engine, log: PartitionId, cleaned: Cleaned) {
    engine.logs.get_mut(&log).expect("open").state.replace(&cleaned);
    engine.send(log, LogOp::Replace(Box::new(cleaned))).await;
}

/// Per offset, key and value of every record that stands in the log.
async fn records(engine: &Engine, log: PartitionId) -> BTreeMap<Offset, (Vec<u8>, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut next = engine.log(log).state.log_start;
    for batch in engine.read_all(log).await {
        let header = batch.header();
        assert!(header.base_offset() <= next && next < header.next_offset(), "no gap at {next}");
        next = header.next_offset();
        let records = batch.uncompressed(1 << 20).expect("records");
        for record in Records::new(&records, header.record_count()) {
            let record = record.expect("a record");
            let offset = batch.offset_of(&record);
            let (key, value) = (record.key.expect("a key"), record.value.expect("a value"));
            found.insert(offset, (key.to_vec(), value.to_vec()));
        }
    }
    assert_eq!(next, engine.log(log).state.end, "all of it was read");
    found
}

async fn open(disk: &MemoryDisk, log: PartitionId) -> Engine {
    let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
    let mut engine = Engine::open(disk, config("/data")).await.expect("it opens");
    engine.open_log(log).await.expect("the log is whole");
    engine
}

/// Five keys, again and again, in segments of four batches.
async fn fill(engine: &mut Engine, log: PartitionId, from: u64, count: u64) {
    for tag in from..from + count {
        if tag % 4 == 0 && tag > from {
            engine.roll(log).await;
        }
        append(engine, log, tag % 5, tag, 40).await;
    }
    assert!(engine.settle(log).await);
}

#[tokio::test]
async fn the_last_of_each_key_stays_and_offsets_do_not_move() {
    let (disk, log) = (MemoryDisk::tracked(64 << 20), partition(1));
    let mut engine = open(&disk, log).await;
    fill(&mut engine, log, 0, 30).await;
    let before = records(&engine, log).await;
    let bytes = engine.log(log).reader.bytes();
    let cleaned = make(&engine, log, 1 << 16).await.expect("a pass");
    assert_eq!(records(&engine, log).await, before, "nothing counts yet");
    replace(&mut engine, log, cleaned).await;
    assert!(engine.settle(log).await);
    let after = records(&engine, log).await;
    let last = after.len();
    assert!(last < 12 && engine.log(log).reader.bytes() < bytes / 2, "{last} records");
    assert!(after.iter().all(|(offset, record)| before.get(offset) == Some(record)));
    for _ in 0..2 {
        engine.storage.checkpoint().await.expect("a checkpoint");
    }
    // A second pass over it changes nothing but the files.
    fill(&mut engine, log, 30, 5).await;
    let cleaned = make(&engine, log, 1 << 16).await.expect("a pass");
    replace(&mut engine, log, cleaned).await;
    assert!(engine.settle(log).await);
    let after = records(&engine, log).await;
    let live = engine.log(log).state.clone();
    engine.close().await;
    let engine = open(&disk, log).await;
    assert_eq!(engine.log(log).state, live, "a start finds what was lived");
    assert_eq!(records(&engine, log).await, after);
}

#[tokio::test]
async fn a_reader_goes_on_while_its_segment_is_replaced() {
    let (disk, log) = (MemoryDisk::tracked(64 << 20), partition(1));
    let mut engine = open(&disk, log).await;
    fill(&mut engine, log, 0, 30).await;
    let reader = engine.log(log).reader.clone();
    let mut from = Offset::ZERO;
    let mut passes = 0;
    // A batch at a time, and a pass between any two reads.
    while from < engine.log(log).state.end {
        let end = engine.log(log).state.end;
        let read = reader.read(from, end, 1, true).await.expect("a read");
        let [batch] = &read[..] else { panic!("one batch") };
        assert!(batch.header().base_offset() <= from && from < batch.header().next_offset());
        from = batch.header().next_offset();
        if let Ok(cleaned) = make(&engine, log, 1 << 16).await {
            replace(&mut engine, log, cleaned).await;
            assert!(engine.settle(log).await);
            passes += 1;
        }
    }
    assert!(passes > 5, "{passes}");
}

#[tokio::test]
async fn what_is_not_wanted_leaves_nothing_behind() {
    let (disk, log) = (MemoryDisk::tracked(64 << 20), partition(1));
    let mut engine = open(&disk, log).await;
    fill(&mut engine, log, 0, 30).await;
    let directory = config("/data").directory.join("logs");
    let names = async || {
        let logs = disk.list(&directory).await.expect("a directory");
        let names = disk.list(&directory.join(&logs[0])).await.expect("a directory");
        names.into_iter().filter(|name| name.to_string_lossy().contains("-1.")).count()
    };
    let cleaned = make(&engine, log, 1 << 16).await.expect("a pass");
    assert!(names().await > 0);
    engine.log(log).reader.discard(&cleaned).await;
    assert_eq!(names().await, 0);
    // A pass that nobody finished goes with the next start.
    let _ = make(&engine, log, 1 << 16).await.expect("a pass");
    engine.close().await;
    let before = disk.list(&directory).await.expect("a directory").len();
    let engine = open(&disk, log).await;
    let logs = disk.list(&directory).await.expect("a directory");
    let left = disk.list(&directory.join(&logs[0])).await.expect("a directory");
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("-2.")), "{left:?}");
    assert_eq!(before, 1);
    drop(engine);
}

/// The index of a new segment is written beside its name first: that stayed, where the disk was
/// full or the power went (found in the life of seed 1310 of three nodes).
#[tokio::test]
async fn a_pass_that_is_cut_short_leaves_nothing_behind() {
    let mut cut_short = BTreeMap::<_, u32>::new();
    for fault in [Fault::Full, Fault::PowerLoss] {
        for later in 60..120 {
            let (disk, log) = (MemoryDisk::tracked(64 << 20), partition(1));
            let mut engine = open(&disk, log).await;
            fill(&mut engine, log, 0, 30).await;
            disk.strike_at(disk.operations() + later, fault);
            let passed = make(&engine, log, 1 << 16).await;
            let alive = engine.storage.checkpoint().await.is_ok();
            if passed.is_ok() || (fault == Fault::Full && !alive) {
                continue;
            }
            *cut_short.entry(alive).or_default() += 1;
            let mut files = disk.files();
            if !alive {
                let after = disk.after_power_loss(|| true);
                drop(open(&after, log).await);
                files = after.files();
            }
            let is_left = |(path, _): &(PathBuf, u64)| {
                let name = path.file_name().expect("a name").to_string_lossy();
                name.ends_with(".new") || name.contains("-1.")
            };
            let left: Vec<_> = files.iter().filter(|file| is_left(file)).collect();
            assert!(left.is_empty(), "{fault:?} {later}: {left:?}");
        }
    }
    assert!(cut_short.values().all(|&count| count > 3) && cut_short.len() == 2, "{cut_short:?}");
}

/// A disk hangs while a pass of compaction is on its way into its log, with so much `before` it in
/// the journal, and loses its power: `while_it_hangs`, or later.
async fn hang(limits: StorageConfig, before: usize, while_it_hangs: bool) {
    let (log, other) = (partition(1), partition(2));
    let disk = MemoryDisk::tracked(64 << 20);
    let watched = Watched::new(disk.clone());
    let mut engine = Engine::open(watched.clone(), limits).await.expect("it opens");
    engine.open_log(log).await.expect("new");
    engine.open_log(other).await.expect("new");
    for tag in 0..30 {
        if tag % 4 == 0 && tag > 0 {
            engine.roll(log).await;
        }
        // Something stays in each segment, so that each stays where it is, and only gets shorter.
        append(&mut engine, log, if tag % 4 == 0 { tag } else { 1 }, tag, 40).await;
    }
    assert!(engine.settle(log).await);
    let whole = records(&engine, log).await;
    let cleaned = make_within(&engine, log, 1 << 16, 1).await.expect("a pass");
    for tag in 0..before {
        engine.append(other, tag as u64, 1, 100).await;
        assert!(engine.settle(other).await);
    }
    let (journal, left) = (hold(&watched.seen.journal_syncs), hold(&watched.seen.cleaned_syncs));
    engine.append(other, 1_000, 1, 100).await;
    replace(&mut engine, log, cleaned).await;
    engine.append(other, 1_001, 1, 12_000).await;
    // The log's state knows of the pass.
    engine.checkpoint_log(log).await;
    watched.seen.journal_syncs.add_permits(journal);
    let mut checkpoint = std::pin::pin!(maybe_done(engine.storage.checkpoint()));
    for _ in 0..1_000 {
        let _ = futures_util::poll!(&mut checkpoint);
        tokio::task::yield_now().await;
    }
    if while_it_hangs {
        let after = open(&disk.after_power_loss(|| false), log).await;
        assert_eq!(records(&after, log).await, whole, "{before} before it: nothing of it counts");
        return;
    }
    watched.seen.cleaned_syncs.add_permits(left);
    assert!(engine.settle(log).await && engine.settle(other).await);
    checkpoint.as_mut().await;
    checkpoint.take_output().expect("done").expect("a checkpoint");
    let live = records(&engine, log).await;
    assert!(live.len() < whole.len());
    let after = open(&disk.after_power_loss(|| false), log).await;
    assert_eq!(records(&after, log).await, live, "{before} before it: all of it counts");
    assert_eq!(after.log(log).state, engine.log(log).state);
}

/// The states that a log tells know of a pass before its `cleaned` file is on the disk. With one
/// of them there and the old file beside it, a start took the lengths of files that do not count
/// for those of files that do, and read nothing behind the shorter length (seed 2627 of three
/// nodes).
#[tokio::test]
async fn no_state_on_the_disk_is_ahead_of_what_compaction_left_there() {
    for while_it_hangs in [true, false] {
        hang(config("/data"), 0, while_it_hangs).await;
    }
}

/// ... and where the journal has no room for the group that brings it, a checkpoint must come
/// first.
#[tokio::test]
async fn what_compaction_left_may_find_the_journal_full() {
    quorate_core::mark::take();
    for before in 30..50 {
        for while_it_hangs in [true, false] {
            let limits = StorageConfig { checkpoint_bytes: 1 << 30, ..config("/data") };
            hang(limits, before, while_it_hangs).await;
        }
    }
    let marks = quorate_core::mark::take();
    let mark = "cleaned-written-by-a-checkpoint";
    assert!(marks.get(mark).is_some_and(|&count| count > 0), "{marks:?}");
}

/// One batch of each piece stays as it is. Held as it was read until a piece of the new segment was
/// full, each of them held a whole piece: ten gigabytes of a log that leaves ten megabytes.
#[tokio::test]
async fn little_that_stays_does_not_hold_what_was_read() {
    let (disk, log) = (MemoryDisk::tracked(64 << 20), partition(1));
    let watched = Watched::new(disk);
    let mut engine = Engine::open(watched.clone(), config("/data")).await.expect("it opens");
    engine.open_log(log).await.expect("new");
    for tag in 0..2_000 {
        let key = if tag % 200 == 0 { tag } else { 1 };
        append(&mut engine, log, key, tag, 4_000).await;
    }
    engine.roll(log).await;
    append(&mut engine, log, 1, 2_000, 40).await;
    assert!(engine.settle(log).await);
    let held = &watched.seen.segment_bytes_held_max;
    held.store(0, Ordering::SeqCst);
    let cleaned = make_within(&engine, log, 1 << 16, 64 << 20).await.expect("a pass");
    let held = held.load(Ordering::SeqCst);
    let left: u64 = cleaned.segments.iter().map(|segment| segment.info.bytes).sum();
    assert!((40_000..100_000).contains(&left), "ten batches and what stands between: {left}");
    // A piece, and the next one while a frame begins in the one and ends in the other.
    assert!((256 << 10..=512 << 10).contains(&held), "{held} bytes");
}

/// A large segment is not synced at once: until it is, nobody else's sync comes back.
#[tokio::test]
async fn what_stays_is_synced_in_parts() {
    let (disk, log) = (MemoryDisk::tracked(256 << 20), partition(1));
    let watched = Watched::new(disk);
    let mut engine = Engine::open(watched.clone(), config("/data")).await.expect("it opens");
    engine.open_log(log).await.expect("new");
    for tag in 0..700 {
        append(&mut engine, log, tag, tag, 30_000).await;
    }
    engine.roll(log).await;
    append(&mut engine, log, 1, 700, 40).await;
    assert!(engine.settle(log).await);
    let unsynced = &watched.seen.segment_bytes_unsynced_max;
    unsynced.store(0, Ordering::SeqCst);
    let cleaned = make_within(&engine, log, 1 << 16, 64 << 20).await.expect("a pass");
    let unsynced = unsynced.load(Ordering::SeqCst);
    assert!(cleaned.segments[0].info.bytes > 20_000_000, "{:?}", cleaned.segments);
    assert!((2 << 20..3 << 20).contains(&unsynced), "{unsynced} bytes");
}

/// What a log must hold, and may.
#[derive(Default)]
struct Model {
    /// Every record that was ever appended.
    told: BTreeMap<Offset, (Vec<u8>, Vec<u8>)>,
    end: Offset,
    start: (Offset, Offset),
    /// How far it is compacted at least, and at most.
    to: (Offset, Offset),
}

impl Model {
    async fn meet(&mut self, engine: &Engine, log: PartitionId, what: &str) {
        let state = &engine.log(log).state;
        let (start, end, to) = (state.log_start, state.end, state.cleaned.to);
        assert!(end >= self.end, "{what}: it ends at {end}, promised {}", self.end);
        assert!(self.start.0 <= start && start <= self.start.1, "{what}: it starts at {start}");
        assert!(self.to.0 <= to && to <= self.to.1, "{what}: {to} is not in {:?}", self.to);
        self.told.retain(|offset, _| *offset < end);
        let found = records(engine, log).await;
        let mut last = BTreeMap::new();
        for (offset, (key, _)) in self.told.range(..to) {
            last.insert(key.clone(), *offset);
        }
        for (offset, record) in self.told.range(start..) {
            let stays = *offset >= to || last[&record.0] == *offset;
            let there = found.get(offset);
            assert_eq!(there, stays.then_some(record), "{what}: {offset}, compacted to {to}");
        }
        assert!(found.keys().all(|offset| self.told.contains_key(offset)), "{what}");
        (self.start, self.end, self.to) = ((start, start), end, (to, to));
    }

    fn learn(&mut self, engine: &Engine, log: PartitionId, passes: &[(Offset, WriteId)]) {
        let live = engine.log(log);
        let written = engine.recorder.written(log);
        for batch in &live.batches {
            let records = batch.uncompressed(1 << 20).expect("records");
            for record in Records::new(&records, batch.header().record_count()) {
                let record = record.expect("a record");
                let (key, value) = (record.key.expect("a key"), record.value.expect("a value"));
                self.told.insert(batch.offset_of(&record), (key.to_vec(), value.to_vec()));
            }
        }
        for (write, flush, end) in &live.appends {
            if *write <= written && *flush == Flush::Durable {
                self.end = self.end.max(*end);
            }
        }
        for (write, start) in &live.starts {
            self.start.1 = self.start.1.max(*start);
            if *write <= written {
                self.start.0 = self.start.0.max(*start);
            }
        }
        for (to, write) in passes {
            self.to.1 = self.to.1.max(*to);
            if *write <= written {
                self.to.0 = self.to.0.max(*to);
            }
        }
    }
}

async fn act(
    engine: &mut Engine,
    log: PartitionId,
    draws: &mut Draws,
    tag: &mut u64,
    passes: &mut Vec<(Offset, WriteId)>,
) {
    *tag += 1;
    let state = engine.log(log).state.clone();
    let active = state.segments.last().map(|active| active.bytes);
    match draws.below(24) {
        0..4 if active.is_some_and(|bytes| bytes > 0) => {
            engine.roll(log).await;
        }
        4 if draws.below(3) == 0 => {
            let to = state
                .log_start
                .plus(draws.below((state.end.0 - state.log_start.0 + 1) as u64) as i64);
            engine.delete_before(log, to).await;
        }
        5 => {
            let _ = engine.storage.checkpoint().await;
        }
        6 => {
            engine.checkpoint_log(log).await;
        }
        7..10 => {
            if engine.settle(log).await
                && let Ok(cleaned) = make(engine, log, 1 << 10).await
                && draws.below(6) > 0
                && cleaned.until > state.log_start
            {
                passes.push((cleaned.to, engine.log(log).next_write));
                replace(engine, log, cleaned).await;
            }
        }
        10 => {
            let _ = engine.settle(log).await;
        }
        _ => append(engine, log, draws.below(6), *tag, draws.below(400) as usize).await,
    }
}

/// Many lives of one log: passes, power losses at any operation, and on.
pub(crate) async fn story(seed: u64) {
    let mut draws = Draws(seed);
    let log = partition(1);
    let mut disk = MemoryDisk::tracked(64 << 20);
    let mut model = Model::default();
    let mut tag = 0;
    for life in 0..6 {
        let what = format!("seed {seed}, life {life}");
        disk.strike_at(disk.operations() + draws.below(300), Fault::PowerLoss);
        let opened = Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, config("/data")).await;
        let mut alive = false;
        if let Ok(mut engine) = opened {
            assert_eq!(engine.report.rot, [], "{what}");
            alive = match engine.open_log(log).await {
                Ok(()) => true,
                Err(LogError::Rot(rot)) => panic!("{what}: {rot}"),
                Err(_) => false,
            };
            if alive && !disk.is_dark() {
                model.meet(&engine, log, &what).await;
                let mut passes = Vec::new();
                for _ in 0..draws.below(80) {
                    act(&mut engine, log, &mut draws, &mut tag, &mut passes).await;
                }
                if draws.below(3) == 0 {
                    let _ = engine.settle(log).await;
                }
                model.learn(&engine, log, &passes);
                if draws.below(4) == 0 && !disk.is_dark() {
                    engine.checkpoint_log(log).await;
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
    let mut engine = open(&disk, log).await;
    model.meet(&engine, log, &format!("seed {seed}, at last")).await;
    fill(&mut engine, log, 1_000_000, 8).await;
}

#[tokio::test]
async fn a_power_loss_at_any_step_leaves_one_of_the_two() {
    for seed in 0..200 {
        story(seed).await;
    }
}
