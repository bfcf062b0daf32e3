//! `quorate cluster reassign`: partitions move to other nodes: add, catch up, remove.

use quorate_core::id::NodeId;
use serde::Serialize;

use super::picture::Picture;
use super::{list, parse_partitions, refused, shown};
use crate::command::Context;
use crate::failure::Failure;
use crate::output::table::Table;

#[derive(Serialize)]
struct Move {
    partition: String,
    replicas: Vec<i32>,
    adding: Vec<i32>,
    removing: Vec<i32>,
}

pub(super) async fn run(
    context: &Context,
    named: &[String],
    to: &[i32],
    cancel: bool,
    yes: bool,
) -> Result<(), Failure> {
    let client = context.connect().await?;
    let picture = Picture::of(&client).await?;
    if to.is_empty() && !cancel {
        return show(context, &picture);
    }
    let mut partitions = parse_partitions(&picture, named)?;
    if partitions.is_empty() {
        if !cancel {
            let failure = Failure::usage("which partitions are to move must be said");
            return Err(failure.hint("name them: TOPIC or TOPIC:PARTITION"));
        }
        partitions = picture.moves.iter().map(|found| found.partition.clone()).collect();
    }
    if cancel {
        // Of a topic, those that move.
        partitions.retain(|name| picture.move_of(&name.topic, name.partition).is_some());
        if partitions.is_empty() {
            return Err(Failure::new("no partition is on its way"));
        }
    }
    let target: Vec<NodeId> = to.iter().copied().map(NodeId).collect();
    let question = if cancel {
        format!("Take back the moves of {} partitions?", partitions.len())
    } else {
        let nodes = list(&target);
        format!("Move {} partitions to the nodes {nodes}, the first to lead?", partitions.len())
    };
    context.output.confirm(yes, &question)?;
    let target = (!cancel).then_some(target);
    let targets: Vec<_> = partitions.into_iter().map(|name| (name, target.clone())).collect();
    let done = client.reassign(&targets).await?;
    let failure = refused(&done);
    let taken = done.iter().filter(|(_, done)| done.is_ok()).count();
    if context.output.json {
        let rows: Vec<_> = done
            .iter()
            .map(|(name, done)| {
                let error = done.as_ref().err().map(ToString::to_string);
                serde_json::json!({ "partition": shown(name), "error": error })
            })
            .collect();
        context.output.json(&rows)?;
    } else if cancel {
        context.output.line(&format!("{taken} moves were taken back"))?;
    } else {
        context.output.line(&format!("{taken} partitions move"))?;
        context.output.note("`quorate cluster status` shows how far they are");
    }
    failure.map_or(Ok(()), Err)
}

fn show(context: &Context, picture: &Picture) -> Result<(), Failure> {
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect();
    let rows: Vec<Move> = picture
        .moves
        .iter()
        .map(|found| Move {
            partition: shown(&found.partition),
            replicas: ids(&found.replicas),
            adding: ids(&found.adding),
            removing: ids(&found.removing),
        })
        .collect();
    if context.output.json {
        return context.output.json(&rows);
    }
    if rows.is_empty() {
        context.output.note(
            "no partition is on its way; `quorate cluster reassign TOPIC --to 1,2,3` moves one",
        );
        return Ok(());
    }
    let mut table = Table::new(&["PARTITION", "REPLICAS", "COMING", "GOING"]);
    for found in &picture.moves {
        table.row([
            shown(&found.partition),
            list(&found.replicas),
            list(&found.adding),
            list(&found.removing),
        ]);
    }
    context.output.table(&table)
}
