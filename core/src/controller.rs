//! Decides the records of the metadata log from requests. Its truth is that log; it folds it.
//!
//! Requests are decided against everything decided before, committed or not, and answered when all
//! of that is committed. While one append is on its way, what is decided meanwhile gathers for the
//! next: a thousand requests cost a few writes.

mod balance;
mod configs;
mod decommission;
mod election;
mod features;
mod forwarded;
mod in_sync;
pub mod interface;
mod nodes;
mod placement;
mod reassign;
mod replace;
mod revise;
mod sessions;
mod topics;

use std::collections::VecDeque;
use std::fmt;

use self::interface::{Effect, Input, Limits, Outcome, Problem, ProblemKind};
use self::replace::Moves;
use self::sessions::{Due, Sessions};
pub use self::topics::REPLICATION_GOAL;
use crate::batch::{Batch, BatchBuilder, Codec};
use crate::id::{NodeId, ProducerId, RequestId};
use crate::machine::Machine;
use crate::metadata::payload::records_of;
use crate::metadata::{Image, Record};
use crate::own_log::{self, AppendId};
use crate::rng::Rng;
use crate::time::{Instant, Now, Timestamp};
use crate::{mutant, reached};

/// What a record takes in a batch beside its own bytes, at most.
const AROUND_RECORD_BYTES: usize = 32;

/// The controller of a cluster.
#[derive(Clone, Debug)]
pub struct Controller {
    limits: Limits,
    rng: Rng,
    role: Role,
    /// What the committed records add up to.
    committed: Image,
    /// The same with those that are on their way.
    decided: Image,
    /// Records that are not committed yet, as they go into the log.
    queue: VecDeque<Decided>,
    /// The append on its way, and how many of `queue` it holds.
    in_flight: Option<(AppendId, usize)>,
    next_append: AppendId,
    /// Records committed and decided in this leadership, counted.
    committed_count: u64,
    decided_count: u64,
    /// Outcomes and the count of committed records that releases each; ascending.
    answers: VecDeque<(u64, RequestId, Outcome)>,
    /// What is decided now is seen together: it goes into one append.
    together: bool,
    /// When nodes were heard of, and what happens by time alone.
    sessions: Sessions,
    /// Replicas on their way to other nodes.
    moves: Moves,
    /// There may be leaderships to take from nodes that are drained.
    drains_pending: bool,
}

#[derive(Clone, Debug)]
struct Decided {
    record: Record,
    bytes: Vec<u8>,
    /// What follows may go into another append.
    ends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Another node leads the metadata log.
    Idle,
    /// The log is being replayed.
    Loading,
    Leading,
}

impl Controller {
    /// `seed` draws topic ids; no two lives may have the same.
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            limits,
            rng: Rng::new(seed),
            role: Role::Idle,
            committed: Image::default(),
            decided: Image::default(),
            queue: VecDeque::new(),
            in_flight: None,
            next_append: AppendId(0),
            committed_count: 0,
            decided_count: 0,
            answers: VecDeque::new(),
            together: false,
            sessions: Sessions::default(),
            moves: Moves::default(),
            drains_pending: false,
        }
    }

    /// What the committed records add up to.
    pub fn image(&self) -> &Image {
        &self.committed
    }

    fn on_log(&mut self, now: Instant, input: own_log::Input, effects: &mut Vec<Effect>) {
        use own_log::Input as Log;
        match input {
            Log::Elected { .. } => self.on_elected(effects),
            Log::Resigned => self.on_resigned(effects),
            Log::Replayed { batch } => self.on_replayed(&batch, effects),
            Log::ReplayEnded => self.on_replay_ended(now),
            Log::Appended { append } => self.on_appended(append, effects),
            Log::AppendRefused { append } => self.on_append_refused(now, append, effects),
        }
    }

    fn on_elected(&mut self, effects: &mut Vec<Effect>) {
        self.on_resigned(effects);
        self.role = Role::Loading;
        self.committed = Image::default();
        effects.push(Effect::Log(own_log::Effect::Replay));
    }

    fn on_resigned(&mut self, effects: &mut Vec<Effect>) {
        // The next controller may find it in the log.
        self.forget(
            "the controller lost its office before it knew: look whether it was done",
            effects,
        );
        self.role = Role::Idle;
        self.sessions = Sessions::default();
        self.moves = Moves::default();
        self.drains_pending = false;
    }

    fn on_replayed(&mut self, batch: &Batch, effects: &mut Vec<Effect>) {
        if self.role != Role::Loading || batch.header().is_control() {
            return;
        }
        match records_of(batch) {
            Ok(records) => {
                for record in &records {
                    self.committed.apply(record);
                }
                effects.push(Effect::Committed(records));
            }
            Err(reason) => {
                reached!("metadata-unreadable");
                self.role = Role::Idle;
                effects.push(Effect::Halt { reason });
            }
        }
    }

    fn on_replay_ended(&mut self, now: Instant) {
        if self.role == Role::Loading {
            self.role = Role::Leading;
            self.decided = self.committed.clone();
            self.resume(now);
        }
    }

    /// What happens by time alone, and what goes on by itself, is found in the image. Nodes that
    /// were not heard of by this controller get a full session.
    fn resume(&mut self, now: Instant) {
        self.drains_pending = true;
        self.find_moves();
        let nodes = self.decided.nodes().map(|node| (node.id, node.fenced)).collect::<Vec<_>>();
        for (node, fenced) in nodes {
            if fenced {
                if !self.sessions.is_planned(Due::Gone(node)) {
                    self.wait_for_return(now, node);
                }
            } else if let Some(timeout) = self.limits.session_timeout {
                self.sessions.cancel(Due::Gone(node));
                if !self.sessions.is_planned(Due::Session(node)) {
                    self.sessions.hear(now, node);
                    self.sessions.plan(Due::Session(node), now + timeout);
                }
            }
        }
        if let Some(interval) = self.limits.balance_interval
            && !self.sessions.is_planned(Due::Balance)
        {
            self.sessions.plan(Due::Balance, now + interval);
        }
    }

    /// All whose time has come, each decided on top of the one before.
    fn on_tick(&mut self, now: Instant) {
        while let Some(due) = self.sessions.take_due(now) {
            match due {
                Due::Session(node) => self.fence(now, node),
                Due::Gone(node) => self.replace_node(node),
                Due::Balance => self.balance(now),
            }
        }
    }

    fn on_appended(&mut self, append: AppendId, effects: &mut Vec<Effect>) {
        let Some((_, count)) = self.in_flight.take_if(|(in_flight, _)| *in_flight == append) else {
            return;
        };
        let records = self.queue.drain(..count).map(|decided| decided.record).collect::<Vec<_>>();
        for record in &records {
            self.committed.apply(record);
        }
        self.committed_count += count as u64;
        effects.push(Effect::Committed(records));
        while let Some((_, request, outcome)) =
            self.answers.pop_front_if(|(count, ..)| *count <= self.committed_count)
        {
            effects.push(Effect::Reply { request, outcome });
        }
    }

    /// The log did not take the append, so whatever was decided on top of it is void as well.
    fn on_append_refused(&mut self, now: Instant, append: AppendId, effects: &mut Vec<Effect>) {
        if self.in_flight.is_some_and(|(in_flight, _)| in_flight == append) {
            reached!("decisions-rolled-back");
            self.forget("the metadata log did not take the change: try again", effects);
            self.resume(now);
        }
    }

    /// Back to what is committed; who waits is refused.
    fn forget(&mut self, message: &str, effects: &mut Vec<Effect>) {
        self.queue.clear();
        self.in_flight = None;
        self.decided = self.committed.clone();
        self.decided_count = self.committed_count;
        for (_, request, _) in std::mem::take(&mut self.answers) {
            let problem = Problem::new(ProblemKind::NotAvailable, message);
            effects.push(Effect::Reply { request, outcome: Outcome::Refused(problem) });
        }
    }

    fn on_request(
        &mut self,
        now: Instant,
        request: RequestId,
        input: Input,
        effects: &mut Vec<Effect>,
    ) {
        if let Err(problem) = self.admit() {
            effects.push(Effect::Reply { request, outcome: Outcome::Refused(problem) });
            return;
        }
        let before = self.queue.len();
        let mut outcome = self.decide(now, input);
        if let Err(problem) = self.check_size(before) {
            reached!("decision-too-large");
            self.take_back(now, before);
            outcome = Outcome::Refused(problem);
        }
        // zoo B29: what is decided is told before it is true.
        let exposed = mutant!("uncommitted-image-exposed");
        if self.decided_count == self.committed_count || exposed {
            effects.push(Effect::Reply { request, outcome });
        } else {
            // Even a refusal may rest on what is not committed yet.
            self.answers.push_back((self.decided_count, request, outcome));
        }
    }

    /// Whether what was decided behind the first `before` records fits into entries of the log:
    /// what it can never take must not be tried for ever.
    fn check_size(&self, before: usize) -> Result<(), Problem> {
        let mut bytes = 0;
        for decided in self.queue.iter().skip(before) {
            bytes += decided.bytes.len() + AROUND_RECORD_BYTES;
            if bytes > self.limits.decision_bytes_max {
                let message = format!(
                    "this is too much for one decision of the metadata, which has at most {} \
                     bytes: ask for less at once, such as fewer partitions",
                    self.limits.decision_bytes_max
                );
                return Err(Problem::new(ProblemKind::InvalidRequest, message));
            }
            bytes = if decided.ends { 0 } else { bytes };
        }
        Ok(())
    }

    /// What was decided behind the first `before` records is not.
    fn take_back(&mut self, now: Instant, before: usize) {
        self.decided_count -= (self.queue.len() - before) as u64;
        self.queue.truncate(before);
        self.decided = self.committed.clone();
        for waiting in &self.queue {
            self.decided.apply(&waiting.record);
        }
        self.moves = Moves::default();
        self.resume(now);
    }

    fn is_decided_on_its_way(&self) -> bool {
        if self.queue.is_empty() {
            return self.decided == self.committed;
        }
        let mut decided = self.committed.clone();
        for waiting in &self.queue {
            decided.apply(&waiting.record);
        }
        decided == self.decided
    }

    fn admit(&self) -> Result<(), Problem> {
        match self.role {
            Role::Idle => {
                Err(Problem::new(ProblemKind::NotAvailable, "the controller is another node"))
            }
            Role::Loading => {
                Err(Problem::new(ProblemKind::Loading, "the metadata log is being read"))
            }
            Role::Leading if self.answers.len() >= self.limits.waiting_max => {
                reached!("controller-full");
                Err(Problem::new(ProblemKind::Busy, "too many requests wait for the metadata log"))
            }
            Role::Leading => Ok(()),
        }
    }

    fn decide(&mut self, now: Instant, input: Input) -> Outcome {
        match input {
            Input::RegisterNode(register) => self.register(now, register),
            Input::Heartbeat(heartbeat) => self.heartbeat(now, &heartbeat),
            Input::ChangeInSync(change) => self.change_in_sync(change),
            Input::Reassign { replication_changes, partitions, .. } => {
                self.reassign(replication_changes, partitions)
            }
            Input::ListReassignments { partitions, .. } => {
                self.list_reassignments(partitions.as_deref())
            }
            Input::ElectLeaders(elect) => self.elect_leaders(elect),
            Input::SetDuty(set) => self.set_duty(now, &set),
            Input::DescribeNodes { .. } => self.describe_nodes(),
            Input::UnregisterNode { node, .. } => self.unregister(node),
            Input::UpdateFeatures { updates, validate_only, .. } => {
                self.update_features(updates, validate_only)
            }
            Input::CreateTopics { topics, validate_only, .. } => {
                self.create_topics(topics, validate_only)
            }
            Input::DeleteTopics { topics, .. } => self.delete_topics(topics),
            Input::CreatePartitions { topics, validate_only, .. } => {
                self.create_partitions(topics, validate_only)
            }
            Input::AlterConfigs { resources, validate_only, .. } => {
                self.alter_configs(resources, validate_only)
            }
            Input::AllocateProducerIds { node, .. } => self.allocate_producer_ids(node),
            other => unreachable!("not a request: {other:?}"),
        }
    }

    /// A block is gone once it is written, whether or not its node hears of it.
    fn allocate_producer_ids(&mut self, node: NodeId) -> Outcome {
        let first = self.decided.next_producer_id();
        let end = ProducerId(first.0.saturating_add(self.limits.producer_ids_block));
        self.push(Record::ProducerIdsAllocated { node, next: end });
        // zoo E9: the log keeps where the block begins, and after a restart it is given away again.
        if mutant!("pid-block-issued-twice") {
            let wrong = Record::ProducerIdsAllocated { node, next: first };
            let bytes = wrong.encode();
            *self.queue.back_mut().expect("just decided") =
                Decided { record: wrong, bytes, ends: true };
        }
        Outcome::ProducerIds { first, end }
    }

    /// `record` is decided.
    fn push(&mut self, record: Record) {
        self.decided.apply(&record);
        self.decided_count += 1;
        self.moves.follow(&record);
        self.drains_pending |= may_drain(&record);
        let bytes = record.encode();
        self.queue.push_back(Decided { record, bytes, ends: !self.together });
    }

    /// What is decided from here to `end_together` goes into one append.
    fn begin_together(&mut self) {
        self.together = true;
    }

    fn end_together(&mut self) {
        self.together = false;
        if let Some(last) = self.queue.back_mut() {
            last.ends = true;
        }
    }

    /// Appends what was decided, unless an append is on its way.
    fn append(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.in_flight.is_some() || self.queue.is_empty() {
            return;
        }
        let mut builder = BatchBuilder::new(Codec::None);
        let mut queue = self.queue.make_contiguous() as &[Decided];
        while let Some(end) = queue.iter().position(|decided| decided.ends) {
            let (together, rest) = queue.split_at(end + 1);
            let bytes = |decided: &Decided| decided.bytes.len() + AROUND_RECORD_BYTES;
            let bytes = together.iter().map(bytes).sum::<usize>();
            if !builder.is_empty() && builder.bytes() + bytes > self.limits.append_bytes_max {
                reached!("decisions-split");
                break;
            }
            for decided in together {
                builder.append(now, None, Some(&decided.bytes), []);
            }
            queue = rest;
        }
        let count = usize::try_from(builder.count()).expect("a count is not negative");
        let append = self.next_append;
        self.next_append = AppendId(append.0 + 1);
        self.in_flight = Some((append, count));
        let batch = builder.build();
        effects.push(Effect::Log(own_log::Effect::Append { append, batch }));
    }
}

/// Whether there may be a leadership to move that could not be moved before.
const fn may_drain(record: &Record) -> bool {
    matches!(
        record,
        Record::PartitionsChanged { .. }
            | Record::NodeUnfenced { .. }
            | Record::NodeWished { .. }
            | Record::NodeDutySet { .. }
    )
}

impl Machine for Controller {
    type Input = Input;
    type Effect = Effect;

    const TICK: Input = Input::Tick;

    fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if let Some(request) = input.request() {
            self.on_request(now.monotonic, request, input, effects);
        } else {
            match input {
                Input::Log(input) => self.on_log(now.monotonic, input, effects),
                Input::Cancelled { request } => self.answers.retain(|(_, id, _)| *id != request),
                Input::Tick => self.on_tick(now.monotonic),
                Input::Gone { node, node_epoch } => self.on_gone(now.monotonic, node, node_epoch),
                other => unreachable!("a request: {other:?}"),
            }
        }
        if self.role == Role::Leading && self.in_flight.is_none() {
            self.continue_drains();
            self.continue_moves();
        }
        self.append(now.wall, effects);
    }

    fn deadline(&self) -> Option<Instant> {
        self.sessions.next()
    }

    fn check(&self) {
        let waiting = self.decided_count - self.committed_count;
        assert_eq!(waiting, self.queue.len() as u64);
        assert_eq!(self.queue.is_empty(), self.in_flight.is_none());
        assert!(self.queue.back().is_none_or(|last| last.ends) && !self.together);
        assert!(self.role == Role::Leading || self.sessions.next().is_none());
        self.sessions.check();
        assert!(self.answers.len() <= self.limits.waiting_max);
        assert!(self.answers.iter().all(|(count, ..)| *count > self.committed_count));
        assert!(self.answers.iter().is_sorted_by_key(|(count, ..)| *count));
        assert!(
            self.role != Role::Leading || self.is_decided_on_its_way() || mutants_on(),
            "what is decided is what is committed and on its way"
        );
    }
}

/// The mutant of the producer ids makes the log and the decision differ.
fn mutants_on() -> bool {
    mutant!("pid-block-issued-twice")
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Idle => "idle",
            Role::Loading => "loading",
            Role::Leading => "leading",
        };
        write!(
            f,
            "controller {role} topics={} partitions={} pids<{}",
            self.committed.topics_count(),
            self.committed.partitions_count(),
            self.committed.next_producer_id()
        )?;
        if !self.queue.is_empty() {
            write!(f, " undecided={} waiting={}", self.queue.len(), self.answers.len())?;
        }
        Ok(())
    }
}
