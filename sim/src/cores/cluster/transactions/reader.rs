//! A reader of committed records: of all places, from their beginnings or from anywhere, again and
//! again.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::partition::interface::Isolation;
use quorate_core::reached;

use super::actor::{AGAIN, Actor};
use super::{Ask, Reply, all_places, filter};
use crate::chance::Between;
use crate::history::transactions::{Place, View};

/// Between two fetches.
const PAUSE: Between<Duration> =
    Between { low: Duration::from_micros(500), high: Duration::from_millis(30) };
/// Fetches of one life, at most.
const FETCHES_MAX: u64 = 200;

pub(super) async fn live(mut actor: Actor) {
    let places: Vec<Place> = all_places(&actor.spec).collect();
    loop {
        let mut positions = BTreeMap::new();
        for &place in &places {
            let start = if actor.chance.one_in(3) { anywhere(&mut actor, place) } else { 0 };
            positions.insert(place, start);
        }
        for turn in 0..1 + actor.chance.below(FETCHES_MAX) {
            let place = places[turn as usize % places.len()];
            let from = positions[&place];
            match read(&mut actor, place, from).await {
                Some(next) => {
                    positions.insert(place, next);
                    let pause = actor.chance.duration(PAUSE);
                    actor.pause(pause).await;
                }
                None => {
                    actor.forget();
                    actor.pause(AGAIN).await;
                }
            }
        }
    }
}

async fn read(actor: &mut Actor, place: Place, from: i64) -> Option<i64> {
    let n = actor.leader(place).await?;
    let (isolation, bytes_max) = (Isolation::ReadCommitted, actor.read_bytes);
    let ask = Ask::Read { place, from, isolation, bytes_max };
    let Reply::Read(read) = actor.ask(n, ask).await? else { return None };
    if read.next > from {
        reached!("what-is-committed-is-read");
        let records = filter::committed(&read, from);
        let (client, completed, next) = (actor.client, actor.at().now().monotonic, read.next);
        let view = View { client, completed, place, from, next, records };
        actor.at().with_history(|history| history.view(view));
    }
    Some(read.next)
}

/// Some offset that a reader has come to: within a transaction, or between two.
fn anywhere(actor: &mut Actor, place: Place) -> i64 {
    let furthest = actor.at().with_history(|history| {
        let there = history.transactions.views.iter().filter(|view| view.place == place);
        there.map(|view| view.next).max().unwrap_or(0)
    });
    actor.chance.below(furthest as u64 + 1) as i64
}
