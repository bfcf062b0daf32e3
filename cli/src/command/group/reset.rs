//! Moving and forgetting a group's offsets, while nobody is in the group. What would be done is
//! shown until `--execute` says to do it, as Kafka's `kafka-consumer-groups` has it.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::id::Offset;
use quorate_core::partition::interface::Isolation;
use quorate_core::time::Timestamp;
use quorate_net::client::{Client, GroupOffsets, PartitionName, Position, Readers};
use serde::Serialize;

use super::datetime::parse_datetime;
use super::picture::Picture;
use super::{all_done, existing_group};
use crate::args::{Partitions, ResetArgs};
use crate::command::Context;
use crate::failure::Failure;
use crate::output::table::Table;

/// Where offsets go.
enum Target {
    Earliest,
    Latest,
    Current,
    Offset(i64),
    Time(Timestamp),
    Shift(i64),
    Like(GroupOffsets),
}

/// What becomes of one partition.
#[derive(Serialize)]
struct Move {
    topic: String,
    partition: i32,
    current: Option<i64>,
    new: i64,
}

pub(super) async fn run(context: &Context, args: &ResetArgs) -> Result<(), Failure> {
    let client = context.connect().await?;
    let group = &args.group;
    // A group that is not there yet may be given offsets before its first member comes.
    let picture = Picture::of(&client, group).await?;
    let target = target(context, &client, args).await?;
    let wanted = args.partitions.of(&client, &picture).await?;
    let moves = moves(context, &client, &picture, (&target, wanted)).await?;
    if args.execute {
        picture.without_members("its offsets can be moved")?;
        let offsets = moves.iter().map(|moved| {
            let name = PartitionName { topic: moved.topic.clone(), partition: moved.partition };
            (name, Offset(moved.new))
        });
        all_done(client.set_group_offsets(group, &offsets.collect()).await?)?;
    }
    show(context, group, args.execute, &moves)?;
    if !args.execute {
        if !picture.description.members.is_empty() {
            context
                .output
                .warn("the group has members: its offsets cannot be moved before they left");
        }
        context.output.note("nothing was changed; --execute does it");
    }
    Ok(())
}

async fn target(context: &Context, client: &Client, args: &ResetArgs) -> Result<Target, Failure> {
    if let Some(offset) = args.to_offset {
        if offset < 0 {
            return Err(Failure::usage("an offset is not negative"));
        }
        return Ok(Target::Offset(offset));
    }
    if let Some(text) = &args.to_datetime {
        return parse_datetime(text).map(Target::Time).map_err(Failure::usage);
    }
    if let Some(ago) = args.by_duration {
        let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
        let then = context.clock.now().wall.0.saturating_sub(ago).max(0);
        return Ok(Target::Time(Timestamp(then)));
    }
    if let Some(records) = args.shift_by {
        return Ok(Target::Shift(records));
    }
    if let Some(other) = &args.to_group {
        let offsets = client.group_offsets(other).await?;
        if offsets.is_empty() {
            return Err(Failure::new(format!("group {other} has no offsets")));
        }
        return Ok(Target::Like(offsets));
    }
    Ok(match (args.to_earliest, args.to_latest) {
        (true, _) => Target::Earliest,
        (_, true) => Target::Latest,
        _ => Target::Current,
    })
}

async fn moves(
    context: &Context,
    client: &Client,
    group: &Picture,
    (target, wanted): (&Target, BTreeSet<PartitionName>),
) -> Result<Vec<Move>, Failure> {
    let readers: Readers = wanted.into_iter().map(|name| (name, BTreeSet::new())).collect();
    let logs = client.unread(&readers, Isolation::ReadUncommitted).await?;
    let mut moves = Vec::with_capacity(logs.len());
    for (name, log) in logs {
        let log = log?;
        let committed = group.partitions.get(&name).and_then(|place| place.committed.as_ref());
        let current = committed.map(|committed| committed.offset);
        let from_here = || {
            current.ok_or_else(|| {
                let (group, topic) = (&group.description.group, &name.topic);
                let what = format!("group {group} has no offset of {topic}-{}", name.partition);
                Failure::new(what).hint("--to-earliest, --to-latest and --to-offset need none")
            })
        };
        let wished = match target {
            Target::Earliest => log.start,
            Target::Latest => log.end,
            Target::Current => from_here()?,
            Target::Offset(offset) => Offset(*offset),
            Target::Shift(records) => Offset(from_here()?.0.saturating_add(*records)),
            Target::Time(time) => at_time(client, &name, *time).await?.unwrap_or(log.end),
            Target::Like(offsets) => match offsets.get(&name) {
                Some(other) => other.offset,
                None => {
                    let place = format!("{}-{}", name.topic, name.partition);
                    context
                        .output
                        .warn(&format!("the other group has no offset of {place}: skipped"));
                    continue;
                }
            },
        };
        // As Kafka's tool: what lies outside the log goes to its nearer end.
        let new = wished.clamp(log.start, log.end.max(log.start));
        if new != wished {
            let place = format!("{}-{}", name.topic, name.partition);
            let (start, end) = (log.start, log.end);
            context
                .output
                .warn(&format!("{place} has offsets {start} to {end}: {wished} becomes {new}"));
        }
        let PartitionName { topic, partition } = name;
        moves.push(Move { topic, partition, current: current.map(|it| it.0), new: new.0 });
    }
    Ok(moves)
}

/// The first record that is not older than `time`; `None` if all are.
async fn at_time(
    client: &Client,
    name: &PartitionName,
    time: Timestamp,
) -> Result<Option<Offset>, Failure> {
    let (position, isolation) = (Position::Time(time), Isolation::ReadUncommitted);
    let listed = client.list_offsets(&name.topic, &[name.partition], position, isolation).await?;
    Ok(listed.first().and_then(|listed| listed.offset))
}

fn show(context: &Context, group: &str, done: bool, moves: &[Move]) -> Result<(), Failure> {
    if context.output.json {
        return context.output.json(&serde_json::json!({
            "group": group, "executed": done, "offsets": moves,
        }));
    }
    let mut table = Table::new(&["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"]);
    for moved in moves {
        let current = moved.current.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
        let (partition, new) = (moved.partition.to_string(), moved.new.to_string());
        table.row([group.to_owned(), moved.topic.clone(), partition, current, new]);
    }
    context.output.table(&table)
}

pub(super) async fn delete(
    context: &Context,
    group: &str,
    partitions: &Partitions,
    yes: bool,
) -> Result<(), Failure> {
    let client = context.connect().await?;
    let picture = existing_group(&client, group).await?;
    let mut wanted = partitions.of(&client, &picture).await?;
    let has = |name: &PartitionName| {
        picture.partitions.get(name).is_some_and(|place| place.committed.is_some())
    };
    wanted.retain(has);
    if wanted.is_empty() {
        return Err(Failure::new(format!("group {group} has no offsets there")));
    }
    let wanted: Vec<PartitionName> = wanted.into_iter().collect();
    let mut topics: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for name in &wanted {
        topics.entry(&name.topic).or_default().push(name.partition.to_string());
    }
    let places =
        topics.iter().map(|(topic, partitions)| format!("{topic}:{}", partitions.join(",")));
    let places = places.collect::<Vec<_>>().join(" ");
    let question = format!("Forget how far group {group} has come in {places}?");
    context.output.confirm(yes, &question)?;
    all_done(client.delete_group_offsets(group, &wanted).await?)?;
    if context.output.json {
        return context.output.json(&serde_json::json!({ "group": group, "deleted": topics }));
    }
    context.output.line(&format!("deleted the offsets of group {group} in {places}"))
}
