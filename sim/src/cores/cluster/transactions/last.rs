//! The last reading of what transactions wrote, once nobody begins one any more and nothing is
//! open.

use quorate_core::partition::interface::Isolation;

use super::actor::{AGAIN, Actor};
use super::{Ask, Reply, all_places, filter, group_offsets};
use crate::history::transactions::{Last, Place, Topic};

/// Of one fetch, about.
const READ_BYTES: usize = 64 << 10;

/// Reads every place to its end, and up to where the copying group has come.
pub(super) async fn read(mut actor: Actor) {
    let places: Vec<Place> = all_places(&actor.spec).collect();
    for place in places {
        let last = loop {
            if let Some(last) = read_place(&mut actor, place).await {
                break last;
            }
            actor.forget();
            actor.pause(AGAIN).await;
        };
        actor.at().with_history(|history| history.transactions.last.insert(place, last));
    }
    if actor.spec.copiers == 0 {
        return;
    }
    let offsets = loop {
        if let Some(offsets) = group_offsets(&mut actor).await {
            break offsets;
        }
        actor.forget();
        actor.pause(AGAIN).await;
    };
    actor.at().with_history(|history| {
        for (place, last) in &mut history.transactions.last {
            if place.topic == Topic::Input {
                last.group = Some(offsets.get(place).copied().unwrap_or(0));
            }
        }
    });
}

/// `None`: somebody else leads, or something is open.
async fn read_place(actor: &mut Actor, place: Place) -> Option<Last> {
    let mut last = Last::default();
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let mut from = 0;
        loop {
            let n = actor.leader(place).await?;
            let ask = Ask::Read { place, from, isolation, bytes_max: READ_BYTES };
            let Reply::Read(read) = actor.ask(n, ask).await? else {
                return None;
            };
            if read.stable < read.end {
                return None;
            }
            if isolation == Isolation::ReadCommitted {
                last.committed.extend(filter::committed(&read, from));
            } else {
                last.batches.extend(read.batches.iter().filter_map(filter::stamp));
                last.stored.extend(filter::stored(&read, from));
            }
            if read.next > from {
                from = read.next;
            } else if from < read.end {
                return None;
            } else {
                break;
            }
        }
    }
    Some(last)
}
