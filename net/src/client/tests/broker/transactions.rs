//! The broker's transactions: one coordinator, which ends them in the log at once. KIP-890.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::batch::Batch;
use quorate_core::batch::control::{Ending, Marker};
use quorate_core::id::{CoordinatorEpoch, LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use quorate_core::time::Timestamp;

use super::{Fault, State};
use crate::kafka::messages as m;
use crate::wire::Text;

#[derive(Default)]
pub(in crate::client::tests) struct Transactions {
    /// The level of `transaction.version`; none is told where it is 0.
    pub version: i16,
    /// What happens to the requests to end one.
    pub faults: VecDeque<Fault>,
    /// What is answered to a group's offsets.
    pub offsets_refused: Option<i16>,
    /// Each commit of offsets that was taken, by group and generation.
    pub offsets: Vec<(String, i32, i64)>,
    /// By transactional id: what it goes by, and how its last transaction ended.
    ids: BTreeMap<String, (ProducerId, ProducerEpoch, Option<bool>)>,
    /// By producer: where its open transaction begins.
    open: BTreeMap<ProducerId, i64>,
    aborted: Vec<(i64, m::fetch::AbortedTransaction)>,
}

impl Transactions {
    pub(super) fn features(&self) -> Vec<m::api_versions::FinalizedFeatureKey> {
        let feature = m::api_versions::FinalizedFeatureKey {
            name: Text::from_static("transaction.version"),
            max_version_level: self.version,
            min_version_level: self.version,
        };
        if self.version > 0 { vec![feature] } else { Vec::new() }
    }
}

pub(super) fn coordinator(request: &m::FindCoordinatorRequest) -> m::FindCoordinatorResponse {
    let keys = request.coordinator_keys.iter().map(|key| m::find_coordinator::Coordinator {
        key: key.clone(),
        node_id: 2,
        host: Text::from_static("two"),
        port: 2,
        ..Default::default()
    });
    m::FindCoordinatorResponse { coordinators: keys.collect(), ..Default::default() }
}

impl State {
    pub(super) fn init_transactional(
        &mut self,
        request: &m::InitProducerIdRequest,
    ) -> m::InitProducerIdResponse {
        let name = request.transactional_id.as_ref().unwrap().to_string();
        let (id, epoch) = match self.transactions.ids.get(&name).copied() {
            None => {
                self.next_producer += 1;
                (ProducerId(self.next_producer), ProducerEpoch(0))
            }
            Some((id, epoch, _)) => {
                let next = ProducerEpoch(epoch.0 + 1);
                self.mark(id, next, Ending::Aborted);
                (id, next)
            }
        };
        self.transactions.ids.insert(name, (id, epoch, None));
        let (producer_id, producer_epoch) = (id.0, epoch.0);
        m::InitProducerIdResponse { producer_id, producer_epoch, ..Default::default() }
    }

    pub(super) fn end(&mut self, request: &m::EndTxnRequest) -> Option<m::EndTxnResponse> {
        let fault = self.transactions.faults.pop_front();
        match fault {
            Some(Fault::LoseRequest) => return None,
            Some(Fault::Refuse(error_code)) => {
                return Some(m::EndTxnResponse { error_code, ..Default::default() });
            }
            _ => {}
        }
        let name = request.transactional_id.to_string();
        let (id, epoch, ended) = *self.transactions.ids.get_mut(&name).unwrap();
        let again = request.producer_epoch + 1 == epoch.0 && ended == Some(request.committed);
        if !again && (request.producer_id, request.producer_epoch) != (id.0, epoch.0) {
            return Some(m::EndTxnResponse { error_code: 90, ..Default::default() });
        }
        if !again {
            let next = ProducerEpoch(epoch.0 + 1);
            let ending = if request.committed { Ending::Committed } else { Ending::Aborted };
            self.mark(id, next, ending);
            self.transactions.ids.insert(name.clone(), (id, next, Some(request.committed)));
        }
        if fault == Some(Fault::LoseAnswer) {
            return None;
        }
        let (id, epoch, _) = self.transactions.ids[&name];
        let (producer_id, producer_epoch) = (id.0, epoch.0);
        Some(m::EndTxnResponse { producer_id, producer_epoch, ..Default::default() })
    }

    fn mark(&mut self, id: ProducerId, epoch: ProducerEpoch, ending: Ending) {
        let Some(first_offset) = self.transactions.open.remove(&id) else { return };
        let mut batch = Marker { ending, coordinator_epoch: CoordinatorEpoch(1) }.batch(
            id,
            epoch,
            Timestamp(1),
        );
        let at = self.end_of_log();
        batch.stamp(Offset(at), LeaderEpoch(1));
        self.log.push(batch);
        if ending == Ending::Aborted {
            let row = m::fetch::AbortedTransaction { producer_id: id.0, first_offset };
            self.transactions.aborted.push((at, row));
        }
    }

    pub(super) fn commit_offsets(
        &mut self,
        request: &m::TxnOffsetCommitRequest,
    ) -> m::TxnOffsetCommitResponse {
        let error_code = self.transactions.offsets_refused.unwrap_or_default();
        let topics = request.topics.iter().map(|topic| {
            let rows = topic.partitions.iter().map(|row| {
                let taken =
                    (request.group_id.to_string(), request.generation_id, row.committed_offset);
                self.transactions.offsets.push(taken);
                let partition_index = row.partition_index;
                m::txn_offset_commit::TxnOffsetCommitResponsePartition {
                    partition_index,
                    error_code,
                }
            });
            let (name, partitions) = (topic.name.clone(), rows.collect());
            m::txn_offset_commit::TxnOffsetCommitResponseTopic { name, partitions }
        });
        let topics = topics.collect();
        m::TxnOffsetCommitResponse { topics, ..Default::default() }
    }

    /// A batch that is stored at `base`.
    pub(super) fn note(&mut self, batch: &Batch, base: i64) {
        if batch.header().is_transactional() {
            self.transactions.open.entry(batch.header().producer_id()).or_insert(base);
        }
    }

    pub(super) fn is_fenced(&self, batch: &Batch) -> bool {
        let header = batch.header();
        self.transactions.ids.values().any(|(id, epoch, _)| {
            *id == header.producer_id() && header.producer_epoch().0 < epoch.0
        })
    }

    pub(super) fn stable(&self) -> i64 {
        let end = self.end_of_log();
        self.transactions.open.values().copied().min().unwrap_or(end)
    }

    /// Those that end behind `from`.
    pub(super) fn aborted(&self, from: i64) -> Vec<m::fetch::AbortedTransaction> {
        let rows = self.transactions.aborted.iter().filter(|(last, _)| *last >= from);
        rows.map(|(_, row)| row.clone()).collect()
    }
}
