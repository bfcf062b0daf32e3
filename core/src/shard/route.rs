//! Which machine's effect is which other machine's input.

use std::time::Duration;

use super::interface::{Effect, INTERNAL_REQUESTS, Outcome, Role};
use super::{Shard, Slot, seat};
use crate::batch::{Batch, Levels};
use crate::id::{LeaderEpoch, PartitionId, ProducerId, RequestId, VerificationGuard};
use crate::machine::Machine;
use crate::own_log::AppendId;
use crate::partition::interface::{Acks, Ending, Produce, Refusal};
use crate::time::{Instant, Now};
use crate::{group, mutant, own_log, partition, reached, transaction};

/// A machine of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Seat,
    Coordinator(Owner),
    Partition(PartitionId),
}

/// A machine whose truth is a partition's log, by the partition's index in its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Group(i32),
    Transaction(i32),
}

impl Owner {
    /// Whose truth the partition holds.
    pub(super) fn of(role: Role, partition: PartitionId) -> Option<Self> {
        match role {
            Role::Data => None,
            Role::Offsets => Some(Self::Group(partition.index)),
            Role::Transactions => Some(Self::Transaction(partition.index)),
        }
    }
}

/// An append that a coordinator has asked the replica beside it for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Internal {
    owner: Owner,
    append: AppendId,
    /// The leadership that the coordinator knew of when it asked: what it had read was true then.
    heard: Option<LeaderEpoch>,
}

/// An input on its way to its machine.
#[derive(Debug)]
pub(super) enum Work {
    Partition(PartitionId, partition::interface::Input),
    Group(i32, group::interface::Input),
    Transaction(i32, transaction::interface::Input),
    Seat(seat::Input),
    /// The coordinator's partition is gone, and it has said so to everybody.
    Forget(Owner),
}

/// The refusal by a coordinator that is none any more, of what it would have `told`.
fn not_coordinator(told: &Outcome) -> Outcome {
    match told {
        Outcome::Transaction(_) => {
            let refusal = transaction::interface::Refusal::NotCoordinator;
            Outcome::Transaction(transaction::interface::Outcome::Refused(refusal))
        }
        _ => {
            let refusal = group::interface::Refusal::NotCoordinator;
            Outcome::Group(group::interface::Outcome::Refused(refusal))
        }
    }
}

/// What a coordinator is told of its log.
pub(super) fn told(owner: Owner, input: own_log::Input) -> Work {
    match owner {
        Owner::Group(index) => Work::Group(index, group::interface::Input::Log(input)),
        Owner::Transaction(index) => {
            Work::Transaction(index, transaction::interface::Input::Log(input))
        }
    }
}

/// How long an append of a machine waits: as long as it takes.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long a member that is to be put out waits for the word that its coordinator still is one.
/// It looks for its coordinator again then.
const WORD_PATIENCE: Duration = Duration::from_secs(5);

impl Shard {
    pub(super) fn run(&mut self, now: Now, work: Work, effects: &mut Vec<Effect>) {
        match work {
            Work::Partition(partition, input) => self.run_partition(now, partition, input, effects),
            Work::Group(coordinator, input) => self.run_group(now, coordinator, input, effects),
            Work::Seat(input) => self.run_seat(now, input, effects),
            Work::Transaction(coordinator, input) => {
                self.run_transaction(now, coordinator, input, effects);
            }
            Work::Forget(owner) => {
                match owner {
                    Owner::Group(index) => drop(self.groups.remove(&index)),
                    Owner::Transaction(index) => drop(self.transactions.remove(&index)),
                }
                self.plan(Key::Coordinator(owner), None);
            }
        }
    }

    fn run_partition(
        &mut self,
        now: Now,
        partition: PartitionId,
        input: partition::interface::Input,
        effects: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.partitions.get_mut(&partition) else {
            reached!("partition-not-open");
            let outcome = partition::interface::Outcome::Refused(Refusal::NotLeader);
            if let Some(request) = input.request() {
                let effect = partition::interface::Effect::Reply { request, outcome };
                self.route_partition(partition, effect, effects);
            }
            return;
        };
        let leads = slot.replica.is_leader().then(|| slot.replica.leader_epoch());
        // Between the leadership that the coordinator knows of and this one others may have led,
        // and what it asks for would stand behind the end of what it is about to read.
        if let Some(asked) = input.request().and_then(|request| self.internal.get(&request))
            && asked.heard != leads
            && !mutant!("append-of-another-leadership")
        {
            reached!("append-of-another-leadership");
            let request = input.request().expect("it has one");
            return self.answer_internal(request, false);
        }
        let mut asked = std::mem::take(&mut self.partition_effects);
        slot.replica.step(now, input, &mut asked);
        let deadline = slot.replica.deadline();
        let told = Self::tell_leadership(partition, slot);
        let settled = Self::tell_settled(partition, slot, told.is_some());
        self.plan(Key::Partition(partition), deadline);
        for effect in asked.drain(..) {
            self.route_partition(partition, effect, effects);
        }
        self.partition_effects = asked;
        self.work.extend(told);
        self.work.extend(settled);
    }

    /// All that the coordinator here has read is committed now; or it was read for a leadership
    /// that is over, and the machine, which has heard so, knows what this end is the end of.
    fn tell_settled(partition: PartitionId, slot: &mut Slot, is_over: bool) -> Vec<Work> {
        if slot.unsettled == 0 || (slot.holds_back() && !is_over) {
            return Vec::new();
        }
        let ends = std::mem::take(&mut slot.unsettled);
        let owner = Owner::of(slot.role, partition).expect("only a coordinator's log is read");
        (0..ends).map(|_| told(owner, own_log::Input::ReplayEnded)).collect()
    }

    /// What the machine that lives at `slot` must hear of a change of leadership.
    fn tell_leadership(partition: PartitionId, slot: &mut Slot) -> Option<Work> {
        let owner = Owner::of(slot.role, partition)?;
        let leads = slot.replica.is_leader().then(|| slot.replica.leader_epoch());
        if leads == slot.told {
            return None;
        }
        slot.told = leads;
        let input = match leads {
            Some(leader_epoch) => own_log::Input::Elected { leader_epoch },
            None => own_log::Input::Resigned,
        };
        Some(told(owner, input))
    }

    pub(super) fn route_partition(
        &mut self,
        partition: PartitionId,
        effect: partition::interface::Effect,
        effects: &mut Vec<Effect>,
    ) {
        use partition::interface::Effect as Asked;
        effects.push(match effect {
            Asked::TransactionEnded { producer, ending } => {
                self.tell_of_ending(partition, producer, ending);
                return;
            }
            Asked::Write { write, op, flush } => Effect::Write { partition, write, op, flush },
            Asked::Publish(view) => Effect::Publish { partition, view },
            Asked::Halt { reason } => Effect::Halt { partition, reason },
            Asked::Send { to, message } => Effect::Send { partition, to, message },
            Asked::ReadLog { to, from, up_to, bytes_max } => {
                Effect::ReadLog { partition, to, from, up_to, bytes_max }
            }
            Asked::Propose(change) => Effect::Propose { partition, change },
            Asked::Clean(clean) => Effect::Clean { partition, clean },
            Asked::Discard(cleaned) => Effect::Discard { partition, cleaned },
            Asked::Reply { request, outcome } if request.0 < INTERNAL_REQUESTS => {
                Effect::Reply { request, outcome: Outcome::Partition(outcome) }
            }
            Asked::Reply { request, outcome } => match self.confirming.remove(&request) {
                Some((asked_by, told)) => {
                    // zoo G13: whoever was deposed in its sleep puts members out.
                    let is_believed = outcome == partition::interface::Outcome::Leads
                        || mutant!("zombie-coordinator-expires-members");
                    let outcome = if is_believed {
                        told
                    } else {
                        reached!("coordinator-was-deposed");
                        not_coordinator(&told)
                    };
                    Effect::Reply { request: asked_by, outcome }
                }
                None => {
                    let stored = matches!(outcome, partition::interface::Outcome::Produced { .. });
                    self.answer_internal(request, stored);
                    return;
                }
            },
        });
    }

    /// Tells somebody what a coordinator says. One that was deposed and has not heard of it does
    /// not know who has joined its successor, and whoever is told that it is no member gives up
    /// what it has. Nor does it know what was committed at its successor, and whoever is told an
    /// offset, or that there is none, begins there. Nor which transactions have ended at its
    /// successor, and a batch that it verifies would begin one that nobody ends. These wait until
    /// the replica here is known to lead still. What such a coordinator accepts does no harm, since
    /// it is never committed (decisions 0086, 0154 and 0167).
    fn tell(
        &mut self,
        now: Instant,
        partition: PartitionId,
        request: RequestId,
        outcome: Outcome,
        effects: &mut Vec<Effect>,
    ) {
        use group::interface::Outcome as Group;
        use transaction::interface::Outcome as Transaction;
        let is_final = match &outcome {
            Outcome::Group(Group::Refused(refusal)) => {
                refusal.puts_out() && !mutant!("dead-group-resets-identity")
            }
            Outcome::Group(Group::OffsetsFetched { .. }) => !mutant!("deposed-tells-offsets"),
            Outcome::Transaction(Transaction::Verified(within)) => {
                within.contains(&true) && !mutant!("deposed-verifies")
            }
            _ => false,
        };
        if !is_final {
            effects.push(Effect::Reply { request, outcome });
            return;
        }
        let question = RequestId(self.next_internal);
        self.next_internal += 1;
        self.confirming.insert(question, (request, outcome));
        let until = now + WORD_PATIENCE;
        let input = partition::interface::Input::StillLeads { request: question, until };
        self.work.push_back(Work::Partition(partition, input));
    }

    /// A machine that keeps its truth in the partition folds what the transaction wrote.
    fn tell_of_ending(&mut self, partition: PartitionId, producer: ProducerId, ending: Ending) {
        let slot = self.partitions.get(&partition);
        if slot.is_some_and(|slot| slot.role == Role::Offsets) {
            let input = group::interface::Input::TransactionEnded { producer, ending };
            self.work.push_back(Work::Group(partition.index, input));
        }
    }

    fn answer_internal(&mut self, request: RequestId, stored: bool) {
        let Some(Internal { owner, append, .. }) = self.internal.remove(&request) else {
            return;
        };
        let input = if stored {
            own_log::Input::Appended { append }
        } else {
            reached!("append-refused");
            own_log::Input::AppendRefused { append }
        };
        self.work.push_back(told(owner, input));
    }

    /// The log is read from its start, or a coordinator's append becomes a producer's batch that is
    /// answered when it is committed.
    fn on_log(
        &mut self,
        now: Instant,
        partition: PartitionId,
        owner: Owner,
        asked: own_log::Effect,
        effects: &mut Vec<Effect>,
    ) {
        match asked {
            own_log::Effect::Replay => effects.push(Effect::Replay { partition }),
            own_log::Effect::Append { append, batch } => {
                self.append(now, partition, (owner, append), batch, None);
            }
        }
    }

    fn append(
        &mut self,
        now: Instant,
        partition: PartitionId,
        (owner, append): (Owner, AppendId),
        batch: Batch,
        guard: Option<VerificationGuard>,
    ) {
        let request = RequestId(self.next_internal);
        self.next_internal += 1;
        let heard = self.partitions.get(&partition).and_then(|slot| slot.heard);
        self.internal.insert(request, Internal { owner, append, heard });
        let produce = Produce {
            request,
            batch,
            levels: Levels::DEFAULT,
            acks: Acks::All,
            until: now + PATIENCE,
            guard,
        };
        let input = partition::interface::Input::Produce(produce);
        self.work.push_back(Work::Partition(partition, input));
    }

    /// The coordinator beside a replica hears what it was told of its leadership.
    fn hear(&mut self, partition: PartitionId, input: &own_log::Input) {
        let Some(slot) = self.partitions.get_mut(&partition) else { return };
        match input {
            own_log::Input::Elected { leader_epoch } => slot.heard = Some(*leader_epoch),
            own_log::Input::Resigned => slot.heard = None,
            _ => {}
        }
    }

    fn run_group(
        &mut self,
        now: Now,
        coordinator: i32,
        input: group::interface::Input,
        effects: &mut Vec<Effect>,
    ) {
        use group::interface::Effect as Asked;
        // Coordinators without consumer groups do without the topics, which may be many.
        let first = match (&input, self.groups.get(&coordinator)) {
            (group::interface::Input::ConsumerHeartbeat(_), Some((_, groups)))
                if !groups.knows_topics() =>
            {
                self.all_topics()
            }
            _ => None,
        };
        let is_loaded = matches!(input, group::interface::Input::Log(own_log::Input::ReplayEnded));
        if let group::interface::Input::Log(input) = &input
            && let Some((partition, _)) = self.groups.get(&coordinator)
        {
            self.hear(*partition, input);
        }
        let Some((partition, groups)) = self.groups.get_mut(&coordinator) else {
            reached!("coordinator-not-here");
            let refusal = group::interface::Refusal::NotCoordinator;
            let outcome = Outcome::Group(group::interface::Outcome::Refused(refusal));
            self.refuse(input.request(), outcome, effects);
            return;
        };
        let partition = *partition;
        let mut asked = std::mem::take(&mut self.group_effects);
        if let Some(first) = first {
            groups.step(now, first, &mut asked);
        }
        groups.step(now, input, &mut asked);
        let wants_topics = is_loaded && groups.wants_topics();
        if wants_topics && let Some(topics) = self.all_topics() {
            self.work.push_back(Work::Group(coordinator, topics));
        }
        let Some((_, groups)) = self.groups.get(&coordinator) else { return };
        let deadline = groups.deadline();
        let owner = Owner::Group(coordinator);
        self.plan(Key::Coordinator(owner), deadline);
        for effect in asked.drain(..) {
            match effect {
                Asked::Log(asked) => {
                    self.on_log(now.monotonic, partition, owner, asked, effects);
                }
                Asked::AppendTransactional { append, batch, guard } => {
                    self.append(now.monotonic, partition, (owner, append), batch, guard);
                }
                Asked::Reply { request, outcome } => {
                    let outcome = Outcome::Group(outcome);
                    self.tell(now.monotonic, partition, request, outcome, effects);
                }
            }
        }
        self.group_effects = asked;
    }

    fn run_transaction(
        &mut self,
        now: Now,
        coordinator: i32,
        input: transaction::interface::Input,
        effects: &mut Vec<Effect>,
    ) {
        use transaction::interface::Effect as Asked;
        if let transaction::interface::Input::Log(input) = &input
            && let Some((partition, _)) = self.transactions.get(&coordinator)
        {
            self.hear(*partition, input);
        }
        let Some((partition, transactions)) = self.transactions.get_mut(&coordinator) else {
            reached!("transaction-coordinator-not-here");
            let refusal = transaction::interface::Refusal::NotCoordinator;
            let outcome = transaction::interface::Outcome::Refused(refusal);
            self.refuse(input.request(), Outcome::Transaction(outcome), effects);
            return;
        };
        let partition = *partition;
        let mut asked = std::mem::take(&mut self.transaction_effects);
        transactions.step(now, input, &mut asked);
        let deadline = transactions.deadline();
        let owner = Owner::Transaction(coordinator);
        self.plan(Key::Coordinator(owner), deadline);
        for effect in asked.drain(..) {
            match effect {
                Asked::Log(asked) => self.on_log(now.monotonic, partition, owner, asked, effects),
                Asked::Reply { request, outcome } => {
                    let outcome = Outcome::Transaction(outcome);
                    self.tell(now.monotonic, partition, request, outcome, effects);
                }
                Asked::SendMarker(marker) => {
                    effects.push(Effect::SendMarker { coordinator, marker });
                }
            }
        }
        self.transaction_effects = asked;
    }

    fn run_seat(&mut self, now: Now, input: seat::Input, effects: &mut Vec<Effect>) {
        let Some(seat) = &mut self.seat else {
            reached!("seat-not-here");
            input.refuse(effects);
            return;
        };
        seat.step(now, input, effects);
        let deadline = seat.deadline();
        self.plan(Key::Seat, deadline);
    }
}
