//! A reader of committed records: of all places, from their beginnings, again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::Offset;
use quorate_core::partition::interface::Isolation;
use quorate_core::reached;
use quorate_net::client::{Consumer, ConsumerConfig, FetchOptions, OnReset, Position};

use super::super::super::values;
use super::super::library::library;
use super::{Actor, all_places};
use crate::history::transactions::{Place, Topic, View};

const POLL: Duration = Duration::from_millis(80);
/// Polls of one life, at most.
const POLLS_MAX: u64 = 200;

/// One life.
pub(super) async fn live(actor: &mut Actor) {
    let client = library(&actor.scene, &mut actor.chance);
    let fetch = FetchOptions {
        wait_max: POLL,
        partition_bytes_max: actor.scene.plan.workload.read_bytes as i32,
        isolation: Isolation::ReadCommitted,
        ..FetchOptions::default()
    };
    let (on_reset, ready_max) = (OnReset::Fail, *actor.chance.pick(&[1, 4]));
    let mut consumer = Consumer::new(client, ConsumerConfig { fetch, on_reset, ready_max });
    let mut positions = BTreeMap::new();
    for place in all_places(&actor.spec) {
        let topic = Arc::from(place.topic.name());
        consumer.assign(&topic, place.index as i32, Position::Offset(Offset::ZERO));
        positions.insert(place, 0);
    }
    let patient = actor.scene.stage.is_healed();
    for _ in 0..1 + actor.chance.below(POLLS_MAX) {
        if actor.is_over() || actor.scene.stage.is_healed() != patient {
            return;
        }
        match consumer.poll(POLL).await {
            Ok(None) => {}
            Ok(Some(read)) => {
                let topic =
                    if *read.topic == *Topic::Input.name() { Topic::Input } else { Topic::Output };
                let place = Place { topic, index: read.partition as u32 };
                let from = *positions.get(&place).unwrap_or(&read.from.0);
                let mut records = Vec::new();
                for batch in read.batches.iter().filter(|batch| !batch.header().is_control()) {
                    values::records(batch, from, &mut records);
                }
                reached!("what-is-committed-is-read");
                let next = read.next().0;
                positions.insert(place, next);
                let (client, completed) = (actor.client, actor.scene.now().monotonic);
                let view = View { client, completed, place, from, next, records };
                actor.scene.history().view(view);
            }
            Err(error) => {
                actor.note(format!("cannot poll: {error}"));
                return;
            }
        }
    }
}
