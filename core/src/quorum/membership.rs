//! Who belongs to the quorum: one voter more or less at a time, observers that come and go, and
//! leadership handed from one to another.

use super::interface::{Body, Change, Effect, Member, Payload, Refusal};
use super::progress::Progress;
use super::{Quorum, State, refuse};
use crate::id::{NodeId, RequestId};
use crate::time::{Instant, Now};
use crate::{mutant, reached};

/// A leadership that is being handed over.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) request: RequestId,
    pub(super) to: Member,
    /// Then it is given up.
    pub(super) until: Instant,
}

impl Quorum {
    pub(super) fn on_change(
        &mut self,
        now: Now,
        request: RequestId,
        change: Change,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(refusal) = self.why_not_change(now, change) {
            refuse(request, refusal, effects);
            return;
        }
        let mut configuration = self.configuration().cloned().unwrap_or_default();
        match change {
            Change::AddVoter(member) => {
                configuration.kept.remove(&member.node);
                configuration.voters.insert(member)
            }
            Change::RemoveVoter(member) => {
                configuration.kept.remove(&member.node);
                configuration.voters.remove(&member)
            }
            Change::KeepVote(member) => {
                reached!("vote-is-kept");
                configuration.kept.insert(member.node);
                configuration.voters.remove(&member)
            }
        };
        // It counts from here on, for this very entry too.
        let index = self.append_as_leader(Payload::Configuration(configuration), effects);
        if let Some(leader) = self.leading() {
            leader.proposals.insert(index, request);
        }
        self.replicate_to_all(effects);
        self.advance_committed(now, effects);
    }

    /// Two majorities of configurations that differ by one voter always meet. That holds from one
    /// change to the next only if the one before is committed, and if no older leader has another
    /// one up its sleeve: hence an entry of this term comes first. Ongaro, raft-dev, 2015.
    fn why_not_change(&self, now: Now, change: Change) -> Option<Refusal> {
        let State::Leader(leader) = &self.state else {
            return Some(Refusal::NotLeader { leader: self.leader() });
        };
        if leader.transfer.is_some() {
            return Some(Refusal::Transferring);
        }
        if !self.is_in_charge(leader) && !mutant!("single-server-change-across-terms") {
            return Some(Refusal::NotInCharge);
        }
        if self.log.configuration_index() > self.committed.max(self.snapshot.position.index) {
            return Some(Refusal::ChangePending);
        }
        if leader.requests() >= self.limits.requests_max {
            return Some(Refusal::Busy);
        }
        let voters = self.configuration()?;
        match change {
            Change::AddVoter(member) if voters.is_voter(member) => Some(Refusal::AlreadyVoter),
            Change::AddVoter(member) => self.why_not_ready(now, leader.progress.get(&member)),
            // Nobody waits for a disk of this node any more.
            Change::RemoveVoter(member) if voters.kept.contains(&member.node) => None,
            Change::RemoveVoter(member) | Change::KeepVote(member) if !voters.is_voter(member) => {
                Some(Refusal::NotVoter)
            }
            Change::RemoveVoter(_) | Change::KeepVote(_) if voters.voters.len() == 1 => {
                Some(Refusal::LastVoter)
            }
            Change::RemoveVoter(_) | Change::KeepVote(_) => None,
        }
    }

    /// A voter that lacks much would leave the quorum unable to commit until it has it.
    fn why_not_ready(&self, now: Now, observer: Option<&Progress>) -> Option<Refusal> {
        let silent = |observer: &Progress| now.monotonic.saturating_since(observer.heard_at);
        let Some(observer) =
            observer.filter(|observer| silent(observer) < self.limits.election_timeout)
        else {
            return Some(Refusal::NotObserved);
        };
        let behind = self.log.last().index.0 - observer.matched.0;
        (behind > self.limits.catch_up_entries).then_some(Refusal::NotCaughtUp { behind })
    }

    /// `asker` hears no leader: from now on it hears this one.
    pub(super) fn observe(&mut self, now: Now, asker: Member, effects: &mut Vec<Effect>) {
        let last = self.log.last().index;
        let voters = self.configuration().map_or(0, |configuration| configuration.voters.len());
        let observers_max = self.limits.observers_max;
        let Some(leader) = self.leading() else { return };
        if leader.progress.contains_key(&asker) {
            return;
        }
        // Up to one voter of them all is this node itself.
        if leader.progress.len() + 1 >= observers_max.saturating_add(voters) {
            reached!("too-many-observers");
            return;
        }
        leader.progress.insert(asker, Progress::new(last, now.monotonic));
        self.replicate(asker, effects);
    }

    pub(super) fn forget_silent_observers(&mut self, now: Now) {
        let timeout = self.limits.observer_timeout;
        let configuration = self.configuration().cloned().unwrap_or_default();
        if let Some(leader) = self.leading() {
            leader.progress.retain(|member, progress| {
                configuration.is_voter(*member)
                    || now.monotonic.saturating_since(progress.heard_at) < timeout
            });
        }
    }

    pub(super) fn on_transfer(
        &mut self,
        now: Now,
        request: RequestId,
        to: Option<NodeId>,
        effects: &mut Vec<Effect>,
    ) {
        let until = now.monotonic + self.limits.election_timeout;
        let refusal = match &self.state {
            State::Leader(leader) if leader.transfer.is_some() => Some(Refusal::Transferring),
            State::Leader(_) => None,
            _ => Some(Refusal::NotLeader { leader: self.leader() }),
        };
        if let Some(refusal) = refusal {
            refuse(request, refusal, effects);
            return;
        }
        let Some(to) = self.successor(to) else {
            refuse(request, Refusal::NotVoter, effects);
            return;
        };
        if let Some(leader) = self.leading() {
            leader.transfer = Some(Transfer { request, to, until });
        }
        self.call_successor(effects);
    }

    /// The voter that has most of the log, among those on `node` if one is named.
    fn successor(&self, node: Option<NodeId>) -> Option<Member> {
        let State::Leader(leader) = &self.state else { return None };
        let voters = self.other_voters().into_iter();
        voters
            .filter(|voter| node.is_none_or(|node| voter.node == node))
            .max_by_key(|voter| leader.progress.get(voter).map(|progress| progress.matched))
    }

    /// Calls the successor to lead once it has all of the log; again with each heartbeat.
    pub(super) fn call_successor(&mut self, effects: &mut Vec<Effect>) {
        let last = self.log.last().index;
        let Some(leader) = self.leading() else { return };
        let Some(to) = leader.transfer.as_ref().map(|transfer| transfer.to) else { return };
        if leader.progress.get(&to).is_some_and(|progress| progress.matched == last) {
            self.send(to, Body::TimeoutNow, effects);
        }
    }

    /// Leads no more, and lets the next one begin without waiting for a timeout.
    pub(super) fn hand_over(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if let Some(to) = self.successor(None) {
            self.send(to, Body::TimeoutNow, effects);
        }
        self.step_down(now, Refusal::Unknown, effects);
        self.tell_role(effects);
    }

    pub(super) fn on_resign(&mut self, now: Now, effects: &mut Vec<Effect>) {
        // zoo B30: an application that gave up behind a leader that did not is no leader at all.
        if !mutant!("app-resigns-raft-does-not") && self.leading().is_some() {
            reached!("application-resigns");
            self.hand_over(now, effects);
            // Others have the first word.
            self.election_at = self.election_at + self.limits.election_timeout;
        }
    }
}
