//! Whether anybody could be elected who lacks what is committed. That nobody can be is what makes
//! a quorum safe; here it is asked of what the nodes have, without waiting for an election.

use quorate_core::quorum::interface::{Member, Position, Recovered};

/// What a member has, in each of the states in which it may be found next: with what is on its
/// disk for certain, if its power fails, and with all that it has asked for.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    pub member: Member,
    pub states: [&'a Recovered; 2],
}

/// A member that lacks the entry at `committed` and whom a majority of the voters that it knows
/// would elect, as far as their logs are concerned: a vote depends on nothing else that lasts.
/// Whose disk is gone gives no vote.
///
/// Each of the states is met if that node crashes, or does not, so that any mixture of them must
/// be safe. Raft's leader completeness.
pub fn find(holdings: &[Holding<'_>], committed: Position) -> Option<Member> {
    let lacks = |state: &Recovered| {
        !state.log.has(committed) && state.snapshot.position.index < committed.index
    };
    let states = holdings.iter().flat_map(|holding| {
        let distinct = if std::ptr::eq(holding.states[0], holding.states[1]) { 1 } else { 2 };
        holding.states.into_iter().take(distinct).map(|state| (holding.member, state))
    });
    let mut who = states.filter(|(_, state)| lacks(state)).filter(|(member, state)| {
        let last = state.log.last();
        let votes = |voter: Member| {
            voter == *member
                || holdings.iter().filter(|holding| holding.member == voter).any(|holding| {
                    holding.states.iter().any(|own| last.is_up_to_date_with(own.log.last()))
                })
        };
        state.log.configuration().is_some_and(|voters| voters.has_majority(votes))
    });
    who.next().map(|(member, _)| member)
}

#[cfg(test)]
mod tests {
    use quorate_core::id::NodeId;
    use quorate_core::quorum::interface::{
        Configuration, DirectoryId, Entry, HardState, Index, LogOp, Payload, Term,
    };

    use super::*;

    fn member(node: i32) -> Member {
        Member { node: NodeId(node), directory: DirectoryId::default() }
    }

    /// A log of entries of these terms behind one that says who votes.
    fn state(voters: i32, terms: &[u64]) -> Recovered {
        let voters = (1..=voters).map(member).collect();
        let first = Payload::Configuration(Configuration { voters, ..Configuration::default() });
        let first = Entry { index: Index(1), term: Term::ZERO, payload: first };
        let rest = (2..).zip(terms).map(|(index, term)| Entry {
            index: Index(index),
            term: Term(*term),
            payload: Payload::LeaderChange,
        });
        let mut state = Recovered::default();
        let term = Term(terms.iter().copied().max().unwrap_or(0));
        state.apply(&LogOp::HardState(HardState { term, ..HardState::default() }));
        state.apply(&LogOp::Append { entries: [first].into_iter().chain(rest).collect() });
        state
    }

    fn found(states: &[Recovered], committed: (u64, u64)) -> Option<i32> {
        let holdings = (1..).zip(states);
        let holdings: Vec<Holding<'_>> = holdings
            .map(|(node, state)| Holding { member: member(node), states: [state, state] })
            .collect();
        let committed = Position::new(Index(committed.0), Term(committed.1));
        find(&holdings, committed).map(|member| member.node.0)
    }

    #[test]
    fn figure_8() {
        // S1 led in 2 and 4, S5 in 3; the entry of term 2 is on three of five.
        let early = [&[2][..], &[2], &[2], &[], &[3]].map(|terms| state(5, terms));
        assert_eq!(found(&early, (2, 2)), Some(5), "an old term is counted");
        let late = [&[2, 4][..], &[2, 4], &[2, 4], &[], &[3]].map(|terms| state(5, terms));
        assert_eq!(found(&late, (3, 4)), None);
        assert_eq!(found(&late[..4], (3, 4)), None, "a disk is gone");
    }

    #[test]
    fn two_majorities_that_do_not_meet() {
        // 2 and 3 have committed as if they were two of three; 1 still knows of five.
        let three = || state(3, &[2]);
        let logs = [state(5, &[1]), three(), three(), state(5, &[]), state(5, &[])];
        assert_eq!(found(&logs, (2, 2)), Some(1));
        let logs = [state(3, &[1]), three(), three()];
        assert_eq!(found(&logs, (2, 2)), None);
    }
}
