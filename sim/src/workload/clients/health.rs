//! What a cluster says of itself: who leads a partition, and whether every copy is in sync.

use std::io;
use std::time::Duration;

use quorate_net::kafka::messages::MetadataRequest;
use quorate_net::kafka::messages::MetadataResponse;

use super::super::client::{Link, within};
use super::super::writer::partitions;
use super::{Scene, topic_name};
use crate::history::Partition;

/// How often the cluster is asked.
const LOOK: Duration = Duration::from_millis(100);

async fn metadata(scene: &Scene, link: &mut Link) -> io::Result<MetadataResponse> {
    let request = MetadataRequest { topics: None, ..Default::default() };
    within(&*scene.clock, scene.timeout(), link.call(7, &request)).await
}

/// Waits, once the run is healed, until every partition has a leader and all copies in sync; says
/// which has not.
pub async fn becomes_whole(scene: &Scene, client: u32) {
    loop {
        scene.clock.sleep(LOOK).await;
        if !scene.stage.is_healed() {
            continue;
        }
        let Some(mut link) = scene.connect(client).await else { continue };
        match metadata(scene, &mut link).await {
            Err(error) => scene.stage.note(client, format!("gets no metadata: {error}")),
            Ok(found) => match missing(scene, &found) {
                Some(missing) => scene.stage.note(client, missing),
                None => break,
            },
        }
    }
    scene.stage.done(client);
}

/// The first partition that is not whole, and why.
fn missing(scene: &Scene, found: &MetadataResponse) -> Option<String> {
    let copies = scene.plan.cluster.replication as usize;
    for partition in partitions(&scene.plan) {
        let Some((leader, in_sync)) = state_of(found, partition) else {
            return Some(format!("hears nothing of {partition}"));
        };
        if leader < 0 {
            return Some(format!("{partition} has no leader: in-sync {in_sync:?}"));
        }
        if in_sync.len() < copies {
            return Some(format!("{partition} led by {leader} has in-sync {in_sync:?}"));
        }
    }
    None
}

fn state_of(found: &MetadataResponse, partition: Partition) -> Option<(i32, Vec<i32>)> {
    let name = topic_name(partition);
    let mut topics = found.topics.iter();
    let topic = topics.find(|topic| topic.name.as_ref() == Some(&name))?;
    let index = partition.index as i32;
    let state = topic.partitions.iter().find(|state| state.partition_index == index)?;
    Some((state.leader_id, state.isr_nodes.clone()))
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
    let (leader, _) = state_of(&found, partition)?;
    let Some(broker) = found.brokers.iter().find(|broker| broker.node_id == leader) else {
        scene.stage.note(client, format!("{partition} has no leader"));
        return None;
    };
    scene.connect_to(client, &format!("{}:{}", broker.host.as_str(), broker.port)).await
}
