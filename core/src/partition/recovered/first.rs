//! A log's state as builds before transactions wrote it down: version 1 of its snapshot.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::SegmentInfo;
use crate::id::{Offset, ProducerEpoch, ProducerId};
use crate::partition::leader_epochs::LeaderEpochs;
use crate::partition::producers::{Appended, Producers};
use crate::time::Timestamp;

#[derive(Deserialize)]
pub(super) struct Recovered {
    log_start: Offset,
    end: Offset,
    max_timestamp: Timestamp,
    append_time: Timestamp,
    segments: Vec<SegmentInfo>,
    leader_epochs: LeaderEpochs,
    producers: BTreeMap<ProducerId, Producer>,
}

#[derive(Deserialize)]
struct Producer {
    epoch: ProducerEpoch,
    batches: Vec<Appended>,
    seen: Timestamp,
}

impl From<Recovered> for super::Recovered {
    fn from(first: Recovered) -> Self {
        let Recovered { log_start, end, max_timestamp, append_time, segments, .. } = first;
        let known = first.producers.into_iter();
        let known = known.map(|(id, it)| (id, it.epoch, it.batches, it.seen));
        Self {
            log_start,
            end,
            max_timestamp,
            append_time,
            segments,
            leader_epochs: first.leader_epochs,
            producers: Producers::idempotent(known),
            ..Self::default()
        }
    }
}
