//! Which partitions of a transaction still lack their marker, and when it is sent (again). Each
//! marker has a name of its own, so that no late answer counts for another one. KAFKA-16352. One of
//! which nothing was heard keeps its name: where its answer takes longer than `marker_patience`, a
//! new name would have every answer come too late, and the transaction would never end.

use std::collections::BTreeMap;
use std::time::Duration;

use super::interface::{MarkerId, MarkerResult, TransactionLimits};
use super::state::TopicPartition;
use crate::mutant;
use crate::time::Instant;

/// Waits double so often at most.
const DOUBLINGS_MAX: u32 = 6;

#[derive(Clone, Debug, Default)]
pub(super) struct Markers {
    /// With the name of the marker that is on its way; `None` before it is sent again.
    left: BTreeMap<TopicPartition, Option<MarkerId>>,
    /// When those that failed are sent again.
    again: Option<Instant>,
    /// When those of which nothing was heard count as failed.
    patience: Option<Instant>,
    failures: u32,
    /// A newer coordinator exists, so nothing is sent any more.
    fenced: bool,
}

impl Markers {
    pub(super) fn new(partitions: impl IntoIterator<Item = TopicPartition>) -> Self {
        let left = partitions.into_iter().map(|partition| (partition, None)).collect();
        Self { left, again: Some(Instant::ZERO), ..Self::default() }
    }

    /// Ascending.
    pub(super) fn left(&self) -> impl Iterator<Item = &TopicPartition> {
        self.left.keys()
    }

    pub(super) fn are_done(&self) -> bool {
        self.left.is_empty()
    }

    /// Whether all goes well so far: the end of the transaction is a matter of moments.
    pub(super) fn go_well(&self) -> bool {
        self.failures == 0
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.fenced || self.left.is_empty() {
            return None;
        }
        self.again.into_iter().chain(self.patience).min()
    }

    /// What is to be sent now.
    pub(super) fn due(
        &mut self,
        now: Instant,
        limits: &TransactionLimits,
        mut name: impl FnMut() -> MarkerId,
    ) -> Vec<(TopicPartition, MarkerId)> {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return Vec::new();
        }
        let lost = self.patience.is_some_and(|patience| patience <= now);
        if lost {
            self.failures += 1;
        }
        self.again = None;
        self.patience = Some(now + limits.marker_patience);
        let mut due = Vec::new();
        for (partition, sent) in &mut self.left {
            if sent.is_none() || lost {
                let id = *sent.get_or_insert_with(&mut name);
                due.push((partition.clone(), id));
            }
        }
        due
    }

    /// Whether it was the answer to what is on its way.
    pub(super) fn answered(
        &mut self,
        partition: &TopicPartition,
        id: MarkerId,
        result: MarkerResult,
        now: Instant,
        limits: &TransactionLimits,
    ) -> bool {
        if self.left.get(partition) != Some(&Some(id)) {
            // zoo F8: the failure of an old leadership's marker takes the new one's place.
            if mutant!("pending-map-aba") && result == MarkerResult::Failed {
                self.fenced = true;
            }
            return false;
        }
        match result {
            MarkerResult::Done | MarkerResult::Gone => {
                self.left.remove(partition);
            }
            MarkerResult::Failed => {
                self.left.insert(partition.clone(), None);
                if self.again.is_none() {
                    let wait = limits.marker_retry * (1 << self.failures.min(DOUBLINGS_MAX));
                    self.again = Some(now + wait.max(Duration::from_micros(1)));
                }
                self.failures += 1;
            }
            MarkerResult::CoordinatorFenced => self.fenced = true,
        }
        true
    }
}
