//! Producers of the walk that write in transactions, and a reader of committed records who leaves
//! out what it is told to, as clients do.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::batch::BatchBuilder;
use quorate_core::batch::control::{Ending, Marker};
use quorate_core::id::{CoordinatorEpoch, Offset, ProducerEpoch, ProducerId, VerificationGuard};
use quorate_core::partition::interface::{EndTransaction, Input, Outcome, Verify};

use super::Walk;

/// The first id of those who write in transactions.
const FIRST: i64 = 100;
/// How many there are.
const COUNT: u64 = 3;

/// What the walk knows of transactions.
#[derive(Default)]
pub(super) struct Transactions {
    producers: BTreeMap<i64, Writer>,
    /// Whose transaction each record was written in; counted over all.
    pub(super) written_in: BTreeMap<Offset, u64>,
    /// Those that have ended: whether they were committed.
    pub(super) committed: BTreeMap<u64, bool>,
    count: u64,
    coordinator_epoch: i32,
}

#[derive(Default)]
struct Writer {
    epoch: i16,
    sequence: i32,
    open: Option<u64>,
}

impl Transactions {
    /// Whether a record counts for who reads committed records only; `None` if that is open.
    pub(super) fn counts(&self, offset: Offset) -> Option<bool> {
        let Some(transaction) = self.written_in.get(&offset) else { return Some(true) };
        self.committed.get(transaction).copied()
    }
}

impl Walk {
    /// Somebody begins a transaction, or goes on with it: the batch's producer, and the guard.
    pub(super) fn in_transaction(
        &mut self,
        builder: BatchBuilder,
    ) -> (BatchBuilder, i64, Option<VerificationGuard>) {
        let id = FIRST + self.rng.below(COUNT) as i64;
        let writer = self.transactions.producers.entry(id).or_default();
        let (epoch, sequence) = (ProducerEpoch(writer.epoch), writer.sequence);
        let is_open = writer.open.is_some();
        let (request, producer) = (self.request(), ProducerId(id));
        let verify = Verify { request, producer, epoch, sequence, transaction_version: 2 };
        let Outcome::Verified(guard) = self.ask(Input::Verify(verify)) else {
            panic!("p{id} may write");
        };
        assert_eq!(guard.is_none(), is_open, "p{id}: what is open is known");
        (builder.producer(producer, epoch, sequence).transactional(), id, guard)
    }

    /// The batch was appended.
    pub(super) fn wrote_in_transaction(&mut self, id: i64, base: Offset, count: i32) {
        let transactions = &mut self.transactions;
        let writer = transactions.producers.get_mut(&id).expect("a writer");
        writer.sequence += count;
        let transaction = *writer.open.get_or_insert_with(|| {
            transactions.count += 1;
            transactions.count
        });
        for place in 0..count {
            transactions.written_in.insert(base.plus(i64::from(place)), transaction);
        }
    }

    /// Some transaction ends; or one that wrote nothing here does.
    pub(super) fn end_transaction(&mut self) {
        let id = FIRST + self.rng.below(COUNT) as i64;
        self.end_transaction_of(id);
    }

    /// All that are open end.
    pub(super) fn end_transactions(&mut self) {
        (0..COUNT as i64).for_each(|id| self.end_transaction_of(FIRST + id));
    }

    pub(super) fn end_transaction_of(&mut self, id: i64) {
        let is_commit = self.rng.below(2) == 0;
        let request = self.request();
        let transactions = &mut self.transactions;
        let writer = transactions.producers.entry(id).or_default();
        writer.epoch += 1;
        writer.sequence = 0;
        if let Some(transaction) = writer.open.take() {
            transactions.committed.insert(transaction, is_commit);
        }
        let epoch = ProducerEpoch(writer.epoch);
        transactions.coordinator_epoch += i32::from(self.rng.below(4) == 0);
        let end = EndTransaction {
            request,
            producer: ProducerId(id),
            epoch,
            ending: if is_commit { Ending::Committed } else { Ending::Aborted },
            coordinator_epoch: CoordinatorEpoch(transactions.coordinator_epoch),
            transaction_version: 2,
            until: self.now.monotonic + std::time::Duration::from_secs(3600),
        };
        self.step(Input::EndTransaction(end));
    }

    /// Reads committed records from somewhere on, as Kafka's clients do: an aborted transaction is
    /// left out from its first record on, up to its producer's next marker.
    pub(super) fn read_committed(&mut self) {
        let stable = self.replica.view().last_stable;
        let from = Offset(self.rng.below(stable.0.unsigned_abs() + 1) as i64);
        let to = Offset(from.0 + self.rng.below((stable.0 - from.0).unsigned_abs() + 1) as i64);
        let request = self.request();
        let Outcome::Aborted { transactions, .. } = self.ask(Input::Aborted { request, from, to })
        else {
            panic!("the leader tells");
        };
        assert!(transactions.is_sorted_by_key(|aborted| aborted.first));
        let end = self.replica.view().aborted_end;
        assert!(transactions.iter().all(|aborted| aborted.last < end));
        let mut coming = transactions.iter().peekable();
        let mut aborted = BTreeSet::new();
        for batch in self.contents.batches() {
            let header = batch.header();
            if header.next_offset() <= from || header.base_offset() >= to {
                continue;
            }
            while let Some(next) = coming.next_if(|it| it.first <= header.last_offset()) {
                aborted.insert(next.producer);
            }
            if header.is_control() {
                if Marker::of(batch).is_some_and(|marker| marker.ending == Ending::Aborted) {
                    aborted.remove(&header.producer_id());
                }
                continue;
            }
            if header.record_count() == 0 {
                continue;
            }
            let is_shown = !header.is_transactional() || !aborted.contains(&header.producer_id());
            let base = header.base_offset();
            let transaction = self.transactions.written_in.range(base..=header.last_offset());
            let counts = transaction.map(|(offset, _)| self.transactions.counts(*offset)).next();
            let counts = counts.unwrap_or(Some(true));
            assert_eq!(Some(is_shown), counts, "{base} read from {from} to {to}, stable {stable}");
        }
    }

    /// Every transaction of which a record is left has its marker behind it.
    pub(super) fn look_for_markers(&self) {
        let mut open: BTreeMap<ProducerId, Offset> = BTreeMap::new();
        for batch in self.contents.batches() {
            let header = batch.header();
            if header.is_control() {
                open.remove(&header.producer_id());
            } else if header.is_transactional() && header.record_count() > 0 {
                open.entry(header.producer_id()).or_insert_with(|| header.base_offset());
            }
        }
        let live = self.replica.log().open.iter();
        let live: BTreeMap<ProducerId, Offset> =
            live.map(|(first, producer)| (producer, first)).collect();
        assert_eq!(open, live, "what is open in the log is what is open");
    }
}
