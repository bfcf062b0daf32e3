//! What a log's batches say about it: the state that live operation maintains and that recovery
//! rebuilds, by the same fold over batch headers.

mod first;

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::aborted::{Aborted, AbortedTransactions};
use super::leader_epochs::LeaderEpochs;
use super::open_transactions::OpenTransactions;
use super::producers::Producers;
use crate::batch::control::{Ending, Marker};
use crate::batch::{Batch, Header, TimestampType};
use crate::codec;
use crate::id::Offset;
use crate::mutant;
use crate::segment::checkpoint::{self, EnvelopeError};
use crate::segment::cleaned::Cleaned;
use crate::time::Timestamp;

/// A log without its records. Rebuilt = newest snapshot, then `roll` and `apply` for what the
/// segments hold beyond it, then `delete_before` the durable log start; equal to the live state
/// (but for producers that expired since the snapshot, which a rebuilt state still knows).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The first offset that may be read.
    pub log_start: Offset,
    /// Where the next batch goes.
    pub end: Offset,
    /// The largest timestamp ever appended; `Timestamp::NONE` if there is none.
    pub max_timestamp: Timestamp,
    /// The latest time that the log itself gave to a batch; `Timestamp::NONE` if there is none.
    pub append_time: Timestamp,
    /// Oldest first; the last one is active. Empty until the first append.
    pub segments: Vec<SegmentInfo>,
    pub leader_epochs: LeaderEpochs,
    pub producers: Producers,
    pub open: OpenTransactions,
    pub aborted: AbortedTransactions,
    /// Not in the snapshot: the file `segment::cleaned` has it.
    #[serde(skip)]
    pub cleaned: CleanedPart,
}

/// How far the log is compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanedPart {
    /// Of two records with one key below it, only the last one is there.
    pub to: Offset,
    /// When the first tombstone below may go.
    pub tombstones_due: Option<Timestamp>,
}

/// One stretch of the log: a file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentInfo {
    /// The first offset that may stand in it; the next segment's base is its end.
    pub base: Offset,
    /// Bytes of its frames.
    pub bytes: u64,
    /// The largest timestamp in it; `Timestamp::NONE` if none is known.
    pub max_timestamp: Timestamp,
}

impl SegmentInfo {
    pub const fn new(base: Offset) -> Self {
        Self { base, bytes: 0, max_timestamp: Timestamp::NONE }
    }
}

const SNAPSHOT_KIND: [u8; 4] = *b"QREC";
/// 2 since transactions exist; what version 1 lacks, a log of that time does not have.
const SNAPSHOT_VERSION: u16 = 2;
const BODY_VERSION: u8 = 2;

impl Default for Recovered {
    /// The state of a log that holds nothing.
    fn default() -> Self {
        Self {
            log_start: Offset::ZERO,
            end: Offset::ZERO,
            max_timestamp: Timestamp::NONE,
            append_time: Timestamp::NONE,
            segments: Vec::new(),
            leader_epochs: LeaderEpochs::default(),
            producers: Producers::default(),
            open: OpenTransactions::default(),
            aborted: AbortedTransactions::default(),
            cleaned: CleanedPart::default(),
        }
    }
}

impl Recovered {
    /// A batch stands at the end of the log; its frame takes `frame_bytes` of the active segment.
    ///
    /// # Errors
    ///
    /// `Behind` if the batch begins below the end. Those that a snapshot already accounts for are
    /// the caller's to leave out.
    pub fn apply(&mut self, batch: &Batch, frame_bytes: u64) -> Result<(), Behind> {
        self.apply_parts(batch.header(), Marker::of(batch), frame_bytes)
    }

    /// As `apply`, of a batch of which the header is known, and the `marker` in it if it is one.
    ///
    /// # Errors
    ///
    /// As `apply`.
    pub fn apply_parts(
        &mut self,
        header: &Header,
        marker: Option<Marker>,
        frame_bytes: u64,
    ) -> Result<(), Behind> {
        let before = mutant!("epoch-zero-forgotten").then(|| self.leader_epochs.clone());
        self.append(header, marker, frame_bytes, Timestamp::NONE)?;
        // zoo A7: epoch 0 taken for none, where a log is read and not where it is written.
        if let Some(before) = before.filter(|_| header.leader_epoch().0 <= 0) {
            self.leader_epochs = before;
        }
        Ok(())
    }

    /// As `apply`, for the leader that appends at `seen`.
    pub(super) fn append(
        &mut self,
        header: &Header,
        marker: Option<Marker>,
        frame_bytes: u64,
        seen: Timestamp,
    ) -> Result<(), Behind> {
        let base = header.base_offset();
        if base < self.end {
            return Err(Behind { end: self.end, found: base });
        }
        if self.segments.is_empty() {
            self.segments.push(SegmentInfo::new(base));
        }
        let active = self.segments.last_mut().expect("there is an active segment");
        active.bytes += frame_bytes;
        active.max_timestamp = active.max_timestamp.max(header.max_timestamp());
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp());
        if header.timestamp_type() == TimestampType::LogAppendTime {
            self.append_time = self.append_time.max(header.max_timestamp());
        }
        self.leader_epochs.note(header.leader_epoch(), base);
        self.producers.note(header, marker, seen);
        self.note_transaction(header, marker);
        self.end = header.next_offset();
        Ok(())
    }

    /// A batch that compaction has emptied opens nothing: its marker may be gone.
    fn note_transaction(&mut self, header: &Header, marker: Option<Marker>) {
        let producer = header.producer_id();
        if !producer.is_some() {
            return;
        }
        if let Some(marker) = marker {
            let first = self.open.end(producer);
            if let Some(first) = first.filter(|_| marker.ending == Ending::Aborted) {
                self.aborted.note(Aborted { producer, first, last: header.base_offset() });
            }
        } else if header.is_transactional() && !header.is_control() && header.record_count() > 0 {
            self.open.begin(producer, header.base_offset());
        }
    }

    /// A new segment begins at `base`, which is the end of the log.
    ///
    /// # Errors
    ///
    /// `Behind` if segments already reach beyond `base`.
    pub fn roll(&mut self, base: Offset) -> Result<(), Behind> {
        if base < self.end || self.segments.last().is_some_and(|active| active.base >= base) {
            return Err(Behind { end: self.end, found: base });
        }
        self.end = base;
        self.segments.push(SegmentInfo::new(base));
        // If every record was deleted before, the segment that is closed now holds none to keep.
        self.drop_segments();
        Ok(())
    }

    /// The log starts at `offset` from now on; segments wholly below it are gone. Never lowers the
    /// start. Producers stay: they leave by expiry only.
    pub fn delete_before(&mut self, offset: Offset) {
        self.log_start = self.log_start.max(offset);
        self.end = self.end.max(self.log_start);
        self.leader_epochs.raise_start(self.log_start);
        self.aborted.take_below(self.log_start);
        // zoo E7: a producer's sequence dies with its last record.
        if mutant!("state-dies-with-log") {
            self.producers.forget_below(self.log_start);
        }
        self.drop_segments();
    }

    /// A pass of compaction has put others in the place of the segments below `cleaned.until`.
    /// In any order with `delete_before`, and as often as one likes. Returns the aborted
    /// transactions of which it has left nothing.
    pub fn replace(&mut self, cleaned: &Cleaned) -> Vec<Aborted> {
        let listed = cleaned.segments.iter().map(|segment| segment.info);
        let listed = listed.filter(|info| info.base < cleaned.until);
        let stay = self.segments.iter().copied().filter(|info| info.base >= cleaned.until);
        self.segments = listed.chain(stay).collect();
        // zoo I9: a pass that moves nothing on is made again and again.
        let to = if mutant!("cleaner-livelock-on-gap") { self.cleaned.to } else { cleaned.to };
        self.cleaned = CleanedPart { to, tombstones_due: cleaned.tombstones_due };
        self.drop_segments();
        // zoo I3: where memory did not reach to the end of what was rewritten, aborted records were
        // copied with the rest.
        let all = mutant!("aborted-index-of-uncleaned-tail-lost");
        self.aborted.take_below(if all { cleaned.until } else { cleaned.to })
    }

    fn drop_segments(&mut self) {
        let gone = self.segments.windows(2).take_while(|pair| pair[1].base <= self.log_start);
        let gone = gone.count();
        self.segments.drain(..gone);
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    pub fn to_snapshot(&self) -> Bytes {
        checkpoint::seal(SNAPSHOT_KIND, SNAPSHOT_VERSION, &codec::encode(BODY_VERSION, self))
    }

    /// # Errors
    ///
    /// Why the file is not a snapshot of a possible state. Fall back to an older one; `Newer` is
    /// a later build's and no reason to.
    pub fn from_snapshot(bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let (_, body) = checkpoint::open(SNAPSHOT_KIND, SNAPSHOT_VERSION, bytes)?;
        // The body's version rises with the envelope's, which says `Newer`.
        let (found, body) = codec::version(&body, BODY_VERSION).map_err(|_| EnvelopeError::Body)?;
        let state = match found {
            1 => codec::decode::<first::Recovered>(body).map(Self::from),
            _ => codec::decode(body),
        };
        let state = state.map_err(|_| EnvelopeError::Body)?;
        if state.holds() { Ok(state) } else { Err(EnvelopeError::Body) }
    }

    /// Panics if the state is impossible.
    pub fn check(&self) {
        assert!(self.holds(), "an impossible log: {self:?}");
    }

    fn holds(&self) -> bool {
        let rising =
            |pair: &[SegmentInfo]| pair[0].base < pair[1].base && pair[1].base > self.log_start;
        Offset::ZERO <= self.log_start
            && self.log_start <= self.end
            && self.segments.iter().all(|segment| segment.base <= self.end)
            && self.segments.windows(2).all(rising)
            && self.segments.iter().all(|segment| segment.max_timestamp <= self.max_timestamp)
            && self.leader_epochs.holds(self.log_start, self.end)
            && self.producers.holds(self.end, &self.open)
            && self.open.holds(self.end)
            && self.aborted.holds(self.end)
    }
}

/// A batch or a segment begins below the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    pub end: Offset,
    pub found: Offset,
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {} is due and {} was found", self.end, self.found)
    }
}

impl std::error::Error for Behind {}
