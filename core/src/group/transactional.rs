//! Offsets that a producer commits in its transaction: they wait for its marker, and then count all
//! at once, or not at all. KIP-98, KIP-447; Kafka's `OffsetMetadataManager`.
//!
//! The log decides: of two offsets for one partition the one that stands further on counts,
//! whenever the transaction of either ends. So an offset that is committed without a transaction
//! takes the place of all that wait for the same partition.

use std::collections::BTreeMap;

use super::classic::{Group, Phase};
use super::desk::{Desk, Then, Transaction};
use super::interface::{CommitTransactional, Effect, MemberClaim, Refusal, TopicPartition};
use super::record::StoredOffset;
use super::{Groups, Role, refuse};
use crate::batch::control::Ending;
use crate::id::ProducerId;
use crate::time::Now;
use crate::{mutant, reached};

/// What one producer has committed in the transaction that it has open.
pub(super) type InTransaction = BTreeMap<TopicPartition, Waiting>;

/// An offset that waits for its marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) stored: StoredOffset,
    /// Rises along the log.
    order: u64,
}

impl Groups {
    pub(super) fn on_commit_transactional(
        &mut self,
        now: Now,
        it: CommitTransactional,
        effects: &mut Vec<Effect>,
    ) {
        let (request, name) = (it.commit.request, it.commit.member.group.clone());
        let admitted = self.admit(&name, false).and_then(|()| {
            if it.commit.member.generation >= 0 && !self.groups.contains_key(&name) {
                return Err(Refusal::IllegalGeneration);
            }
            self.ensure_group(now, &name)
        });
        match admitted {
            Err(refusal) => refuse(effects, request, refusal),
            Ok(()) => {
                self.with_group(&name, now, effects, |group, desk| {
                    group.on_commit_transactional(it, desk);
                });
            }
        }
    }

    /// A marker of the producer is committed, or was replayed.
    pub(super) fn on_transaction_ended(
        &mut self,
        now: Now,
        (producer, ending): (ProducerId, Ending),
        effects: &mut Vec<Effect>,
    ) {
        match self.role {
            Role::Idle => {}
            // What it ends may still be on its way from the log. Nothing new begins meanwhile, so
            // the first marker of a producer is the one that counts.
            Role::Loading => {
                self.ended.entry(producer).or_insert(ending);
            }
            Role::Leading { .. } => self.end_transaction(now, (producer, ending), effects),
        }
    }

    pub(super) fn end_transaction(
        &mut self,
        now: Now,
        (producer, ending): (ProducerId, Ending),
        effects: &mut Vec<Effect>,
    ) {
        let groups = self.desk.transactions.remove(&producer).unwrap_or_default();
        for name in groups {
            self.with_group(&name, now, effects, |group, desk| {
                group.end_transaction(producer, ending, desk);
            });
        }
    }

    /// The log was replayed.
    pub(super) fn end_transactions(&mut self, now: Now, effects: &mut Vec<Effect>) {
        for ended in std::mem::take(&mut self.ended) {
            reached!("marker-while-loading");
            self.end_transaction(now, ended, effects);
        }
    }

    /// Panics if what is counted is not what is there.
    pub(super) fn check_transactions(&self) {
        let mut index = BTreeMap::new();
        let mut count = 0;
        for (name, group) in &self.groups {
            for (producer, waiting) in &group.in_transactions {
                assert!(!waiting.is_empty(), "nothing is kept of nothing");
                count += waiting.len();
                let groups: &mut std::collections::BTreeSet<String> =
                    index.entry(*producer).or_default();
                groups.insert(name.clone());
            }
        }
        assert_eq!(self.desk.in_transactions, count, "offsets that wait are counted");
        assert_eq!(self.desk.transactions, index, "transactions are an index");
        assert!(self.ended.is_empty() || self.role == Role::Loading);
    }
}

impl Group {
    fn on_commit_transactional(&mut self, it: CommitTransactional, desk: &mut Desk<'_>) {
        let CommitTransactional { commit, producer, epoch, guard } = it;
        // zoo F4: who commits was looked at before its transaction was verified, and not since.
        let checks = !mutant!("group-check-then-write");
        if checks && let Err(refusal) = self.check_transactional(&commit.member, desk) {
            return desk.refuse(commit.request, refusal);
        }
        let (entries, outcome) = self.offset_entries(commit.offsets, desk);
        if entries.is_empty() {
            return desk.reply(commit.request, outcome);
        }
        let transaction = Transaction { producer, epoch, guard };
        let then = Then::reply(commit.request, outcome);
        match desk.append_transactional(&self.name, entries, then, transaction) {
            Ok(()) => self.appends += 1,
            Err(refusal) => desk.refuse(commit.request, refusal),
        }
    }

    /// Who does not say who it is, is fenced by its producer epoch alone. Unlike another, a commit
    /// in a transaction does not wait for the end of a rebalance: what it rests on was consumed in
    /// the generation that it names.
    fn check_transactional(&mut self, claim: &MemberClaim, desk: &Desk<'_>) -> Result<(), Refusal> {
        if !desk.has_room() {
            return Err(Refusal::NotAvailable);
        }
        let nobody = claim.generation < 0 && claim.member.is_empty() && claim.instance.is_none();
        if nobody {
            return Ok(());
        }
        if self.consumer.is_some() || self.phase == Phase::Empty {
            return self.check_commit(claim, desk);
        }
        self.resolve(&claim.member, claim.instance.as_deref())?;
        if claim.generation != self.generation {
            return Err(Refusal::IllegalGeneration);
        }
        self.hear(&claim.member, desk);
        Ok(())
    }

    /// Takes over what a committed record of a transaction that is open says.
    pub(super) fn fold_waiting(
        &mut self,
        producer: ProducerId,
        partition: TopicPartition,
        value: Option<StoredOffset>,
        desk: &mut Desk<'_>,
    ) {
        // Nobody forgets an offset in a transaction.
        let Some(stored) = value else { return };
        desk.state.order += 1;
        let waiting = Waiting { stored, order: desk.state.order };
        let all = self.in_transactions.entry(producer).or_default();
        let before = all.insert(partition, waiting);
        desk.state.in_transactions += usize::from(before.is_none());
        desk.state.transactions.entry(producer).or_default().insert(self.name.clone());
    }

    fn end_transaction(&mut self, producer: ProducerId, ending: Ending, desk: &mut Desk<'_>) {
        let Some(waiting) = self.in_transactions.remove(&producer) else { return };
        desk.state.in_transactions -= waiting.len();
        // zoo F19: what a transaction would have done is taken for what it did.
        if ending == Ending::Aborted && !mutant!("group-txn-state-wrong-after-replay") {
            reached!("offsets-of-an-aborted-transaction");
            return;
        }
        for (partition, Waiting { stored, order }) in waiting {
            self.overtake(&partition, order, desk);
            self.set_offset(partition, Some(stored), desk);
        }
    }

    /// What stands in the log before `order` for the partition, and waits, counts no more.
    pub(super) fn overtake(&mut self, partition: &TopicPartition, order: u64, desk: &mut Desk<'_>) {
        let mut left = Vec::new();
        for (&producer, waiting) in &mut self.in_transactions {
            if waiting.get(partition).is_some_and(|it| it.order < order) {
                reached!("waiting-offset-overtaken");
                waiting.remove(partition);
                desk.state.in_transactions -= 1;
                if waiting.is_empty() {
                    left.push(producer);
                }
            }
        }
        for producer in left {
            self.in_transactions.remove(&producer);
            if let Some(groups) = desk.state.transactions.get_mut(&producer) {
                groups.remove(&self.name);
                if groups.is_empty() {
                    desk.state.transactions.remove(&producer);
                }
            }
        }
    }

    /// Whether a transaction that is open has an offset for the partition.
    pub(super) fn is_unstable(&self, partition: &TopicPartition) -> bool {
        self.in_transactions.values().any(|waiting| waiting.contains_key(partition))
    }

    /// Partitions for which a transaction that is open has an offset.
    pub(super) fn unstable(&self) -> impl Iterator<Item = &TopicPartition> {
        self.in_transactions.values().flat_map(|waiting| waiting.keys())
    }
}
