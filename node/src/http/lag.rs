//! `/lag`: how far the groups that this node coordinates are behind, and whether they get on, as
//! JSON.

use quorate_core::group::lag::{Progress, WINDOW_COMMITS};
use serde::Serialize;

use super::Answer;
use crate::catalog::OFFSETS_TOPIC;
use crate::lag::{GroupLag, PartitionLag};
use crate::listener::handle::groups::coordinator;
use crate::node::Node;

#[derive(Serialize)]
struct Group<'a> {
    group: &'a str,
    r#type: &'a str,
    state: &'a str,
    members: usize,
    /// The worst of its partitions.
    progress: &'a str,
    /// `None` where a leader did not answer.
    lag_records: Option<u64>,
    lag_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions: Option<Vec<Partition<'a>>>,
}

#[derive(Serialize)]
struct Partition<'a> {
    topic: &'a str,
    partition: i32,
    committed: i64,
    /// Unix milliseconds.
    committed_at: i64,
    start: Option<i64>,
    end: Option<i64>,
    lag_records: Option<u64>,
    lag_bytes: Option<u64>,
    lag_seconds: Option<f64>,
    progress: &'a str,
    /// The share of the commits that Burrow's rules look at which have been seen.
    complete: f64,
}

impl<'a> Partition<'a> {
    fn of(it: &'a PartitionLag) -> Self {
        Self {
            topic: &it.name.topic,
            partition: it.name.partition,
            committed: it.committed.0,
            committed_at: it.committed_at.millis(),
            start: it.ends.map(|(start, _)| start.0),
            end: it.ends.map(|(_, end)| end.0),
            lag_records: it.lag.map(|lag| lag.records),
            lag_bytes: it.lag.and_then(|lag| lag.bytes),
            lag_seconds: it.lag.and_then(|lag| lag.age).map(|age| age.as_secs_f64()),
            progress: it.progress.name(),
            complete: it.commits as f64 / WINDOW_COMMITS as f64,
        }
    }
}

impl<'a> Group<'a> {
    fn of(it: &'a GroupLag, with_partitions: bool) -> Self {
        let lags = || it.partitions.iter().map(|partition| partition.lag);
        let ages = lags().flatten().filter_map(|lag| lag.age);
        Self {
            group: &it.group,
            r#type: it.kind,
            state: it.state,
            members: it.members,
            progress: it.progress.name(),
            lag_records: lags().map(|lag| lag.map(|lag| lag.records)).sum(),
            lag_seconds: ages.max().map(|age| age.as_secs_f64()),
            partitions: with_partitions.then(|| it.partitions.iter().map(Partition::of).collect()),
        }
    }
}

/// All that this node coordinates, without their partitions; the worst first.
pub(super) fn all(node: &Node) -> Answer {
    let lags = node.lags.read();
    let mut groups: Vec<&GroupLag> = lags.iter().collect();
    groups.sort_by_key(|group: &&GroupLag| std::cmp::Reverse::<Progress>(group.progress));
    let told: Vec<Group<'_>> = groups.into_iter().map(|group| Group::of(group, false)).collect();
    Answer::json(&told)
}

pub(super) fn one(node: &Node, name: &str) -> Answer {
    let lags = node.lags.read();
    if let Some(found) = lags.iter().find(|group| group.group == name) {
        return Answer::json(&Group::of(found, true));
    }
    let state = node.catalog.read();
    let offsets = state.topic_named(OFFSETS_TOPIC);
    match offsets.and_then(|offsets| coordinator(&state, offsets, name)) {
        Some(other) if other.id != node.id => {
            Answer::text(404, format!("node {} coordinates group {name}: ask there", other.id))
        }
        _ => Answer::text(404, format!("there is no group {name}, or it was not measured yet")),
    }
}
