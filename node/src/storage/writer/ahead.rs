//! Segments that have grown are synced one after the other before a checkpoint does it. A
//! checkpoint that finds 100 MB to write keeps the disk busy for a tenth of a second, in which no
//! journal sync ends, and so no write is acknowledged: small pieces hardly hold one up.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use quorate_core::id::PartitionId;

use super::Writer;
use crate::disk::File;
use crate::storage::files::SegmentKey;

/// See the file's comment. It promises nothing to anybody: a checkpoint syncs these files again.
#[derive(Default)]
pub(super) struct Ahead {
    /// Bytes written since a sync of the file was last begun.
    grown: BTreeMap<SegmentKey, (u64, Arc<dyn File>)>,
}

impl Ahead {
    pub(super) fn wrote(&mut self, key: SegmentKey, file: &Arc<dyn File>, bytes: u64) {
        self.grown.entry(key).or_insert_with(|| (0, Arc::clone(file))).0 += bytes;
    }

    /// A checkpoint, or a cut, syncs all of it.
    pub(super) fn forget_all(&mut self) {
        self.grown.clear();
    }

    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.grown.retain(|key, _| key.0 != partition);
    }

    /// The file that has grown most, if it has grown by so much.
    fn take(&mut self, bytes_min: u64) -> Option<Arc<dyn File>> {
        let (&key, (bytes, _)) = self.grown.iter().max_by_key(|(_, (bytes, _))| *bytes)?;
        if *bytes < bytes_min {
            return None;
        }
        self.grown.remove(&key).map(|(_, file)| file)
    }
}

impl Writer {
    /// Never beside another sync of segments: the system tells of lost pages once, and whoever is
    /// told second believes that all is well.
    pub(super) fn start_ahead_if_due(&mut self) {
        let is_direct = self.in_flight.as_ref().is_some_and(|group| group.is_direct);
        let busy = self.checkpoint.is_some() || self.cutting.is_some() || is_direct;
        let busy = busy || self.ahead.is_some();
        if self.poisoned || busy {
            return;
        }
        if let Some(file) = self.segments.ahead.take(self.shared.config.ahead_bytes) {
            self.ahead = Some(Box::pin(async move { file.sync().await }));
        }
    }

    pub(super) fn on_synced_ahead(&mut self, result: io::Result<()>) {
        self.ahead = None;
        if let Err(error) = result {
            self.fail(&error, None);
        }
    }
}
