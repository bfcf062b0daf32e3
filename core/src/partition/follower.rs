//! What a follower does: ask where its log parts from the leader's, cut it there, append what the
//! leader sends, and say what is written.

use std::fmt;
use std::time::Duration;

use super::divergence::{Parting, parting};
use super::interface::{
    Effect, Follow, Lead, LogOp, Message, Outcome, Parted, Replicate, Replicated,
};
use super::progress::patience;
use super::readers::Readable;
use super::role::Role;
use super::{Recovered, Replica, State, reply};
use crate::batch::{Batch, Levels};
use crate::id::{LeaderEpoch, NodeId, Offset, WriteId};
use crate::time::{Instant, Now};
use crate::{mutant, reached};

/// What a follower knows besides its log.
#[derive(Clone, Debug)]
pub(super) struct Following {
    pub(super) leader: NodeId,
    pub(super) stage: Stage,
    /// The leader's high watermark; taken only once the logs are known not to part.
    known_high: Offset,
    /// The leader's log start.
    known_start: Offset,
    /// The leader was asked to go on from here.
    resumed_from: Option<Offset>,
    /// The log is empty and begins at the first, where a batch does that ends at the second: the
    /// leader's log starts within it.
    begins_with: Option<(Offset, Offset)>,
    /// The log is empty and begins where the leader's starts: if that is within a batch, it begins
    /// anew where the batch does. Until it is known, nothing is said to be deleted here.
    start_may_fall: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// No answer came yet.
    Asking { last_epoch: Option<LeaderEpoch>, again_at: Instant, tries: u32 },
    /// The answer says where to cut, and storage does it. `None`: what is to begin elsewhere was
    /// empty.
    Cutting(Option<Lead>),
    /// The whole log is the leader's.
    Live,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asking { .. } => "asking",
            Self::Cutting(_) => "cutting",
            Self::Live => "live",
        })
    }
}

impl Following {
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Asking { again_at, .. } => Some(again_at),
            Stage::Cutting(_) | Stage::Live => None,
        }
    }

    /// Whether what comes next to a log with this `end` is deleted in one with this `start`.
    fn is_left_behind(&self, end: Offset, start: Offset) -> bool {
        let is_within = |(base, next)| base == end && start < next;
        start > end && !self.begins_with.is_some_and(is_within)
    }

    /// What may be shown of a log that ends, written, at `durable_end`.
    pub(super) fn high_watermark(&self, durable_end: Offset) -> Option<Offset> {
        matches!(self.stage, Stage::Live).then(|| self.known_high.min(durable_end))
    }
}

impl Replica {
    pub(super) fn begin_following(&mut self, now: Now, leader: NodeId, effects: &mut Vec<Effect>) {
        self.role = Role::Following(Following {
            leader,
            stage: Stage::Live,
            known_high: Offset::ZERO,
            known_start: Offset::ZERO,
            resumed_from: None,
            begins_with: None,
            start_may_fall: false,
        });
        let holds_something = self.log.log_start < self.log.end;
        let last_epoch = self.log.leader_epochs.latest().filter(|_| holds_something);
        // zoo A1: cutting back to what is known to be committed, without asking.
        if mutant!("hw-truncate-then-elect") && self.high_watermark < self.log.end {
            self.cut(self.high_watermark, leader, effects);
            self.role = Role::Neither;
            return;
        }
        self.ask_about(now, last_epoch, effects);
    }

    fn following(&mut self) -> Option<&mut Following> {
        match &mut self.role {
            Role::Following(following) => Some(following),
            Role::Neither | Role::Leading(_) => None,
        }
    }

    /// Whether its log is known to be the leader's.
    pub(super) fn follows(&self) -> bool {
        matches!(&self.role, Role::Following(following) if matches!(following.stage, Stage::Live))
    }

    /// A new question: answers to earlier ones do not count.
    fn ask_about(&mut self, now: Now, last_epoch: Option<LeaderEpoch>, effects: &mut Vec<Effect>) {
        self.attempts += 1;
        if let Some(following) = self.following() {
            following.stage = Stage::Asking { last_epoch, again_at: now.monotonic, tries: 0 };
            (following.resumed_from, following.begins_with) = (None, None);
        }
        self.ask_leader(now, effects);
    }

    /// The question under way, once more.
    pub(super) fn ask_leader(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let (Some(node_epoch), Role::Following(following)) = (self.node_epoch, &mut self.role)
        else {
            return;
        };
        let Stage::Asking { last_epoch, again_at, tries } = &mut following.stage else { return };
        *again_at = now.monotonic + patience(self.limits.replication.follow_retry, *tries);
        *tries = tries.saturating_add(1);
        let follow = Follow {
            leader_epoch: self.assignment.leader_epoch,
            node_epoch,
            attempt: self.attempts,
            end: self.log.end,
            last_epoch: *last_epoch,
        };
        effects.push(Effect::Send { to: following.leader, message: Message::Follow(follow) });
    }

    pub(super) fn tick_following(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let deadline = self.following().and_then(|following| following.deadline());
        if deadline.is_some_and(|at| at <= now.monotonic) {
            reached!("leader-asked-again");
            self.ask_leader(now, effects);
        }
    }

    pub(super) fn on_lead(
        &mut self,
        now: Now,
        from: NodeId,
        lead: Lead,
        effects: &mut Vec<Effect>,
    ) {
        let is_answer = Some(lead.node_epoch) == self.node_epoch && lead.attempt == self.attempts;
        let Some(following) = self.following().filter(|following| following.leader == from) else {
            return;
        };
        if !matches!(following.stage, Stage::Asking { .. }) || !is_answer {
            reached!("answer-to-another-question");
            return;
        }
        // zoo A9: the high watermark taken before the log is cut.
        if mutant!("hw-bump-before-truncate") {
            self.high_watermark =
                self.high_watermark.max(lead.high_watermark.min(self.durable_end));
        }
        self.settle(now, lead, effects);
    }

    /// Brings the log to where it is the leader's, one cut after another.
    fn settle(&mut self, now: Now, lead: Lead, effects: &mut Vec<Effect>) {
        let (point, has_common) = match parting(&self.log, &lead) {
            Parting::At(point) => (point, true),
            Parting::Older(last_epoch) => {
                reached!("asks-about-an-older-epoch");
                self.ask_about(now, Some(last_epoch), effects);
                return;
            }
            Parting::Everywhere => {
                // What lies below the leader's start is deleted there, not parted from; but it may
                // be of another lineage, and is not to be shown.
                reached!("nothing-in-common");
                (self.log.end.min(lead.log_start).max(self.log.log_start), false)
            }
        };
        let Some(following) = self.following() else { return };
        let leader = following.leader;
        if point < self.log.end {
            if let Some(following) = self.following() {
                following.stage = Stage::Cutting(Some(lead));
            }
            self.cut(point, leader, effects);
        } else if !has_common || self.log.end < lead.log_start || self.log.end > lead.end {
            reached!("begins-anew-at-the-leaders-start");
            let offset = lead.log_start;
            if let Some(following) = self.following() {
                following.stage = Stage::Cutting(Some(lead));
            }
            self.cutting = Some(self.write(LogOp::ResetTo { offset }, None, effects));
        } else {
            self.go_live(Some(&lead), effects);
        }
    }

    fn cut(&mut self, offset: Offset, leader: NodeId, effects: &mut Vec<Effect>) {
        reached!("cut-where-the-logs-part");
        let reason = Parted { leader, leader_epoch: self.leader_epoch(), end: self.log.end };
        self.cutting = Some(self.write(LogOp::TruncateTo { offset, reason }, None, effects));
    }

    /// The log is the leader's: what is committed there is so here.
    fn go_live(&mut self, lead: Option<&Lead>, effects: &mut Vec<Effect>) {
        let (start, end) = (self.log.log_start, self.log.end);
        if let Some(following) = self.following() {
            following.stage = Stage::Live;
            if let Some(lead) = lead {
                following.known_high = lead.high_watermark;
                following.known_start = lead.log_start;
            }
            let begins_there = |lead: &Lead| lead.log_start == start && start < lead.end;
            following.start_may_fall = start == end && lead.is_some_and(begins_there);
        }
        self.advance(effects);
        self.raise_to_leaders_start(effects);
        self.acknowledge(true, effects);
    }

    /// Storage has cut the log, or begun it anew.
    pub(super) fn on_truncated(
        &mut self,
        now: Now,
        write: WriteId,
        recovered: Recovered,
        effects: &mut Vec<Effect>,
    ) {
        if self.cutting != Some(write) {
            return;
        }
        recovered.check();
        self.cutting = None;
        self.forget_pass();
        self.plan_cleaning(now, Duration::ZERO);
        let done = self.writes.partition_point(|in_flight| in_flight.write <= write);
        for done in self.writes.drain(..done).collect::<Vec<_>>() {
            self.answer_written(done, effects);
        }
        self.log_bytes = recovered.bytes();
        let before = std::mem::replace(&mut self.log, recovered);
        // zoo A6: the log is cut, and what is known of its epochs is not.
        if mutant!("noop-truncate-leaves-epochs") {
            self.log.leader_epochs = before.leader_epochs;
        }
        if self.wall_clock.is_trusted() {
            self.log.producers.date(now.wall);
        }
        self.plan_expiry(now);
        self.active_since = now.monotonic;
        self.durable_end = self.log.end;
        self.durable_start = self.log.log_start;
        self.undecided.cut(self.log.log_start, self.log.end);
        self.leaving.clear();
        self.removals += 1;
        if self.high_watermark > self.log.end {
            // Only a human's unclean election makes a leader of one that lacks what is committed.
            reached!("committed-records-were-cut");
        }
        self.high_watermark = self.high_watermark.clamp(self.log.log_start, self.log.end);
        for reader in self.waiting.readers_below(Offset(i64::MAX)) {
            self.waiting.remove(reader);
            reply(reader, Outcome::Advanced, effects);
        }
        self.readable = Readable::at(self.high_watermark, self.log.end);
        if let Some(request) = self.close_after_cut.take() {
            self.role = Role::Neither;
            self.finish_closing(request, effects);
            return;
        }
        let stage = self.following().map(|following| following.stage.clone());
        match stage {
            Some(Stage::Cutting(Some(lead))) => self.settle(now, lead, effects),
            Some(Stage::Cutting(None)) => self.go_live(None, effects),
            // Another leadership began meanwhile.
            Some(Stage::Asking { .. } | Stage::Live) | None => self.take_role(now, effects),
        }
    }

    pub(super) fn on_replicate(
        &mut self,
        now: Now,
        from: NodeId,
        message: Replicate,
        effects: &mut Vec<Effect>,
    ) {
        let end = self.log.end;
        let Some(following) = self.following().filter(|following| following.leader == from) else {
            return;
        };
        if !matches!(following.stage, Stage::Live) {
            reached!("batches-before-the-logs-are-one");
            return;
        }
        following.known_high = following.known_high.max(message.high_watermark);
        following.known_start = following.known_start.max(message.log_start);
        self.advance(effects);
        self.raise_to_leaders_start(effects);
        // zoo A22: a part of what is missing taken for all of it.
        if message.base > end && !mutant!("catchup-declared-done") {
            self.on_hole(now, &message, effects);
            return;
        }
        let (ask, is_empty) = (message.ask, message.entries.is_empty());
        for (batch, levels) in message.entries {
            if !self.append_replicated(now, batch, levels, effects) {
                return;
            }
        }
        if ask {
            self.acknowledge(true, effects);
        } else if !is_empty && self.log.end == end {
            reached!("batches-that-are-here-already");
            self.acknowledge(false, effects);
        }
    }

    /// Batches between the log's end and the message are missing.
    fn on_hole(&mut self, now: Now, message: &Replicate, effects: &mut Vec<Effect>) {
        let end = self.log.end;
        let is_left_behind =
            self.following().is_some_and(|it| it.is_left_behind(end, message.log_start));
        if is_left_behind {
            reached!("left-behind");
            let holds_something = self.log.log_start < end;
            let last_epoch = self.log.leader_epochs.latest().filter(|_| holds_something);
            self.ask_about(now, last_epoch, effects);
            return;
        }
        let Some(following) = self.following() else { return };
        // Each message behind the hole would ask for the same.
        if following.resumed_from != Some(end) || message.ask {
            reached!("hole");
            following.resumed_from = Some(end);
            self.acknowledge(true, effects);
        }
    }

    /// Appends a batch as the leader has stamped it. Returns whether the next one may be looked at.
    fn append_replicated(
        &mut self,
        now: Now,
        mut batch: Batch,
        levels: Levels,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let end = self.log.end;
        // zoo A21: the place in the log given by the replica, not by the leader.
        if mutant!("replicas-stamp-own-offsets") {
            batch.stamp(end, batch.header().leader_epoch());
        }
        if batch.header().next_offset() <= end {
            return true;
        }
        // The leader has compacted what stands here batch by batch.
        let part = batch.narrowed(end, Offset(i64::MAX));
        let batch = part.expect("a filler that reaches beyond the end has a part there");
        let header = batch.header();
        let epoch = header.leader_epoch();
        let is_in_order =
            epoch <= self.leader_epoch() && Some(epoch) >= self.log.leader_epochs.latest();
        if header.base_offset() >= end && is_in_order {
            if let Some(following) = self.following() {
                following.start_may_fall = false;
            }
            self.store(now, batch, levels, effects);
            return true;
        }
        if header.base_offset() < end && self.log.log_start == end {
            // The leader's log starts within a batch, and this one began there.
            reached!("begins-anew-at-a-batch");
            let (offset, next) = (header.base_offset(), header.next_offset());
            if let Some(following) = self.following() {
                following.begins_with = Some((offset, next));
                following.stage = Stage::Cutting(None);
            }
            self.cutting = Some(self.write(LogOp::ResetTo { offset }, None, effects));
            return false;
        }
        reached!("batch-that-does-not-fit");
        let last_epoch = self.log.leader_epochs.latest();
        self.ask_about(now, last_epoch, effects);
        false
    }

    /// Tells the leader what is written; and, to `resume`, where to go on.
    pub(super) fn acknowledge(&self, resume: bool, effects: &mut Vec<Effect>) {
        let (Some(node_epoch), Role::Following(following)) = (self.node_epoch, &self.role) else {
            return;
        };
        if !matches!(following.stage, Stage::Live) || self.state == State::Halted {
            return;
        }
        // zoo A23: what was only handed to the disk is said to be on it.
        let unwritten = mutant!("unsynced-backup-acks");
        let replicated = Replicated {
            leader_epoch: self.leader_epoch(),
            node_epoch,
            end: if unwritten { self.log.end } else { self.durable_end },
            high_watermark: self.high_watermark,
            // A start that is not written yet may fall again.
            log_start: if following.start_may_fall { Offset::ZERO } else { self.durable_start },
            resume: resume.then_some(self.log.end),
        };
        let message = Message::Replicated(replicated);
        effects.push(Effect::Send { to: following.leader, message });
    }

    /// What the leader has deleted goes here too, once it is committed here.
    pub(super) fn raise_to_leaders_start(&mut self, effects: &mut Vec<Effect>) {
        let Some(start) = self.following().map(|following| following.known_start) else { return };
        if self.follows() && self.log.log_start < start && start <= self.high_watermark {
            reached!("deleted-as-the-leader-did");
            self.delete_before(start, effects);
        }
    }
}
