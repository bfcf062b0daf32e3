//! Reads of one log: whole batches from an offset on, and the first record at or after a time.
//!
//! A read holds a handle of the segment, so that it goes on where retention removes the file under
//! it; the log's start is looked at again afterwards. What is read is checked against its
//! checksums each time: rot is told, never served.

use std::future::Future;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::batch::{Batch, Header, Levels, Records};
use quorate_core::id::{LeaderEpoch, Offset};
use quorate_core::reached;
use quorate_core::segment::FileKind;
use quorate_core::segment::frame::{FRAME_HEADER_BYTES, FrameHeader};
use quorate_core::segment::index::Index;
use quorate_core::segment::scan::{Depth, Scan, Step};
use quorate_core::time::Timestamp;

use super::Shared;
use super::directory::read;
use super::error::{ReadError, Rot};
use super::log::{Log, Place, Stretch};
use super::walk::Window;
use crate::disk::File;

/// A read asks the disk for so many bytes at most, at once.
const PIECE_BYTES_MAX: u64 = 4 << 20;

/// Records on their way out of a batch.
pub type Unpacked<'a> = Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send + 'a>>;

/// Takes the records out of their batch, within bounds that are not the storage's.
pub trait Unpack: Sync {
    /// The error is a sentence that says why there are no records in it.
    fn unpack<'a>(&'a self, batch: &'a Batch) -> Unpacked<'a>;
}

/// Reads one log. Clones read the same log.
#[derive(Clone)]
pub struct LogReader {
    pub(super) shared: Arc<Shared>,
    pub(super) log: Arc<Log>,
}

/// A walk over the frames of one segment.
struct Walk {
    scan: Scan,
    window: Window,
    end: u64,
}

/// A frame that a walk has passed.
struct Passed {
    header: Header,
    position: u64,
    /// Of the whole frame.
    bytes: Bytes,
}

impl LogReader {
    pub(super) fn new(shared: Arc<Shared>, log: Arc<Log>) -> Self {
        Self { shared, log }
    }

    /// Bytes of the log's frames.
    pub fn bytes(&self) -> u64 {
        self.log.state().bytes()
    }

    /// The whole batches from the one that holds `from` on, which begin below `up_to`, of at most
    /// `bytes_max` bytes together; with `at_least_one`, the first may be larger. Nothing is an
    /// answer: `from` is the end, or the first batch is too large. The caller passes an `up_to`
    /// that readers may see (the high watermark).
    ///
    /// # Errors
    ///
    /// `OutOfRange` if `from` lies below the start or behind the end; `Rot` if what stands there
    /// fails its checksums; `Io`; `Removed`; `Cut`.
    pub async fn read(
        &self,
        from: Offset,
        up_to: Offset,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Result<Vec<Batch>, ReadError> {
        let read = self.read_with_levels(from, up_to, bytes_max, at_least_one).await?;
        Ok(read.into_iter().map(|(batch, _)| batch).collect())
    }

    /// As `read`, with the priority levels that stand in each batch.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub async fn read_with_levels(
        &self,
        from: Offset,
        up_to: Offset,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Result<Vec<(Batch, Levels)>, ReadError> {
        let cuts = self.log.state().cuts;
        let mut read = self.read_now(from, up_to, bytes_max, at_least_one).await;
        while let Err(ReadError::Replaced) = read {
            reached!("segment-replaced-before-it-was-opened");
            read = self.read_now(from, up_to, bytes_max, at_least_one).await;
        }
        let reached = read
            .as_ref()
            .ok()
            .map(|read| read.last().map_or(from, |(last, _)| last.header().next_offset()));
        self.unless_cut(cuts, reached, read)
    }

    /// What was found while the log was cut holds only as far as the cut left it.
    fn unless_cut<T>(
        &self,
        cuts: u64,
        reached: Option<Offset>,
        found: Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let state = self.log.state();
        let stands = reached.is_some_and(|reached| reached <= state.cut_to);
        if cuts == state.cuts || (cuts + 1 == state.cuts && stands) {
            return found;
        }
        reached!("cut-during-read");
        Err(ReadError::Cut)
    }

    async fn read_now(
        &self,
        from: Offset,
        up_to: Offset,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Result<Vec<(Batch, Levels)>, ReadError> {
        let mut batches = Vec::new();
        let mut bytes = 0;
        let mut next = from;
        let mut before = None;
        while next < up_to
            && let Some(stretch) = self.stretch(next)?
        {
            // The active segment has grown meanwhile: that is for the next read.
            if before.replace(stretch.segment) == Some(stretch.segment) {
                break;
            }
            let left = (bytes_max - bytes) as u64;
            let mut walk = self.walk(stretch, next, left).await?;
            while let Some(passed) = self.next_frame(&mut walk, stretch.segment).await? {
                if passed.header.next_offset() <= next {
                    continue;
                }
                if passed.header.base_offset() >= up_to {
                    next = up_to;
                    break;
                }
                let batch_bytes = passed.header.batch_bytes();
                let first = batches.is_empty();
                if bytes + batch_bytes > bytes_max && !(first && at_least_one) {
                    self.remember(stretch, &passed);
                    return self.answer(from, batches);
                }
                bytes = (bytes + batch_bytes).min(bytes_max);
                next = passed.header.next_offset();
                batches.push((passed.batch(), passed.levels()));
            }
            if next >= up_to {
                break;
            }
            let segment = stretch.segment;
            let (position, offset) = (walk.scan.position(), walk.scan.next_offset());
            if position == walk.end && offset == next {
                self.log.state().remember(stretch, Place { segment, position, offset });
            }
            next = next.max(offset);
            if bytes >= bytes_max {
                break;
            }
        }
        self.answer(from, batches)
    }

    /// The first record at or after `timestamp` among the offsets from `start` to below `end`:
    /// its offset, its timestamp, and the leader epoch of its batch. Has `unpack` look into
    /// compressed batches. Kafka's `LogSegment.findOffsetByTimestamp`.
    ///
    /// # Errors
    ///
    /// As `read`; `Rot` also where a batch cannot be decompressed any more.
    pub async fn offset_for_timestamp(
        &self,
        timestamp: Timestamp,
        start: Offset,
        end: Offset,
        unpack: &dyn Unpack,
    ) -> Result<Option<(Offset, Timestamp, LeaderEpoch)>, ReadError> {
        let cuts = self.log.state().cuts;
        let mut found = self.offset_for_timestamp_now(timestamp, start, end, unpack).await;
        while let Err(ReadError::Replaced) = found {
            found = self.offset_for_timestamp_now(timestamp, start, end, unpack).await;
        }
        self.unless_cut(cuts, None, found)
    }

    /// Where the first batch begins that reaches beyond `offset`, which lies within the log.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub(super) async fn place_of(&self, offset: Offset) -> Result<Option<Place>, ReadError> {
        loop {
            match self.place_of_now(offset).await {
                Err(ReadError::Replaced) => {}
                found => return found,
            }
        }
    }

    async fn place_of_now(&self, offset: Offset) -> Result<Option<Place>, ReadError> {
        let Some(stretch) = self.stretch(offset)? else { return Ok(None) };
        let segment = stretch.segment;
        let mut walk = self.walk(stretch, offset, self.shared.config.read_bytes).await?;
        loop {
            let (position, first) = (walk.scan.position(), walk.scan.next_offset());
            match self.next_frame(&mut walk, segment).await? {
                Some(passed) if passed.header.next_offset() <= offset => {}
                _ => return Ok(Some(Place { segment, position, offset: first })),
            }
        }
    }

    async fn offset_for_timestamp_now(
        &self,
        timestamp: Timestamp,
        start: Offset,
        end: Offset,
        unpack: &dyn Unpack,
    ) -> Result<Option<(Offset, Timestamp, LeaderEpoch)>, ReadError> {
        let mut next = start.max(self.log.state().start);
        while next < end
            && let Some(stretch) = self.stretch(next)?
        {
            let after = self.segment_after(stretch.segment);
            if let Some(place) = self.place_for(stretch, next, timestamp).await? {
                let stretch = Stretch { place: Some(place), ..stretch };
                let mut walk =
                    self.walk(stretch, place.offset, self.shared.config.read_bytes).await?;
                while let Some(passed) = self.next_frame(&mut walk, stretch.segment).await? {
                    if passed.header.base_offset() >= end {
                        return Ok(None);
                    }
                    if passed.header.max_timestamp() < timestamp {
                        continue;
                    }
                    let position = passed.position;
                    let batch = passed.batch();
                    let records = unpack.unpack(&batch).await;
                    let found = records
                        .and_then(|records| first_at(&batch, &records, timestamp, next..end));
                    let found =
                        found.map_err(|why| self.rot(stretch.segment, position, next, why))?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
            }
            match after {
                Some(after) => next = after.max(next),
                None => break,
            }
        }
        Ok(None)
    }

    /// Where the segment behind the one that holds `offset` begins; `None` at the last.
    pub fn segment_behind(&self, offset: Offset) -> Option<Offset> {
        self.segment_after(offset)
    }

    fn segment_after(&self, segment: Offset) -> Option<Offset> {
        let state = self.log.state();
        let beyond = state.segments.partition_point(|other| other.base <= segment);
        state.segments.get(beyond).map(|other| other.base)
    }

    /// Where to look for `offset`; `None` at the log's end.
    fn stretch(&self, offset: Offset) -> Result<Option<Stretch>, ReadError> {
        let state = self.log.state();
        if state.removed {
            return Err(ReadError::Removed);
        }
        if offset < state.start || offset > state.end {
            return Err(ReadError::OutOfRange { start: state.start, end: state.end });
        }
        if offset == state.end {
            return Ok(None);
        }
        match state.locate(offset) {
            Some(stretch) => Ok(Some(stretch)),
            None => Err(ReadError::OutOfRange { start: state.start, end: state.end }),
        }
    }

    /// Where the first record at or after `timestamp` may stand in a segment, not before
    /// `offset`'s batch.
    async fn place_for(
        &self,
        stretch: Stretch,
        offset: Offset,
        timestamp: Timestamp,
    ) -> Result<Option<Place>, ReadError> {
        let segment = stretch.segment;
        let place = |(position, offset)| Place { segment, position, offset };
        let (by_time, by_offset) = match stretch.place {
            // The active segment's index is at hand.
            Some(at) => {
                let state = self.log.state();
                (
                    state.active().filter(|active| active.base == segment).map_or_else(
                        || Some(place((0, segment))),
                        |_| state.index.seek_timestamp(timestamp).map(place),
                    ),
                    at,
                )
            }
            None => {
                let index = self.index(stretch).await?;
                (index.seek_timestamp(timestamp).map(place), place(index.seek(offset)))
            }
        };
        Ok(by_time
            .map(|by_time| if by_time.offset < by_offset.offset { by_offset } else { by_time }))
    }

    /// The index of a closed segment, made anew if its file is missing or wrong.
    async fn index(&self, stretch: Stretch) -> Result<Arc<Index>, ReadError> {
        let base = stretch.segment;
        let key = (self.log.partition, base, stretch.generation);
        if let Some(index) = self.shared.files.index(key) {
            return Ok(index);
        }
        let path = self.log.file(base, stretch.generation, FileKind::Index);
        let bytes = read(&*self.shared.disk, &path).await;
        let bytes = bytes.map_err(|error| ReadError::Io { path, error })?;
        let index = bytes.and_then(|bytes| Index::decode(&bytes).ok());
        let whole = |index: &Index| index.base() == base && index.bytes() == stretch.bytes;
        if let Some(index) = index.filter(whole) {
            return Ok(self.keep_index(stretch, index));
        }
        reached!("index-made-anew-for-reading");
        let mut index = Index::new(base);
        let place = Some(Place { segment: base, position: 0, offset: base });
        let mut walk = self.walk(Stretch { place, ..stretch }, base, PIECE_BYTES_MAX).await?;
        while let Some(passed) = self.next_frame(&mut walk, base).await? {
            let levels = passed.levels();
            index.push(&passed.header, levels, passed.bytes.len() as u64);
        }
        Ok(self.keep_index(stretch, index))
    }

    /// Under the log's lock, so that nothing of a segment that was cut off is kept.
    fn keep_index(&self, stretch: Stretch, index: Index) -> Arc<Index> {
        let state = self.log.state();
        let (base, generation) = (stretch.segment, stretch.generation);
        if state.cuts != stretch.cuts || !state.has(base, generation) {
            return Arc::new(index);
        }
        self.shared.files.keep_index((self.log.partition, base, generation), index)
    }

    async fn walk(&self, stretch: Stretch, from: Offset, left: u64) -> Result<Walk, ReadError> {
        let place = match stretch.place {
            Some(place) => place,
            None => {
                let index = Box::pin(self.index(stretch)).await?;
                let (position, offset) = index.seek(from);
                Place { segment: stretch.segment, position, offset }
            }
        };
        let file = self.file(stretch, from).await?;
        // Below what stands in the segment nothing may be missing, so all of it counts as durable.
        let scan = Scan::new(
            self.log.partition,
            stretch.segment,
            stretch.bytes,
            stretch.bytes,
            Depth::Records,
        );
        let scan = scan.from_position(place.position, place.offset);
        let config = &self.shared.config;
        let piece = left.saturating_add(4096).clamp(config.read_bytes, PIECE_BYTES_MAX) as usize;
        let window = Window::until(file, stretch.bytes, piece);
        Ok(Walk { scan, window, end: stretch.bytes })
    }

    async fn file(&self, stretch: Stretch, from: Offset) -> Result<Arc<dyn File>, ReadError> {
        let base = stretch.segment;
        let (key, generation) =
            ((self.log.partition, base, stretch.generation), stretch.generation);
        if let Some(file) = self.shared.files.opened(key) {
            return Ok(file);
        }
        let path = self.log.file(base, generation, FileKind::Segment);
        let opened = self.shared.files.open(&path).await;
        let state = self.log.state();
        match opened {
            // Nothing of a segment that was cut off is kept.
            Ok(file) if state.cuts != stretch.cuts || !state.has(base, generation) => Ok(file),
            Ok(file) => Ok(self.shared.files.keep_segment(key, file)),
            Err(_) if state.removed => Err(ReadError::Removed),
            Err(_) if from < state.start => {
                Err(ReadError::OutOfRange { start: state.start, end: state.end })
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !state.has(base, generation) => {
                Err(ReadError::Replaced)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                drop(state);
                Err(self.rot(base, 0, base, "the file is missing".to_owned()))
            }
            Err(error) => Err(ReadError::Io { path, error }),
        }
    }

    async fn next_frame(
        &self,
        walk: &mut Walk,
        segment: Offset,
    ) -> Result<Option<Passed>, ReadError> {
        loop {
            let at = walk.scan.position();
            if at >= walk.end {
                return Ok(None);
            }
            let bytes = walk.window.at(at).await;
            let next = walk.scan.next_offset();
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(self.rot(segment, at, next, error.to_string()));
                }
                Err(error) => {
                    return Err(ReadError::Io { path: self.segment_path(segment), error });
                }
            };
            match walk.scan.step(&bytes) {
                Step::Frame { position, frame, header, .. } => {
                    let bytes = bytes.slice(..frame.frame_bytes() as usize);
                    return Ok(Some(Passed { header, position, bytes }));
                }
                Step::More { bytes } => walk.window.want(bytes),
                Step::End => return Ok(None),
                Step::Torn { flaw } | Step::Rot { flaw } => {
                    return Err(self.rot(segment, at, next, flaw.to_string()));
                }
            }
        }
    }

    fn segment_path(&self, base: Offset) -> PathBuf {
        let state = self.log.state();
        let found = state.segments.iter().find(|segment| segment.base == base);
        self.log.file(base, found.map_or(0, |segment| segment.generation), FileKind::Segment)
    }

    fn rot(&self, segment: Offset, position: u64, offset: Offset, why: String) -> ReadError {
        reached!("rot-found-by-reading");
        let path = self.segment_path(segment);
        ReadError::Rot(Rot { partition: self.log.partition, path, position, offset, why })
    }

    fn remember(&self, stretch: Stretch, passed: &Passed) {
        let place = Place {
            segment: stretch.segment,
            position: passed.position,
            offset: passed.header.base_offset(),
        };
        self.log.state().remember(stretch, place);
    }

    /// The start may have been raised, or the log removed, while the read was on its way.
    fn answer<T>(&self, from: Offset, batches: Vec<T>) -> Result<Vec<T>, ReadError> {
        let state = self.log.state();
        if state.removed {
            return Err(ReadError::Removed);
        }
        if from < state.start {
            reached!("start-raised-during-read");
            return Err(ReadError::OutOfRange { start: state.start, end: state.end });
        }
        Ok(batches)
    }
}

impl Passed {
    fn levels(&self) -> Levels {
        let header = FrameHeader::decode(&self.bytes).ok().flatten();
        header.map(|header| header.levels).unwrap_or_default()
    }

    fn batch(&self) -> Batch {
        let bytes = self.bytes.slice(FRAME_HEADER_BYTES..);
        Batch::parse(bytes).expect("the scan has parsed this batch")
    }
}

/// The first of `batch`'s `records` at or after `timestamp` whose offset lies in `within`.
fn first_at(
    batch: &Batch,
    records: &Bytes,
    timestamp: Timestamp,
    within: std::ops::Range<Offset>,
) -> Result<Option<(Offset, Timestamp, LeaderEpoch)>, String> {
    let count = batch.header().record_count();
    for record in Records::new(records, count) {
        let record = record.map_err(|error| error.to_string())?;
        let (offset, at) = (batch.offset_of(&record), batch.timestamp_of(&record));
        if at >= timestamp && within.contains(&offset) {
            return Ok(Some((offset, at, batch.header().leader_epoch())));
        }
    }
    Ok(None)
}
