//! Placement against a slow twin's measure: copies stand in as many racks as there are, on as many
//! nodes, and every node has as much to do as another, within one. And what a large cluster costs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::batch::Batch;
use quorate_core::controller::Controller;
use quorate_core::controller::interface::{
    Effect, Heartbeat, Input, Limits, NewTopic, RegisterNode,
};
use quorate_core::id::{LeaderEpoch, NodeEpoch, NodeId, RequestId};
use quorate_core::machine::Machine;
use quorate_core::own_log::{self, Input as Log};
use quorate_core::time::{Instant, Now, Timestamp};

struct Cluster {
    controller: Controller,
    now: Duration,
    requests: u64,
}

impl Cluster {
    /// Nodes from 1 on, each in the rack given; all serve.
    fn new(racks: &[usize], limits: Limits) -> Self {
        let mut cluster =
            Self { controller: Controller::new(limits, 1), now: Duration::ZERO, requests: 0 };
        cluster.step(Input::Log(Log::Elected { leader_epoch: LeaderEpoch(0) }));
        cluster.step(Input::Log(Log::ReplayEnded));
        for (node, rack) in (1..).map(NodeId).zip(racks) {
            let request = cluster.request();
            cluster.step(Input::RegisterNode(RegisterNode {
                request,
                node,
                cluster: "abc".to_owned(),
                rack: Some(rack.to_string()),
                ..RegisterNode::default()
            }));
            cluster.beat(node);
        }
        cluster
    }

    fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    fn beat(&mut self, node: NodeId) {
        let request = self.request();
        let image = self.controller.image();
        let node_epoch = image.node(node).map_or(NodeEpoch(0), |node| node.epoch);
        let applied = image.next_node_epoch();
        let heartbeat = Heartbeat { request, node, node_epoch, applied, ..Heartbeat::default() };
        self.step(Input::Heartbeat(heartbeat));
    }

    /// The log takes all at once; the batches that it took.
    fn step(&mut self, input: Input) -> Vec<Batch> {
        let now = Now { monotonic: Instant::since_start(self.now), wall: Timestamp(0) };
        let mut effects = Vec::new();
        let mut taken = Vec::new();
        self.controller.step(now, input, &mut effects);
        let appended = |effect| match effect {
            Effect::Log(own_log::Effect::Append { append, batch }) => Some((append, batch)),
            _ => None,
        };
        while let Some((append, batch)) =
            std::mem::take(&mut effects).into_iter().find_map(appended)
        {
            taken.push(batch);
            self.controller.step(now, Input::Log(Log::Appended { append }), &mut effects);
        }
        taken
    }

    fn create(&mut self, name: &str, partitions: i32, replication: i16) -> Vec<Vec<NodeId>> {
        let topic = NewTopic {
            name: name.to_owned(),
            partitions: Some(partitions),
            replication: Some(replication),
            ..NewTopic::default()
        };
        let request = self.request();
        self.step(Input::CreateTopics { request, topics: vec![topic], validate_only: false });
        let topic = self.controller.image().topic_named(name).expect("it was created");
        topic.partitions.iter().map(|partition| partition.replicas.clone()).collect()
    }
}

fn spread(counts: impl Iterator<Item = usize> + Clone) -> usize {
    counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0)
}

/// What every placement keeps to, however unlike the racks are.
fn check_spread(racks: &[usize], placed: &[Vec<NodeId>]) {
    let rack = |node: &NodeId| racks[usize::try_from(node.0).expect("small") - 1];
    let all = racks.iter().collect::<BTreeSet<_>>().len();
    for replicas in placed {
        let nodes = replicas.iter().collect::<BTreeSet<_>>();
        assert_eq!(nodes.len(), replicas.len(), "each copy on another node: {replicas:?}");
        let mut copies = BTreeMap::<usize, usize>::new();
        replicas.iter().for_each(|node| *copies.entry(rack(node)).or_default() += 1);
        assert_eq!(copies.len(), all.min(replicas.len()), "racks first: {racks:?} {replicas:?}");
        // A rack has one copy more than another only if the other has no node left.
        for (&rack, &count) in &copies {
            for other in racks.iter().copied().collect::<BTreeSet<_>>() {
                let there = copies.get(&other).copied().unwrap_or(0);
                let room = racks.iter().filter(|rack| **rack == other).count() > there;
                assert!(count <= there + 1 || !room, "{rack} and {other}: {replicas:?}");
            }
        }
    }
}

fn loads(racks: &[usize], placed: &[Vec<NodeId>]) -> (Vec<usize>, Vec<usize>) {
    let nodes = (1..).map(NodeId).take(racks.len());
    let count = |of: &dyn Fn(&Vec<NodeId>, NodeId) -> bool| {
        nodes.clone().map(|node| placed.iter().filter(|at| of(at, node)).count()).collect()
    };
    (count(&|at, node| at.contains(&node)), count(&|at, node| at[0] == node))
}

#[test]
fn copies_stand_in_many_racks_and_nobody_has_more_to_do() {
    for racks in [
        vec![0],
        vec![0, 0, 0],
        vec![0, 0, 0, 0, 0],
        vec![0, 1, 2],
        vec![0, 0, 1, 1, 2, 2],
        vec![0, 1, 2, 0, 1, 2, 0, 1, 2],
        vec![0, 0, 0, 1, 1, 2],
        vec![0, 0, 0, 0, 1],
    ] {
        let each = (0..3).map(|rack| racks.iter().filter(|other| **other == rack).count());
        let even = spread(each.filter(|count| *count > 0).collect::<Vec<_>>().into_iter()) == 0;
        for replication in 1..=racks.len().min(5) {
            for partitions in [1, 2, 3, 5, 7, 12, 30] {
                let replication = i16::try_from(replication).expect("small");
                let mut cluster = Cluster::new(&racks, Limits::default());
                let placed = cluster.create("a", partitions, replication);
                check_spread(&racks, &placed);
                let (replicas, leads) = loads(&racks, &placed);
                let what =
                    format!("{racks:?} x{replication} p{partitions}: {replicas:?} {leads:?}");
                if even {
                    assert!(spread(replicas.iter().copied()) <= 1, "{what}");
                    assert!(spread(leads.iter().copied()) <= 1, "{what}");
                }
            }
        }
    }
}

#[test]
fn many_small_topics_are_as_even_as_one_large() {
    let racks = [0, 1, 2, 0, 1, 2];
    let mut cluster = Cluster::new(&racks, Limits::default());
    let mut placed = Vec::new();
    for topic in 0..31 {
        placed.extend(cluster.create(&format!("t{topic}"), 1, 3));
    }
    check_spread(&racks, &placed);
    let (replicas, leads) = loads(&racks, &placed);
    assert!(spread(replicas.iter().copied()) <= 1, "{replicas:?}");
    assert!(spread(leads.iter().copied()) <= 1, "{leads:?}");
}

/// Prints what a failure costs the controller of 10,000 partitions: `--nocapture`, `--release`.
#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "it measures")]
#[test]
fn a_node_of_three_is_fenced_in_one_append() {
    let mut cluster = Cluster::new(&[0, 1, 2], Limits::cluster());
    for topic in 0..10 {
        cluster.create(&format!("t{topic}"), 1000, 3);
    }
    cluster.now += Duration::from_secs(1);
    cluster.beat(NodeId(1));
    cluster.beat(NodeId(2));
    cluster.now += Duration::from_secs(1);
    let mut bare = cluster.controller.clone();
    let start = std::time::Instant::now();
    let mut effects = Vec::new();
    let now = Now { monotonic: Instant::since_start(cluster.now), wall: Timestamp(0) };
    bare.step(now, Input::Tick, &mut effects);
    let step = start.elapsed();
    let taken = cluster.step(Input::Tick);
    assert_eq!(taken.len(), 1, "nobody sees the half of it");
    let bytes = taken[0].chunks().iter().map(bytes::Bytes::len).sum::<usize>();
    println!("fencing 1 of 3 nodes, 10,000 partitions: {step:?}, {bytes} bytes of records");
    let image = cluster.controller.image();
    assert!(image.partitions().all(|(_, partition)| partition.leader != Some(NodeId(3))));
    assert!(bytes < 1 << 20, "{bytes} bytes");
}
