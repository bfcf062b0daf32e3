//! What clients that commit offsets and read them back did and were told, beside the other
//! operations of a history. Each has a group and a topic of its own, and does one thing at a time.

use std::fmt;

use quorate_core::time::Instant;

use super::{History, client_name};
use crate::trace::{self, Mark};

/// The number of a commit, which no other of its client has: it is the offset that is committed,
/// and stands in its metadata behind the topic.
pub type Number = i64;

/// A commit as it was read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which of the topics that had the name it was committed for, from 0 on.
    pub topic: u32,
    pub number: Number,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Accepted,
    /// It was not done, and never will be.
    Refused,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// From here on, another topic has the name: the next one by number.
    TopicBegins,
    Commit {
        partition: u32,
        number: Number,
        /// It named the topic; else it said the topic's id. A node that has not heard of the newest
        /// topic takes the name for that of the one before.
        by_name: bool,
        fate: Fate,
    },
    /// `None`: no offset, or none that any commit had.
    Read { partition: u32, found: Option<Found> },
    /// Bytes were read that no commit had.
    Garbled { partition: u32, what: String },
    /// As a member of its group it was heard.
    Heard {
        /// What it said was written down before it was answered, as no deposed coordinator can: a
        /// commit, or the assignment of its generation. A heartbeat is answered from memory.
        is_stored: bool,
    },
    /// It gives its membership up, or what it was told does not say for how long it was a member.
    Leaves,
    /// It was told that it is no member.
    Expelled,
    /// A join that came without an id was given one.
    Given { member: String },
}

/// An event of one client, which began and ended then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub client: u32,
    pub invoked: Instant,
    pub completed: Instant,
    pub event: Event,
}

impl History {
    pub fn tell_of_offsets(
        &mut self,
        client: u32,
        (invoked, now): (Instant, Instant),
        event: Event,
    ) {
        let numbers = [self.offsets.len() as u64, 0, 0];
        trace::event(now.as_duration(), Mark::Complete, client_name(client), numbers, || {
            event.to_string()
        });
        self.offsets.push(Told { client, invoked, completed: now, event });
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TopicBegins => f.write_str("its topic is new"),
            Self::Commit { partition, number, by_name, fate } => {
                let how = if *by_name { "by name" } else { "by id" };
                write!(f, "commits {number} in {partition} {how}: {fate:?}")
            }
            Self::Read { partition, found: Some(Found { topic, number }) } => {
                write!(f, "reads {number} of topic {topic} in {partition}")
            }
            Self::Read { partition, found: None } => write!(f, "reads no offset in {partition}"),
            Self::Garbled { partition, what } => write!(f, "reads {what} in {partition}"),
            Self::Heard { .. } => f.write_str("is heard as a member"),
            Self::Leaves => f.write_str("is no member any more"),
            Self::Expelled => f.write_str("is told that it is no member"),
            Self::Given { member } => write!(f, "is given the id {member}"),
        }
    }
}
