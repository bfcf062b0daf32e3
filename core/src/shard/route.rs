//! Which machine's effect is which other machine's input.

use std::time::Duration;

use super::interface::{Effect, INTERNAL_REQUESTS, Outcome, Role};
use super::{Shard, Slot};
use crate::batch::{Batch, Levels};
use crate::controller::interface::{Problem, ProblemKind};
use crate::id::{PartitionId, RequestId};
use crate::machine::Machine;
use crate::partition::interface::{Acks, HaltReason, Produce, Refusal};
use crate::time::{Instant, Now};
use crate::{controller, group, partition, reached};

/// A machine of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
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
    /// The coordinator's partition is gone, and it has said so to everybody.
    Forget(i32),
}

/// Which machine's append a request of the shard's own is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Internal {
    Group(i32, group::interface::AppendId),
    Controller(controller::interface::AppendId),
}

/// How long an append of a machine waits: as long as it takes.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

impl Shard {
    pub(super) fn run(&mut self, now: Now, work: Work, effects: &mut Vec<Effect>) {
        match work {
            Work::Partition(partition, input) => self.run_partition(now, partition, input, effects),
            Work::Group(coordinator, input) => self.run_group(now, coordinator, input, effects),
            Work::Controller(input) => self.run_controller(now, input, effects),
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
        use controller::interface::Input as ForController;
        use group::interface::Input as ForGroups;
        if slot.role == Role::Data {
            return None;
        }
        let leads = slot.replica.is_leader().then(|| slot.replica.leader_epoch());
        if leads == slot.told {
            return None;
        }
        slot.told = leads;
        Some(match (slot.role, leads) {
            (Role::Offsets, Some(leader_epoch)) => {
                Work::Group(partition.index, ForGroups::Elected { leader_epoch })
            }
            (Role::Offsets, None) => Work::Group(partition.index, ForGroups::Resigned),
            (_, Some(leader_epoch)) => Work::Controller(ForController::Elected { leader_epoch }),
            (_, None) => Work::Controller(ForController::Resigned),
        })
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
        use controller::interface::Input as ForController;
        use group::interface::Input as ForGroups;
        let Some(internal) = self.internal.remove(&request) else {
            return;
        };
        if !stored {
            reached!("append-refused");
        }
        self.work.push_back(match internal {
            Internal::Group(coordinator, append) => Work::Group(
                coordinator,
                if stored {
                    ForGroups::Appended { append }
                } else {
                    ForGroups::AppendRefused { append }
                },
            ),
            Internal::Controller(append) => Work::Controller(if stored {
                ForController::Appended { append }
            } else {
                ForController::AppendRefused { append }
            }),
        });
    }

    /// A machine's append becomes a producer's batch, answered when it is committed.
    fn append(&mut self, now: Instant, partition: PartitionId, batch: Batch, asks: Internal) {
        let request = RequestId(self.next_internal);
        self.next_internal += 1;
        self.internal.insert(request, asks);
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
                Asked::Replay => effects.push(Effect::Replay { partition }),
                Asked::Append { append, batch } => {
                    let asks = Internal::Group(coordinator, append);
                    self.append(now.monotonic, partition, batch, asks);
                }
                Asked::Reply { request, outcome } => {
                    effects.push(Effect::Reply { request, outcome: Outcome::Group(outcome) });
                }
            }
        }
        self.group_effects = asked;
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
                Asked::Replay => effects.push(Effect::Replay { partition }),
                Asked::Append { append, batch } => {
                    self.append(now.monotonic, partition, batch, Internal::Controller(append));
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
