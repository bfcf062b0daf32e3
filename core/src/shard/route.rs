//! Which machine's effect is which other machine's input.

use std::time::Duration;

use super::interface::{Effect, INTERNAL_REQUESTS, Outcome, Role};
use super::{Shard, Slot, seat};
use crate::batch::Levels;
use crate::controller::interface::{Problem, ProblemKind};
use crate::id::{PartitionId, RequestId};
use crate::machine::Machine;
use crate::partition::interface::{Acks, HaltReason, Produce, Refusal};
use crate::time::{Instant, Now};
use crate::{controller, group, own_log, partition, reached};

/// A machine of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Seat,
    Controller,
    Group(i32),
    Partition(PartitionId),
}

/// An input on its way to its machine.
#[derive(Debug)]
pub(super) enum Work {
    Partition(PartitionId, partition::interface::Input),
    Group(i32, group::interface::Input),
    Controller(controller::interface::Input),
    Seat(seat::Input),
    /// The coordinator's partition is gone, and it has said so to everybody.
    Forget(i32),
}

/// A machine that keeps its truth in a log of this shard.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keeper {
    Group(i32),
    Controller,
}

impl Keeper {
    /// Whose log that is.
    pub(super) fn of(partition: PartitionId, role: Role) -> Option<Self> {
        match role {
            Role::Data => None,
            Role::Offsets => Some(Self::Group(partition.index)),
            Role::Metadata => Some(Self::Controller),
        }
    }

    pub(super) fn told(self, input: own_log::Input) -> Work {
        match self {
            Self::Group(coordinator) => {
                Work::Group(coordinator, group::interface::Input::Log(input))
            }
            Self::Controller => Work::Controller(controller::interface::Input::Log(input)),
        }
    }
}

/// How long an append of a machine waits: as long as it takes.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

impl Shard {
    pub(super) fn run(&mut self, now: Now, work: Work, effects: &mut Vec<Effect>) {
        match work {
            Work::Partition(partition, input) => self.run_partition(now, partition, input, effects),
            Work::Group(coordinator, input) => self.run_group(now, coordinator, input, effects),
            Work::Controller(input) => self.run_controller(now, input, effects),
            Work::Seat(input) => self.run_seat(now, input, effects),
            Work::Forget(coordinator) => {
                self.groups.remove(&coordinator);
                self.plan(Key::Group(coordinator), None);
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
        let mut asked = std::mem::take(&mut self.partition_effects);
        slot.replica.step(now, input, &mut asked);
        let deadline = slot.replica.deadline();
        let told = Self::tell_leadership(partition, slot);
        self.plan(Key::Partition(partition), deadline);
        for effect in asked.drain(..) {
            self.route_partition(partition, effect, effects);
        }
        self.partition_effects = asked;
        self.work.extend(told);
    }

    /// What the machine that lives at `slot` must hear of a change of leadership.
    fn tell_leadership(partition: PartitionId, slot: &mut Slot) -> Option<Work> {
        let keeper = Keeper::of(partition, slot.role)?;
        let leads = slot.replica.is_leader().then(|| slot.replica.leader_epoch());
        if leads == slot.told {
            return None;
        }
        slot.told = leads;
        Some(keeper.told(match leads {
            Some(leader_epoch) => own_log::Input::Elected { leader_epoch },
            None => own_log::Input::Resigned,
        }))
    }

    pub(super) fn route_partition(
        &mut self,
        partition: PartitionId,
        effect: partition::interface::Effect,
        effects: &mut Vec<Effect>,
    ) {
        use partition::interface::Effect as Asked;
        effects.push(match effect {
            Asked::Write { write, op, flush } => Effect::Write { partition, write, op, flush },
            Asked::Publish(view) => Effect::Publish { partition, view },
            Asked::Halt { reason } => Effect::Halt { partition, reason },
            Asked::Send { to, message } => Effect::Send { partition, to, message },
            Asked::ReadLog { to, from, up_to, bytes_max } => {
                Effect::ReadLog { partition, to, from, up_to, bytes_max }
            }
            Asked::Propose(change) => Effect::Propose { partition, change },
            Asked::Reply { request, outcome } if request.0 < INTERNAL_REQUESTS => {
                Effect::Reply { request, outcome: Outcome::Partition(outcome) }
            }
            Asked::Reply { request, outcome } => {
                let stored = matches!(outcome, partition::interface::Outcome::Produced { .. });
                self.answer_internal(request, stored);
                return;
            }
        });
    }

    fn answer_internal(&mut self, request: RequestId, stored: bool) {
        let Some((keeper, append)) = self.internal.remove(&request) else {
            return;
        };
        let input = if stored {
            own_log::Input::Appended { append }
        } else {
            reached!("append-refused");
            own_log::Input::AppendRefused { append }
        };
        self.work.push_back(keeper.told(input));
    }

    /// The log is read from its start, or a machine's append becomes a producer's batch that is
    /// answered when it is committed.
    fn on_log(
        &mut self,
        now: Instant,
        partition: PartitionId,
        keeper: Keeper,
        asked: own_log::Effect,
        effects: &mut Vec<Effect>,
    ) {
        let (append, batch) = match asked {
            own_log::Effect::Replay => {
                effects.push(Effect::Replay { partition });
                return;
            }
            own_log::Effect::Append { append, batch } => (append, batch),
        };
        let request = RequestId(self.next_internal);
        self.next_internal += 1;
        self.internal.insert(request, (keeper, append));
        let produce = Produce {
            request,
            batch,
            levels: Levels::DEFAULT,
            acks: Acks::All,
            until: now + PATIENCE,
        };
        let input = partition::interface::Input::Produce(produce);
        self.work.push_back(Work::Partition(partition, input));
    }

    fn run_group(
        &mut self,
        now: Now,
        coordinator: i32,
        input: group::interface::Input,
        effects: &mut Vec<Effect>,
    ) {
        use group::interface::Effect as Asked;
        let Some((partition, groups)) = self.groups.get_mut(&coordinator) else {
            reached!("coordinator-not-here");
            let refusal = group::interface::Refusal::NotCoordinator;
            let outcome = Outcome::Group(group::interface::Outcome::Refused(refusal));
            self.refuse(input.request(), outcome, effects);
            return;
        };
        let partition = *partition;
        let mut asked = std::mem::take(&mut self.group_effects);
        groups.step(now, input, &mut asked);
        let deadline = groups.deadline();
        self.plan(Key::Group(coordinator), deadline);
        for effect in asked.drain(..) {
            match effect {
                Asked::Log(asked) => {
                    let keeper = Keeper::Group(coordinator);
                    self.on_log(now.monotonic, partition, keeper, asked, effects);
                }
                Asked::Reply { request, outcome } => {
                    effects.push(Effect::Reply { request, outcome: Outcome::Group(outcome) });
                }
            }
        }
        self.group_effects = asked;
    }

    fn run_seat(&mut self, now: Now, input: seat::Input, effects: &mut Vec<Effect>) {
        let Some(seat) = &mut self.seat else {
            input.refuse(effects);
            return;
        };
        seat.step(now, input, effects);
        let deadline = seat.deadline();
        self.plan(Key::Seat, deadline);
    }

    fn run_controller(
        &mut self,
        now: Now,
        input: controller::interface::Input,
        effects: &mut Vec<Effect>,
    ) {
        use controller::interface::Effect as Asked;
        let partition = PartitionId::METADATA;
        let Some(controller) = &mut self.controller else {
            reached!("controller-not-here");
            let problem = Problem::new(ProblemKind::NotAvailable, "the controller is not here");
            let outcome = controller::interface::Outcome::Refused(problem);
            self.refuse(input.request(), Outcome::Controller(outcome), effects);
            return;
        };
        let mut asked = std::mem::take(&mut self.controller_effects);
        controller.step(now, input, &mut asked);
        let deadline = controller.deadline();
        self.plan(Key::Controller, deadline);
        for effect in asked.drain(..) {
            match effect {
                Asked::Log(asked) => {
                    self.on_log(now.monotonic, partition, Keeper::Controller, asked, effects);
                }
                Asked::Committed(records) => effects.push(Effect::Committed(records)),
                Asked::Halt { reason } => {
                    let reason = HaltReason::MetadataUnreadable { reason };
                    effects.push(Effect::Halt { partition, reason });
                }
                Asked::Reply { request, outcome } => {
                    let outcome = Outcome::Controller(outcome);
                    effects.push(Effect::Reply { request, outcome });
                }
            }
        }
        self.controller_effects = asked;
    }
}
