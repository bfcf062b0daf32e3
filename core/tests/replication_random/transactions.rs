//! Producers of the walk that write in transactions, and their coordinator: it decides once how a
//! transaction ends, and says so until the partition has heard it, whoever leads.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::batch::control::{Ending, Marker};
use quorate_core::batch::{Batch, BatchBuilder, Codec, Levels};
use quorate_core::id::{CoordinatorEpoch, NodeId, Offset, ProducerEpoch, ProducerId, RequestId};
use quorate_core::partition::interface::{
    Acks, EndTransaction, Input, Outcome, Produce, Refusal, Verify,
};
use quorate_core::time::Timestamp;

use super::Walk;
use super::cluster::Asked;

/// The first id of those who write in transactions, and how many there are.
const FIRST: i64 = 20;
const COUNT: u64 = 3;

#[derive(Default)]
pub(super) struct Writers {
    writers: BTreeMap<i64, Writer>,
    /// How each transaction ended, by its producer's id and epoch.
    decided: BTreeMap<(i64, i16), Ending>,
}

#[derive(Default)]
struct Writer {
    epoch: i16,
    sequence: i32,
    /// A batch or a marker that is not answered yet.
    busy: Option<RequestId>,
    /// Batches of this transaction that were acknowledged.
    acked: i32,
    ending: Option<Ending>,
}

impl Walk {
    /// Somebody writes in a transaction, or its coordinator tells how one ended.
    pub(super) fn transact(&mut self) {
        let id = FIRST + self.rng.below(COUNT) as i64;
        let node = if self.rng.below(10) == 0 { self.any_up() } else { self.cluster.leader() };
        let Some(node) = node else { return };
        self.check_decided(node);
        self.forget_lost();
        let writer = self.writers.writers.entry(id).or_default();
        if writer.busy.is_some() {
            return;
        }
        if writer.ending.is_none() && self.rng.below(4) > 0 {
            return self.write_in_transaction(id, node);
        }
        let is_commit = self.rng.below(2) == 0;
        self.decide_ending(id, if is_commit { Ending::Committed } else { Ending::Aborted });
        self.tell_ending(id, node);
    }

    /// Requests to a node that died are not answered.
    fn forget_lost(&mut self) {
        let busy: Vec<_> = self.writers.writers.values().filter_map(|it| it.busy).collect();
        for request in busy {
            let is_answered = self.cluster.answers.iter().any(|(of, ..)| *of == request);
            if !is_answered && !self.cluster.asked.contains_key(&request) {
                self.transaction_answered(request, &Outcome::Refused(Refusal::TimedOut));
            }
        }
    }

    fn decide_ending(&mut self, id: i64, ending: Ending) {
        let writer = self.writers.writers.entry(id).or_default();
        let ending = *writer.ending.get_or_insert(ending);
        self.writers.decided.insert((id, writer.epoch), ending);
    }

    fn asks(&mut self, node: NodeId) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let asked = Asked { node, acks: Acks::None, name: None, sequence: None };
        self.cluster.asked.insert(request, asked);
        request
    }

    fn write_in_transaction(&mut self, id: i64, node: NodeId) {
        let writer = &self.writers.writers[&id];
        let (producer, epoch, sequence) =
            (ProducerId(id), ProducerEpoch(writer.epoch), writer.sequence);
        let request = self.asks(node);
        let verify = Verify { request, producer, epoch, sequence, transaction_version: 2 };
        self.cluster.step(node, Input::Verify(verify));
        let answered = self.cluster.answers.iter().rposition(|(of, ..)| *of == request);
        let Some(place) = answered else { return };
        let Outcome::Verified(guard) = self.cluster.answers[place].2 else { return };
        let mut builder =
            BatchBuilder::new(Codec::None).producer(producer, epoch, sequence).transactional();
        builder.append(Timestamp(500_000), None, Some(b"in a transaction"), []);
        let request = self.asks(node);
        let until = self.cluster.now.monotonic + Duration::from_millis(500 + self.rng.below(2000));
        let (levels, acks) = (Levels::DEFAULT, Acks::All);
        let produce = Produce { request, batch: builder.build(), levels, acks, until, guard };
        self.writers.writers.entry(id).or_default().busy = Some(request);
        self.cluster.step(node, Input::Produce(produce));
    }

    fn tell_ending(&mut self, id: i64, node: NodeId) {
        let writer = &self.writers.writers[&id];
        let (Some(ending), None) = (writer.ending, writer.busy) else { return };
        let epoch = ProducerEpoch(writer.epoch + 1);
        let request = self.asks(node);
        let end = EndTransaction {
            request,
            producer: ProducerId(id),
            epoch,
            ending,
            coordinator_epoch: CoordinatorEpoch(3),
            transaction_version: 2,
            until: self.cluster.now.monotonic + Duration::from_millis(self.rng.below(2000)),
        };
        self.writers.writers.entry(id).or_default().busy = Some(request);
        self.cluster.step(node, Input::EndTransaction(end));
    }

    /// What became of a request, if it was one of these. Whether it was.
    pub(super) fn transaction_answered(&mut self, request: RequestId, outcome: &Outcome) -> bool {
        let found = self.writers.writers.iter_mut().find(|(_, it)| it.busy == Some(request));
        let Some((&id, writer)) = found else { return false };
        writer.busy = None;
        match (outcome, writer.ending) {
            (Outcome::Produced { .. }, None) => {
                writer.sequence += 1;
                writer.acked += 1;
            }
            (Outcome::TransactionEnded, Some(ending)) => {
                let (epoch, acked) = (writer.epoch, writer.acked);
                *writer = Writer { epoch: epoch + 1, ..Writer::default() };
                if self.cluster.deletable == Offset::ZERO {
                    self.check_ended(id, epoch, ending, acked);
                }
            }
            // Nobody knows whether it stands in the log: the transaction is aborted.
            (Outcome::Refused(refusal), None) => {
                let is_stale = matches!(refusal, Refusal::StaleProducerEpoch { .. });
                assert!(!is_stale, "p{id}: {refusal:?}");
                self.decide_ending(id, Ending::Aborted);
            }
            // It is told again.
            (Outcome::Refused(refusal), Some(_)) => {
                let is_stale = matches!(refusal, Refusal::StaleProducerEpoch { .. });
                assert!(!is_stale, "p{id}: {refusal:?}");
            }
            other => panic!("p{id} is told {other:?}"),
        }
        true
    }

    /// A marker was said to be committed: it is, behind all that was acknowledged.
    fn check_ended(&self, id: i64, epoch: i16, ending: Ending, acked: i32) {
        let Some(leader) = self.cluster.leader() else { return };
        let node = &self.cluster.nodes[&leader];
        if node.log.is_being_cut() {
            return;
        }
        let batches = node.log.all_batches();
        let of = |batch: &&&Batch, epoch: i16| {
            let header = batch.header();
            header.producer_id() == ProducerId(id) && header.producer_epoch().0 == epoch
        };
        let data = batches.iter().filter(|it| of(it, epoch) && !it.header().is_control());
        assert!(data.count() >= acked as usize, "p{id}@{epoch}: acknowledged batches are missing");
        let mut markers = batches.iter().filter(|it| of(it, epoch + 1) && it.header().is_control());
        let told = markers.next().and_then(|batch| Marker::of(batch)).map(|it| it.ending);
        assert_eq!(told, Some(ending), "p{id}@{epoch}");
    }

    /// Below its last stable offset a replica has nothing whose end is not committed, and every end
    /// is the one that was decided.
    fn check_decided(&self, id: NodeId) {
        let node = &self.cluster.nodes[&id];
        let Some(replica) = node.replica.as_ref().filter(|_| !node.log.is_being_cut()) else {
            return;
        };
        let view = replica.view();
        let mut open: BTreeMap<ProducerId, (Offset, i16)> = BTreeMap::new();
        for batch in node.log.all_batches() {
            let header = batch.header();
            let (producer, epoch) = (header.producer_id(), header.producer_epoch().0);
            if header.base_offset() >= view.high_watermark {
                break;
            }
            if let Some(marker) = Marker::of(batch) {
                open.remove(&producer);
                let decided = self.writers.decided.get(&(producer.0, epoch - 1));
                assert_eq!(decided, Some(&marker.ending), "{producer}@{epoch}");
            } else if header.is_transactional() {
                let (_, first) =
                    *open.entry(producer).or_insert_with(|| (header.base_offset(), epoch));
                assert_eq!(first, epoch, "p{producer}: one transaction joins another");
            }
        }
        let undecided = open.values().map(|(first, _)| *first).min();
        let start = view.log_start;
        let is_bounded = undecided.is_none_or(|first| view.last_stable <= first.max(start));
        assert!(is_bounded, "n{id} shows {} of {undecided:?}", view.last_stable);
    }

    /// Fewer replicas than have to be in sync take no marker.
    fn can_end(&self) -> bool {
        self.cluster.nodes.len() >= usize::from(self.cluster.config.in_sync_min)
    }

    /// In the end every transaction ends. Whether one is still to be told.
    pub(super) fn end_transactions(&mut self) -> bool {
        if !self.can_end() {
            return false;
        }
        let Some(leader) = self.cluster.leader() else { return true };
        self.forget_lost();
        for id in self.writers.writers.keys().copied().collect::<Vec<_>>() {
            let writer = &self.writers.writers[&id];
            if writer.busy.is_none() && (writer.ending.is_some() || writer.acked > 0) {
                self.decide_ending(id, Ending::Aborted);
                self.tell_ending(id, leader);
            }
        }
        let waits = |it: &Writer| it.busy.is_some() || it.ending.is_some() || it.acked > 0;
        self.writers.writers.values().any(waits)
    }

    /// No transaction hangs.
    pub(super) fn check_nothing_hangs(&self) {
        for (id, node) in self.cluster.nodes.iter().filter(|_| self.can_end()) {
            let Some(replica) = &node.replica else { continue };
            let (log, view) = (replica.log(), replica.view());
            assert!(log.open.is_empty(), "n{id}: {:?} hang", log.open);
            assert_eq!(view.last_stable, view.high_watermark, "n{id}");
        }
    }
}
