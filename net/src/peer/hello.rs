//! The greeting: who dials, whom it means to reach, and whether the other side lets it in. A node
//! with another cluster's data, a second node with the same id, and the ghost of an earlier start
//! are told so in a sentence for the operator.

use std::fmt;

use bytes::Bytes;
use quorate_core::codec::{self, CodecError};
use quorate_core::id::NodeId;
use serde::{Deserialize, Serialize};

use super::Channel;

/// What a greeting begins with, so that a stray client is recognised.
pub const MAGIC: [u8; 8] = *b"QUORATE\0";

/// The longest `host:port`: names have 253 bytes at most.
pub const ADDRESS_BYTES_MAX: usize = 260;

/// A greeting's or an answer's frame is never longer.
pub const BYTES_MAX: usize = 4096;

/// The version of what follows the greeting. Each side names the range that it speaks.
pub const PROTOCOL: u16 = 1;

const VERSION: u8 = 1;

/// What the dialling node says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    magic: [u8; 8],
    /// The oldest and the newest protocol it speaks.
    pub protocols: (u16, u16),
    /// `None` before its data directory belongs to one.
    pub cluster: Option<[u8; 16]>,
    pub node: NodeId,
    /// Stamped into its data directory: a wiped node comes back with another.
    pub directory: [u8; 16],
    /// Which start of the node: rises with each start from one data directory.
    pub start: u64,
    /// `host:port` where it listens for peers: answers come on connections that are dialled there.
    pub address: String,
    /// Whom it means to reach.
    pub to: NodeId,
    pub channel: Channel,
}

impl Hello {
    /// A greeting of this build.
    #[must_use]
    pub fn new(me: &Me, to: NodeId, channel: Channel) -> Self {
        Self {
            magic: MAGIC,
            protocols: (PROTOCOL, PROTOCOL),
            cluster: me.cluster,
            node: me.node,
            directory: me.directory,
            start: me.start,
            address: me.address.clone(),
            to,
            channel,
        }
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(VERSION, self)
    }

    /// # Errors
    ///
    /// If this is not a node's greeting, or one of a later format.
    pub fn decode(head: &Bytes) -> Result<Self, GreetingError> {
        let (_, body) = codec::version(head, VERSION).map_err(GreetingError)?;
        let hello: Self = codec::decode(body).map_err(GreetingError)?;
        let reason = if hello.magic != MAGIC {
            "it does not begin as the greeting of a node"
        } else if hello.address.len() > ADDRESS_BYTES_MAX {
            "the address in it is too long"
        } else {
            return Ok(hello);
        };
        Err(GreetingError(CodecError::Malformed { reason: reason.to_owned() }))
    }
}

/// The bytes are no greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GreetingError(CodecError);

impl fmt::Display for GreetingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no greeting of a node: {}", self.0)
    }
}

impl std::error::Error for GreetingError {}

/// Who a node is, towards its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    /// `None` before this node has joined one, or founded it.
    pub cluster: Option<[u8; 16]>,
    pub node: NodeId,
    pub directory: [u8; 16],
    pub start: u64,
    /// `host:port` where it listens for peers.
    pub address: String,
}

/// What is known of a node already: from the cluster's metadata, or from an earlier greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub directory: [u8; 16],
    pub start: u64,
}

/// The answer to a greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The protocol that both speak, from now on.
    Welcome {
        protocol: u16,
    },
    Refused(Refusal),
}

impl Answer {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(VERSION, self)
    }

    /// # Errors
    ///
    /// If this is not the answer to a greeting, or one of a later format.
    pub fn decode(head: &Bytes) -> Result<Self, GreetingError> {
        let (_, body) = codec::version(head, VERSION).map_err(GreetingError)?;
        codec::decode(body).map_err(GreetingError)
    }
}

/// Why a node is not let in. Both sides print it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The data on its disk is another cluster's.
    OtherCluster { mine: [u8; 16], yours: [u8; 16] },
    /// The address leads to another node than was meant.
    NotMe { me: NodeId, meant: NodeId },
    /// It has the id of the node that it dials.
    MyOwnId { node: NodeId },
    /// A node with its id is known by another data directory.
    OtherDirectory { node: NodeId },
    /// The same node has started again since.
    OlderStart { node: NodeId, start: u64, newest: u64 },
    /// No protocol that both speak.
    Protocol { mine: (u16, u16), yours: (u16, u16) },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherCluster { mine, yours } => write!(
                f,
                "this is cluster {}, and the data directory of the node that dials belongs to \
                 cluster {}: look at its peers' addresses, or at which directory it was started on",
                Hex(mine),
                Hex(yours)
            ),
            Self::NotMe { me, meant } => write!(
                f,
                "node {meant} was dialled and node {me} answers: two nodes' addresses are swapped \
                 in the configuration"
            ),
            Self::MyOwnId { node } => write!(
                f,
                "the node that dials calls itself node {node}, and so does this one: give each \
                 node an id of its own"
            ),
            Self::OtherDirectory { node } => write!(
                f,
                "node {node} is known by another data directory and is there: a second node has \
                 its id, or its disk was replaced; then it is let in once the other is silent"
            ),
            Self::OlderStart { node, start, newest } => write!(
                f,
                "node {node} has started again since (start {newest}; this one is {start}): two \
                 processes share its data directory, or this message is late"
            ),
            Self::Protocol { mine, yours } => write!(
                f,
                "the node that dials speaks protocols {} to {}, this one {} to {}: upgrade one \
                 release at a time",
                yours.0, yours.1, mine.0, mine.1
            ),
        }
    }
}

impl std::error::Error for Refusal {}

struct Hex<'a>(&'a [u8; 16]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Whether `hello` is let in by `me`, who knows `known` of the node that it names. The protocol
/// that both speak.
///
/// # Errors
///
/// Why not.
pub fn judge(me: &Me, hello: &Hello, known: Option<&Known>) -> Result<u16, Refusal> {
    if let (Some(mine), Some(yours)) = (me.cluster, hello.cluster)
        && mine != yours
    {
        return Err(Refusal::OtherCluster { mine, yours });
    }
    if hello.node == me.node {
        return Err(Refusal::MyOwnId { node: me.node });
    }
    if hello.to != me.node {
        return Err(Refusal::NotMe { me: me.node, meant: hello.to });
    }
    if let Some(known) = known {
        if known.directory != hello.directory {
            return Err(Refusal::OtherDirectory { node: hello.node });
        }
        if known.start > hello.start {
            let (node, start, newest) = (hello.node, hello.start, known.start);
            return Err(Refusal::OlderStart { node, start, newest });
        }
    }
    let (mine, yours) = ((PROTOCOL, PROTOCOL), hello.protocols);
    let newest = mine.1.min(yours.1);
    if newest < mine.0 || newest < yours.0 {
        return Err(Refusal::Protocol { mine, yours });
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    static ME: Me = Me {
        cluster: Some([1; 16]),
        node: NodeId(1),
        directory: [11; 16],
        start: 4,
        address: String::new(),
    };
    static OTHER: Me = Me {
        cluster: Some([1; 16]),
        node: NodeId(2),
        directory: [22; 16],
        start: 9,
        address: String::new(),
    };

    fn hello() -> Hello {
        Hello::new(&OTHER, ME.node, Channel::Control)
    }

    #[test]
    fn who_is_not_meant_is_told_why() {
        assert_eq!(judge(&ME, &hello(), None), Ok(PROTOCOL));
        let new = Hello { cluster: None, ..hello() };
        assert_eq!(judge(&ME, &new, None), Ok(PROTOCOL), "it has no cluster yet");
        let known = Known { directory: [22; 16], start: 9 };
        assert_eq!(judge(&ME, &hello(), Some(&known)), Ok(PROTOCOL), "the same start dials twice");
        let refused = |hello: Hello, known: Known| judge(&ME, &hello, Some(&known)).unwrap_err();
        let changed = |change: fn(&mut Hello)| {
            let mut hello = hello();
            change(&mut hello);
            refused(hello, known)
        };
        let words = [
            (changed(|hello| hello.cluster = Some([2; 16])), "cluster 0202"),
            (changed(|hello| hello.node = NodeId(1)), "calls itself node 1"),
            (changed(|hello| hello.to = NodeId(3)), "node 3 was dialled and node 1 answers"),
            (changed(|hello| hello.directory = [0; 16]), "another data directory"),
            (changed(|hello| hello.start = 8), "start 9; this one is 8"),
            (changed(|hello| hello.protocols = (2, 3)), "protocols 2 to 3, this one 1 to 1"),
        ];
        for (refusal, words) in words {
            assert!(refusal.to_string().contains(words), "{refusal} does not say {words}");
        }
    }

    #[test]
    fn a_greeting_survives_and_a_stray_does_not() {
        let bytes = Bytes::from(hello().encode());
        assert_eq!(Hello::decode(&bytes), Ok(hello()));
        assert!(bytes.len() < BYTES_MAX);
        for cut in 0..bytes.len() {
            assert!(Hello::decode(&bytes.slice(..cut)).is_err(), "{cut}");
        }
        let mut stray = bytes.to_vec();
        stray[1] ^= 1;
        assert!(Hello::decode(&stray.into()).is_err());
        let refusal = judge(&ME, &Hello { cluster: Some([2; 16]), ..hello() }, None).unwrap_err();
        let mut long = hello();
        long.address = "x".repeat(ADDRESS_BYTES_MAX);
        assert_eq!(Hello::decode(&long.encode().into()), Ok(long.clone()));
        long.address.push('x');
        let error = Hello::decode(&long.encode().into()).unwrap_err();
        assert!(error.to_string().contains("too long"));
        for answer in [Answer::Welcome { protocol: 1 }, Answer::Refused(refusal)] {
            let bytes = Bytes::from(answer.encode());
            assert_eq!(Answer::decode(&bytes), Ok(answer));
        }
    }
}
