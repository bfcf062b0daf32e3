//! Names of things. Each kind of number is a type of its own, so that none passes for another.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
            Deserialize,
        )]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number! {
    /// A node of the cluster; Kafka's broker id. Never negative.
    NodeId(i32)
}
number! {
    /// Which leadership of a partition wrote a batch; rises with each election. KIP-101.
    LeaderEpoch(i32)
}
number! {
    /// One life of a node, given by the controller at registration and rising for all time; Kafka's
    /// broker epoch. KIP-903.
    NodeEpoch(i64)
}
number! {
    /// Which version of a partition's assignment; rises with each change of it. Kafka's partition
    /// epoch. KIP-497.
    PartitionEpoch(i32)
}
number! {
    /// Which incarnation of a producer wrote a batch. Kafka's 16-bit producer epoch, KIP-98.
    ProducerEpoch(i16)
}
number! {
    /// An idempotent or transactional producer. Negative means: none.
    ProducerId(i64)
}
number! {
    /// The place of a record in its partition's log, counted in records from 0.
    Offset(i64)
}
number! {
    /// A request that waits for an outcome. Unique within one shard's life.
    RequestId(u64)
}
number! {
    /// A write to one log. Rises per log; a truncation is a write like any other.
    WriteId(u64)
}

number! {
    /// Which leadership of a partition of `__transaction_state` decided. Kafka's coordinator
    /// epoch, KIP-98; negative means: none.
    CoordinatorEpoch(i32)
}
number! {
    /// Permission to begin a transaction in a partition once its coordinator has confirmed it;
    /// never given twice in a life of a replica, and good for one batch. KIP-890.
    VerificationGuard(u64)
}

impl CoordinatorEpoch {
    pub const NONE: Self = Self(-1);
}

impl ProducerId {
    pub const NONE: Self = Self(-1);

    pub const fn is_some(self) -> bool {
        self.0 >= 0
    }
}

impl Offset {
    pub const ZERO: Self = Self(0);

    /// The offset `records` further on.
    #[must_use]
    pub const fn plus(self, records: i64) -> Self {
        Self(self.0 + records)
    }
}

impl WriteId {
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A topic's identity for all time: a name may be used again, an id never is. KIP-516.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    pub const NONE: Self = Self([0; 16]);
    /// The metadata log; Kafka reserves the same id.
    pub const METADATA: Self = Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(self.0, f)
    }
}

/// A data directory's identity, drawn when it is formatted: a node that lost its disk is told from
/// the node that it was. KIP-858.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct DirectoryId(pub [u8; 16]);

impl DirectoryId {
    /// Not known: a node of a build that did not tell.
    pub const NONE: Self = Self([0; 16]);
}

impl fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(self.0, f)
    }
}

fn write_uuid(bytes: [u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            f.write_str("-")?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

/// One partition of one topic.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct PartitionId {
    pub topic: TopicId,
    pub index: i32,
}

impl PartitionId {
    pub const METADATA: Self = Self { topic: TopicId::METADATA, index: 0 };
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.index)
    }
}
