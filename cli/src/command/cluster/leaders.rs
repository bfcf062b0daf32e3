//! `quorate cluster leaders`: who leads how much, and elections by hand.

use std::collections::BTreeMap;

use quorate_net::client::Election;
use serde::Serialize;

use super::picture::Picture;
use super::{parse_partitions, refused, shown};
use crate::command::Context;
use crate::failure::Failure;
use crate::output::table::Table;

#[derive(Serialize)]
struct Leads {
    node: i32,
    leads: usize,
    /// Of those that it should lead.
    elsewhere: usize,
}

#[derive(Serialize)]
struct Elected {
    partition: String,
    error: Option<String>,
}

/// `elections` says whether the preferred leaders are to lead, and whether anybody may.
pub(super) async fn run(
    context: &Context,
    named: &[String],
    elections: (bool, bool),
    yes: bool,
) -> Result<(), Failure> {
    let client = context.connect().await?;
    let picture = Picture::of(&client).await?;
    let election = match elections {
        (true, _) => Election::Preferred,
        (_, true) => Election::Unclean,
        (false, false) => return show(context, &picture),
    };
    let partitions = parse_partitions(&picture, named)?;
    if election == Election::Unclean {
        if partitions.is_empty() {
            let failure = Failure::usage("which partitions may lose records must be said");
            return Err(failure.hint("name them: TOPIC:PARTITION"));
        }
        let names: Vec<String> = partitions.iter().map(shown).collect();
        let question = format!(
            "No replica that surely has all acknowledged records of {} can be reached. Let any \
             replica lead, and lose what it lacks?",
            names.join(", ")
        );
        context.output.confirm(yes, &question)?;
    }
    let partitions = (!partitions.is_empty()).then_some(partitions.as_slice());
    let done = client.elect_leaders(election, partitions).await?;
    let failure = refused(&done);
    let rows: Vec<Elected> = done
        .into_iter()
        .map(|(name, done)| Elected {
            partition: shown(&name),
            error: done.err().map(|error| error.to_string()),
        })
        .collect();
    if context.output.json {
        context.output.json(&rows)?;
    } else {
        let elected = rows.iter().filter(|row| row.error.is_none()).count();
        context.output.line(&format!("{elected} leaders were elected"))?;
    }
    failure.map_or(Ok(()), Err)
}

fn show(context: &Context, picture: &Picture) -> Result<(), Failure> {
    let mut elsewhere: BTreeMap<i32, usize> = BTreeMap::new();
    for (_, partition) in picture.partitions() {
        if let Some(preferred) = partition.replicas.first()
            && partition.leader != Some(*preferred)
        {
            *elsewhere.entry(preferred.0).or_default() += 1;
        }
    }
    let rows: Vec<Leads> = picture
        .standings()
        .into_iter()
        .map(|standing| Leads {
            node: standing.node.0,
            leads: standing.leads,
            elsewhere: elsewhere.get(&standing.node.0).copied().unwrap_or(0),
        })
        .collect();
    let leaderless: Vec<String> = picture
        .ailing()
        .filter(|ailing| !ailing.has_leader())
        .map(|ailing| shown(&ailing.name))
        .collect();
    if context.output.json {
        let told = serde_json::json!({ "nodes": rows, "without_leader": leaderless });
        return context.output.json(&told);
    }
    let mut table = Table::new(&["NODE", "LEADS", "SHOULD LEAD TOO"]);
    for row in &rows {
        table.row([row.node.to_string(), row.leads.to_string(), row.elsewhere.to_string()]);
    }
    context.output.table(&table)?;
    if !leaderless.is_empty() {
        context.output.warn(&format!("no leader: {}", leaderless.join(", ")));
    }
    if rows.iter().any(|row| row.elsewhere > 0) {
        context.output.note("`quorate cluster leaders --preferred` brings leaders back at once");
    }
    Ok(())
}
