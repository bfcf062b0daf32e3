//! `quorate group`: list, describe, lag, reset offsets, delete offsets, delete.

mod datetime;
mod describe;
mod diagnosis;
mod lag;
mod partitions;
mod picture;
mod reset;

use quorate_net::client::{Client, PerPartition};
use serde::Serialize;

use self::picture::Picture;
use super::Context;
use crate::args::GroupCommand;
use crate::failure::Failure;
use crate::nearest::nearest;
use crate::output::table::Table;

pub(crate) async fn run(context: &Context, command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::List { state, kind } => list(context, &state, &kind).await,
        GroupCommand::Describe { groups, members } => {
            describe::run(context, &groups, members).await
        }
        GroupCommand::Lag { groups } => lag::run(context, &groups).await,
        GroupCommand::ResetOffsets(args) => reset::run(context, &args).await,
        GroupCommand::DeleteOffsets { group, partitions, sure } => {
            reset::delete(context, &group, &partitions, sure.yes).await
        }
        GroupCommand::Delete { groups, sure } => delete(context, &groups, sure.yes).await,
    }
}

/// The failure for a group that is not there, with the nearest name.
async fn no_such_group(client: &Client, group: &str) -> Failure {
    let failure = Failure::new(format!("there is no group {group}"));
    let Ok((known, _)) = client.list_groups().await else { return failure };
    match nearest(group, known.iter().map(|known| known.group.as_str())) {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure.hint("`quorate group list` shows those that there are"),
    }
}

async fn existing_group(client: &Client, group: &str) -> Result<Picture, Failure> {
    let picture = Picture::of(client, group).await?;
    if picture.exists() { Ok(picture) } else { Err(no_such_group(client, group).await) }
}

async fn list(context: &Context, states: &[String], kinds: &[String]) -> Result<(), Failure> {
    let client = context.connect().await?;
    let (groups, silent) = client.list_groups().await?;
    // Kafka's tool knows `PREPARING_REBALANCE` too.
    let plain = |text: &str| text.replace('_', "").to_lowercase();
    let among = |wanted: &[String], is: &str| {
        wanted.is_empty() || wanted.iter().any(|wish| plain(wish) == plain(is))
    };
    let groups =
        groups.into_iter().filter(|group| among(states, &group.state) && among(kinds, &group.kind));
    #[derive(Serialize)]
    struct Listed {
        group: String,
        r#type: String,
        state: String,
        protocol_type: String,
        coordinator: i32,
    }
    let listed: Vec<Listed> = groups
        .map(|group| Listed {
            group: group.group,
            r#type: group.kind,
            state: group.state,
            protocol_type: group.protocol_type,
            coordinator: group.coordinator.0,
        })
        .collect();
    for (node, error) in silent {
        context.output.warn(&format!("groups of node {node} are not listed: {error}"));
    }
    if context.output.json {
        return context.output.json(&listed);
    }
    if listed.is_empty() {
        context.output.note("no groups; `quorate consume TOPIC --group NAME` makes one");
        return Ok(());
    }
    let mut table = Table::new(&["GROUP", "TYPE", "PROTOCOL", "STATE", "COORDINATOR"]);
    let told = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    for group in listed {
        let (kind, protocol) = (told(group.r#type), told(group.protocol_type));
        let coordinator = group.coordinator.to_string();
        table.row([group.group, kind, protocol, told(group.state), coordinator]);
    }
    context.output.table(&table)
}

async fn delete(context: &Context, groups: &[String], yes: bool) -> Result<(), Failure> {
    let client = context.connect().await?;
    for group in groups {
        let picture = existing_group(&client, group).await?;
        picture.without_members("it can be deleted")?;
    }
    let (of, them) = if groups.len() == 1 { ("group", "its") } else { ("groups", "their") };
    let question = format!("Delete {of} {} and all {them} offsets?", groups.join(", "));
    context.output.confirm(yes, &question)?;
    for group in groups {
        client.delete_group(group).await?;
        if !context.output.json {
            context.output.line(&format!("deleted group {group}"))?;
        }
    }
    if context.output.json {
        return context.output.json(&serde_json::json!({ "deleted": groups }));
    }
    Ok(())
}

/// The first thing that was refused of single partitions.
fn all_done(outcomes: PerPartition) -> Result<(), Failure> {
    for (_, outcome) in outcomes {
        outcome?;
    }
    Ok(())
}
