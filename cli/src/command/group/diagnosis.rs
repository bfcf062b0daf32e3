//! Why a group does not get on, in sentences: the worst first, each with what it rests on.

use std::time::Duration;

use quorate_core::group::lag::Lag;
use quorate_core::time::Timestamp;
use quorate_net::client::{GroupMember, PartitionName};
use quorate_net::kafka::error::Code;

use super::picture::{Picture, Place, named};
use crate::output::human;

/// A member that has work and committed nothing for so long is told to be stuck. Kafka's clients
/// commit every five seconds by themselves.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Of each kind so many are named; the others are counted.
const NAMED_MAX: usize = 3;

pub(super) fn diagnose(picture: &Picture, now: Timestamp) -> Vec<String> {
    let mut sentences: Vec<String> =
        [unreadable(picture), of_state(picture, now)].into_iter().flatten().collect();
    if matches!(picture.description.state.as_str(), "Stable" | "Reconciling" | "Assigning") {
        sentences.extend(
            [unowned(picture, now), stuck(picture, now), silent(picture)].into_iter().flatten(),
        );
    }
    if sentences.is_empty() {
        sentences.push(well(picture, now));
    }
    sentences
}

fn place(name: &PartitionName) -> String {
    format!("{}-{}", name.topic, name.partition)
}

/// `a, b, c and 4 more`.
fn several(items: &[String]) -> String {
    let named = items[..items.len().min(NAMED_MAX)].join(", ");
    match items.len().checked_sub(NAMED_MAX).filter(|&more| more > 0) {
        Some(more) => format!("{named} and {more} more"),
        None => named,
    }
}

fn records(lag: Lag) -> String {
    let records = if lag.records == 1 { "record" } else { "records" };
    let behind = format!("{} {records} behind", lag.records);
    match lag.age {
        Some(age) if !age.is_zero() => {
            format!("{behind}, the oldest of them {} old", human::duration(age))
        }
        _ => behind,
    }
}

/// Partitions that nobody can read, whatever the group does.
fn unreadable(picture: &Picture) -> Option<String> {
    let broken = |wanted: fn(Option<Code>) -> bool| {
        let places = picture.partitions.iter();
        let broken =
            places.filter(|(_, it)| it.log.as_ref().is_err_and(|error| wanted(error.code())));
        broken.map(|(name, _)| place(name)).collect::<Vec<_>>()
    };
    let gone = broken(|code| code == Some(Code::UnknownTopicOrPartition));
    if !gone.is_empty() {
        return Some(format!("{} no longer exist, and the group still has them.", several(&gone)));
    }
    let unreadable = broken(|_| true);
    let first = picture.partitions.values().find_map(|it| it.log.as_ref().err())?;
    let why = match first.code() {
        Some(Code::LeaderNotAvailable) => "no node leads them".to_owned(),
        _ => first.to_string(),
    };
    Some(format!("Nobody can read {} now: {why}.", several(&unreadable)))
}

fn of_state(picture: &Picture, now: Timestamp) -> Option<String> {
    let it = &picture.description;
    let total = picture.total(now);
    match it.state.as_str() {
        "Empty" | "Dead" if total.records > 0 => {
            Some(format!("Nobody consumes: the group has no members, and is {}.", records(total)))
        }
        "Empty" | "Dead" => {
            Some("The group has no members, and nothing is left for it to consume.".to_owned())
        }
        "PreparingRebalance" => Some(format!(
            "Nobody consumes: the group rebalances, and waits for its members ({}) to join again; \
             one that is at work does so with its next poll.",
            members(&it.members)
        )),
        "CompletingRebalance" => Some(
            "Nobody consumes: the members have joined, and wait for their leader to share out the \
             partitions."
                .to_owned(),
        ),
        "Assigning" => {
            Some("The coordinator is about to share out the partitions anew.".to_owned())
        }
        "Reconciling" => Some(reconciling(&it.members)),
        _ => None,
    }
}

fn members(members: &[GroupMember]) -> String {
    let named: Vec<String> = members.iter().map(named).collect();
    several(&named)
}

/// Who has yet to give something up; that is what the others wait for.
fn reconciling(members: &[GroupMember]) -> String {
    let keeps = members.iter().filter_map(|member| {
        let target = member.target.as_ref()?;
        let more = member.assigned.iter().flat_map(|(topic, partitions)| {
            let wanted = target.get(topic);
            let stays = move |partition: &&i32| wanted.is_some_and(|all| all.contains(partition));
            let goes = partitions.iter().filter(move |partition| !stays(partition));
            goes.map(move |partition| format!("{topic}-{partition}"))
        });
        let more: Vec<String> = more.collect();
        (!more.is_empty())
            .then(|| format!("{} has yet to give up {}", named(member), several(&more)))
    });
    let keeps: Vec<String> = keeps.collect();
    if keeps.is_empty() {
        return "Members take over partitions that others gave up.".to_owned();
    }
    format!("Partitions change hands: {}.", several(&keeps))
}

/// Partitions in which something waits and that no member has.
fn unowned(picture: &Picture, now: Timestamp) -> Option<String> {
    let lags = |it: &Place| it.lag(now).is_some_and(|lag| lag.records > 0);
    let unowned = picture.partitions.iter().filter(|(_, it)| it.owner.is_none() && lags(it));
    let unowned: Vec<String> = unowned.map(|(name, _)| place(name)).collect();
    if unowned.is_empty() || picture.description.state != "Stable" {
        return None;
    }
    let of = several(&unowned);
    Some(format!("No member reads {of}, where records wait: none subscribes to it any more."))
}

/// How long ago the group committed there last.
fn silence(place: &Place, now: Timestamp) -> Option<Duration> {
    let at = place.committed.as_ref()?.at?;
    let millis = now.0.saturating_sub(at.0).max(0).unsigned_abs();
    Some(Duration::from_millis(millis))
}

/// Members that have work and have committed nothing for long.
fn stuck(picture: &Picture, now: Timestamp) -> Option<String> {
    let places = picture.partitions.iter().filter_map(|(name, it)| {
        let (member, lag) = (picture.member(it)?, it.lag(now)?);
        let silence = silence(it, now)?;
        // A record that came just now is nothing that was left lying.
        let waits = lag.age.is_none_or(|age| age > SILENCE_MAX);
        (lag.records > 0 && waits && silence > SILENCE_MAX).then_some((name, member, lag, silence))
    });
    let mut places: Vec<_> = places.collect();
    places.sort_by_key(|(_, _, lag, _)| std::cmp::Reverse(lag.age));
    let (name, member, lag, silence) = *places.first()?;
    let more = match places.len() {
        1 => String::new(),
        count => format!(" So it is with {} more partitions.", count - 1),
    };
    let (who, at, ago) = (named(member), place(name), human::duration(silence));
    Some(format!(
        "{who} does not get on: its last commit in {at} was {ago} ago, and it is {}. It is stuck \
         at a record, or commits nothing.{more}",
        records(lag)
    ))
}

/// Members that never committed where something is to be read.
fn silent(picture: &Picture) -> Option<String> {
    let places = picture.partitions.iter().filter(|(_, it)| {
        let holds = it.log.as_ref().is_ok_and(|log| log.end > log.start);
        it.owner.is_some() && it.committed.is_none() && holds
    });
    let places: Vec<(&PartitionName, &Place)> = places.collect();
    let (_, first) = *places.first()?;
    let who = picture.member(first).map(named)?;
    let names: Vec<String> = places.iter().map(|(name, _)| place(name)).collect();
    Some(format!(
        "{who} has not committed anything yet in {}: how far it is cannot be known.",
        several(&names)
    ))
}

fn well(picture: &Picture, now: Timestamp) -> String {
    let total = picture.total(now);
    if total.records == 0 {
        return "The group gets on: it has consumed all that there is.".to_owned();
    }
    format!("The group gets on, and is {}.", records(total))
}
