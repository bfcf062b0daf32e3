//! Whether a leader still leads: what it says for good on the strength of its own log waits until
//! every replica that might have taken its place has said, since it was asked, that it has not.

use super::interface::{Acks, Confirm, Confirmed, Effect, Message, Outcome, Produce, Refusal};
use super::role::Role;
use super::waiting::{Kind, Release, Waiter};
use super::{Replica, reply};
use crate::id::{NodeId, RequestId};
use crate::reached;
use crate::time::Instant;

impl Replica {
    /// Refuses what does not follow on this log. A deposed leader that has not heard of it may
    /// lack what its successor has acknowledged since, and the producer would believe it.
    pub(super) fn refuse_once_confirmed(
        &mut self,
        produce: &Produce,
        refusal: Refusal,
        effects: &mut Vec<Effect>,
    ) {
        let asked = (produce.request, produce.until);
        self.answer_once_confirmed(asked, Kind::Refuse { refusal }, effects);
    }

    /// Says that it leads, for a coordinator beside it that is about to say what is final.
    pub(super) fn on_still_leads(
        &mut self,
        request: RequestId,
        until: Instant,
        effects: &mut Vec<Effect>,
    ) {
        match self.admit(Acks::None) {
            Ok(()) => self.answer_once_confirmed((request, until), Kind::Leads, effects),
            Err(refusal) => reply(request, Outcome::Refused(refusal), effects),
        }
    }

    /// `kind` does not depend on how far the log has come.
    fn answer_once_confirmed(
        &mut self,
        (request, until): (RequestId, Instant),
        kind: Kind,
        effects: &mut Vec<Effect>,
    ) {
        let Role::Leading(leading) = &mut self.role else { return };
        leading.round += 1;
        let round = leading.round;
        if self.confirmed() >= round {
            reply(request, kind.outcome(self.durable_start), effects);
            return;
        }
        reached!("refusal-waits-for-a-word");
        let release = Release::Confirmed(round);
        self.waiting.insert(request, Waiter { release, until, kind });
        let members: Vec<NodeId> = self.in_sync.ends().map(|(node, _)| node).collect();
        for node in members.into_iter().filter(|node| *node != self.id) {
            self.send_confirm(node, effects);
        }
    }

    /// The newest round that all who are in sync, and all who may be, have answered: none of them
    /// led in a newer epoch when it began, and nobody else could. While too few are in sync, one
    /// that is not may lead next.
    pub(super) fn confirmed(&self) -> u64 {
        let Role::Leading(leading) = &self.role else { return 0 };
        if !self.commits() {
            return 0;
        }
        let others = self.in_sync.ends().filter(|(node, _)| *node != self.id);
        let heard = |(node, _)| leading.followers.get(&node).map_or(0, |known| known.round);
        others.map(heard).min().unwrap_or(u64::MAX)
    }

    fn send_confirm(&self, to: NodeId, effects: &mut Vec<Effect>) {
        let Role::Leading(leading) = &self.role else { return };
        let (leader_epoch, round) = (self.leader_epoch(), leading.round);
        let message = Message::Confirm(Confirm { leader_epoch, round });
        effects.push(Effect::Send { to, message });
    }

    /// There is a new connection to a follower, or it follows anew, or has become a member: a
    /// question may have been lost, or never was asked of it.
    pub(super) fn confirm_again(&self, node: NodeId, effects: &mut Vec<Effect>) {
        let Role::Leading(leading) = &self.role else { return };
        let is_behind = leading.followers.get(&node).is_some_and(|it| it.round < leading.round);
        if is_behind && self.waiting.awaits_word() {
            reached!("asked-again-whether-it-leads");
            self.send_confirm(node, effects);
        }
    }

    /// There are other members, whose word is awaited as well: who came is asked.
    pub(super) fn confirm_members_again(&self, effects: &mut Vec<Effect>) {
        for (node, _) in self.in_sync.ends() {
            self.confirm_again(node, effects);
        }
    }

    /// Whoever follows in this epoch leads in none that is newer.
    pub(super) fn on_confirm(&self, from: NodeId, said: Confirm, effects: &mut Vec<Effect>) {
        let Role::Following(following) = &self.role else { return };
        if following.leader == from {
            let Confirm { leader_epoch, round } = said;
            let message = Message::Confirmed(Confirmed { leader_epoch, round });
            effects.push(Effect::Send { to: from, message });
        }
    }

    pub(super) fn on_confirmed(
        &mut self,
        from: NodeId,
        said: Confirmed,
        effects: &mut Vec<Effect>,
    ) {
        let Role::Leading(leading) = &mut self.role else { return };
        // What nobody has asked has no answer.
        let round = said.round.min(leading.round);
        if let Some(progress) = leading.followers.get_mut(&from) {
            progress.round = progress.round.max(round);
        }
        self.advance(effects);
    }
}
