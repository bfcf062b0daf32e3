//! Who waits for what at one partition, worked out anew beside the machine: nobody is answered
//! before it is true, and nobody waits for what is there.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use quorate_core::id::{Offset, RequestId};
use quorate_core::partition::interface::{Acks, Input, Outcome, PartitionConfig, ReadView};
use quorate_core::partition::{Recovered, SegmentInfo};
use quorate_core::time::Timestamp;

#[derive(Default)]
pub(super) struct Shadow {
    /// Appends without an answer, in the order of the log: their ends, and what each waits for.
    appends: VecDeque<(RequestId, Offset, Acks)>,
    /// Readers: what each has seen.
    readers: BTreeMap<RequestId, Offset>,
}

/// Who asks in the step that begins.
#[derive(Clone, Copy)]
pub(super) enum Asks {
    Nobody,
    Append(RequestId, Acks),
    Reader(RequestId, Offset),
    /// To delete records: the log's start may rise for no other reason.
    Delete,
}

impl Asks {
    pub(super) fn of(input: &Input) -> Self {
        match input {
            Input::Produce(produce) => Self::Append(produce.request, produce.acks),
            Input::Wait(wait) => Self::Reader(wait.request, wait.beyond),
            Input::DeleteRecords { .. } => Self::Delete,
            _ => Self::Nobody,
        }
    }
}

/// A property and a sentence.
pub(super) type Wrong = (&'static str, String);

/// A log is about to lose what lies below `offset`, and nobody asked for it: every segment that
/// goes must be too old, or leave enough behind it. `state` is the log before.
pub(super) fn retention(
    config: &PartitionConfig,
    state: &Recovered,
    offset: Offset,
    reported: Offset,
    now: Timestamp,
) -> Option<Wrong> {
    let wrong = |sentence: String| Some(("retention", sentence));
    if offset > reported {
        return wrong(format!("the log is to begin at {offset}, and {reported} is written"));
    }
    let kept: u64 = state
        .segments
        .iter()
        .filter(|segment| segment.base >= offset)
        .map(|segment| segment.bytes)
        .sum();
    if config.retention_bytes.is_some_and(|bytes| kept >= bytes) {
        return None;
    }
    let is_old = |segment: &SegmentInfo| {
        let age = now.0.saturating_sub(segment.max_timestamp.0);
        let kept = |time: Duration| age > time.as_millis() as i64;
        segment.max_timestamp != Timestamp::NONE && config.retention_time.is_some_and(kept)
    };
    let mut gone = state.segments.iter().filter(|segment| segment.base < offset);
    let young = gone.find(|segment| segment.bytes > 0 && !is_old(segment))?;
    wrong(format!("at {now:?}, {young:?} goes and {kept} bytes stay; it is young: {config:?}"))
}

impl Shadow {
    pub(super) fn begins(&mut self, asks: Asks) {
        if let Asks::Reader(request, beyond) = asks {
            self.readers.insert(request, beyond);
        }
    }

    /// The batch of the step's append stands at the end of the log.
    pub(super) fn appends(&mut self, asks: Asks, end: Offset) {
        if let Asks::Append(request, acks) = asks {
            self.appends.push_back((request, end, acks));
        }
    }

    /// `reported` is the end of what was reported as written.
    pub(super) fn answers(
        &mut self,
        request: RequestId,
        outcome: &Outcome,
        reported: Offset,
    ) -> Option<Wrong> {
        if self.readers.remove(&request).is_some() {
            return None;
        }
        let place = self.appends.iter().position(|(other, ..)| *other == request)?;
        let (_, end, _) = self.appends.remove(place)?;
        let early = matches!(outcome, Outcome::Produced { .. }) && reported < end;
        early.then(|| {
            let sentence = format!(
                "request {request} appends below {end} and is answered when {reported} is written"
            );
            ("early-answer", sentence)
        })
    }

    /// The step is done: who still waits must have a reason.
    pub(super) fn ends(&self, view: &ReadView, reported: Offset) -> Option<Wrong> {
        if view.high_watermark > reported {
            let high = view.high_watermark;
            let sentence = format!("the high watermark is {high}, and {reported} is written");
            return Some(("watermark-ahead", sentence));
        }
        if let Some(&(request, end, acks)) = self.appends.front() {
            let there = match acks {
                Acks::All | Acks::AtLeast(_) => view.high_watermark,
                Acks::Leader | Acks::None => reported,
            };
            if end <= there {
                let sentence = format!("request {request} waits for {end}, which is there");
                return Some(("lost-wakeup", sentence));
            }
        }
        let (request, beyond) = self.readers.iter().find(|(_, at)| **at < view.high_watermark)?;
        let high = view.high_watermark;
        let sentence =
            format!("request {request} waits for what is behind {beyond}; {high} is readable");
        Some(("lost-wakeup", sentence))
    }

    pub(super) fn clear(&mut self) {
        self.appends.clear();
        self.readers.clear();
    }
}
