//! A topic of the cluster, and what it may be called. Kafka's `Topic`.

use std::collections::BTreeMap;
use std::fmt;

use crate::id::TopicId;
use crate::partition::interface::Assignment;

/// Bytes of a topic's name.
pub const NAME_BYTES_MAX: usize = 249;

/// Where the metadata log would be if it were an ordinary topic.
pub const METADATA_TOPIC: &str = "__cluster_metadata";

/// Where groups keep their offsets.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Where coordinators of transactions keep what they decide.
pub const TRANSACTIONS_TOPIC: &str = "__transaction_state";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub id: TopicId,
    pub name: String,
    /// In the order of their indexes, from 0.
    pub partitions: Vec<Assignment>,
    /// What was configured, not what follows by default: see `metadata::config`.
    pub configs: BTreeMap<String, String>,
}

/// Whether the cluster keeps its own records there; such topics are not deleted.
pub fn is_internal(name: &str) -> bool {
    matches!(name, METADATA_TOPIC | OFFSETS_TOPIC | TRANSACTIONS_TOPIC)
}

/// Names are equal in metrics, where `.` and `_` are one, if these are equal.
pub fn folded(name: &str) -> String {
    name.replace('.', "_")
}

/// # Errors
///
/// Why no topic may have this name.
pub fn check_name(name: &str) -> Result<(), InvalidName> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match name {
        "" => Err(InvalidName::Empty),
        "." | ".." => Err(InvalidName::Dots),
        _ if name.len() > NAME_BYTES_MAX => Err(InvalidName::Long { bytes: name.len() }),
        _ if !name.bytes().all(legal) => Err(InvalidName::Characters),
        _ => Ok(()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidName {
    Empty,
    Dots,
    Long { bytes: usize },
    Characters,
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a topic's name is not empty"),
            Self::Dots => f.write_str("a topic is not called '.' or '..'"),
            Self::Long { bytes } => write!(
                f,
                "a topic's name has at most {NAME_BYTES_MAX} characters; this one has {bytes}"
            ),
            Self::Characters => f.write_str(
                "a topic's name has only ASCII letters and digits, '.', '_' and '-' in it",
            ),
        }
    }
}

impl std::error::Error for InvalidName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_held_to_kafkas_rules() {
        let longest = "x".repeat(NAME_BYTES_MAX);
        for name in ["a", "A.b_c-9", "...", OFFSETS_TOPIC, TRANSACTIONS_TOPIC, &longest] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        assert_eq!(check_name(""), Err(InvalidName::Empty));
        assert_eq!(check_name(".."), Err(InvalidName::Dots));
        assert_eq!(check_name(&format!("{longest}x")), Err(InvalidName::Long { bytes: 250 }));
        for name in ["a b", "ä", "a/b", "a\0", "a:b", "*"] {
            assert_eq!(check_name(name), Err(InvalidName::Characters), "{name}");
        }
        assert_eq!(folded("a.b_c"), folded("a_b.c"));
    }
}
