//! A slow twin of a replica: a plain list of what was appended, searched from end to end for every
//! answer. It knows nothing of how the replica keeps its state.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::batch::Header;
use quorate_core::id::{Offset, ProducerEpoch, ProducerId, RequestId, WriteId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::{LogOp, Outcome, PartitionConfig, Refusal, Wait};
use quorate_core::segment::frame::FRAME_HEADER_BYTES;
use quorate_core::time::{Instant, Now, Timestamp};

/// One batch in the log.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    write: WriteId,
    base: Offset,
    end: Offset,
    producer: ProducerId,
    epoch: ProducerEpoch,
    first_sequence: i64,
    records: i64,
    bytes: u64,
    max_timestamp: Timestamp,
}

/// What a waiting request waits for.
#[derive(Clone, Debug)]
enum Pending {
    Produce { base: Offset, end: Offset, until: Instant },
    Read { beyond: Offset, bytes_min: u64, until: Instant },
    Delete { before: Offset, until: Instant },
}

#[derive(Debug, Default)]
pub(crate) struct Twin {
    entries: Vec<Entry>,
    /// Bases of segments behind the first, with the write that began them.
    rolls: Vec<(WriteId, Offset)>,
    /// Raised starts, with the write that raised them.
    starts: Vec<(WriteId, Offset)>,
    done: WriteId,
    last_write: WriteId,
    /// Where the log ended when this life began.
    recovered_end: Offset,
    pending: BTreeMap<RequestId, Pending>,
    append_time: Timestamp,
}

/// What a batch should meet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Append,
    Duplicate { base: Offset, end: Offset },
    Refused(Refusal),
}

const WRAP: i64 = 1 << 31;

impl Entry {
    /// How its producer sent it: epoch, first sequence number, records.
    pub(crate) fn sent(&self) -> (ProducerEpoch, i32, i32) {
        let small = |number: i64| i32::try_from(number).expect("31 bits");
        (self.epoch, small(self.first_sequence), small(self.records))
    }
}

impl Twin {
    pub(crate) fn end(&self) -> Offset {
        self.entries.last().map_or(self.recovered_end, |entry| entry.end)
    }

    pub(crate) fn start(&self) -> Offset {
        self.starts.iter().map(|&(_, start)| start).max().unwrap_or_default()
    }

    /// The start that a crash would not lower again.
    pub(crate) fn durable_start(&self) -> Offset {
        let done = self.starts.iter().filter(|&&(write, _)| write <= self.done);
        done.map(|&(_, start)| start).max().unwrap_or_default()
    }

    /// Everything below is on the disk.
    pub(crate) fn durable_end(&self) -> Offset {
        let done = self.entries.iter().filter(|entry| entry.write <= self.done);
        done.map(|entry| entry.end).max().unwrap_or_default().max(self.recovered_end)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(crate) fn any_pending(&self, place: usize) -> Option<RequestId> {
        self.pending.keys().nth(place % self.pending.len().max(1)).copied()
    }

    /// The last batches of a producer's last epoch, oldest first; at most five.
    pub(crate) fn remembered(&self, producer: ProducerId) -> Vec<&Entry> {
        let of = |entry: &&Entry| entry.producer == producer;
        let Some(newest) = self.entries.iter().rfind(of) else {
            return Vec::new();
        };
        let epoch = newest.epoch;
        let all = self.entries.iter().filter(of).filter(|entry| entry.epoch == epoch);
        let all = all.collect::<Vec<_>>();
        all[all.len().saturating_sub(5)..].to_vec()
    }

    /// The producer's newest epoch and the sequence number that comes next.
    pub(crate) fn next(&self, producer: ProducerId) -> Option<(ProducerEpoch, i32)> {
        let remembered = self.remembered(producer);
        let last = remembered.last()?;
        let next = (last.first_sequence + last.records) % WRAP;
        Some((last.epoch, i32::try_from(next).expect("31 bits")))
    }

    pub(crate) fn expect(&self, header: &Header) -> Expected {
        let producer = header.producer_id();
        let Some((epoch, next)) = self.next(producer).filter(|_| producer.is_some()) else {
            return Expected::Append;
        };
        let found = header.base_sequence();
        if header.producer_epoch() < epoch {
            return Expected::Refused(Refusal::StaleProducerEpoch { producer, current: epoch });
        }
        let expected = if header.producer_epoch() > epoch { 0 } else { next };
        let same = |entry: &&&Entry| {
            header.producer_epoch() == epoch
                && entry.first_sequence == i64::from(found)
                && entry.records == i64::from(header.record_count())
        };
        if let Some(original) = self.remembered(producer).iter().find(same) {
            return Expected::Duplicate { base: original.base, end: original.end };
        }
        if found == expected {
            return Expected::Append;
        }
        Expected::Refused(Refusal::OutOfOrderSequence { producer, expected, found })
    }

    pub(crate) fn wait_produce(
        &mut self,
        request: RequestId,
        (base, end): (Offset, Offset),
        until: Instant,
    ) {
        self.pending.insert(request, Pending::Produce { base, end, until });
    }

    pub(crate) fn wait_read(&mut self, wait: &Wait) {
        let (beyond, bytes_min, until) = (wait.beyond, wait.bytes_min, wait.until);
        self.pending.insert(wait.request, Pending::Read { beyond, bytes_min, until });
    }

    /// A deletion is asked for.
    pub(crate) fn expect_delete(&mut self, request: RequestId, before: Offset, until: Instant) {
        self.pending.insert(request, Pending::Delete { before, until });
    }

    pub(crate) fn waiting(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn cancel(&mut self, request: RequestId) {
        self.pending.remove(&request);
    }

    /// The replica asked for this write. `asked` is the start that a request asked for.
    pub(crate) fn on_write(
        &mut self,
        now: Now,
        config: &PartitionConfig,
        (write, op): (WriteId, &LogOp),
        asked: Option<Offset>,
    ) {
        assert_eq!(write, WriteId(self.last_write.0 + 1), "writes are numbered without a gap");
        self.last_write = write;
        match op {
            LogOp::Append { batch, .. } => {
                let header = batch.header();
                assert_eq!(header.base_offset(), self.end(), "a batch goes to the end");
                batch.verify().expect("a stamped batch has its checksum");
                if config.log_append_time {
                    assert!(header.max_timestamp() >= self.append_time, "the time fell");
                    self.append_time = header.max_timestamp();
                }
                self.entries.push(Entry {
                    write,
                    base: header.base_offset(),
                    end: header.next_offset(),
                    producer: header.producer_id(),
                    epoch: header.producer_epoch(),
                    first_sequence: i64::from(header.base_sequence()),
                    records: i64::from(header.record_count()),
                    bytes: batch.len() as u64,
                    max_timestamp: header.max_timestamp(),
                });
            }
            LogOp::Roll { base, .. } => {
                assert_eq!(*base, self.end());
                self.rolls.push((write, *base));
            }
            LogOp::DeleteBefore { offset } => {
                assert!(*offset > self.start() && *offset <= self.durable_end(), "{offset}");
                if asked != Some(*offset) {
                    assert!(
                        self.is_old(now, config, *offset) || self.is_surplus(config, *offset),
                        "nothing justifies a start at {offset}"
                    );
                }
                self.starts.push((write, *offset));
            }
            LogOp::Checkpoint { .. } => {}
            LogOp::Replace(_) => panic!("nobody made a pass"),
            LogOp::TruncateTo { .. } | LogOp::ResetTo { .. } => {
                panic!("one replica has nobody to part from: {op:?}")
            }
        }
    }

    fn is_old(&self, now: Now, config: &PartitionConfig, offset: Offset) -> bool {
        let Some(retention) = config.retention_time.filter(|_| config.delete) else {
            return false;
        };
        let horizon = now.wall.0 - i64::try_from(retention.as_millis()).expect("short");
        let is_boundary =
            offset == self.end() || self.rolls.iter().any(|&(_, base)| base == offset);
        let gone = self.segments().into_iter().filter(|&(base, ..)| base < offset);
        let gone = gone.collect::<Vec<_>>();
        is_boundary
            && gone.iter().all(|&(_, _, newest)| newest != Timestamp::NONE && newest.0 < horizon)
    }

    fn is_surplus(&self, config: &PartitionConfig, offset: Offset) -> bool {
        let Some(retention) = config.retention_bytes.filter(|_| config.delete) else {
            return false;
        };
        let kept = self.segments().into_iter().filter(|&(base, ..)| base >= offset);
        let kept = kept.map(|(_, bytes, _)| bytes).sum::<u64>();
        self.rolls.iter().any(|&(_, base)| base == offset) && kept >= retention
    }

    /// Base, bytes and newest timestamp of the segments that are there.
    fn segments(&self) -> Vec<(Offset, u64, Timestamp)> {
        let mut bases = vec![Offset::ZERO];
        bases.extend(self.rolls.iter().map(|&(_, base)| base));
        let mut segments = Vec::new();
        for (place, &base) in bases.iter().enumerate() {
            let end = bases.get(place + 1).copied().unwrap_or(Offset(i64::MAX));
            if end <= self.start() {
                continue;
            }
            let within = self.entries.iter().filter(|e| base <= e.base && e.base < end);
            let bytes = within.clone().map(|entry| entry.bytes + FRAME_HEADER_BYTES as u64).sum();
            let newest = within.map(|entry| entry.max_timestamp).max();
            segments.push((base, bytes, newest.unwrap_or(Timestamp::NONE)));
        }
        segments
    }

    pub(crate) fn on_done(&mut self, through: WriteId) {
        self.done = through;
    }

    /// Bytes that a reader at `beyond` would get.
    pub(crate) fn readable(&self, beyond: Offset) -> u64 {
        let durable_end = self.durable_end();
        let there = self.entries.iter().filter(|e| e.end > beyond && e.end <= durable_end);
        there.map(|entry| entry.bytes).sum()
    }

    /// The replica answered: this must be due.
    pub(crate) fn on_reply(&mut self, now: Now, request: RequestId, outcome: &Outcome) {
        let pending = self.pending.remove(&request);
        let pending = pending.unwrap_or_else(|| panic!("nobody expects {request}: {outcome:?}"));
        match (&pending, outcome) {
            (Pending::Produce { base, end, .. }, Outcome::Produced { base: told, .. }) => {
                assert_eq!(base, told);
                assert!(*end <= self.durable_end(), "answered before it was on the disk");
            }
            (Pending::Produce { until, .. }, Outcome::Refused(Refusal::TimedOut)) => {
                assert!(*until <= now.monotonic);
            }
            (Pending::Read { beyond, bytes_min, until }, Outcome::Advanced) => assert!(
                self.readable(*beyond) >= *bytes_min
                    || *until <= now.monotonic
                    || *beyond < self.durable_start(),
                "woken for nothing"
            ),
            (Pending::Delete { before, .. }, Outcome::RecordsDeleted { log_start }) => {
                assert!(before <= log_start, "answered before it was so");
                assert_eq!(*log_start, self.durable_start(), "answered before it was on the disk");
            }
            (Pending::Delete { until, .. }, Outcome::Refused(Refusal::TimedOut)) => {
                assert!(*until <= now.monotonic);
            }
            _ => panic!("{request} waits for {pending:?} and was told {outcome:?}"),
        }
    }

    /// After a step: nobody waits for what is there.
    pub(crate) fn check_waiting(&self) {
        for (request, pending) in &self.pending {
            match pending {
                Pending::Produce { end, .. } => assert!(*end > self.durable_end(), "{request}"),
                Pending::Read { beyond, bytes_min, .. } => {
                    assert!(self.readable(*beyond) < *bytes_min, "{request} sleeps too long");
                }
                Pending::Delete { before, .. } => {
                    assert!(*before > self.durable_start(), "{request}");
                }
            }
        }
    }

    /// After a step: as much as may go by size is gone.
    pub(crate) fn check_size(&self, config: &PartitionConfig) {
        let Some(retention) = config.retention_bytes.filter(|_| config.delete) else {
            return;
        };
        let segments = self.segments();
        let Some(&(next, ..)) = segments.get(1) else {
            return;
        };
        let kept = segments[1..].iter().map(|&(_, bytes, _)| bytes).sum::<u64>();
        assert!(kept < retention || next > self.durable_end(), "more than {retention} bytes kept");
    }

    /// After a step: nobody's time has run out.
    pub(crate) fn check_time(&self, now: Now) {
        let late = |until: &Instant| now.monotonic.saturating_since(*until) > Duration::ZERO;
        for pending in self.pending.values() {
            if let Pending::Produce { until, .. } | Pending::Read { until, .. } = pending {
                assert!(!late(until), "{pending:?}");
            }
        }
    }

    /// The process died: what was not done is lost, and who waited with it.
    pub(crate) fn on_crash(&mut self) {
        let done = self.done;
        self.entries.retain(|entry| entry.write <= done);
        self.rolls.retain(|&(write, _)| write <= done);
        self.starts.retain(|&(write, _)| write <= done);
        for write in self.entries.iter_mut().map(|entry| &mut entry.write) {
            *write = WriteId(0);
        }
        for (write, _) in self.rolls.iter_mut().chain(&mut self.starts) {
            *write = WriteId(0);
        }
        self.recovered_end = self.end();
        (self.done, self.last_write) = (WriteId(0), WriteId(0));
        self.append_time = Timestamp::NONE;
        self.pending.clear();
    }

    /// Panics unless `state` is what the list says.
    pub(crate) fn check_state(&self, state: &Recovered) {
        assert_eq!((state.log_start, state.end), (self.start(), self.end()));
        for (id, producer) in state.producers.iter() {
            let told = |first: i64, base| (first, base);
            let known = producer.batches.iter();
            let known = known.map(|b| told(i64::from(b.base_sequence), b.base_offset));
            let expected = self.remembered(id);
            let expected = expected.iter().map(|entry| told(entry.first_sequence, entry.base));
            assert!(known.eq(expected), "producer {id}");
        }
        let bases = state.segments.iter().map(|segment| (segment.base, segment.bytes));
        let expected = self.segments().into_iter().map(|(base, bytes, _)| (base, bytes));
        assert!(state.segments.is_empty() || bases.eq(expected), "{:?}", state.segments);
    }
}
