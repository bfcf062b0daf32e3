//! What a reader of committed records makes of what it was sent, as Kafka's clients do: data of
//! aborted transactions is left out, from the first record of each to its marker.

use std::collections::BTreeSet;

use quorate_core::batch::Batch;
use quorate_core::batch::control::{Ending, Marker};

use super::Read;
use crate::history::Seen;
use crate::history::transactions::{Stamp, Stamped};
use crate::workload::values;

/// The committed records from `from` on.
pub(super) fn committed(read: &Read, from: i64) -> Vec<Seen> {
    let mut aborted = read.aborted.iter().peekable();
    let (mut open, mut seen) = (BTreeSet::new(), Vec::new());
    for batch in &read.batches {
        let header = batch.header();
        while let Some((producer, _)) = aborted.next_if(|it| it.1 <= header.last_offset()) {
            open.insert(*producer);
        }
        if let Some(marker) = Marker::of(batch).filter(|_| header.is_control()) {
            if marker.ending == Ending::Aborted {
                open.remove(&header.producer_id());
            }
        } else if !header.is_transactional() || !open.contains(&header.producer_id()) {
            values::records(batch, from, &mut seen);
        }
    }
    seen
}

/// All records from `from` on, aborted or not.
pub(super) fn stored(read: &Read, from: i64) -> Vec<Seen> {
    let mut seen = Vec::new();
    for batch in read.batches.iter().filter(|batch| !batch.header().is_control()) {
        values::records(batch, from, &mut seen);
    }
    seen
}

/// Who wrote it, and as what.
pub(super) fn stamp(batch: &Batch) -> Option<Stamped> {
    let header = batch.header();
    let kind = if header.is_control() {
        let marker = Marker::of(batch)?;
        let committed = Some(marker.ending == Ending::Committed);
        Stamp::Marker { coordinator_epoch: marker.coordinator_epoch.0, committed }
    } else {
        Stamp::Records { sequence: header.base_sequence(), count: header.record_count() }
    };
    Some(Stamped {
        offset: header.base_offset().0,
        producer: header.producer_id().0,
        epoch: header.producer_epoch().0,
        kind,
    })
}
