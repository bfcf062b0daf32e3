//! Which vote is given back next: a node whose disk was lost comes back as somebody else, who
//! follows without a vote (KIP-853), and would leave the quorum one voter short for ever. A pure
//! rule over what the leader knows; the changes are `membership`'s.

use super::interface::{Change, Configuration, Member, ReplicaStatus, Status};
use crate::id::NodeId;

/// The one change that is due, if one is: a node gets its kept vote back, or, if there is none to
/// be given, the vote of a lost disk is kept for the disk that its node has now. `current` says
/// which disk a node is registered with; who lacks more than `behind_max` entries waits.
///
/// First the dead voter goes, then the new one comes: the other way round there would be a moment
/// in which one voter more must be there than before. What goes is silent, and no change is made
/// that leaves less than a majority of voters that are there and lack little.
pub fn next_change(
    status: &Status,
    current: impl Fn(NodeId) -> Option<Member>,
    behind_max: u64,
) -> Option<Change> {
    if !status.is_leading {
        return None;
    }
    let voters = &status.configuration;
    let known = |member| status.replicas.iter().find(move |replica| replica.member == member);
    let behind = |replica: &ReplicaStatus| status.last.index.0.saturating_sub(replica.matched.0);
    let is_ready = |member| {
        known(member).is_some_and(|replica| replica.is_heard && behind(replica) <= behind_max)
    };
    let works = |next: &Configuration| next.has_majority(is_ready);
    let with = |member| {
        let mut next = voters.clone();
        next.voters.insert(member);
        works(&next).then_some(Change::AddVoter(member))
    };
    let without = |voter: Member| {
        let mut next = voters.clone();
        next.voters.remove(&voter);
        works(&next).then_some(Change::KeepVote(voter))
    };
    let mut returned = voters.kept.iter().filter_map(|node| current(*node));
    let back = returned.find_map(|member| if is_ready(member) { with(member) } else { None });
    let is_lost = |voter: &Member| {
        let is_silent = !known(*voter).is_some_and(|replica| replica.is_heard);
        let follows =
            |member: Member| member != *voter && !voters.is_voter(member) && is_ready(member);
        is_silent && current(voter.node).is_some_and(follows)
    };
    back.or_else(|| voters.voters.iter().copied().filter(is_lost).find_map(without))
}

#[cfg(test)]
mod tests {
    use super::super::interface::{DirectoryId, Index, Position, Term};
    use super::*;

    fn member(node: i32, disk: u8) -> Member {
        Member { node: NodeId(node), directory: DirectoryId([disk; 16]) }
    }

    /// Node 1 leads; `others` are (who, matched, heard). Nodes have the disks of `others`' last.
    fn due(voters: &[Member], kept: &[i32], others: &[(Member, u64, bool)]) -> Option<Change> {
        let voters = Configuration {
            voters: voters.iter().copied().collect(),
            kept: kept.iter().copied().map(NodeId).collect(),
            ..Configuration::default()
        };
        let me = (member(1, 1), 10, true);
        let replicas = [me].into_iter().chain(others.iter().copied());
        let replicas = replicas.map(|(member, matched, is_heard)| {
            let is_voter = voters.is_voter(member);
            ReplicaStatus { member, is_voter, matched: Index(matched), is_heard }
        });
        let status = Status {
            me: member(1, 1),
            term: Term(1),
            leader: Some(NodeId(1)),
            is_leading: true,
            committed: Index(10),
            last: Position::new(Index(10), Term(1)),
            snapshot: Index(0),
            replicas: replicas.collect(),
            configuration: voters,
            founding: None,
        };
        let current = |node| {
            let all = [me].into_iter().chain(others.iter().copied());
            all.map(|(member, ..)| member).rfind(|member| member.node == node)
        };
        next_change(&status, current, 2)
    }

    #[test]
    fn the_dead_go_first_and_then_the_new_ones_come() {
        let three = [member(1, 1), member(2, 2), member(3, 3)];
        let third = (member(3, 3), 10, true);
        let dead = (member(2, 2), 10, false);
        let keep = Some(Change::KeepVote(member(2, 2)));
        assert_eq!(due(&three, &[], &[dead, (member(2, 7), 8, true), third]), keep);
        assert_eq!(due(&three, &[], &[(member(2, 7), 8, true), third]), keep);
        assert_eq!(due(&three, &[], &[dead, (member(2, 7), 7, true), third]), None, "behind");
        assert_eq!(due(&three, &[], &[dead, (member(2, 7), 8, false), third]), None, "silent");
        assert_eq!(due(&three, &[], &[dead, third]), None, "nobody in its place");
        let alive = (member(2, 2), 10, true);
        assert_eq!(due(&three, &[], &[alive, (member(2, 7), 9, true), third]), None, "two of it");
        let two = [member(1, 1), member(3, 3)];
        let back = Some(Change::AddVoter(member(2, 7)));
        assert_eq!(due(&two, &[2], &[(member(2, 7), 9, true), third]), back);
        assert_eq!(due(&two, &[2], &[(member(2, 7), 7, true), third]), None);
        assert_eq!(due(&two, &[], &[(member(2, 7), 9, true), third]), None, "it was removed");
    }

    #[test]
    fn no_change_leaves_less_than_a_majority() {
        let three = [member(1, 1), member(2, 2), member(3, 3)];
        let new = (member(2, 7), 10, true);
        let silent = (member(3, 3), 10, false);
        assert_eq!(due(&three, &[], &[new, silent]), None, "one of two");
        assert_eq!(due(&three, &[], &[new, (member(3, 3), 5, true)]), None, "one lacks much");
        let two = [member(1, 1), member(3, 3)];
        // Two of three would be there; of the two one is missing, so that nothing is decided.
        let back = Some(Change::AddVoter(member(2, 7)));
        assert_eq!(due(&two, &[2], &[new, silent]), back);
        let four = [member(1, 1), member(3, 3), member(4, 4), member(5, 5)];
        assert_eq!(due(&four, &[2], &[new, silent]), None, "two of five");
        let five = [four.as_slice(), &[member(2, 2)]].concat();
        let fourth = (member(4, 4), 10, true);
        let enough = [new, (member(3, 3), 10, true), fourth];
        assert_eq!(due(&five, &[], &enough), Some(Change::KeepVote(member(2, 2))));
        assert_eq!(due(&five, &[], &enough[..2]), None, "two of four");
    }
}
