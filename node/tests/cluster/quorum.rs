//! Who votes on the metadata: asked of any node, changed at any node, and given back to a node that
//! lost its disk. And how a node stops that has no quorum.

use std::time::Duration;

use quorate_net::client::NewTopic;
use quorate_net::clock::Clock;
use quorate_net::connection::Frames;
use quorate_net::kafka::header::RequestHeader;
use quorate_net::kafka::messages::alter_partition_reassignments::{
    ReassignablePartition, ReassignableTopic,
};
use quorate_net::kafka::messages::describe_quorum::{PartitionData, asked};
use quorate_net::kafka::messages::{
    AddRaftVoterRequest, AlterPartitionReassignmentsRequest, DescribeQuorumRequest,
    RemoveRaftVoterRequest,
};
use quorate_net::kafka::{Request, Response};
use quorate_net::wire::{Reader, Writer};
use quorate_node::clock::OsClock;
use quorate_node::node::RunningNode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::trio::{Place, client, config, free_ports, places, soon, start};

/// What this very node answers; a client of ours would go to the one that leads.
pub(crate) async fn ask(node: &RunningNode, version: i16, request: impl Into<Request>) -> Response {
    let request = request.into();
    let key = request.key();
    let header = RequestHeader { key, version, correlation_id: 7, client_id: None };
    let mut writer = Writer::framed();
    header.encode(&mut writer);
    request.encode(&mut writer, version);
    let bytes = writer.finish().expect("requests are short").concat();
    let mut stream = TcpStream::connect(node.address()).await.expect("it listens");
    stream.write_all(&bytes).await.expect("the node reads");
    let mut frames = Frames::new(16 << 20);
    loop {
        if let Some(frame) = frames.next_frame().expect("answers have a length") {
            let mut reader = Reader::new(&frame);
            assert_eq!(reader.i32(), Ok(7));
            if key.response_header_is_flexible(version) {
                assert_eq!(reader.i8(), Ok(0));
            }
            return Response::decode(key, &mut reader, version).expect("a good answer");
        }
        let room = frames.room().expect("answers have a length");
        assert_ne!(stream.read_buf(room).await.expect("the node answers"), 0, "closed");
    }
}

async fn describe(node: &RunningNode) -> PartitionData {
    let request = DescribeQuorumRequest {
        topics: vec![asked::TopicData {
            topic_name: "__cluster_metadata".into(),
            partitions: vec![asked::PartitionData { partition_index: 0 }],
        }],
    };
    match soon(ask(node, 2, request)).await {
        Response::DescribeQuorum(mut told) => {
            assert_eq!(told.error_code, 0, "{told:?}");
            told.topics.remove(0).partitions.remove(0)
        }
        other => panic!("{other:?}"),
    }
}

/// What node `of` tells of the quorum, once `holds` is true of it.
async fn until_quorum(of: &RunningNode, holds: impl Fn(&PartitionData) -> bool) -> PartitionData {
    soon(async {
        loop {
            let told = describe(of).await;
            if holds(&told) {
                return told;
            }
            OsClock::new().sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

fn directory(told: &PartitionData, node: i32) -> [u8; 16] {
    let found = told.current_voters.iter().find(|voter| voter.replica_id == node);
    found.expect("it votes").replica_directory_id
}

/// All three vote, are there, and have everything.
fn is_whole(told: &PartitionData) -> bool {
    let voters = &told.current_voters;
    let has_all = voters
        .iter()
        .all(|voter| voter.last_fetch_timestamp > 0 && voter.log_end_offset >= told.high_watermark);
    voters.iter().map(|voter| voter.replica_id).eq(1..=3) && told.leader_id > 0 && has_all
}

/// Changes the voters at this very node; the code and the sentence of its answer.
async fn change(at: &RunningNode, adds: bool, node: i32, directory: [u8; 16]) -> (i16, String) {
    let (voter_id, voter_directory_id) = (node, directory);
    let answer = if adds {
        let request = AddRaftVoterRequest {
            timeout_ms: 10_000,
            voter_id,
            voter_directory_id,
            ..AddRaftVoterRequest::default()
        };
        soon(ask(at, 0, request)).await
    } else {
        let request = RemoveRaftVoterRequest { cluster_id: None, voter_id, voter_directory_id };
        soon(ask(at, 0, request)).await
    };
    let (code, why) = match answer {
        Response::AddRaftVoter(told) => (told.error_code, told.error_message),
        Response::RemoveRaftVoter(told) => (told.error_code, told.error_message),
        other => panic!("{other:?}"),
    };
    (code, why.map(|why| why.to_string()).unwrap_or_default())
}

/// The node with an empty disk, once it is there.
async fn replaced(place: &mut Place) -> RunningNode {
    place.wipe();
    let node = soon(place.start()).await.expect("it is let in");
    soon(node.unfenced()).await;
    node
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voters_are_told_and_changed_wherever_it_is_asked() {
    let mut places = places();
    let nodes = start(&mut places).await;
    for node in &nodes {
        until_quorum(node, is_whole).await;
    }
    let told = until_quorum(&nodes[0], is_whole).await;
    let at = nodes.iter().find(|node| node.id().0 != told.leader_id).expect("a follower");
    let node = at.id().0;
    let its = directory(&told, node);
    assert_eq!(change(at, false, node, its).await, (0, String::new()));
    until_quorum(at, |told| told.current_voters.len() == 2 && told.observers.len() == 1).await;
    let (code, why) = change(at, false, node, its).await;
    assert!(code != 0 && why == "it does not vote", "{code} {why}");
    assert_eq!(change(at, true, node, its).await, (0, String::new()));
    until_quorum(at, is_whole).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_moved_wherever_it_is_asked() {
    let mut places = places();
    let nodes = start(&mut places).await;
    let leader = until_quorum(&nodes[0], is_whole).await.leader_id;
    let topic = NewTopic {
        name: "moved".to_owned(),
        partitions: Some(1),
        replication_factor: Some(2),
        configs: Vec::new(),
    };
    soon(client(&nodes[0]).create_topic(&topic)).await.expect("a topic");
    for at in nodes.iter().filter(|node| node.id().0 != leader) {
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: 10_000,
            allow_replication_factor_change: true,
            topics: vec![ReassignableTopic {
                name: "moved".into(),
                partitions: vec![ReassignablePartition {
                    partition_index: 0,
                    replicas: Some(vec![leader, at.id().0]),
                }],
            }],
        };
        match soon(ask(at, 0, request)).await {
            Response::AlterPartitionReassignments(told) => {
                assert_eq!((told.error_code, told.responses[0].partitions[0].error_code), (0, 0));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disks_are_lost_one_after_the_other() {
    let mut places = places();
    let mut nodes: Vec<Option<RunningNode>> =
        start(&mut places).await.into_iter().map(Some).collect();
    for lost in [1, 2] {
        let other = nodes[0].as_ref().expect("it runs");
        let id = i32::try_from(lost).unwrap() + 1;
        let before = directory(&until_quorum(other, is_whole).await, id);
        nodes[lost] = None;
        let node = replaced(&mut places[lost]).await;
        until_quorum(&node, |told| is_whole(told) && directory(told, id) != before).await;
        nodes[lost] = Some(node);
    }
    // Both that vote by new disks decide without the third.
    nodes[0] = None;
    let last = nodes[1].as_ref().expect("it runs");
    until_quorum(last, |told| told.leader_id > 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_is_not_given_back_unasked_if_that_is_not_wanted() {
    let mut places = places();
    for place in &mut places {
        place.config.set("quorum.restore_votes", "false").unwrap();
    }
    let mut nodes = start(&mut places).await;
    let before = directory(&until_quorum(&nodes[0], is_whole).await, 3);
    drop(nodes.pop());
    let third = replaced(&mut places[2]).await;
    // It follows, and has had the time of many ticks.
    let told = until_quorum(&third, |told| {
        told.observers.iter().any(|observer| observer.log_end_offset >= told.high_watermark)
    })
    .await;
    OsClock::new().sleep(Duration::from_secs(1)).await;
    let later = until_quorum(&third, |_| true).await;
    assert_eq!((directory(&told, 3), directory(&later, 3)), (before, before));
}

/// The file of a new node names the founder only, which votes no more, and nobody knows of the new
/// node: it is told who leads, and where that listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_nobodys_file_names_is_found() {
    let ports: [u16; 6] = free_ports();
    let founder = format!("1@127.0.0.1:{}", ports[3]);
    let mut places: [Place; 3] = std::array::from_fn(|index| {
        let id = i32::try_from(index).unwrap() + 1;
        Place::new(config(id, ports[index], ports[index + 3], &founder))
    });
    let nodes = start(&mut places[..2]).await;
    let told = until_quorum(&nodes[0], |told| !told.observers.is_empty()).await;
    let second = told.observers[0].replica_directory_id;
    let founder = directory(&told, 1);
    assert_eq!(change(&nodes[0], true, 2, second).await, (0, String::new()));
    until_quorum(&nodes[1], |told| told.current_voters.len() == 2).await;
    assert_eq!(change(&nodes[1], false, 1, founder).await, (0, String::new()));
    until_quorum(&nodes[0], |told| told.leader_id == 2 && told.current_voters.len() == 1).await;
    let third = soon(places[2].start()).await.expect("it is taken in");
    soon(third.unfenced()).await;
    assert_eq!(until_quorum(&third, |_| true).await.leader_id, 2);
}

/// Within `node.stop_timeout`, which is 5 s here, and not after all of it: nobody is there who
/// could take anything over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_quorum_stops_in_good_order() {
    let mut places = places();
    let mut nodes = start(&mut places).await;
    nodes.truncate(1);
    let last = nodes.pop().expect("the first");
    let clock = OsClock::new();
    let began = clock.now().monotonic;
    last.shutdown().await.expect("it stops in good order");
    let took = clock.now().monotonic.saturating_since(began);
    assert!(took < Duration::from_secs(5), "{took:?}");
}
