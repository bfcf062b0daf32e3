//! What a member of the quorum is told, and what it asks for: the closed lists of its inputs,
//! effects and outcomes.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use super::configuration::Configuration;
pub use super::identity::{ClusterId, DirectoryId, Index, Member, Position, Term};
pub use super::limits::Limits;
pub use super::log::{Entry, Payload};
pub use super::message::{Body, Message};
pub use super::recovered::{HardState, LogOp, Recovered, Snapshot};
use crate::id::{NodeId, RequestId, WriteId};

/// Who a node is, and whom its configuration file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    pub me: Member,
    /// The nodes that found the cluster, and whom to ask for it later. The same on all nodes.
    pub founders: BTreeSet<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Put `data` into the log. Answered `Committed` once it is.
    Propose {
        request: RequestId,
        /// Only if this node leads in this term: a proposal made on the strength of an older
        /// leadership must not slip into a newer one.
        term: Term,
        data: Bytes,
    },
    /// Which entries must be applied before a read sees everything that was answered before it
    /// was asked? Raft's ReadIndex, §6.4 of Ongaro's thesis.
    Read {
        request: RequestId,
    },
    /// One voter more or less.
    Change {
        request: RequestId,
        change: Change,
    },
    /// Let `to`, or whoever is furthest, lead instead.
    Transfer {
        request: RequestId,
        to: Option<NodeId>,
    },
    /// The application cannot go on as a leader: somebody else must.
    Resign,
    /// The application's state after the entry at `through`, which it was given as committed.
    SnapshotTaken {
        through: Index,
        data: Bytes,
    },
    /// What an operator sees of the quorum from here, now.
    Describe {
        request: RequestId,
    },
    /// Nobody waits for `request` any more.
    Cancelled {
        request: RequestId,
    },
    /// A node sent this; the driver vouches that it came from `message.from.node`.
    Received(Message),
    /// All writes up to `through` are on the disk, synced.
    Persisted {
        through: WriteId,
    },
    /// A write or its sync failed. What the disk holds is unknown from here on.
    PersistFailed {
        write: WriteId,
    },
    Tick,
}

impl Input {
    /// Who waits for an answer to this input.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::Propose { request, .. }
            | Self::Read { request }
            | Self::Change { request, .. }
            | Self::Describe { request }
            | Self::Transfer { request, .. } => Some(*request),
            Self::Resign
            | Self::SnapshotTaken { .. }
            | Self::Cancelled { .. }
            | Self::Received(_)
            | Self::Persisted { .. }
            | Self::PersistFailed { .. }
            | Self::Tick => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// It follows the log already, and lacks little.
    AddVoter(Member),
    RemoveVoter(Member),
    /// Its disk is lost: it votes no more, and its node's vote is kept for another disk of that
    /// node. Whoever is added or removed by hand loses the vote that was kept.
    KeepVote(Member),
}

/// What any node may ask of the one that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    Describe,
    Change(Change),
}

impl Question {
    pub const fn input(self, request: RequestId) -> Input {
        match self {
            Self::Describe => Input::Describe { request },
            Self::Change(change) => Input::Change { request, change },
        }
    }

    /// Whether `outcome` is an answer to this at all: what another node says may be anything.
    pub const fn is_answered_by(self, outcome: &Outcome) -> bool {
        matches!(
            (self, outcome),
            (_, Outcome::Refused(_))
                | (Self::Describe, Outcome::Described(_))
                | (Self::Change(_), Outcome::Committed { .. })
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Do this to the disk, synced, then say `Persisted`. In order.
    Persist {
        write: WriteId,
        op: LogOp,
    },
    /// May be lost.
    Send {
        to: NodeId,
        message: Message,
    },
    /// Committed, on this disk, and to be applied in order: each entry once in a life, behind the
    /// snapshot that was last restored.
    Committed {
        entries: Vec<Entry>,
    },
    /// The application's state is this from here on, whatever it was.
    Restore {
        snapshot: Snapshot,
    },
    /// Give `SnapshotTaken` when convenient, at any entry that was given as committed.
    TakeSnapshot,
    /// The one answer to a request.
    Reply {
        request: RequestId,
        outcome: Outcome,
    },
    RoleChanged(Role),
    /// This node must not go on: its disk lies.
    Halt {
        reason: HaltReason,
    },
}

/// What a node is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// In charge: everything that earlier leaders committed was given before this was said.
    /// Proposals name this term.
    Leading { term: Term },
    /// Follows `leader`, or nobody yet.
    Following { term: Term, leader: Option<NodeId> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The proposal or the change is committed. `Effect::Committed` with the entry came before.
    Committed {
        position: Position,
    },
    /// Apply everything up to `through`, then read. It was committed when the read was asked.
    Readable {
        through: Index,
    },
    /// Another node leads, or will at once.
    Transferred,
    Described(Box<Status>),
    Refused(Refusal),
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Nothing was written. `leader`, if known, is whom to ask.
    NotLeader {
        leader: Option<NodeId>,
    },
    /// The leadership ended first: the entry may be committed by the next leader, or be lost.
    Unknown,
    /// Too much is on its way already.
    Busy,
    TooLarge {
        bytes: u64,
        bytes_max: u64,
    },
    /// The leadership is being handed over.
    Transferring,
    /// The leader has not committed an entry of its own term yet; soon.
    NotInCharge,
    /// The change before this one is not committed yet.
    ChangePending,
    /// Nobody of this name and directory follows the log.
    NotObserved,
    /// It lacks so many entries.
    NotCaughtUp {
        behind: u64,
    },
    AlreadyVoter,
    NotVoter,
    /// A quorum needs somebody.
    LastVoter,
    /// It did not take over in time.
    TransferFailed,
    /// The disk failed.
    Storage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HaltReason {
    PersistFailed { write: WriteId },
}

/// What an operator sees of the quorum from one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub me: Member,
    pub term: Term,
    pub leader: Option<NodeId>,
    /// This node is the leader and in charge.
    pub is_leading: bool,
    pub committed: Index,
    pub last: Position,
    pub snapshot: Index,
    pub configuration: Configuration,
    /// How far each voter and observer is; known to the leader only.
    pub replicas: Vec<ReplicaStatus>,
    /// Before there is a cluster: what its founding waits for.
    pub founding: Option<Founding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    pub member: Member,
    pub is_voter: bool,
    /// On its disk, and equal to the leader's log.
    pub matched: Index,
    /// It answered within an election timeout.
    pub is_heard: bool,
}

/// Why there is no cluster yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Founding {
    /// This node founds it, once these have been heard from: the first start needs all voters.
    WaitingFor(BTreeSet<NodeId>),
    /// `node` was told of other voters than this one.
    Disagrees { node: NodeId, voters: BTreeSet<NodeId> },
    /// `founder` founds it, or a leader takes this node in.
    WaitingToBeTaken { founder: Option<NodeId> },
}

impl fmt::Display for Founding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |nodes: &BTreeSet<NodeId>| {
            nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::WaitingFor(nodes) => write!(
                f,
                "the first start of a cluster needs all its voters; waiting for {}",
                list(nodes)
            ),
            Self::Disagrees { node, voters } => write!(
                f,
                "node {node} is configured with the voters {}, which is not what this node has",
                list(voters)
            ),
            Self::WaitingToBeTaken { founder: Some(founder) } => {
                write!(f, "waiting for node {founder} to found the cluster, or for its leader")
            }
            Self::WaitingToBeTaken { founder: None } => {
                f.write_str("waiting for the leader of a cluster")
            }
        }
    }
}
