//! A partition's replica: its state, its inputs in their order, its status line. What a leader
//! does with a batch is `leader`'s.

pub mod aborted;
pub mod cleaning;
mod closing;
mod confirming;
pub mod divergence;
mod follower;
pub mod interface;
pub mod isr;
mod leader;
pub mod leader_epochs;
pub mod message;
pub mod open_transactions;
pub mod producers;
mod progress;
mod proposal;
mod racks;
mod readers;
pub mod recovered;
mod refused;
mod replication;
pub mod retention;
mod role;
mod status;
mod tail;
mod transactions;
mod undecided;
mod upkeep;
mod verifying;
mod waiting;

use std::collections::VecDeque;
use std::time::Duration;

pub use self::recovered::{CleanedPart, Recovered, SegmentInfo};

use self::cleaning::Cleaning;
use self::interface::{
    Aborted, Assignment, Effect, Input, Limits, LogOp, Outcome, PartitionConfig, ReadView, Refusal,
};
use self::isr::InSync;
use self::readers::Readable;
use self::refused::Refused;
use self::retention::WallClock;
use self::role::Role;
use self::undecided::{Ended, Undecided};
use self::verifying::Verifying;
use self::waiting::{Reached, Waiting};
use crate::id::{LeaderEpoch, NodeEpoch, NodeId, Offset, RequestId, WriteId};
use crate::machine::Machine;
use crate::segment::frame::FRAME_HEADER_BYTES;
use crate::time::{Instant, Now};
use crate::{mutant, reached};

/// One replica of one partition.
#[derive(Clone, Debug)]
pub struct Replica {
    id: NodeId,
    limits: Limits,
    config: PartitionConfig,
    assignment: Assignment,
    /// Which life of the node this is. `None`: the controller has not said.
    node_epoch: Option<NodeEpoch>,
    role: Role,
    /// Questions asked of leaders in this life.
    attempts: u64,
    /// Storage is cutting the log: nothing else is done to it meanwhile.
    cutting: Option<WriteId>,
    /// Closes when that is done.
    close_after_cut: Option<RequestId>,
    /// The log as it will be when all writes in flight are done.
    log: Recovered,
    /// Bytes of all segments, kept beside the log so that no step adds them up.
    log_bytes: u64,
    writes: VecDeque<InFlight>,
    next_write: WriteId,
    in_sync: InSync,
    /// Everything below was `Written`.
    durable_end: Offset,
    /// Everything below is deleted for good: a start that is still on its way to the disk would
    /// fall again with a crash, so nobody is told of it.
    durable_start: Offset,
    high_watermark: Offset,
    undecided: Undecided,
    verifying: Verifying,
    /// Aborted transactions that the log forgets with these writes.
    leaving: Vec<(WriteId, Vec<Aborted>)>,
    /// See `ReadView::removals`.
    removals: u64,
    waiting: Waiting,
    readable: Readable,
    wall_clock: WallClock,
    /// When the active segment got its first batch, or when this life began.
    active_since: Instant,
    retention_at: Option<Instant>,
    expiry_at: Option<Instant>,
    cleaning: Cleaning,
    /// Before this, a full table of producers is not searched again.
    full_until: Instant,
    refused: Refused,
    /// What readers were last told.
    published: Option<ReadView>,
    /// Bytes of frames since the state was last written down, and after how many it is again.
    since_snapshot: u64,
    snapshot_after: u64,
    /// Something was written in this life, so a checkpoint would say something new.
    is_dirty: bool,
    state: State,
}

/// A write that storage has not reported.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    write: WriteId,
    /// The log's start and end behind it.
    start: Offset,
    end: Offset,
    /// Who waits for the replica to be closed by it.
    closes: Option<RequestId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The state is being written down for the next start; nothing new is accepted.
    Closing,
    /// A write failed: nobody knows what the disk holds.
    Halted,
}

impl Replica {
    /// A replica of a log that storage has recovered: all of it is durable. `check` holds for
    /// `recovered`, or this panics.
    pub fn new(
        id: NodeId,
        recovered: Recovered,
        config: PartitionConfig,
        assignment: Assignment,
        limits: Limits,
    ) -> Self {
        recovered.check();
        let (start, end) = (recovered.log_start, recovered.end);
        let is_alone = assignment.replicas.len() <= 1 && assignment.in_sync == [id];
        let high_watermark = if is_alone { end } else { recovered.log_start };
        let mut in_sync = InSync::default();
        in_sync.assign(&assignment.in_sync, high_watermark);
        in_sync.advance(id, end);
        let leads = is_alone && assignment.leader == Some(id);
        let role = if leads { Role::Leading(Box::default()) } else { Role::Neither };
        Self {
            id,
            wall_clock: limits.wall_clock,
            since_snapshot: 0,
            snapshot_after: limits.snapshot_bytes_min,
            limits,
            config,
            assignment,
            node_epoch: None,
            role,
            attempts: 0,
            cutting: None,
            close_after_cut: None,
            log_bytes: recovered.bytes(),
            log: recovered,
            writes: VecDeque::new(),
            next_write: WriteId(1),
            in_sync,
            durable_end: end,
            durable_start: start,
            high_watermark,
            undecided: Undecided::recovered(end, high_watermark),
            verifying: Verifying::default(),
            leaving: Vec::new(),
            removals: 0,
            waiting: Waiting::default(),
            readable: Readable::at(high_watermark, end),
            active_since: Instant::ZERO,
            retention_at: None,
            expiry_at: None,
            cleaning: Cleaning::default(),
            full_until: Instant::ZERO,
            refused: Refused::default(),
            published: None,
            is_dirty: false,
            state: State::Open,
        }
    }

    /// The log as it will be when all writes in flight are done.
    pub fn log(&self) -> &Recovered {
        &self.log
    }

    pub fn config(&self) -> &PartitionConfig {
        &self.config
    }

    /// What readers may see.
    pub fn view(&self) -> ReadView {
        ReadView {
            leader_epoch: self.assignment.leader_epoch,
            is_leader: self.is_leader(),
            log_start: self.durable_start,
            start_epoch: self.start_epoch(),
            high_watermark: self.high_watermark,
            last_stable: self.last_stable(),
            aborted_end: self.log.aborted.end().max(self.leaving_end()),
            removals: self.removals,
            end: self.log.end,
            max_timestamp: self.log.max_timestamp,
            is_settling: self.is_settling(),
        }
    }

    /// The epoch at the start that is told. While a deletion is under way, the log has forgotten
    /// that one.
    fn start_epoch(&self) -> LeaderEpoch {
        let first = self.log.leader_epochs.starts().first().map(|(epoch, _)| *epoch);
        let told = self.published.map(|view| view.start_epoch);
        let known = if self.durable_start == self.log.log_start { first } else { told.or(first) };
        known.unwrap_or(self.assignment.leader_epoch)
    }

    /// Whether it takes what only a leader may take.
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leading(_)) && self.state == State::Open
    }

    /// Writes that storage has not reported yet.
    pub fn writes_in_flight(&self) -> usize {
        self.writes.len()
    }

    /// The controller's last word.
    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.assignment.leader_epoch
    }

    /// The first step of a life: what the log could not say counts from now.
    fn begin(&mut self, now: Now) {
        if self.wall_clock.is_trusted() {
            self.log.producers.date(now.wall);
        }
        self.active_since = now.monotonic;
        self.plan_expiry(now);
        self.plan_retention(now, Duration::ZERO);
        self.notice_dirt(now);
    }

    fn on_configured(&mut self, now: Now, config: PartitionConfig, effects: &mut Vec<Effect>) {
        self.config = config;
        self.wall_clock.trust();
        self.wall_clock.observe(now, self.limits.clock_jump_min);
        self.plan_retention(now, Duration::ZERO);
        self.replan_cleaning(now);
        self.delete_by_size(effects);
        // Fewer may be enough from now on.
        self.advance(effects);
    }

    fn on_written(&mut self, now: Now, through: WriteId, effects: &mut Vec<Effect>) {
        if self.state == State::Halted {
            return;
        }
        let before = (self.durable_end, self.durable_start);
        while let Some(&done) = self.writes.front().filter(|first| first.write <= through) {
            if Some(done.write) == self.cutting {
                // Answered by `Truncated`, which says what the log is now.
                break;
            }
            self.writes.pop_front();
            self.answer_written(done, effects);
        }
        // Whoever waits for what is gone is to look again, and finds its offset out of range.
        for request in self.waiting.readers_below(self.durable_start) {
            self.waiting.remove(request);
            reply(request, Outcome::Advanced, effects);
        }
        self.in_sync.advance(self.id, self.durable_end);
        self.advance(effects);
        if !self.is_alone() {
            self.raise_to_leaders_start(effects);
            if self.durable_end > before.0 || self.durable_start > before.1 {
                self.acknowledge(false, effects);
            }
            self.send_to_all(now, effects);
        }
        self.delete_by_size(effects);
        if self.retention_at.is_none() {
            self.plan_retention(now, self.limits.retention_check_interval);
        }
        self.notice_dirt(now);
    }

    fn answer_written(&mut self, done: InFlight, effects: &mut Vec<Effect>) {
        self.durable_end = self.durable_end.max(done.end);
        self.durable_start = self.durable_start.max(done.start);
        self.forget_aborted(done.write);
        if let Some(request) = done.closes {
            reply(request, Outcome::Closed, effects);
        }
    }

    fn on_tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        while let Some((request, waiter)) = self.waiting.time_out(now.monotonic) {
            let outcome = match waiter.kind {
                waiting::Kind::Produce { .. } | waiting::Kind::Refuse { .. } => {
                    reached!("producer-timed-out");
                    Outcome::Refused(Refusal::TimedOut)
                }
                waiting::Kind::EndTransaction | waiting::Kind::Leads => {
                    Outcome::Refused(Refusal::TimedOut)
                }
                waiting::Kind::Delete => {
                    reached!("deletion-timed-out");
                    Outcome::Refused(Refusal::TimedOut)
                }
                waiting::Kind::Read { .. } => Outcome::Advanced,
            };
            reply(request, outcome, effects);
        }
        match self.role {
            Role::Leading(_) => self.tick_leading(now, effects),
            Role::Following(_) => self.tick_following(now, effects),
            Role::Neither => {}
        }
        if self.expiry_at.is_some_and(|at| at <= now.monotonic) {
            self.expire_producers(now, self.limits.producer_expiration);
            self.plan_expiry(now);
        }
        if self.retention_at.is_some_and(|at| at <= now.monotonic) {
            self.delete_by_time(now, effects);
            self.plan_retention(now, self.limits.retention_check_interval);
        }
        self.tick_cleaning(now, effects);
    }

    /// Hands `op` to storage, behind all earlier writes.
    fn write(
        &mut self,
        op: LogOp,
        closes: Option<RequestId>,
        effects: &mut Vec<Effect>,
    ) -> WriteId {
        let mut is_snapshot_due = false;
        match &op {
            LogOp::Append { batch, .. } => {
                self.since_snapshot += (FRAME_HEADER_BYTES + batch.len()) as u64;
                is_snapshot_due = self.since_snapshot >= self.snapshot_after
                    && batch.header().next_offset() == self.log.end;
            }
            LogOp::Roll { snapshot, .. } | LogOp::Checkpoint { snapshot } => {
                let again = 8 * snapshot.len() as u64;
                self.snapshot_after = again.max(self.limits.snapshot_bytes_min);
                self.since_snapshot = 0;
            }
            _ => {}
        }
        let write = self.next_write;
        self.next_write = write.next();
        self.is_dirty = true;
        let (start, end) = (self.log.log_start, self.log.end);
        self.writes.push_back(InFlight { write, start, end, closes });
        effects.push(Effect::Write { write, op, flush: self.config.flush });
        if is_snapshot_due {
            reached!("snapshot-by-size");
            let snapshot = self.log.to_snapshot();
            self.write(LogOp::Checkpoint { snapshot }, None, effects);
        }
        write
    }

    /// Moves the high watermark to where it belongs, and answers whom that releases.
    fn advance(&mut self, effects: &mut Vec<Effect>) {
        let high = match &self.role {
            Role::Leading(_) if self.commits() => self.in_sync.high_watermark(),
            Role::Following(following) => following.high_watermark(self.durable_end),
            Role::Leading(_) | Role::Neither => None,
        };
        if let Some(high) = high.filter(|_| self.state != State::Halted) {
            self.high_watermark = self.high_watermark.max(high);
        }
        self.readable.commit(self.high_watermark);
        self.find_common_start();
        // Whoever folds the log is told of its markers in their places.
        while let Some(ended) = self.undecided.next(self.high_watermark) {
            self.release(Reached { high_watermark: ended.marker, ..self.reached() }, effects);
            self.undecided.commit_next();
            if self.is_leader() {
                let Ended { producer, ending, .. } = ended;
                effects.push(Effect::TransactionEnded { producer, ending });
            }
        }
        self.release(self.reached(), effects);
    }

    fn release(&mut self, reached: Reached, effects: &mut Vec<Effect>) {
        while let Some((request, waiter)) = self.waiting.release(reached) {
            let outcome = self.outcome(waiter.kind);
            reply(request, outcome, effects);
        }
    }

    fn reached(&self) -> Reached {
        Reached {
            durable_end: self.durable_end,
            high_watermark: self.high_watermark,
            committed_total: self.readable.committed_total(),
            last_stable: self.last_stable(),
            common_start: self.common_start(),
            confirmed: if self.waiting.awaits_word() { self.confirmed() } else { 0 },
        }
    }

    /// What a request is told that has waited long enough.
    fn outcome(&self, kind: waiting::Kind) -> Outcome {
        if let waiting::Kind::Produce { copies, .. } = kind
            && copies > 0
            && (self.assignment.in_sync.len() < usize::from(copies.max(self.config.in_sync_min))
                || !self.config.racks.suffice(&self.assignment.in_sync))
        {
            reached!("committed-by-too-few");
            return Outcome::Refused(Refusal::NotEnoughReplicasAfterAppend);
        }
        let deletes = matches!(kind, waiting::Kind::Delete);
        kind.outcome(if deletes { self.common_start() } else { self.durable_start })
    }

    /// The mutant's: whoever waits for a commit is told that it has come.
    fn tell_too_early(&mut self, effects: &mut Vec<Effect>) {
        while let Some((request, waiter)) = self.waiting.pop() {
            reply(request, waiter.kind.outcome(self.durable_start), effects);
        }
    }

    /// Readers are told before anybody is answered: who hears that a record is committed, or that
    /// there is more to read, finds it. `from` is where this step's effects begin.
    fn publish(&mut self, from: usize, effects: &mut Vec<Effect>) {
        let mut view = self.view();
        // zoo I10: a start that rises only after the segment is gone sends readers into nothing.
        if mutant!("delete-then-advance-start")
            && let Some(published) = self.published
            && !self.writes.is_empty()
        {
            view.log_start = published.log_start;
        }
        if let Some(before) = self.published.filter(|it| it.is_leader && view.is_leader)
            && before.leader_epoch == view.leader_epoch
        {
            assert!(before.last_stable <= view.last_stable, "what was decided is not: {self}");
        }
        if self.published != Some(view) {
            self.published = Some(view);
            effects.insert(from, Effect::Publish(view));
        }
    }
}

impl Machine for Replica {
    type Input = Input;
    type Effect = Effect;

    const TICK: Input = Input::Tick;

    fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        let from = effects.len();
        self.wall_clock.observe(now, self.limits.clock_jump_min);
        if self.published.is_none() {
            self.begin(now);
        }
        match input {
            Input::Assigned(assignment) => self.on_assigned(now, assignment, effects),
            Input::Configured(config) => self.on_configured(now, config, effects),
            Input::Produce(produce) => self.on_produce(now, produce, effects),
            Input::Wait(wait) => self.on_wait(now, wait, effects),
            Input::Verify(verify) => self.on_verify(now, verify, effects),
            Input::EndTransaction(end) => self.on_end_transaction(now, end, effects),
            Input::Aborted { request, from, to } => self.on_aborted(request, (from, to), effects),
            Input::DescribeProducers { request } => self.on_describe_producers(request, effects),
            Input::DeleteRecords { request, before, until } => {
                self.on_delete_records(request, before, until, effects);
            }
            Input::EpochEnd { request, epoch } => self.on_epoch_end(request, epoch, effects),
            Input::StillLeads { request, until } => self.on_still_leads(request, until, effects),
            Input::Cancelled { request } => {
                self.waiting.remove(request);
            }
            Input::Written { through } => self.on_written(now, through, effects),
            Input::WriteFailed { write } => self.on_write_failed(write, effects),
            Input::Close { request } => self.on_close(request, effects),
            Input::Cleaned { pass, result } => self.on_cleaned(now, pass, result, effects),
            Input::Tick => self.on_tick(now, effects),
            peer @ (Input::Registered { .. }
            | Input::Message { .. }
            | Input::Connected { .. }
            | Input::Unfenced { .. }
            | Input::LogRead { .. }
            | Input::Truncated { .. }
            | Input::ProposalRefused { .. }) => self.on_peer(now, peer, effects),
        }
        if !self.is_alone() {
            self.plan_telling(now);
        }
        self.publish(from, effects);
        assert!(
            self.log.log_start <= self.high_watermark && self.high_watermark <= self.log.end,
            "{self}"
        );
    }

    fn deadline(&self) -> Option<Instant> {
        if self.state == State::Halted {
            return None;
        }
        let peers = match &self.role {
            _ if self.state != State::Open => None,
            Role::Leading(leading) if !leading.followers.is_empty() => {
                leading.deadline(&self.in_sync, self.log.end, &self.limits.replication)
            }
            Role::Following(following) => following.deadline(),
            Role::Leading(_) | Role::Neither => None,
        };
        let own = [self.retention_at, self.expiry_at, self.cleaning.look_at];
        let deadlines = own.into_iter().chain([self.waiting.first_until(), peers]);
        deadlines.flatten().min()
    }

    fn check(&self) {
        self.log.check();
        assert_eq!(self.log_bytes, self.log.bytes(), "{self}");
        assert!(self.durable_end <= self.log.end, "{self}");
        assert!(self.durable_start <= self.log.log_start, "{self}");
        // Nothing is shown as committed that is not written here.
        assert!(self.high_watermark <= self.durable_end, "{self}");
        self.check_role();
        self.check_transactions();
        self.waiting.check(self.reached());
        assert!(self.waiting.len() <= self.limits.waiting_max, "{self}");
        let in_order = |(a, b): (&InFlight, &InFlight)| a.write <= b.write && a.end <= b.end;
        assert!(self.writes.iter().zip(self.writes.iter().skip(1)).all(in_order), "{self}");
        assert!(self.writes.iter().all(|in_flight| in_flight.write < self.next_write), "{self}");
        assert!(self.state != State::Halted || self.waiting.len() == 0, "{self}");
        assert!(self.log.producers.is_empty() || self.expiry_at.is_some(), "{self}");
    }
}

fn reply(request: RequestId, outcome: Outcome, effects: &mut Vec<Effect>) {
    effects.push(Effect::Reply { request, outcome });
}
