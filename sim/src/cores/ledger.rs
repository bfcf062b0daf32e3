//! Each producer's sequence numbers as a log has them, counted beside the machine and by nothing
//! but what it writes: every (producer, epoch, sequence) at most once, and in order.
//!
//! It forgets nobody, whatever retention removes: no run is as long as a producer's expiry.

use std::collections::BTreeMap;

use quorate_core::batch::{Header, sequence_plus};
use quorate_core::id::{ProducerEpoch, ProducerId};
use quorate_core::partition::interface::LogOp;

#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(BTreeMap<ProducerId, (ProducerEpoch, i32)>);

impl Ledger {
    /// A batch goes to the end of the log. What is wrong with its numbers, in a sentence.
    pub(super) fn append(&mut self, header: &Header) -> Option<String> {
        let id = header.producer_id();
        if !id.is_some() || header.is_control() {
            return None;
        }
        let (epoch, sequence) = (header.producer_epoch(), header.base_sequence());
        let next = sequence_plus(header.last_sequence(), 1);
        let (known, expected) = self.0.insert(id, (epoch, next))?;
        let wrong = match epoch.cmp(&known) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => sequence != expected,
            std::cmp::Ordering::Greater => sequence != 0,
        };
        wrong.then(|| {
            format!(
                "producer {id} appends {sequence} of epoch {epoch}, where {expected} of epoch \
                 {known} is due"
            )
        })
    }

    pub(super) fn apply(&mut self, op: &LogOp) {
        if let LogOp::Append { batch, .. } = op {
            self.append(batch.header());
        }
    }
}
