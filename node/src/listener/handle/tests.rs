//! What is answered about a cluster of which this node sees only the image: three nodes, n3 not
//! heard of, and a topic that n1, which answers, keeps nothing of.

use std::sync::Arc;

use quorate_core::id::{LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionEpoch, TopicId};
use quorate_core::metadata::{Address, Placement, Record, Registration};
use quorate_core::partition::interface::{Isolation, ReadView};
use quorate_core::time::{Instant, Timestamp};
use quorate_net::kafka::error::Code;

use super::fetch::read::{find, nearer};
use super::fetch::{Terms, TopicKey, Wanted};
use super::{cluster, groups, metadata};
use crate::catalog::{Log, OFFSETS_TOPIC, Partition, State, Topic};

const ME: NodeId = NodeId(1);
const TOPIC: TopicId = TopicId([7; 16]);
const OFFSETS: TopicId = TopicId([8; 16]);

fn nodes(ids: &[i32]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

fn placed(leader: Option<i32>, replicas: &[i32], in_sync: &[i32]) -> Placement {
    Placement {
        leader_epoch: LeaderEpoch(4),
        partition_epoch: PartitionEpoch(9),
        leader: leader.map(NodeId),
        replicas: nodes(replicas),
        in_sync: nodes(in_sync),
        ..Placement::default()
    }
}

fn registered(id: i32) -> Record {
    Record::NodeRegistered(Registration {
        node: NodeId(id),
        epoch: NodeEpoch(i64::from(id)),
        address: Address { host: format!("host{id}"), port: 9092 },
        rack: Some(format!("rack{id}")),
        ..Registration::default()
    })
}

fn state(partitions: Vec<Placement>) -> State {
    let mut state = State::default();
    let created = |topic, name: &str, partitions| Record::TopicCreated {
        topic,
        name: name.to_owned(),
        partitions,
        configs: Vec::new(),
    };
    let offsets = vec![placed(Some(2), &[2], &[2]), placed(None, &[3], &[])];
    for record in [
        registered(1),
        registered(2),
        registered(3),
        Record::NodeFenced { node: NodeId(3), epoch: NodeEpoch(3) },
        created(TOPIC, "orders", partitions),
        created(OFFSETS, OFFSETS_TOPIC, offsets),
    ] {
        state.image.apply(&record);
    }
    for id in [TOPIC, OFFSETS] {
        let record = state.image.topic(id).expect("just created").clone();
        let partitions = record.partitions.into_iter();
        let partitions = partitions
            .map(|assignment| Partition { assignment: Arc::new(assignment), log: Log::Elsewhere });
        let configs = quorate_core::metadata::config::TopicConfigs::from_stored(&record.configs);
        state.put(Topic {
            id,
            name: record.name,
            rules: configs.batch_rules(Timestamp::NONE, 1 << 20, true),
            kept_codec: None,
            configs,
            partitions: partitions.collect(),
        });
    }
    state
}

fn terms(version: i16, rack: Option<&str>) -> Terms {
    Terms {
        version,
        isolation: Isolation::ReadUncommitted,
        bytes_min: 1,
        bytes_max: 1 << 20,
        until: Instant::ZERO,
        rack: rack.map(Into::into),
    }
}

fn wanted(index: i32, from: i64) -> Wanted {
    let topic = TopicKey { name: "orders".into(), id: TOPIC };
    Wanted { topic, index, from: Offset(from), bytes_max: 1 << 20, leader_epoch: -1 }
}

#[test]
fn metadata_name_live_nodes_and_leaders_elsewhere() {
    let placements = vec![placed(Some(2), &[2, 3], &[2]), placed(None, &[3], &[])];
    let state = state(placements);
    let live: Vec<NodeId> = cluster::live(&state).map(|node| node.id).collect();
    assert_eq!(live, nodes(&[1, 2]));
    let topic = metadata::describe(ME, &state, state.topic(TOPIC).expect("there"), false);
    let [led, leaderless] = &topic.partitions[..] else { panic!("{topic:?}") };
    assert_eq!((led.error_code, led.leader_id, led.leader_epoch), (0, 2, 4));
    assert_eq!((&led.replica_nodes[..], &led.isr_nodes[..]), (&[2, 3][..], &[2][..]));
    assert_eq!(led.offline_replicas, [3], "n3 was not heard of");
    assert_eq!(leaderless.error_code, Code::LeaderNotAvailable.code());
    assert_eq!((leaderless.leader_id, &leaderless.offline_replicas[..]), (-1, &[3][..]));
}

#[test]
fn a_leader_that_is_not_heard_of_is_none() {
    let state = state(vec![placed(Some(3), &[3], &[3])]);
    let topic = metadata::describe(ME, &state, state.topic(TOPIC).expect("there"), false);
    assert_eq!(topic.partitions[0].error_code, Code::LeaderNotAvailable.code());
    assert_eq!((topic.partitions[0].leader_id, topic.partitions[0].isr_nodes.len()), (-1, 0));
}

#[test]
fn groups_have_the_leader_of_their_partition() {
    let state = state(Vec::new());
    let offsets = state.topic(OFFSETS).expect("there");
    let found = |group: &str| groups::coordinator(&state, offsets, group).map(|node| node.id);
    // By Java's hash of the name: "b" goes to the first of two, "a" to the second.
    assert_eq!((found("b"), found("a")), (Some(NodeId(2)), None));
}

#[test]
fn who_reads_at_the_wrong_node_hears_who_leads() {
    let state = state(vec![placed(Some(2), &[2, 3], &[2])]);
    for version in [4, 12, 13, 17] {
        let refused = find(&state, ME, &terms(version, None), &wanted(0, 0)).err();
        let refused = refused.expect("nothing is here");
        assert_eq!(refused.code, Code::NotLeaderOrFollower);
        assert_eq!((refused.leader.leader_id, refused.leader.leader_epoch), (2, 4));
    }
    let absent = find(&state, ME, &terms(4, None), &wanted(1, 0)).err().expect("no partition 1");
    assert_eq!((absent.code, absent.leader.leader_id), (Code::UnknownTopicOrPartition, -1));
}

#[test]
fn readers_are_sent_to_a_replica_in_their_rack() {
    let state = state(vec![placed(Some(1), &[1, 2, 3], &[1, 2])]);
    let topic = state.topic(TOPIC).expect("there");
    let view = ReadView { is_leader: true, high_watermark: Offset(10), ..ReadView::default() };
    let sent = |rack, from, view: &ReadView| {
        nearer(&state, ME, &terms(13, rack), &wanted(0, from), topic, view)
    };
    assert_eq!(sent(Some("rack2"), 10, &view), Some(NodeId(2)));
    assert_eq!(sent(Some("rack1"), 10, &view), None, "the leader is as near");
    assert_eq!(sent(Some("rack3"), 10, &view), None, "n3 is not in sync");
    assert_eq!(sent(Some("rack9"), 10, &view), None, "nobody is there");
    assert_eq!(sent(None, 10, &view), None);
    assert_eq!(sent(Some("rack2"), 11, &view), None, "n2 may not have that yet");
    let follower = ReadView { is_leader: false, ..view };
    assert_eq!(sent(Some("rack2"), 10, &follower), None, "only a leader sends readers away");
}
