//! What members of consumer groups did and were told, beside the other operations of a history.

use std::fmt;

use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;

use super::{History, Partition, client_name};
use crate::trace::{self, Mark};

/// Who a member says it is when it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The group's place in the plan.
    pub group: u32,
    pub client: u32,
    /// It speaks KIP-848, and `generation` is its epoch.
    pub by_epoch: bool,
    /// Empty where it has no id yet.
    pub member: String,
    /// Static members only.
    pub instance: Option<String>,
    /// Generation, or the member's epoch; -1 outside of any.
    pub generation: i32,
}

/// An offset as it is committed; `metadata` names the commit, where a member may say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupCall {
    /// Get into a generation; with KIP-848, the heartbeat with epoch 0.
    Join,
    /// What do I have? A classic SyncGroup, or a heartbeat of KIP-848.
    Assign {
        /// What each member is to have, by its id, from whoever leads a classic generation.
        shares: Vec<(String, Vec<Partition>)>,
    },
    Heartbeat,
    Leave,
    Commit {
        offsets: Vec<(Partition, Committed)>,
    },
    Fetch {
        partitions: Vec<Partition>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupEnd {
    /// No answer came, or one that says nothing of what was done.
    Unknown,
    /// Of the whole request, or of the first partition that was refused.
    Refused(Code),
    Joined {
        member: String,
        generation: i32,
    },
    /// All that the member is to have from now on in that generation.
    Assigned {
        generation: i32,
        partitions: Vec<Partition>,
    },
    /// Heard, left.
    Done,
    Committed,
    /// In the order of the question.
    Fetched {
        offsets: Vec<Option<Committed>>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOperation {
    pub who: Claim,
    pub invoked: Instant,
    /// `None` while it is pending, and for ever where no answer came.
    pub completed: Option<Instant>,
    pub call: GroupCall,
    pub end: GroupEnd,
}

/// A member was given all that its partition has from one offset up to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub group: u32,
    pub client: u32,
    pub partition: Partition,
    pub from: i64,
    pub next: i64,
}

/// What the groups of a run did.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// In the order of their beginnings.
    pub operations: Vec<GroupOperation>,
    pub deliveries: Vec<Delivery>,
}

/// An operation's place among those of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupOperationId(pub usize);

impl GroupCall {
    /// What do I have? Of one who gives nobody anything.
    pub const ASSIGN: Self = Self::Assign { shares: Vec::new() };
}

impl History {
    pub fn invoke_in_group(
        &mut self,
        who: Claim,
        now: Instant,
        call: GroupCall,
    ) -> GroupOperationId {
        let id = GroupOperationId(self.groups.operations.len());
        note(now, Mark::Invoke, &who, id, || format!("{who} {call}"));
        let end = GroupEnd::Unknown;
        self.groups.operations.push(GroupOperation {
            who,
            invoked: now,
            completed: None,
            call,
            end,
        });
        id
    }

    pub fn complete_in_group(&mut self, id: GroupOperationId, now: Instant, end: GroupEnd) {
        let operation = &mut self.groups.operations[id.0];
        assert!(operation.completed.is_none(), "{id:?} ends twice");
        note(now, Mark::Complete, &operation.who, id, || {
            format!("{} {} {end}", operation.who, operation.call)
        });
        operation.completed = Some(now);
        operation.end = end;
    }

    pub fn deliver(&mut self, now: Instant, delivery: Delivery) {
        let Delivery { group, client, partition, from, next } = delivery;
        let numbers = [u64::from(group), u64::from(partition.topic), u64::from(partition.index)];
        trace::event(now.as_duration(), Mark::Complete, client_name(client), numbers, || {
            format!("g{group} has {partition} from {from} to {next}")
        });
        self.groups.deliveries.push(delivery);
    }
}

fn note(
    now: Instant,
    mark: Mark,
    who: &Claim,
    id: GroupOperationId,
    text: impl FnOnce() -> String,
) {
    let numbers = [id.0 as u64, u64::from(who.group), who.generation as u64];
    trace::event(now.as_duration(), mark, client_name(who.client), numbers, text);
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, member, generation, .. } = self;
        write!(f, "g{group} {member:?}@{generation}")?;
        self.instance.as_ref().map_or(Ok(()), |instance| write!(f, " ({instance})"))
    }
}

impl fmt::Display for Committed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/e{} {:?}", self.offset, self.leader_epoch, self.metadata)
    }
}

/// The words of some items, separated by commas.
fn list<T>(items: &[T], word: impl Fn(&T) -> String) -> String {
    let words: Vec<String> = items.iter().map(word).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

impl fmt::Display for GroupCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join => f.write_str("joins"),
            Self::Assign { shares } if shares.is_empty() => f.write_str("asks for its part"),
            Self::Assign { shares } => {
                let word = |(member, share): &(String, Vec<Partition>)| {
                    format!("{} to {member:?}", list(share, Partition::to_string))
                };
                write!(f, "asks for its part, and gives {}", list(shares, word))
            }
            Self::Heartbeat => f.write_str("is alive"),
            Self::Leave => f.write_str("leaves"),
            Self::Commit { offsets } => {
                let word = |(partition, at): &(Partition, Committed)| format!("{partition}={at}");
                write!(f, "commits {}", list(offsets, word))
            }
            Self::Fetch { partitions } => {
                write!(f, "asks for offsets of {}", list(partitions, Partition::to_string))
            }
        }
    }
}

impl fmt::Display for GroupEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Refused(code) => write!(f, "refused: {code}"),
            Self::Joined { member, generation } => write!(f, "joined as {member} @{generation}"),
            Self::Assigned { generation, partitions } => {
                write!(f, "has {} @{generation}", list(partitions, Partition::to_string))
            }
            Self::Done => f.write_str("done"),
            Self::Committed => f.write_str("committed"),
            Self::Fetched { offsets } => {
                let word = |at: &Option<Committed>| {
                    at.as_ref().map_or_else(|| "none".to_owned(), Committed::to_string)
                };
                write!(f, "fetched {}", list(offsets, word))
            }
        }
    }
}
