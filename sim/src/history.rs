//! What clients did and what they were told: each operation invoked, and ok, failed or unknown.
//! The three worlds write it, `check/*` reads it.
//!
//! *Unknown that was later read did happen.* An operation whose end was never seen is unknown.

pub mod example;
pub mod groups;
mod lines;
pub mod offsets;
pub mod transactions;

use std::fmt;

use quorate_core::time::Instant;

use crate::plan::Acks;
use crate::trace::{self, Mark};

/// A partition of the plan: the topic's place and the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partition {
    pub topic: u32,
    pub index: u32,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}-{}", self.topic, self.index)
    }
}

/// A value that is written once in a run. It names its writer and its size.
pub type Value = u64;

/// An operation's place in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(pub usize);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub client: u32,
    pub invoked: Instant,
    /// `None` while it is pending.
    pub completed: Option<Instant>,
    pub call: Call,
    pub end: End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// One batch, with all its attempts.
    Append {
        partition: Partition,
        values: Vec<Value>,
        acks: Acks,
        /// With idempotence: who and from which sequence number on.
        producer: Option<Producer>,
        /// How often it was sent.
        attempts: u32,
    },
    Read {
        partition: Partition,
        from: i64,
    },
    /// Where does it end? What is below was committed.
    Latest {
        partition: Partition,
    },
    /// Delete what is below `before`; `None` is the high watermark.
    Delete {
        partition: Partition,
        before: Option<i64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
    pub sequence: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Nobody knows whether it happened.
    Unknown,
    /// It surely did not happen.
    Failed,
    Appended {
        /// `None`: it was appended, where was not told.
        base: Option<i64>,
        /// With `LogAppendTime`.
        append_time: Option<i64>,
    },
    Read {
        records: Vec<Seen>,
        high_watermark: i64,
        log_start: i64,
    },
    Deleted {
        log_start: i64,
    },
    Ends {
        at: i64,
        /// Of whoever said so.
        leader_epoch: i32,
    },
}

/// One record as a reader saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub offset: i64,
    /// `None`: its bytes are none that any writer ever wrote.
    pub value: Option<Value>,
    pub timestamp: i64,
}

/// All operations of a run, in the order of their beginnings.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub operations: Vec<Operation>,
    /// Operations from here on are the final reading of everything, after all faults.
    pub last_phase: Option<usize>,
    /// What a client saw at once that no correct system answers.
    pub complaints: Vec<Complaint>,
    /// What members of consumer groups did.
    pub groups: groups::Groups,
    /// What producers and readers of transactions did.
    pub transactions: transactions::Transactions,
    /// What clients that only commit offsets did.
    pub offsets: Vec<offsets::Told>,
}

/// An answer that a client cannot explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// `answer`; `sequence`: a gap where everything before was acknowledged; `rot`: a storage error
    /// told to a reader.
    pub property: &'static str,
    pub partition: Partition,
    pub sentence: String,
}

impl History {
    pub fn invoke(&mut self, client: u32, now: Instant, call: Call) -> OperationId {
        let id = OperationId(self.operations.len());
        note(now, Mark::Invoke, client, id, call.partition(), || call.to_string());
        let end = End::Unknown;
        self.operations.push(Operation { client, invoked: now, completed: None, call, end });
        id
    }

    /// Counts one more attempt of an append.
    pub fn attempt(&mut self, id: OperationId) {
        if let Call::Append { attempts, .. } = &mut self.operations[id.0].call {
            *attempts += 1;
        }
    }

    pub fn complete(&mut self, id: OperationId, now: Instant, end: End) {
        let operation = &mut self.operations[id.0];
        assert!(operation.completed.is_none(), "{id:?} ends twice");
        let partition = operation.call.partition();
        note(now, Mark::Complete, operation.client, id, partition, || {
            format!("{} {end}", operation.call)
        });
        operation.completed = Some(now);
        operation.end = end;
    }

    /// An attempt was refused, for a reason that the trace names.
    pub fn refused(&self, id: OperationId, now: Instant, why: &str) {
        let operation = &self.operations[id.0];
        note(now, Mark::Complete, operation.client, id, operation.call.partition(), || {
            format!("{} refused: {why}", operation.call)
        });
    }

    /// From here on, operations read everything for the last time.
    pub fn begin_last_phase(&mut self) {
        self.last_phase = Some(self.operations.len());
    }

    /// How many operations ended well, and how many in doubt.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally {
            operations: self.operations.len(),
            transactions: self.transactions.transactions.len(),
            groups: self.groups.operations.len() + self.offsets.len(),
            ..Tally::default()
        };
        for operation in &self.operations {
            match &operation.end {
                End::Unknown => tally.unknown += 1,
                End::Failed => tally.failed += 1,
                End::Read { records, .. } => tally.read += records.len(),
                End::Appended { .. } | End::Deleted { .. } => tally.acknowledged += 1,
                End::Ends { .. } => {}
            }
        }
        tally
    }
}

/// A history in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub operations: usize,
    /// Beside those: transactions.
    pub transactions: usize,
    /// Beside those: what members of groups did, and who only commits offsets.
    pub groups: usize,
    pub acknowledged: usize,
    pub failed: usize,
    pub unknown: usize,
    /// Records.
    pub read: usize,
}

/// How much was done, for people: `5 operations, 2 transactions, 7 operations of groups`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub operations: usize,
    pub transactions: usize,
    pub groups: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |count: usize| if count == 1 { "" } else { "s" };
        write!(f, "{} operation{}", self.operations, s(self.operations))?;
        if self.transactions > 0 {
            write!(f, ", {} transaction{}", self.transactions, s(self.transactions))?;
        }
        match self.groups {
            0 => Ok(()),
            groups => write!(f, ", {groups} operation{} of groups", s(groups)),
        }
    }
}

impl Tally {
    pub const fn counts(self) -> Counts {
        let Self { operations, transactions, groups, .. } = self;
        Counts { operations, transactions, groups }
    }
}

fn note(
    now: Instant,
    mark: Mark,
    client: u32,
    id: OperationId,
    partition: Partition,
    text: impl FnOnce() -> String,
) {
    let numbers = [id.0 as u64, u64::from(partition.topic), u64::from(partition.index)];
    trace::event(now.as_duration(), mark, client_name(client), numbers, text);
}

/// `c0`, `c1` and so on, without allocating.
pub const fn client_name(client: u32) -> &'static str {
    const NAMES: [&str; 32] = [
        "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11", "c12", "c13",
        "c14", "c15", "c16", "c17", "c18", "c19", "c20", "c21", "c22", "c23", "c24", "c25", "c26",
        "c27", "c28", "c29", "c30", "c31",
    ];
    if (client as usize) < NAMES.len() { NAMES[client as usize] } else { "c+" }
}

impl Call {
    pub const fn partition(&self) -> Partition {
        match self {
            Self::Append { partition, .. }
            | Self::Read { partition, .. }
            | Self::Latest { partition }
            | Self::Delete { partition, .. } => *partition,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append { partition, values, producer, .. } => {
                let first = values.first().copied().unwrap_or_default();
                write!(f, "append {partition} {}×{first:x}", values.len())?;
                producer.map_or(Ok(()), |producer| {
                    write!(f, " p{}@{}:{}", producer.id, producer.epoch, producer.sequence)
                })
            }
            Self::Read { partition, from } => write!(f, "read {partition} from {from}"),
            Self::Latest { partition } => write!(f, "ask for the end of {partition}"),
            Self::Delete { partition, before } => {
                write!(f, "delete {partition} below {}", before.unwrap_or(-1))
            }
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Failed => f.write_str("failed"),
            Self::Appended { base: Some(base), .. } => write!(f, "appended at {base}"),
            Self::Appended { base: None, .. } => f.write_str("appended somewhere"),
            Self::Read { records, high_watermark, log_start } => {
                write!(f, "{} records, {log_start}..{high_watermark}", records.len())
            }
            Self::Deleted { log_start } => write!(f, "deleted, start {log_start}"),
            Self::Ends { at, leader_epoch } => write!(f, "ends at {at}, in e{leader_epoch}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_counted() {
        let told = |operations, transactions, groups| {
            Counts { operations, transactions, groups }.to_string()
        };
        assert_eq!(told(435, 0, 0), "435 operations");
        assert_eq!(told(1, 1, 1), "1 operation, 1 transaction, 1 operation of groups");
        assert_eq!(told(0, 8, 90), "0 operations, 8 transactions, 90 operations of groups");
        let mut history = History::default();
        let life = history.init_producer("x-0", 0, Instant::ZERO);
        history.begin_transaction(life, Instant::ZERO);
        let event = offsets::Event::Heard { is_stored: false };
        history.tell_of_offsets(1, (Instant::ZERO, Instant::ZERO), event);
        let counts = history.tally().counts();
        assert_eq!(counts, Counts { operations: 0, transactions: 1, groups: 1 });
    }
}
