//! Open files and loaded indexes of all logs, as many as the limits allow: the least recently used
//! is closed first, so an idle log holds neither.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use quorate_core::id::{Offset, PartitionId};
use quorate_core::segment::index::Index;

use crate::disk::{Disk, File, Open};

/// A segment of a log: its base, and which of the files with that base.
pub(super) type SegmentKey = (PartitionId, Offset, u32);

/// A table that forgets what was not used for longest.
#[derive(Debug)]
struct Recent<V> {
    max: usize,
    clock: u64,
    entries: BTreeMap<SegmentKey, (u64, V)>,
    order: BTreeMap<u64, SegmentKey>,
}

impl<V: Clone> Recent<V> {
    fn new(max: usize) -> Self {
        Self { max, clock: 0, entries: BTreeMap::new(), order: BTreeMap::new() }
    }

    fn find(&mut self, key: SegmentKey) -> Option<V> {
        let (used, value) = self.entries.get_mut(&key)?;
        self.order.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.order.insert(self.clock, key);
        Some(value.clone())
    }

    /// Keeps the value that stands there already, if one does.
    fn keep(&mut self, key: SegmentKey, value: V) -> V {
        if let Some(there) = self.find(key) {
            return there;
        }
        if self.entries.len() >= self.max
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.clock += 1;
        self.order.insert(self.clock, key);
        self.entries.insert(key, (self.clock, value.clone()));
        value
    }

    fn forget_log(&mut self, partition: PartitionId) {
        let all = (partition, Offset(i64::MIN), 0)..=(partition, Offset(i64::MAX), u32::MAX);
        for key in self.entries.range(all).map(|(key, _)| *key).collect::<Vec<_>>() {
            self.forget(key);
        }
    }

    fn forget(&mut self, key: SegmentKey) {
        if let Some((used, _)) = self.entries.remove(&key) {
            self.order.remove(&used);
        }
    }
}

/// See the file's comment.
pub(super) struct Files {
    disk: Arc<dyn Disk>,
    segments: Mutex<Recent<Arc<dyn File>>>,
    indexes: Mutex<Recent<Arc<Index>>>,
}

impl Files {
    /// Half of `files_max` is for the writer's unsynced segments, which it holds itself: they are
    /// synced through the handle that wrote them, since only that one is told of an error.
    pub(super) fn new(disk: Arc<dyn Disk>, files_max: usize, indexes_max: usize) -> Self {
        let segments = Mutex::new(Recent::new(files_max / 2));
        Self { disk, segments, indexes: Mutex::new(Recent::new(indexes_max)) }
    }

    pub(super) async fn segment(&self, key: SegmentKey, path: &Path) -> io::Result<Arc<dyn File>> {
        if let Some(file) = self.opened(key) {
            return Ok(file);
        }
        let file = self.open(path).await?;
        Ok(self.keep_segment(key, file))
    }

    pub(super) fn opened(&self, key: SegmentKey) -> Option<Arc<dyn File>> {
        lock(&self.segments).find(key)
    }

    pub(super) async fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.disk.open(path, Open::Write).await
    }

    pub(super) fn keep_segment(&self, key: SegmentKey, file: Arc<dyn File>) -> Arc<dyn File> {
        lock(&self.segments).keep(key, file)
    }

    pub(super) fn index(&self, key: SegmentKey) -> Option<Arc<Index>> {
        lock(&self.indexes).find(key)
    }

    pub(super) fn keep_index(&self, key: SegmentKey, index: Index) -> Arc<Index> {
        lock(&self.indexes).keep(key, Arc::new(index))
    }

    pub(super) fn forget_log(&self, partition: PartitionId) {
        lock(&self.segments).forget_log(partition);
        lock(&self.indexes).forget_log(partition);
    }

    pub(super) fn forget(&self, key: SegmentKey) {
        lock(&self.segments).forget(key);
        lock(&self.indexes).forget(key);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(base: i64) -> SegmentKey {
        (PartitionId::METADATA, Offset(base), 0)
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut recent = Recent::new(2);
        recent.keep(key(1), 'a');
        recent.keep(key(2), 'b');
        assert_eq!(recent.find(key(1)), Some('a'));
        recent.keep(key(3), 'c');
        assert_eq!(recent.find(key(2)), None);
        assert_eq!(recent.keep(key(1), 'x'), 'a', "the value that stands there stays");
        recent.forget(key(1));
        assert_eq!((recent.find(key(1)), recent.find(key(3))), (None, Some('c')));
        assert_eq!(recent.order.len(), recent.entries.len());
    }
}
