//! `quorate group lag`: how far groups are behind, in records, bytes and time.

use quorate_core::group::lag::Lag;
use serde::Serialize;

use super::existing_group;
use super::picture::Picture;
use crate::command::Context;
use crate::failure::Failure;
use crate::output::human;
use crate::output::table::Table;

/// A lag for programs; seconds to the millisecond.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LagJson {
    pub(super) records: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) seconds: Option<f64>,
}

impl From<Option<Lag>> for LagJson {
    fn from(lag: Option<Lag>) -> Self {
        Self {
            records: lag.map(|lag| lag.records),
            bytes: lag.and_then(|lag| lag.bytes),
            seconds: lag.and_then(|lag| lag.age).map(|age| age.as_secs_f64()),
        }
    }
}

#[derive(Serialize)]
struct GroupLag {
    group: String,
    state: String,
    lag: LagJson,
    partitions: Vec<PartitionLag>,
}

#[derive(Serialize)]
struct PartitionLag {
    topic: String,
    partition: i32,
    committed: Option<i64>,
    end: Option<i64>,
    lag: LagJson,
}

pub(super) async fn run(context: &Context, groups: &[String]) -> Result<(), Failure> {
    let client = context.connect().await?;
    let mut pictures = Vec::new();
    if groups.is_empty() {
        let (listed, silent) = client.list_groups().await?;
        for (node, error) in silent {
            context.output.warn(&format!("groups of node {node} are not shown: {error}"));
        }
        for group in listed {
            pictures.push(Picture::of(&client, &group.group).await?);
        }
    } else {
        for group in groups {
            pictures.push(existing_group(&client, group).await?);
        }
    }
    let now = context.clock.now().wall;
    if context.output.json {
        let told: Vec<GroupLag> = pictures.iter().map(|picture| told(picture, now)).collect();
        return context.output.json(&told);
    }
    if groups.is_empty() {
        return totals(context, &pictures);
    }
    let mut table = Table::new(&["GROUP", "TOPIC", "PARTITION", "LAG", "BYTES", "TIME"]);
    for picture in &pictures {
        for (name, place) in &picture.partitions {
            let [records, bytes, age] = cells(place.lag(now));
            let (group, topic) = (picture.description.group.clone(), name.topic.clone());
            table.row([group, topic, name.partition.to_string(), records, bytes, age]);
        }
    }
    context.output.table(&table)
}

fn totals(context: &Context, pictures: &[Picture]) -> Result<(), Failure> {
    if pictures.is_empty() {
        context.output.note("no groups");
        return Ok(());
    }
    let now = context.clock.now().wall;
    let mut table = Table::new(&["GROUP", "STATE", "MEMBERS", "LAG", "BYTES", "TIME"]);
    for picture in pictures {
        let [records, bytes, age] = cells(Some(picture.total(now)));
        let description = &picture.description;
        let (group, state) = (description.group.clone(), description.state.clone());
        table.row([group, state, description.members.len().to_string(), records, bytes, age]);
    }
    context.output.table(&table)
}

/// Records, bytes and time for a human.
pub(super) fn cells(lag: Option<Lag>) -> [String; 3] {
    let dash = || "-".to_owned();
    let records = lag.map_or_else(dash, |lag| lag.records.to_string());
    let bytes = lag.and_then(|lag| lag.bytes).map_or_else(dash, human::bytes);
    let age = lag.and_then(|lag| lag.age);
    [
        records,
        bytes,
        age.map_or_else(
            dash,
            |age| if age.is_zero() { "0".to_owned() } else { human::duration(age) },
        ),
    ]
}

fn told(picture: &Picture, now: quorate_core::time::Timestamp) -> GroupLag {
    let partitions = picture.partitions.iter().map(|(name, place)| PartitionLag {
        topic: name.topic.clone(),
        partition: name.partition,
        committed: place.committed.as_ref().map(|committed| committed.offset.0),
        end: place.end().map(|end| end.0),
        lag: place.lag(now).into(),
    });
    GroupLag {
        group: picture.description.group.clone(),
        state: picture.description.state.clone(),
        lag: Some(picture.total(now)).into(),
        partitions: partitions.collect(),
    }
}
