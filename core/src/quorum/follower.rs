//! What a follower does with a leader's log: it verifies, cuts what disagrees, and says what its
//! disk has. It never says more than the leader's messages have proved.

use super::interface::{Body, Effect, Entry, Index, LogOp, Member, Position};
use super::snapshot::Incoming;
use super::{Quorum, State};
use crate::time::{Instant, Now};
use crate::{mutant, reached};

/// What is known of the leader of this term, and what it was told. It ends with the term.
#[derive(Clone, Debug, Default)]
pub(super) struct Following {
    pub(super) leader: Option<Member>,
    pub(super) heard_at: Instant,
    /// Up to here this log is known to be the leader's.
    pub(super) verified: Index,
    /// The leader was told that so much is on this disk.
    acked: Index,
    /// The leader waits to hear that so much is.
    pub(super) owed: Option<Index>,
    /// The latest round of the leader's that was heard.
    pub(super) round: u64,
    pub(super) incoming: Option<Incoming>,
}

impl Quorum {
    /// `from` leads this term. False if that cannot be.
    pub(super) fn follow(
        &mut self,
        now: Now,
        from: Member,
        round: u64,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if matches!(self.state, State::Leader(_))
            || self.following.leader.is_some_and(|leader| leader != from)
        {
            return false;
        }
        self.state = State::Follower;
        self.following.leader = Some(from);
        self.following.heard_at = now.monotonic;
        self.following.round = self.following.round.max(round);
        self.election_at = self.draw_election_at(now);
        self.tell_role(effects);
        true
    }

    pub(super) fn on_append(
        &mut self,
        now: Now,
        previous: Position,
        entries: Vec<Entry>,
        committed: Index,
        effects: &mut Vec<Effect>,
    ) {
        let through = previous.index.plus(entries.len() as u64);
        if through <= self.committed || previous.index < self.log.base().index {
            // What is committed is in the log of every later leader.
            reached!("append-of-what-is-committed");
            self.following.verified = self.following.verified.max(self.committed);
        } else if self.log.has(previous) {
            self.take(entries, effects);
            let mut verified = through;
            // zoo B12: the tail that the leader has not spoken of is not the leader's.
            if mutant!("stale-match-index") {
                verified = self.log.last().index;
            }
            self.following.verified = self.following.verified.max(verified);
        } else {
            reached!("append-does-not-fit");
            let hint = self.log.last_within(previous);
            let round = self.following.round;
            if let Some(leader) = self.following.leader {
                self.send(leader, Body::Mismatch { previous, hint, round }, effects);
            }
            return;
        }
        self.raise_committed(now, committed, effects);
        self.following.owed = Some(self.following.verified);
        self.acknowledge(effects);
    }

    /// Appends what is new; where an entry disagrees, everything from there on is cut first.
    fn take(&mut self, entries: Vec<Entry>, effects: &mut Vec<Effect>) {
        let known = entries.iter().take_while(|entry| self.log.has(entry.position())).count();
        // zoo B25: a message that says nothing about the tail is no reason to cut it.
        if mutant!("truncate-committed")
            && let Some(last) = entries.last()
            && self.log.last().index > last.index
        {
            self.truncate(last.index, effects);
        }
        let mut new = entries;
        new.drain(..known);
        let Some(first) = new.first() else { return };
        if first.index <= self.log.last().index {
            reached!("divergent-tail-is-cut");
            self.truncate(first.index.previous(), effects);
        }
        self.append(new, effects);
    }

    fn truncate(&mut self, after: Index, effects: &mut Vec<Effect>) {
        assert!(after >= self.committed, "what is committed is never cut: {after}, {self}");
        self.log.truncate(after);
        self.persist(LogOp::Truncate { after }, effects);
    }

    /// Never beyond what the leader has verified: a tail of one's own may be of another lineage.
    pub(super) fn raise_committed(
        &mut self,
        now: Now,
        committed: Index,
        effects: &mut Vec<Effect>,
    ) {
        let mut through = committed.min(self.following.verified);
        // zoo B11
        if mutant!("follower-applies-past-verified") {
            through = committed.min(self.log.last().index);
        }
        if through > self.committed {
            self.committed = through;
            self.deliver(now, effects);
        }
    }

    /// Tells the leader what is on this disk and known to be its log, if that is news or asked.
    pub(super) fn acknowledge(&mut self, effects: &mut Vec<Effect>) {
        let Some(leader) = self.following.leader else { return };
        let mut durable = self.disk.durable_end();
        // zoo B4, B6, B26: three ways to speak too early.
        if mutant!("ack-before-fsync")
            || (mutant!("observer-does-not-flush") && !self.is_voter())
            || (mutant!("sync-ack-before-persist") && self.following.acked == Index::ZERO)
        {
            durable = self.log.last().index;
        }
        let through = self.following.verified.min(durable);
        let is_asked = self.following.owed.is_some_and(|owed| through >= owed);
        if through <= self.following.acked && !is_asked {
            return;
        }
        self.following.acked = self.following.acked.max(through);
        if is_asked {
            self.following.owed = None;
        }
        let round = self.following.round;
        self.send(leader, Body::Appended { through, round }, effects);
    }

    pub(super) fn on_heartbeat(&mut self, now: Now, committed: Index, effects: &mut Vec<Effect>) {
        self.raise_committed(now, committed, effects);
        let received = self.following.verified;
        // zoo B19: what is only in memory is not had.
        let through = if mutant!("unsynced-minority-rejoins") {
            received
        } else {
            received.min(self.disk.durable_end())
        };
        self.following.acked = self.following.acked.max(through);
        if let Some(leader) = self.following.leader {
            let round = self.following.round;
            self.send(leader, Body::HeartbeatReply { round, through, received }, effects);
        }
    }
}
