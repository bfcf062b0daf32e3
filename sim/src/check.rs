//! Whether a history may come from a correct system: each property in one file, under the names
//! that Jepsen's queue checkers use where they have one.
//!
//! What may be lost is in one table (`promise`); no checker decides it by itself.

pub mod anomalies;
pub mod append_time;
pub mod cycles;
pub mod dense;
pub mod duplicates;
pub mod groups;
pub mod invented;
pub mod offsets;
pub mod order;
pub mod polls;
pub mod survival;
pub mod transactions;
pub mod waits;

use std::collections::BTreeMap;
use std::fmt;

use self::dense::{ByValue, Dense, Numbers};
use crate::history::{Call, End, History, OperationId, Partition, Producer, Value};
use crate::plan::{Acks, Flush, Plan};
use crate::workload::values;

/// A property that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub property: &'static str,
    /// The partition, mostly.
    pub place: String,
    /// What was seen, in a sentence.
    pub sentence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.property, self.place, self.sentence)
    }
}

/// What struck the system in a run, as far as it decides what may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Struck {
    /// Unsynced bytes were lost at least once.
    pub power_lost: bool,
    /// Durable bytes were changed at least once.
    pub rot: bool,
    /// Some of them in the journal, whose last group cannot be told from one that was torn.
    pub journal_rot: bool,
    /// Reads of the disk have failed.
    pub reads_failed: bool,
    /// A human had partitions led by whoever was there.
    pub led_uncleanly: bool,
    /// A replica began anew where its leader's log starts: what was deleted below, and who had
    /// written it, is not known there (decision 0085).
    pub began_anew: bool,
}

impl Struck {
    /// What struck either of two.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            power_lost: self.power_lost || other.power_lost,
            rot: self.rot || other.rot,
            journal_rot: self.journal_rot || other.journal_rot,
            reads_failed: self.reads_failed || other.reads_failed,
            led_uncleanly: self.led_uncleanly || other.led_uncleanly,
            began_anew: self.began_anew || other.began_anew,
        }
    }
}

/// What may be lost in a partition of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// What was acknowledged, or read, stays.
    pub survives: bool,
    /// What was acknowledged stays even if nobody has read it.
    pub unread_survives: bool,
}

/// acks × flush × what struck → what may be lost. The one table.
pub fn promise(plan: &Plan, struck: Struck, partition: Partition) -> Promise {
    let flush =
        plan.topics.get(partition.topic as usize).map_or(Flush::Durable, |topic| topic.flush);
    let survives = match flush {
        // The only copy may have rotted, and nothing can bring it back. A log that is served is
        // whole, though; only the end of the journal may go unnoticed.
        _ if struck.journal_rot || struck.led_uncleanly => false,
        Flush::Durable => true,
        Flush::Replicated => !struck.power_lost,
    };
    // A leader alone has it, and another may lead next.
    let alone = plan.cluster.nodes > 1 && plan.workload.acks != Acks::All;
    Promise { survives, unread_survives: survives && !alone }
}

/// All violations that the black box shows.
pub fn check(history: &History, plan: &Plan, struck: Struck) -> Vec<Violation> {
    let evidence = Evidence::new(history, plan, struck);
    let mut violations = Vec::new();
    survival::check(&evidence, &mut violations);
    order::check(&evidence, &mut violations);
    duplicates::check(&evidence, &mut violations);
    invented::check(&evidence, &mut violations);
    polls::check(&evidence, &mut violations);
    append_time::check(&evidence, &mut violations);
    waits::check(&evidence, &mut violations);
    cycles::check(&evidence, &mut violations);
    groups::check(&evidence, &mut violations);
    offsets::check(&evidence, &mut violations);
    transactions::check(&evidence, &mut violations);
    for complaint in &history.complaints {
        let counts = match complaint.property {
            "answer" | "start-epoch" => true,
            // Whatever was lost: a log that was cut where it should be has no rot in it.
            "rot" => !struck.rot && !struck.reads_failed,
            // What was acknowledged and lost leaves a gap behind it.
            _ => evidence.promise(complaint.partition).unread_survives,
        };
        if counts {
            let (place, sentence) = (complaint.partition.to_string(), complaint.sentence.clone());
            violations.push(Violation { property: complaint.property, place, sentence });
        }
    }
    violations.sort();
    violations.dedup_by(|a, b| (a.property, &a.place) == (b.property, &b.place));
    violations
}

/// An append that was invoked.
#[derive(Clone, Copy, Debug)]
pub struct Append<'a> {
    pub id: OperationId,
    pub values: &'a [Value],
    pub acks: Acks,
    pub producer: Option<Producer>,
    pub attempts: u32,
}

/// A partition at the end: what the final reading found.
#[derive(Clone, Debug, Default)]
pub struct FinalLog {
    pub start: i64,
    /// The high watermark.
    pub end: i64,
    /// By offset; `None` for bytes that nobody wrote.
    pub records: Dense<Option<Value>>,
    /// Where each key stands last, of those that compaction tells apart.
    pub last_of_keys: BTreeMap<u64, i64>,
}

/// A history, sorted for the checkers.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub history: &'a History,
    pub plan: &'a Plan,
    pub struck: Struck,
    pub numbers: Numbers,
    /// Which append wrote a value.
    pub writers: ByValue<OperationId>,
    pub appends: BTreeMap<Partition, Vec<Append<'a>>>,
    /// Only partitions whose final reading came to its end.
    pub finals: BTreeMap<Partition, FinalLog>,
}

impl<'a> Evidence<'a> {
    pub fn new(history: &'a History, plan: &'a Plan, struck: Struck) -> Self {
        let mut numbers = Numbers::default();
        for operation in &history.operations {
            if let Call::Append { values, .. } = &operation.call {
                values.iter().for_each(|value| numbers.count(*value));
            }
        }
        let mut evidence = Self {
            history,
            plan,
            struck,
            writers: ByValue::with_room(&numbers),
            numbers,
            appends: BTreeMap::new(),
            finals: BTreeMap::new(),
        };
        for (place, operation) in history.operations.iter().enumerate() {
            if let Call::Append { partition, values, acks, producer, attempts } = &operation.call {
                let id = OperationId(place);
                for value in values {
                    evidence.writers.or_insert(*value, id);
                }
                let (acks, producer, attempts) = (*acks, *producer, *attempts);
                let append = Append { id, values, acks, producer, attempts };
                evidence.appends.entry(*partition).or_default().push(append);
            }
        }
        evidence.find_finals();
        evidence
    }

    fn find_finals(&mut self) {
        let from = self.history.last_phase.unwrap_or(self.history.operations.len());
        for operation in &self.history.operations[from..] {
            let (Call::Read { partition, .. }, End::Read { records, high_watermark, log_start }) =
                (&operation.call, &operation.end)
            else {
                continue;
            };
            let log = self.finals.entry(*partition).or_default();
            log.start = log.start.max(*log_start);
            log.end = log.end.max(*high_watermark);
            for seen in records {
                log.records.insert(seen.offset, seen.value);
                if let Some(key) = seen.value.and_then(values::compacted_key) {
                    let last = log.last_of_keys.entry(key).or_insert(seen.offset);
                    *last = seen.offset.max(*last);
                }
            }
        }
        // A reading that did not come to its end says nothing about what is missing.
        self.finals.retain(|_, log| {
            log.start >= log.end || log.records.last().map(|last| last + 1) == Some(log.end)
        });
    }

    pub fn promise(&self, partition: Partition) -> Promise {
        promise(self.plan, self.struck, partition)
    }

    /// Whether compaction may take records of the partition.
    pub fn is_compacted(&self, partition: Partition) -> bool {
        self.plan.topics.get(partition.topic as usize).is_some_and(|topic| topic.compact)
    }

    /// Whether compaction may have taken `value` from `offset`: its key has a later record.
    pub fn is_superseded(&self, partition: Partition, offset: i64, value: Value) -> bool {
        let Some(log) = self.finals.get(&partition) else { return false };
        let Some(key) = values::compacted_key(value) else { return false };
        self.is_compacted(partition)
            && log.records.get(offset).is_none()
            && log.last_of_keys.get(&key).is_some_and(|last| *last > offset)
    }

    /// Appends that were acknowledged with their offset.
    pub fn acknowledged(&self, partition: Partition) -> impl Iterator<Item = (Append<'a>, i64)> {
        let appends = self.appends.get(&partition).map_or(&[][..], Vec::as_slice);
        appends.iter().filter_map(|append| match self.history.operations[append.id.0].end {
            End::Appended { base: Some(base), .. } => Some((*append, base)),
            _ => None,
        })
    }

    /// What readers saw: the operation and its records, with the watermark and the start.
    pub fn reads(&self) -> impl Iterator<Item = Reading<'a>> {
        self.history.operations.iter().enumerate().filter_map(|(place, operation)| {
            match (&operation.call, &operation.end, operation.completed) {
                (
                    Call::Read { partition, from },
                    End::Read { records, high_watermark, log_start },
                    Some(completed),
                ) => Some(Reading {
                    id: OperationId(place),
                    partition: *partition,
                    from: *from,
                    invoked: operation.invoked,
                    completed,
                    records,
                    high_watermark: *high_watermark,
                    log_start: *log_start,
                }),
                _ => None,
            }
        })
    }
}

/// A read that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    pub id: OperationId,
    pub partition: Partition,
    pub from: i64,
    pub invoked: quorate_core::time::Instant,
    pub completed: quorate_core::time::Instant,
    pub records: &'a [crate::history::Seen],
    pub high_watermark: i64,
    pub log_start: i64,
}

/// Adds a violation.
fn blame(
    violations: &mut Vec<Violation>,
    property: &'static str,
    partition: Partition,
    sentence: String,
) {
    violations.push(Violation { property, place: partition.to_string(), sentence });
}
