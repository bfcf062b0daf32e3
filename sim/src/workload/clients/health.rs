//! What a cluster says of itself: who leads a partition, and whether every copy is in sync.

use std::io;
use std::pin::pin;
use std::time::Duration;

use quorate_net::kafka::messages::{
    ListPartitionReassignmentsRequest, MetadataRequest, MetadataResponse,
};

use super::super::client::{Link, within};
use super::{PATIENCE, Scene, topic_name};
use crate::history::Partition;
use crate::plan::Acks;

/// How often the cluster is asked.
const LOOK: Duration = Duration::from_millis(100);

async fn metadata(scene: &Scene, link: &mut Link) -> io::Result<MetadataResponse> {
    let request = MetadataRequest { topics: None, ..Default::default() };
    within(&*scene.clock, scene.timeout(), link.call(7, &request)).await
}

/// Waits, once the run is healed, until what operators asked for has come to its end, and every
/// partition has a leader and all copies in sync; says what has not. If that takes long, writers
/// make room until then: a copy that was away writes no faster than those that they keep busy.
pub async fn becomes_whole(scene: &Scene, client: u32) {
    let mut room_at = None;
    loop {
        scene.clock.sleep(LOOK).await;
        if !scene.stage.is_healed() {
            continue;
        }
        let now = scene.now().monotonic;
        if now >= *room_at.get_or_insert(now + PATIENCE) {
            scene.stage.make_room(true);
        }
        let Some(mut link) = scene.connect(client).await else { continue };
        match metadata(scene, &mut link).await {
            Err(error) => scene.stage.note(client, format!("gets no metadata: {error}")),
            Ok(found) => match missing(scene, &found) {
                Some(missing) => scene.stage.note(client, missing),
                None => match nothing_moves(scene, &mut link).await {
                    Ok(true) => break,
                    Ok(false) => scene.stage.note(client, "sees partitions on their way"),
                    Err(error) => scene.stage.note(client, format!("hears of no moves: {error}")),
                },
            },
        }
    }
    scene.stage.make_room(false);
    scene.stage.done(client);
}

/// Waits for what others are to show after the healing. If that takes long, writers that full disks
/// do not slow down, as they do not wait for all copies, make room until then.
pub async fn with_room(scene: &Scene, others: impl Future<Output = ()>) {
    let mut others = pin!(others);
    tokio::select! {
        biased;
        () = &mut others => return,
        () = scene.clock.sleep(PATIENCE) => {}
    }
    scene.stage.make_room(scene.plan.workload.acks != Acks::All);
    others.await;
    scene.stage.make_room(false);
}

/// The first thing that is not as it should be, and why.
fn missing(scene: &Scene, found: &MetadataResponse) -> Option<String> {
    let operators = scene.stage.operators();
    if let Some(unanswered) = operators.unanswered() {
        return Some(unanswered);
    }
    let left: Vec<i32> = operators.left().iter().map(|node| *node as i32).collect();
    drop(operators);
    let least = scene.plan.cluster.in_sync_min as usize;
    for partition in scene.partitions() {
        let Some(State { leader, replicas, in_sync }) = state_of(found, partition) else {
            return Some(format!("hears nothing of {partition}"));
        };
        if leader < 0 {
            return Some(format!("{partition} has no leader: in-sync {in_sync:?}"));
        }
        if in_sync.len() < replicas.len() || replicas.len() < least {
            return Some(format!(
                "{partition} on {replicas:?} led by {leader} has in-sync {in_sync:?}"
            ));
        }
        if let Some(node) = replicas.iter().find(|node| left.contains(node)) {
            return Some(format!("{partition} on {replicas:?} has not left node {node}"));
        }
    }
    None
}

/// Whether no partition is on its way any more.
async fn nothing_moves(scene: &Scene, link: &mut Link) -> io::Result<bool> {
    let request = ListPartitionReassignmentsRequest { topics: None, ..Default::default() };
    let response = within(&*scene.clock, scene.timeout(), link.call(0, &request)).await?;
    match response.error_code {
        0 => Ok(response.topics.iter().all(|topic| topic.partitions.is_empty())),
        code => Err(io::Error::other(format!("error {code}"))),
    }
}

/// What is said of a partition.
struct State {
    leader: i32,
    replicas: Vec<i32>,
    in_sync: Vec<i32>,
}

fn state_of(found: &MetadataResponse, partition: Partition) -> Option<State> {
    let name = topic_name(partition);
    let mut topics = found.topics.iter();
    let topic = topics.find(|topic| topic.name.as_ref() == Some(&name))?;
    let index = partition.index as i32;
    let state = topic.partitions.iter().find(|state| state.partition_index == index)?;
    Some(State {
        leader: state.leader_id,
        replicas: state.replica_nodes.clone(),
        in_sync: state.isr_nodes.clone(),
    })
}

/// A connection to the partition's leader.
pub(super) async fn connect_to_leader(
    scene: &Scene,
    client: u32,
    partition: Partition,
) -> Option<Link> {
    if scene.addresses.len() == 1 {
        return scene.connect(client).await;
    }
    let mut link = scene.connect(client).await?;
    let found = metadata(scene, &mut link).await.ok()?;
    let leader = state_of(&found, partition)?.leader;
    let Some(broker) = found.brokers.iter().find(|broker| broker.node_id == leader) else {
        scene.stage.note(client, format!("{partition} has no leader"));
        return None;
    };
    scene.connect_to(client, &format!("{}:{}", broker.host.as_str(), broker.port)).await
}
