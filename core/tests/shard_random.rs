//! Random walks of a shard with the controller and a group coordinator in it: completions in any
//! order between logs, crashes anywhere. What was answered must be so in every later life.

#[path = "support/log.rs"]
mod log;

use std::collections::{BTreeMap, BTreeSet};

use log::{Log, agrees};
use quorate_core::batch::Batch;
use quorate_core::controller::interface as controller;
use quorate_core::group::interface as group;
use quorate_core::id::{LeaderEpoch, NodeId, Offset, PartitionId, RequestId, TopicId};
use quorate_core::machine::Machine;
use quorate_core::metadata::{Address, Image};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::{
    Assignment, Input as PartitionInput, LogOp, PartitionConfig,
};
use quorate_core::quorum::Quorum;
use quorate_core::quorum::interface::{
    DirectoryId, Limits as QuorumLimits, Member, Role as QuorumRole, Setup,
};
use quorate_core::quorum_log::Fold;
use quorate_core::rng::Rng;
use quorate_core::shard::Shard;
use quorate_core::shard::interface::{Effect, Input, Limits, Open, OpenSeat, Outcome, Role};
use quorate_core::time::{Instant, Now, Timestamp};

const STEPS_A_WALK: u64 = 300;
const OFFSETS: PartitionId = PartitionId { topic: TopicId([0x0f; 16]), index: 0 };

#[test]
fn what_a_shard_answered_stays_true() {
    let walks = if cfg!(debug_assertions) { 40 } else { 2000 };
    for seed in 0..walks {
        let result = std::panic::catch_unwind(|| Walk::new(seed).run());
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[cfg(mutants)]
#[test]
fn planted_bugs_are_noticed() {
    for slug in ["pid-block-issued-twice", "answer-before-written", "group-answer-before-log"] {
        quorate_core::mutant::choose(Some(slug));
        let walk = |seed: &u64| std::panic::catch_unwind(|| Walk::new(*seed).run()).is_err();
        let noticed = (0..100).find(walk);
        quorate_core::mutant::choose(None);
        assert!(noticed.is_some(), "{slug} is not noticed");
    }
}

/// What a request asked for.
#[derive(Debug)]
enum Asked {
    Create(String),
    Delete(String),
    ProducerIds,
    Commit(String, i64),
    Register,
}

#[derive(Default)]
struct Stored {
    log: Log,
    batches: Vec<Batch>,
    in_flight: Vec<LogOp>,
}

struct Walk {
    rng: Rng,
    seed: u64,
    now: Now,
    shard: Shard,
    logs: BTreeMap<PartitionId, Stored>,
    /// What the driver was told.
    image: Image,
    asked: BTreeMap<RequestId, Asked>,
    next_request: u64,
    /// Topics that were answered: whether they are there. Those with a request of unknown fate
    /// are taken out.
    topics: BTreeMap<String, bool>,
    /// The end of the last block of producer ids that was answered.
    producer_ids: i64,
    topic_ids: BTreeSet<TopicId>,
    /// The largest offset that was answered, and the largest that was asked for.
    offsets: BTreeMap<String, (i64, i64)>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            seed,
            now: Now { monotonic: Instant::ZERO, wall: Timestamp(1_000_000) },
            shard: Shard::new(NodeId(1), Limits::default(), seed),
            logs: BTreeMap::new(),
            image: Image::default(),
            asked: BTreeMap::new(),
            next_request: 0,
            topics: BTreeMap::new(),
            producer_ids: 0,
            topic_ids: BTreeSet::new(),
            offsets: BTreeMap::new(),
        }
    }

    fn run(mut self) {
        self.start();
        for _ in 0..STEPS_A_WALK {
            match self.rng.below(100) {
                0..20 => self.create(),
                20..28 => self.delete(),
                28..38 => self.ask_controller(Asked::ProducerIds),
                38..60 => self.commit(),
                60..97 => self.written(),
                _ => self.crash(),
            }
        }
        self.crash();
        self.fail();
    }

    /// The disk fails under the metadata log: everybody who waits for it is told so.
    fn fail(mut self) {
        let Some(write) = self.logs[&PartitionId::METADATA].log.next_write() else {
            return;
        };
        let partition = PartitionId::METADATA;
        let input = PartitionInput::WriteFailed { write };
        let mut effects = Vec::new();
        self.shard.step(self.now, Input::Partition { partition, input }, &mut effects);
        self.shard.check();
        for effect in &effects {
            if let Effect::Reply { request, outcome } = effect {
                self.asked.remove(request).expect("an answer to a request");
                let Outcome::Controller(controller::Outcome::Refused(problem)) = outcome else {
                    panic!("{outcome:?}");
                };
                assert_eq!(problem.kind, controller::ProblemKind::NotAvailable);
            }
        }
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Halt { .. })));
        let waits = |asked: &Asked| !matches!(asked, Asked::Commit(..));
        assert!(!self.asked.values().any(waits), "somebody waits for ever");
    }

    fn start(&mut self) {
        self.image = Image::default();
        self.open_seat();
        let recovered = self.recover(OFFSETS);
        self.step(Input::Open(Box::new(Open {
            partition: OFFSETS,
            role: Role::Offsets,
            recovered,
            config: PartitionConfig::default(),
            assignment: Assignment {
                leader_epoch: LeaderEpoch(0),
                leader: Some(NodeId(1)),
                replicas: vec![NodeId(1)],
                in_sync: vec![NodeId(1)],
                ..Assignment::default()
            },
        })));
        for batch in self.logs[&OFFSETS].batches.clone() {
            self.step(Input::Replayed { partition: OFFSETS, batch });
        }
        self.step(Input::ReplayEnded { partition: OFFSETS });
        // The seat leads once its disk has what it wrote at the start.
        while self.shard.seat().is_none_or(|seat| seat.quorum().role() != leads(seat.quorum())) {
            self.complete(PartitionId::METADATA, 1);
        }
        self.check_topics();
        self.check_offsets();
        self.ask_controller(Asked::Register);
    }

    fn recover(&mut self, partition: PartitionId) -> Recovered {
        let stored = self.logs.entry(partition).or_default();
        let recovered = stored.log.recover();
        assert!(agrees(&recovered, stored.log.folded()));
        assert!(agrees(&stored.log.recover_from_older_snapshot(), stored.log.folded()));
        stored.log = Log::new(recovered.clone());
        recovered
    }

    fn open_seat(&mut self) {
        let log = self.recover(PartitionId::METADATA);
        let mut fold = Fold::default();
        let batches = &self.logs[&PartitionId::METADATA].batches;
        for batch in batches.iter().filter(|batch| batch.header().base_offset() >= log.log_start) {
            fold.push(batch).expect("our own operations");
        }
        let me = Member { node: NodeId(1), directory: DirectoryId([1; 16]) };
        self.step(Input::OpenSeat(Box::new(OpenSeat {
            setup: Setup { me, founders: BTreeSet::from([NodeId(1)]) },
            log,
            recovered: fold.finish(),
            limits: QuorumLimits { snapshot_after_bytes: 500, ..QuorumLimits::default() },
            segment_bytes_max: 4000,
        })));
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.shard.step(self.now, input, &mut effects);
        self.shard.check();
        for effect in effects {
            match effect {
                Effect::Write { partition, write, op, .. } => {
                    let stored = self.logs.entry(partition).or_default();
                    stored.in_flight.push(op.clone());
                    stored.log.write(write, op);
                }
                Effect::Reply { request, outcome } => self.on_reply(request, outcome),
                Effect::Committed(records) => {
                    for record in &records {
                        self.image.apply(record);
                    }
                }
                Effect::Restored(records) => {
                    self.image = Image::default();
                    records.iter().for_each(|record| self.image.apply(record));
                }
                Effect::Publish { .. } | Effect::Replay { .. } | Effect::QuorumRole { .. } => {}
                Effect::Halt { reason, .. } => panic!("{reason:?}"),
                Effect::Send { .. }
                | Effect::ReadLog { .. }
                | Effect::Propose { .. }
                | Effect::SendMarker { .. }
                | Effect::Clean { .. }
                | Effect::Discard { .. }
                | Effect::SendQuorum { .. } => {
                    panic!("one replica has nobody to turn to: {effect:?}")
                }
            }
        }
        if let Some(seat) = self.shard.seat() {
            assert!(*seat.image().0 == self.image, "the driver knows what is committed");
        }
    }

    fn ask(&mut self, asked: Asked) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.asked.insert(request, asked);
        request
    }

    fn name(&mut self) -> String {
        format!("topic-{}", self.rng.below(5))
    }

    fn create(&mut self) {
        let name = self.name();
        self.ask_controller(Asked::Create(name));
    }

    fn delete(&mut self) {
        let name = self.name();
        self.ask_controller(Asked::Delete(name));
    }

    fn ask_controller(&mut self, asked: Asked) {
        let name = match &asked {
            Asked::Create(name) | Asked::Delete(name) => name.clone(),
            _ => String::new(),
        };
        // Until it is answered, its fate is unknown.
        self.topics.remove(&name);
        let is_create = matches!(asked, Asked::Create(_));
        let is_delete = matches!(asked, Asked::Delete(_));
        let is_register = matches!(asked, Asked::Register);
        let request = self.ask(asked);
        let input = if is_create {
            let topics = vec![controller::NewTopic { name, ..Default::default() }];
            controller::Input::CreateTopics { request, topics, validate_only: false }
        } else if is_delete {
            let topics = vec![controller::TopicName::Name(name)];
            controller::Input::DeleteTopics { request, topics }
        } else if is_register {
            controller::Input::RegisterNode(controller::RegisterNode {
                request,
                node: NodeId(1),
                incarnation: self.rng.u64(),
                cluster: "abc".to_owned(),
                address: Address { host: "localhost".to_owned(), port: 9092 },
                ..Default::default()
            })
        } else {
            controller::Input::AllocateProducerIds { request, node: NodeId(1) }
        };
        self.step(Input::Controller(input));
    }

    fn commit(&mut self) {
        let group = format!("group-{}", self.rng.below(3));
        let known = self.offsets.entry(group.clone()).or_default();
        known.1 += 1;
        let offset = known.1;
        let request = self.ask(Asked::Commit(group.clone(), offset));
        let (member, instance) = (String::new(), None);
        let commit = group::CommitOffsets {
            request,
            member: group::MemberClaim { group, member, instance, generation: -1 },
            knows_epochs: true,
            offsets: vec![(partition_of(), committed(offset))],
        };
        self.step(Input::Group { coordinator: 0, input: group::Input::CommitOffsets(commit) });
    }

    fn written(&mut self) {
        let partition = if self.rng.below(2) == 0 { PartitionId::METADATA } else { OFFSETS };
        let in_flight = self.logs[&partition].log.in_flight();
        if in_flight > 0 {
            let count = 1 + self.rng.below(in_flight as u64) as usize;
            self.complete(partition, count);
        }
    }

    fn complete(&mut self, partition: PartitionId, count: usize) {
        let stored = self.logs.get_mut(&partition).expect("it is open");
        let through = stored.log.complete(count).expect("something is in flight");
        for op in stored.in_flight.drain(..count) {
            if let LogOp::Append { batch, .. } = op {
                stored.batches.push(batch);
            }
        }
        self.step(Input::Partition { partition, input: PartitionInput::Written { through } });
    }

    fn crash(&mut self) {
        self.seed += 1_000_000;
        self.shard = Shard::new(NodeId(1), Limits::default(), self.seed);
        self.asked.clear();
        for stored in self.logs.values_mut() {
            stored.in_flight.clear();
        }
        self.start();
    }

    fn on_reply(&mut self, request: RequestId, outcome: Outcome) {
        let asked = self.asked.remove(&request).expect("an answer to a request");
        match (asked, outcome) {
            (Asked::Create(name), Outcome::Controller(controller::Outcome::TopicsCreated(all))) => {
                if let Ok(created) = &all[0].1 {
                    assert!(self.topic_ids.insert(created.id), "an id was given twice");
                }
                self.note_topic(name, true);
            }
            (Asked::Delete(name), Outcome::Controller(controller::Outcome::TopicsDeleted(_))) => {
                self.note_topic(name, false);
            }
            (
                Asked::ProducerIds,
                Outcome::Controller(controller::Outcome::ProducerIds { first, end }),
            ) => {
                assert!(first.0 >= self.producer_ids, "producer ids were given twice");
                self.producer_ids = end.0;
            }
            (
                Asked::Commit(group, offset),
                Outcome::Group(group::Outcome::OffsetsCommitted { partitions }),
            ) => {
                assert_eq!(partitions[0].1, None);
                let known = self.offsets.get_mut(&group).expect("it was asked for");
                known.0 = known.0.max(offset);
            }
            (Asked::Register, Outcome::Controller(controller::Outcome::NodeRegistered { .. })) => {}
            (asked, outcome) => panic!("{asked:?} was answered {outcome:?}"),
        }
    }

    /// Answered, and no other request about it is open: then it is so, and stays so.
    fn note_topic(&mut self, name: String, exists: bool) {
        let open = self.asked.values().any(
            |asked| matches!(asked, Asked::Create(other) | Asked::Delete(other) if *other == name),
        );
        if !open {
            assert_eq!(self.image.topic_named(&name).is_some(), exists, "{name}");
            self.topics.insert(name, exists);
        }
    }

    fn check_topics(&self) {
        for (name, exists) in &self.topics {
            assert_eq!(self.image.topic_named(name).is_some(), *exists, "{name} after a crash");
        }
    }

    /// A group has come at least as far as it was told, and never further than it asked.
    fn check_offsets(&mut self) {
        if self.shard.groups(0).is_none() {
            return;
        }
        for (group, (answered, asked)) in self.offsets.clone() {
            self.next_request += 1;
            let request = RequestId(self.next_request);
            let fetch = group::FetchOffsets {
                request,
                group,
                member: None,
                partitions: None,
                require_stable: false,
            };
            let mut effects = Vec::new();
            let input = group::Input::FetchOffsets(fetch);
            self.shard.step(self.now, Input::Group { coordinator: 0, input }, &mut effects);
            let Some(Effect::Reply { outcome: Outcome::Group(outcome), .. }) = effects.pop() else {
                panic!("no answer");
            };
            let group::Outcome::OffsetsFetched { partitions } = outcome else {
                panic!("{outcome:?}");
            };
            let found = partitions.first().and_then(|(_, offset)| offset.clone().unwrap());
            let found = found.map_or(0, |committed| committed.offset.0);
            assert!((answered..=asked).contains(&found), "{found} of {answered}..={asked}");
        }
    }
}

/// The role of a member that is in charge.
fn leads(quorum: &Quorum) -> QuorumRole {
    QuorumRole::Leading { term: quorum.term() }
}

fn partition_of() -> group::TopicPartition {
    group::TopicPartition { topic: "orders".to_owned(), partition: 0 }
}

fn committed(offset: i64) -> group::CommittedOffset {
    group::CommittedOffset {
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(-1),
        metadata: String::new(),
        topic: TopicId::NONE,
    }
}
