//! Who is a member: `group-member-id`, no id is given twice; `group-fenced`, a static member is
//! fenced by a newer self only; `group-expelled`, whoever was heard within its session stays.

use std::collections::BTreeMap;

use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;

use super::super::offsets::{NEWS, news_of_healing, words_count};
use super::super::{Evidence, Violation};
use super::blame;
use crate::history::Partition;
use crate::history::groups::{GroupCall, GroupEnd, GroupOperation};
use crate::plan::groups::Group;
use crate::workload::members::SESSION;

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let operations = &evidence.history.groups.operations;
    given_once(operations, violations);
    fenced_by_a_newer_self(evidence, operations, violations);
    heard_members_stay(evidence, operations, violations);
}

/// Of the classic protocol: there the coordinator makes the ids.
fn given_once(operations: &[GroupOperation], violations: &mut Vec<Violation>) {
    let mut given: BTreeMap<(u32, &str), u32> = BTreeMap::new();
    for operation in operations {
        let GroupEnd::Joined { member, .. } = &operation.end else { continue };
        let (group, client) = (operation.who.group, operation.who.client);
        if operation.who.by_epoch {
            continue;
        }
        let first = *given.entry((group, member)).or_insert(client);
        if first != client {
            let sentence = format!("c{first} and c{client} both are {member}");
            blame(violations, "group-member-id", group, None, sentence);
        }
    }
}

fn fenced_by_a_newer_self(
    evidence: &Evidence<'_>,
    operations: &[GroupOperation],
    violations: &mut Vec<Violation>,
) {
    let news = news_of_healing(evidence.plan);
    for told in operations {
        let who = &told.who;
        let (GroupEnd::Refused(Code::FencedInstanceId), Some(completed)) =
            (&told.end, told.completed)
        else {
            continue;
        };
        let has_newer = has_newer_self(operations, told, (completed, news));
        if !has_newer && !is_unwritten(operations, told) {
            let sentence = format!("{who} was fenced, and no newer self had asked to join");
            blame(violations, "group-fenced", who.group, None, sentence);
        }
    }
}

/// Whether another self of the asking static member had begun to join by `completed`, and was not
/// done with that before this one had its id. One without an answer may come late, by way of a link
/// that is cut or a node that is paused, but not once all has been healed for long (`news`).
fn has_newer_self(
    operations: &[GroupOperation],
    of: &GroupOperation,
    (completed, news): (Instant, Instant),
) -> bool {
    let who = &of.who;
    who.instance.is_some()
        && operations.iter().any(|other| {
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
                && other.completed.unwrap_or_else(|| news.max(other.invoked + NEWS))
                    >= began(operations, of)
        })
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

/// What is known of one member.
#[derive(Debug, Default)]
struct Word<'a> {
    /// When it was last surely heard in its generation.
    heard: Option<Instant>,
    /// The last that it was told is that it may go on, and it has asked nothing since.
    goes_on: bool,
    part: &'a [Partition],
    /// It was told that it is a member, which stood in the log by then.
    is_written: bool,
    /// Of KIP-848: the newest epoch that it was told, and its last heartbeat that was answered.
    epoch: i32,
    asked: Option<Instant>,
    /// A heartbeat since it was told that epoch has no answer, or was refused.
    is_unanswered: bool,
}

impl Word<'_> {
    /// Its time may be another than its session: it must join again, or give something up.
    fn must_move(&mut self) {
        (self.heard, self.goes_on) = (None, false);
    }

    /// Of KIP-848: it was told its epoch. A newer one stands in the log by then, and was written
    /// for its last heartbeat, unless for one before that had no answer.
    fn is_in(&mut self, epoch: i32) {
        if epoch > self.epoch {
            let written = self.asked.filter(|_| !self.is_unanswered);
            self.heard = written.max(self.heard);
            (self.epoch, self.is_unanswered) = (epoch, false);
        }
    }
}

/// From memory, a coordinator that was deposed answers heartbeats and questions for parts, too:
/// they count once every coordinator knows what it is (`words_count`). What stands in the log by
/// the time of the answer counts always, since its successor has read it, and everybody has a whole
/// session there: a commit (which is a word of a member of a classic group), that somebody has
/// become a member of KIP-848, and that it has a newer epoch.
fn heard_members_stay(
    evidence: &Evidence<'_>,
    operations: &[GroupOperation],
    violations: &mut Vec<Violation>,
) {
    let count = words_count(evidence.plan);
    let mut words: BTreeMap<(u32, &str), Word<'_>> = BTreeMap::new();
    let mut done: Vec<&GroupOperation> = operations.iter().collect();
    done.sort_by_key(|operation| operation.completed.unwrap_or(operation.invoked));
    for operation in done {
        let who = &operation.who;
        let (is_consumer, spec) = (who.by_epoch, evidence.plan.groups.get(who.group as usize));
        let is_mixed = spec.is_some_and(Group::is_mixed);
        let sure = Some(operation.invoked).filter(|invoked| *invoked >= count);
        let word = words.entry((who.group, &who.member)).or_default();
        match (&operation.call, &operation.end, operation.completed) {
            (GroupCall::Leave, ..) => word.must_move(),
            (GroupCall::Heartbeat | GroupCall::Join, GroupEnd::Unknown, _) => {
                (word.goes_on, word.is_unanswered) = (false, true);
            }
            (GroupCall::Heartbeat, GroupEnd::Done, _) => {
                word.heard = sure.or(word.heard);
                word.goes_on = true;
                word.asked = Some(operation.invoked);
            }
            (GroupCall::Join, GroupEnd::Joined { member, .. }, _) if is_consumer => {
                let word = words.entry((who.group, member)).or_default();
                let is_new = !std::mem::replace(&mut word.is_written, true);
                word.asked = Some(operation.invoked);
                word.heard = sure.or_else(|| is_new.then_some(operation.invoked)).or(word.heard);
            }
            // In a consumer group a classic member's commit is no heartbeat, as with Kafka (764).
            (GroupCall::Commit { .. }, GroupEnd::Committed, _)
                if !(is_consumer || is_mixed) && word.goes_on =>
            {
                word.heard = word.heard.max(Some(operation.invoked));
            }
            (GroupCall::Assign { .. }, GroupEnd::Assigned { partitions, .. }, _) => {
                // With KIP-848 nobody asks for a part: it comes with the answer to a heartbeat or a
                // join, which may have waited long, and is recorded when that has come. The member
                // was heard when it sent that, as above (seed 2958 of three nodes).
                if is_consumer {
                    word.is_in(who.generation);
                } else {
                    word.heard = sure.or(word.heard);
                    word.goes_on = true;
                }
                let before = std::mem::replace(&mut word.part, partitions);
                // It must give something up within the rebalance timeout, which began when it was
                // first told so, perhaps in an answer that was lost (KIP-848).
                let revokes = before.iter().any(|partition| !partitions.contains(partition));
                if revokes && (is_consumer || is_mixed) {
                    word.must_move();
                }
            }
            (_, GroupEnd::Refused(Code::RebalanceInProgress), _) => word.must_move(),
            (_, GroupEnd::Refused(Code::UnknownMemberId), Some(_)) => {
                let Some(last) = word.heard.take() else { continue };
                word.must_move();
                check_expelled(evidence, operations, (operation, last), violations);
            }
            // What was refused may be in memory, and be written later.
            (GroupCall::Heartbeat | GroupCall::Join, GroupEnd::Refused(_), _) => {
                word.is_unanswered = true;
            }
            _ => {}
        }
    }
}

/// The member is unknown to its coordinator, and was surely heard at `last`.
fn check_expelled(
    evidence: &Evidence<'_>,
    operations: &[GroupOperation],
    (operation, last): (&GroupOperation, Instant),
    violations: &mut Vec<Violation>,
) {
    let GroupOperation { who, completed: Some(completed), .. } = operation else { return };
    let spec = evidence.plan.groups.get(who.group as usize);
    let silent = completed.saturating_since(last);
    let session = spec.filter(|_| !who.by_epoch).map_or(SESSION, |spec| spec.session);
    // A consumer group knows of an instance's newest self alone (as Kafka's): a commit of the self
    // before is nobody's (ten seeds of three nodes, 196 the first).
    let knows_newest = who.by_epoch || spec.is_some_and(Group::is_mixed);
    let until = (*completed, news_of_healing(evidence.plan));
    let is_succeeded = knows_newest && has_newer_self(operations, operation, until);
    if silent < session - session / 50 && !is_succeeded {
        let sentence = format!(
            "{who} is unknown {} ms after it was heard; its session is {} ms",
            silent.as_millis(),
            session.as_millis()
        );
        blame(violations, "group-expelled", who.group, None, sentence);
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
    fn a_join_without_an_answer_does_not_come_for_ever() {
        let fenced = |pause: u64| {
            let mut story = Story::of_nodes("eager", 3);
            story.unanswered("i").pause(pause).joined("i", "a", 1).assigned_as("i", "a", 1, &[0]);
            story.refused_as("i", "a", Code::FencedInstanceId);
            story.blamed()
        };
        assert_eq!(fenced(1000), [""; 0], "it may have come in between");
        assert_eq!(fenced(13_000), ["group-fenced"], "all has been healed for three seconds");
        let mut story = Story::of_nodes("eager", 3);
        story.pause(13_000).unanswered("i").pause(1000).joined("i", "a", 1);
        story.assigned_as("i", "a", 1, &[0]).refused_as("i", "a", Code::FencedInstanceId);
        assert_eq!(story.blamed(), [""; 0], "that was a second ago");
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

    /// The same hole as that of seed 4545 of three nodes, which a committing client met.
    #[test]
    fn a_coordinator_that_was_deposed_may_answer_heartbeats() {
        let expelled = |tell: &dyn Fn(&mut Story), at: u64| {
            let mut story = Story::of_nodes("eager", 3);
            story.pause(at).assigned("a", 1, &[0]);
            tell(&mut story);
            story.pause(500).refused("a", 1, Code::UnknownMemberId);
            story.blamed()
        };
        let beats = |story: &mut Story| {
            story.heard("a", 1);
        };
        assert_eq!(expelled(&beats, 0), [""; 0], "its successor has heard nothing");
        assert_eq!(expelled(&beats, 15_000), ["group-expelled"], "all is healed");
        let commits = |story: &mut Story| {
            story.heard("a", 1).committed("a", 1, 0, 5);
        };
        assert_eq!(expelled(&commits, 0), ["group-expelled"], "its successor has read it");
        let moves = |story: &mut Story| {
            story.refused("a", 1, Code::RebalanceInProgress).committed("a", 1, 0, 5);
        };
        assert_eq!(expelled(&moves, 0), [""; 0], "it did not join in time");
        let mut story = Story::of_nodes("eager", 1);
        story.heard("a", 1).pause(500).refused("a", 1, Code::UnknownMemberId);
        assert_eq!(story.blamed(), ["group-expelled"], "nobody but the one node has answered");
    }

    #[test]
    fn to_become_a_member_is_written() {
        let mut story = Story::of_nodes("consumer", 3);
        story.joined_by(1, "a").pause(500).refused("a", 1, Code::UnknownMemberId);
        assert_eq!(story.blamed(), ["group-expelled"]);
        let mut story = Story::of_nodes("consumer", 3);
        story.joined_by(1, "a").pause(3000).joined_by(1, "a").pause(500);
        story.refused("a", 1, Code::UnknownMemberId);
        assert_eq!(story.blamed(), [""; 0], "it may have been one all the time, in memory");
    }

    #[test]
    fn a_newer_epoch_is_written_for_the_heartbeat_that_is_told_it() {
        let expelled = |tell: &dyn Fn(&mut Story)| {
            let mut story = Story::of_nodes("consumer", 3);
            story.joined_by(1, "a").assigned("a", 1, &[0]).pause(3000);
            tell(&mut story);
            story.pause(500).refused("a", 2, Code::UnknownMemberId);
            story.blamed()
        };
        let lives = |story: &mut Story| {
            story.heard("a", 1);
        };
        assert_eq!(expelled(&lives), [""; 0], "from memory");
        let moves = |story: &mut Story| {
            story.heard("a", 1).assigned("a", 2, &[0, 1]);
        };
        assert_eq!(expelled(&moves), ["group-expelled"], "its successor has read it");
        let stays = |story: &mut Story| {
            story.heard("a", 1).assigned("a", 1, &[0, 1]);
        };
        assert_eq!(expelled(&stays), [""; 0], "that epoch was written long before");
        let gives = |story: &mut Story| {
            story.heard("a", 1).assigned("a", 2, &[1]);
        };
        assert_eq!(expelled(&gives), [""; 0], "it has less time to give 0 up");
        let late = |story: &mut Story| {
            story.unheard("a", 1).pause(3000).heard("a", 1).assigned("a", 2, &[0, 1]);
        };
        assert_eq!(expelled(&late), [""; 0], "it may have been written for the one before");
        let refused = |story: &mut Story| {
            story.refused("a", 1, Code::CoordinatorNotAvailable).pause(3000);
            story.heard("a", 1).assigned("a", 2, &[0, 1]);
        };
        assert_eq!(expelled(&refused), [""; 0], "so it may after a refusal");
    }

    #[test]
    fn in_a_migrated_group_the_old_self_of_an_instance_is_nobody() {
        let expelled = |instance: &str| {
            let mut story = Story::new("eager statics=1 migrate=1/2");
            story.joined("g0-i0", "a", 1).assigned_as("g0-i0", "a", 1, &[0]).pause(100);
            story.speak_by_epoch(true).joined(instance, "c7-1", 2);
            story.speak_by_epoch(false).refused_as("g0-i0", "a", Code::UnknownMemberId);
            story.blamed()
        };
        assert_eq!(expelled("g0-i0"), [""; 0], "its newer self is the member");
        assert_eq!(expelled("g0-i1"), ["group-expelled"], "that is another instance");
    }

    #[test]
    fn a_commit_is_a_heartbeat_in_classic_groups_alone() {
        let expelled = |protocol: &str| {
            let mut story = Story::new(protocol);
            story.assigned("a", 1, &[0]).heard("a", 1).pause(900).committed("a", 1, 0, 5);
            story.pause(500).refused("a", 1, Code::UnknownMemberId);
            story.blamed()
        };
        assert_eq!(expelled("eager session=1s"), ["group-expelled"]);
        assert_eq!(expelled("eager session=1s migrate=1/2"), [""; 0]);
    }

    #[test]
    fn in_a_migrated_group_members_have_their_own_sessions() {
        let story = || Story::new("eager migrate=1/2 session=1s");
        let mut story_of_epochs = story();
        story_of_epochs.speak_by_epoch(true).joined_by(1, "a").pause(1500);
        story_of_epochs.refused("a", 1, Code::UnknownMemberId);
        assert_eq!(story_of_epochs.blamed(), ["group-expelled"], "the nodes' is two seconds");
        let mut classic = story();
        classic.assigned("a", 1, &[0]).pause(1500).refused("a", 1, Code::UnknownMemberId);
        assert_eq!(classic.blamed(), [""; 0], "its own is one");
        let mut moves = story();
        moves.assigned("a", 1, &[0, 1]).assigned("a", 1, &[0]).pause(500);
        moves.refused("a", 1, Code::UnknownMemberId);
        assert_eq!(moves.blamed(), [""; 0], "it has had its time to give 1 up");
    }
}
