//! Copiers: each consumes what is committed of one topic, writes each value to the other, and
//! commits both together. They share one transactional id: each life shuts the others out, whatever
//! they are at, so that of several one copies and the rest are zombies. No member of their group
//! has a generation (KIP-447 fences such members, which the world of nodes has).

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::partition::interface::Isolation;
use quorate_core::reached;
use quorate_net::kafka::error::Code;

use super::actor::{AGAIN, Actor};
use super::speaker::{BATCH_MAX, Next, Speaker, Told};
use super::{Ask, Reply, filter, goes_on, group_offsets};
use crate::chance::Between;
use crate::history::Value;
use crate::history::transactions::{Consumed, Place, Topic};
use crate::plan::transactions::{Part, Transactions};

/// The id that all of them have.
const ID: &str = "xc";
/// Copies of one life, at most.
const COPIES_MAX: u64 = 20;
/// What is copied in one transaction, at most.
const RECORDS_MAX: usize = 20;
/// Of one fetch, about: long stretches may be aborted.
const READ_BYTES: usize = 8 << 10;
/// Between two lives, at most: the others have their turn.
const AWAY: Between<Duration> =
    Between { low: Duration::from_millis(50), high: Duration::from_millis(1500) };
/// Whoever is away from its process is so for less.
const ASLEEP: Between<Duration> =
    Between { low: Duration::ZERO, high: Duration::from_millis(2000) };

struct Copier {
    speaker: Speaker,
    /// Where it reads on.
    positions: BTreeMap<Place, i64>,
}

pub(super) async fn live(actor: Actor, place: u32) {
    let speaker = Speaker::new(actor, ID.to_owned(), Transactions::MAX + place);
    let mut copier = Copier { speaker, positions: BTreeMap::new() };
    loop {
        let actor = &mut copier.speaker.actor;
        let is_healed = actor.is_healed();
        if is_healed && !goes_on(&actor.spec, Part::Copies(place)) {
            actor.pause(AWAY.high).await;
            continue;
        }
        let away = if is_healed { AGAIN } else { actor.chance.duration(AWAY) };
        actor.pause(away).await;
        copier.live_once().await;
    }
}

impl Copier {
    async fn live_once(&mut self) {
        let healed = self.speaker.actor.is_healed();
        let Some(life) = self.speaker.begin_life().await else { return };
        // What its predecessor had begun is over by now, and counts or does not.
        let Some(positions) = self.committed_offsets().await else { return };
        self.positions = positions;
        for _ in 0..1 + self.speaker.actor.chance.below(COPIES_MAX) {
            if self.speaker.actor.is_healed() != healed {
                return;
            }
            let spec = self.speaker.actor.spec.clone();
            let index = self.speaker.actor.chance.below(spec.partitions.into());
            let place = Place { topic: Topic::Input, index: index as u32 };
            let Some((originals, next)) = self.consume(place).await else {
                self.speaker.actor.pause(AGAIN).await;
                continue;
            };
            if !healed && self.speaker.actor.chance.hit(spec.doze) {
                reached!("a-copier-stands-still");
                let asleep = self.speaker.actor.chance.duration(ASLEEP);
                self.speaker.actor.pause(asleep).await;
            }
            if self.copy(life, place, &originals, next).await == Next::Ends {
                return;
            }
            self.positions.insert(place, next);
            self.speaker.actor.rest().await;
        }
    }

    async fn committed_offsets(&mut self) -> Option<BTreeMap<Place, i64>> {
        for _ in 0..self.speaker.actor.attempts() {
            if let Some(offsets) = group_offsets(&mut self.speaker.actor).await {
                return Some(offsets);
            }
            self.speaker.actor.forget();
            self.speaker.actor.pause(AGAIN).await;
        }
        None
    }

    /// What stands next there, and behind what.
    async fn consume(&mut self, place: Place) -> Option<(Vec<Value>, i64)> {
        loop {
            let from = self.positions.get(&place).copied().unwrap_or(0);
            let n = self.speaker.actor.leader(place).await?;
            let (isolation, bytes_max) = (Isolation::ReadCommitted, READ_BYTES);
            let ask = Ask::Read { place, from, isolation, bytes_max };
            let Some(Reply::Read(read)) = self.speaker.actor.ask(n, ask).await else {
                self.speaker.actor.forget();
                return None;
            };
            let seen = filter::committed(&read, from);
            let named: Vec<(Value, i64)> =
                seen.iter().filter_map(|seen| Some((seen.value?, seen.offset))).collect();
            if !named.is_empty() {
                let next = named.get(RECORDS_MAX).map_or(read.next, |beyond| beyond.1);
                let values = named.into_iter().take(RECORDS_MAX).map(|(value, _)| value);
                return Some((values.collect(), next));
            }
            if read.next == from {
                return None;
            }
            // Markers, and what is aborted: it goes on behind those.
            self.positions.insert(place, read.next);
        }
    }

    /// Copies in one transaction. `Ends`: it was not committed, or nobody knows.
    async fn copy(&mut self, life: usize, place: Place, originals: &[Value], next: i64) -> Next {
        let speaker = &mut self.speaker;
        let transaction = speaker.begin(life);
        let spec = speaker.actor.spec.clone();
        let mut good = true;
        for some in originals.chunks(BATCH_MAX as usize) {
            let index = speaker.actor.chance.below(spec.partitions.into()) as u32;
            let values = speaker.draw_values(some.len() as u64);
            let output = Place { topic: Topic::Output, index };
            good = good && speaker.store(transaction, output, &values, Some(some)).await;
        }
        good = good && commit_offset(speaker, transaction, place, next).await;
        let healed = speaker.actor.is_healed();
        if good && !healed && speaker.actor.chance.hit(spec.abandon) {
            reached!("a-copy-is-left-open");
            return Next::Ends;
        }
        if !good || speaker.actor.chance.hit(spec.abort) {
            // What it has read it must read again.
            speaker.abort(transaction).await;
            return Next::Ends;
        }
        speaker.commit(transaction).await
    }
}

async fn commit_offset(speaker: &mut Speaker, transaction: usize, place: Place, next: i64) -> bool {
    let now = speaker.actor.at().now().monotonic;
    let consumed = Consumed { place, next, member: String::new(), generation: -1 };
    let tell = |history: &mut crate::history::History| {
        history.consume_in_transaction(transaction, now, consumed);
    };
    speaker.actor.at().with_history(tell);
    for _ in 0..speaker.actor.attempts() {
        match speaker.commit_offset(place, next).await {
            Told::Done => return true,
            Told::Refused(
                Code::CoordinatorLoadInProgress
                | Code::CoordinatorNotAvailable
                | Code::NotCoordinator
                | Code::NotEnoughReplicas
                | Code::RequestTimedOut
                | Code::UnknownTopicOrPartition
                | Code::ConcurrentTransactions,
            )
            | Told::Unknown => speaker.actor.forget(),
            Told::Refused(_) => return false,
        }
        speaker.actor.pause(AGAIN).await;
    }
    false
}
