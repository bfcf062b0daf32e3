//! Compaction of a log in the world of cores: the core's own pass over the batches that are there.
//! What it makes counts once it is put in its place; recovery begins behind that, as from the
//! snapshot with which the next segment was begun.

use bytes::Bytes;
use quorate_core::batch::{Batch, Levels};
use quorate_core::compaction::keys::Keys;
use quorate_core::compaction::pass::{Gathering, Pass, Step};
use quorate_core::id::Offset;
use quorate_core::partition::interface::Clean;
use quorate_core::partition::{Recovered, SegmentInfo};
use quorate_core::segment::cleaned::Cleaned;

use super::{Known, Log, Stored, frame_bytes};
use crate::shadow::compacted::{self, Survivors};

/// Batches are not compressed here.
const UNCOMPRESSED_MAX: usize = 64 << 20;
/// Nobody chooses keys here that are taken for one another.
const HASH_KEY: [u8; 16] = [0x71; 16];

fn records(batch: &Batch) -> Option<Bytes> {
    if batch.is_empty() || batch.header().is_control() {
        return Some(Bytes::new());
    }
    batch.uncompressed(UNCOMPRESSED_MAX).ok()
}

impl Log {
    /// Makes a pass, and keeps aside what it has made. `None`: a segment is not closed yet, or
    /// cannot be read.
    pub(in super::super) fn clean(
        &mut self,
        clean: &Clean,
        key_bytes_max: usize,
    ) -> Option<Box<Cleaned>> {
        let pairs = self.state.segments.windows(2).filter(|pair| pair[0].base < clean.until);
        let inputs: Vec<(SegmentInfo, Offset)> =
            pairs.map(|pair| (pair[0], pair[1].base)).collect();
        if inputs.last()?.1 != clean.until {
            return None;
        }
        let keys = Keys::new(key_bytes_max, HASH_KEY);
        let mut gathering = Gathering::new(keys, &clean.rules, clean.dirty);
        for stored in self.batches(clean.dirty) {
            if stored.known.base >= clean.until {
                break;
            }
            let wants = gathering.wants(stored.batch.header());
            if wants && !gathering.take(&stored.batch, &records(&stored.batch)?).ok()? {
                break;
            }
        }
        self.generations += 1;
        let generation = self.generations;
        let mut pass = Pass::new(&gathering, clean.segment_bytes_max, generation);
        let mut steps = Vec::new();
        for (info, end) in inputs {
            pass.begin(info, end, &mut steps);
            for stored in self.batches(info.base) {
                if stored.known.base >= end {
                    break;
                }
                let (batch, levels) = (stored.batch.clone(), stored.levels);
                let wanted = pass.wants(batch.header());
                let records = if wanted { records(&batch)? } else { Bytes::new() };
                pass.take(batch, levels, &records, &mut steps).ok()?;
            }
        }
        let (cleaned, _) = pass.end(&mut steps);
        let made = steps.into_iter().filter_map(|step| match step {
            Step::Begin(_) => None,
            Step::Append(batch, levels) => Some((batch, levels)),
        });
        self.made.insert(generation, made.collect::<Vec<(Batch, Levels)>>());
        Some(Box::new(cleaned))
    }

    /// What a pass has made is not wanted.
    pub(in super::super) fn discard(&mut self, cleaned: &Cleaned) {
        self.made.remove(&cleaned.generation_max());
    }

    pub(super) fn replace(&mut self, cleaned: &Cleaned) {
        let Some(made) = self.made.remove(&cleaned.generation_max()) else {
            return self.blame("segments are to be replaced by what no pass has made".to_owned());
        };
        self.floor = self.state_at(cleaned.until);
        self.floor.replace(cleaned);
        self.rolls.retain(|base| *base > cleaned.until);
        self.state.replace(cleaned);
        let first = self.state.segments.first().map_or(Offset::ZERO, |segment| segment.base);
        let replaced = self.batches.partition_point(|stored| stored.known.base < cleaned.until);
        self.batches.drain(..replaced);
        for (batch, levels) in made.into_iter().rev() {
            let known = Known::of(&batch);
            if known.base >= first {
                let seen = std::cell::OnceCell::new();
                self.batches.push_front(Stored { known, batch, levels, seen });
            }
        }
    }

    /// What all below `until` adds up to, where a segment begins.
    fn state_at(&self, until: Offset) -> Recovered {
        let mut state = self.floor.clone();
        let mut rolls = self.rolls.iter().copied().filter(|base| *base <= until).peekable();
        for stored in self.batches(self.floor.end) {
            if stored.known.base >= until {
                break;
            }
            while let Some(base) = rolls.next_if(|base| *base <= stored.known.base) {
                let _ = state.roll(base);
            }
            let _ = state.apply(&stored.batch, frame_bytes(&stored.batch));
        }
        for base in rolls {
            let _ = state.roll(base);
        }
        state.delete_before(self.state.log_start);
        state
    }

    /// The log is to be cut within what is compacted, which only a human's word allows: what is
    /// left is added up from its batches.
    pub(super) fn lower_floor(&mut self, offset: Offset) {
        if offset >= self.floor.end {
            return;
        }
        let start = self.state.log_start;
        self.floor = Recovered { log_start: start, end: start, ..Recovered::default() };
        let segments = self.state.segments.iter().map(|segment| segment.base);
        self.rolls = segments.filter(|base| *base > start && *base <= offset).collect();
    }

    /// What stands in it, record by record, but for what is aborted: that goes whatever its keys.
    pub(in super::super) fn survivors(&self) -> Survivors {
        let mut survivors = Survivors::new();
        let aborted = self.state.aborted.ranges();
        for stored in &self.batches {
            let (header, base) = (stored.batch.header(), stored.known.base);
            let is_aborted = header.is_transactional()
                && aborted.iter().any(|it| {
                    it.producer == header.producer_id() && it.first <= base && base <= it.last
                });
            if !header.is_control() && !is_aborted {
                compacted::gather(&stored.batch, &mut survivors);
            }
        }
        survivors
    }

    /// Whether there is something at each of these offsets, if only that nothing is left.
    pub(super) fn covers(&self, known: &Known) -> bool {
        let mut reached = known.base;
        for stored in self.batches(known.base) {
            if reached >= known.next || stored.known.base > reached {
                break;
            }
            reached = stored.known.next;
        }
        reached >= known.next
    }
}
