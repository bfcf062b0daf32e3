//! Random walks of one replica beside its slow twin: odd orders, lost answers, crashes anywhere.
//! Every step is checked; at each crash the rebuilt state must be the one that lived.

#[path = "support/log.rs"]
mod log;
#[path = "support/twin.rs"]
mod twin;

use std::time::Duration;

use log::{Log, agrees};
use quorate_core::batch::{Batch, BatchBuilder, Codec, Levels};
use quorate_core::id::{LeaderEpoch, NodeId, Offset, ProducerEpoch, ProducerId, RequestId};
use quorate_core::machine::Machine;
use quorate_core::partition::interface::{
    Acks, Assignment, Effect, Input, Isolation, Limits, Outcome, PartitionConfig, Produce, Refusal,
    Wait,
};
use quorate_core::partition::{Recovered, Replica};
use quorate_core::rng::Rng;
use quorate_core::time::{Instant, Now, Timestamp};
use twin::{Expected, Twin};

const STEPS_A_WALK: u64 = 400;

#[test]
fn a_replica_and_its_slow_twin_agree() {
    let walks = if cfg!(debug_assertions) { 50 } else { 2500 };
    for seed in 0..walks {
        let result = std::panic::catch_unwind(|| Walk::new(seed).run());
        assert!(result.is_ok(), "seed {seed}");
    }
}

/// A walk that notices nothing would be worthless: each planted bug of the replica must show.
#[cfg(mutants)]
#[test]
fn planted_bugs_are_noticed() {
    for slug in [
        "answer-before-written",
        "append-after-write-error",
        "append-time-falls",
        "cached-wrong-offset",
        "dedup-window-too-small",
        "delete-then-advance-start",
        "lost-wakeup-in-purgatory",
        "retention-past-hw",
        "sequence-wrap",
        "state-before-append",
        "state-dies-with-log",
        "unknown-timestamp-is-old",
    ] {
        quorate_core::mutant::choose(Some(slug));
        let noticed =
            (0..300).find(|seed| std::panic::catch_unwind(|| Walk::new(*seed).run()).is_err());
        quorate_core::mutant::choose(None);
        assert!(noticed.is_some(), "{slug} is not noticed");
    }
}

struct Walk {
    rng: Rng,
    now: Now,
    config: PartitionConfig,
    replica: Replica,
    log: Log,
    twin: Twin,
    epoch: i32,
    next_request: u64,
    effects: Vec<Effect>,
    /// What readers were last told.
    told_start: Offset,
}

fn config(rng: &mut Rng) -> PartitionConfig {
    let some = |rng: &mut Rng, below: u64| (rng.below(2) == 0).then(|| rng.below(below));
    PartitionConfig {
        retention_time: some(rng, 20_000).map(Duration::from_millis),
        retention_bytes: some(rng, 5000),
        segment_bytes_max: 100 + rng.below(2000),
        segment_time_max: Duration::from_millis(1 + rng.below(20_000)),
        log_append_time: rng.below(3) == 0,
        ..PartitionConfig::default()
    }
}

fn replica(recovered: Recovered, config: &PartitionConfig, epoch: i32) -> Replica {
    let assignment = Assignment {
        leader_epoch: LeaderEpoch(epoch),
        leader: Some(NodeId(1)),
        replicas: vec![NodeId(1)],
        in_sync: vec![NodeId(1)],
        ..Assignment::default()
    };
    let limits = Limits {
        retention_check_interval: Duration::from_millis(500),
        clock_jump_min: Duration::from_secs(10),
        snapshot_bytes_min: 700,
        ..Limits::default()
    };
    Replica::new(NodeId(1), recovered, config.clone(), assignment, limits)
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let config = config(&mut rng);
        Self {
            rng,
            now: Now { monotonic: Instant::ZERO, wall: Timestamp(1_000_000) },
            replica: replica(Recovered::default(), &config, 0),
            config,
            log: Log::new(Recovered::default()),
            twin: Twin::default(),
            epoch: 0,
            next_request: 0,
            effects: Vec::new(),
            told_start: Offset::ZERO,
        }
    }

    fn run(mut self) {
        self.step(Input::Tick, None);
        for _ in 0..STEPS_A_WALK {
            match self.rng.below(100) {
                0..45 => self.produce(),
                45..70 => self.written(),
                70..80 => self.wait(),
                80..84 => self.delete_records(),
                84..92 => self.pass(),
                92..94 => self.jump(),
                94..96 => self.cancel(),
                96 => self.configure(),
                97 => self.assign(),
                98 => self.close(),
                _ => self.crash(),
            }
        }
        self.fail();
    }

    /// One step, and everything that can be said of it.
    fn step(&mut self, input: Input, asked: Option<Offset>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.replica.step(self.now, input, &mut effects);
        self.replica.check();
        for effect in effects.drain(..) {
            match effect {
                Effect::Write { write, op, .. } => {
                    self.twin.on_write(self.now, &self.config, (write, &op), asked);
                    self.log.write(write, op);
                }
                Effect::Reply { request, outcome } => {
                    self.twin.on_reply(self.now, request, &outcome);
                }
                Effect::Publish(view) => {
                    assert_eq!(view.high_watermark, self.twin.durable_end());
                    self.told_start = view.log_start;
                }
                Effect::Halt { reason } => panic!("{reason:?}"),
                other => panic!("one replica has nobody to turn to: {other:?}"),
            }
        }
        self.effects = effects;
        self.twin.check_waiting();
        let start = self.twin.durable_start();
        assert_eq!(self.told_start, start, "readers do not know where the log starts");
        assert_eq!(self.replica.view().high_watermark, self.twin.durable_end());
        if self.log.in_flight() == 0 {
            self.twin.check_state(self.replica.log());
            assert!(agrees(self.log.folded(), self.replica.log()));
        }
    }

    fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    fn until(&mut self) -> Instant {
        self.now.monotonic + Duration::from_millis(1 + self.rng.below(3000))
    }

    fn batch(&mut self) -> Batch {
        let count = 1 + i32::try_from(self.rng.below(4)).expect("small");
        let id = ProducerId(i64::try_from(self.rng.below(4)).expect("small") - 1);
        let mut builder = BatchBuilder::new(Codec::None);
        let mut count_again = None;
        if id.is_some() {
            let near_wrap = i32::MAX - i32::try_from(self.rng.below(4)).expect("small");
            let (mut epoch, mut sequence) =
                self.twin.next(id).unwrap_or((ProducerEpoch(0), near_wrap));
            let remembered = self.twin.remembered(id).len();
            match self.rng.below(10) {
                0..6 => {}
                6 | 7 if remembered > 0 => {
                    let place = usize::try_from(self.rng.below(remembered as u64)).expect("small");
                    let again = self.twin.remembered(id)[place].sent();
                    (epoch, sequence, count_again) = (again.0, again.1, Some(again.2));
                }
                8 => sequence = sequence.wrapping_add(1) & i32::MAX,
                9 => {
                    epoch = ProducerEpoch(epoch.0 + 1);
                    sequence = i32::try_from(self.rng.below(2)).expect("small");
                }
                _ => epoch = ProducerEpoch((epoch.0 - 1).max(0)),
            }
            builder = builder.producer(id, epoch, sequence);
        }
        let timestamp = match self.rng.below(8) {
            0 => Timestamp::NONE,
            _ => Timestamp(self.now.wall.0 - i64::try_from(self.rng.below(5000)).expect("small")),
        };
        let value = vec![0; usize::try_from(self.rng.below(300)).expect("small")];
        for _ in 0..count_again.unwrap_or(count) {
            builder.append(timestamp, None, Some(&value), []);
        }
        builder.build()
    }

    fn produce(&mut self) {
        let (request, batch, until) = (self.request(), self.batch(), self.until());
        let acks = [Acks::All, Acks::Leader, Acks::None][self.rng.below(3) as usize];
        let expected = self.twin.expect(batch.header());
        let place = match &expected {
            Expected::Append => {
                let records = i64::from(batch.header().record_count());
                Some((self.twin.end(), self.twin.end().plus(records)))
            }
            Expected::Duplicate { base, end } => Some((*base, *end)),
            Expected::Refused(_) => None,
        };
        let end_before = self.twin.end();
        match (&expected, place) {
            (Expected::Refused(refusal), _) => {
                let refusal = *refusal;
                self.refused(
                    request,
                    Input::Produce(produce(request, batch, acks, until)),
                    refusal,
                );
                return;
            }
            (_, Some(place)) => self.twin.wait_produce(request, place, until),
            _ => {}
        }
        let appended = expected == Expected::Append;
        self.step(Input::Produce(produce(request, batch, acks, until)), None);
        assert_eq!(appended, self.twin.end() > end_before, "{expected:?}");
    }

    fn refused(&mut self, request: RequestId, input: Input, refusal: Refusal) {
        let mut effects = Vec::new();
        self.replica.step(self.now, input, &mut effects);
        self.replica.check();
        let outcome = Outcome::Refused(refusal);
        assert_eq!(effects, [Effect::Reply { request, outcome }]);
    }

    fn written(&mut self) {
        let in_flight = self.log.in_flight() as u64;
        if in_flight == 0 {
            return;
        }
        let count = usize::try_from(1 + self.rng.below(in_flight)).expect("small");
        let through = self.log.complete(count).expect("something was in flight");
        self.twin.on_done(through);
        self.step(Input::Written { through }, None);
        self.twin.check_size(&self.config);
    }

    fn wait(&mut self) {
        let span = u64::try_from(self.twin.end().0 - self.twin.start().0).expect("ascending");
        let near = if self.rng.below(2) == 0 { span.min(3) } else { span };
        let back = i64::try_from(self.rng.below(near + 1)).expect("small");
        let wait = Wait {
            request: self.request(),
            beyond: Offset(self.twin.end().0 - back),
            bytes_min: 1 + self.rng.below(1500),
            isolation: Isolation::ReadUncommitted,
            until: self.until(),
        };
        let readable = self.twin.readable(wait.beyond);
        let mut effects = Vec::new();
        let (request, bytes_min) = (wait.request, wait.bytes_min);
        self.twin.wait_read(&wait);
        self.replica.step(self.now, Input::Wait(wait), &mut effects);
        self.replica.check();
        // A reader far behind is answered at once with whatever there is.
        let at_once = [Effect::Reply { request, outcome: Outcome::Advanced }];
        if effects == at_once {
            assert!(readable > 0, "woken for nothing");
            self.twin.cancel(request);
        } else {
            assert_eq!(effects, []);
            assert!(readable < bytes_min, "sleeps on what is there");
        }
    }

    fn delete_records(&mut self) {
        let request = self.request();
        let (start, high) = (self.twin.start(), self.twin.durable_end());
        let span = u64::try_from(high.0 - start.0).expect("ascending");
        let before = match self.rng.below(4) {
            0 => None,
            1 => Some(high.plus(1)),
            _ => Some(start.plus(i64::try_from(self.rng.below(span + 1)).expect("small"))),
        };
        let until = self.now.monotonic + Duration::from_millis(self.rng.below(3000));
        let input = Input::DeleteRecords { request, before, until };
        let asked = before.unwrap_or(high);
        if asked > high {
            let told = self.twin.durable_start();
            let refusal = Refusal::OffsetOutOfRange { start: told, high_watermark: high };
            self.refused(request, input, refusal);
        } else {
            self.twin.expect_delete(request, asked, until);
            self.step(input, Some(asked));
        }
    }

    fn pass(&mut self) {
        let millis = self.rng.below(2000);
        let end = self.now.monotonic + Duration::from_millis(millis);
        while let Some(at) = self.replica.deadline().filter(|at| *at <= end) {
            self.move_to(at.max(self.now.monotonic));
            self.step(Input::Tick, None);
            let after = self.replica.deadline();
            assert!(after.is_none_or(|after| after > self.now.monotonic), "the driver would spin");
            self.twin.check_time(self.now);
        }
        self.move_to(end);
    }

    fn move_to(&mut self, at: Instant) {
        let passed = at.saturating_since(self.now.monotonic);
        self.now.monotonic = at;
        self.now.wall.0 += i64::try_from(passed.as_millis()).expect("short");
    }

    /// The wall clock is set, within what no retention minds.
    fn jump(&mut self) {
        self.now.wall.0 += i64::try_from(self.rng.below(4000)).expect("small") - 2000;
    }

    fn cancel(&mut self) {
        if self.twin.is_waiting() {
            let place = usize::try_from(self.rng.below(100)).expect("small");
            let request = self.twin.any_pending(place).expect("somebody waits");
            self.twin.cancel(request);
            self.step(Input::Cancelled { request }, None);
        }
    }

    fn configure(&mut self) {
        self.config = config(&mut self.rng);
        let config = self.config.clone();
        self.step(Input::Configured(config), None);
    }

    fn assign(&mut self) {
        self.epoch += 1;
        self.step(
            Input::Assigned(Assignment {
                leader_epoch: LeaderEpoch(self.epoch),
                leader: Some(NodeId(1)),
                replicas: vec![NodeId(1)],
                in_sync: vec![NodeId(1)],
                ..Assignment::default()
            }),
            None,
        );
    }

    /// A clean stop and the next start.
    fn close(&mut self) {
        let request = self.request();
        let mut effects = Vec::new();
        self.replica.step(self.now, Input::Close { request }, &mut effects);
        for effect in effects {
            if let Effect::Write { write, op, .. } = effect {
                self.twin.on_write(self.now, &self.config, (write, &op), None);
                self.log.write(write, op);
            }
        }
        if let Some(through) = self.log.complete(self.log.in_flight()) {
            self.twin.on_done(through);
            let mut effects = Vec::new();
            self.replica.step(self.now, Input::Written { through }, &mut effects);
            let closed = Effect::Reply { request, outcome: Outcome::Closed };
            assert!(effects.contains(&closed), "{effects:?}");
        }
        self.crash();
    }

    fn crash(&mut self) {
        let rebuilt = self.log.recover();
        assert!(agrees(&rebuilt, self.log.folded()), "rebuilt from the newest snapshot");
        let older = self.log.recover_from_older_snapshot();
        assert!(agrees(&older, self.log.folded()), "rebuilt from an older snapshot");
        self.twin.on_crash();
        self.twin.check_state(&rebuilt);
        self.log = Log::new(rebuilt.clone());
        self.now.monotonic = Instant::ZERO;
        self.replica = replica(rebuilt, &self.config, self.epoch);
        self.step(Input::Tick, None);
    }

    /// A failed write: everybody is refused, and nobody is served any more.
    fn fail(mut self) {
        let Some(write) = self.log.next_write() else {
            return;
        };
        let mut effects = Vec::new();
        self.replica.step(self.now, Input::WriteFailed { write }, &mut effects);
        self.replica.check();
        let refused = effects.iter().filter(|effect| {
            let storage = Outcome::Refused(Refusal::Storage);
            matches!(effect, Effect::Reply { outcome, .. } if *outcome == storage)
        });
        assert_eq!(refused.count(), self.twin.waiting());
        let (request, batch, until) = (self.request(), self.batch(), self.until());
        let input = Input::Produce(produce(request, batch, Acks::All, until));
        self.refused(request, input, Refusal::Storage);
    }
}

fn produce(request: RequestId, batch: Batch, acks: Acks, until: Instant) -> Produce {
    Produce { request, batch, levels: Levels::DEFAULT, acks, until, guard: None }
}
