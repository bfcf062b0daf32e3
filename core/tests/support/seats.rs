//! Seats of a metadata quorum, each with its disk and its clock, and what is on its way between
//! them: for the stories and for the random walk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use quorate_core::batch::Batch;
use quorate_core::id::{NodeId, PartitionId, WriteId};
use quorate_core::machine::Machine;
use quorate_core::metadata::{Image, payload};
use quorate_core::partition::interface::{Input as LogInput, LogOp};
use quorate_core::quorum::interface::{
    DirectoryId, Index, Input as QuorumInput, Limits as QuorumLimits, Member, Message, Payload,
    Recovered, Setup,
};
use quorate_core::quorum_log::Fold;
use quorate_core::shard::Shard;
use quorate_core::shard::interface::{Effect, Input, Limits, OpenSeat};
use quorate_core::time::{Instant, Now, Timestamp};

use crate::log::Log;

/// A node as far as its seat goes.
pub(crate) struct Node {
    pub(crate) shard: Option<Shard>,
    pub(crate) member: Member,
    pub(crate) log: Log,
    batches: Vec<Batch>,
    in_flight: VecDeque<LogOp>,
    started: Duration,
    lives: u64,
}

impl Node {
    /// What the disk remembers.
    pub(crate) fn fold(&self) -> Recovered {
        let mut fold = Fold::default();
        let start = self.log.folded().log_start;
        for batch in self.batches.iter().filter(|batch| batch.header().base_offset() >= start) {
            fold.push(batch).expect("our own operations");
        }
        fold.finish()
    }

    /// The metadata up to `applied`, made anew from the disk.
    pub(crate) fn rebuilt(&self, applied: Index) -> Image {
        let recovered = self.fold();
        let mut image = Image::default();
        let records = payload::records_in(&recovered.snapshot.data).expect("our own records");
        records.iter().for_each(|record| image.apply(record));
        let from = recovered.snapshot.position.index;
        let entries = recovered.log.entries();
        for entry in entries.filter(|entry| entry.index > from && entry.index <= applied) {
            if let Payload::Data(data) = &entry.payload {
                let records = payload::records_in(data).expect("our own records");
                records.iter().for_each(|record| image.apply(record));
            }
        }
        image
    }
}

pub(crate) struct Seats {
    pub(crate) time: Duration,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) messages: Vec<(NodeId, Message)>,
    pub(crate) limits: Limits,
    pub(crate) quorum_limits: QuorumLimits,
    founders: BTreeSet<NodeId>,
    seed: u64,
}

impl Seats {
    pub(crate) fn new(seed: u64) -> Self {
        let quorum_limits = QuorumLimits { entries_kept: 2, ..QuorumLimits::default() };
        Self {
            time: Duration::ZERO,
            nodes: BTreeMap::new(),
            messages: Vec::new(),
            limits: Limits::default(),
            quorum_limits,
            founders: BTreeSet::new(),
            seed,
        }
    }

    /// Nodes that have just been formatted; the first `voters` of them found the cluster.
    pub(crate) fn format(&mut self, voters: i32, others: i32) {
        self.founders = (1..=voters).map(NodeId).collect();
        for id in 1..=voters + others {
            let directory = DirectoryId([u8::try_from(id).expect("few"); 16]);
            let node = Node {
                shard: None,
                member: Member { node: NodeId(id), directory },
                log: Log::default(),
                batches: Vec::new(),
                in_flight: VecDeque::new(),
                started: Duration::ZERO,
                lives: 0,
            };
            self.nodes.insert(NodeId(id), node);
        }
    }

    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    pub(crate) fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("such a node")
    }

    pub(crate) fn start(&mut self, id: NodeId) -> Vec<Effect> {
        let (founders, time, seed) = (self.founders.clone(), self.time, self.seed);
        let (limits, quorum_limits) = (self.limits.clone(), self.quorum_limits.clone());
        let node = self.node(id);
        let log = node.log.recover();
        let recovered = node.fold();
        recovered.check();
        node.log = Log::new(log.clone());
        node.in_flight.clear();
        node.lives += 1;
        node.started = time;
        let own = u64::try_from(id.0).expect("not negative") * 1000 + node.lives;
        node.shard = Some(Shard::new(id, limits, seed ^ (own << 32)));
        let setup = Setup { me: node.member, founders };
        let segment_bytes_max = 2000;
        let limits = quorum_limits;
        let open = OpenSeat { setup, log, recovered, limits, segment_bytes_max };
        self.step(id, Input::OpenSeat(Box::new(open)))
    }

    /// The power fails; `landed` writes were done without anybody having heard so.
    pub(crate) fn crash(&mut self, id: NodeId, landed: usize) {
        let node = self.node(id);
        let landed = landed.min(node.log.in_flight());
        node.finish(landed);
        node.shard = None;
    }

    /// The disk of a node that is down is lost; what it has next is another one.
    pub(crate) fn wipe(&mut self, id: NodeId) {
        let node = self.node(id);
        assert!(node.shard.is_none(), "it is down");
        node.member.directory.0[0] = node.member.directory.0[0].wrapping_add(100);
        node.log = Log::default();
        node.batches.clear();
        node.in_flight.clear();
    }

    pub(crate) fn now(&self, id: NodeId) -> Now {
        let since = self.time.checked_sub(self.nodes[&id].started).expect("it has started");
        let wall = i64::try_from(self.time.as_millis()).expect("short");
        Now { monotonic: Instant::since_start(since), wall: Timestamp(wall) }
    }

    /// What came of it; messages and writes are on their way already.
    pub(crate) fn step(&mut self, id: NodeId, input: Input) -> Vec<Effect> {
        let (now, known) = (self.now(id), self.ids());
        let node = self.nodes.get_mut(&id).expect("such a node");
        let Some(shard) = &mut node.shard else { return Vec::new() };
        let mut effects = Vec::new();
        shard.step(now, input, &mut effects);
        shard.check();
        for effect in &effects {
            match effect {
                Effect::Write { partition, write, op, .. } => {
                    assert_eq!(*partition, PartitionId::METADATA);
                    node.in_flight.push_back(op.clone());
                    node.log.write(*write, op.clone());
                }
                // The metadata may name nodes that this stage does not have.
                Effect::SendQuorum { to, .. } if !known.contains(to) => {}
                Effect::SendQuorum { to, message } => self.messages.push((*to, message.clone())),
                _ => {}
            }
        }
        effects
    }

    /// The message at `place` arrives, if its receiver is up.
    pub(crate) fn deliver(&mut self, place: usize) -> (NodeId, Vec<Effect>) {
        let (to, message) = self.messages.remove(place);
        // As the network would: through bytes.
        let message = Message::from_bytes(&message.to_bytes()).expect("a message of ours");
        (to, self.step(to, Input::Quorum(QuorumInput::Received(message))))
    }

    /// The first `count` writes in flight are done.
    pub(crate) fn complete(&mut self, id: NodeId, count: usize) -> Vec<Effect> {
        let node = self.node(id);
        let count = count.min(node.log.in_flight());
        let Some(through) = node.finish(count) else { return Vec::new() };
        self.tell_log(id, LogInput::Written { through })
    }

    pub(crate) fn tell_log(&mut self, id: NodeId, input: LogInput) -> Vec<Effect> {
        self.step(id, Input::Partition { partition: PartitionId::METADATA, input })
    }

    /// The next deadline and whose it is, in the time of all.
    pub(crate) fn deadline(&self) -> Option<(Duration, NodeId)> {
        let nodes = self.nodes.iter().filter_map(|(id, node)| {
            let deadline = node.shard.as_ref()?.deadline()?.as_duration();
            Some(((node.started + deadline).max(self.time), *id))
        });
        nodes.min()
    }

    /// Ticks whoever is first to want it before `until`; `None` once that time has come.
    pub(crate) fn tick(&mut self, until: Duration) -> Option<(NodeId, Vec<Effect>)> {
        let Some((at, id)) = self.deadline().filter(|(at, _)| *at <= until) else {
            self.time = until;
            return None;
        };
        self.time = at;
        let effects = self.step(id, Input::Tick);
        let after = self.nodes[&id].shard.as_ref().and_then(Machine::deadline);
        assert!(after.is_none_or(|after| after > self.now(id).monotonic), "the driver would spin");
        Some((id, effects))
    }
}

impl Node {
    fn finish(&mut self, count: usize) -> Option<WriteId> {
        for op in self.in_flight.drain(..count) {
            if let LogOp::Append { batch, .. } = op {
                self.batches.push(batch);
            }
        }
        self.log.complete(count)
    }
}
