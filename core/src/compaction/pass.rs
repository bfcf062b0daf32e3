//! One pass over the segments of a log, batch by batch: first the keys are gathered, as far as
//! memory reaches, then what remains is put into new segments. Whoever reads and writes does as it
//! is told here.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::keys::{Keys, Noted};
use super::{Row, Rules, judge, note};
use crate::batch::record::RecordError;
use crate::batch::{Batch, HEADER_BYTES, Header, Levels};
use crate::compaction::Remains;
use crate::id::{Offset, ProducerId};
use crate::mutant;
use crate::partition::SegmentInfo;
use crate::segment::cleaned::{Cleaned, CleanedSegment};
use crate::segment::frame::FRAME_HEADER_BYTES;
use crate::time::Timestamp;

/// The first half: the last offsets of all keys from `dirty` on.
pub struct Gathering<'a> {
    keys: Keys,
    rules: &'a Rules,
    /// Everything from `dirty` to below is known.
    to: Offset,
}

impl<'a> Gathering<'a> {
    pub fn new(keys: Keys, rules: &'a Rules, dirty: Offset) -> Self {
        Self { keys, rules, to: dirty }
    }

    /// Whether `batch` is to be gathered; `false` for what is compacted already.
    pub fn wants(&self, header: &Header) -> bool {
        header.next_offset() > self.to
    }

    /// Takes a batch, in the order of the log; `records` without compression. `false`: the memory
    /// is full, and the pass compacts up to this batch.
    ///
    /// # Errors
    ///
    /// If its records cannot be read.
    pub fn take(&mut self, batch: &Batch, records: &Bytes) -> Result<bool, RecordError> {
        if note(&mut self.keys, self.rules, batch, records)? == Noted::Full {
            return Ok(false);
        }
        self.to = batch.header().next_offset();
        Ok(true)
    }

    /// Distinct keys so far.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }
}

/// Bytes of a filler's frame.
const FILLER_BYTES: u64 = (FRAME_HEADER_BYTES + HEADER_BYTES) as u64;

/// What is to be written next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A new segment that begins at this offset.
    Begin(Offset),
    /// Into the segment that was begun last.
    Append(Batch, Levels),
}

/// What a pass has done, for whoever watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub segments_before: u64,
    pub segments_after: u64,
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub records_before: u64,
    pub records_after: u64,
}

/// The second half.
pub struct Pass<'a> {
    gathered: &'a Gathering<'a>,
    /// Who has records left of the transaction whose marker comes next. One for the whole log: a
    /// transaction may reach over any number of segments (KAFKA-8351).
    with_data: BTreeSet<ProducerId>,
    segment_bytes_max: u64,
    generation: u32,
    row: Row,
    made: Vec<CleanedSegment>,
    tombstones_due: Option<Timestamp>,
    until: Offset,
    counts: Counts,
}

impl<'a> Pass<'a> {
    /// The new segments get this `generation`.
    pub fn new(gathered: &'a Gathering<'a>, segment_bytes_max: u64, generation: u32) -> Self {
        Self {
            gathered,
            with_data: BTreeSet::new(),
            segment_bytes_max,
            generation,
            row: Row::default(),
            made: Vec::new(),
            tombstones_due: None,
            until: gathered.to,
            counts: Counts::default(),
        }
    }

    /// The batches of `info` follow, up to `end`. Small segments become one: as long as that stays
    /// below what a segment may have.
    pub fn begin(&mut self, info: SegmentInfo, end: Offset, steps: &mut Vec<Step>) {
        self.until = end;
        self.counts.segments_before += 1;
        self.counts.bytes_before += info.bytes;
        let hole = if self.row.is_open() { FILLER_BYTES } else { 0 };
        let fits = self.made.last().is_some_and(|open| {
            open.info.bytes + hole + info.bytes <= self.segment_bytes_max
                && end.0 - open.info.base.0 <= i64::from(i32::MAX)
        });
        if fits {
            return;
        }
        self.fill(steps);
        // zoo I4: what a transaction has left in an earlier segment is forgotten in the next.
        if mutant!("txn-state-reset-between-groups") {
            self.with_data.clear();
        }
        let generation = self.generation;
        self.made.push(CleanedSegment { info: SegmentInfo::new(info.base), generation });
        steps.push(Step::Begin(info.base));
    }

    /// Whether the records of the batch with this header are to be looked at.
    pub fn wants(&self, header: &Header) -> bool {
        header.next_offset() <= self.gathered.to && header.record_count() > 0
    }

    /// The next batch of the log. `records`, without compression, where they are wanted.
    ///
    /// # Errors
    ///
    /// If the records cannot be read.
    pub fn take(
        &mut self,
        batch: Batch,
        levels: Levels,
        records: &Bytes,
        steps: &mut Vec<Step>,
    ) -> Result<(), RecordError> {
        let count = u64::try_from(batch.header().record_count()).unwrap_or(0);
        // What no key is known of stays as it is.
        if batch.header().next_offset() > self.gathered.to {
            self.counts.records_before += count;
            self.counts.records_after += count;
            self.append(batch, levels, steps);
            return Ok(());
        }
        let (header, rules) = (*batch.header(), self.gathered.rules);
        let producer = header.producer_id();
        let has_data = header.is_control() && self.with_data.remove(&producer);
        let verdict = judge(&self.gathered.keys, rules, &batch, records, has_data)?;
        if header.is_transactional() && !header.is_control() && verdict.records_after > 0 {
            self.with_data.insert(producer);
        }
        self.counts.records_before += verdict.records_before;
        self.counts.records_after += verdict.records_after;
        let due = [self.tombstones_due, verdict.tombstones_due];
        self.tombstones_due = due.into_iter().flatten().min();
        match verdict.remains {
            Remains::All => self.append(batch, levels, steps),
            Remains::Some(rest) => self.append(rest, levels, steps),
            Remains::Nothing => {
                if let Some(filler) = self.row.skip(batch.header()) {
                    self.put(filler, Levels::default(), steps);
                }
            }
        }
        Ok(())
    }

    /// All batches were taken. Of two passes over one log, the later one has the larger generation.
    pub fn end(mut self, steps: &mut Vec<Step>) -> (Cleaned, Counts) {
        self.fill(steps);
        self.counts.segments_after = self.made.len() as u64;
        let to = self.gathered.to.min(self.until);
        let Self { until, tombstones_due, made: segments, counts, .. } = self;
        (Cleaned { to, until, tombstones_due, segments }, counts)
    }

    fn append(&mut self, batch: Batch, levels: Levels, steps: &mut Vec<Step>) {
        self.fill(steps);
        self.put(batch, levels, steps);
    }

    fn fill(&mut self, steps: &mut Vec<Step>) {
        if let Some(filler) = self.row.end() {
            self.put(filler, Levels::default(), steps);
        }
    }

    fn put(&mut self, batch: Batch, levels: Levels, steps: &mut Vec<Step>) {
        let bytes = (FRAME_HEADER_BYTES + batch.len()) as u64;
        self.counts.bytes_after += bytes;
        let open = self.made.last_mut().expect("a segment was begun");
        open.info.bytes += bytes;
        open.info.max_timestamp = open.info.max_timestamp.max(batch.header().max_timestamp());
        steps.push(Step::Append(batch, levels));
    }
}
