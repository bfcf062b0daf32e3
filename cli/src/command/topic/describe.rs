//! `quorate topic describe`: in one sentence what an acknowledgement survives, then partitions and
//! configuration.

use std::collections::BTreeMap;

use quorate_core::partition::interface::Isolation;
use quorate_net::client::{Client, Configuration, Position, Resource, Topic};
use serde::Serialize;

use super::plural;
use crate::command::up::MEMORY;
use crate::command::{Context, existing_topic};
use crate::failure::Failure;
use crate::output::human;
use crate::output::table::Table;

#[derive(Serialize)]
struct Described<'a> {
    topic: &'a str,
    id: String,
    internal: bool,
    acknowledgement: String,
    partitions: Vec<DescribedPartition>,
    config: BTreeMap<&'a str, Option<&'a str>>,
}

#[derive(Serialize)]
struct DescribedPartition {
    partition: i32,
    leader: Option<i32>,
    leader_epoch: i32,
    replicas: Vec<i32>,
    in_sync: Vec<i32>,
    start: Option<i64>,
    end: Option<i64>,
}

pub(super) async fn run(context: &Context, name: &str, all: bool) -> Result<(), Failure> {
    let client = context.connect().await?;
    let topic = existing_topic(&client, name).await?;
    let configs = client.describe_configs(&Resource::Topic(name.to_owned())).await?;
    // Nobody tells the offsets of a partition that nobody leads.
    let led = topic.partitions.iter().filter(|partition| partition.leader.is_some());
    let led: Vec<i32> = led.map(|partition| partition.index).collect();
    let starts = offsets(&client, name, &led, Position::Beginning).await?;
    let ends = offsets(&client, name, &led, Position::End).await?;
    let partitions = topic.partitions.iter();
    let partitions = partitions
        .map(|partition| DescribedPartition {
            partition: partition.index,
            leader: partition.leader.map(|id| id.0),
            leader_epoch: partition.leader_epoch.0,
            replicas: partition.replicas.iter().map(|id| id.0).collect(),
            in_sync: partition.in_sync.iter().map(|id| id.0).collect(),
            start: starts.get(&partition.index).copied(),
            end: ends.get(&partition.index).copied(),
        })
        .collect();
    let shown = configs.iter().filter(|config| all || !config.default);
    let described = Described {
        topic: &topic.name,
        id: topic.id.to_string(),
        internal: topic.internal,
        acknowledgement: if is_ephemeral(&client, &topic).await {
            "This node runs with --ephemeral: what it acknowledges is gone when it stops."
                .to_owned()
        } else {
            promise(&topic, &configs)
        },
        partitions,
        config: shown.map(|config| (config.name.as_str(), config.value.as_deref())).collect(),
    };
    if context.output.json { context.output.json(&described) } else { print(context, &described) }
}

async fn offsets(
    client: &Client,
    name: &str,
    partitions: &[i32],
    position: Position,
) -> Result<BTreeMap<i32, i64>, Failure> {
    if partitions.is_empty() {
        return Ok(BTreeMap::new());
    }
    let isolation = Isolation::ReadUncommitted;
    let listed = client.list_offsets(name, partitions, position, isolation).await?;
    let found = partitions.iter().zip(listed);
    Ok(found.filter_map(|(index, listed)| Some((*index, listed.offset?.0))).collect())
}

fn print(context: &Context, described: &Described<'_>) -> Result<(), Failure> {
    let output = context.output;
    let style = output.style;
    let partitions = i32::try_from(described.partitions.len()).unwrap_or(i32::MAX);
    let records: i64 = described
        .partitions
        .iter()
        .filter_map(|partition| Some(partition.end? - partition.start?))
        .sum();
    let records = human::count(u64::try_from(records).unwrap_or_default());
    output.line(&format!(
        "{}  {}, {records} records, id {}",
        style.bold(described.topic),
        plural(partitions, "partition"),
        described.id
    ))?;
    output.line("")?;
    for line in wrapped(&described.acknowledgement, 96) {
        output.line(&format!("  {line}"))?;
    }
    output.line("")?;
    let headings = ["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END"];
    let mut table = Table::new(&headings).indented(2);
    let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let list = |ids: &[i32]| {
        let ids: Vec<String> = ids.iter().map(i32::to_string).collect();
        ids.join(",")
    };
    for partition in &described.partitions {
        table.row([
            partition.partition.to_string(),
            partition.leader.map_or_else(|| "none".to_owned(), |id| id.to_string()),
            list(&partition.replicas),
            list(&partition.in_sync),
            number(partition.start),
            number(partition.end),
        ]);
    }
    output.table(&table)?;
    if described.config.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let mut table = Table::new(&["CONFIGURATION", "VALUE", ""]).indented(2);
    for (key, value) in &described.config {
        let value = value.unwrap_or("-");
        let meaning = human::config_value(key, value).unwrap_or_default();
        table.row([(*key).to_owned(), value.to_owned(), meaning]);
    }
    output.table(&table)
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

/// Whether the node that leads the topic keeps nothing. A node that does not say keeps something.
async fn is_ephemeral(client: &Client, topic: &Topic) -> bool {
    let Some(leader) = topic.partitions.first().and_then(|first| first.leader) else {
        return false;
    };
    let configs = client.describe_configs(&Resource::Broker(leader.0)).await.unwrap_or_default();
    let directory = configs.iter().find(|config| config.name == "log.dirs");
    directory.is_some_and(|config| config.value.as_deref() == Some(MEMORY))
}

/// What `acks=all` means for this topic, in a sentence.
fn promise(topic: &Topic, configs: &[Configuration]) -> String {
    let value = |key: &str| {
        let config = configs.iter().find(|config| config.name == key);
        config.and_then(|config| config.value.as_deref())
    };
    let replicas = topic.partitions.first().map_or(1, |first| first.replicas.len());
    let least = value("min.insync.replicas").and_then(|least| least.parse().ok()).unwrap_or(1);
    let flush = value("quorate.flush");
    let racks = value("quorate.min.insync.racks").and_then(|racks| racks.parse().ok()).unwrap_or(1);
    acknowledgement(replicas, least, flush) + &in_racks(racks) + kept(value("cleanup.policy"))
}

/// What of the records is kept, where that is not all of them for a time.
fn kept(policy: Option<&str>) -> &'static str {
    let has = |word| policy.is_some_and(|policy| policy.split(',').any(|item| item.trim() == word));
    match (has("compact"), has("delete")) {
        (true, false) => {
            " Of records with the same key the last one is kept, for ever; older ones go once they \
             are compacted."
        }
        (true, true) => {
            " Of records with the same key the last one is kept, as long as the retention says; \
             older ones go once they are compacted."
        }
        (false, _) => "",
    }
}

fn in_racks(racks: usize) -> String {
    match racks {
        0 | 1 => String::new(),
        2 => " Copies stand in 2 racks at least: the loss of a whole rack loses nothing \
              acknowledged."
            .to_owned(),
        racks => format!(
            " Copies stand in {racks} racks at least: the loss of any {} racks loses nothing \
             acknowledged.",
            racks - 1
        ),
    }
}

/// `flush` is `None` on a cluster that has no such setting: then its answers do not wait for
/// disks.
fn acknowledgement(replicas: usize, least: usize, flush: Option<&str>) -> String {
    let durable = flush == Some("durable");
    let least = least.clamp(1, replicas.max(1));
    match (replicas, durable) {
        (0 | 1, true) => "An acknowledged record is on the disk of the one node that has it: it \
                          survives a crash and a power loss, not the loss of that disk."
            .to_owned(),
        (0 | 1, false) => {
            let way_out = way_out(flush, "the disk");
            format!(
                "An acknowledged record is in the memory of the one node that has it: it survives \
                 a crash of the process, not a power loss{way_out}."
            )
        }
        (_, true) => format!(
            "An acknowledged record (acks=all) is on the disks of all in-sync replicas, {least} of \
             {replicas} at least: it survives a power loss of all of them at once, and the loss of \
             {}.",
            match least - 1 {
                0 => "no disk".to_owned(),
                1 => "any one disk".to_owned(),
                lost => format!("any {lost} disks"),
            }
        ),
        (_, false) => format!(
            "An acknowledged record (acks=all) is in the memory of all in-sync replicas, {least} \
             of {replicas} at least: a power loss of all of these at once loses it{}.",
            way_out(flush, "their disks")
        ),
    }
}

/// Only where the setting exists.
fn way_out(flush: Option<&str>, what: &str) -> String {
    flush.map_or_else(String::new, |_| format!(" (quorate.flush=durable waits for {what})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_promise_says_what_survives() {
        let one = acknowledgement(1, 1, Some("durable"));
        assert!(one.contains("survives a crash and a power loss, not the loss of that disk"));
        let memory = acknowledgement(1, 1, Some("replicated"));
        assert!(memory.contains("not a power loss"));
        let kafka = acknowledgement(1, 1, None);
        assert!(kafka.contains("not a power loss") && !kafka.contains("quorate.flush"));
        let three = acknowledgement(3, 2, Some("durable"));
        assert!(three.contains("2 of 3 at least") && three.contains("any one disk"));
        assert!(acknowledgement(3, 1, Some("durable")).contains("the loss of no disk"));
        assert!(acknowledgement(5, 3, Some("durable")).contains("any 2 disks"));
        assert!(acknowledgement(3, 2, Some("replicated")).contains("loses it"));
        assert_eq!(in_racks(1), "");
        assert!(in_racks(2).contains("a whole rack") && in_racks(3).contains("any 2 racks"));
    }

    #[test]
    fn sentences_are_wrapped_at_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable", 3), ["unbreakable"]);
    }
}
