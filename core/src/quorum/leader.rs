//! What a leader keeps beside its log: who follows how far, who waits for an answer. It decides
//! what is committed. How entries travel is `replication`'s.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::interface::{Effect, Entry, Index, Member, Outcome, Payload, Position, Refusal, Term};
use super::membership::Transfer;
use super::progress::Progress;
use super::read::Reads;
use super::{Quorum, State, refuse};
use crate::id::RequestId;
use crate::time::{Instant, Now};
use crate::{mutant, reached};

/// One leadership. It ends with the term, and leaves nothing behind.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    /// Everybody else who follows: voters and observers.
    pub(super) progress: BTreeMap<Member, Progress>,
    /// Its `LeaderChange`: what came before is committed with it, not by counting.
    pub(super) first: Index,
    pub(super) heartbeat_at: Instant,
    /// Rises with each question to all whether this node still leads.
    pub(super) round: u64,
    /// Who is answered once the entry is committed.
    pub(super) proposals: BTreeMap<Index, RequestId>,
    pub(super) reads: Reads,
    pub(super) transfer: Option<Transfer>,
    pub(super) uncommitted_bytes: u64,
}

impl Leader {
    pub(super) fn deadline(&self) -> Instant {
        let transfer = self.transfer.as_ref().map(|transfer| transfer.until);
        transfer.map_or(self.heartbeat_at, |until| until.min(self.heartbeat_at))
    }

    pub(super) fn requests(&self) -> usize {
        self.proposals.len() + self.reads.len()
    }

    pub(super) fn end_transfer(&mut self, outcome: Outcome, effects: &mut Vec<Effect>) {
        if let Some(Transfer { request, .. }) = self.transfer.take() {
            effects.push(Effect::Reply { request, outcome });
        }
    }

    /// Nobody waits for this leadership any more.
    pub(super) fn refuse_all(mut self, refusal: Refusal, effects: &mut Vec<Effect>) {
        let failed = match refusal {
            Refusal::Storage => Refusal::Storage,
            _ => Refusal::TransferFailed,
        };
        self.end_transfer(Outcome::Refused(failed), effects);
        self.proposals.into_values().for_each(|request| refuse(request, refusal, effects));
        self.reads.drain().for_each(|request| refuse(request, refusal, effects));
    }
}

impl Quorum {
    pub(super) fn become_leader(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let last = self.log.last().index;
        let progress = self.other_voters().into_iter();
        let progress = progress.map(|voter| (voter, Progress::new(last, now.monotonic)));
        self.state = State::Leader(Box::new(Leader {
            progress: progress.collect(),
            first: last.next(),
            heartbeat_at: now.monotonic + self.limits.heartbeat_interval,
            round: 0,
            proposals: BTreeMap::new(),
            reads: Reads::default(),
            transfer: None,
            uncommitted_bytes: self.log.bytes_behind(self.committed),
        }));
        self.following = super::Following::default();
        self.append_as_leader(Payload::LeaderChange, effects);
        self.replicate_to_all(effects);
    }

    /// Puts an entry of this term behind the log; others get it when they are next sent to.
    pub(super) fn append_as_leader(
        &mut self,
        payload: Payload,
        effects: &mut Vec<Effect>,
    ) -> Index {
        let index = self.log.last().index.next();
        let entry = Entry { index, term: self.hard.term, payload };
        if let State::Leader(leader) = &mut self.state {
            leader.uncommitted_bytes += entry.bytes();
        }
        self.append(vec![entry], effects);
        index
    }

    pub(super) fn on_propose(
        &mut self,
        now: Now,
        request: RequestId,
        term: Term,
        data: Bytes,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(refusal) = self.why_not_propose(term, &data) {
            refuse(request, refusal, effects);
            return;
        }
        let index = self.append_as_leader(Payload::Data(data), effects);
        if let State::Leader(leader) = &mut self.state {
            leader.proposals.insert(index, request);
        }
        self.replicate_to_all(effects);
        self.advance_committed(now, effects);
    }

    fn why_not_propose(&self, term: Term, data: &Bytes) -> Option<Refusal> {
        let State::Leader(leader) = &self.state else {
            return Some(Refusal::NotLeader { leader: self.leader() });
        };
        if term != self.hard.term {
            return Some(Refusal::NotLeader { leader: self.leader() });
        }
        if leader.transfer.is_some() {
            return Some(Refusal::Transferring);
        }
        let (bytes, bytes_max) = (data.len() as u64, self.limits.entry_bytes_max);
        if bytes > bytes_max {
            return Some(Refusal::TooLarge { bytes, bytes_max });
        }
        let is_full = leader.uncommitted_bytes > 0
            && leader.uncommitted_bytes + bytes > self.limits.uncommitted_bytes_max;
        (is_full || leader.requests() >= self.limits.requests_max).then_some(Refusal::Busy)
    }

    /// Commits what a majority has on its disks, by an entry of this term: an older one, though
    /// a majority may have it, can still be overwritten. Raft's figure 8.
    pub(super) fn advance_committed(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Some(reached) = self.reached_by_majority() else { return };
        if reached <= self.committed {
            return;
        }
        // zoo B1
        if self.log.term(reached) != Some(self.hard.term) && !mutant!("old-term-commit-by-count") {
            reached!("old-term-is-not-counted");
            return;
        }
        let newly = self.log.slice(self.committed.next(), reached, u64::MAX);
        self.committed = reached;
        if let State::Leader(leader) = &mut self.state {
            let bytes: u64 = newly.iter().map(Entry::bytes).sum();
            leader.uncommitted_bytes = leader.uncommitted_bytes.saturating_sub(bytes);
        }
        self.deliver(now, effects);
        self.nudge_all(effects);
    }

    fn reached_by_majority(&self) -> Option<Index> {
        let (State::Leader(leader), Some(voters)) = (&self.state, self.configuration()) else {
            return None;
        };
        // A leader is no exception: what its disk does not have, it does not have.
        let mut own = self.disk.durable_end();
        // zoo B5
        if mutant!("leader-counts-unflushed-noop") && own < leader.first {
            own = leader.first;
        }
        let matched = |member: Member| {
            leader.progress.get(&member).map_or(Index::ZERO, |progress| progress.matched)
        };
        // zoo C2: a leader that removes itself must not count itself.
        if mutant!("removed-leader-counts-itself") && !voters.is_voter(self.setup.me) {
            let mut all: Vec<Index> = voters.voters.iter().map(|voter| matched(*voter)).collect();
            all.push(own);
            all.sort_unstable();
            return Some(all[all.len() - voters.majority()]);
        }
        voters.reached_by_majority(
            |member| {
                if member == self.setup.me { own } else { matched(member) }
            },
        )
    }

    /// Answers whose entries the application has been given; steps down if it has been removed.
    pub(super) fn answer_delivered(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let State::Leader(leader) = &mut self.state else { return };
        let waiting = leader.proposals.split_off(&self.delivered.next());
        for (index, request) in std::mem::replace(&mut leader.proposals, waiting) {
            let term = self.hard.term;
            let outcome = Outcome::Committed { position: Position::new(index, term) };
            effects.push(Effect::Reply { request, outcome });
        }
        self.confirm_reads(now, effects);
        if !self.is_voter() && self.log.configuration_index() <= self.delivered {
            reached!("removed-leader-steps-down");
            self.hand_over(now, effects);
        }
    }

    pub(super) fn on_read(&mut self, now: Now, request: RequestId, effects: &mut Vec<Effect>) {
        let hint = self.leader();
        let State::Leader(leader) = &mut self.state else {
            refuse(request, Refusal::NotLeader { leader: hint }, effects);
            return;
        };
        if leader.requests() >= self.limits.requests_max {
            refuse(request, Refusal::Busy, effects);
            return;
        }
        leader.reads.push(request);
        self.confirm_reads(now, effects);
    }

    /// Answers reads that a majority has confirmed, and begins the next round if others wait. A
    /// leader that has committed nothing of its own term does not know yet what is committed.
    pub(super) fn confirm_reads(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let State::Leader(leader) = &self.state else { return };
        if leader.reads.len() == 0 {
            return;
        }
        let confirmed = self.configuration().and_then(|voters| {
            voters.reached_by_majority(|member| match leader.progress.get(&member) {
                Some(progress) => progress.round,
                None if member == self.setup.me => leader.round,
                None => 0,
            })
        });
        // zoo B8
        let is_in_charge = self.is_in_charge(leader) || mutant!("read-index-before-first-commit");
        let State::Leader(leader) = &mut self.state else { return };
        while let Some((request, through)) =
            leader.reads.confirm(confirmed.unwrap_or(0), self.delivered)
        {
            effects.push(Effect::Reply { request, outcome: Outcome::Readable { through } });
        }
        if leader.reads.want_round() && is_in_charge {
            self.begin_round(now, effects);
        }
    }

    /// Asks everybody whether this node still leads; answers to older questions do not count.
    fn begin_round(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let State::Leader(leader) = &mut self.state else { return };
        // zoo B9
        if !mutant!("read-index-ctx-reused") {
            leader.round += 1;
        }
        leader.reads.begin(leader.round, self.committed);
        self.heartbeat_all(now, effects);
        // A voter that is alone needs nobody's word.
        self.confirm_reads(now, effects);
    }

    pub(super) fn on_leader_tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let State::Leader(leader) = &mut self.state else { return };
        if leader.transfer.as_ref().is_some_and(|transfer| transfer.until <= now.monotonic) {
            reached!("transfer-takes-too-long");
            leader.end_transfer(Outcome::Refused(Refusal::TransferFailed), effects);
        }
        if leader.heartbeat_at > now.monotonic {
            return;
        }
        leader.heartbeat_at = now.monotonic + self.limits.heartbeat_interval;
        if !self.hears_majority(now) {
            reached!("leader-hears-no-majority");
            self.step_down(now, Refusal::Unknown, effects);
            return;
        }
        self.forget_silent_observers(now);
        let is_in_charge = matches!(&self.state, State::Leader(l) if self.is_in_charge(l));
        if let State::Leader(leader) = &mut self.state {
            leader.round += 1;
            if is_in_charge {
                leader.reads.begin(leader.round, self.committed);
            }
        }
        self.heartbeat_all(now, effects);
        self.call_successor(effects);
        self.confirm_reads(now, effects);
    }

    /// Whether a majority answered within an election timeout.
    fn hears_majority(&self, now: Now) -> bool {
        let (State::Leader(leader), Some(voters)) = (&self.state, self.configuration()) else {
            return false;
        };
        voters.has_majority(|member| {
            member == self.setup.me
                || leader.progress.get(&member).is_some_and(|progress| {
                    now.monotonic.saturating_since(progress.heard_at) < self.limits.election_timeout
                })
        })
    }

    pub(super) fn on_cancelled(&mut self, request: RequestId) {
        if let State::Leader(leader) = &mut self.state {
            leader.proposals.retain(|_, waiting| *waiting != request);
            leader.reads.cancel(request);
            if leader.transfer.as_ref().is_some_and(|transfer| transfer.request == request) {
                leader.transfer = None;
            }
        }
    }
}
