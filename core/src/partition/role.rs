//! What a replica is to the others: leader, follower, or neither yet; and how it becomes that.

use std::collections::BTreeMap;

use super::follower::{Following, Stage};
use super::interface::{Assignment, Effect, Input, Message, Refusal};
use super::isr::InSync;
use super::progress::Progress;
use super::proposal::Proposals;
use super::tail::Tail;
use super::{Replica, State};
use crate::id::{LeaderEpoch, NodeEpoch, NodeId, Offset};
use crate::time::{Instant, Now};
use crate::{mutant, reached};

#[derive(Clone, Debug, Default)]
pub(super) enum Role {
    /// Nobody leads, or it is not known yet what this replica may do.
    #[default]
    Neither,
    Leading(Box<Leading>),
    Following(Following),
}

/// What a leader knows besides its log.
#[derive(Clone, Debug, Default)]
pub(super) struct Leading {
    /// Where the log ended when this leadership began. KIP-101's start offset of the epoch.
    pub(super) epoch_start: Offset,
    /// Where it started then, for good: an earlier leader may have said that this is gone.
    pub(super) first_start: Offset,
    /// Where all who may be in sync start at least. Never falls.
    pub(super) common_start: Offset,
    /// All other replicas.
    pub(super) followers: BTreeMap<NodeId, Progress>,
    pub(super) tail: Tail,
    pub(super) proposals: Proposals,
    /// When to tell the followers a high watermark or log start that no batch has carried.
    pub(super) tell_at: Option<Instant>,
    /// Who lags, and who may be proposed again, was last looked at then.
    pub(super) judged_at: Instant,
    /// Counts the questions whether this one still leads.
    pub(super) round: u64,
}

/// Where a leader's log stands, for what is said about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) now: Instant,
    pub(super) leader_epoch: LeaderEpoch,
    /// What may be read here.
    pub(super) log_start: Offset,
    /// What is told: a start that is not written yet may fall again.
    pub(super) durable_start: Offset,
    pub(super) end: Offset,
    pub(super) durable_end: Offset,
    pub(super) high_watermark: Offset,
}

impl Replica {
    /// Whether it is the only one: it needs nobody's word to lead.
    pub(super) fn is_alone(&self) -> bool {
        self.assignment.replicas.len() <= 1
    }

    pub(super) fn standing(&self, now: Now) -> Standing {
        Standing {
            now: now.monotonic,
            leader_epoch: self.leader_epoch(),
            log_start: self.log.log_start,
            durable_start: self.durable_start,
            end: self.log.end,
            durable_end: self.durable_end,
            high_watermark: self.high_watermark,
        }
    }

    pub(super) fn on_assigned(
        &mut self,
        now: Now,
        assignment: Assignment,
        effects: &mut Vec<Effect>,
    ) {
        let version = |of: &Assignment| (of.leader_epoch, of.partition_epoch);
        if version(&assignment) <= version(&self.assignment) {
            reached!("older-assignment-ignored");
            return;
        }
        let before = std::mem::replace(&mut self.assignment, assignment);
        if before.leader_epoch == self.leader_epoch() {
            let in_sync = &self.assignment.in_sync;
            let left = before.in_sync.iter().filter(|node| !in_sync.contains(node)).copied();
            self.on_members(now, &left.collect::<Vec<_>>(), effects);
            return;
        }
        // zoo A4: the same leader's name taken for the same leadership.
        if before.leader == self.assignment.leader && mutant!("missed-epoch-no-truncate") {
            return;
        }
        // zoo A11: a record in the log of this epoch taken for a committed one.
        if mutant!("ack-by-term-not-by-commit") {
            self.tell_too_early(effects);
        }
        self.take_role(now, effects);
        if !self.is_leader() {
            self.refuse_waiting(Refusal::NotLeader, effects);
        }
    }

    /// The same leadership goes on with other replicas, or another in-sync set, which `left` are no
    /// more in.
    fn on_members(&mut self, now: Now, left: &[NodeId], effects: &mut Vec<Effect>) {
        let Role::Leading(leading) = &mut self.role else { return };
        let replicas = &self.assignment.replicas;
        leading.followers.retain(|node, _| replicas.contains(node));
        if leading.followers.is_empty() {
            // Nothing more is kept while nobody follows, and what follows later does not follow on
            // what is kept now.
            leading.tail = Tail::default();
        }
        let mut new = Vec::new();
        for &node in replicas.iter().filter(|node| **node != self.id) {
            leading.followers.entry(node).or_insert_with(|| {
                new.push(node);
                Progress::new(now.monotonic)
            });
        }
        for node in left {
            if let Some(progress) = leading.followers.get_mut(node) {
                progress.has_spoken = false;
            }
        }
        leading.proposals.on_assigned(now.monotonic, &self.assignment.in_sync);
        self.count_members();
        // zoo A14: who waited for the member that left is not told.
        if !mutant!("isr-shrink-wakes-nobody") {
            self.advance(effects);
        }
        for &node in left {
            self.ask_follower(now, node, effects);
        }
        for node in new {
            self.greet_follower(now, node, effects);
        }
        self.confirm_members_again(effects);
        self.reconsider(now, effects);
    }

    /// The set whose smallest end is the high watermark: who is in sync, and who may be.
    pub(super) fn count_members(&mut self) {
        let Role::Leading(leading) = &self.role else { return };
        let mut members = self.assignment.in_sync.clone();
        // KIP-497's mistake: the set counts as it was until the controller has answered.
        if !mutant!("expansion-not-awaited") {
            members.extend(leading.proposals.added());
        }
        self.in_sync.assign(&members, self.high_watermark);
        self.in_sync.advance(self.id, self.durable_end);
        for (&node, progress) in &leading.followers {
            if let Some(end) = progress.acked_end {
                self.in_sync.advance(node, end);
            }
        }
    }

    pub(super) fn on_registered(
        &mut self,
        now: Now,
        node_epoch: NodeEpoch,
        effects: &mut Vec<Effect>,
    ) {
        if self.node_epoch >= Some(node_epoch) {
            return;
        }
        self.node_epoch = Some(node_epoch);
        // Who leads is heard of soon if the controller thinks otherwise by now.
        if !self.is_leader() {
            self.take_role(now, effects);
        }
    }

    /// Becomes what the assignment says, from the start: a log is compared anew in every leader
    /// epoch, whoever led before.
    pub(super) fn take_role(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let before = std::mem::take(&mut self.role);
        self.verifying.forget_all();
        if self.cutting.is_some() {
            reached!("role-waits-for-a-cut");
            return;
        }
        let is_known = self.is_alone() || self.node_epoch.is_some();
        match self.assignment.leader {
            Some(leader) if leader == self.id && is_known => {
                // Who waits for a word goes on waiting: the rounds go on, and nobody answered.
                let round = if let Role::Leading(leading) = before { leading.round } else { 0 };
                self.begin_leading(now, round, effects);
            }
            Some(leader) if leader != self.id && self.node_epoch.is_some() => {
                self.begin_following(now, leader, effects);
            }
            Some(_) | None => {}
        }
    }

    fn begin_leading(&mut self, now: Now, round: u64, effects: &mut Vec<Effect>) {
        let others = self.assignment.replicas.iter().filter(|node| **node != self.id);
        self.role = Role::Leading(Box::new(Leading {
            epoch_start: self.log.end,
            first_start: self.durable_start,
            followers: others.map(|&node| (node, Progress::new(now.monotonic))).collect(),
            judged_at: now.monotonic,
            round,
            ..Leading::default()
        }));
        self.in_sync = InSync::default();
        self.count_members();
        self.advance(effects);
    }

    /// Whether it knows less of what is committed than its predecessor may have.
    pub(super) fn is_settling(&self) -> bool {
        match &self.role {
            Role::Leading(leading) => {
                !leading.followers.is_empty() && self.high_watermark < leading.epoch_start
            }
            Role::Neither | Role::Following(_) => false,
        }
    }

    pub(super) fn plan_telling(&mut self, now: Now) {
        let standing = self.standing(now);
        if let Role::Leading(leading) = &mut self.role {
            leading.plan_telling(&standing, &self.limits.replication);
        }
    }

    pub(super) fn check_role(&self) {
        match &self.role {
            Role::Leading(leading) => {
                assert!(self.cutting.is_none(), "a leader's log is not cut: {self}");
                leading.tail.check(self.log.end);
                for (node, progress) in &leading.followers {
                    assert!(*node != self.id, "{self}");
                    progress.check(self.log.end);
                }
                // Of every member of the largest set that may be in sync.
                for (node, end) in self.in_sync.ends() {
                    assert!(self.high_watermark <= end, "n{node} lacks what is committed: {self}");
                }
                let may_commit = self.commits() && self.state != State::Halted;
                if let Some(high) = self.in_sync.high_watermark().filter(|_| may_commit) {
                    assert!(self.high_watermark >= high, "a commit is not noticed: {self}");
                }
            }
            Role::Following(following) => {
                let is_cutting = matches!(following.stage, Stage::Cutting(_));
                assert_eq!(is_cutting, self.cutting.is_some(), "{self}");
            }
            Role::Neither => {}
        }
        assert!(self.close_after_cut.is_none() || self.cutting.is_some(), "{self}");
    }

    pub(super) fn on_peer(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if self.state == State::Halted {
            return;
        }
        match input {
            Input::Registered { node_epoch } => self.on_registered(now, node_epoch, effects),
            Input::Message { from, message } => self.on_message(now, from, message, effects),
            Input::Connected { peer } => self.on_connected(now, peer, effects),
            Input::Unfenced { peer } => self.on_unfenced(now, peer, effects),
            Input::LogRead { to, from, entries } => {
                self.on_log_read(now, to, from, entries, effects);
            }
            Input::Truncated { write, recovered } => {
                self.on_truncated(now, write, *recovered, effects);
            }
            Input::ProposalRefused { partition_epoch, problem } => {
                self.on_proposal_refused(now, partition_epoch, problem, effects);
            }
            other => unreachable!("not of the other replicas: {other:?}"),
        }
    }

    fn on_message(&mut self, now: Now, from: NodeId, message: Message, effects: &mut Vec<Effect>) {
        if message.leader_epoch() != self.leader_epoch() {
            // An older one is over; a newer one begins here with its assignment.
            reached!("message-of-another-epoch");
            return;
        }
        match message {
            Message::Replicated(message) => self.on_replicated(now, from, &message, effects),
            Message::Confirmed(message) => self.on_confirmed(from, message, effects),
            _ if self.state == State::Closing => {}
            Message::Follow(message) => self.on_follow(now, from, &message, effects),
            Message::Lead(message) => self.on_lead(now, from, message, effects),
            Message::Replicate(message) => self.on_replicate(now, from, message, effects),
            Message::Confirm(message) => self.on_confirm(from, message, effects),
        }
    }

    fn on_connected(&mut self, now: Now, peer: NodeId, effects: &mut Vec<Effect>) {
        self.confirm_again(peer, effects);
        match &self.role {
            Role::Leading(leading) => match leading.followers.get(&peer) {
                Some(progress) if progress.node_epoch.is_none() => {
                    self.greet_follower(now, peer, effects);
                }
                _ => self.ask_follower(now, peer, effects),
            },
            Role::Following(following) if following.leader == peer => self.ask_leader(now, effects),
            Role::Following(_) | Role::Neither => {}
        }
    }
}
