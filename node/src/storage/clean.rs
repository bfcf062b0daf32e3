//! A pass of compaction over one log: its segments are read, and what remains is written into files
//! of a new generation, synced with their names. Nothing of that counts before `LogOp::Replace` has
//! put it into the log's `cleaned` file; what never does is removed by the next start, or here.
//!
//! It runs beside everything else, and reads files of its own: a reader is never in its way.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quorate_core::batch::{Batch, Levels};
use quorate_core::compaction::keys::Keys;
use quorate_core::compaction::pass::{Counts, Gathering, Pass, Step};
use quorate_core::id::Offset;
use quorate_core::partition::SegmentInfo;
use quorate_core::partition::interface::Clean;
use quorate_core::segment::FileKind;
use quorate_core::segment::cleaned::Cleaned;
use quorate_core::segment::frame::{FRAME_HEADER_BYTES, Frame, FrameHeader, frame_chunks};
use quorate_core::segment::index::Index;
use quorate_core::segment::scan::{Depth, Scan, Step as Scanned};
use quorate_core::time::Timestamp;
use quorate_core::{mutant, reached};

use super::log::Segment;
use super::reader::LogReader;
use super::walk::Window;
use super::writer::{unfinished, write_side};
use super::{StorageError, Unpack};
use crate::disk::{File, Open};

/// Files are read and written in pieces of so many bytes, or of one batch.
const PIECE_BYTES: usize = 256 << 10;
/// What is written is synced in parts: a gigabyte at once would keep the disk from the journal, and
/// all producers waiting, for as long as that takes.
const SYNC_BYTES: u64 = 2 << 20;

pub type Pause<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// How fast a pass may be, and whether it is to go on.
pub trait Pace: Sync {
    /// So many bytes were read or written.
    fn spent(&self, bytes: u64) -> Pause<'_>;

    /// Nobody waits for the pass any more.
    fn is_over(&self) -> bool;
}

/// What a pass may use.
pub struct Tools<'a> {
    pub unpack: &'a dyn Unpack,
    pub pace: &'a dyn Pace,
    /// Memory for keys; where they do not fit, the next pass goes on.
    pub key_bytes_max: usize,
    /// Drawn for this node, so that nobody can make keys that are taken for one another.
    pub hash_key: [u8; 16],
}

/// Why a pass did not come about. The log is as it was.
#[derive(Debug)]
pub enum CleanError {
    /// The log was cut, removed, or deleted from meanwhile, or is not synced so far.
    Changed,
    /// A segment is not what was written.
    Unreadable { path: PathBuf, why: String },
    /// A segment cannot be read.
    Io { path: PathBuf, error: io::Error },
    /// A new file was not written or not synced.
    NotWritten(StorageError),
}

impl CleanError {
    /// The disk has failed a write for another reason than want of room: it is not to be trusted
    /// with others (zoo D6).
    pub fn is_failed_write(&self) -> bool {
        matches!(self, Self::NotWritten(error) if !error.is_disk_full())
    }
}

impl fmt::Display for CleanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("the log has changed meanwhile"),
            Self::Unreadable { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::NotWritten(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CleanError {}

fn io(path: &std::path::Path) -> impl FnOnce(io::Error) -> CleanError {
    let path = path.to_path_buf();
    |error| match error.kind() {
        ErrorKind::NotFound => CleanError::Changed,
        _ => CleanError::Io { path, error },
    }
}

fn not_written(path: &std::path::Path) -> impl FnOnce(io::Error) -> CleanError {
    let failed = StorageError::io("writing what compaction leaves to", path);
    |error| match error.kind() {
        ErrorKind::NotFound => CleanError::Changed,
        _ => CleanError::NotWritten(failed(error)),
    }
}

/// One segment that goes in.
struct Input {
    segment: Segment,
    end: Offset,
    path: PathBuf,
}

impl Input {
    fn info(&self) -> SegmentInfo {
        let Segment { base, bytes, max_timestamp, .. } = self.segment;
        SegmentInfo { base, bytes, max_timestamp: max_timestamp.unwrap_or(Timestamp::NONE) }
    }
}

impl LogReader {
    /// Makes a pass. All segments below `clean.until` must be durable: the marks must say so.
    ///
    /// # Errors
    ///
    /// As `CleanError`; what was written is removed again, as far as that is possible.
    pub async fn clean(
        &self,
        clean: &Clean,
        tools: &Tools<'_>,
    ) -> Result<(Cleaned, Counts), CleanError> {
        let partition = self.log.partition;
        let marked = self.shared.marks().get(&partition).map(|mark| mark.segment);
        // What a mark speaks of byte by byte must not be replaced under it.
        if marked.is_none_or(|segment| segment < clean.until) {
            return Err(CleanError::Changed);
        }
        let (inputs, generation, cuts) = self.inputs(clean.until)?;
        let mut made = Vec::new();
        let result = self.make(clean, tools, &inputs, generation, &mut made).await;
        let changed = {
            let state = self.log.state();
            state.removed || state.cuts != cuts
        };
        let result =
            result.and_then(|done| if changed { Err(CleanError::Changed) } else { Ok(done) });
        if result.is_err() {
            for path in made {
                // Otherwise the next start removes it.
                let _ = self.shared.disk.remove(&path).await;
            }
        }
        result
    }

    fn inputs(&self, until: Offset) -> Result<(Vec<Input>, u32, u64), CleanError> {
        let mut state = self.log.state();
        state.generations += 1;
        let pairs = state.segments.windows(2).filter(|pair| pair[0].base < until);
        let inputs = pairs.map(|pair| {
            let segment = pair[0].clone();
            let path = self.log.file(segment.base, segment.generation, FileKind::Segment);
            Input { segment, end: pair[1].base, path }
        });
        let inputs: Vec<_> = inputs.collect();
        match inputs.last() {
            Some(last) if last.end == until && !state.removed => {
                Ok((inputs, state.generations, state.cuts))
            }
            _ => Err(CleanError::Changed),
        }
    }

    async fn make(
        &self,
        clean: &Clean,
        tools: &Tools<'_>,
        inputs: &[Input],
        generation: u32,
        made: &mut Vec<PathBuf>,
    ) -> Result<(Cleaned, Counts), CleanError> {
        let gathering = self.gather(clean, tools, inputs).await?;
        reached!("keys-gathered");
        let mut pass = Pass::new(&gathering, clean.segment_bytes_max, generation);
        let mut output = Output { reader: self, generation, open: None, made };
        let mut steps = Vec::new();
        for input in inputs {
            pass.begin(input.info(), input.end, &mut steps);
            let mut frames = self.frames(input).await?;
            while let Some((batch, levels)) = frames.next().await? {
                let records = match pass.wants(batch.header()) {
                    true => unpack(tools, &batch).await.map_err(|why| frames.unreadable(why))?,
                    false => Bytes::new(),
                };
                let bytes = batch.len() as u64;
                let taken = pass.take(batch, levels, &records, &mut steps);
                taken.map_err(|error| frames.unreadable(error.to_string()))?;
                let written = output.write(&mut steps).await?;
                spend(tools, bytes + written).await?;
            }
        }
        let (cleaned, counts) = pass.end(&mut steps);
        output.write(&mut steps).await?;
        output.finish().await?;
        let directory = &self.log.directory;
        if !mutant!("rewrite-not-synced") {
            self.shared.disk.sync_directory(directory).await.map_err(not_written(directory))?;
        }
        reached!("cleaned-not-replaced");
        Ok((cleaned, counts))
    }

    async fn gather<'a>(
        &self,
        clean: &'a Clean,
        tools: &Tools<'_>,
        inputs: &[Input],
    ) -> Result<Gathering<'a>, CleanError> {
        let keys = Keys::new(tools.key_bytes_max, tools.hash_key);
        let mut gathering = Gathering::new(keys, &clean.rules, clean.dirty);
        for input in inputs.iter().filter(|input| input.end > clean.dirty) {
            let mut frames = self.frames(input).await?;
            while let Some((batch, _)) = frames.next().await? {
                if !gathering.wants(batch.header()) {
                    continue;
                }
                let records = unpack(tools, &batch).await.map_err(|why| frames.unreadable(why))?;
                let taken = gathering.take(&batch, &records);
                if !taken.map_err(|error| frames.unreadable(error.to_string()))? {
                    reached!("not-all-keys-fit");
                    return Ok(gathering);
                }
                spend(tools, batch.len() as u64).await?;
            }
        }
        Ok(gathering)
    }

    async fn frames<'a>(&self, input: &'a Input) -> Result<Frames<'a>, CleanError> {
        let file = self.shared.disk.open(&input.path, Open::Read).await.map_err(io(&input.path))?;
        let Segment { base, bytes, .. } = input.segment;
        let scan = Scan::new(self.log.partition, base, bytes, bytes, Depth::Records);
        Ok(Frames { input, scan, window: Window::until(file, bytes, PIECE_BYTES) })
    }

    /// What a pass has made is not wanted.
    pub async fn discard(&self, cleaned: &Cleaned) {
        for segment in &cleaned.segments {
            let (base, generation) = (segment.info.base, segment.generation);
            if generation == 0 || self.log.state().has(base, generation) {
                continue;
            }
            for kind in [FileKind::Segment, FileKind::Index] {
                let path = self.log.file(base, generation, kind);
                let _ = self.shared.disk.remove(&path).await;
            }
        }
        reached!("pass-discarded");
    }
}

async fn spend(tools: &Tools<'_>, bytes: u64) -> Result<(), CleanError> {
    tools.pace.spent(bytes).await;
    if tools.pace.is_over() { Err(CleanError::Changed) } else { Ok(()) }
}

async fn unpack(tools: &Tools<'_>, batch: &Batch) -> Result<Bytes, String> {
    if batch.is_empty() || batch.header().is_control() {
        return Ok(Bytes::new());
    }
    tools.unpack.unpack(batch).await
}

/// The frames of one segment, in their order.
struct Frames<'a> {
    input: &'a Input,
    scan: Scan,
    window: Window,
}

impl Frames<'_> {
    async fn next(&mut self) -> Result<Option<(Batch, Levels)>, CleanError> {
        loop {
            let at = self.scan.position();
            if at >= self.input.segment.bytes {
                // The next segment, or what a pass made of it, must go on here.
                let ends = self.scan.next_offset() == self.input.end;
                return if ends {
                    Ok(None)
                } else {
                    Err(self.unreadable("it is short".to_owned()))
                };
            }
            let bytes = self.window.at(at).await.map_err(io(&self.input.path))?;
            match self.scan.step(&bytes) {
                Scanned::Frame { .. } => {
                    let frame = Frame::decode(&bytes).ok().flatten();
                    let frame =
                        frame.ok_or_else(|| self.unreadable("it has changed".to_owned()))?;
                    return Ok(Some((frame.batch, frame.header.levels)));
                }
                Scanned::More { bytes } => self.window.want(bytes),
                Scanned::End => return Err(self.unreadable("it is short".to_owned())),
                Scanned::Torn { flaw } | Scanned::Rot { flaw } => {
                    return Err(self.unreadable(flaw.to_string()));
                }
            }
        }
    }

    fn unreadable(&self, why: String) -> CleanError {
        CleanError::Unreadable { path: self.input.path.clone(), why }
    }
}

/// The segments that come out.
struct Output<'a> {
    reader: &'a LogReader,
    generation: u32,
    open: Option<Opened>,
    made: &'a mut Vec<PathBuf>,
}

struct Opened {
    path: PathBuf,
    file: Arc<dyn File>,
    index: Index,
    position: u64,
    /// Written since the last sync.
    unsynced: u64,
    /// What is to be written next, copied: a batch that stays holds the whole piece that it was
    /// read in, and a thinned one the room of all its records. Where little stays, a few hundred of
    /// them would hold gigabytes.
    pending: BytesMut,
}

impl Output<'_> {
    /// Does the steps. Returns the bytes of what is written.
    async fn write(&mut self, steps: &mut Vec<Step>) -> Result<u64, CleanError> {
        let mut written = 0;
        for step in steps.drain(..) {
            match step {
                Step::Begin(base) => {
                    self.finish().await?;
                    self.begin(base).await?;
                }
                Step::Append(batch, levels) => {
                    let partition = self.reader.log.partition;
                    let open = self.open.as_mut().expect("a segment was begun");
                    let bytes = FrameHeader::of(partition, &batch, levels).frame_bytes();
                    debug_assert_eq!(bytes, (FRAME_HEADER_BYTES + batch.len()) as u64);
                    open.index.push(batch.header(), levels, bytes);
                    for chunk in frame_chunks(partition, &batch, levels) {
                        open.pending.extend_from_slice(&chunk);
                    }
                    written += bytes;
                    if open.pending.len() >= PIECE_BYTES {
                        open.flush().await?;
                    }
                }
            }
        }
        Ok(written)
    }

    async fn begin(&mut self, base: Offset) -> Result<(), CleanError> {
        let path = self.reader.log.file(base, self.generation, FileKind::Segment);
        let disk = &self.reader.shared.disk;
        let index = self.reader.log.file(base, self.generation, FileKind::Index);
        self.made.extend([path.clone(), unfinished(&index), index]);
        let file = match disk.open(&path, Open::Create).await {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let file = disk.open(&path, Open::Write).await.map_err(not_written(&path))?;
                file.set_len(0).await.map_err(not_written(&path))?;
                file
            }
            opened => opened.map_err(not_written(&path))?,
        };
        let (pending, index) = (BytesMut::new(), Index::new(base));
        self.open = Some(Opened { path, file, index, position: 0, unsynced: 0, pending });
        Ok(())
    }

    /// What was begun last is complete: it is synced, and its index beside it.
    async fn finish(&mut self) -> Result<(), CleanError> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        open.flush().await?;
        // zoo D9: what replaces records that were durable is not.
        if !mutant!("rewrite-not-synced") {
            open.sync().await?;
        }
        let (base, disk) = (open.index.base(), &*self.reader.shared.disk);
        let path = self.reader.log.file(base, self.generation, FileKind::Index);
        write_side(disk, &path, 0, open.index.encode()).await.map_err(not_written(&path))?;
        reached!("segment-cleaned");
        Ok(())
    }
}

impl Opened {
    async fn flush(&mut self) -> Result<(), CleanError> {
        let pending = self.pending.split().freeze();
        let bytes = pending.len() as u64;
        let written = self.file.write_at(self.position, vec![pending]).await;
        written.map_err(not_written(&self.path))?;
        self.position += bytes;
        self.unsynced += bytes;
        if self.unsynced >= SYNC_BYTES {
            self.sync().await?;
        }
        Ok(())
    }

    async fn sync(&mut self) -> Result<(), CleanError> {
        self.unsynced = 0;
        self.file.sync().await.map_err(not_written(&self.path))
    }
}
