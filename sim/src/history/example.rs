//! A history of any length that a correct system could have given: what the checkers are timed and
//! tested with.

use std::time::Duration;

use quorate_core::time::Instant;

use super::{Call, End, History, Partition, Producer, Seen};
use crate::plan::Acks;
use crate::workload::values;

const PARTITIONS: u32 = 8;
/// Records that a reader takes at once.
const POLL: usize = 4;
/// Bytes of a value.
const BYTES: u64 = 16;

/// One partition's log, and how far its reader is.
#[derive(Default)]
struct Log {
    records: Vec<u64>,
    read: usize,
}

/// So many operations, three of five appends, the others reads, and a last reading of all. `lost`:
/// the record with that offset of the first partition is acknowledged, and nobody ever sees it.
pub fn history(operations: usize, lost: Option<u64>) -> History {
    let mut history = History::default();
    let mut logs: Vec<Log> = (0..PARTITIONS).map(|_| Log::default()).collect();
    let mut now = Instant::ZERO;
    let mut tick = || {
        now = now + Duration::from_micros(10);
        now
    };
    while history.operations.len() < operations {
        let turn = history.operations.len();
        let index = (turn / 5) as u32 % PARTITIONS;
        let partition = Partition { topic: 0, index };
        let log = &mut logs[index as usize];
        if turn % 5 < 3 {
            let base = log.records.len();
            let value = values::value(index, BYTES, base as u64);
            log.records.push(value);
            let producer = Producer { id: i64::from(index), epoch: 0, sequence: base as i32 };
            let (values, producer) = (vec![value], Some(producer));
            let call = Call::Append { partition, values, acks: Acks::All, producer, attempts: 1 };
            let id = history.invoke(index, tick(), call);
            let end = End::Appended { base: Some(base as i64), append_time: None };
            history.complete(id, tick(), end);
        } else {
            let from = log.read;
            let next = (from + POLL).min(log.records.len());
            log.read = next;
            let call = Call::Read { partition, from: from as i64 };
            let id = history.invoke(PARTITIONS + index, tick(), call);
            let end = read(log, from..next, index, lost);
            history.complete(id, tick(), end);
        }
    }
    history.begin_last_phase();
    for (index, log) in (0..).zip(&logs) {
        let partition = Partition { topic: 0, index };
        let id = history.invoke(PARTITIONS, tick(), Call::Read { partition, from: 0 });
        let end = read(log, 0..log.records.len(), index, lost);
        history.complete(id, tick(), end);
    }
    history
}

fn read(log: &Log, offsets: std::ops::Range<usize>, index: u32, lost: Option<u64>) -> End {
    let is_there = |offset: &usize| index != 0 || lost != Some(*offset as u64);
    let seen = |offset: usize| Seen {
        offset: offset as i64,
        value: Some(log.records[offset]),
        timestamp: 0,
    };
    End::Read {
        records: offsets.filter(is_there).map(seen).collect(),
        high_watermark: log.records.len() as i64,
        log_start: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Struck, check};
    use crate::plan::draw::draw;

    #[test]
    fn a_good_one_is_good_and_one_lost_record_is_noticed() {
        let mut plan = draw(0);
        plan.topics.iter_mut().for_each(|topic| topic.compact = false);
        let found = |lost| check(&history(2000, lost), &plan, Struck::default());
        assert_eq!(found(None), []);
        let properties: Vec<_> = found(Some(7)).into_iter().map(|it| it.property).collect();
        assert!(properties.contains(&"lost-write"), "{properties:?}");
    }
}
