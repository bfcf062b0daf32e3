//! How far a group has come: its offsets are committed, fetched, deleted, and forgotten in time.
//! Kafka's `OffsetMetadataManager`.

use std::collections::{BTreeMap, BTreeSet};

use super::classic::{Group, Phase};
use super::consumer::Consumer;
use super::consumer::classic::PROTOCOL_TYPE;
use super::desk::{Desk, TEXT_BYTES_MAX, Then};
use super::interface::{
    CommitOffsets, CommittedOffset, MemberClaim, Outcome, Refusal, TopicPartition,
};
use super::record::{Entry, StoredGroup, StoredOffset, subscribed_topics};
use crate::id::{LeaderEpoch, RequestId};
use crate::mutant;
use crate::time::Timestamp;

impl Group {
    pub(super) fn on_commit(&mut self, commit: CommitOffsets, desk: &mut Desk<'_>) {
        let checked = self.check_version(&commit);
        if let Err(refusal) = checked.and_then(|()| self.check_commit(&commit.member, desk)) {
            return desk.refuse(commit.request, refusal);
        }
        let (entries, outcome) = self.offset_entries(commit.offsets, desk);
        self.write(commit.request, entries, outcome, desk);
    }

    fn check_version(&self, commit: &CommitOffsets) -> Result<(), Refusal> {
        let speaks = |consumer: &Consumer| consumer.has_by_epoch(&commit.member.member);
        let is_old = !commit.knows_epochs && self.consumer.as_deref().is_some_and(speaks);
        if is_old { Err(Refusal::TooOld) } else { Ok(()) }
    }

    /// The records of those offsets that may be committed, and what is to be said of all.
    pub(super) fn offset_entries(
        &self,
        offsets: Vec<(TopicPartition, CommittedOffset)>,
        desk: &Desk<'_>,
    ) -> (Vec<Entry>, Outcome) {
        let at = desk.now.wall;
        let mut entries = Vec::new();
        let mut results = Vec::new();
        let waiting = self.in_transactions.values().map(BTreeMap::len).sum::<usize>();
        let mut known = self.offsets.len() + waiting;
        let mut known_all = desk.state.offsets + desk.state.in_transactions;
        for (partition, committed) in offsets {
            let is_new = !self.offsets.contains_key(&partition);
            let metadata_bytes_max = desk.limits.offset_metadata_bytes_max.min(TEXT_BYTES_MAX);
            let refusal = if committed.metadata.len() > metadata_bytes_max {
                Some(Refusal::OffsetMetadataTooLarge)
            } else if partition.topic.len() > TEXT_BYTES_MAX {
                Some(Refusal::CommitTooLarge)
            } else if is_new
                && (known >= desk.limits.group_offsets_max || known_all >= desk.limits.offsets_max)
            {
                Some(Refusal::Full)
            } else {
                known += usize::from(is_new);
                known_all += usize::from(is_new);
                let value = Some(StoredOffset { committed, at });
                entries.push(self.offset_entry(partition.clone(), value));
                None
            };
            results.push((partition, refusal));
        }
        (entries, Outcome::OffsetsCommitted { partitions: results })
    }

    /// Whether a member of a consumer group may fetch offsets with this epoch.
    pub(super) fn check_fetch(&self, member: &str, epoch: i32) -> Result<(), Refusal> {
        match &self.consumer {
            Some(consumer) if !member.is_empty() => consumer.check_epoch(member, epoch),
            _ => Ok(()),
        }
    }

    pub(super) fn check_commit(
        &mut self,
        claim: &MemberClaim,
        desk: &Desk<'_>,
    ) -> Result<(), Refusal> {
        if !desk.has_room() {
            return Err(Refusal::NotAvailable);
        }
        if let Some(consumer) = &self.consumer
            && !(claim.generation < 0 && consumer.is_empty())
        {
            return consumer.check_epoch(&claim.member, claim.generation);
        }
        let nobody = claim.member.is_empty() && claim.instance.is_none();
        if claim.generation < 0 && self.phase == Phase::Empty {
            // A consumer that assigns itself, or an administrator.
            return Ok(());
        }
        if claim.generation < 0 && nobody {
            return Err(Refusal::UnknownMember);
        }
        self.resolve(&claim.member, claim.instance.as_deref())?;
        if claim.generation != self.generation {
            return Err(Refusal::IllegalGeneration);
        }
        if matches!(self.phase, Phase::Completing { .. }) {
            return Err(Refusal::RebalanceInProgress);
        }
        self.hear(&claim.member, desk);
        Ok(())
    }

    /// Writes `entries`, and answers when they are written; at once if there are none.
    fn write(
        &mut self,
        request: RequestId,
        entries: Vec<Entry>,
        outcome: Outcome,
        desk: &mut Desk<'_>,
    ) {
        if entries.is_empty() {
            return desk.reply(request, outcome);
        }
        match desk.append(&self.name, entries, Then::reply(request, outcome)) {
            Ok(()) => self.appends += 1,
            Err(refusal) => {
                self.end_not();
                desk.refuse(request, refusal);
            }
        }
    }

    fn offset_entry(&self, partition: TopicPartition, value: Option<StoredOffset>) -> Entry {
        Entry::Offset { group: self.name.clone(), partition, value }
    }

    /// In the order asked for; all that there are if nothing is. With `require_stable`, an offset
    /// for which a transaction is open is refused.
    pub(super) fn fetch(
        &self,
        partitions: Option<Vec<TopicPartition>>,
        require_stable: bool,
    ) -> Vec<(TopicPartition, Result<Option<CommittedOffset>, Refusal>)> {
        let partitions = partitions.unwrap_or_else(|| {
            let unstable = self.unstable().filter(|_| require_stable);
            let all = self.offsets.keys().chain(unstable).cloned();
            all.collect::<BTreeSet<_>>().into_iter().collect()
        });
        let one = |partition: TopicPartition| {
            let found = if require_stable && self.is_unstable(&partition) {
                Err(Refusal::Unstable)
            } else {
                Ok(self.offsets.get(&partition).map(|stored| stored.committed.clone()))
            };
            (partition, found)
        };
        partitions.into_iter().map(one).collect()
    }

    /// Forgets the group and its offsets, for a request.
    pub(super) fn on_delete(&mut self, request: RequestId, desk: &mut Desk<'_>) {
        if !self.has_nobody() {
            return desk.refuse(request, Refusal::NotEmpty);
        }
        if self.consumer.as_ref().is_some_and(|consumer| consumer.keeping.is_busy()) {
            return desk.refuse(request, Refusal::NotAvailable);
        }
        let mut entries = self.forget(|_| true);
        entries.extend(self.forget_group());
        self.write(request, entries, Outcome::Deleted, desk);
    }

    pub(super) fn on_delete_offsets(
        &mut self,
        request: RequestId,
        partitions: Vec<TopicPartition>,
        desk: &mut Desk<'_>,
    ) {
        if self.phase != Phase::Empty && self.protocol_type != "consumer" {
            return desk.refuse(request, Refusal::NotEmpty);
        }
        let mut entries = Vec::new();
        let mut results = Vec::new();
        for partition in partitions {
            let subscribed = self.is_subscribed(&partition.topic);
            let is_known = self.offsets.contains_key(&partition) || self.is_unstable(&partition);
            if !subscribed && is_known {
                entries.push(self.offset_entry(partition.clone(), None));
            }
            results.push((partition, subscribed.then_some(Refusal::Subscribed)));
        }
        let outcome = Outcome::OffsetsDeleted { partitions: results };
        self.write(request, entries, outcome, desk);
    }

    /// Whether a member reads `topic`. A subscription that cannot be read counts as one to all.
    fn is_subscribed(&self, topic: &str) -> bool {
        if let Some(consumer) = &self.consumer {
            return consumer.is_subscribed(topic);
        }
        self.members.values().any(|member| {
            member.protocols.iter().any(|protocol| {
                subscribed_topics(&protocol.metadata)
                    .is_none_or(|topics| topics.iter().any(|name| name == topic))
            })
        })
    }

    /// Topics are gone, and with them what is known of them.
    pub(super) fn on_topics_deleted(&mut self, topics: &[String], desk: &mut Desk<'_>) {
        if mutant!("offsets-outlive-topic") {
            return;
        }
        let entries = self.forget(|partition| topics.contains(&partition.topic));
        self.append_forgotten(entries, desk);
    }

    /// Forgets offsets whose time has passed: those of a group without members, from when the
    /// last one left, or from their commit where there never was one; and from their commit where
    /// there are members, none of which reads the topic. KIP-211. `today` is a wall clock
    /// that does not jump forward.
    pub(super) fn expire(&mut self, today: Timestamp, desk: &mut Desk<'_>) {
        let is_busy = self.consumer.as_ref().is_some_and(|consumer| consumer.keeping.is_busy());
        if (is_busy || self.appends > 0) && !mutant!("offsets-expire-in-use") {
            return;
        }
        let has_nobody = self.has_nobody() || mutant!("offsets-expire-in-use");
        if !has_nobody && !self.knows_subscriptions(desk) {
            return;
        }
        let kept = i64::try_from(desk.limits.offsets_retention.as_millis()).unwrap_or(i64::MAX);
        let horizon = Timestamp(today.0.saturating_sub(kept));
        let simple = self.protocol_type.is_empty() && self.consumer.is_none();
        let left = if simple || !has_nobody { Timestamp::NONE } else { self.since };
        // zoo F17's kin: what a transaction is about to replace is in use.
        let mut entries = self.forget_stable(|partition, stored| {
            let is_old = stored.at.max(left) <= horizon;
            is_old && (has_nobody || !self.is_subscribed(&partition.topic))
        });
        let is_known = self.generation > 0 || self.consumer.is_some();
        let is_idle = self.in_transactions.is_empty();
        if has_nobody && entries.len() == self.offsets.len() && is_known && is_idle {
            entries.extend(self.forget_group());
        }
        self.append_forgotten(entries, desk);
    }

    /// Whether all members are there who say what they read, and what that means is known.
    fn knows_subscriptions(&self, desk: &Desk<'_>) -> bool {
        match self.consumer {
            Some(_) => desk.topics.is_known,
            None => self.phase == Phase::Stable && self.protocol_type == PROTOCOL_TYPE,
        }
    }

    /// Nobody waits for it; what does not fit or is refused is forgotten another time.
    fn append_forgotten(&mut self, entries: Vec<Entry>, desk: &mut Desk<'_>) {
        if entries.is_empty() {
            return;
        }
        match desk.append(&self.name, entries, Then::default()) {
            Ok(()) => self.appends += 1,
            Err(_) => self.end_not(),
        }
    }

    /// The records that forget offsets, those that wait for a marker as well.
    fn forget(&self, which: impl Fn(&TopicPartition) -> bool) -> Vec<Entry> {
        let all = self.offsets.keys().chain(self.unstable()).filter(|partition| which(partition));
        let all = all.collect::<BTreeSet<_>>();
        all.into_iter().map(|partition| self.offset_entry(partition.clone(), None)).collect()
    }

    /// The same of those that no transaction is about to replace.
    fn forget_stable(&self, which: impl Fn(&TopicPartition, &StoredOffset) -> bool) -> Vec<Entry> {
        let old = |(partition, stored): &(&TopicPartition, &StoredOffset)| {
            which(partition, stored) && !self.is_unstable(partition)
        };
        let old = self.offsets.iter().filter(old);
        old.map(|(partition, _)| self.offset_entry(partition.clone(), None)).collect()
    }

    /// Takes over what a committed record says of this group's offsets.
    pub(super) fn fold_offset(
        &mut self,
        partition: TopicPartition,
        value: Option<StoredOffset>,
        desk: &mut Desk<'_>,
    ) {
        self.overtake(&partition, u64::MAX, desk);
        self.set_offset(partition, value, desk);
    }

    pub(super) fn set_offset(
        &mut self,
        partition: TopicPartition,
        value: Option<StoredOffset>,
        desk: &mut Desk<'_>,
    ) {
        let before = match value {
            Some(mut stored) => {
                if mutant!("commit-epoch-forgotten") {
                    stored.committed.leader_epoch = LeaderEpoch(-1);
                }
                desk.state.offsets += 1;
                self.offsets.insert(partition, stored)
            }
            None => self.offsets.remove(&partition),
        };
        desk.state.offsets -= usize::from(before.is_some());
    }

    /// The group is forgotten by a committed record: so is everything but who joined since, and
    /// what is on its way to the log behind that record.
    pub(super) fn fold_forgotten(&mut self) {
        if self.phase == Phase::Empty && self.appends <= 1 {
            self.generation = 0;
            self.protocol_type = String::new();
        }
    }

    /// Takes over what a replayed record says of this group.
    pub(super) fn fold_group(&mut self, value: Option<StoredGroup>, desk: &Desk<'_>) {
        match value {
            Some(stored) => self.restore(stored, desk.now.monotonic),
            None => {
                let forgotten = StoredGroup { since: desk.now.wall, ..StoredGroup::default() };
                self.restore(forgotten, desk.now.monotonic);
            }
        }
    }
}
