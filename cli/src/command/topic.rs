//! `quorate topic`: create, list, describe, alter, delete, add partitions, delete records.

mod describe;

use quorate_core::id::Offset;
use quorate_core::partition::interface::Isolation;
use quorate_net::client::{Client, ConfigurationChange, Error, NewTopic, Position, Resource};
use quorate_net::kafka::error::Code;
use serde::Serialize;

use super::{Context, about_topic, existing_topic, parse_config};
use crate::args::TopicCommand;
use crate::failure::Failure;
use crate::nearest::nearest;
use crate::output::human;
use crate::output::table::Table;

pub(crate) async fn run(context: &Context, command: TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Create { name, partitions, replicas, config, if_not_exists } => {
            let configs = config.iter().map(|text| parse_config(text));
            let topic = NewTopic {
                name,
                partitions,
                replication_factor: replicas,
                configs: configs.collect::<Result<_, _>>()?,
            };
            create(context, topic, if_not_exists).await
        }
        TopicCommand::List { internal } => list(context, internal).await,
        TopicCommand::Describe { name, all } => describe::run(context, &name, all).await,
        TopicCommand::Alter { name, set, unset } => alter(context, &name, &set, unset).await,
        TopicCommand::Delete { names, sure } => delete(context, &names, sure.yes).await,
        TopicCommand::AddPartitions { name, total, sure } => {
            add_partitions(context, &name, total, sure.yes).await
        }
        TopicCommand::DeleteRecords { name, partition, before, sure } => {
            delete_records(context, &name, partition, &before, sure.yes).await
        }
    }
}

/// The failure of a request with configurations: a key that nobody knows has a neighbour.
async fn about_configs(client: &Client, keys: &[&str], error: Error) -> Failure {
    let refused = error.code();
    let mut failure = Failure::from(error);
    if !matches!(refused, Some(Code::InvalidConfig | Code::InvalidRequest)) {
        return failure;
    }
    // Every topic lists every key; any one will do.
    let Ok(metadata) = client.cluster().await else { return failure };
    let Some(any) = metadata.topics.keys().next() else { return failure };
    let Ok(known) = client.describe_configs(&Resource::Topic(any.clone())).await else {
        return failure;
    };
    let is_known = |key: &str| known.iter().any(|config| config.name == key);
    if let Some(unknown) = keys.iter().find(|key| !is_known(key))
        && let Some(near) = nearest(unknown, known.iter().map(|config| config.name.as_str()))
        && !failure.what.contains(near)
    {
        failure = failure.hint(format!("there is no key {unknown}; did you mean {near}?"));
    }
    failure
}

async fn create(context: &Context, topic: NewTopic, if_not_exists: bool) -> Result<(), Failure> {
    let client = context.connect().await?;
    let output = context.output;
    let created = match client.create_topic(&topic).await {
        Ok(created) => Some(created),
        Err(error) if if_not_exists && error.code() == Some(Code::TopicAlreadyExists) => None,
        Err(error) => {
            let keys: Vec<&str> = topic.configs.iter().map(|(key, _)| key.as_str()).collect();
            return Err(about_configs(&client, &keys, error).await);
        }
    };
    #[derive(Serialize)]
    struct Created<'a> {
        topic: &'a str,
        created: bool,
        id: Option<String>,
        partitions: Option<i32>,
        replicas: Option<i16>,
    }
    if output.json {
        return output.json(&Created {
            topic: &topic.name,
            created: created.is_some(),
            id: created.as_ref().map(|created| created.id.to_string()),
            partitions: created.as_ref().and_then(|created| created.partitions),
            replicas: created.as_ref().and_then(|created| created.replication_factor),
        });
    }
    output.line(&match created {
        None => format!("topic {} exists", topic.name),
        Some(created) => {
            let partitions = created.partitions.unwrap_or(1);
            let replicas = i32::from(created.replication_factor.unwrap_or(1));
            format!(
                "created topic {}: {}, {}",
                topic.name,
                plural(partitions, "partition"),
                plural(replicas, "replica")
            )
        }
    })
}

pub(crate) fn plural(count: i32, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

async fn list(context: &Context, internal: bool) -> Result<(), Failure> {
    let client = context.connect().await?;
    let metadata = client.cluster().await?;
    // Sizes are an extra: a broker that does not tell them still lists its topics.
    let bytes = client.topic_bytes().await.unwrap_or_default();
    #[derive(Serialize)]
    struct Listed {
        topic: String,
        partitions: usize,
        replicas: usize,
        bytes: Option<u64>,
        internal: bool,
    }
    let topics = metadata.topics.values().filter(|topic| internal || !topic.internal);
    let listed: Vec<Listed> = topics
        .map(|topic| Listed {
            topic: topic.name.clone(),
            partitions: topic.partitions.len(),
            replicas: topic.partitions.first().map_or(0, |first| first.replicas.len()),
            bytes: bytes.get(&topic.name).copied(),
            internal: topic.internal,
        })
        .collect();
    if context.output.json {
        return context.output.json(&listed);
    }
    if listed.is_empty() {
        context.output.note("no topics yet; `quorate topic create NAME` makes one");
        return Ok(());
    }
    let mut table = Table::new(&["TOPIC", "PARTITIONS", "REPLICAS", "SIZE"]);
    for topic in listed {
        let size = topic.bytes.map_or_else(|| "-".to_owned(), human::bytes);
        let (partitions, replicas) = (topic.partitions.to_string(), topic.replicas.to_string());
        table.row([topic.topic, partitions, replicas, size]);
    }
    context.output.table(&table)
}

async fn alter(
    context: &Context,
    name: &str,
    set: &[String],
    unset: Vec<String>,
) -> Result<(), Failure> {
    let mut changes = Vec::new();
    for text in set {
        let (key, value) = parse_config(text)?;
        changes.push(ConfigurationChange::Set(key, value));
    }
    changes.extend(unset.into_iter().map(ConfigurationChange::Unset));
    if changes.is_empty() {
        let failure = Failure::usage("there is nothing to change");
        return Err(failure.hint("--set KEY=VALUE, or --unset KEY"));
    }
    let client = context.connect().await?;
    let resource = Resource::Topic(name.to_owned());
    if let Err(error) = client.alter_configs(&resource, &changes).await {
        if error.code() == Some(Code::UnknownTopicOrPartition) {
            return Err(about_topic(&client, name, error).await);
        }
        let keys = changes.iter().map(|change| match change {
            ConfigurationChange::Set(key, _) | ConfigurationChange::Unset(key) => key.as_str(),
        });
        let keys: Vec<&str> = keys.collect();
        return Err(about_configs(&client, &keys, error).await);
    }
    if context.output.json {
        return context.output.json(&serde_json::json!({ "topic": name, "altered": true }));
    }
    context.output.line(&format!("altered topic {name}"))
}

async fn delete(context: &Context, names: &[String], yes: bool) -> Result<(), Failure> {
    let client = context.connect().await?;
    for name in names {
        existing_topic(&client, name).await?;
    }
    let question = format!("Delete {} and all their records?", names.join(", "));
    let question =
        if names.len() == 1 { question.replace("all their", "all its") } else { question };
    context.output.confirm(yes, &question)?;
    for name in names {
        if let Err(error) = client.delete_topic(name).await {
            return Err(about_topic(&client, name, error).await);
        }
        if !context.output.json {
            context.output.line(&format!("deleted topic {name}"))?;
        }
    }
    if context.output.json {
        return context.output.json(&serde_json::json!({ "deleted": names }));
    }
    Ok(())
}

async fn add_partitions(
    context: &Context,
    name: &str,
    total: i32,
    yes: bool,
) -> Result<(), Failure> {
    let client = context.connect().await?;
    let topic = existing_topic(&client, name).await?;
    let now = topic.partition_count();
    if total <= now {
        let failure = Failure::new(format!("topic {name} has {}", plural(now, "partition")));
        return Err(failure.hint("--total says how many there shall be; it cannot go down"));
    }
    let question = format!(
        "From {now} to {total} partitions, records of one key go to another partition than \
         before, so their order is broken at this point. Go on?"
    );
    context.output.confirm(yes, &question)?;
    if let Err(error) = client.add_partitions(name, total).await {
        return Err(about_topic(&client, name, error).await);
    }
    if context.output.json {
        return context.output.json(&serde_json::json!({ "topic": name, "partitions": total }));
    }
    context.output.warn("keys move: of a key's records, new ones may stand in another partition");
    context.output.line(&format!("topic {name} has {} now", plural(total, "partition")))
}

async fn delete_records(
    context: &Context,
    name: &str,
    partition: Option<i32>,
    before: &str,
    yes: bool,
) -> Result<(), Failure> {
    let client = context.connect().await?;
    let topic = existing_topic(&client, name).await?;
    let count = topic.partition_count();
    let partitions: Vec<i32> = match partition {
        Some(partition) if (0..count).contains(&partition) => vec![partition],
        Some(partition) => {
            let failure = Failure::new(format!("topic {name} has no partition {partition}"));
            return Err(failure.hint(format!("its partitions are 0 to {}", count - 1)));
        }
        None => (0..count).collect(),
    };
    let position = super::consume::parse_position(before, context)?;
    let listed =
        client.list_offsets(name, &partitions, position, Isolation::ReadUncommitted).await?;
    let where_to = match position {
        Position::End => "all records".to_owned(),
        _ => format!("the records before {before}"),
    };
    let of = partition.map_or_else(String::new, |partition| format!("partition {partition} of "));
    context.output.confirm(yes, &format!("Delete {where_to} of {of}topic {name}?"))?;
    #[derive(Serialize)]
    struct Deleted {
        partition: i32,
        start: i64,
    }
    let mut deleted = Vec::new();
    for (partition, listed) in partitions.into_iter().zip(listed) {
        // No record is so new: all are older.
        let before: Option<Offset> = match position {
            Position::End => None,
            _ => listed.offset,
        };
        let start = client.delete_records(name, partition, before).await?;
        deleted.push(Deleted { partition, start: start.0 });
    }
    if context.output.json {
        return context.output.json(&deleted);
    }
    let mut table = Table::new(&["PARTITION", "START"]);
    for partition in deleted {
        table.row([partition.partition.to_string(), partition.start.to_string()]);
    }
    context.output.table(&table)
}
