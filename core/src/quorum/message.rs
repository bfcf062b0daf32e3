//! What nodes of a quorum send to one another, and how it looks as bytes.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::configuration::Configuration;
use super::identity::{ClusterId, DirectoryId, Index, Member, Position, Term};
use super::log::Entry;
use crate::codec::{self, CodecError};
use crate::id::NodeId;

const VERSION: u8 = 1;

/// A message may be lost, late, doubled or overtaken; nobody is harmed by that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The sender's cluster; `None` before it has one. Only `Ask` and `Answer` cross clusters.
    pub cluster: Option<ClusterId>,
    pub from: Member,
    /// Whose disk is spoken to: a node whose disk was wiped is not who is meant. `None` in an
    /// `Ask`, which is for whoever is there.
    pub to: Option<DirectoryId>,
    /// The sender's term, durable on its disk.
    pub term: Term,
    pub body: Body,
}

/// New kinds go to the end: the place is the kind's number in the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// Is there a cluster? From a node that has none, or hears no leader and has no vote.
    Ask {
        /// The voters that the sender's own configuration file names.
        voters: BTreeSet<NodeId>,
    },
    /// The sender's cluster stands in the message; `None` there is its word that it has none.
    Answer {
        voters: BTreeSet<NodeId>,
    },
    /// Would you vote for me in `term`? Changes nothing on either side.
    PreVote {
        term: Term,
        last: Position,
    },
    PreVoteReply {
        /// The term that was asked about.
        term: Term,
        granted: bool,
    },
    Vote {
        last: Position,
        /// The leader itself asked for this election: a live leader is no reason to refuse.
        transfer: bool,
    },
    VoteReply {
        granted: bool,
    },
    Append {
        /// The entry before the first of `entries`.
        previous: Position,
        entries: Vec<Entry>,
        committed: Index,
        /// Rises with the leader's questions whether it still leads.
        round: u64,
    },
    /// Up to `through` the sender's disk holds the leader's log.
    Appended {
        through: Index,
        round: u64,
    },
    /// The sender has no such `previous`; its log may agree up to `hint`.
    Mismatch {
        previous: Position,
        hint: Position,
        round: u64,
    },
    Heartbeat {
        /// At most what the receiver has confirmed.
        committed: Index,
        round: u64,
    },
    HeartbeatReply {
        round: u64,
        /// Durable and equal to the leader's log.
        through: Index,
        /// Equal to the leader's log, durable or not yet.
        received: Index,
    },
    /// A piece of a snapshot.
    Chunk {
        position: Position,
        configuration: Configuration,
        bytes_total: u64,
        offset: u64,
        #[serde(with = "super::opaque")]
        data: Bytes,
        round: u64,
    },
    /// So many bytes of the snapshot at `position` have come; the next is wanted. The last
    /// answer is `Appended`.
    ChunkReply {
        position: Position,
        received: u64,
        round: u64,
    },
    /// Stand for election at once: I lead until you do.
    TimeoutNow,
    /// The message came from a term that is over; mine is in the envelope.
    Outdated,
    /// Beside the answer to an `Ask`, by one who follows: this one leads, and listens for other
    /// nodes at this `host:port`; empty where that is not known.
    Leads {
        leader: Member,
        address: String,
    },
    /// Instead of an `Answer`, by one that has a cluster and holds nothing of its log: it was asked
    /// for its vote, and nothing came of it yet.
    Bare {
        voters: BTreeSet<NodeId>,
    },
    /// From the founder, whose disk is new, to one that holds nothing: be of `cluster`, if you are
    /// of `instead_of`. Nothing of that one will ever be committed.
    Take {
        instead_of: Option<ClusterId>,
        cluster: ClusterId,
    },
}

impl Message {
    /// A version, then the message.
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(VERSION, self)
    }

    /// # Errors
    ///
    /// If the bytes are not a message that this build knows.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        codec::decode(codec::version(bytes, VERSION)?.1)
    }

    /// Whether a correct node can have sent this: the machine believes nothing else.
    pub fn is_sound(&self) -> bool {
        match &self.body {
            Body::Append { previous, entries, .. } => {
                let mut before = *previous;
                let follow = entries.iter().all(|entry| {
                    let after = before;
                    before = entry.position();
                    entry.index == after.index.next()
                        && entry.term >= after.term
                        && entry.term <= self.term
                });
                follow && previous.term <= self.term
            }
            Body::Chunk { position, bytes_total, offset, data, .. } => {
                let end = offset.checked_add(data.len() as u64);
                position.index > Index::ZERO
                    && position.term <= self.term
                    && end.is_some_and(|end| end <= *bytes_total)
            }
            _ => true,
        }
    }
}
