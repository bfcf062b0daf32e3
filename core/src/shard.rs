//! Many machines and the routing between them: one driver drives them all.
//!
//! Pure composition: what one machine asks of another becomes that machine's input here, so the
//! world of cores, the tests and the shipping node route alike. A coordinator lives with its
//! partition of `__consumer_offsets` or `__transaction_state`; its appends are produced to the
//! replica beside it. The controller lives in the node's seat in the metadata quorum.

pub mod interface;
mod route;
pub mod seat;
pub mod topics;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use self::interface::{Effect, Input, Limits, Open, OpenSeat, Outcome, Role};
use self::route::{Internal, Key, Owner, Work, told};
use self::seat::Seat;
use crate::batch::Batch;
use crate::controller::Controller;
use crate::group::Groups;
use crate::group::interface::{TopicInfo, TopicsNews};
use crate::id::{LeaderEpoch, NodeEpoch, NodeId, PartitionId, RequestId};
use crate::machine::Machine;
use crate::own_log;
use crate::partition::Replica;
use crate::rng::Rng;
use crate::time::{Instant, Now};
use crate::transaction::Transactions;
use crate::{group, mutant, partition, transaction};

/// Some of a node's machines, each independent but for the effects routed here.
#[derive(Debug)]
pub struct Shard {
    id: NodeId,
    /// Told to each partition that is opened.
    node_epoch: Option<NodeEpoch>,
    limits: Limits,
    rng: Rng,
    partitions: BTreeMap<PartitionId, Slot>,
    /// By the index of their partition of `__consumer_offsets`.
    groups: BTreeMap<i32, (PartitionId, Groups)>,
    /// By the index of their partition of `__transaction_state`.
    transactions: BTreeMap<i32, (PartitionId, Transactions)>,
    /// Those of the cluster, for coordinators that want to know them; `None` if never told.
    topics: Option<BTreeMap<String, TopicInfo>>,
    /// The node's place in the quorum, if this is the shard that has it.
    seat: Option<Box<Seat>>,
    /// When each machine wants to be ticked: an index over `planned`.
    deadlines: BTreeSet<(Instant, Key)>,
    planned: BTreeMap<Key, Instant>,
    /// Machines that may have changed since `check_stepped`; not kept in a release build.
    stepped: BTreeSet<Key>,
    /// Requests of the coordinators here to the replicas here.
    internal: BTreeMap<RequestId, Internal>,
    /// What is told once the replica beside the coordinator has said that it leads: by the question
    /// to the replica, whose request it is and what it is told.
    confirming: BTreeMap<RequestId, (RequestId, Outcome)>,
    next_internal: u64,
    /// What the current step has still to do.
    work: VecDeque<Work>,
    /// Empty between steps; kept for its memory.
    partition_effects: Vec<partition::interface::Effect>,
    group_effects: Vec<group::interface::Effect>,
    transaction_effects: Vec<transaction::interface::Effect>,
}

#[derive(Debug)]
struct Slot {
    replica: Replica,
    role: Role,
    /// The leadership of which the machine that lives here was told.
    told: Option<LeaderEpoch>,
    /// The leadership that it knows of: it hears in its turn what it is told.
    heard: Option<LeaderEpoch>,
    /// The coordinator of transactions here has heard all of its log, and not that this was the
    /// end: some of it may not be committed. So many ends are kept back.
    unsettled: u32,
}

impl Slot {
    /// Whether what the machine here has read may still be lost. What a coordinator tells a
    /// producer, a partition by a marker, or a member of the offsets where it begins cannot be
    /// taken back.
    fn holds_back(&self) -> bool {
        let holds = self.role != Role::Data && self.replica.view().is_settling;
        holds && !mutant!("transaction-told-before-committed")
    }
}

impl Shard {
    /// A shard without partitions. `seed` draws what its machines draw; no two lives of a node
    /// may have the same. Panics on limits that no machine can keep to.
    pub fn new(id: NodeId, limits: Limits, seed: u64) -> Self {
        limits.partition.check();
        limits.controller.check();
        Self {
            id,
            node_epoch: None,
            limits,
            rng: Rng::new(seed),
            partitions: BTreeMap::new(),
            groups: BTreeMap::new(),
            transactions: BTreeMap::new(),
            topics: None,
            seat: None,
            deadlines: BTreeSet::new(),
            planned: BTreeMap::new(),
            stepped: BTreeSet::new(),
            internal: BTreeMap::new(),
            confirming: BTreeMap::new(),
            next_internal: interface::INTERNAL_REQUESTS,
            work: VecDeque::new(),
            partition_effects: Vec::new(),
            group_effects: Vec::new(),
            transaction_effects: Vec::new(),
        }
    }

    pub fn replica(&self, partition: PartitionId) -> Option<&Replica> {
        self.partitions.get(&partition).map(|slot| &slot.replica)
    }

    /// Ascending by id.
    pub fn replicas(&self) -> impl ExactSizeIterator<Item = (PartitionId, &Replica)> {
        self.partitions.iter().map(|(&id, slot)| (id, &slot.replica))
    }

    /// Those that may have changed since `check_stepped`; in a release build, all.
    pub fn stepped(&self) -> impl Iterator<Item = (PartitionId, &Replica)> {
        let is_kept = cfg!(debug_assertions);
        self.replicas().filter(move |(partition, _)| {
            !is_kept || self.stepped.contains(&Key::Partition(*partition))
        })
    }

    pub fn groups(&self, coordinator: i32) -> Option<&Groups> {
        self.groups.get(&coordinator).map(|(_, groups)| groups)
    }

    pub fn transactions(&self, coordinator: i32) -> Option<&Transactions> {
        self.transactions.get(&coordinator).map(|(_, transactions)| transactions)
    }

    /// Coordinators of transactions, each with its partition, that may have changed since
    /// `check_stepped`; in a release build, all.
    pub fn stepped_transactions(&self) -> impl Iterator<Item = (PartitionId, &Transactions)> {
        let is_kept = cfg!(debug_assertions);
        let all = self.transactions.iter().filter(move |(index, _)| {
            !is_kept || self.stepped.contains(&Key::Coordinator(Owner::Transaction(**index)))
        });
        all.map(|(_, (partition, transactions))| (*partition, transactions))
    }

    pub fn controller(&self) -> Option<&Controller> {
        self.seat.as_ref().map(|seat| seat.controller())
    }

    pub fn seat(&self) -> Option<&Seat> {
        self.seat.as_deref()
    }

    fn on_open_seat(&mut self, open: OpenSeat) {
        assert!(self.seat.is_none(), "this node has taken its seat already");
        let limits = self.limits.controller.clone();
        self.seat = Some(Box::new(Seat::new(open, limits, &mut self.rng)));
        // The first step begins everything.
        self.work.push_back(Work::Seat(seat::Input::Tick));
    }

    fn on_open(&mut self, open: Open) {
        let Open { partition, role, recovered, config, assignment } = open;
        let limits = self.limits.partition.clone();
        let replica = Replica::new(self.id, recovered, config, assignment, limits);
        let slot = Slot { replica, role, told: None, heard: None, unsettled: 0 };
        let before = self.partitions.insert(partition, slot);
        assert!(before.is_none(), "partition {partition} is open already");
        match role {
            Role::Data => {}
            Role::Offsets => {
                let groups = Groups::new(self.limits.group.clone(), self.rng.u64());
                self.groups.insert(partition.index, (partition, groups));
            }
            Role::Transactions => {
                let transactions = Transactions::new(self.limits.transaction.clone());
                self.transactions.insert(partition.index, (partition, transactions));
            }
        }
        // The first step publishes what there is to read.
        let first = match self.node_epoch {
            Some(node_epoch) => partition::interface::Input::Registered { node_epoch },
            None => Replica::TICK,
        };
        self.work.push_back(Work::Partition(partition, first));
    }

    fn on_registered(&mut self, node_epoch: NodeEpoch) {
        self.node_epoch = Some(node_epoch);
        for &partition in self.partitions.keys() {
            let input = partition::interface::Input::Registered { node_epoch };
            self.work.push_back(Work::Partition(partition, input));
        }
    }

    fn on_topics(&mut self, news: TopicsNews) {
        let topics = self.topics.get_or_insert_default();
        if news.is_all {
            topics.clear();
        }
        for (name, topic) in &news.topics {
            match topic {
                Some(topic) => topics.insert(name.clone(), *topic),
                None => topics.remove(name),
            };
        }
        for (&coordinator, (_, groups)) in &self.groups {
            // Whoever read its log before there was a first word waits for it.
            let waits = groups.wants_topics() && !mutant!("topics-told-to-who-knows-some");
            if waits || groups.knows_topics() {
                let input = group::interface::Input::Topics(news.clone());
                self.work.push_back(Work::Group(coordinator, input));
            }
        }
    }

    /// Everything that a coordinator has to know of the topics, if anything is known.
    fn all_topics(&self) -> Option<group::interface::Input> {
        let topics = self.topics.as_ref()?;
        let topics = topics.iter().map(|(name, topic)| (name.clone(), Some(*topic))).collect();
        Some(group::interface::Input::Topics(TopicsNews { is_all: true, topics }))
    }

    /// `input` for every partition that `peer` replicates.
    fn on_peer(&mut self, peer: NodeId, input: &partition::interface::Input) {
        for (&partition, slot) in &self.partitions {
            if slot.replica.assignment().replicas.contains(&peer) {
                self.work.push_back(Work::Partition(partition, input.clone()));
            }
        }
    }

    fn on_drop(&mut self, partition: PartitionId, effects: &mut Vec<Effect>) {
        let Some(slot) = self.partitions.remove(&partition) else {
            return;
        };
        self.plan(Key::Partition(partition), None);
        let mut left = std::mem::take(&mut self.partition_effects);
        slot.replica.abandon(&mut left);
        for effect in left.drain(..) {
            self.route_partition(partition, effect, effects);
        }
        self.partition_effects = left;
        if let Some(owner) = Owner::of(slot.role, partition) {
            self.work.push_back(told(owner, own_log::Input::Resigned));
            self.work.push_back(Work::Forget(owner));
        }
    }

    fn on_replayed(&mut self, partition: PartitionId, batch: Option<Batch>) {
        // Dropped while it was read, or nobody's.
        let Some(slot) = self.partitions.get_mut(&partition) else { return };
        let Some(owner) = Owner::of(slot.role, partition) else { return };
        let input = match batch {
            Some(batch) => own_log::Input::Replayed { batch },
            None if slot.holds_back() => {
                slot.unsettled += 1;
                return;
            }
            None => own_log::Input::ReplayEnded,
        };
        self.work.push_back(told(owner, input));
    }

    fn on_tick(&mut self, now: Now) {
        while let Some(&(at, key)) = self.deadlines.first() {
            if at > now.monotonic {
                break;
            }
            self.plan(key, None);
            self.work.push_back(match key {
                Key::Partition(partition) => Work::Partition(partition, Replica::TICK),
                Key::Coordinator(Owner::Group(coordinator)) => {
                    Work::Group(coordinator, Groups::TICK)
                }
                Key::Coordinator(Owner::Transaction(coordinator)) => {
                    Work::Transaction(coordinator, Transactions::TICK)
                }
                Key::Seat => Work::Seat(seat::Input::Tick),
            });
        }
    }

    /// `key` wants to be ticked at `deadline`.
    fn plan(&mut self, key: Key, deadline: Option<Instant>) {
        if cfg!(debug_assertions) {
            // Whoever steps a machine comes by here.
            self.stepped.insert(key);
        }
        let before = match deadline {
            Some(at) => self.planned.insert(key, at),
            None => self.planned.remove(&key),
        };
        if before == deadline {
            return;
        }
        if let Some(before) = before {
            self.deadlines.remove(&(before, key));
        }
        if let Some(at) = deadline {
            self.deadlines.insert((at, key));
        }
    }

    /// `check`, of those machines only that were stepped since this was last called: the others are
    /// as they were then. A node with hundreds of partitions steps few of them in a round.
    pub fn check_stepped(&mut self) {
        for key in std::mem::take(&mut self.stepped) {
            self.check_machine(key);
        }
        self.check_routes();
    }

    fn check_machine(&self, key: Key) {
        let deadline = match key {
            Key::Partition(partition) => self.partitions.get(&partition).and_then(|slot| {
                slot.replica.check();
                slot.replica.deadline()
            }),
            Key::Coordinator(Owner::Group(coordinator)) => {
                self.groups.get(&coordinator).and_then(|(_, groups)| {
                    groups.check();
                    groups.deadline()
                })
            }
            Key::Coordinator(Owner::Transaction(coordinator)) => {
                self.transactions.get(&coordinator).and_then(|(_, transactions)| {
                    transactions.check();
                    transactions.deadline()
                })
            }
            Key::Seat => self.seat.as_ref().and_then(|seat| {
                seat.check();
                seat.deadline()
            }),
        };
        assert_eq!(self.planned.get(&key).copied(), deadline, "{key:?}");
    }

    fn check_routes(&self) {
        assert_eq!(self.planned.len(), self.deadlines.len());
        assert!(self.work.is_empty(), "a step leaves no work");
    }

    fn refuse(&self, request: Option<RequestId>, outcome: Outcome, effects: &mut Vec<Effect>) {
        if let Some(request) = request {
            effects.push(Effect::Reply { request, outcome });
        }
    }
}

impl Machine for Shard {
    type Input = Input;
    type Effect = Effect;

    const TICK: Input = Input::Tick;

    fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Open(open) => self.on_open(*open),
            Input::Drop { partition } => self.on_drop(partition, effects),
            Input::OpenSeat(open) => self.on_open_seat(*open),
            Input::Quorum(input) => self.work.push_back(Work::Seat(seat::Input::Quorum(input))),
            Input::Controller(input) => {
                self.work.push_back(Work::Seat(seat::Input::Controller(input)));
            }
            Input::Partition { partition: PartitionId::METADATA, input } => {
                self.work.push_back(Work::Seat(seat::Input::Log(input)));
            }
            Input::Partition { partition, input } => {
                self.work.push_back(Work::Partition(partition, input));
            }
            Input::Replayed { partition, batch } => self.on_replayed(partition, Some(batch)),
            Input::ReplayEnded { partition } => self.on_replayed(partition, None),
            Input::Group { coordinator, input } => {
                self.work.push_back(Work::Group(coordinator, input));
            }
            Input::Transaction { coordinator, input } => {
                self.work.push_back(Work::Transaction(coordinator, input));
            }
            Input::Topics(news) => self.on_topics(news),
            Input::Registered { node_epoch } => self.on_registered(node_epoch),
            Input::Connected { peer } => {
                self.on_peer(peer, &partition::interface::Input::Connected { peer });
            }
            Input::Unfenced { peer } => {
                self.on_peer(peer, &partition::interface::Input::Unfenced { peer });
            }
            Input::Tick => self.on_tick(now),
        }
        while let Some(work) = self.work.pop_front() {
            self.run(now, work, effects);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    fn check(&self) {
        let partitions = self.partitions.keys().copied().map(Key::Partition);
        let groups = self.groups.keys().map(|&index| Owner::Group(index));
        let transactions = self.transactions.keys().map(|&index| Owner::Transaction(index));
        let coordinators = groups.chain(transactions).map(Key::Coordinator);
        partitions.chain(coordinators).chain([Key::Seat]).for_each(|key| self.check_machine(key));
        self.check_routes();
    }
}

/// A line a partition.
impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (partition, slot) in &self.partitions {
            writeln!(f, "{partition} {}", slot.replica)?;
        }
        Ok(())
    }
}
