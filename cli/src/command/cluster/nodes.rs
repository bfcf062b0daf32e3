//! `quorate cluster decommission | maintenance`: what humans want of a node, with progress.

use std::time::Duration;

use quorate_core::id::NodeId;
use quorate_net::client::{Client, ConfigurationChange, Resource};

use super::picture::{DUTY, LEAVE, MAINTENANCE, Picture, SERVE};
use crate::command::Context;
use crate::failure::Failure;

/// Between two looks at how far it is.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

async fn set(client: &Client, node: NodeId, duty: &str) -> Result<(), Failure> {
    let change = ConfigurationChange::Set(DUTY.to_owned(), duty.to_owned());
    Ok(client.alter_configs(&Resource::Broker(node.0), &[change]).await?)
}

fn known(picture: &Picture, node: NodeId) -> Result<(), Failure> {
    if picture.cluster.nodes.contains_key(&node) {
        return Ok(());
    }
    let all: Vec<String> = picture.cluster.nodes.keys().map(ToString::to_string).collect();
    let failure = Failure::new(format!("there is no node {node}"));
    Err(failure.hint(format!("the nodes are {}", all.join(", "))))
}

fn done(context: &Context, node: NodeId, duty: &str, sentence: &str) -> Result<(), Failure> {
    if context.output.json {
        return context.output.json(&serde_json::json!({ "node": node.0, "duty": duty }));
    }
    context.output.line(sentence)
}

pub(super) async fn decommission(
    context: &Context,
    node: NodeId,
    cancel: bool,
    wait: bool,
    yes: bool,
) -> Result<(), Failure> {
    let client = context.connect().await?;
    let picture = Picture::of(&client).await?;
    known(&picture, node)?;
    if cancel {
        set(&client, node, SERVE).await?;
        return done(context, node, SERVE, &format!("node {node} stays"));
    }
    let copies = holds(&picture, node);
    let question = format!("Move the {copies} copies on node {node} to other nodes?");
    context.output.confirm(yes, &question)?;
    set(&client, node, LEAVE).await?;
    if wait {
        until(context, &client, |picture| match holds(picture, node) {
            0 => None,
            left => Some(format!("node {node} still keeps {left} of {copies} copies")),
        })
        .await?;
        let sentence = format!(
            "node {node} keeps nothing any more: stop it, then `quorate cluster decommission \
             {node} --forget`"
        );
        return done(context, node, LEAVE, &sentence);
    }
    done(context, node, LEAVE, &format!("the {copies} copies on node {node} move away"))?;
    context.output.note("`quorate cluster status` shows how far they are; --wait waits for them");
    Ok(())
}

/// Copies that a node keeps, those that are on their way there or away included.
fn holds(picture: &Picture, node: NodeId) -> usize {
    picture.partitions().filter(|(_, partition)| partition.replicas.contains(&node)).count()
}

fn leads(picture: &Picture, node: NodeId) -> usize {
    picture.partitions().filter(|(_, partition)| partition.leader == Some(node)).count()
}

pub(super) async fn maintenance(
    context: &Context,
    node: NodeId,
    end: bool,
    wait: bool,
) -> Result<(), Failure> {
    let client = context.connect().await?;
    known(&Picture::of(&client).await?, node)?;
    if end {
        set(&client, node, SERVE).await?;
        return done(context, node, SERVE, &format!("node {node} serves again"));
    }
    set(&client, node, MAINTENANCE).await?;
    if wait {
        until(context, &client, |picture| match leads(picture, node) {
            0 => None,
            left => Some(format!("node {node} still leads {left} partitions")),
        })
        .await?;
    }
    let sentence = format!("node {node} is in maintenance: it leads nothing and keeps its copies");
    done(context, node, MAINTENANCE, &sentence)
}

pub(super) async fn forget(context: &Context, node: NodeId, yes: bool) -> Result<(), Failure> {
    let client = context.connect().await?;
    context.output.confirm(yes, &format!("Forget node {node} for good?"))?;
    client.unregister(node).await?;
    if context.output.json {
        return context.output.json(&serde_json::json!({ "node": node.0, "forgotten": true }));
    }
    context.output.line(&format!("node {node} is forgotten"))
}

/// Looks again and again until `left` says that nothing is left.
async fn until(
    context: &Context,
    client: &Client,
    left: impl Fn(&Picture) -> Option<String>,
) -> Result<(), Failure> {
    loop {
        let picture = Picture::of(client).await?;
        let Some(left) = left(&picture) else {
            context.output.progress("");
            return Ok(());
        };
        context.output.progress(&left);
        context.clock.sleep(LOOK_AGAIN).await;
    }
}
