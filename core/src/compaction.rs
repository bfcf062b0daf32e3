//! Log compaction as functions over batches: of records with the same key the last one stays. What
//! is cleaned and when is `partition::cleaning`'s to say; reading and writing is the storage's.
//!
//! Offsets never move, and no gap comes about: where nothing is left, a filler stands for the
//! offsets. So whoever walks a log can go on taking a missing frame for a loss.

pub mod keys;
pub mod pass;
mod siphash;

use std::time::Duration;

use bytes::Bytes;

use self::keys::{Keys, Noted};
use crate::batch::control::Marker;
use crate::batch::record::RecordError;
use crate::batch::{Batch, Header, Record, Records};
use crate::id::{LeaderEpoch, Offset};
use crate::partition::aborted::Aborted;
use crate::time::Timestamp;
use crate::{mutant, reached};

/// What one pass over one log goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The time at which tombstones are judged; `None` while the wall clock is not believed: then
    /// none is dated, and none goes.
    pub now: Option<Timestamp>,
    /// `delete.retention.ms`: how long a tombstone stays after it was cleaned for the first time.
    pub tombstone_time: Duration,
    /// Ascending: first offsets of batches that must keep their producer's sequence, with or
    /// without records.
    /// The markers from which producers' epochs are known are among them.
    pub sequences: Vec<Offset>,
    /// Ascending by producer and first record: transactions whose data is to go, whatever its keys.
    /// Every transaction below the pass's end that is not among them was committed.
    pub aborted: Vec<Aborted>,
}

impl Rules {
    /// When what is found superfluous now may go; `None` while nobody knows what time it is.
    fn horizon(&self) -> Option<Timestamp> {
        let time = i64::try_from(self.tombstone_time.as_millis()).unwrap_or(i64::MAX);
        self.now.map(|now| Timestamp(now.0.saturating_add(time)))
    }

    /// Whether the batch with this header is data of an aborted transaction.
    fn is_aborted(&self, header: &Header) -> bool {
        let (producer, base) = (header.producer_id(), header.base_offset());
        if !header.is_transactional() || header.is_control() {
            return false;
        }
        let passed = self.aborted.partition_point(|it| (it.producer, it.first) <= (producer, base));
        let before = passed.checked_sub(1).map(|place| self.aborted[place]);
        before.is_some_and(|it| it.producer == producer && base <= it.last)
    }
}

/// What is left of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Its bytes stay as they are.
    All,
    Some(Batch),
    Nothing,
}

/// What a pass has found out about a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub remains: Remains,
    /// When the first tombstone that stays in it may go.
    pub tombstones_due: Option<Timestamp>,
    pub records_before: u64,
    pub records_after: u64,
}

impl Verdict {
    fn all(records: u64) -> Self {
        let (remains, tombstones_due) = (Remains::All, None);
        Self { remains, tombstones_due, records_before: records, records_after: records }
    }
}

/// Takes note of a batch's keys; `records` without compression. `Noted::Full`: nothing was noted,
/// and the pass knows the log up to this batch only.
///
/// # Errors
///
/// If the records cannot be read.
pub fn note(
    keys: &mut Keys,
    rules: &Rules,
    batch: &Batch,
    records: &Bytes,
) -> Result<Noted, RecordError> {
    let header = batch.header();
    // Neither a marker's key nor one of an aborted record shadows anything.
    let is_data = !header.is_control() || mutant!("marker-dropped-by-key");
    if !is_data || batch.is_empty() || rules.is_aborted(header) {
        return Ok(Noted::All);
    }
    let count = batch.header().record_count();
    if !keys.has_room_for(count) {
        return Ok(Noted::Full);
    }
    for record in Records::new(records, count) {
        let record = record?;
        if let Some(key) = record.key {
            keys.note(key, batch.offset_of(&record));
        }
    }
    Ok(Noted::All)
}

/// What is left of `batch`, which `keys` know all records of; `records` without compression. For a
/// marker: whether records of its transaction are left.
///
/// # Errors
///
/// If the records cannot be read: then nothing is to be left out of anything.
pub fn judge(
    keys: &Keys,
    rules: &Rules,
    batch: &Batch,
    records: &Bytes,
    has_data: bool,
) -> Result<Verdict, RecordError> {
    let header = batch.header();
    let before = u64::try_from(header.record_count()).unwrap_or(0);
    // zoo I2: markers have keys and are no records; one that falls to a record of the same key
    // leaves its transaction without an end.
    if header.is_control() && !mutant!("marker-dropped-by-key") {
        return Ok(judge_marker(rules, batch, records, has_data));
    }
    if rules.is_aborted(header) {
        reached!("aborted-data-removed");
        let (remains, tombstones_due) = (left_empty(rules, batch), None);
        return Ok(Verdict { remains, tombstones_due, records_before: before, records_after: 0 });
    }
    let may_go = batch.delete_horizon().zip(rules.now).is_some_and(|(horizon, now)| now >= horizon);
    let stays = |record: &Record<'_>| {
        let latest = record.key.is_some_and(|key| match keys.latest(key) {
            Some(latest) => batch.offset_of(record) >= latest,
            None => true,
        });
        latest && (record.value.is_some() || !may_go)
    };
    let (mut after, mut tombstones) = (0, false);
    for record in Records::new(records, header.record_count()) {
        let record = record?;
        if stays(&record) {
            after += 1;
            tombstones |= record.value.is_none();
        }
    }
    let dates = tombstones && batch.delete_horizon().is_none();
    let horizon = rules.horizon().filter(|_| dates);
    let remains = if after == 0 {
        left_empty(rules, batch)
    } else if after == before && horizon.is_none() {
        Remains::All
    } else {
        Remains::Some(batch.thinned(records, horizon, stays))
    };
    let tombstones_due = horizon.or_else(|| batch.delete_horizon()).filter(|_| tombstones);
    Ok(Verdict { remains, tombstones_due, records_before: before, records_after: after })
}

/// A marker stays while a record of its transaction is left, or its producer is known by it. Then
/// it is treated as a tombstone is: dated by the pass that finds it so, and gone once whoever reads
/// the log has had its time. So no pass takes a marker together with its data, and who has read of
/// the data what an earlier pass has left finds the marker behind it.
fn judge_marker(rules: &Rules, batch: &Batch, records: &Bytes, has_data: bool) -> Verdict {
    let before = u64::try_from(batch.header().record_count()).unwrap_or(0);
    let all = Verdict::all(before);
    let is_needed = rules.sequences.binary_search(&batch.header().base_offset()).is_ok();
    if has_data || is_needed || Marker::of(batch).is_none() {
        reached!("control-batch-kept");
        return all;
    }
    let horizon = batch.delete_horizon();
    match (horizon, rules.horizon()) {
        (Some(horizon), _) if rules.now.is_some_and(|now| now >= horizon) => {
            reached!("marker-removed");
            Verdict { remains: Remains::Nothing, records_after: 0, ..all }
        }
        (None, Some(horizon)) => {
            reached!("marker-dated");
            let remains = Remains::Some(batch.thinned(records, Some(horizon), |_| true));
            Verdict { remains, tombstones_due: Some(horizon), ..all }
        }
        (horizon, _) => Verdict { tombstones_due: horizon, ..all },
    }
}

/// A batch of which no record is left. What its producer's sequence rests on stays, told by its
/// place: sequences may repeat (KAFKA-8335).
fn left_empty(rules: &Rules, batch: &Batch) -> Remains {
    let base = batch.header().base_offset();
    // zoo E8: with its last batch, a producer's sequence is forgotten.
    let keeps =
        rules.sequences.binary_search(&base).is_ok() && !mutant!("cleaner-forgets-last-sequence");
    if !keeps {
        return Remains::Nothing;
    }
    reached!("emptied-batch-keeps-its-sequence");
    if batch.is_empty() { Remains::All } else { Remains::Some(batch.emptied()) }
}

/// Puts what remains of consecutive batches into one row without gaps: emptied stretches become
/// fillers, as few as may be.
#[derive(Clone, Debug, Default)]
pub struct Row {
    hole: Option<(Offset, Offset, LeaderEpoch)>,
}

/// A filler's offsets at most.
const HOLE_MAX: i64 = i32::MAX as i64;

impl Row {
    /// Nothing is left of the batch with this header. Returns a filler that is complete by that.
    pub fn skip(&mut self, header: &Header) -> Option<Batch> {
        let (base, next, epoch) =
            (header.base_offset(), header.next_offset(), header.leader_epoch());
        if let Some((first, end, hole_epoch)) = &mut self.hole
            && *end == base
            && *hole_epoch == epoch
            && next.0 - first.0 <= HOLE_MAX
        {
            *end = next;
            return None;
        }
        let done = self.end();
        self.hole = Some((base, next, epoch));
        done
    }

    /// Whether a filler is still to come.
    pub fn is_open(&self) -> bool {
        self.hole.is_some()
    }

    /// The row is complete up to here, or a batch follows: returns the filler before it.
    pub fn end(&mut self) -> Option<Batch> {
        let hole = self.hole.take();
        // zoo I5: where the end of a log stands in a batch without records, it is lost with it.
        if mutant!("cleaner-loses-end-offset") {
            return None;
        }
        hole.map(|(base, next, epoch)| Batch::filler(base, next, epoch))
    }
}
