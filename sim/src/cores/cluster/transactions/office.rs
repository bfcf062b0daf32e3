//! What nodes do for clients of transactions, a thin version of the shipping node's: which machine
//! is asked what a client wants, and what is made of its answer.

use quorate_core::batch::Levels;
use quorate_core::group::interface as group;
use quorate_core::group::placement::partition_of;
use quorate_core::id::{
    CoordinatorEpoch, LeaderEpoch, Offset, PartitionId, ProducerId, RequestId, VerificationGuard,
};
use quorate_core::metadata::topic::{OFFSETS_TOPIC, TRANSACTIONS_TOPIC};
use quorate_core::partition::interface::{self as partition, Isolation, ReadView};
use quorate_core::shard::interface::{Input, Outcome};
use quorate_core::transaction::interface::{
    self as transaction, AddPartitions, Claim, End, InitProducer, TopicPartition,
    TransactionVersion,
};
use quorate_net::kafka::error::Code;

use super::super::clients::Told;
use super::super::node::{Waiting, place_of};
use super::super::{Cluster, Payload};
use super::errands::{Errand, Waits, done_by};
use super::{Ask, GROUP, Known, Read, Reply, all_places};
use crate::history::transactions::Place;
use crate::plan::Acks;
use crate::spec;

/// A client's request at a node.
pub(in super::super) struct Asked {
    client: u32,
    attempt: u64,
    pub(super) ask: Ask,
}

/// What a node does for transactions that waits for an answer of its shard.
pub(in super::super) enum Duty {
    /// The answer is the client's.
    Ask(Box<Asked>),
    /// Whether the coordinator is to be asked before something is appended.
    Verify(Box<Asked>),
    Append(Box<Asked>),
    /// Which of the records that were found are aborted.
    Read(Box<Asked>, ReadView, Read),
    /// Another node's errand, or one of its own, by its number.
    Errand {
        peer: usize,
        life: u32,
        errand: u64,
    },
}

impl Cluster {
    fn answer(&mut self, n: usize, asked: &Asked, reply: Reply) {
        let told = Told::Conversation(Box::new(reply));
        self.reply(n, asked.client, asked.attempt, told);
    }

    pub(super) fn refuse(&mut self, n: usize, asked: &Asked, code: Code) {
        self.answer(n, asked, Reply::Refused(code));
    }

    pub(super) fn await_duty(&mut self, n: usize, duty: Duty) -> RequestId {
        self.nodes[n].next_request(Waiting::Duty(duty))
    }

    /// The partition of a coordinators' topic in which the truth of this name stands.
    fn own_partition(&self, n: usize, topic: &str, name: &str) -> Option<PartitionId> {
        let topic = self.nodes[n].keeper.image.topic_named(topic)?;
        let count = i32::try_from(topic.partitions.len()).ok().filter(|count| *count > 0)?;
        Some(PartitionId { topic: topic.id, index: partition_of(name, count) })
    }

    fn place_id(&self, n: usize, place: Place) -> Option<PartitionId> {
        let topic = self.nodes[n].keeper.image.topic_named(place.topic.name())?;
        let there = (place.index as usize) < topic.partitions.len();
        there.then_some(PartitionId { topic: topic.id, index: place.index as i32 })
    }

    fn led_by(&self, n: usize, id: PartitionId) -> Option<usize> {
        self.nodes[n].keeper.image.partition(id)?.leader.map(place_of)
    }

    pub(in super::super) fn on_ask(&mut self, n: usize, client: u32, attempt: u64, ask: Ask) {
        let asked = Box::new(Asked { client, attempt, ask });
        match &asked.ask {
            Ask::Leaders => {
                let known = self.known(n);
                self.answer(n, &asked, Reply::Leaders(known));
            }
            Ask::Init { .. } | Ask::Add { .. } | Ask::End { .. } => {
                self.ask_coordinator(n, asked, None);
            }
            Ask::Produce { .. } | Ask::CommitOffset { .. } => self.verify(n, asked),
            Ask::Group { .. } => self.ask_group(n, asked),
            Ask::Read { .. } => self.fetch(n, asked),
            Ask::Fetch { partition, from, bytes_max } => {
                let reply = self.fetch_for_member(n, *partition, *from, *bytes_max);
                self.answer(n, &asked, reply);
            }
            Ask::Producers { .. } | Ask::Mark { .. } => self.ask_partition(n, asked),
        }
    }

    fn known(&self, n: usize) -> Known {
        let leader = |place| Some((place, self.led_by(n, self.place_id(n, place)?)?));
        let places = self.plan.transactions.iter().flat_map(all_places);
        let coordinators = |name| {
            let topic = self.nodes[n].keeper.image.topic_named(name);
            let leaders = topic.iter().flat_map(|topic| &topic.partitions);
            leaders.map(|partition| partition.leader.map(place_of)).collect()
        };
        let (partitions, topics) = self.consumed(n);
        Known {
            partitions,
            topics,
            leaders: places.filter_map(leader).collect(),
            coordinators: coordinators(TRANSACTIONS_TOPIC),
            groups: coordinators(OFFSETS_TOPIC),
        }
    }

    /// `fresh`: a producer id that nobody was given, where one is needed.
    fn ask_coordinator(&mut self, n: usize, asked: Box<Asked>, fresh: Option<ProducerId>) {
        let id = match &asked.ask {
            Ask::Init { id, .. } => id,
            Ask::Add { claim, .. } | Ask::End { claim, .. } => &claim.transactional_id,
            _ => unreachable!("nothing else is a coordinator's"),
        };
        let Some(coordinator) = self.own_partition(n, TRANSACTIONS_TOPIC, id) else {
            return self.refuse(n, &asked, Code::CoordinatorNotAvailable);
        };
        if let Ask::Add { place, .. } = asked.ask
            && self.place_id(n, place).is_none()
        {
            return self.refuse(n, &asked, Code::UnknownTopicOrPartition);
        }
        let ask = asked.ask.clone();
        let request = self.await_duty(n, Duty::Ask(asked));
        let input = match ask {
            Ask::Init { id: transactional_id, timeout, current } => {
                let current = current.map(|(id, epoch)| (ProducerId(id), epoch_of(epoch)));
                let init = InitProducer { request, transactional_id, timeout, current, fresh };
                transaction::Input::InitProducer(init)
            }
            Ask::Add { claim, place } => {
                let partitions = vec![named(place)];
                let version = TransactionVersion::V0;
                let add = AddPartitions { request, claim, partitions, version };
                transaction::Input::AddPartitions(add)
            }
            Ask::End { claim, version, ending } => {
                transaction::Input::End(End { request, claim, ending, version, fresh })
            }
            _ => unreachable!("nothing else is a coordinator's"),
        };
        self.tell(n, Input::Transaction { coordinator: coordinator.index, input });
    }

    fn ask_group(&mut self, n: usize, asked: Box<Asked>) {
        let Ask::Group { group, input } = &asked.ask else {
            unreachable!("nothing else is a group's");
        };
        let Some(id) = self.own_partition(n, OFFSETS_TOPIC, group) else {
            return self.refuse(n, &asked, Code::CoordinatorNotAvailable);
        };
        let input = (**input).clone();
        let request = self.await_duty(n, Duty::Ask(asked));
        let input = numbered(input, request);
        self.tell(n, Input::Group { coordinator: id.index, input });
    }

    fn ask_partition(&mut self, n: usize, asked: Box<Asked>) {
        let (Ask::Producers { place } | Ask::Mark { place, .. }) = asked.ask else {
            unreachable!("nothing else is a partition's");
        };
        let Some(partition) = self.place_id(n, place) else {
            return self.refuse(n, &asked, Code::UnknownTopicOrPartition);
        };
        let ask = asked.ask.clone();
        let until = self.until(n);
        let request = self.await_duty(n, Duty::Ask(asked));
        let input = match ask {
            Ask::Mark { claim, ending, coordinator_epoch, .. } => {
                partition::Input::EndTransaction(partition::EndTransaction {
                    request,
                    producer: claim.producer,
                    epoch: claim.epoch,
                    ending,
                    coordinator_epoch: CoordinatorEpoch(coordinator_epoch),
                    transaction_version: TransactionVersion::V2.0,
                    until,
                })
            }
            _ => partition::Input::DescribeProducers { request },
        };
        self.tell(n, Input::Partition { partition, input });
    }

    /// Where something of a transaction is to be appended.
    fn target(&self, n: usize, ask: &Ask) -> Option<(PartitionId, TopicPartition)> {
        match ask {
            Ask::Produce { place, .. } => Some((self.place_id(n, *place)?, named(*place))),
            _ => {
                let id = self.own_partition(n, OFFSETS_TOPIC, GROUP)?;
                let topic = OFFSETS_TOPIC.to_owned();
                Some((id, TopicPartition { topic, partition: id.index }))
            }
        }
    }

    /// The partition says whether the coordinator is to be asked. KIP-890.
    fn verify(&mut self, n: usize, asked: Box<Asked>) {
        let Some((partition, _)) = self.target(n, &asked.ask) else {
            return self.refuse(n, &asked, Code::UnknownTopicOrPartition);
        };
        let (claim, version) = claim_of(&asked.ask);
        let (producer, epoch) = (claim.producer, claim.epoch);
        let transaction_version = version.0;
        let sequence = match &asked.ask {
            Ask::Produce { batch, .. } => batch.header().base_sequence(),
            _ => -1,
        };
        let request = self.await_duty(n, Duty::Verify(asked));
        let verify = partition::Verify { request, producer, epoch, sequence, transaction_version };
        self.tell(n, Input::Partition { partition, input: partition::Input::Verify(verify) });
    }

    fn join(&mut self, n: usize, asked: Box<Asked>, guard: VerificationGuard) {
        let (claim, version) = claim_of(&asked.ask);
        let claim = claim.clone();
        let found = self.own_partition(n, TRANSACTIONS_TOPIC, &claim.transactional_id);
        let found = found.and_then(|id| Some((id, self.led_by(n, id)?)));
        let target = self.target(n, &asked.ask);
        let (Some((coordinator, leader)), Some((_, partition))) = (found, target) else {
            return self.refuse(n, &asked, later(&asked.ask));
        };
        let errand = Errand::Join { coordinator: coordinator.index, claim, partition, version };
        self.send_errand(n, leader, errand, Waits::Batch(asked, guard));
    }

    pub(super) fn append(&mut self, n: usize, asked: Box<Asked>, guard: Option<VerificationGuard>) {
        let Some((partition, _)) = self.target(n, &asked.ask) else {
            return self.refuse(n, &asked, Code::UnknownTopicOrPartition);
        };
        let (ask, until) = (asked.ask.clone(), self.until(n));
        let request = self.await_duty(n, Duty::Append(asked));
        match ask {
            Ask::Produce { batch, .. } => {
                let (levels, acks) = (Levels::DEFAULT, partition::Acks::All);
                let produce = partition::Produce { request, batch, levels, acks, until, guard };
                let input = partition::Input::Produce(produce);
                self.tell(n, Input::Partition { partition, input });
            }
            Ask::CommitOffset { claim, place, next, .. } => {
                let topic = self.place_id(n, place).map(|id| id.topic).unwrap_or_default();
                let committed = group::CommittedOffset {
                    offset: Offset(next),
                    leader_epoch: LeaderEpoch(-1),
                    metadata: String::new(),
                    topic,
                };
                let member = group::MemberClaim {
                    group: GROUP.to_owned(),
                    member: String::new(),
                    instance: None,
                    generation: -1,
                };
                let TopicPartition { topic, partition: index } = named(place);
                let name = group::TopicPartition { topic, partition: index };
                let offsets = vec![(name, committed)];
                let commit = group::CommitOffsets { request, member, knows_epochs: true, offsets };
                let (producer, epoch) = (claim.producer, claim.epoch);
                let input = group::Input::CommitTransactional(group::CommitTransactional {
                    commit,
                    producer,
                    epoch,
                    guard,
                });
                self.tell(n, Input::Group { coordinator: partition.index, input });
            }
            _ => unreachable!("nothing else is appended"),
        }
    }

    fn fetch(&mut self, n: usize, asked: Box<Asked>) {
        let Ask::Read { place, from, isolation, bytes_max } = asked.ask else {
            unreachable!("nothing else is read");
        };
        let id = self.place_id(n, place);
        let node = &self.nodes[n];
        let found = id.and_then(|id| Some((id, *node.views.get(&id)?, node.disk.log(id)?)));
        let leads = |view: &ReadView| view.is_leader && !view.is_settling;
        let Some((id, view, log)) = found.filter(|(_, view, _)| leads(view)) else {
            return self.refuse(n, &asked, Code::NotLeaderOrFollower);
        };
        if from < view.log_start.0 || from > view.end.0 {
            return self.refuse(n, &asked, Code::OffsetOutOfRange);
        }
        let committed = isolation == Isolation::ReadCommitted;
        let up_to = if committed { view.last_stable } else { view.high_watermark };
        let batches = log.read_for(Offset(from), up_to, bytes_max);
        let batches: Vec<_> = batches.into_iter().map(|(batch, _)| batch).collect();
        let next = batches.last().map_or(from, |last| last.header().next_offset().0);
        let (stable, end) = (view.last_stable.0, view.end.0);
        let read = Read { batches, aborted: Vec::new(), next, stable, end };
        if !committed || next == from || from >= view.aborted_end.0 {
            return self.answer(n, &asked, Reply::Read(read));
        }
        let request = self.await_duty(n, Duty::Read(asked, view, read));
        let input = partition::Input::Aborted { request, from: Offset(from), to: Offset(next) };
        self.tell(n, Input::Partition { partition: id, input });
    }

    /// The shard has answered.
    pub(in super::super) fn on_duty(&mut self, n: usize, duty: Duty, outcome: Outcome) {
        match duty {
            Duty::Ask(asked) => self.on_asked_machine(n, asked, outcome),
            Duty::Verify(asked) => match outcome {
                Outcome::Partition(partition::Outcome::Verified(Some(guard))) => {
                    self.join(n, asked, guard);
                }
                Outcome::Partition(partition::Outcome::Verified(None)) => {
                    self.append(n, asked, None);
                }
                Outcome::Partition(partition::Outcome::Refused(refusal)) => {
                    let is_group = matches!(asked.ask, Ask::CommitOffset { .. });
                    let code = match refusal {
                        partition::Refusal::NotLeader if is_group => Code::NotCoordinator,
                        refusal => Code::from(&refusal),
                    };
                    self.refuse(n, &asked, code);
                }
                other => unreachable!("a partition verifies, and does not say {other:?}"),
            },
            Duty::Append(asked) => self.on_appended(n, &asked, outcome),
            Duty::Read(asked, view, read) => self.on_aborted(n, &asked, (view, read), outcome),
            Duty::Errand { peer, life, errand } => {
                let done = done_by(outcome);
                if peer == n {
                    self.on_errand_done(n, errand, done);
                } else if life == self.nodes[peer].life {
                    self.send(n, peer, Payload::Done { errand, done });
                }
            }
        }
    }

    fn on_asked_machine(&mut self, n: usize, asked: Box<Asked>, outcome: Outcome) {
        use transaction::Outcome as Word;
        let reply = match outcome {
            Outcome::Transaction(Word::NeedsProducerId) => match self.producer_id(n) {
                Some(fresh) => return self.ask_coordinator(n, asked, Some(fresh)),
                None => Reply::Refused(Code::CoordinatorLoadInProgress),
            },
            Outcome::Transaction(
                Word::Initialized { producer, epoch } | Word::Ended { producer, epoch },
            ) => Reply::Who(producer.0, epoch.0),
            Outcome::Transaction(Word::Added) => Reply::Done,
            Outcome::Transaction(Word::Refused(refusal)) => Reply::Refused(Code::from(&refusal)),
            Outcome::Group(outcome) => Reply::Group(outcome),
            Outcome::Partition(partition::Outcome::Producers(producers)) => {
                Reply::Producers(producers)
            }
            Outcome::Partition(partition::Outcome::TransactionEnded) => Reply::Done,
            Outcome::Partition(partition::Outcome::Refused(refusal)) => {
                Reply::Refused(Code::from(&refusal))
            }
            other => unreachable!("nobody was asked for {other:?}"),
        };
        self.answer(n, &asked, reply);
    }

    fn on_appended(&mut self, n: usize, asked: &Asked, outcome: Outcome) {
        let reply = match outcome {
            Outcome::Partition(partition::Outcome::Produced { base, .. }) => {
                if let Some((id, _)) = self.target(n, &asked.ask) {
                    self.shadow.on_acknowledged(&self.nodes, n, id, base, Acks::All);
                    spec::on_replicas(|watch| watch.answers(id, base.0, true));
                }
                Reply::Stored(base.0)
            }
            Outcome::Partition(partition::Outcome::Refused(refusal)) => {
                Reply::Refused(Code::from(&refusal))
            }
            Outcome::Group(group::Outcome::OffsetsCommitted { partitions }) => {
                let refusal = partitions.iter().find_map(|(_, refusal)| refusal.as_ref());
                refusal.map_or(Reply::Done, |refusal| Reply::Refused(Code::from(refusal)))
            }
            Outcome::Group(group::Outcome::Refused(refusal)) => {
                Reply::Refused(Code::from(&refusal))
            }
            other => unreachable!("something is appended, not {other:?}"),
        };
        self.answer(n, asked, reply);
    }

    fn on_aborted(
        &mut self,
        n: usize,
        asked: &Asked,
        (view, mut read): (ReadView, Read),
        outcome: Outcome,
    ) {
        let Ask::Read { from, .. } = asked.ask else { unreachable!("nothing else is read") };
        let reply = match outcome {
            Outcome::Partition(partition::Outcome::Aborted { view: now, transactions }) => {
                if now.removals == view.removals && now.log_start <= Offset(from) {
                    let each = transactions.iter();
                    read.aborted = each.map(|it| (it.producer, it.first)).collect();
                } else {
                    // It does not speak of what was read.
                    (read.batches, read.next) = (Vec::new(), from);
                }
                Reply::Read(read)
            }
            Outcome::Partition(partition::Outcome::Refused(refusal)) => {
                Reply::Refused(Code::from(&refusal))
            }
            other => unreachable!("aborted transactions are told, not {other:?}"),
        };
        self.answer(n, asked, reply);
    }
}

const fn epoch_of(epoch: i16) -> quorate_core::id::ProducerEpoch {
    quorate_core::id::ProducerEpoch(epoch)
}

fn named(place: Place) -> TopicPartition {
    TopicPartition { topic: place.topic.name().to_owned(), partition: place.index as i32 }
}

fn claim_of(ask: &Ask) -> (&Claim, TransactionVersion) {
    match ask {
        Ask::Produce { claim, version, .. } | Ask::CommitOffset { claim, version, .. } => {
            (claim, *version)
        }
        _ => unreachable!("nothing else is appended"),
    }
}

/// What a client takes for "nothing is written, send it again".
const fn later(ask: &Ask) -> Code {
    match ask {
        Ask::CommitOffset { .. } => Code::CoordinatorLoadInProgress,
        _ => Code::NotEnoughReplicas,
    }
}

pub(super) fn not_within(ask: &Ask) -> Code {
    let (_, version) = claim_of(ask);
    if version.bumps_epoch() { Code::TransactionAbortable } else { Code::InvalidTxnState }
}

pub(super) fn not_joined(ask: &Ask, refusal: transaction::Refusal) -> Code {
    use transaction::Refusal;
    match refusal {
        Refusal::InvalidState => not_within(ask),
        Refusal::ProducerFenced => Code::InvalidProducerEpoch,
        Refusal::InvalidProducerIdMapping | Refusal::UnknownId => Code::InvalidProducerIdMapping,
        _ => later(ask),
    }
}

/// A group's request by its number.
fn numbered(input: group::Input, request: RequestId) -> group::Input {
    use group::Input as Asked;
    match input {
        Asked::Join(join) => Asked::Join(group::Join { request, ..join }),
        Asked::Sync(sync) => Asked::Sync(group::Sync { request, ..sync }),
        Asked::ConsumerHeartbeat(it) => {
            Asked::ConsumerHeartbeat(group::ConsumerHeartbeat { request, ..it })
        }
        Asked::Heartbeat { member, .. } => Asked::Heartbeat { request, member },
        Asked::Leave { group, members, .. } => Asked::Leave { request, group, members },
        Asked::CommitOffsets(it) => Asked::CommitOffsets(group::CommitOffsets { request, ..it }),
        Asked::FetchOffsets(it) => Asked::FetchOffsets(group::FetchOffsets { request, ..it }),
        other => unreachable!("no client asks for {other:?}"),
    }
}
