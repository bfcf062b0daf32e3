//! How a leader's entries travel: what is sent to whom, and what the answers say. Nothing is
//! sent twice without a reason, and anything may be.

use super::interface::{Body, Effect, Index, Member, Position};
use super::leader::Leader;
use super::progress::{Flow, Progress};
use super::{Quorum, State};
use crate::reached;
use crate::time::Now;

impl Quorum {
    pub(super) fn replicate_to_all(&mut self, effects: &mut Vec<Effect>) {
        self.followers().into_iter().for_each(|follower| self.replicate(follower, effects));
    }

    fn followers(&self) -> Vec<Member> {
        match &self.state {
            State::Leader(leader) => leader.progress.keys().copied().collect(),
            _ => Vec::new(),
        }
    }

    pub(super) fn leading(&mut self) -> Option<&mut Leader> {
        match &mut self.state {
            State::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    fn progress(&mut self, of: Member) -> Option<&mut Progress> {
        self.leading()?.progress.get_mut(&of)
    }

    /// Sends what the window of `to` has room for.
    pub(super) fn replicate(&mut self, to: Member, effects: &mut Vec<Effect>) {
        let last = self.log.last().index;
        loop {
            let State::Leader(leader) = &mut self.state else { return };
            let round = leader.round;
            let Some(progress) = leader.progress.get_mut(&to) else { return };
            if !progress.may_send(last, &self.limits) {
                return;
            }
            let before = progress.next.previous();
            let Some(term) = self.log.term(before) else {
                return self.begin_snapshot(to, effects);
            };
            let entries = self.log.slice(progress.next, last, self.limits.append_bytes_max);
            progress.on_sent(&entries, self.committed);
            let previous = Position::new(before, term);
            let body = Body::Append { previous, entries, committed: self.committed, round };
            self.send(to, body, effects);
        }
    }

    /// A heartbeat of the current round for everybody.
    pub(super) fn heartbeat_all(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let at = now.monotonic + self.limits.heartbeat_interval;
        if let Some(leader) = self.leading() {
            leader.heartbeat_at = at;
            let round = leader.round;
            leader.progress.values_mut().for_each(|progress| progress.on_heartbeat(round));
        }
        for follower in self.followers() {
            self.heartbeat(follower, effects);
        }
    }

    fn heartbeat(&mut self, to: Member, effects: &mut Vec<Effect>) {
        let State::Leader(leader) = &mut self.state else { return };
        let round = leader.round;
        let Some(progress) = leader.progress.get_mut(&to) else { return };
        let committed = self.committed.min(progress.matched);
        progress.told_committed = progress.told_committed.max(committed);
        self.send(to, Body::Heartbeat { committed, round }, effects);
    }

    /// Tells those who have nothing under way that more is committed.
    pub(super) fn nudge_all(&mut self, effects: &mut Vec<Effect>) {
        self.followers().into_iter().for_each(|follower| self.nudge(follower, effects));
    }

    fn nudge(&mut self, to: Member, effects: &mut Vec<Effect>) {
        let committed = self.committed;
        let wants = |progress: &mut Progress| {
            progress.is_quiet() && progress.told_committed < committed.min(progress.matched)
        };
        if self.progress(to).is_some_and(wants) {
            self.heartbeat(to, effects);
        }
    }

    /// Notes that `from` answered `round`. Whether it follows at all.
    fn hear(&mut self, now: Now, from: Member, round: u64) -> bool {
        let Some(progress) = self.progress(from) else { return false };
        progress.heard_at = now.monotonic;
        progress.round = progress.round.max(round);
        true
    }

    pub(super) fn on_appended(
        &mut self,
        now: Now,
        from: Member,
        through: Index,
        round: u64,
        effects: &mut Vec<Effect>,
    ) {
        if through > self.log.last().index || !self.hear(now, from, round) {
            return;
        }
        let is_news = self.progress(from).is_some_and(|progress| progress.on_matched(through));
        if is_news {
            self.advance_committed(now, effects);
        }
        self.replicate(from, effects);
        self.nudge(from, effects);
        self.call_successor(effects);
        self.confirm_reads(now, effects);
    }

    /// `refused` is the position that `from` lacks, and up to where it may agree.
    pub(super) fn on_mismatch(
        &mut self,
        now: Now,
        from: Member,
        refused: (Position, Position),
        round: u64,
        effects: &mut Vec<Effect>,
    ) {
        if !self.hear(now, from, round) {
            return;
        }
        let (previous, hint) = refused;
        let agreed = self.log.last_within(hint).index;
        if self.progress(from).is_some_and(|progress| progress.on_mismatch(previous, agreed)) {
            reached!("log-mismatch");
            self.replicate(from, effects);
        }
        self.confirm_reads(now, effects);
    }

    /// `has` is how much of the log `from` has on its disk, and in memory.
    pub(super) fn on_heartbeat_reply(
        &mut self,
        now: Now,
        from: Member,
        has: (Index, Index),
        round: u64,
        effects: &mut Vec<Effect>,
    ) {
        let (through, received) = has;
        if received.max(through) > self.log.last().index || !self.hear(now, from, round) {
            return;
        }
        let Some(progress) = self.progress(from) else { return };
        let is_news = through > progress.matched && progress.on_matched(through);
        progress.on_heartbeat_reply(round, received);
        let is_snapshot = matches!(progress.flow, Flow::Snapshot { .. });
        if is_news {
            self.advance_committed(now, effects);
        }
        if is_snapshot {
            self.send_chunk(from, effects);
        } else {
            self.replicate(from, effects);
        }
        self.call_successor(effects);
        self.confirm_reads(now, effects);
    }

    pub(super) fn on_chunk_reply(
        &mut self,
        now: Now,
        from: Member,
        received: (Position, u64),
        round: u64,
        effects: &mut Vec<Effect>,
    ) {
        if !self.hear(now, from, round) {
            return;
        }
        if let Some(Flow::Snapshot { snapshot, offset, is_waiting }) =
            self.progress(from).map(|progress| &mut progress.flow)
            && snapshot.position == received.0
            && received.1 <= snapshot.data.len() as u64
        {
            *offset = received.1;
            *is_waiting = false;
            self.send_chunk(from, effects);
        }
        self.confirm_reads(now, effects);
    }
}
