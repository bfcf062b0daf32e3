//! `quorate cluster quorum`: who votes on the metadata, who leads, and one voter more or less.

use quorate_core::id::NodeId;
use quorate_net::client::{QuorumDescription, QuorumMember};
use serde::Serialize;

use crate::command::Context;
use crate::failure::Failure;
use crate::output::table::Table;

#[derive(Serialize)]
struct Shown {
    leader: Option<i32>,
    term: i32,
    decided: i64,
    voters: Vec<MemberRow>,
    observers: Vec<MemberRow>,
}

#[derive(Serialize)]
struct MemberRow {
    node: i32,
    directory: String,
    leads: bool,
    /// Entries that it lacks; `None` where the answering node does not know.
    lacks: Option<i64>,
    heard: bool,
}

pub(super) async fn run(
    context: &Context,
    add: Option<&str>,
    remove: Option<&str>,
    yes: bool,
) -> Result<(), Failure> {
    let client = context.connect().await?;
    let quorum = client.describe_quorum().await?;
    let output = context.output;
    if let Some(text) = add {
        let (node, directory) = find(&quorum.observers, text)?;
        client.add_voter(node, directory).await?;
        return done(context, &format!("node {node} votes now"));
    }
    if let Some(text) = remove {
        let (node, directory) = find(&quorum.voters, text)?;
        let left = quorum.voters.len().saturating_sub(1);
        output.confirm(yes, &format!("Take the vote of node {node}? {}", survives(left)))?;
        client.remove_voter(node, directory).await?;
        return done(context, &format!("node {node} votes no more"));
    }
    let shown = shown(&quorum);
    if output.json {
        return output.json(&shown);
    }
    let leader =
        shown.leader.map_or_else(|| "nobody".to_owned(), |leader| format!("node {leader}"));
    output.line(&format!(
        "{} leads in term {}; {} entries are decided",
        output.style.bold(&leader),
        shown.term,
        shown.decided
    ))?;
    output.line(&survives(shown.voters.len()))?;
    output.line("")?;
    let mut table = Table::new(&["NODE", "ROLE", "DIRECTORY", "LACKS", "HEARD"]).indented(2);
    let rows = shown.voters.iter().map(|row| (row, "voter"));
    for (row, role) in rows.chain(shown.observers.iter().map(|row| (row, "observer"))) {
        table.row([
            row.node.to_string(),
            if row.leads { "leader" } else { role }.to_owned(),
            row.directory.clone(),
            row.lacks.map_or_else(|| "-".to_owned(), |lacks| lacks.to_string()),
            if row.heard { "yes" } else { "no" }.to_owned(),
        ]);
    }
    output.table(&table)
}

fn done(context: &Context, what: &str) -> Result<(), Failure> {
    if context.output.json {
        return context.output.json(&serde_json::json!({ "done": what }));
    }
    context.output.line(what)
}

/// What a quorum of so many voters bears.
pub(super) fn survives(voters: usize) -> String {
    match voters.saturating_sub(1) / 2 {
        0 => format!("With {voters} voters, the loss of any one of them stops all decisions."),
        1 => format!("With {voters} voters, decisions survive the loss of any one of them."),
        lost => format!("With {voters} voters, decisions survive the loss of any {lost} of them."),
    }
}

fn shown(quorum: &QuorumDescription) -> Shown {
    let leader_end = quorum
        .voters
        .iter()
        .find(|voter| Some(voter.node) == quorum.leader)
        .and_then(|voter| voter.end);
    let row = |member: &QuorumMember| MemberRow {
        node: member.node.0,
        directory: hex(member.directory),
        leads: Some(member.node) == quorum.leader,
        lacks: leader_end.zip(member.end).map(|(leader, end)| (leader - end).max(0)),
        heard: member.heard.is_some(),
    };
    Shown {
        leader: quorum.leader.map(|leader| leader.0),
        term: quorum.term,
        decided: quorum.high_watermark,
        voters: quorum.voters.iter().map(row).collect(),
        observers: quorum.observers.iter().map(row).collect(),
    }
}

fn hex(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `NODE`, or `NODE/DIRECTORY` with as many digits as tell it from others.
fn find(members: &[QuorumMember], text: &str) -> Result<(NodeId, [u8; 16]), Failure> {
    let (node, digits) = text.split_once('/').unwrap_or((text, ""));
    let wrong = || Failure::usage(format!("`{text}` is no node")).hint("NODE or NODE/DIRECTORY");
    let node = NodeId(node.parse().map_err(|_| wrong())?);
    let mut found = members
        .iter()
        .filter(|member| member.node == node && hex(member.directory).starts_with(digits));
    match (found.next(), found.next()) {
        (Some(member), None) => Ok((node, member.directory)),
        (Some(_), Some(_)) => {
            let failure = Failure::new(format!("node {node} is there with several directories"));
            Err(failure.hint("name one: NODE/DIRECTORY, as `quorate cluster quorum` shows them"))
        }
        (None, _) => {
            let failure = Failure::new(format!("the quorum has no such member {text}"));
            Err(failure.hint("`quorate cluster quorum` shows who votes and who follows"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_node_and_by_directory() {
        let member = |node, first| {
            let mut directory = [0; 16];
            directory[0] = first;
            QuorumMember { node: NodeId(node), directory, end: None, heard: None }
        };
        let members = [member(1, 0xaa), member(2, 0xab), member(2, 0xcd)];
        assert_eq!(find(&members, "1").unwrap().1[0], 0xaa);
        assert_eq!(find(&members, "2/c").unwrap().1[0], 0xcd);
        assert!(find(&members, "2").unwrap_err().what.contains("several"));
        assert!(find(&members, "3").unwrap_err().what.contains("no such member"));
        assert_eq!(find(&members, "x").unwrap_err().exit, crate::failure::USAGE);
    }

    #[test]
    fn voters_bear_the_loss_of_a_minority() {
        assert!(survives(1).contains("stops"));
        assert!(survives(2).contains("stops"));
        assert!(survives(3).contains("any one of them") && !survives(3).contains("stops"));
        assert!(survives(5).contains("any 2"));
    }
}
