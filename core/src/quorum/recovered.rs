//! What a node finds on its disk when it starts: a fold over what it once asked to be written.
//! Storage keeps either the operations or their sum; both are written by one codec.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::configuration::Configuration;
use super::identity::{ClusterId, Index, Member, Position, Term};
use super::log::{Entry, Log};
use crate::codec::{self, CodecError};

const VERSION: u8 = 1;

/// What a voter must never forget, or it could vote twice in one term. Raft's figure 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardState {
    /// Whose messages are listened to. `None` until the cluster is founded or joined.
    pub cluster: Option<ClusterId>,
    pub term: Term,
    /// Who has this node's vote in `term`.
    pub vote: Option<Member>,
}

/// The application's state behind an entry, and who votes there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The last entry that is part of it; index 0 means that there is none.
    pub position: Position,
    pub configuration: Configuration,
    #[serde(with = "super::opaque")]
    pub data: Bytes,
}

/// One change of the disk. Each is atomic; they are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogOp {
    HardState(HardState),
    /// The entries follow the last one without a gap.
    Append {
        entries: Vec<Entry>,
    },
    /// Entries behind `after` are gone.
    Truncate {
        after: Index,
    },
    /// The snapshot is newer than the last one; entries up to `forget` are not needed any more.
    Snapshot {
        snapshot: Snapshot,
        forget: Index,
    },
    /// The snapshot came from a leader and takes the place of the whole log.
    Install {
        snapshot: Snapshot,
    },
}

impl LogOp {
    /// A version, then the operation.
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(VERSION, self)
    }

    /// # Errors
    ///
    /// If the bytes are not an operation that this build knows.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        codec::decode(codec::version(bytes, VERSION)?.1)
    }
}

/// A voter's memory. `Recovered::default()` is an empty disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub hard: HardState,
    pub snapshot: Snapshot,
    pub log: Log,
}

impl Recovered {
    /// Carries out `op`. Panics if it cannot follow what is there: the operations are the
    /// machine's own, and storage keeps their order.
    pub fn apply(&mut self, op: &LogOp) {
        match op {
            LogOp::HardState(hard) => self.hard = *hard,
            LogOp::Append { entries } => {
                entries.iter().for_each(|entry| self.log.push(entry.clone()));
            }
            LogOp::Truncate { after } => self.log.truncate(*after),
            LogOp::Snapshot { snapshot, forget } => {
                self.snapshot = snapshot.clone();
                self.log.forget(*forget);
                self.log.settle(snapshot.position.index);
            }
            LogOp::Install { snapshot } => {
                let at = (snapshot.position.index, snapshot.configuration.clone());
                self.log = Log::new(snapshot.position, Some(at));
                self.snapshot = snapshot.clone();
            }
        }
    }

    /// The operations that lead from an empty disk to this state, fewest first.
    pub fn to_ops(&self) -> Vec<LogOp> {
        let mut ops = vec![LogOp::HardState(self.hard)];
        if self.snapshot.position != Position::ZERO {
            ops.push(LogOp::Install { snapshot: self.snapshot.clone() });
        }
        let behind = self.log.entries().filter(|entry| entry.index > self.snapshot.position.index);
        let entries: Vec<Entry> = behind.cloned().collect();
        if !entries.is_empty() {
            ops.push(LogOp::Append { entries });
        }
        ops
    }

    /// Panics if no voter can have written this.
    pub fn check(&self) {
        self.log.check();
        let snapshot = self.snapshot.position;
        assert!(self.log.base().index <= snapshot.index, "a hole behind the snapshot {snapshot}");
        assert!(snapshot.index <= self.log.last().index, "the log ends before its snapshot");
        assert!(self.log.has(snapshot), "the log does not go through its snapshot {snapshot}");
        assert!(self.log.last().term <= self.hard.term, "an entry of a term not heard of");
    }
}
