//! `quorate group describe`: a sentence about how the group gets on, then Kafka's columns with the
//! lag in seconds behind them.

use std::collections::BTreeMap;

use quorate_core::time::Timestamp;
use quorate_net::client::GroupMember;
use serde::Serialize;

use super::lag::LagJson;
use super::picture::Picture;
use super::{diagnosis, existing_group};
use crate::command::Context;
use crate::command::topic::plural;
use crate::failure::Failure;
use crate::output::table::Table;

pub(super) async fn run(
    context: &Context,
    groups: &[String],
    members: bool,
) -> Result<(), Failure> {
    let client = context.connect().await?;
    let mut pictures = Vec::with_capacity(groups.len());
    for group in groups {
        pictures.push(existing_group(&client, group).await?);
    }
    let now = context.clock.now().wall;
    if context.output.json {
        let told: Vec<Told<'_>> = pictures.iter().map(|picture| Told::of(picture, now)).collect();
        return context.output.json(&told);
    }
    for (at, picture) in pictures.iter().enumerate() {
        if at > 0 {
            context.output.line("")?;
        }
        head(context, picture, now)?;
        if members { show_members(context, picture)? } else { show(context, picture, now)? }
    }
    Ok(())
}

fn head(context: &Context, picture: &Picture, now: Timestamp) -> Result<(), Failure> {
    let it = &picture.description;
    let members = plural(i32::try_from(it.members.len()).unwrap_or(i32::MAX), "member");
    let assignor = match it.assignor.as_str() {
        "" => String::new(),
        name => format!(", shared out by {name}"),
    };
    let (group, state, kind) = (&it.group, &it.state, it.kind);
    let node = it.coordinator;
    context.output.line(&format!(
        "{group}  {state}, {members}, {kind} protocol{assignor}, coordinated by node {node}"
    ))?;
    context.output.line("")?;
    for sentence in diagnosis::diagnose(picture, now) {
        context.output.line(&format!("  {sentence}"))?;
    }
    context.output.line("")
}

fn dash() -> String {
    "-".to_owned()
}

fn show(context: &Context, picture: &Picture, now: Timestamp) -> Result<(), Failure> {
    let mut table = Table::new(&[
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
        "LAG-SECONDS",
    ]);
    if picture.partitions.is_empty() {
        return Ok(());
    }
    for (name, place) in &picture.partitions {
        let (lag, member) = (place.lag(now), picture.member(place));
        let of = |part: fn(&GroupMember) -> &str| {
            member.map(part).filter(|text| !text.is_empty()).map_or_else(dash, str::to_owned)
        };
        let committed = place.committed.as_ref();
        table.row([
            picture.description.group.clone(),
            name.topic.clone(),
            name.partition.to_string(),
            committed.map_or_else(dash, |committed| committed.offset.to_string()),
            place.end().map_or_else(dash, |end| end.to_string()),
            lag.map_or_else(dash, |lag| lag.records.to_string()),
            of(|member| &member.id),
            of(|member| &member.host),
            of(|member| &member.client_id),
            lag.and_then(|lag| lag.age)
                .map_or_else(dash, |age| format!("{:.1}", age.as_secs_f64())),
        ]);
    }
    context.output.table(&table)
}

fn show_members(context: &Context, picture: &Picture) -> Result<(), Failure> {
    if picture.description.members.is_empty() {
        return Ok(());
    }
    let headings = ["CONSUMER-ID", "INSTANCE", "HOST", "CLIENT-ID", "EPOCH", "PARTITIONS", "HAS"];
    let mut table = Table::new(&headings);
    for member in &picture.description.members {
        let count = member.assigned.values().map(Vec::len).sum::<usize>();
        table.row([
            member.id.clone(),
            member.instance.clone().unwrap_or_else(dash),
            member.host.clone(),
            member.client_id.clone(),
            member.epoch.map_or_else(dash, |epoch| epoch.to_string()),
            count.to_string(),
            if count == 0 { dash() } else { listed(&member.assigned) },
        ]);
    }
    context.output.table(&table)
}

/// `orders:0,1 payments:2`.
fn listed(assigned: &BTreeMap<String, Vec<i32>>) -> String {
    let topics = assigned.iter().map(|(topic, partitions)| {
        let mut partitions = partitions.clone();
        partitions.sort_unstable();
        let numbers: Vec<String> = partitions.iter().map(i32::to_string).collect();
        format!("{topic}:{}", numbers.join(","))
    });
    topics.collect::<Vec<_>>().join(" ")
}

#[derive(Serialize)]
struct Told<'a> {
    group: &'a str,
    state: &'a str,
    r#type: &'a str,
    protocol_type: &'a str,
    assignor: &'a str,
    epoch: Option<i32>,
    target_epoch: Option<i32>,
    coordinator: i32,
    /// Why it does not get on, or that it does.
    diagnosis: Vec<String>,
    lag: LagJson,
    members: Vec<ToldMember<'a>>,
    partitions: Vec<ToldPartition<'a>>,
}

#[derive(Serialize)]
struct ToldMember<'a> {
    id: &'a str,
    instance: Option<&'a str>,
    client_id: &'a str,
    host: &'a str,
    epoch: Option<i32>,
    subscribed: &'a [String],
    assigned: &'a BTreeMap<String, Vec<i32>>,
    target: Option<&'a BTreeMap<String, Vec<i32>>>,
}

#[derive(Serialize)]
struct ToldPartition<'a> {
    topic: &'a str,
    partition: i32,
    committed: Option<i64>,
    /// Unix milliseconds.
    committed_at: Option<i64>,
    metadata: Option<&'a str>,
    start: Option<i64>,
    end: Option<i64>,
    lag: LagJson,
    member: Option<&'a str>,
}

impl<'a> Told<'a> {
    fn of(picture: &'a Picture, now: Timestamp) -> Self {
        let it = &picture.description;
        let members = it.members.iter().map(|member| ToldMember {
            id: &member.id,
            instance: member.instance.as_deref(),
            client_id: &member.client_id,
            host: &member.host,
            epoch: member.epoch,
            subscribed: &member.subscribed,
            assigned: &member.assigned,
            target: member.target.as_ref(),
        });
        let partitions = picture.partitions.iter().map(|(name, place)| {
            let (committed, log) = (place.committed.as_ref(), place.log.as_ref().ok());
            ToldPartition {
                topic: &name.topic,
                partition: name.partition,
                committed: committed.map(|committed| committed.offset.0),
                committed_at: committed.and_then(|committed| committed.at).map(|at| at.millis()),
                metadata: committed.map(|committed| committed.metadata.as_str()),
                start: log.map(|log| log.start.0),
                end: log.map(|log| log.end.0),
                lag: place.lag(now).into(),
                member: picture.member(place).map(|member| member.id.as_str()),
            }
        });
        Self {
            group: &it.group,
            state: &it.state,
            r#type: it.kind,
            protocol_type: &it.protocol_type,
            assignor: &it.assignor,
            epoch: it.epoch,
            target_epoch: it.target_epoch,
            coordinator: it.coordinator.0,
            diagnosis: diagnosis::diagnose(picture, now),
            lag: Some(picture.total(now)).into(),
            members: members.collect(),
            partitions: partitions.collect(),
        }
    }
}
