//! What is different where batches are parts of a transaction: the identity is told by the
//! transaction's owner, and after a failure nothing goes until it is told anew.

use std::collections::BTreeMap;

use quorate_core::id::{ProducerEpoch, ProducerId};

use super::{Identity, Queues};
use crate::client::Error;

impl Queues {
    /// What the next transaction goes by. Its sequences begin at 0: the last one's producer epoch
    /// is over (KIP-890).
    ///
    /// # Panics
    ///
    /// If batches of the last transaction are still held.
    pub(in crate::client::produce) fn tell(&mut self, id: ProducerId, epoch: ProducerEpoch) {
        assert!(self.transactional && self.held == 0, "the last transaction has been ended");
        self.identity = Identity::Known(id, epoch);
        self.failure = None;
        for queue in self.topics.values_mut().flat_map(BTreeMap::values_mut) {
            queue.next_sequence = 0;
            queue.recovering = false;
            queue.known = true;
        }
    }

    /// Nothing goes any more: what is not under way is given up with the next drain.
    pub(in crate::client::produce) fn lose(&mut self) {
        let entries = self.topics.values().flat_map(BTreeMap::values).flat_map(|it| &it.entries);
        let met = entries.filter_map(|entry| entry.last.clone()).next();
        self.fail(&met.unwrap_or(Error::Closed));
        self.identity = Identity::Lost;
    }

    /// Why the transaction cannot be committed, if so.
    pub(in crate::client::produce) const fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    pub(super) fn fail(&mut self, error: &Error) {
        if self.transactional && self.failure.is_none() {
            self.failure = Some(error.clone());
        }
    }
}
