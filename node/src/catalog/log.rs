//! One open log, as requests see it: what may be read of it, its reader, and its shard.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use quorate_core::id::{Offset, PartitionId};
use quorate_core::partition::interface::ReadView;

use crate::driver::ask::ShardClient;
use crate::storage::LogReader;

pub(crate) struct LogHandle {
    pub(crate) partition: PartitionId,
    pub(crate) shard: ShardClient,
    pub(crate) reader: LogReader,
    view: Mutex<ReadView>,
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.partition, self.view())
    }
}

impl LogHandle {
    /// `opened_with` are start and end as storage found them: what there is to see before the
    /// machine says more.
    pub(crate) const fn new(
        partition: PartitionId,
        shard: ShardClient,
        reader: LogReader,
        opened_with: (Offset, Offset),
    ) -> Self {
        let view = ReadView {
            leader_epoch: quorate_core::id::LeaderEpoch(-1),
            start_epoch: quorate_core::id::LeaderEpoch(-1),
            is_leader: false,
            log_start: opened_with.0,
            high_watermark: opened_with.0,
            last_stable: opened_with.0,
            aborted_end: Offset::ZERO,
            removals: 0,
            end: opened_with.0,
            max_timestamp: quorate_core::time::Timestamp::NONE,
            is_settling: false,
        };
        Self { partition, shard, reader, view: Mutex::new(view) }
    }

    /// What readers may see, as the machine last said.
    pub(crate) fn view(&self) -> ReadView {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, view: ReadView) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }
}
