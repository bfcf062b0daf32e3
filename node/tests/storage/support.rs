//! A storage engine under test, with a model beside it that knows what was promised.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quorate_core::batch::{Batch, BatchBuilder, Codec, Levels};
use quorate_core::id::{
    LeaderEpoch, NodeId, Offset, PartitionId, ProducerEpoch, ProducerId, TopicId, WriteId,
};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::{Flush, LogOp};
use quorate_core::segment::frame::FRAME_HEADER_BYTES;
use quorate_core::time::Timestamp;
use quorate_node::disk::Disk;
use quorate_node::storage::{
    Completions, Identity, LogError, LogReader, OpenReport, Storage, StorageConfig, StorageError,
    WriteQueue, WriteRequest,
};
use tokio::sync::Notify;

pub(crate) const IDENTITY: Identity = Identity { node: NodeId(1), directory: [9; 16] };

/// Small limits, so that a short script passes every edge.
pub(crate) fn config(directory: impl Into<PathBuf>) -> StorageConfig {
    StorageConfig {
        group_bytes_max: 16 << 10,
        direct_bytes_min: 8 << 10,
        journal_file_bytes: 64 << 10,
        journal_files_max: 3,
        checkpoint_bytes: 32 << 10,
        allocation_bytes_min: 4 << 10,
        allocation_bytes_max: 16 << 10,
        open_files_max: 64,
        read_bytes: 512,
        ..StorageConfig::new(directory, IDENTITY)
    }
}

pub(crate) fn partition(number: u8) -> PartitionId {
    PartitionId { topic: TopicId([number; 16]), index: i32::from(number) }
}

/// A batch of `count` records of `bytes` each, whose content tells `tag`, as its leader stamps it.
pub(crate) fn batch(at: Offset, tag: u64, count: usize, bytes: usize) -> Batch {
    let producer = ProducerId(i64::try_from(tag % 3).expect("a small number"));
    let sequence = i32::try_from(tag * 100).expect("a small number");
    let mut builder = BatchBuilder::new(Codec::None).producer(producer, ProducerEpoch(0), sequence);
    if producer == ProducerId(2) {
        // One transaction, which nobody ends.
        builder = builder.transactional();
    }
    for number in 0..count {
        let mut value = format!("{tag}:{number}:").into_bytes();
        value.resize(bytes.max(value.len()), b'.');
        let time = Timestamp(1_000 + i64::try_from(tag).expect("a small number") * 10);
        builder.append(time, None, Some(&value), []);
    }
    let mut batch = builder.build();
    batch.stamp(at, LeaderEpoch(3));
    batch
}

#[derive(Default)]
struct Told {
    written: BTreeMap<PartitionId, WriteId>,
    truncated: BTreeMap<PartitionId, (WriteId, Recovered)>,
    failed: Vec<(PartitionId, WriteId)>,
}

/// What the engine said of its writes.
#[derive(Default)]
pub(crate) struct Recorder {
    told: Mutex<Told>,
    news: Notify,
}

impl Completions for Recorder {
    fn written(&self, written: &[(PartitionId, WriteId)]) {
        let mut told = self.told.lock().expect("not poisoned");
        for &(partition, through) in written {
            let before = told.written.insert(partition, through);
            assert!(before.is_none_or(|before| before < through), "completions go back");
        }
        self.news.notify_one();
    }

    fn truncated(&self, partition: PartitionId, write: WriteId, recovered: Box<Recovered>) {
        self.told.lock().expect("not poisoned").truncated.insert(partition, (write, *recovered));
        Completions::written(self, &[(partition, write)]);
    }

    fn write_failed(&self, partition: PartitionId, write: WriteId) {
        self.told.lock().expect("not poisoned").failed.push((partition, write));
        self.news.notify_one();
    }
}

impl Recorder {
    pub(crate) fn written(&self, partition: PartitionId) -> WriteId {
        let told = self.told.lock().expect("not poisoned");
        told.written.get(&partition).copied().unwrap_or_default()
    }

    pub(crate) fn truncated(&self, partition: PartitionId) -> Option<(WriteId, Recovered)> {
        self.told.lock().expect("not poisoned").truncated.get(&partition).cloned()
    }

    pub(crate) fn failed(&self) -> Vec<(PartitionId, WriteId)> {
        self.told.lock().expect("not poisoned").failed.clone()
    }
}

/// One log as its machine would see it.
pub(crate) struct LiveLog {
    pub(crate) state: Recovered,
    pub(crate) reader: LogReader,
    pub(crate) batches: Vec<Batch>,
    pub(crate) next_write: WriteId,
    /// Per append, its write and how it was flushed; per append, what the log's end was after it.
    pub(crate) appends: Vec<(WriteId, Flush, Offset)>,
    /// Raised starts, and the writes that raised them.
    pub(crate) starts: Vec<(WriteId, Offset)>,
    pub(crate) flush: Flush,
    /// Of the next batches.
    pub(crate) epoch: LeaderEpoch,
}

/// An engine and the logs that were opened in it.
pub(crate) struct Engine {
    pub(crate) storage: Storage,
    pub(crate) queue: WriteQueue,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) logs: BTreeMap<PartitionId, LiveLog>,
    pub(crate) report: OpenReport,
}

impl Engine {
    pub(crate) async fn open(
        disk: Arc<dyn Disk>,
        config: StorageConfig,
    ) -> Result<Self, StorageError> {
        let recorder = Arc::new(Recorder::default());
        let completions = Arc::clone(&recorder) as Arc<dyn Completions>;
        let (storage, report) = Storage::open(disk, config, completions).await?;
        let queue = storage.writer();
        Ok(Self { storage, queue, recorder, logs: BTreeMap::new(), report })
    }

    /// Opens a log; its state is as recovered.
    pub(crate) async fn open_log(&mut self, partition: PartitionId) -> Result<(), LogError> {
        let (state, reader) = self.storage.open_log(partition).await?;
        state.check();
        let epoch = state.leader_epochs.latest().unwrap_or(LeaderEpoch(3));
        let log = LiveLog {
            epoch,
            state,
            reader,
            batches: Vec::new(),
            next_write: WriteId(1),
            appends: Vec::new(),
            starts: Vec::new(),
            flush: Flush::Durable,
        };
        self.logs.insert(partition, log);
        Ok(())
    }

    pub(crate) fn log(&self, partition: PartitionId) -> &LiveLog {
        &self.logs[&partition]
    }

    pub(crate) async fn send(&mut self, partition: PartitionId, op: LogOp) -> WriteId {
        let log = self.logs.get_mut(&partition).expect("the log is open");
        let write = log.next_write;
        log.next_write = write.next();
        let flush = log.flush;
        // A closed queue is what a dead node looks like.
        let _ = self.queue.send(WriteRequest { partition, write, op, flush }).await;
        write
    }

    pub(crate) async fn append(
        &mut self,
        partition: PartitionId,
        tag: u64,
        count: usize,
        bytes: usize,
    ) -> WriteId {
        let log = self.logs.get_mut(&partition).expect("the log is open");
        let mut batch = batch(log.state.end, tag, count, bytes);
        batch.stamp(log.state.end, log.epoch);
        let frame_bytes = (FRAME_HEADER_BYTES + batch.len()) as u64;
        log.state.apply(&batch, frame_bytes).expect("it stands at the end");
        log.batches.push(batch.clone());
        let (flush, end) = (log.flush, log.state.end);
        let write = self.send(partition, LogOp::Append { batch, levels: Levels::DEFAULT }).await;
        let log = self.logs.get_mut(&partition).expect("the log is open");
        log.appends.push((write, flush, end));
        write
    }

    pub(crate) async fn roll(&mut self, partition: PartitionId) -> WriteId {
        let log = self.logs.get_mut(&partition).expect("the log is open");
        let base = log.state.end;
        log.state.roll(base).expect("the active segment has records");
        let snapshot = log.state.to_snapshot();
        self.send(partition, LogOp::Roll { base, snapshot }).await
    }

    pub(crate) async fn delete_before(&mut self, partition: PartitionId, offset: Offset) {
        let log = self.logs.get_mut(&partition).expect("the log is open");
        log.state.delete_before(offset);
        let write = self.send(partition, LogOp::DeleteBefore { offset }).await;
        let log = self.logs.get_mut(&partition).expect("the log is open");
        log.starts.push((write, offset));
    }

    /// What a machine asks for when it closes.
    pub(crate) async fn checkpoint_log(&mut self, partition: PartitionId) -> WriteId {
        let snapshot = self.log(partition).state.to_snapshot();
        self.send(partition, LogOp::Checkpoint { snapshot }).await
    }

    /// The same with a state of the caller's.
    pub(crate) async fn tell(&mut self, partition: PartitionId, snapshot: Bytes) -> WriteId {
        self.send(partition, LogOp::Checkpoint { snapshot }).await
    }

    /// Waits until `write` is complete; `false` if something failed.
    pub(crate) async fn written(&self, partition: PartitionId, write: WriteId) -> bool {
        loop {
            let news = self.recorder.news.notified();
            if self.recorder.written(partition) >= write {
                return true;
            }
            if !self.recorder.failed().is_empty() {
                return false;
            }
            news.await;
        }
    }

    /// Waits for everything that was sent to this log.
    pub(crate) async fn settle(&self, partition: PartitionId) -> bool {
        let last = self.log(partition).next_write.0 - 1;
        self.written(partition, WriteId(last)).await
    }

    pub(crate) async fn close(mut self) {
        for partition in self.logs.keys().copied().collect::<Vec<_>>() {
            self.checkpoint_log(partition).await;
        }
        self.storage.close().await.expect("a clean close");
    }

    /// Every batch from the log's start to its end, read in small steps.
    pub(crate) async fn read_all(&self, partition: PartitionId) -> Vec<Batch> {
        let log = self.log(partition);
        let (mut from, end) = (log.state.log_start, log.state.end);
        let mut batches = Vec::new();
        while from < end {
            let some = log.reader.read(from, end, 2000, true).await.unwrap_or_else(|error| {
                panic!("{error}: {} bytes, {:?}", log.reader.bytes(), log.state)
            });
            let last = some.last().expect("a batch below the end");
            from = last.header().next_offset();
            batches.extend(some);
        }
        batches
    }
}
