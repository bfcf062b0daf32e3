//! How a cluster begins, who belongs to it, and who is not let in.

use std::time::Duration;

use quorate_net::clock::Clock;
use quorate_net::peer::link::State;
use quorate_node::clock::OsClock;
use quorate_node::node::NodeError;

use crate::trio::{Place, config, free_ports, places, soon, start, until_told};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_found_a_cluster_from_their_files_alone() {
    let mut places = places();
    let nodes = start(&mut places).await;
    let cluster = nodes[0].cluster().to_owned();
    for node in &nodes {
        assert_eq!(node.cluster(), cluster);
        assert_eq!(node.links().len(), 2);
        let told = until_told(node, |told| told.brokers.len() == 3).await;
        let mut addresses: Vec<String> =
            told.brokers.values().map(|broker| broker.address.clone()).collect();
        addresses.sort();
        let mut expected: Vec<String> =
            nodes.iter().map(|node| node.address().to_string()).collect();
        expected.sort();
        assert_eq!(addresses, expected);
    }
    for node in nodes {
        node.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_comes_back_to_its_cluster_and_a_late_one_joins() {
    let mut places = places();
    let mut nodes = start(&mut places).await;
    let cluster = nodes[0].cluster().to_owned();
    // A kill, and a start at the same place.
    drop(nodes.remove(0));
    let again = soon(places[0].start()).await.unwrap();
    soon(again.unfenced()).await;
    assert_eq!(again.cluster(), cluster);
    // One that votes for nobody, and that nobody's file names.
    let [kafka, peer] = free_ports();
    let voters = places[0].config.values()["quorum.voters"].clone();
    let mut late = Place::new(config(4, kafka, peer, &voters));
    late.config.set("node.roles", "broker").unwrap();
    let late = soon(late.start()).await.unwrap();
    soon(late.unfenced()).await;
    assert_eq!(late.cluster(), cluster);
    until_told(&again, |told| told.brokers.len() == 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_told_why_they_are_not_let_in() {
    let mut places = places();
    let nodes = start(&mut places).await;
    let voters = places[0].config.values()["quorum.voters"].clone();
    // A second node 3, with a directory of its own.
    let [kafka, peer] = free_ports();
    let mut second = Place::new(config(3, kafka, peer, &voters));
    let second = tokio::spawn(second.start());
    // The founder of a cluster of its own, whose file then names a node of this one.
    let [kafka, peer, kafka_of_other] = free_ports();
    let mut other = Place::new(config(7, kafka, peer, &format!("7@127.0.0.1:{peer}")));
    drop(soon(other.start()).await.unwrap());
    let stranger = format!("7@127.0.0.1:{peer},{}", voters.split(',').next().unwrap());
    other.config = config(7, kafka_of_other, peer, &stranger);
    let other = soon(other.start()).await.unwrap();
    let why = soon(async {
        loop {
            let refused = nodes[0].refused();
            let of = |id: i32| refused.iter().find(|(node, _)| node.0 == id);
            if let (Some((_, second)), Some((_, other))) = (of(3), of(7)) {
                return (second.clone(), other.clone());
            }
            OsClock::new().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(why.0.contains("known by another data directory"), "{}", why.0);
    assert!(why.1.contains("belongs to cluster"), "{}", why.1);
    // It is told the same sentence.
    soon(async {
        loop {
            let links = other.links();
            if let State::Dialling { reason, .. } = &links[0].control
                && *reason == why.1
            {
                return;
            }
            OsClock::new().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(!second.is_finished(), "it waits to be let in");
    second.abort();
    drop((nodes, other));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_disk_was_replaced_is_let_in_once_the_old_one_counts_as_gone() {
    let mut places = places();
    let mut nodes = start(&mut places).await;
    drop(nodes.remove(2));
    places[2].wipe();
    let again = soon(places[2].start()).await.unwrap();
    soon(again.unfenced()).await;
    assert_eq!(again.cluster(), nodes[0].cluster());
    until_told(&nodes[0], |told| told.brokers.len() == 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_taken_is_said() {
    let mut places = places();
    let taken = std::net::TcpListener::bind(places[0].config.network.peer_listen.unwrap()).unwrap();
    match soon(places[0].start()).await {
        Err(NodeError::Listen { address, .. }) => {
            assert_eq!(address, taken.local_addr().unwrap());
        }
        other => panic!("{other:?}"),
    }
}
