//! Random walks of a replica whose log is compacted, beside a model that forgets nothing: below the
//! cleaned point each key has its last value, above it everything stands, and what a start finds
//! without a snapshot is the life that was.

#[path = "support/contents.rs"]
mod contents;
#[path = "compaction_random/transactions.rs"]
mod transactions;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contents::{Contents, show};
use quorate_core::batch::{BatchBuilder, Codec, Levels, Records};
use quorate_core::id::{
    LeaderEpoch, NodeId, Offset, ProducerEpoch, ProducerId, RequestId, WriteId,
};
use quorate_core::machine::Machine;
use quorate_core::partition::interface::{
    Acks, Assignment, Clean, CleanProblem, Effect, Input, Limits, LogOp, Outcome, PartitionConfig,
    Produce,
};
use quorate_core::partition::{Recovered, Replica};
use quorate_core::rng::Rng;
use quorate_core::segment::cleaned::Cleaned;
use quorate_core::time::{Instant, Now, Timestamp};
use transactions::Transactions;

const WALL_START: i64 = 1_767_225_600_000;

/// A record as it was produced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    at: Timestamp,
}

struct Walk {
    rng: Rng,
    now: Now,
    config: PartitionConfig,
    replica: Replica,
    contents: Contents,
    in_flight: Vec<WriteId>,
    /// Every record that was ever appended, by its offset.
    told: BTreeMap<Offset, Told>,
    /// When a tombstone was cleaned first.
    dated: BTreeMap<Offset, Timestamp>,
    cleans: Vec<Clean>,
    made: Vec<(u64, Cleaned)>,
    sequences: BTreeMap<i64, i32>,
    transactions: Transactions,
    /// What was answered last.
    answer: Option<(RequestId, Outcome)>,
    /// Of the last pass that came about: how far the log was clean, and where the log ended.
    last_pass: Option<(Offset, Offset, Option<Timestamp>)>,
    idle_passes: u32,
    next_request: u64,
    switched_off: bool,
    passes: u64,
}

fn config(rng: &mut Rng) -> PartitionConfig {
    PartitionConfig {
        delete: false,
        compact: true,
        segment_bytes_max: 200 + rng.below(2000),
        cleanable_share: [0, 300_000, 500_000][rng.below(3) as usize],
        compaction_lag_min: Duration::from_secs([0, 0, 20][rng.below(3) as usize]),
        compaction_lag_max: (rng.below(3) == 0).then(|| Duration::from_secs(100)),
        tombstone_time: Duration::from_secs([0, 30, 300][rng.below(3) as usize]),
        ..PartitionConfig::default()
    }
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let config = config(&mut rng);
        let now = Now { monotonic: Instant::ZERO, wall: Timestamp(WALL_START) };
        let replica = start(&config, Recovered::default());
        Self {
            rng,
            now,
            config,
            replica,
            contents: Contents::default(),
            in_flight: Vec::new(),
            told: BTreeMap::new(),
            dated: BTreeMap::new(),
            cleans: Vec::new(),
            made: Vec::new(),
            sequences: BTreeMap::new(),
            transactions: Transactions::default(),
            answer: None,
            last_pass: None,
            idle_passes: 0,
            next_request: 1,
            switched_off: false,
            passes: 0,
        }
    }

    fn run(&mut self) -> u64 {
        self.step(Input::Tick);
        for _ in 0..300 {
            match self.rng.below(20) {
                0..9 => self.produce(),
                9..12 => self.written(),
                12 => self.read_committed(),
                13..15 => self.pass(),
                15..17 => self.make(),
                17 => self.end_pass(),
                19 if self.rng.below(2) == 0 => self.end_transaction(),
                18 if self.rng.below(8) == 0 => self.configure(),
                19 if self.rng.below(5) == 0 => self.restart(),
                _ => {}
            }
        }
        // In the end all is quiet: passes come to an end.
        self.end_transactions();
        for _ in 0..60 {
            self.written();
            self.pass();
            self.make();
            self.end_pass();
        }
        self.look();
        self.restart();
        self.passes
    }

    fn produce(&mut self) {
        let producer = self.rng.below(6) as i64;
        let codec = [Codec::None, Codec::None, Codec::Lz4][self.rng.below(3) as usize];
        let mut builder = BatchBuilder::new(codec);
        let count = 1 + self.rng.below(4) as i32;
        let idempotent = producer < 2;
        let sequence = self.sequences.get(&producer).copied().unwrap_or(0);
        if idempotent {
            builder = builder.producer(ProducerId(producer), ProducerEpoch(0), sequence);
        }
        let mut guard = None;
        let mut writer = None;
        if (2..4).contains(&producer) {
            let id;
            (builder, id, guard) = self.in_transaction(builder);
            writer = Some(id);
        }
        let mut told = Vec::new();
        for _ in 0..count {
            let mut key = vec![b'a' + self.rng.below(8) as u8];
            // More than the smaller memories hold.
            if self.rng.below(2) == 0 {
                key.push(b'a' + self.rng.below(8) as u8);
            }
            let value =
                (self.rng.below(4) > 0).then(|| self.rng.below(1000).to_be_bytes().to_vec());
            let at = Timestamp(self.now.wall.0 - self.rng.below(1000) as i64);
            builder.append(at, Some(&key), value.as_deref(), []);
            told.push(Told { key, value, at });
        }
        let base = self.replica.log().end;
        let produce = Produce {
            request: self.request(),
            batch: builder.build(),
            levels: Levels::DEFAULT,
            acks: Acks::All,
            until: self.now.monotonic + Duration::from_secs(3600),
            guard,
        };
        self.step(Input::Produce(produce));
        if self.replica.log().end > base {
            if idempotent {
                self.sequences.insert(producer, sequence + count);
            }
            if let Some(id) = writer {
                self.wrote_in_transaction(id, base, count);
            }
            let ends = self.rng.below(3) > 0;
            if let Some(id) = writer.filter(|_| ends) {
                self.end_transaction_of(id);
            }
            for (place, told) in told.into_iter().enumerate() {
                self.told.insert(base.plus(place as i64), told);
            }
        }
    }

    fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// Steps, and returns the answer that comes at once.
    fn ask(&mut self, input: Input) -> Outcome {
        let request = input.request();
        self.step(input);
        let (to, outcome) = self.answer.take().expect("an answer");
        assert_eq!(Some(to), request);
        outcome
    }

    fn written(&mut self) {
        if let Some(&through) = self.in_flight.last() {
            self.in_flight.clear();
            self.step(Input::Written { through });
        }
    }

    fn pass(&mut self) {
        let millis = 1 + self.rng.below(40_000);
        self.now.monotonic = self.now.monotonic + Duration::from_millis(millis);
        self.now.wall.0 += millis as i64;
        if self.replica.deadline().is_some_and(|at| at <= self.now.monotonic) {
            self.step(Input::Tick);
            let after = self.replica.deadline();
            assert!(after.is_none_or(|at| at > self.now.monotonic), "the driver would spin");
        }
    }

    /// A pass is made, and waits to be told.
    fn make(&mut self) {
        if let Some(clean) = self.cleans.pop() {
            let memory = [1000, 1200, 1 << 16][self.rng.below(3) as usize];
            let (cleaned, _) = self.contents.clean(&clean, memory);
            self.made.push((clean.pass, cleaned));
        }
    }

    fn end_pass(&mut self) {
        let Some((pass, cleaned)) = self.made.pop() else { return };
        let fails = self.rng.below(10) == 0;
        let result = if fails { Err(CleanProblem::Failed) } else { Ok(Box::new(cleaned)) };
        self.step(Input::Cleaned { pass, result });
        self.look();
        self.look_for_markers();
    }

    fn configure(&mut self) {
        self.switched_off = !self.switched_off;
        let config = PartitionConfig { compact: !self.switched_off, ..self.config.clone() };
        self.step(Input::Configured(config));
    }

    /// A start that has the log alone: no snapshot of it can be read.
    fn restart(&mut self) {
        self.written();
        let mut rebuilt = self.contents.recover();
        let live = self.replica.log();
        let seen = (live.append_time, live.max_timestamp, live.cleaned);
        (rebuilt.append_time, rebuilt.max_timestamp, rebuilt.cleaned) = seen;
        for (id, producer) in live.producers.iter() {
            assert_eq!(rebuilt.producers.producer(id), Some(producer), "p{id}");
        }
        // An aborted transaction whose first records were compacted away begins later now, or is
        // gone; what readers are told of it is looked at below.
        let same = Recovered {
            producers: live.producers.clone(),
            aborted: live.aborted.clone(),
            ..rebuilt.clone()
        };
        assert_eq!(same, *live, "what is rebuilt is what was lived");
        let config = PartitionConfig { compact: !self.switched_off, ..self.config.clone() };
        self.replica = start(&config, rebuilt);
        self.now.monotonic = Instant::ZERO;
        (self.cleans, self.made) = (Vec::new(), Vec::new());
        self.step(Input::Tick);
        self.look_for_markers();
        self.read_committed();
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.replica.step(self.now, input, &mut effects);
        self.replica.check();
        for effect in effects {
            match effect {
                Effect::Write { write, op, .. } => {
                    if let LogOp::Replace(cleaned) = &op {
                        assert!(!self.switched_off, "nobody wants this pass any more");
                        self.note_pass(cleaned);
                    }
                    self.contents.apply(&op);
                    self.in_flight.push(write);
                }
                Effect::Clean(clean) => {
                    self.look_at(&clean);
                    self.cleans.push(clean);
                }
                Effect::Reply { request, outcome } => self.answer = Some((request, outcome)),
                Effect::Publish(_) | Effect::Discard(_) | Effect::TransactionEnded { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn look_at(&self, clean: &Clean) {
        let (log, decided) = (self.replica.log(), self.replica.view().last_stable);
        assert!(clean.until <= decided, "{} is not decided", clean.until);
        let active = log.segments.last().expect("something is there").base;
        assert!(clean.until <= active, "the active segment is not cleaned");
        let young = |(_, told): (&Offset, &Told)| {
            self.now.wall.0 - told.at.0 < self.config.compaction_lag_min.as_millis() as i64
        };
        assert!(!self.told.range(clean.dirty..clean.until).any(young), "too young");
    }

    /// A pass moves something, or there is nothing to move.
    fn note_pass(&mut self, cleaned: &Cleaned) {
        self.passes += 1;
        let now = (cleaned.to, self.replica.log().end, cleaned.tombstones_due);
        self.idle_passes = if self.last_pass == Some(now) { self.idle_passes + 1 } else { 0 };
        assert!(self.idle_passes < 3, "pass after pass moves nothing: {now:?}");
        self.last_pass = Some(now);
    }

    /// Compares what stands in the log with what was told.
    fn look(&mut self) {
        let to = self.replica.log().cleaned.to;
        let mut found = BTreeMap::new();
        for batch in self.contents.batches() {
            batch.verify().expect("a sound batch");
            if batch.header().is_control() {
                continue;
            }
            let records = batch.uncompressed(1 << 20).expect("records");
            for record in Records::new(&records, batch.header().record_count()) {
                let record = record.expect("a record");
                let offset = batch.offset_of(&record);
                let told = &self.told[&offset];
                assert_eq!(record.key, Some(&told.key[..]), "{offset} in {:?}", show(batch));
                assert_eq!(record.value, told.value.as_deref(), "{offset}");
                assert_eq!(batch.timestamp_of(&record), told.at, "{offset}");
                found.insert(offset, ());
                if record.value.is_none()
                    && let Some(horizon) = batch.delete_horizon()
                {
                    self.dated.entry(offset).or_insert(horizon);
                }
            }
        }
        let mut last: BTreeMap<&[u8], Offset> = BTreeMap::new();
        let counts = |offset: Offset| self.transactions.counts(offset) == Some(true);
        for (offset, told) in self.told.range(..to) {
            if counts(*offset) {
                last.insert(&told.key, *offset);
            }
        }
        let lasts: BTreeSet<Offset> = last.values().copied().collect();
        for (offset, told) in &self.told {
            let is_there = found.contains_key(offset);
            if *offset >= to {
                assert!(is_there, "{offset} is above the cleaned point {to}");
            } else if !lasts.contains(offset) {
                // It may stand where the pass that knew its successor stopped before it.
                continue;
            } else if told.value.is_some() {
                assert!(is_there, "{offset} is the last of its key below {to}");
            } else if !is_there {
                let dated = self.dated.get(offset);
                assert!(dated.is_some_and(|at| *at <= self.now.wall), "{offset} had its time");
            }
        }
        let superseded = |offset: &&Offset| **offset < to && !lasts.contains(*offset);
        let stale: Vec<_> = found.keys().filter(superseded).collect();
        assert!(stale.is_empty(), "{stale:?} were superseded below {to}");
    }
}

fn start(config: &PartitionConfig, recovered: Recovered) -> Replica {
    let assignment = Assignment {
        leader_epoch: LeaderEpoch(1),
        leader: Some(NodeId(1)),
        replicas: vec![NodeId(1)],
        in_sync: vec![NodeId(1)],
        ..Assignment::default()
    };
    Replica::new(NodeId(1), recovered, config.clone(), assignment, Limits::default())
}

#[test]
fn a_compacted_log_is_what_its_keys_were_last() {
    let walks = if cfg!(debug_assertions) { 60 } else { 2000 };
    let mut passes = 0;
    for seed in 0..walks {
        let result = std::panic::catch_unwind(|| Walk::new(seed).run());
        assert!(result.is_ok(), "seed {seed}");
        passes += result.unwrap_or_default();
    }
    assert!(passes > walks * 3, "{passes} passes");
}

/// Each planted bug of compaction must show.
#[cfg(mutants)]
#[test]
fn planted_bugs_are_noticed() {
    for slug in [
        "aborted-index-of-uncleaned-tail-lost",
        "cleaner-forgets-last-sequence",
        "cleaner-livelock-on-gap",
        "cleaner-loses-end-offset",
        "compact-past-hw",
        "marker-dropped-by-key",
        "policy-change-races-cleaner",
        "txn-state-reset-between-groups",
    ] {
        quorate_core::mutant::choose(Some(slug));
        let noticed =
            (0..300).find(|seed| std::panic::catch_unwind(|| Walk::new(*seed).run()).is_err());
        quorate_core::mutant::choose(None);
        assert!(noticed.is_some(), "{slug} is not noticed");
    }
}
