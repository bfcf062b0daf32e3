//! What stands in a log, batch by batch, and passes of compaction over it, as storage would make
//! them without files.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_core::batch::control::Marker;
use quorate_core::batch::{Batch, Levels, Records};
use quorate_core::compaction::keys::Keys;
use quorate_core::compaction::pass::{Counts, Gathering, Pass, Step};
use quorate_core::id::Offset;
use quorate_core::partition::interface::{Clean, LogOp};
use quorate_core::partition::{Recovered, SegmentInfo};
use quorate_core::segment::cleaned::Cleaned;
use quorate_core::segment::frame::FRAME_HEADER_BYTES;

/// One segment: its base, its generation, its batches.
#[derive(Clone, Debug)]
struct Piece {
    base: Offset,
    generation: u32,
    batches: Vec<Batch>,
}

/// See the file's comment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pieces: Vec<Piece>,
    start: Offset,
    /// What passes have written and nothing names yet.
    made: BTreeMap<u32, Vec<Piece>>,
    generation: u32,
}

impl Contents {
    pub(crate) fn apply(&mut self, op: &LogOp) {
        match op {
            LogOp::Append { batch, .. } => {
                if self.pieces.is_empty() {
                    self.begin(batch.header().base_offset());
                }
                self.pieces.last_mut().expect("a piece").batches.push(batch.clone());
            }
            LogOp::Roll { base, .. } => self.begin(*base),
            LogOp::DeleteBefore { offset } => {
                self.start = self.start.max(*offset);
            }
            LogOp::Replace(cleaned) => {
                let listed = cleaned.segments.first().expect("a pass makes something").generation;
                let made = self.made.remove(&listed).expect("a pass that was made");
                let stay = self.pieces.drain(..).filter(|piece| piece.base >= cleaned.until);
                self.pieces = made.into_iter().chain(stay).collect();
            }
            LogOp::Checkpoint { .. } => {}
            LogOp::TruncateTo { .. } | LogOp::ResetTo { .. } => unreachable!("{op:?}"),
        }
        let gone = self.pieces.windows(2).take_while(|pair| pair[1].base <= self.start).count();
        self.pieces.drain(..gone);
    }

    fn begin(&mut self, base: Offset) {
        self.pieces.push(Piece { base, generation: 0, batches: Vec::new() });
    }

    /// Makes a pass with so much memory for keys. Nothing changes before its `Replace`.
    pub(crate) fn clean(&mut self, clean: &Clean, memory: usize) -> (Cleaned, Counts) {
        let inside = |piece: &&Piece| piece.base < clean.until;
        let mut gathering = Gathering::new(Keys::new(memory, [7; 16]), &clean.rules, clean.dirty);
        let all = self.pieces.iter().filter(inside).flat_map(|piece| &piece.batches);
        for batch in all.filter(|batch| gathering.wants(batch.header())).collect::<Vec<_>>() {
            if !gathering.take(batch, &records(batch)).expect("records") {
                break;
            }
        }
        self.generation += 1;
        let mut pass = Pass::new(&gathering, clean.segment_bytes_max, self.generation);
        let mut steps = Vec::new();
        for (piece, next) in self.pieces.iter().zip(self.pieces.iter().skip(1)) {
            if piece.base < clean.until {
                pass.begin(info(piece), next.base, &mut steps);
                for batch in &piece.batches {
                    let levels = Levels::DEFAULT;
                    pass.take(batch.clone(), levels, &records(batch), &mut steps).expect("records");
                }
            }
        }
        let (cleaned, counts) = pass.end(&mut steps);
        let mut made: Vec<Piece> = Vec::new();
        for step in steps {
            match step {
                Step::Begin(base) => {
                    made.push(Piece { base, generation: self.generation, batches: Vec::new() });
                }
                Step::Append(batch, _) => made.last_mut().expect("begun").batches.push(batch),
            }
        }
        for (piece, told) in made.iter().zip(&cleaned.segments) {
            assert_eq!((info(piece), piece.generation), (told.info, told.generation));
        }
        assert_eq!(made.len(), cleaned.segments.len());
        self.made.insert(self.generation, made);
        (cleaned, counts)
    }

    pub(crate) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.pieces.iter().flat_map(|piece| &piece.batches)
    }

    /// What a start without a snapshot makes of it. Panics where a frame is missing.
    pub(crate) fn recover(&self) -> Recovered {
        let mut state = Recovered::default();
        let mut next = self.pieces.first().map_or(Offset::ZERO, |piece| piece.base);
        for (place, piece) in self.pieces.iter().enumerate() {
            assert_eq!(piece.base, next, "a segment begins where the one before it ends");
            if place > 0 {
                state.roll(piece.base).expect("segments follow one another");
            }
            for batch in &piece.batches {
                batch.verify().expect("a sound batch");
                assert_eq!(batch.header().base_offset(), next, "no gap");
                next = batch.header().next_offset();
                let bytes = (FRAME_HEADER_BYTES + batch.len()) as u64;
                state.apply(batch, bytes).expect("batches follow one another");
            }
        }
        state.delete_before(self.start);
        state
    }
}

fn info(piece: &Piece) -> SegmentInfo {
    let bytes = piece.batches.iter().map(|batch| (FRAME_HEADER_BYTES + batch.len()) as u64);
    let times = piece.batches.iter().map(|batch| batch.header().max_timestamp());
    let unknown = SegmentInfo::new(piece.base).max_timestamp;
    let max_timestamp = times.fold(unknown, Ord::max);
    SegmentInfo { base: piece.base, bytes: bytes.sum(), max_timestamp }
}

fn records(batch: &Batch) -> Bytes {
    batch.uncompressed(1 << 24).expect("our own batch")
}

/// The records of a batch as `offset:key=value`, `offset:key=` for a tombstone.
pub(crate) fn show(batch: &Batch) -> Vec<String> {
    if let Some(marker) = Marker::of(batch) {
        return vec![format!("{}:{:?}", batch.header().base_offset(), marker.ending)];
    }
    let records = records(batch);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let shown = Records::new(&records, batch.header().record_count()).map(|record| {
        let record = record.expect("a record");
        let key = record.key.map_or_else(|| "-".to_owned(), text);
        let value = record.value.map(text).unwrap_or_default();
        format!("{}:{key}={value}", batch.offset_of(&record))
    });
    shown.collect()
}
