//! Who leads: an election is only held when it can be won (pre-vote), and not while a live
//! leader is heard. What a winner does then is `leader`'s.

use std::collections::BTreeSet;
use std::time::Duration;

use super::interface::{Body, Effect, HardState, Member, Message, Position, Refusal, Term};
use super::{Quorum, State};
use crate::time::{Instant, Now};
use crate::{mutant, reached};

impl Quorum {
    /// One to two election timeouts from now, drawn anew each time so that ties do not last.
    pub(super) fn draw_election_at(&mut self, now: Now) -> Instant {
        let timeout = u64::try_from(self.limits.election_timeout.as_micros()).unwrap_or(u64::MAX);
        let wait = self.limits.election_timeout + Duration::from_micros(self.rng.below(timeout));
        now.monotonic + wait
    }

    /// No leader was heard for long.
    pub(super) fn on_election_timeout(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.following.leader = None;
        self.state = State::Follower;
        self.election_at = self.draw_election_at(now);
        self.tell_role(effects);
        if self.may_stand() {
            self.canvass(now, effects);
        }
        // Perhaps it has no vote any more and missed the news: then the leader takes it along.
        self.ask(now, effects);
    }

    /// Whether it votes, or may still be needed: who was removed by an entry that is not committed
    /// can be the only one with a log that is long enough. Ongaro's thesis, §4.2.2.
    fn may_stand(&self) -> bool {
        let mut voters = self.log.configurations_from(self.committed);
        voters.any(|voters| voters.is_voter(self.setup.me))
    }

    /// Asks who would vote for it, which changes nothing anywhere.
    fn canvass(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.state = State::PreCandidate { granted: BTreeSet::from([self.setup.me]) };
        let body = Body::PreVote { term: self.hard.term.next(), last: self.log.last() };
        for voter in self.other_voters() {
            self.send(voter, body.clone(), effects);
        }
        self.campaign_if_welcome(now, effects);
    }

    fn campaign_if_welcome(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if let State::PreCandidate { granted } = &self.state
            && self.is_majority(granted)
        {
            self.campaign(now, false, effects);
        }
    }

    /// Votes for itself in a new term and asks the others. Its own vote counts, and theirs are
    /// asked for, once its disk has it.
    pub(super) fn campaign(&mut self, now: Now, is_transfer: bool, effects: &mut Vec<Effect>) {
        self.following = super::Following::default();
        self.election_at = self.draw_election_at(now);
        let hard = HardState {
            term: self.hard.term.next(),
            vote: Some(self.setup.me),
            cluster: self.hard.cluster,
        };
        self.persist_hard_state(hard, effects);
        self.held.clear();
        self.state = State::Candidate { granted: BTreeSet::new() };
        self.tell_role(effects);
        if self.votes_alone() {
            // Whoever is alone need not wait: what it writes as a leader comes behind its vote.
            self.become_leader(now, effects);
            return;
        }
        let body = Body::Vote { last: self.log.last(), transfer: is_transfer };
        for voter in self.other_voters() {
            self.send(voter, body.clone(), effects);
        }
    }

    pub(super) fn other_voters(&self) -> Vec<Member> {
        let voters = self.configuration().into_iter().flat_map(|voters| &voters.voters);
        voters.copied().filter(|voter| *voter != self.setup.me).collect()
    }

    fn is_majority(&self, granted: &BTreeSet<Member>) -> bool {
        // zoo C3: the last configuration in the log counts, not the last one committed.
        let voters = if mutant!("campaign-with-unapplied-config") {
            self.log.configuration_at(self.committed)
        } else {
            self.configuration()
        };
        voters.is_some_and(|voters| voters.has_majority(|voter| granted.contains(&voter)))
    }

    /// Whether a leader was heard so recently that nobody else has a reason to stand.
    fn has_live_leader(&self, now: Now) -> bool {
        // zoo C8: without this, whoever was removed deposes one leader after the other.
        if mutant!("removed-node-disrupts") {
            return false;
        }
        let follows = self.following.leader.is_some()
            && now.monotonic.saturating_since(self.following.heard_at)
                < self.limits.election_timeout;
        // A leader that lost its majority resigns by itself.
        follows || matches!(self.state, State::Leader(_))
    }

    /// A message of a newer term which must not depose anybody: a candidate while the leader
    /// lives, or the answer of one whose vote the leader does not need.
    pub(super) fn is_disturbing(&self, now: Now, message: &Message) -> bool {
        match &message.body {
            Body::Vote { transfer: false, .. } if self.has_live_leader(now) => {
                reached!("candidate-is-not-heard");
                true
            }
            Body::Append { .. }
            | Body::Heartbeat { .. }
            | Body::Chunk { .. }
            | Body::Vote { .. } => false,
            _ if matches!(self.state, State::Leader(_)) => {
                let voters = self.configuration();
                let is_stranger = voters.is_none_or(|voters| !voters.is_voter(message.from));
                if is_stranger {
                    reached!("stranger-deposes-nobody");
                }
                is_stranger
            }
            _ => false,
        }
    }

    /// Changes nothing: neither term, vote nor the time of the next election.
    pub(super) fn on_pre_vote(
        &mut self,
        now: Now,
        message: &Message,
        term: Term,
        last: Position,
        effects: &mut Vec<Effect>,
    ) {
        let mut granted = term > self.hard.term
            && last.is_up_to_date_with(self.log.last())
            && !self.has_live_leader(now);
        // zoo C4: who does not know yet that it has a vote must give it: the log is the judge.
        if mutant!("learner-refuses-vote") && !self.is_voter() {
            granted = false;
        }
        // zoo B14
        if mutant!("prevote-has-side-effects") && granted {
            self.election_at = self.draw_election_at(now);
        }
        let reply = Message {
            // Whoever has no cluster speaks in that of the question, and joins it by no answer.
            cluster: self.hard.cluster.or(message.cluster),
            from: self.setup.me,
            to: Some(message.from.directory),
            term: self.hard.term,
            body: Body::PreVoteReply { term, granted },
        };
        self.post(message.from.node, reply, effects);
    }

    /// A refusal of a newer term has brought this node into it already: it would ask in vain for
    /// ever otherwise.
    pub(super) fn on_pre_vote_reply(
        &mut self,
        now: Now,
        from: Member,
        term: Term,
        is_granted: bool,
        effects: &mut Vec<Effect>,
    ) {
        if let State::PreCandidate { granted } = &mut self.state
            && is_granted
            && term == self.hard.term.next()
        {
            granted.insert(from);
            self.campaign_if_welcome(now, effects);
        }
    }

    pub(super) fn on_vote(
        &mut self,
        now: Now,
        from: Member,
        last: Position,
        effects: &mut Vec<Effect>,
    ) {
        let is_free = self.hard.vote.is_none_or(|vote| vote == from);
        let mut granted = is_free
            && !matches!(self.state, State::Leader(_))
            && self.following.leader.is_none_or(|leader| leader == from)
            && last.is_up_to_date_with(self.log.last());
        if mutant!("learner-refuses-vote") && !self.is_voter() {
            granted = false;
        }
        if granted {
            if self.hard.vote.is_none() {
                self.persist_hard_state(HardState { vote: Some(from), ..self.hard }, effects);
            }
            self.election_at = self.draw_election_at(now);
        } else {
            reached!("vote-refused");
        }
        self.send(from, Body::VoteReply { granted }, effects);
    }

    pub(super) fn on_vote_reply(
        &mut self,
        now: Now,
        from: Member,
        is_granted: bool,
        effects: &mut Vec<Effect>,
    ) {
        if is_granted {
            self.count_vote(now, from, effects);
        } else if mutant!("adopt-vote-from-rejection") {
            // zoo B16: a refusal says nothing about whom this node has voted for.
            self.hard.vote = Some(from);
        }
    }

    pub(super) fn count_vote(&mut self, now: Now, from: Member, effects: &mut Vec<Effect>) {
        let State::Candidate { granted } = &mut self.state else { return };
        granted.insert(from);
        if let State::Candidate { granted } = &self.state
            && self.is_majority(granted)
        {
            self.become_leader(now, effects);
        }
    }

    /// The leader hands over: it sends this once, to one who has all of its log.
    pub(super) fn on_timeout_now(&mut self, now: Now, from: Member, effects: &mut Vec<Effect>) {
        if self.following.leader == Some(from) && self.may_stand() {
            reached!("called-to-lead");
            self.campaign(now, true, effects);
        }
    }

    /// Leads no more, in the same term; who waits for an answer is told `refusal`.
    pub(super) fn step_down(&mut self, now: Now, refusal: Refusal, effects: &mut Vec<Effect>) {
        if let State::Leader(leader) = std::mem::replace(&mut self.state, State::Follower) {
            leader.refuse_all(refusal, effects);
            self.election_at = self.draw_election_at(now);
        }
    }
}
