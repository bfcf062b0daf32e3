//! Who is a member: `group-member-id`, no id is given twice; `group-fenced`, a static member is
//! fenced by a newer self only; `group-expelled`, whoever was heard within its session stays.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;

use super::super::{Evidence, Violation};
use super::blame;
use crate::history::Partition;
use crate::history::groups::{GroupCall, GroupEnd, GroupOperation};
use crate::plan::groups::Protocol;

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let operations = &evidence.history.groups.operations;
    given_once(evidence, operations, violations);
    fenced_by_a_newer_self(operations, violations);
    heard_members_stay(evidence, operations, violations);
}

/// Of the classic protocol: there the coordinator makes the ids.
fn given_once(
    evidence: &Evidence<'_>,
    operations: &[GroupOperation],
    violations: &mut Vec<Violation>,
) {
    let mut given: BTreeMap<(u32, &str), u32> = BTreeMap::new();
    for operation in operations {
        let GroupEnd::Joined { member, .. } = &operation.end else { continue };
        let (group, client) = (operation.who.group, operation.who.client);
        if protocol(evidence, group) == Some(Protocol::Consumer) {
            continue;
        }
        let first = *given.entry((group, member)).or_insert(client);
        if first != client {
            let sentence = format!("c{first} and c{client} both are {member}");
            blame(violations, "group-member-id", group, None, sentence);
        }
    }
}

fn fenced_by_a_newer_self(operations: &[GroupOperation], violations: &mut Vec<Violation>) {
    for told in operations {
        let who = &told.who;
        let (GroupEnd::Refused(Code::FencedInstanceId), Some(completed)) =
            (&told.end, told.completed)
        else {
            continue;
        };
        // A join of the same instance that was begun by then, after this self had its id.
        let has_newer = operations.iter().any(|other| {
            let is_other_self = match &other.end {
                GroupEnd::Joined { member, .. } => *member != who.member,
                _ => true,
            };
            other.call == GroupCall::Join
                && is_other_self
                && other.who.group == who.group
                && other.who.instance == who.instance
                && other.who.member != who.member
                && other.invoked <= completed
                && other.completed.is_none_or(|completed| completed >= began(operations, told))
        });
        if !has_newer && !is_unwritten(operations, told) {
            let sentence = format!("{who} was fenced, and no newer self had asked to join");
            blame(violations, "group-fenced", who.group, None, sentence);
        }
    }
}

/// Whether this self has had no part yet, and is not the instance's first: what it is stands in
/// memory only until the assignment is written, and a coordinator that comes back finds its
/// predecessor in the log. Kafka's does the same.
fn is_unwritten(operations: &[GroupOperation], of: &GroupOperation) -> bool {
    let is_of_instance = |other: &&GroupOperation| {
        other.who.group == of.who.group && other.who.instance == of.who.instance
    };
    let had_part = |other: &GroupOperation| matches!(other.end, GroupEnd::Assigned { .. });
    let own = |other: &GroupOperation| other.who.member == of.who.member;
    let of_instance = || operations.iter().filter(is_of_instance);
    of_instance().any(|other| had_part(other) && !own(other))
        && !of_instance().any(|other| had_part(other) && own(other))
}

/// When the asking member was told its id.
fn began(operations: &[GroupOperation], of: &GroupOperation) -> Instant {
    let told = operations.iter().find(|other| {
        let is_told = matches!(&other.end, GroupEnd::Joined { member, .. }
            if *member == of.who.member);
        is_told && other.who.group == of.who.group && other.who.client == of.who.client
    });
    told.map_or(Instant::ZERO, |told| told.invoked)
}

fn heard_members_stay(
    evidence: &Evidence<'_>,
    operations: &[GroupOperation],
    violations: &mut Vec<Violation>,
) {
    // When each was last surely heard in its generation.
    let mut heard: BTreeMap<(u32, &str), Instant> = BTreeMap::new();
    let mut parts: BTreeMap<(u32, &str), &[Partition]> = BTreeMap::new();
    let mut done: Vec<&GroupOperation> = operations.iter().collect();
    done.sort_by_key(|operation| operation.completed.unwrap_or(operation.invoked));
    for operation in done {
        let who = &operation.who;
        let key = (who.group, who.member.as_str());
        let is_consumer = protocol(evidence, who.group) == Some(Protocol::Consumer);
        match (&operation.call, &operation.end, operation.completed) {
            (GroupCall::Leave, ..) => drop(heard.remove(&key)),
            (GroupCall::Heartbeat, GroupEnd::Done, _) => {
                heard.insert(key, operation.invoked);
            }
            (GroupCall::Join, GroupEnd::Joined { member, .. }, _) if is_consumer => {
                heard.insert((who.group, member), operation.invoked);
            }
            (GroupCall::Assign, GroupEnd::Assigned { partitions, .. }, _) => {
                // With KIP-848 nobody asks for a part: it comes with the answer to a heartbeat or a
                // join, which may have waited long, and is recorded when that has come. The member
                // was heard when it sent that, as above (seed 2958 of three nodes).
                if !is_consumer {
                    heard.insert(key, operation.invoked);
                }
                let before = parts.insert(key, partitions).unwrap_or_default();
                // It must give something up within the rebalance timeout, which began when it was
                // first told so, perhaps in an answer that was lost (KIP-848).
                let revokes = before.iter().any(|partition| !partitions.contains(partition));
                if revokes && is_consumer {
                    heard.remove(&key);
                }
            }
            (_, GroupEnd::Refused(Code::RebalanceInProgress), _) => drop(heard.remove(&key)),
            (_, GroupEnd::Refused(Code::UnknownMemberId), Some(completed)) => {
                let Some(last) = heard.remove(&key) else { continue };
                let silent = completed.saturating_since(last);
                let session = session(evidence, who.group);
                if silent < session - session / 50 {
                    let sentence = format!(
                        "{who} is unknown {} ms after it was heard; its session is {} ms",
                        silent.as_millis(),
                        session.as_millis()
                    );
                    blame(violations, "group-expelled", who.group, None, sentence);
                }
            }
            _ => {}
        }
    }
}

fn protocol(evidence: &Evidence<'_>, group: u32) -> Option<Protocol> {
    evidence.plan.groups.get(group as usize).map(|group| group.protocol)
}

fn session(evidence: &Evidence<'_>, group: u32) -> Duration {
    match evidence.plan.groups.get(group as usize) {
        Some(group) if group.protocol != Protocol::Consumer => group.session,
        _ => crate::workload::clients::groups::SESSION,
    }
}

#[cfg(test)]
mod tests {
    use quorate_net::kafka::error::Code;

    use crate::check::groups::story::Story;

    #[test]
    fn an_id_is_one_members() {
        let mut story = Story::new("eager");
        story.joined_by(1, "a").joined_by(2, "b").joined_by(1, "a");
        assert_eq!(story.blamed(), [""; 0]);
        story.joined_by(2, "a");
        assert_eq!(story.blamed(), ["group-member-id"]);
    }

    #[test]
    fn a_newer_self_fences() {
        let mut story = Story::new("eager");
        story.joined("i", "a", 1).joined("i", "b", 1);
        story.refused_as("i", "a", Code::FencedInstanceId);
        assert_eq!(story.blamed(), [""; 0]);
        story.refused_as("i", "b", Code::FencedInstanceId);
        assert_eq!(story.blamed(), ["group-fenced"], "the newest self is nobody's past");
    }

    #[test]
    fn a_self_that_is_in_no_log_may_be_fenced() {
        let mut story = Story::new("eager");
        story.joined("i", "a", 1).assigned_as("i", "a", 1, &[0]).joined("i", "b", 2);
        story.refused_as("i", "b", Code::FencedInstanceId);
        assert_eq!(story.blamed(), [""; 0], "a stands in the log, b does not");
        let mut story = Story::new("eager");
        story.joined("i", "a", 1).assigned_as("i", "a", 1, &[0]).joined("i", "b", 2);
        story.assigned_as("i", "b", 2, &[0]).refused_as("i", "b", Code::FencedInstanceId);
        assert_eq!(story.blamed(), ["group-fenced"]);
    }

    #[test]
    fn who_must_give_something_up_has_less_time() {
        let mut story = Story::new("consumer");
        story.assigned("a", 1, &[0, 1]).heard("a", 1).assigned("a", 1, &[0]).pause(500);
        story.refused("a", 1, Code::UnknownMemberId);
        assert_eq!(story.blamed(), [""; 0], "it may have been told long ago");
        let mut story = Story::new("consumer");
        story.assigned("a", 1, &[0, 1]).assigned("a", 2, &[0]).heard("a", 2).pause(500);
        story.refused("a", 2, Code::UnknownMemberId);
        assert_eq!(story.blamed(), ["group-expelled"], "it has given up what it was to");
    }

    #[test]
    fn who_was_heard_is_known() {
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).pause(3000).refused("a", 1, Code::UnknownMemberId);
        assert_eq!(story.blamed(), [""; 0], "the session is two seconds");
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).pause(1500).refused("a", 1, Code::UnknownMemberId);
        assert_eq!(story.blamed(), ["group-expelled"]);
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).pause(1500).left("a", 1);
        story.refused("a", 1, Code::UnknownMemberId);
        assert_eq!(story.blamed(), [""; 0]);
    }

    #[test]
    fn a_part_that_is_told_late_is_no_word_of_its_member() {
        let mut story = Story::new("consumer");
        story.heard("a", 1).pause(1500).assigned("a", 1, &[0]).pause(1000);
        story.refused("a", 1, Code::UnknownMemberId);
        assert_eq!(story.blamed(), [""; 0], "it has said nothing for longer than its session");
        let mut story = Story::new("consumer");
        story.joined_by(1, "a").assigned("a", 1, &[0]).pause(1500);
        story.refused("a", 1, Code::UnknownMemberId);
        assert_eq!(story.blamed(), ["group-expelled"], "to join is to be heard");
    }
}
