//! A reader of committed records: of all places, from their beginnings or from anywhere, again and
//! again. Now and then it asks where the records of some time begin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::Offset;
use quorate_core::partition::interface::Isolation;
use quorate_core::reached;
use quorate_core::time::Timestamp;
use quorate_net::client::{Client, Consumer, ConsumerConfig, FetchOptions, OnReset, Position};

use super::super::super::values;
use super::super::library::library;
use super::{Actor, all_places};
use crate::history::transactions::{Lookup, Place, Topic, View};

const POLL: Duration = Duration::from_millis(80);
/// Polls of one life, at most.
const POLLS_MAX: u64 = 200;

/// One life.
pub(super) async fn live(actor: &mut Actor) {
    let client = library(&actor.scene, &mut actor.chance);
    let asks = client.clone();
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
        let start = if actor.chance.one_in(3) { anywhere(actor, place) } else { 0 };
        consumer.assign(&topic, place.index as i32, Position::Offset(Offset(start)));
        positions.insert(place, start);
    }
    let patient = actor.scene.stage.is_healed();
    for _ in 0..1 + actor.chance.below(POLLS_MAX) {
        if actor.is_over() || actor.scene.stage.is_healed() != patient {
            return;
        }
        if actor.chance.one_in(16) {
            look_up(actor, &asks).await;
        }
        actor.pause(actor.scene.leisure()).await;
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

/// Some offset that a reader has come to: within a transaction, or between two.
fn anywhere(actor: &mut Actor, place: Place) -> i64 {
    let furthest = {
        let history = actor.scene.history();
        let there = history.transactions.views.iter().filter(|view| view.place == place);
        there.map(|view| view.next).max().unwrap_or(0)
    };
    actor.chance.below(furthest as u64 + 1) as i64
}

/// Where do the records begin that are no older than this? Where all is decided already.
async fn look_up(actor: &mut Actor, client: &Client) {
    let places: Vec<Place> = all_places(&actor.spec).collect();
    let place = *actor.chance.pick(&places);
    let age = *actor.chance.pick(&[0, 5, 50, 500, 3000]);
    let time = Timestamp(actor.scene.now().wall.0 - age);
    let (topic, index) = (place.topic.name(), place.index as i32);
    let committed = Isolation::ReadCommitted;
    let Ok(found) = client.list_offset_once(topic, index, Position::Time(time), committed).await
    else {
        return;
    };
    let Some(found) = found.offset else { return };
    let Ok(stable) = client.list_offset_once(topic, index, Position::End, committed).await else {
        return;
    };
    reached!("a-time-is-looked-up");
    let stable = stable.offset.unwrap_or_default().0;
    let lookup = Lookup { client: actor.client, place, found: found.0, stable };
    actor.scene.history().look_up(lookup);
}
