//! What a leader does for its followers: answer where their logs part from its own, send them what
//! they lack, note how far they are, and wish for an in-sync set accordingly.

use super::interface::{
    Assignment, Effect, Follow, InSyncChange, Lead, Message, ProposalProblem, Replicate,
    Replicated, ReplicationLimits,
};
use super::progress::{Progress, patience};
use super::role::{Leading, Role, Standing};
use super::{Replica, State};
use crate::batch::{Batch, Levels};
use crate::id::{NodeEpoch, NodeId, Offset, PartitionEpoch};
use crate::time::{Instant, Now};
use crate::{mutant, reached};

impl Leading {
    /// Sends `to` what it lacks, as far as its window reaches.
    fn send_next(
        &mut self,
        to: NodeId,
        standing: &Standing,
        limits: &ReplicationLimits,
        effects: &mut Vec<Effect>,
    ) {
        let Some(progress) = self.followers.get_mut(&to) else { return };
        while progress.is_live
            && progress.reading.is_none()
            && !progress.is_left_behind
            && progress.next < standing.end
        {
            let Some(room) = progress.room(limits.window_bytes) else {
                reached!("window-full");
                return;
            };
            let from = progress.next;
            if let Some(entries) = self.tail.from(from, room.min(limits.message_bytes_max)) {
                send(progress, to, from, entries, standing, limits, effects);
            } else if from.max(standing.log_start) < standing.durable_end {
                let from = from.max(standing.log_start);
                let bytes_max = room.min(limits.message_bytes_max);
                progress.reading = Some(from);
                let up_to = standing.durable_end;
                effects.push(Effect::ReadLog { to, from, up_to, bytes_max });
            } else if from < standing.log_start {
                leave_behind(progress, to, standing, limits, effects);
            } else {
                // Appended before this leadership, and not written yet.
                reached!("neither-kept-nor-written");
                return;
            }
        }
    }

    fn trim_tail(&mut self, durable_end: Offset, limits: &ReplicationLimits) {
        let live = self.followers.values().filter(|progress| progress.is_live);
        let acked = live.map(|progress| progress.acked_end.unwrap_or(Offset::ZERO)).min();
        self.tail.trim(durable_end, acked.unwrap_or(Offset(i64::MAX)), limits.tail_bytes_max);
    }

    /// A high watermark or a log start that a follower was not told goes to it before long.
    pub(super) fn plan_telling(&mut self, standing: &Standing, limits: &ReplicationLimits) {
        let behind = |progress: &Progress| {
            let (high, start) = progress.told;
            progress.is_live && (high < standing.high_watermark || start < standing.durable_start)
        };
        if self.tell_at.is_none() && self.followers.values().any(behind) {
            self.tell_at = Some(standing.now + limits.watermark_delay);
        }
    }

    pub(super) fn deadline(
        &self,
        members: &super::isr::InSync,
        end: Offset,
        limits: &ReplicationLimits,
    ) -> Option<Instant> {
        let lags = |(&node, progress): (&NodeId, &Progress)| {
            let at = if members.contains(node) {
                progress.lags_at(end, limits.lag_time_max)?
            } else {
                progress.barred_until
            };
            (at > self.judged_at).then_some(at)
        };
        let lag = self.followers.iter().filter_map(lags).min();
        let ask = self.followers.values().filter_map(|progress| progress.ask_at).min();
        [lag, ask, self.tell_at, self.proposals.deadline()].into_iter().flatten().min()
    }
}

/// Sends `entries`, which follow `base`.
fn send(
    progress: &mut Progress,
    to: NodeId,
    base: Offset,
    entries: Vec<(Batch, Levels)>,
    standing: &Standing,
    limits: &ReplicationLimits,
    effects: &mut Vec<Effect>,
) {
    let bytes = entries.iter().map(|(batch, _)| batch.len()).sum();
    let Some((last, _)) = entries.last() else { return };
    progress.on_sent(last.header().next_offset(), bytes);
    say(progress, to, base, entries, false, standing, limits, effects);
}

/// Sends a message, with or without batches; the follower owes an answer.
#[allow(clippy::too_many_arguments)] // Each is a part of one message.
fn say(
    progress: &mut Progress,
    to: NodeId,
    base: Offset,
    entries: Vec<(Batch, Levels)>,
    ask: bool,
    standing: &Standing,
    limits: &ReplicationLimits,
    effects: &mut Vec<Effect>,
) {
    progress.told = (standing.high_watermark, standing.durable_start);
    let wait = patience(limits.ask_after, progress.asked);
    progress.ask_at = progress.ask_at.or(Some(standing.now + wait));
    let message = Message::Replicate(Replicate {
        leader_epoch: standing.leader_epoch,
        base,
        entries,
        high_watermark: standing.high_watermark,
        log_start: standing.durable_start,
        ask,
    });
    effects.push(Effect::Send { to, message });
}

/// What the follower needs is deleted: it begins anew when it hears where the log starts.
fn leave_behind(
    progress: &mut Progress,
    to: NodeId,
    standing: &Standing,
    limits: &ReplicationLimits,
    effects: &mut Vec<Effect>,
) {
    reached!("follower-left-behind");
    progress.is_left_behind = true;
    say(progress, to, standing.log_start, Vec::new(), true, standing, limits, effects);
}

impl Replica {
    /// A batch is about to be appended at the log's end.
    pub(super) fn keep_for_followers(&mut self, now: Now, batch: &Batch, levels: Levels) {
        let end = self.log.end;
        let Role::Leading(leading) = &mut self.role else { return };
        if leading.followers.is_empty() {
            return;
        }
        for progress in leading.followers.values_mut() {
            progress.on_append(now.monotonic, end);
        }
        leading.tail.push(end, batch.clone(), levels);
    }

    /// Sends every follower what it lacks.
    pub(super) fn send_to_all(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let standing = self.standing(now);
        let Role::Leading(leading) = &mut self.role else { return };
        if leading.followers.is_empty() {
            return;
        }
        let limits = &self.limits.replication;
        leading.trim_tail(standing.durable_end, limits);
        let nodes = leading.followers.keys().copied().collect::<Vec<_>>();
        for node in nodes {
            leading.send_next(node, &standing, limits, effects);
        }
    }

    pub(super) fn on_follow(
        &mut self,
        now: Now,
        from: NodeId,
        follow: &Follow,
        effects: &mut Vec<Effect>,
    ) {
        let Role::Leading(leading) = &mut self.role else { return };
        let Some(progress) = leading.followers.get_mut(&from) else {
            reached!("stranger");
            return;
        };
        let asked = (Some(follow.node_epoch), follow.attempt);
        let known = (progress.node_epoch, progress.attempt);
        if asked < known {
            reached!("older-life-of-a-follower");
            return;
        }
        // zoo A17: what an earlier life had on its disk, believed of this one.
        if asked > known && mutant!("stale-incarnation-joins-isr") && known.0.is_some() {
            (progress.node_epoch, progress.attempt) = (asked.0, asked.1);
        } else if asked > known {
            progress.restart(follow.node_epoch, follow.attempt);
            self.in_sync.restart(from, self.high_watermark);
        }
        let wait = self.limits.replication.ask_after;
        progress.ask_at = Some(now.monotonic + patience(wait, progress.asked));
        // zoo A10: the end of a log that is about to be cut, taken for an acknowledgement.
        if mutant!("diverging-fetch-counts-as-ack") {
            let end = follow.end.min(self.log.end);
            progress.acked_end = progress.acked_end.max(Some(end));
            self.in_sync.advance(from, end);
            self.advance(effects);
        }
        let message = Message::Lead(self.answer(follow));
        effects.push(Effect::Send { to: from, message });
        // Before it followed it dropped what was asked; what an earlier life said is forgotten.
        self.confirm_again(from, effects);
    }

    fn answer(&self, follow: &Follow) -> Lead {
        let starts = self.log.leader_epochs.starts();
        let asked = |last| starts.partition_point(|&(epoch, _)| epoch <= last);
        let below = follow.last_epoch.map_or(0, asked);
        let first = below.saturating_sub(self.limits.replication.epochs_max);
        Lead {
            leader_epoch: self.leader_epoch(),
            node_epoch: follow.node_epoch,
            attempt: follow.attempt,
            epochs: starts[first..below].to_vec(),
            epochs_end: starts.get(below).map_or(self.log.end, |&(_, start)| start),
            is_cut: first > 0,
            // Where `epochs` begin, even if that is not written yet.
            log_start: self.log.log_start,
            end: self.log.end,
            high_watermark: self.high_watermark,
        }
    }

    pub(super) fn on_replicated(
        &mut self,
        now: Now,
        from: NodeId,
        said: &Replicated,
        effects: &mut Vec<Effect>,
    ) {
        let end = self.log.end;
        let Role::Leading(leading) = &mut self.role else { return };
        let Some(progress) = leading.followers.get_mut(&from) else { return };
        if progress.node_epoch.is_none() && said.resume.is_some() {
            // It was a follower before, and has not heard that it was none in between.
            reached!("follower-taken-up-again");
            progress.node_epoch = Some(said.node_epoch);
        }
        if progress.node_epoch != Some(said.node_epoch) {
            reached!("word-of-another-life");
            return;
        }
        if said.end > end || said.resume.is_some_and(|resume| resume > end) {
            reached!("follower-ahead-of-its-leader");
            return;
        }
        if !progress.is_live && said.resume.is_none() {
            reached!("not-where-to-begin");
            return;
        }
        let was_live = std::mem::replace(&mut progress.is_live, true);
        progress.on_replicated(now.monotonic, said, end);
        progress.ask_at = None;
        let is_member = self.in_sync.contains(from);
        if let Some(acked) = progress.acked_end {
            self.in_sync.advance(from, acked);
        }
        self.advance(effects);
        if said.log_start > self.log.log_start && said.log_start <= self.high_watermark {
            // An earlier leader deleted this, and told the follower only.
            reached!("deleted-as-an-earlier-leader-did");
            self.delete_before(said.log_start, effects);
        }
        let standing = self.standing(now);
        let Role::Leading(leading) = &mut self.role else { return };
        let limits = &self.limits.replication;
        leading.trim_tail(standing.durable_end, limits);
        leading.send_next(from, &standing, limits, effects);
        self.expect_word(now, from);
        if !is_member || !was_live {
            self.reconsider(now, effects);
        }
    }

    /// While `node` owes word, it is asked for it some day.
    fn expect_word(&mut self, now: Now, node: NodeId) {
        let should_have = (self.high_watermark, self.durable_start);
        let Role::Leading(leading) = &mut self.role else { return };
        let Some(progress) = leading.followers.get_mut(&node) else { return };
        if progress.owes(self.log.end, should_have) {
            let wait = patience(self.limits.replication.ask_after, progress.asked);
            progress.ask_at = progress.ask_at.or(Some(now.monotonic + wait));
        }
    }

    /// Asks a replica that is new where it is. One that has no log yet asks by itself; but one that
    /// was a follower in this leadership before, and missed that it was none in between, waits for
    /// what comes next.
    pub(super) fn greet_follower(&mut self, now: Now, node: NodeId, effects: &mut Vec<Effect>) {
        let standing = self.standing(now);
        let Role::Leading(leading) = &mut self.role else { return };
        let Some(progress) = leading.followers.get_mut(&node) else { return };
        let limits = &self.limits.replication;
        say(progress, node, standing.end, Vec::new(), true, &standing, limits, effects);
    }

    /// Asks a follower that owes word where it is.
    pub(super) fn ask_follower(&mut self, now: Now, node: NodeId, effects: &mut Vec<Effect>) {
        let standing = self.standing(now);
        let Role::Leading(leading) = &mut self.role else { return };
        let Some(progress) = leading.followers.get_mut(&node) else { return };
        progress.ask_at = None;
        if !progress.owes(standing.end, (standing.high_watermark, standing.durable_start)) {
            return;
        }
        reached!("follower-asked");
        progress.asked = progress.asked.saturating_add(1);
        // A log that could not be read is read again.
        let base = progress.next.max(standing.log_start).min(standing.end);
        let limits = &self.limits.replication;
        say(progress, node, base, Vec::new(), true, &standing, limits, effects);
        leading.send_next(node, &standing, limits, effects);
    }

    pub(super) fn on_log_read(
        &mut self,
        now: Now,
        to: NodeId,
        from: Offset,
        entries: Vec<(Batch, Levels)>,
        effects: &mut Vec<Effect>,
    ) {
        let standing = self.standing(now);
        let Role::Leading(leading) = &mut self.role else { return };
        let limits = &self.limits.replication;
        let Some(progress) = leading.followers.get_mut(&to) else { return };
        if progress.reading != Some(from) {
            reached!("read-in-vain");
            return;
        }
        progress.reading = None;
        let Some((first, _)) = entries.first() else {
            reached!("log-not-readable-now");
            let wait = limits.ask_after;
            progress.ask_at = progress.ask_at.or(Some(now.monotonic + wait));
            return;
        };
        let found = first.header().base_offset();
        // Compaction leaves gaps that are no holes; what was deleted meanwhile is one.
        let base = if from < standing.log_start { found } else { from.min(found) };
        let end = entries.last().map_or(base, |(last, _)| last.header().next_offset());
        if progress.is_live && base <= progress.next && progress.next < end {
            send(progress, to, base, entries, &standing, limits, effects);
        } else if progress.is_live && progress.next < standing.log_start {
            leave_behind(progress, to, &standing, limits, effects);
        }
        leading.send_next(to, &standing, limits, effects);
    }

    pub(super) fn tick_leading(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let standing = self.standing(now);
        let Role::Leading(leading) = &mut self.role else { return };
        if leading.followers.is_empty() {
            return;
        }
        let limits = &self.limits.replication;
        if leading.tell_at.is_some_and(|at| at <= now.monotonic) {
            leading.tell_at = None;
            for (&node, progress) in &mut leading.followers {
                let (high, start) = progress.told;
                if progress.is_live
                    && (high < standing.high_watermark || start < standing.durable_start)
                {
                    reached!("watermark-told-alone");
                    let base = progress.next;
                    say(progress, node, base, Vec::new(), true, &standing, limits, effects);
                }
            }
        }
        let due = |progress: &Progress| progress.ask_at.is_some_and(|at| at <= now.monotonic);
        let due = leading.followers.iter().filter(|(_, progress)| due(progress));
        for node in due.map(|(&node, _)| node).collect::<Vec<_>>() {
            self.ask_follower(now, node, effects);
        }
        self.reconsider(now, effects);
    }

    /// Whether enough are in sync, in enough racks, for anything to be committed: what fewer have
    /// would be missing from those that left. KIP-966.
    pub(super) fn commits(&self) -> bool {
        let Assignment { in_sync, replicas, .. } = &self.assignment;
        let needed = usize::from(self.config.in_sync_min).min(replicas.len());
        // zoo A13.
        (in_sync.len() >= needed && self.config.racks.commit(in_sync, replicas))
            || mutant!("hw-under-min-isr")
    }

    /// The in-sync set as it should be. `None` while a member's life is not known.
    fn wished(&self, now: Instant) -> Option<Vec<(NodeId, NodeEpoch)>> {
        let Role::Leading(leading) = &self.role else { return None };
        let mut wished = vec![(self.id, self.node_epoch?)];
        for (&node, progress) in &leading.followers {
            let lag_time_max = self.limits.replication.lag_time_max;
            let is_wished = if self.assignment.in_sync.contains(&node) {
                progress.lags_at(self.log.end, lag_time_max).is_none_or(|at| now < at)
            } else {
                self.may_join(progress, leading, now)
            };
            if is_wished {
                wished.push((node, progress.node_epoch?));
            }
        }
        wished.sort_unstable();
        Some(wished)
    }

    /// It has all that is committed: up to the high watermark, and all that an earlier leader may
    /// have committed before this one knew (KAFKA-7128). And it has deleted what whoever deleted
    /// it was told is gone.
    fn may_join(&self, progress: &Progress, leading: &Leading, now: Instant) -> bool {
        let epoch_start = leading.epoch_start;
        // zoo A8.
        let needed = if mutant!("isr-join-before-epoch-start") {
            self.high_watermark
        } else {
            self.high_watermark.max(epoch_start)
        };
        let is_there = progress.is_live && progress.has_spoken && progress.barred_until <= now;
        let deleted = leading.common_start.max(leading.first_start);
        is_there && progress.acked_end >= Some(needed) && progress.confirmed.1 >= deleted
    }

    /// Where the logs of all in-sync replicas start at least, and of all who may be in sync: what
    /// is below is gone, whoever leads next.
    pub(super) fn common_start(&self) -> Offset {
        match &self.role {
            Role::Leading(leading) => leading.common_start,
            Role::Following(_) | Role::Neither => Offset::ZERO,
        }
    }

    /// As with what is committed: while too few are in sync, one that is not may lead next.
    pub(super) fn find_common_start(&mut self) {
        if self.state == State::Halted || !self.commits() {
            return;
        }
        let Role::Leading(leading) = &mut self.role else { return };
        let start = |node| match leading.followers.get(&node) {
            _ if node == self.id => self.durable_start,
            Some(progress) => progress.confirmed.1,
            None => Offset::ZERO,
        };
        let least = self.in_sync.ends().map(|(node, _)| start(node)).min();
        leading.common_start = leading.common_start.max(least.unwrap_or_default());
    }

    /// Proposes another in-sync set if that is due.
    pub(super) fn reconsider(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.state != State::Open {
            return;
        }
        let wished = self.wished(now.monotonic);
        let Role::Leading(leading) = &mut self.role else { return };
        if leading.followers.is_empty() {
            return;
        }
        leading.judged_at = now.monotonic;
        let Some(wished) = wished else {
            reached!("a-member-is-not-heard-of-yet");
            leading.proposals.rest();
            return;
        };
        let wait = self.limits.replication.proposal_retry;
        let in_sync = &self.assignment.in_sync;
        if leading.proposals.propose(now.monotonic, &wished, in_sync, wait) {
            if wished.len() < in_sync.len() {
                reached!("member-lags");
            }
            self.count_members();
            effects.push(Effect::Propose(InSyncChange {
                leader_epoch: self.leader_epoch(),
                partition_epoch: self.assignment.partition_epoch,
                in_sync: wished,
            }));
            self.confirm_members_again(effects);
        }
    }

    pub(super) fn on_unfenced(&mut self, now: Now, peer: NodeId, effects: &mut Vec<Effect>) {
        let Role::Leading(leading) = &mut self.role else { return };
        let Some(progress) = leading.followers.get_mut(&peer) else { return };
        if progress.barred_until > now.monotonic {
            reached!("unfenced-and-not-barred");
            progress.barred_until = now.monotonic;
            self.reconsider(now, effects);
        }
    }

    pub(super) fn on_proposal_refused(
        &mut self,
        now: Now,
        partition_epoch: PartitionEpoch,
        problem: ProposalProblem,
        effects: &mut Vec<Effect>,
    ) {
        let wait = self.limits.replication.proposal_retry;
        let is_current = partition_epoch == self.assignment.partition_epoch;
        let Role::Leading(leading) = &mut self.role else { return };
        if !is_current || !leading.proposals.on_refused(now.monotonic, wait) {
            reached!("refusal-of-something-else");
            return;
        }
        reached!("proposal-refused");
        // zoo A16: the word of a controller that is behind believed for good.
        if problem == ProposalProblem::Behind && mutant!("zombie-controller-verdict-believed") {
            leading.proposals.is_given_up = true;
        }
        if let ProposalProblem::Ineligible(node) = problem
            && let Some(progress) = leading.followers.get_mut(&node)
        {
            progress.barred_until = now.monotonic + patience(wait, 4);
        }
        self.reconsider(now, effects);
    }
}
