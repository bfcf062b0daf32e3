//! The language of the scripts about one replica.

use std::fmt::Write as _;
use std::time::Duration;

use quorate_core::batch::control::Marker;
use quorate_core::batch::{Batch, BatchBuilder, Codec, Levels};
use quorate_core::id::{
    CoordinatorEpoch, LeaderEpoch, NodeId, Offset, ProducerEpoch, ProducerId, RequestId,
    VerificationGuard, WriteId,
};
use quorate_core::machine::Machine;
use quorate_core::partition::interface::{
    Aborted, Acks, Assignment, Clean, CleanProblem, Effect, EndTransaction, Ending, Flush, Input,
    Isolation, Limits, LogOp, Outcome, PartitionConfig, Produce, ProducerStatus, ReadView, Refusal,
    Verify, Wait,
};
use quorate_core::partition::retention::WallClock;
use quorate_core::partition::{Recovered, Replica};
use quorate_core::time::{Instant, Now, Timestamp};

use super::contents::{Contents, show};
use super::log::{Log, agrees};
use super::script::{Command, Stage, millis};

/// Where the wall clock of every script begins: 2026-01-01.
pub(crate) const WALL_START: i64 = 1_767_225_600_000;

/// A replica, its log, and clocks that move when told to.
pub(crate) struct PartitionStage {
    now: Now,
    replica: Option<Replica>,
    log: Log,
    /// What stands in the log, written or not.
    contents: Contents,
    /// The pass that was asked for last.
    clean: Option<Clean>,
    config: PartitionConfig,
    limits: Limits,
    assignment: Assignment,
    next_request: u64,
    shown: ReadView,
    /// What the node would write down: the last wall time that it believed.
    believed: Timestamp,
    clock: WallClock,
}

impl PartitionStage {
    pub(crate) fn new() -> Self {
        Self {
            now: Now { monotonic: Instant::ZERO, wall: Timestamp(WALL_START) },
            replica: None,
            log: Log::new(Recovered::default()),
            contents: Contents::default(),
            clean: None,
            config: PartitionConfig::default(),
            limits: Limits::default(),
            assignment: assignment(1, Some(1)),
            next_request: 1,
            shown: ReadView::default(),
            believed: Timestamp(WALL_START),
            clock: WallClock::default(),
        }
    }

    fn request(&mut self) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        request
    }

    fn replica(&mut self) -> &mut Replica {
        let recovered = self.log.recover();
        self.replica.get_or_insert_with(|| {
            let (config, limits) = (self.config.clone(), self.limits.clone());
            Replica::new(NodeId(1), recovered, config, self.assignment.clone(), limits)
        })
    }

    fn step(&mut self, input: Input) -> String {
        let mut effects = Vec::new();
        let now = self.now;
        self.look();
        let replica = self.replica();
        replica.step(now, input, &mut effects);
        replica.check();
        let mut out = String::new();
        for effect in effects {
            self.show(&effect, &mut out);
            match effect {
                Effect::Write { write, op, .. } => {
                    self.contents.apply(&op);
                    self.log.write(write, op);
                }
                Effect::Clean(clean) => self.clean = Some(clean),
                _ => {}
            }
        }
        // What is in the log is what the replica thinks it is.
        if self.log.in_flight() == 0 {
            let live = self.replica().log().clone();
            assert!(agrees(self.log.folded(), &live), "the live state strays");
        }
        out
    }

    fn show(&mut self, effect: &Effect, out: &mut String) {
        let _ = match effect {
            Effect::Write { write, op, flush } => {
                let flush = if *flush == Flush::Replicated { " unsynced" } else { "" };
                writeln!(out, "{}{flush}", show_op(*write, op))
            }
            Effect::Reply { request, outcome } => {
                writeln!(out, "reply r{request} {}", show_outcome(outcome))
            }
            Effect::Publish(view) => {
                let before = std::mem::replace(&mut self.shown, *view);
                let ReadView { end, max_timestamp, aborted_end, removals, .. } = before;
                let same = ReadView { end, max_timestamp, aborted_end, removals, ..*view };
                if same == before { Ok(()) } else { writeln!(out, "{}", show_view(view)) }
            }
            Effect::TransactionEnded { producer, ending } => {
                writeln!(out, "ended p{producer} {ending:?}")
            }
            Effect::Halt { reason } => writeln!(out, "halt {reason:?}"),
            Effect::Clean(clean) => {
                let Clean { pass, dirty, until, rules, .. } = clean;
                let believed = if rules.now.is_some() { "" } else { " no-clock" };
                writeln!(out, "clean pass={pass} dirty={dirty} until={until}{believed}")
            }
            Effect::Discard(cleaned) => writeln!(out, "discard until={}", cleaned.until),
            other => panic!("one replica has nobody to turn to: {other:?}"),
        };
    }

    fn produce(&mut self, command: &Command<'_>) -> String {
        let produce = Produce {
            request: self.request(),
            batch: batch(command, self.now.wall),
            levels: Levels::DEFAULT,
            acks: match command.value("acks") {
                None | Some("all") => Acks::All,
                Some("0") => Acks::None,
                Some("1") => Acks::Leader,
                Some(copies) => Acks::AtLeast(copies.parse().expect("acks")),
            },
            until: self.until(command, "30s"),
            guard: command.read("guard").map(VerificationGuard),
        };
        self.step(Input::Produce(produce))
    }

    /// `verify pid=ID@EPOCH#SEQUENCE tv=2`
    fn verify(&mut self, command: &Command<'_>) -> String {
        let (producer, epoch, sequence) = producer(command).expect("pid=");
        let transaction_version = command.read("tv").unwrap_or(2);
        let request = self.request();
        let verify = Verify { request, producer, epoch, sequence, transaction_version };
        self.step(Input::Verify(verify))
    }

    /// `end commit|abort pid=ID@EPOCH#-1 by=COORDINATOR tv=2`
    fn end(&mut self, command: &Command<'_>) -> String {
        let (producer, epoch, _) = producer(command).expect("pid=");
        let is_commit = command.words().next() == Some("commit");
        let end = EndTransaction {
            request: self.request(),
            producer,
            epoch,
            ending: if is_commit { Ending::Committed } else { Ending::Aborted },
            coordinator_epoch: CoordinatorEpoch(command.read("by").unwrap_or(0)),
            transaction_version: command.read("tv").unwrap_or(2),
            until: self.until(command, "30s"),
        };
        self.step(Input::EndTransaction(end))
    }

    fn wait(&mut self, command: &Command<'_>) -> String {
        let wait = Wait {
            request: self.request(),
            beyond: Offset(command.read("beyond").expect("beyond=")),
            bytes_min: command.read("bytes").unwrap_or(1),
            isolation: if command.words().next() == Some("committed") {
                Isolation::ReadCommitted
            } else {
                Isolation::ReadUncommitted
            },
            until: self.until(command, "500ms"),
        };
        self.step(Input::Wait(wait))
    }

    fn until(&self, command: &Command<'_>, default: &str) -> Instant {
        self.now.monotonic + duration(command.value("for").unwrap_or(default))
    }

    /// Time passes on both clocks; the replica is ticked whenever it wants to be.
    fn pass(&mut self, time: Duration) -> String {
        let end = self.now.monotonic + time;
        let mut out = String::new();
        while let Some(at) = self.replica().deadline().filter(|at| *at <= end) {
            self.move_to(at.max(self.now.monotonic));
            let ticked = self.step(Input::Tick);
            let after = self.replica().deadline();
            assert!(after.is_none_or(|after| after > self.now.monotonic), "the driver would spin");
            for line in ticked.lines() {
                let _ = writeln!(out, "[{}] {line}", self.now.monotonic);
            }
        }
        self.move_to(end);
        out
    }

    fn move_to(&mut self, at: Instant) {
        let passed = at.saturating_since(self.now.monotonic).as_millis();
        self.now.monotonic = at;
        self.now.wall.0 += i64::try_from(passed).expect("a script's time");
        self.look();
    }

    /// What a node does from time to time.
    fn look(&mut self) {
        self.clock.observe(self.now, self.limits.clock_jump_min);
        if self.clock.is_trusted() {
            self.believed = self.now.wall;
        }
    }

    fn written(&mut self, count: usize) -> String {
        match self.log.complete(count.min(self.log.in_flight())) {
            Some(through) => self.step(Input::Written { through }),
            None => "nothing is in flight\n".to_owned(),
        }
    }

    /// The pass that was asked for ends.
    fn cleaned(&mut self, command: &Command<'_>) -> String {
        let Some(clean) = self.clean.take() else { return "no pass is under way\n".to_owned() };
        let pass = clean.pass;
        if command.words().next() == Some("fails") {
            return self.step(Input::Cleaned { pass, result: Err(CleanProblem::Failed) });
        }
        let (cleaned, counts) =
            self.contents.clean(&clean, command.read("memory").unwrap_or(1 << 20));
        let mut out = format!(
            "{} to {} records, {} to {} segments, up to {}\n",
            counts.records_before,
            counts.records_after,
            counts.segments_before,
            counts.segments_after,
            cleaned.to
        );
        out.push_str(&self.step(Input::Cleaned { pass, result: Ok(Box::new(cleaned)) }));
        out
    }

    fn show_contents(&self) -> String {
        let mut out = String::new();
        for batch in self.contents.batches() {
            let header = batch.header();
            let _ = write!(out, "{}..{}", header.base_offset(), header.next_offset());
            if header.producer_id().is_some() {
                let (id, epoch) = (header.producer_id(), header.producer_epoch());
                let _ = write!(out, " p{id}@{epoch}#{}", header.base_sequence());
            }
            if let Some(horizon) = batch.delete_horizon() {
                let _ = write!(out, " horizon=+{}s", (horizon.0 - WALL_START) / 1000);
            }
            let _ = writeln!(out, " {}", show(batch).join(" "));
        }
        out
    }

    /// The process dies; what was not written is lost.
    fn crash(&mut self) -> String {
        let rebuilt = self.log.recover();
        assert!(agrees(&rebuilt, self.log.folded()), "rebuilt: {rebuilt:?}");
        assert!(agrees(&self.log.recover_from_older_snapshot(), self.log.folded()));
        self.log = Log::new(rebuilt);
        self.replica = None;
        self.now.monotonic = Instant::ZERO;
        self.step(Input::Tick)
    }

    /// A crash, and a start that knows what the last life believed.
    fn restart(&mut self, command: &Command<'_>) -> String {
        let away_max = duration(command.value("away_max").expect("away_max="));
        self.clock = WallClock::since(self.believed, Instant::ZERO, away_max);
        self.limits.wall_clock = self.clock;
        self.crash()
    }

    fn configure(&mut self, command: &Command<'_>) {
        let millis = |text: &str| (text != "-1").then(|| duration(text));
        for (key, value) in command.pairs() {
            let number = || value.parse().unwrap_or_else(|_| panic!("{key}={value}"));
            match key {
                "segment_bytes" => self.config.segment_bytes_max = number(),
                "segment_time" => self.config.segment_time_max = duration(value),
                "retention_time" => self.config.retention_time = millis(value),
                "retention_bytes" => self.config.retention_bytes = Some(number()),
                "in_sync_min" => self.config.in_sync_min = value.parse().expect("in_sync_min"),
                "cleanable" => self.config.cleanable_share = number(),
                "lag_min" => self.config.compaction_lag_min = duration(value),
                "lag_max" => self.config.compaction_lag_max = Some(duration(value)),
                "tombstone_time" => self.config.tombstone_time = duration(value),
                "policy" => {
                    self.config.delete = value.contains("delete");
                    self.config.compact = value.contains("compact");
                }
                "time" => self.config.log_append_time = value == "append",
                "flush" => {
                    self.config.flush =
                        if value == "replicated" { Flush::Replicated } else { Flush::Durable };
                }
                "snapshot_bytes" => self.limits.snapshot_bytes_min = number(),
                "waiting_max" => self.limits.waiting_max = number() as usize,
                "aborted_max" => self.limits.aborted_max = number() as usize,
                "verifying_max" => self.limits.verifying_max = number() as usize,
                "producers_max" => self.limits.producers_max = number() as usize,
                "epoch" => self.assignment.leader_epoch = LeaderEpoch(number() as i32),
                other => panic!("no such setting: {other}"),
            }
        }
    }
}

impl Stage for PartitionStage {
    fn run(&mut self, command: &Command<'_>) -> String {
        match command.name {
            "open" => {
                self.configure(command);
                self.step(Input::Tick)
            }
            "configure" => {
                self.configure(command);
                let config = self.config.clone();
                self.step(Input::Configured(config))
            }
            "produce" => self.produce(command),
            "wait" => self.wait(command),
            "verify" => self.verify(command),
            "end" => self.end(command),
            "aborted" => {
                let request = self.request();
                let place = |key| Offset(command.read(key).expect("from= to="));
                self.step(Input::Aborted { request, from: place("from"), to: place("to") })
            }
            "producers" => {
                let request = self.request();
                self.step(Input::DescribeProducers { request })
            }
            "delete" => {
                let request = self.request();
                let before = command.read("before").map(Offset);
                let until = self.now.monotonic + Duration::from_secs(60);
                self.step(Input::DeleteRecords { request, before, until })
            }
            "epoch-end" => {
                let request = self.request();
                let epoch = command.words().next().expect("an epoch").parse().expect("an epoch");
                self.step(Input::EpochEnd { request, epoch: LeaderEpoch(epoch) })
            }
            "cancel" => {
                let request = command.words().next().and_then(|word| word.strip_prefix('r'));
                let request = RequestId(request.expect("a request").parse().expect("a number"));
                self.step(Input::Cancelled { request })
            }
            "assign" => {
                let epoch = command.read("epoch").expect("epoch=");
                self.assignment = assignment(epoch, command.read("leader"));
                let assignment = self.assignment.clone();
                self.step(Input::Assigned(assignment))
            }
            "written" => {
                let count = command.words().next().map_or(usize::MAX, |n| n.parse().expect("n"));
                self.written(count)
            }
            "fail" => {
                let write = self.log.next_write().expect("a write in flight");
                self.step(Input::WriteFailed { write })
            }
            "close" => {
                let request = self.request();
                self.step(Input::Close { request })
            }
            "pass" => self.pass(duration(command.words().next().expect("a time"))),
            "jump" => {
                self.now.wall.0 += millis(command.words().next().expect("a time"));
                String::new()
            }
            "cleaned" => self.cleaned(command),
            "contents" => self.show_contents(),
            "crash" => self.crash(),
            "restart" => self.restart(command),
            "status" => format!("{}\n", self.replica()),
            "log" => show_log(self.replica().log()),
            other => panic!("no such command: {other}"),
        }
    }
}

fn assignment(epoch: i32, leader: Option<i32>) -> Assignment {
    Assignment {
        leader_epoch: LeaderEpoch(epoch),
        leader: leader.map(NodeId),
        replicas: vec![NodeId(1)],
        in_sync: vec![NodeId(1)],
        ..Assignment::default()
    }
}

fn duration(text: &str) -> Duration {
    Duration::from_millis(u64::try_from(millis(text)).expect("a time that is not negative"))
}

/// `pid=7@0#3 count=2 bytes=100 ts=+5s`: by default one record of 10 bytes, at the current time.
/// `pid=ID@EPOCH#SEQUENCE`; without a sequence number, -1.
fn producer(command: &Command<'_>) -> Option<(ProducerId, ProducerEpoch, i32)> {
    let (id, rest) = command.value("pid")?.split_once('@').expect("pid=ID@EPOCH");
    let (epoch, sequence) = rest.split_once('#').unwrap_or((rest, "-1"));
    Some((
        ProducerId(id.parse().expect("an id")),
        ProducerEpoch(epoch.parse().expect("an epoch")),
        sequence.parse().expect("a sequence"),
    ))
}

pub(crate) fn batch(command: &Command<'_>, wall: Timestamp) -> Batch {
    let mut builder = BatchBuilder::new(Codec::None);
    if let Some((id, epoch, sequence)) = producer(command) {
        builder = builder.producer(id, epoch, sequence);
    }
    if command.words().any(|word| word == "transactional") {
        builder = builder.transactional();
    }
    let timestamp = match command.value("ts") {
        None => wall,
        Some("none") => Timestamp::NONE,
        Some(relative) => Timestamp(wall.0 + millis(relative.trim_start_matches('+'))),
    };
    let value = vec![b'x'; command.read("bytes").unwrap_or(10)];
    if let Some(keys) = command.value("keys") {
        // `a:1,b:2,c:` are two values and a tombstone.
        for item in keys.split(',') {
            let (key, value) = item.split_once(':').unwrap_or((item, "x"));
            let value = (!value.is_empty()).then_some(value.as_bytes());
            builder.append(timestamp, Some(key.as_bytes()), value, []);
        }
        return builder.build();
    }
    for _ in 0..command.read("count").unwrap_or(1) {
        builder.append(timestamp, None, Some(&value), []);
    }
    builder.build()
}

pub(crate) fn show_op(write: WriteId, op: &LogOp) -> String {
    match op {
        LogOp::Append { batch, .. } => {
            let header = batch.header();
            let mut out = format!(
                "append w{write} {}..{} e{}",
                header.base_offset(),
                header.next_offset(),
                header.leader_epoch()
            );
            if header.producer_id().is_some() {
                let (id, epoch) = (header.producer_id(), header.producer_epoch());
                let _ = write!(out, " p{id}@{epoch}");
                let _ = match Marker::of(batch) {
                    Some(marker) => write!(out, " {:?}", marker.ending),
                    None => write!(out, "#{}", header.base_sequence()),
                };
            }
            out
        }
        LogOp::Roll { base, .. } => format!("roll w{write} base={base}"),
        LogOp::DeleteBefore { offset } => format!("delete-before w{write} {offset}"),
        LogOp::Checkpoint { .. } => format!("checkpoint w{write}"),
        LogOp::Replace(cleaned) => {
            let made = cleaned.segments.len();
            format!("replace w{write} until={} by {made} to={}", cleaned.until, cleaned.to)
        }
        LogOp::TruncateTo { offset, .. } => format!("truncate-to w{write} {offset}"),
        LogOp::ResetTo { offset } => format!("reset-to w{write} {offset}"),
    }
}

pub(crate) fn show_view(view: &ReadView) -> String {
    let lead = if view.is_leader { "" } else { " not-leader" };
    let (high, stable) = (view.high_watermark, view.last_stable);
    let stable = if stable == high { String::new() } else { format!(" stable={stable}") };
    format!("publish e{} start={} hw={high}{stable}{lead}", view.leader_epoch, view.log_start)
}

pub(crate) fn show_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Produced { base, append_time: None, .. } => format!("produced base={base}"),
        Outcome::Produced { base, append_time: Some(time), .. } => {
            format!("produced base={base} at=+{}ms", time.0 - WALL_START)
        }
        Outcome::Advanced => "advanced".to_owned(),
        Outcome::RecordsDeleted { log_start } => format!("records-deleted start={log_start}"),
        Outcome::EpochEnd { end: None } => "epoch-end unknown".to_owned(),
        Outcome::EpochEnd { end: Some((epoch, end)) } => format!("epoch-end e{epoch} end={end}"),
        Outcome::Verified(None) => "verified already".to_owned(),
        Outcome::Verified(Some(guard)) => format!("verify with the coordinator, guard={guard}"),
        Outcome::TransactionEnded => "transaction-ended".to_owned(),
        Outcome::Aborted { transactions, .. } => {
            let shown = transactions.iter().map(|it| {
                let Aborted { producer, first, last } = it;
                format!(" p{producer}:{first}..={last}")
            });
            format!("aborted{}", shown.collect::<String>())
        }
        Outcome::Producers(producers) => {
            let shown = producers.iter().map(|it| {
                let ProducerStatus { producer, epoch, last_sequence, coordinator_epoch, .. } = it;
                let open = it.transaction.map(|first| format!(" open from {first}"));
                let open = open.unwrap_or_default();
                format!("\n  p{producer}@{epoch}#{last_sequence} by={coordinator_epoch}{open}")
            });
            format!("producers{}", shown.collect::<String>())
        }
        Outcome::Leads => "leads".to_owned(),
        Outcome::Closed => "closed".to_owned(),
        Outcome::Refused(refusal) => format!("refused {}", show_refusal(refusal)),
    }
}

fn show_refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::OutOfOrderSequence { producer, expected, found } => {
            format!("out-of-order p{producer} expected={expected} found={found}")
        }
        Refusal::StaleProducerEpoch { producer, current } => {
            format!("stale-producer-epoch p{producer} current={current}")
        }
        Refusal::OffsetOutOfRange { start, high_watermark } => {
            format!("offset-out-of-range start={start} hw={high_watermark}")
        }
        other => format!("{other:?}"),
    }
}

fn show_log(log: &Recovered) -> String {
    let mut out = String::new();
    for segment in &log.segments {
        let _ = writeln!(out, "segment base={} bytes={}", segment.base, segment.bytes);
    }
    for (epoch, start) in log.leader_epochs.starts() {
        let _ = writeln!(out, "epoch e{epoch} from={start}");
    }
    for (id, producer) in log.producers.iter() {
        let _ = write!(out, "producer p{id}@{}", producer.epoch);
        for batch in &producer.batches {
            let (first, last) = (batch.base_sequence, batch.last_sequence);
            let _ = write!(out, " {first}..={last}→{}", batch.base_offset);
        }
        if let Some(marker) = producer.marker {
            let _ = write!(out, " marker={marker} by={}", producer.coordinator_epoch);
        }
        out.push('\n');
    }
    for (first, producer) in log.open.iter() {
        let _ = writeln!(out, "open p{producer} from={first}");
    }
    for aborted in log.aborted.ranges() {
        let Aborted { producer, first, last } = aborted;
        let _ = writeln!(out, "aborted p{producer} {first}..={last}");
    }
    out
}
