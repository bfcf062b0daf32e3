//! What a peer may send, and what becomes of those who send something else.

use quorate_core::codec;
use quorate_core::id::NodeId;
use quorate_core::quorum::interface::{Body, DirectoryId, Member, Message, Term};
use quorate_net::peer::Channel;
use quorate_net::peer::frame;
use quorate_net::peer::hello::{Hello, Me};
use quorate_node::node::RunningNode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::trio::{Place, config, free_ports, soon};

const GREETING: u8 = 1;
const QUORUM: u8 = 2;
const REPLICAS: u8 = 3;
const REQUEST: u8 = 4;
const REPLY: u8 = 5;

/// A connection that greets as node 9.
async fn greeted(port: u16, channel: Channel) -> TcpStream {
    let me =
        Me { cluster: None, node: NodeId(9), directory: [9; 16], start: 1, address: String::new() };
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let hello = Hello::new(&me, NodeId(1), channel).encode();
    stream.write_all(&frame::to_chunks(GREETING, &hello, &[]).concat()).await.unwrap();
    let length = stream.read_i32().await.unwrap();
    let mut answer = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut answer).await.unwrap();
    stream
}

fn in_the_name_of(node: i32) -> Vec<u8> {
    let from = Member { node: NodeId(node), directory: DirectoryId([9; 16]) };
    let body = Body::VoteReply { granted: true };
    Message { cluster: None, from, to: None, term: Term(1), body }.to_bytes()
}

/// Whether the node still takes connections and answers.
async fn is_well(node: &RunningNode) {
    let told = soon(crate::trio::client(node).cluster()).await.unwrap();
    assert_eq!(told.brokers.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_sends_what_no_node_sends_is_cut_off() {
    let [kafka, peer] = free_ports();
    let mut place = Place::new(config(1, kafka, peer, &format!("1@127.0.0.1:{peer}")));
    let node = soon(place.start()).await.unwrap();
    let nothing: Vec<u8> = Vec::new();
    let cases: [(Channel, u8, Vec<u8>); 9] = [
        (Channel::Control, 77, nothing.clone()),
        (Channel::Control, GREETING, nothing.clone()),
        (Channel::Control, QUORUM, vec![1, 255, 255]),
        (Channel::Control, QUORUM, in_the_name_of(2)),
        (Channel::Data, QUORUM, in_the_name_of(9)),
        (Channel::Control, REPLICAS, codec::encode(1, &Vec::<u8>::new())),
        (Channel::Data, REPLICAS, vec![2]),
        (Channel::Control, REQUEST, codec::encode(1, &7_u64)),
        (Channel::Control, REPLY, nothing),
    ];
    for (channel, kind, head) in cases {
        let mut stream = greeted(peer, channel).await;
        stream.write_all(&frame::to_chunks(kind, &head, &[]).concat()).await.unwrap();
        let end = soon(stream.read(&mut [0])).await;
        assert!(matches!(end, Ok(0) | Err(_)), "{channel:?} {kind}: {end:?}");
    }
    // Lengths that lie.
    for bytes in [[0xff, 0xff, 0xff, 0xff], [0x7f, 0xff, 0xff, 0xff]] {
        let mut stream = greeted(peer, Channel::Data).await;
        stream.write_all(&bytes).await.unwrap();
        let end = soon(stream.read(&mut [0])).await;
        assert!(matches!(end, Ok(0) | Err(_)), "{bytes:?}: {end:?}");
    }
    is_well(&node).await;
    // What a node does send is taken.
    let mut stream = greeted(peer, Channel::Control).await;
    for kind in [frame::PULSE, QUORUM] {
        let head = if kind == QUORUM { in_the_name_of(9) } else { Vec::new() };
        stream.write_all(&frame::to_chunks(kind, &head, &[]).concat()).await.unwrap();
    }
    is_well(&node).await;
    assert!(
        stream
            .try_read(&mut [0])
            .is_err_and(|error| { error.kind() == std::io::ErrorKind::WouldBlock })
    );
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_connections_are_bounded() {
    let [kafka, peer] = free_ports();
    let mut place = Place::new(config(1, kafka, peer, &format!("1@127.0.0.1:{peer}")));
    place.config.set("peer.connections_max", "4").unwrap();
    let node = soon(place.start()).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(greeted(peer, Channel::Data).await);
    }
    let mut more = TcpStream::connect(("127.0.0.1", peer)).await.unwrap();
    assert!(matches!(soon(more.read(&mut [0])).await, Ok(0) | Err(_)), "a fifth");
    is_well(&node).await;
}
