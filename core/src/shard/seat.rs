//! A node's seat in the metadata quorum: the member with its log on the disk, the controller for
//! as long as this node leads, and the image of all that is committed. Pure composition: what one
//! of them asks is another's input.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use bytes::Bytes;

use super::interface::{Effect, INTERNAL_REQUESTS, OpenSeat, Outcome};
use crate::batch::{Batch, HEADER_BYTES};
use crate::controller::Controller;
use crate::controller::interface::{Problem, ProblemKind};
use crate::id::{LeaderEpoch, NodeId, PartitionId, RequestId, WriteId};
use crate::machine::Machine;
use crate::metadata::{Duty, Image, Record, payload};
use crate::own_log::{self, AppendId};
use crate::partition::interface::{Flush, HaltReason, Refusal as LogRefusal};
use crate::quorum::Quorum;
use crate::quorum::interface::{
    ClusterId, DirectoryId, Entry, Index, Member, Payload, Refusal, Role, Snapshot, Term,
};
use crate::quorum::votes;
use crate::quorum_log::{LogWrite, QuorumLog};
use crate::rng::Rng;
use crate::time::{Instant, Now, Timestamp};
use crate::{controller, mutant, partition, quorum, reached};

/// What a seat is told. Of the log's inputs it takes `Written`, `WriteFailed` and `Close`.
#[derive(Debug)]
pub(super) enum Input {
    Quorum(quorum::interface::Input),
    Controller(controller::interface::Input),
    Log(partition::interface::Input),
    Tick,
}

impl Input {
    /// Says no to whoever waits for an answer, if somebody does.
    pub(super) fn refuse(&self, effects: &mut Vec<Effect>) {
        let (request, outcome) = match self {
            Self::Quorum(input) => {
                let refusal = Refusal::NotLeader { leader: None };
                let outcome = quorum::interface::Outcome::Refused(refusal);
                (input.request(), Outcome::Quorum(outcome))
            }
            Self::Controller(input) => {
                let problem = Problem::new(ProblemKind::NotAvailable, "the controller is not here");
                let outcome = controller::interface::Outcome::Refused(problem);
                (input.request(), Outcome::Controller(outcome))
            }
            Self::Log(input) => {
                let outcome = partition::interface::Outcome::Refused(LogRefusal::NotLeader);
                (input.request(), Outcome::Partition(outcome))
            }
            Self::Tick => return,
        };
        if let Some(request) = request {
            effects.push(Effect::Reply { request, outcome });
        }
    }
}

/// An input on its way to its machine.
#[derive(Debug)]
enum Work {
    Quorum(quorum::interface::Input),
    Controller(controller::interface::Input),
    /// Whether a vote is to be given back.
    Votes,
}

/// What the controller wants in the log; one at a time.
#[derive(Debug)]
struct Append {
    append: AppendId,
    data: Bytes,
    /// The proposal that is under way; `None` while the quorum takes none.
    request: Option<RequestId>,
}

/// One node's seat.
#[derive(Debug)]
pub struct Seat {
    quorum: Quorum,
    log: QuorumLog,
    controller: Controller,
    /// All that was committed here, up to `applied`.
    image: Image,
    applied: Index,
    /// The leadership of which the controller is told.
    leads: Option<Term>,
    /// That of which it has heard: what it asked for before goes with the leadership it knew.
    heard: Option<LeaderEpoch>,
    append: Option<Append>,
    next_request: RequestId,
    /// Who waits for the log to be closed, and for which write.
    closing: Vec<(WriteId, RequestId)>,
    /// The cluster that stood on the disk at the start.
    remembered: Option<ClusterId>,
    /// What the node was last told of its role.
    told: Option<(Role, Option<ClusterId>)>,
    /// The metadata holds what this build cannot read.
    is_halted: bool,
    /// Of the quorum's limits.
    restores_votes: bool,
    catch_up_entries: u64,
    work: VecDeque<Work>,
    /// Empty between steps; kept for their memory.
    quorum_effects: Vec<quorum::interface::Effect>,
    controller_effects: Vec<controller::interface::Effect>,
    writes: Vec<LogWrite>,
}

impl Seat {
    pub(super) fn new(
        open: OpenSeat,
        mut limits: controller::interface::Limits,
        rng: &mut Rng,
    ) -> Self {
        let OpenSeat { setup, log, recovered, limits: quorum_limits, segment_bytes_max } = open;
        // What the controller appends is one entry.
        let entry_bytes_max = usize::try_from(quorum_limits.entry_bytes_max).unwrap_or(usize::MAX);
        limits.decision_bytes_max = entry_bytes_max.saturating_sub(HEADER_BYTES);
        limits.append_bytes_max = limits.append_bytes_max.min(entry_bytes_max);
        Self {
            remembered: recovered.hard.cluster,
            restores_votes: quorum_limits.restores_votes,
            catch_up_entries: quorum_limits.catch_up_entries,
            quorum: Quorum::new(setup, recovered.clone(), quorum_limits, rng.u64()),
            log: QuorumLog::new(log, recovered, segment_bytes_max),
            controller: Controller::new(limits, rng.u64()),
            image: Image::default(),
            applied: Index::ZERO,
            leads: None,
            heard: None,
            append: None,
            next_request: RequestId(INTERNAL_REQUESTS),
            closing: Vec::new(),
            told: None,
            is_halted: false,
            work: VecDeque::new(),
            quorum_effects: Vec::new(),
            controller_effects: Vec::new(),
            writes: Vec::new(),
        }
    }

    pub fn quorum(&self) -> &Quorum {
        &self.quorum
    }

    pub fn log(&self) -> &QuorumLog {
        &self.log
    }

    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// All that was committed here, and up to which entry.
    pub fn image(&self) -> (&Image, Index) {
        (&self.image, self.applied)
    }

    pub(super) fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if self.is_halted {
            input.refuse(effects);
            return;
        }
        // The quorum may take now what it did not take before.
        self.propose();
        let mut closed = None;
        match input {
            Input::Quorum(input) => self.work.push_back(Work::Quorum(input)),
            Input::Controller(input) => self.work.push_back(Work::Controller(input)),
            Input::Log(input) => closed = self.on_log(input, effects),
            Input::Tick => self.on_tick(now.monotonic),
        }
        while let Some(work) = self.work.pop_front() {
            match work {
                Work::Quorum(input) => self.run_quorum(now, input, effects),
                Work::Controller(input) => self.run_controller(now, input, effects),
                Work::Votes => self.restore_votes(now),
            }
        }
        // Whoever closes the log hears of it after all who waited for the writes before.
        if let Some((through, outcome)) = closed {
            for (_, request) in self.closing.extract_if(.., |(write, _)| *write <= through) {
                let outcome = Outcome::Partition(outcome.clone());
                effects.push(Effect::Reply { request, outcome });
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.is_halted {
            return None;
        }
        self.quorum.deadline().into_iter().chain(self.controller.deadline()).min()
    }

    fn on_tick(&mut self, now: Instant) {
        if self.quorum.deadline().is_some_and(|at| at <= now) {
            self.work.push_back(Work::Quorum(Quorum::TICK));
            self.work.push_back(Work::Votes);
        }
        if self.controller.deadline().is_some_and(|at| at <= now) {
            self.work.push_back(Work::Controller(Controller::TICK));
        }
    }

    /// Up to which write those who close the log have their answer, and which.
    fn on_log(
        &mut self,
        input: partition::interface::Input,
        effects: &mut Vec<Effect>,
    ) -> Option<(WriteId, partition::interface::Outcome)> {
        use partition::interface::{Input as Log, Outcome as Answer};
        match input {
            Log::Written { through } => {
                let persisted = self.log.on_written(through, &mut self.writes);
                self.write(effects);
                if let Some(through) = persisted {
                    let input = quorum::interface::Input::Persisted { through };
                    self.work.push_back(Work::Quorum(input));
                }
                Some((through, Answer::Closed))
            }
            Log::WriteFailed { write } => {
                let input = quorum::interface::Input::PersistFailed { write };
                self.work.push_back(Work::Quorum(input));
                Some((WriteId(u64::MAX), Answer::Refused(LogRefusal::Storage)))
            }
            Log::Close { request } => {
                let write = self.log.checkpoint(&mut self.writes);
                self.closing.push((write, request));
                self.write(effects);
                None
            }
            other => {
                Input::Log(other).refuse(effects);
                None
            }
        }
    }

    /// Hands over what `QuorumLog` wants written.
    fn write(&mut self, effects: &mut Vec<Effect>) {
        let partition = PartitionId::METADATA;
        effects.extend(self.writes.drain(..).map(|LogWrite { write, op }| Effect::Write {
            partition,
            write,
            op,
            flush: Flush::Durable,
        }));
    }

    fn run_quorum(&mut self, now: Now, input: quorum::interface::Input, effects: &mut Vec<Effect>) {
        use quorum::interface::Effect as Asked;
        let mut asked = std::mem::take(&mut self.quorum_effects);
        self.quorum.step(now, input, &mut asked);
        for effect in asked.drain(..) {
            match effect {
                Asked::Persist { write, op } => {
                    self.log.persist(now.wall, write, &op, &mut self.writes);
                    self.write(effects);
                }
                Asked::Send { to, mut message } => {
                    self.add_address(&mut message);
                    effects.push(Effect::SendQuorum { to, message });
                }
                Asked::Committed { entries } => self.on_committed(&entries, effects),
                Asked::Restore { snapshot } => self.on_restore(&snapshot, effects),
                Asked::TakeSnapshot => self.take_snapshot(now.wall),
                Asked::Reply { request, outcome } if request.0 < INTERNAL_REQUESTS => {
                    effects.push(Effect::Reply { request, outcome: Outcome::Quorum(outcome) });
                }
                Asked::Reply { request, outcome } => self.on_proposed(request, &outcome),
                Asked::RoleChanged(role) => self.on_role(role),
                Asked::Halt { reason } => {
                    let quorum::interface::HaltReason::PersistFailed { write } = reason;
                    halt(HaltReason::WriteFailed { write }, effects);
                }
            }
        }
        self.quorum_effects = asked;
        // What was durable once stays so, whatever is being written.
        let known = self.told.map_or(self.remembered, |(_, cluster)| cluster);
        let told = (self.role(), self.quorum.cluster().or(known));
        if self.told != Some(told) {
            self.told = Some(told);
            effects.push(Effect::QuorumRole { role: told.0, cluster: told.1 });
        }
    }

    /// What the node is told. It joins the first cluster in which it hears of a leader, by name and
    /// for as long as it lives. While it holds nothing of that leader's log, its founder may be
    /// gone and another one take it (decision 0088): so the leader is named once it stays.
    fn role(&self) -> Role {
        match self.quorum.role() {
            Role::Following { term, .. } if self.quorum.is_bare() => {
                Role::Following { term, leader: None }
            }
            role => role,
        }
    }

    /// Whoever is told of a leader is told where that is.
    fn add_address(&self, message: &mut quorum::interface::Message) {
        if let quorum::interface::Body::Leads { leader, address } = &mut message.body
            && let Some(known) = self.image.node(leader.node)
            && !known.peer.host.is_empty()
        {
            *address = known.peer.to_string();
        }
    }

    /// Who may lead, by the metadata.
    fn controllers(&self) -> BTreeSet<NodeId> {
        let nodes = self.image.nodes().filter(|node| node.roles.controller);
        nodes.map(|node| node.id).collect()
    }

    fn on_committed(&mut self, entries: &[Entry], effects: &mut Vec<Effect>) {
        let mut committed = Vec::new();
        for entry in entries {
            if let Payload::Data(data) = &entry.payload {
                match payload::records_in(data) {
                    Ok(records) => committed.extend(records),
                    Err(reason) => return self.halt_unreadable(reason, effects),
                }
            }
            self.applied = entry.index;
        }
        committed.iter().for_each(|record| self.image.apply(record));
        if committed.iter().any(is_of_nodes) {
            self.quorum.know(self.controllers());
        }
        if !committed.is_empty() {
            effects.push(Effect::Committed(committed));
        }
    }

    fn on_restore(&mut self, snapshot: &Snapshot, effects: &mut Vec<Effect>) {
        let records = match payload::records_in(&snapshot.data) {
            Ok(records) => records,
            Err(reason) => return self.halt_unreadable(reason, effects),
        };
        reached!("metadata-restored");
        // zoo B23: what the snapshot does not name lives on.
        if !mutant!("snapshot-load-adds-only") {
            self.image = Image::default();
        }
        records.iter().for_each(|record| self.image.apply(record));
        self.quorum.know(self.controllers());
        self.applied = snapshot.position.index;
        effects.push(Effect::Restored(records));
    }

    /// What is committed cannot be read: to go on would be to miss a decision.
    fn halt_unreadable(&mut self, reason: String, effects: &mut Vec<Effect>) {
        reached!("metadata-unreadable-here");
        self.is_halted = true;
        self.work.push_back(told(own_log::Input::Resigned));
        halt(HaltReason::MetadataUnreadable { reason }, effects);
    }

    fn take_snapshot(&mut self, now: Timestamp) {
        let data = payload::snapshot_data(&self.image.to_records(), now);
        let input = quorum::interface::Input::SnapshotTaken { through: self.applied, data };
        self.work.push_back(Work::Quorum(input));
    }

    fn on_role(&mut self, role: Role) {
        match role {
            Role::Leading { term } => {
                self.leads = Some(term);
                self.append = None;
                let leader_epoch = term.leader_epoch();
                self.work.push_back(told(own_log::Input::Elected { leader_epoch }));
            }
            Role::Following { .. } => {
                if self.leads.take().is_some() {
                    self.append = None;
                    self.work.push_back(told(own_log::Input::Resigned));
                }
            }
        }
    }

    /// What became of the controller's append.
    fn on_proposed(&mut self, request: RequestId, outcome: &quorum::interface::Outcome) {
        use quorum::interface::Outcome as Answer;
        let Some(append) = self.append.take_if(|append| append.request == Some(request)) else {
            return;
        };
        match outcome {
            Answer::Refused(Refusal::Busy | Refusal::Transferring | Refusal::NotInCharge) => {
                reached!("append-waits-for-the-quorum");
                self.append = Some(Append { request: None, ..append });
            }
            // The leadership has ended, of which the controller hears at once. Whether the next
            // leader commits the append nobody can tell.
            Answer::Refused(Refusal::Unknown | Refusal::NotLeader { .. } | Refusal::Storage) => {
                reached!("append-dies-with-the-leader");
            }
            Answer::Refused(_) => {
                let append = append.append;
                self.work.push_back(told(own_log::Input::AppendRefused { append }));
            }
            Answer::Committed { .. }
            | Answer::Readable { .. }
            | Answer::Transferred
            | Answer::Described(_) => {
                let append = append.append;
                self.work.push_back(told(own_log::Input::Appended { append }));
            }
        }
    }

    /// A registered node that lost its disk gets its vote back, one change at a time. Whatever
    /// becomes of a change, the next tick looks again.
    fn restore_votes(&mut self, now: Now) {
        if self.leads.is_none() || !self.restores_votes {
            return;
        }
        let current = |node| {
            let known = self.image.node(node)?;
            let directory = DirectoryId(known.directory.0);
            let stays = known.roles.controller && known.duty != Duty::Leave;
            stays.then_some(Member { node, directory })
        };
        let status = self.quorum.status(now);
        if let Some(change) = votes::next_change(&status, current, self.catch_up_entries) {
            reached!("vote-is-given-back");
            let request = self.next_internal();
            self.work.push_back(Work::Quorum(quorum::interface::Input::Change { request, change }));
        }
    }

    fn next_internal(&mut self) -> RequestId {
        let request = self.next_request;
        self.next_request = RequestId(request.0 + 1);
        request
    }

    /// Proposes what the controller wants, unless that is under way.
    fn propose(&mut self) {
        let Some(term) = self.leads else { return };
        if self.append.as_ref().is_none_or(|append| append.request.is_some()) {
            return;
        }
        let request = self.next_internal();
        let Some(append) = &mut self.append else { return };
        append.request = Some(request);
        let data = append.data.clone();
        let input = quorum::interface::Input::Propose { request, term, data };
        self.work.push_back(Work::Quorum(input));
    }

    fn run_controller(
        &mut self,
        now: Now,
        input: controller::interface::Input,
        effects: &mut Vec<Effect>,
    ) {
        use controller::interface::{Effect as Asked, Input as Told};
        match &input {
            Told::Log(own_log::Input::Elected { leader_epoch }) => self.heard = Some(*leader_epoch),
            Told::Log(own_log::Input::Resigned) => self.heard = None,
            _ => {}
        }
        let mut asked = std::mem::take(&mut self.controller_effects);
        self.controller.step(now, input, &mut asked);
        for effect in asked.drain(..) {
            match effect {
                Asked::Log(own_log::Effect::Replay) => self.replay(now.wall),
                Asked::Log(own_log::Effect::Append { append, batch }) => {
                    self.on_append(append, &batch);
                }
                // The quorum's entries are the one source of what is true.
                Asked::Committed(_) => {}
                Asked::Halt { reason } => {
                    halt(HaltReason::MetadataUnreadable { reason }, effects);
                }
                Asked::Reply { request, outcome } => {
                    let outcome = Outcome::Controller(outcome);
                    effects.push(Effect::Reply { request, outcome });
                }
            }
        }
        self.controller_effects = asked;
    }

    /// The controller reads the image rather than the log that it was made of.
    fn replay(&mut self, now: Timestamp) {
        for batch in payload::to_batches(&self.image.to_records(), now) {
            self.work.push_back(told(own_log::Input::Replayed { batch }));
        }
        self.work.push_back(told(own_log::Input::ReplayEnded));
    }

    fn on_append(&mut self, append: AppendId, batch: &Batch) {
        // The word that this leadership has ended is on its way to the controller.
        if self.heard != self.leads.map(Term::leader_epoch) {
            reached!("append-of-an-ended-leadership");
            return;
        }
        assert!(self.append.is_none(), "the controller appends one thing at a time");
        let data = payload::entry_data(batch);
        self.append = Some(Append { append, data, request: None });
        self.propose();
    }

    pub(super) fn check(&self) {
        self.quorum.check();
        self.log.check();
        self.controller.check();
        assert!(self.work.is_empty(), "a step leaves no work");
        if self.is_halted {
            return;
        }
        let leads = match self.quorum.role() {
            Role::Leading { term } => Some(term),
            Role::Following { .. } => None,
        };
        assert_eq!(self.leads, leads, "the controller leads where the quorum does");
        assert!(leads.is_some() || self.append.is_none(), "nobody is there to append");
        assert!(
            leads.is_none() || *self.controller.image() == self.image,
            "the controller knows what is committed"
        );
    }
}

fn told(input: own_log::Input) -> Work {
    Work::Controller(controller::interface::Input::Log(input))
}

/// Whether the record says who is registered.
const fn is_of_nodes(record: &Record) -> bool {
    matches!(record, Record::NodeRegistered(_) | Record::NodeUnregistered { .. })
}

fn halt(reason: HaltReason, effects: &mut Vec<Effect>) {
    effects.push(Effect::Halt { partition: PartitionId::METADATA, reason });
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} · {}", self.quorum, self.controller)
    }
}
