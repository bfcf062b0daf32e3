//! What is known of one log while it is open: its segments and their indexes, shared between the
//! writer, which appends, and the readers.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorate_core::batch::{Header, Levels};
use quorate_core::id::{Offset, PartitionId};
use quorate_core::segment::checkpoint::{Cut, Mark};
use quorate_core::segment::cleaned::Cleaned;
use quorate_core::segment::index::Index;
use quorate_core::segment::{FileKind, file_name, segment_file_name};
use quorate_core::time::Timestamp;

/// Places of recent reads' ends kept per log, so that a consumer who follows the log need not
/// search.
const HINTS_MAX: usize = 4;

/// One open log.
pub(super) struct Log {
    pub(super) partition: PartitionId,
    pub(super) directory: PathBuf,
    state: Mutex<LogState>,
}

/// See `Log`.
#[derive(Debug)]
pub(super) struct LogState {
    /// Records below it are gone.
    pub(super) start: Offset,
    /// Behind the last record that stands in a segment.
    pub(super) end: Offset,
    /// Ascending and without gaps; the last is the active one. Empty before the first append.
    pub(super) segments: Vec<Segment>,
    /// Of the active segment.
    pub(super) index: Index,
    pub(super) removed: bool,
    /// How often the log was cut in this life, and where it ended after the last time: what a
    /// reader has found out before is not to be believed beyond.
    pub(super) cuts: u64,
    pub(super) cut_to: Offset,
    /// Generations that passes of compaction have taken.
    pub(super) generations: u32,
    hints: Vec<Place>,
}

/// One segment of a log.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) base: Offset,
    /// Which of the files with this base: 0 unless compaction wrote it.
    pub(super) generation: u32,
    /// What stands in it; the file may be longer.
    pub(super) bytes: u64,
    /// `None` of a closed segment whose index was not needed yet.
    pub(super) max_timestamp: Option<Timestamp>,
}

/// Where a frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: Offset,
    pub(super) position: u64,
    /// The first offset of the frame.
    pub(super) offset: Offset,
}

/// A stretch of one segment that may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) segment: Offset,
    pub(super) generation: u32,
    /// Where the file's content ends.
    pub(super) bytes: u64,
    /// `None`: the segment is closed, its index has to be asked.
    pub(super) place: Option<Place>,
    /// `LogState::cuts` when it was looked up.
    pub(super) cuts: u64,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log {}", self.partition)
    }
}

impl Log {
    pub(super) fn new(partition: PartitionId, directory: PathBuf, state: LogState) -> Self {
        Self { partition, directory, state: Mutex::new(state) }
    }

    /// Never held over a wait.
    pub(super) fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn path(&self, base: Offset, kind: FileKind) -> PathBuf {
        self.directory.join(file_name(base, kind))
    }

    /// The file of a segment, or of its index.
    pub(super) fn file(&self, base: Offset, generation: u32, kind: FileKind) -> PathBuf {
        self.directory.join(segment_file_name(base, generation, kind))
    }
}

impl LogState {
    pub(super) fn new(start: Offset, end: Offset, segments: Vec<Segment>, index: Index) -> Self {
        let (removed, cuts, cut_to, hints) = (false, 0, Offset::ZERO, Vec::new());
        let generations = segments.iter().map(|segment| segment.generation).max().unwrap_or(0);
        Self { start, end, segments, index, removed, cuts, cut_to, generations, hints }
    }

    pub(super) fn active(&self) -> Option<&Segment> {
        self.segments.last()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Takes note of a frame that was written at the end of the active segment.
    pub(super) fn push(&mut self, header: &Header, levels: Levels, frame_bytes: u64) {
        let active = self.segments.last_mut().expect("a frame is written into a segment");
        self.index.push(header, levels, frame_bytes);
        active.bytes += frame_bytes;
        active.max_timestamp = Some(self.index.max_timestamp());
        self.end = header.next_offset();
    }

    /// The next frame begins a new segment.
    pub(super) fn roll(&mut self, base: Offset) {
        let max_timestamp = Some(Timestamp::NONE);
        self.segments.push(Segment { base, generation: 0, bytes: 0, max_timestamp });
        self.index = Index::new(base);
    }

    /// The log begins anew at `base`, without a record. Returns the segments that it had.
    pub(super) fn restart(&mut self, base: Offset) -> Vec<Segment> {
        let gone = std::mem::take(&mut self.segments);
        self.end = base;
        self.hints.clear();
        self.roll(base);
        gone
    }

    /// From here on readers see what `mark` says. The index knows nothing until `replace`.
    pub(super) fn cut(&mut self, mark: &Mark) {
        let (base, bytes) = (mark.segment, mark.segment_bytes);
        let cut = self.segments.iter().find(|segment| segment.base == base);
        let generation = cut.filter(|_| mark.cut != Cut::All).map_or(0, |cut| cut.generation);
        self.segments.retain(|segment| segment.base < base && mark.cut != Cut::All);
        self.segments.push(Segment { base, generation, bytes, max_timestamp: None });
        self.index = Index::new(base);
        (self.start, self.end) = (mark.log_start, mark.end);
        self.hints.clear();
        self.cuts += 1;
        self.cut_to = mark.end;
    }

    /// What recovery has found out about a log that was cut.
    pub(super) fn replace(&mut self, found: Self) {
        let Self { start, end, segments, index, .. } = found;
        (self.start, self.end, self.segments, self.index) = (start, end, segments, index);
        self.hints.clear();
    }

    /// A pass of compaction has put others in the place of some. Returns those that go.
    pub(super) fn put_cleaned(&mut self, cleaned: &Cleaned) -> Vec<Segment> {
        let stay = self.segments.partition_point(|segment| segment.base < cleaned.until);
        let stay = self.segments.split_off(stay);
        let listed = cleaned.segments.iter().map(|listed| Segment {
            base: listed.info.base,
            generation: listed.generation,
            bytes: listed.info.bytes,
            max_timestamp: Some(listed.info.max_timestamp),
        });
        let mut gone = std::mem::replace(&mut self.segments, listed.chain(stay).collect());
        self.hints.clear();
        gone.extend(self.drop_below_start());
        gone
    }

    /// Whether this file still counts.
    pub(super) fn has(&self, base: Offset, generation: u32) -> bool {
        let place = self.segments.binary_search_by_key(&base, |segment| segment.base);
        place.is_ok_and(|place| self.segments[place].generation == generation)
    }

    /// Takes out the segments that lie wholly below the start.
    pub(super) fn drop_below_start(&mut self) -> Vec<Segment> {
        let keep_from = self
            .segments
            .iter()
            .rposition(|segment| segment.base <= self.start)
            .unwrap_or_default();
        self.hints.retain(|hint| hint.offset >= self.start);
        self.segments.drain(..keep_from).collect()
    }

    /// Which segment holds `offset`, and where in it to begin looking.
    pub(super) fn locate(&self, offset: Offset) -> Option<Stretch> {
        let beyond = self.segments.partition_point(|segment| segment.base <= offset);
        let segment = self.segments.get(beyond.checked_sub(1)?)?;
        let (base, generation, bytes) = (segment.base, segment.generation, segment.bytes);
        let hint = self.hints.iter().find(|hint| hint.segment == base && hint.offset == offset);
        let place = match hint {
            Some(hint) => Some(*hint),
            None if beyond == self.segments.len() => {
                let (position, offset) = self.index.seek(offset);
                Some(Place { segment: base, position, offset })
            }
            None => None,
        };
        Some(Stretch { segment: base, generation, bytes, place, cuts: self.cuts })
    }

    /// A reader of `stretch` stopped here, and will come back.
    pub(super) fn remember(&mut self, stretch: Stretch, place: Place) {
        if stretch.cuts != self.cuts || !self.has(stretch.segment, stretch.generation) {
            return;
        }
        if self.hints.len() == HINTS_MAX {
            self.hints.remove(0);
        }
        self.hints.push(place);
    }

    /// How the log stands in the segments at this moment; `None` if nothing was ever written.
    pub(super) fn mark(&self, partition: PartitionId, start: Offset) -> Option<Mark> {
        let active = self.active()?;
        Some(Mark {
            partition,
            log_start: start,
            segment: active.base,
            segment_bytes: active.bytes,
            end: self.end,
            from_sequence: 0,
            cut: Cut::Nothing,
        })
    }
}
