//! A group as a human looks at it: its members, its offsets, and the logs that it reads, brought
//! together.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::group::lag::{self, Lag};
use quorate_core::id::Offset;
use quorate_core::partition::interface::Isolation;
use quorate_core::time::Timestamp;
use quorate_net::client::{
    Client, Error, GroupDescription, GroupMember, GroupOffset, PartitionName, PartitionUnread,
    Readers,
};

use crate::failure::Failure;

/// A group and its partitions.
pub(super) struct Picture {
    pub(super) description: GroupDescription,
    pub(super) partitions: BTreeMap<PartitionName, Place>,
}

/// What is known of a group in one partition.
pub(super) struct Place {
    /// `None`: it has never committed.
    pub(super) committed: Option<GroupOffset>,
    /// Which of the members has it.
    pub(super) owner: Option<usize>,
    pub(super) log: Result<PartitionUnread, Error>,
}

impl Picture {
    pub(super) async fn of(client: &Client, group: &str) -> Result<Self, Error> {
        let description = client.describe_group(group).await?;
        let mut offsets = client.group_offsets(group).await?;
        let mut owners: BTreeMap<PartitionName, usize> = BTreeMap::new();
        for (at, member) in description.members.iter().enumerate() {
            for (topic, partitions) in &member.assigned {
                for &partition in partitions {
                    owners.insert(PartitionName { topic: topic.clone(), partition }, at);
                }
            }
        }
        let names: BTreeSet<_> = owners.keys().chain(offsets.keys()).cloned().collect();
        let readers: Readers = names
            .into_iter()
            .map(|name| {
                let reader = offsets.get(&name).map(|committed| committed.offset);
                (name, reader.into_iter().collect())
            })
            .collect();
        let logs = client.unread(&readers, Isolation::ReadUncommitted).await?;
        let places = logs.into_iter().map(|(name, log)| {
            let (committed, owner) = (offsets.remove(&name), owners.get(&name).copied());
            (name, Place { committed, owner, log })
        });
        Ok(Self { partitions: places.collect(), description })
    }

    pub(super) fn exists(&self) -> bool {
        self.description.exists() || self.partitions.values().any(|it| it.committed.is_some())
    }

    pub(super) fn member(&self, place: &Place) -> Option<&GroupMember> {
        self.description.members.get(place.owner?)
    }

    /// The lag of all partitions together: the sums, and the greatest age. What is not known of a
    /// partition leaves the whole unknown, but for the age.
    pub(super) fn total(&self, now: Timestamp) -> Lag {
        let lags = self.partitions.values().filter_map(|place| place.lag(now));
        lags.fold(Lag::NONE, |total, lag| Lag {
            records: total.records + lag.records,
            bytes: total.bytes.zip(lag.bytes).map(|(a, b)| a + b),
            age: total.age.max(lag.age),
        })
    }

    /// What is to be moved from outside is refused while members would move it back.
    pub(super) fn without_members(&self, then: &str) -> Result<(), Failure> {
        let members = &self.description.members;
        let Some(first) = members.first() else { return Ok(()) };
        let more = match members.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        let (group, state) = (&self.description.group, &self.description.state);
        let failure = Failure::new(format!(
            "group {group} is {state}: it has members ({}{more})",
            named(first)
        ));
        Err(failure.hint(format!("once they have left, or their sessions are over, {then}")))
    }
}

impl Place {
    /// `None` where the group has no offset, or the log is not known.
    pub(super) fn lag(&self, now: Timestamp) -> Option<Lag> {
        let (committed, log) = (self.committed.as_ref()?, self.log.as_ref().ok()?);
        let reader = log.readers.get(&committed.offset);
        let unread = reader.map(|it| lag::Unread { first: it.first, bytes: it.bytes });
        Some(lag::lag(committed.offset, (log.start, log.end), unread, now))
    }

    pub(super) fn end(&self) -> Option<Offset> {
        self.log.as_ref().ok().map(|log| log.end)
    }
}

/// A member in a sentence.
pub(super) fn named(member: &GroupMember) -> String {
    let who = match (&member.instance, member.client_id.as_str()) {
        (Some(instance), _) => instance,
        (None, "") => &member.id,
        (None, client) => client,
    };
    format!("{who} at {}", member.host.trim_start_matches('/'))
}
