//! The last reading of what transactions wrote, once nobody begins one any more: whatever is open
//! must come to its end, so that each place is stable up to its end.

use std::time::Duration;

use quorate_core::batch::Batch;
use quorate_core::batch::control::{Ending, Marker};
use quorate_core::id::Offset;
use quorate_core::partition::interface::Isolation;
use quorate_net::client::{Client, Error, FetchOptions, PartitionName, Position};

use super::super::super::values;
use super::super::Scene;
use super::super::library::library;
use super::{GROUP, all_places};
use crate::chance::Chance;
use crate::history::transactions::{Last, Place, Stamp, Stamped, Topic};

/// How often what does not succeed is tried again.
const LOOK: Duration = Duration::from_millis(50);
/// A log whose only copy has rotted is tried so often.
const ATTEMPTS_AT_ROT: u32 = 40;

/// Reads every place to its end. It is no failure while that gets on.
pub async fn read_last(scene: Scene, client: u32, rot: bool) {
    let Some(spec) = scene.plan.transactions.clone() else { return };
    let mut chance = Chance::new(scene.plan.seed, "transactions at the end");
    let library = library(&scene, &mut chance);
    for place in all_places(&spec) {
        let mut attempts = 0;
        let last = loop {
            match read_place(&scene, client, &library, place).await {
                Ok(last) => break Some(last),
                Err(waits_for) => scene.stage.note(client, waits_for),
            }
            attempts += 1;
            if rot && attempts > ATTEMPTS_AT_ROT {
                break None;
            }
            scene.clock.sleep(LOOK).await;
        };
        scene.stage.advance();
        if let Some(last) = last {
            scene.history().transactions.last.insert(place, last);
        }
    }
    if spec.copiers > 0 {
        read_group(&scene, client, &library, rot).await;
    }
    scene.stage.done(client);
}

async fn read_place(
    scene: &Scene,
    client: u32,
    library: &Client,
    place: Place,
) -> Result<Last, String> {
    let failed = |error: Error| format!("cannot read {place}: {error}");
    let (topic, index) = (place.topic.name(), place.index as i32);
    let end = |isolation| async move {
        let listed = library.list_offset_once(topic, index, Position::End, isolation).await;
        listed.map(|listed| listed.offset.unwrap_or_default().0)
    };
    let all = end(Isolation::ReadUncommitted).await.map_err(failed)?;
    let stable = end(Isolation::ReadCommitted).await.map_err(failed)?;
    if stable < all {
        return Err(format!("sees a transaction hang in {place}: stable to {stable} of {all}"));
    }
    let mut last = Last::default();
    let batches = read(scene, client, library, place, (Isolation::ReadUncommitted, all)).await?;
    for batch in &batches {
        last.batches.extend(stamp(batch));
        if !batch.header().is_control() {
            values::records(batch, 0, &mut last.stored);
        }
    }
    let batches = read(scene, client, library, place, (Isolation::ReadCommitted, all)).await?;
    for batch in batches.iter().filter(|batch| !batch.header().is_control()) {
        values::records(batch, 0, &mut last.committed);
    }
    Ok(last)
}

async fn read(
    scene: &Scene,
    client: u32,
    library: &Client,
    place: Place,
    (isolation, end): (Isolation, i64),
) -> Result<Vec<Batch>, String> {
    let options = FetchOptions { isolation, wait_max: LOOK, ..FetchOptions::default() };
    let (topic, index) = (place.topic.name(), place.index as i32);
    let (mut next, mut batches) = (0, Vec::new());
    while next < end {
        let fetched = library.fetch(topic, index, Offset(next), &options).await;
        let fetched = fetched.map_err(|error| format!("cannot read {place}: {error}"))?;
        batches.extend(fetched.batches);
        match fetched.next {
            Some(after) => {
                next = after.0;
                scene.stage.note(client, format!("reads {place} at {next}"));
                scene.stage.advance();
            }
            None => return Err(format!("is given nothing of {place} at {next}, below {end}")),
        }
    }
    Ok(batches)
}

/// Who wrote it, and as what.
fn stamp(batch: &Batch) -> Option<Stamped> {
    let header = batch.header();
    let kind = if header.is_control() {
        let marker = Marker::of(batch)?;
        let committed = Some(marker.ending == Ending::Committed);
        Stamp::Marker { coordinator_epoch: marker.coordinator_epoch.0, committed }
    } else {
        Stamp::Records { sequence: header.base_sequence(), count: header.record_count() }
    };
    Some(Stamped {
        offset: header.base_offset().0,
        producer: header.producer_id().0,
        epoch: header.producer_epoch().0,
        kind,
    })
}

/// Up to where the copying group has committed, once nothing is pending.
async fn read_group(scene: &Scene, client: u32, library: &Client, rot: bool) {
    let mut attempts = 0;
    let offsets = loop {
        match library.stable_group_offsets(GROUP).await {
            Ok(offsets) => break offsets,
            Err(error) => {
                scene.stage.note(client, format!("gets no offsets of {GROUP}: {error}"));
            }
        }
        attempts += 1;
        if rot && attempts > ATTEMPTS_AT_ROT {
            return;
        }
        scene.clock.sleep(LOOK).await;
    };
    scene.stage.advance();
    let mut history = scene.history();
    for (place, last) in &mut history.transactions.last {
        if place.topic == Topic::Input {
            let topic = place.topic.name().to_owned();
            let name = PartitionName { topic, partition: place.index as i32 };
            last.group = Some(offsets.get(&name).map_or(0, |it| it.offset.0));
        }
    }
}
