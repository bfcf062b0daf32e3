//! What readers of many partitions have before them, asked of each leader at once. Quorate's nodes
//! tell time and bytes in tagged fields of ListOffsets; other brokers tell offsets only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::id::Offset;
use quorate_core::partition::interface::Isolation;
use quorate_core::time::Timestamp;

use super::fetch::level;
use super::metadata::{partition_named, refusal};
use super::route::Lane;
use super::{Client, Error, PartitionName};
use crate::kafka::error::Code;
use crate::kafka::messages as m;
use crate::kafka::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use crate::wire::Text;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// What a reader has before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Of the first record of a user that it has not read; `None` where there is none.
    pub first: Option<Timestamp>,
    /// From the batch that the reader is in to the end, on the leader's disk.
    pub bytes: u64,
}

/// A partition's log, as its readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionUnread {
    pub start: Offset,
    pub end: Offset,
    /// Of the readers that were asked about. Empty if the leader is no node of Quorate's.
    pub readers: BTreeMap<Offset, Unread>,
}

/// Partitions, and the offsets of their readers.
pub type Readers = BTreeMap<PartitionName, BTreeSet<Offset>>;

type Answers = BTreeMap<PartitionName, Result<m::list_offsets::ListOffsetsPartitionResponse, Code>>;

impl Client {
    /// Where the logs of `readers` begin and end, and what each reader has before it. One attempt;
    /// what went wrong stands with each partition.
    ///
    /// # Errors
    ///
    /// If no node tells who leads.
    pub async fn unread(
        &self,
        readers: &Readers,
        isolation: Isolation,
    ) -> Result<BTreeMap<PartitionName, Result<PartitionUnread, Error>>, Error> {
        let topics: BTreeSet<&str> = readers.keys().map(|name| name.topic.as_str()).collect();
        let topics: Vec<&str> = topics.into_iter().collect();
        let mut found = BTreeMap::new();
        if topics.is_empty() {
            return Ok(found);
        }
        let metadata = self.metadata(Some(&topics), false).await?;
        let mut by_leader: BTreeMap<String, Vec<&PartitionName>> = BTreeMap::new();
        for name in readers.keys() {
            let topic = metadata.topics.get(&name.topic).filter(|topic| topic.error.is_none());
            let place = usize::try_from(name.partition).ok();
            let known = place.and_then(|place| topic?.partitions.get(place));
            let leader = known
                .map(|partition| partition.leader.and_then(|leader| metadata.brokers.get(&leader)));
            let what = partition_named(&name.topic, name.partition);
            match leader {
                Some(Some(broker)) => {
                    by_leader.entry(broker.address.clone()).or_default().push(name);
                }
                Some(None) => {
                    let nobody = Error::refused(what, Code::LeaderNotAvailable, None);
                    found.insert(name.clone(), Err(nobody));
                }
                None => {
                    let absent = Error::refused(what, Code::UnknownTopicOrPartition, None);
                    found.insert(name.clone(), Err(absent));
                }
            }
        }
        for (address, names) in by_leader {
            self.unread_of_leader(&address, &names, (readers, isolation), &mut found).await;
        }
        Ok(found)
    }

    async fn unread_of_leader(
        &self,
        address: &str,
        names: &[&PartitionName],
        (readers, isolation): (&Readers, Isolation),
        found: &mut BTreeMap<PartitionName, Result<PartitionUnread, Error>>,
    ) {
        let nobody = Readers::new();
        let starts = self.ends_of(address, names, (EARLIEST, isolation), &nobody).await;
        let both = match starts {
            Ok(starts) => {
                let ends = self.ends_of(address, names, (LATEST, isolation), readers).await;
                ends.map(|ends| (starts, ends))
            }
            Err(error) => Err(error),
        };
        for &name in names {
            let row = both.as_ref().map_err(Error::clone).and_then(|(starts, ends)| {
                let what = || partition_named(&name.topic, name.partition);
                let of = |answers: &Answers| match answers.get(name) {
                    Some(Ok(row)) => Ok(row.clone()),
                    Some(Err(code)) => Err(Error::refused(what(), *code, None)),
                    None => Err(Error::Malformed {
                        address: address.to_owned(),
                        reason: format!("{} is missing", what()),
                    }),
                };
                let (start, end) = (of(starts)?, of(ends)?);
                let unread = end.unread.iter().map(|row| {
                    let first = (row.first >= 0).then_some(Timestamp(row.timestamp));
                    let bytes = u64::try_from(row.bytes).unwrap_or_default();
                    (Offset(row.from), Unread { first, bytes })
                });
                let (start, readers) = (Offset(start.offset), unread.collect());
                Ok(PartitionUnread { start, end: Offset(end.offset), readers })
            });
            found.insert(name.clone(), row);
        }
    }

    async fn ends_of(
        &self,
        address: &str,
        names: &[&PartitionName],
        (timestamp, isolation): (i64, Isolation),
        readers: &Readers,
    ) -> Result<Answers, Error> {
        let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for name in names {
            let offsets = readers.get(*name).into_iter().flatten();
            topics.entry(&name.topic).or_default().push(ListOffsetsPartition {
                partition_index: name.partition,
                timestamp,
                unread_from: offsets.map(|offset| offset.0).collect(),
                ..ListOffsetsPartition::default()
            });
        }
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| ListOffsetsTopic { name: Text::from(name), partitions });
        let request = m::ListOffsetsRequest {
            replica_id: -1,
            isolation_level: level(isolation),
            topics: topics.collect(),
            ..m::ListOffsetsRequest::default()
        };
        let routes = &self.inner.routes;
        let response = routes.call(address, Lane::Ask, &request, Duration::ZERO).await?;
        let rows = response.topics.into_iter().flat_map(|topic| {
            let name = topic.name.to_string();
            topic.partitions.into_iter().map(move |row| {
                let name = PartitionName { topic: name.clone(), partition: row.partition_index };
                let code = refusal(row.error_code);
                (name, code.map_or(Ok(row), Err))
            })
        });
        Ok(rows.collect())
    }
}
