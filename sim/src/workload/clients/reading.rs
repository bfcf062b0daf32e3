//! Reading over a network: readers that follow all partitions, and the last reading of everything.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::batch::split;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use quorate_net::kafka::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use quorate_net::kafka::messages::{FetchRequest, ListOffsetsRequest};

use super::super::client::{Link, within};
use super::super::values;
use super::health::connect_to_leader;
use super::{Scene, topic_name};
use crate::chance::{Between, Chance};
use crate::history::{Call, Complaint, End, OperationId, Partition};
use crate::plan::Codecs;

/// Kafka's names for the start of a log, and for what is committed.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

/// How often the last reading meets a storage error before it takes a partition for lost; only
/// where bytes have rotted.
const ATTEMPTS_AT_ROT: u32 = 20;

/// What the last reading asks for at least, per fetch.
const LAST_READ_BYTES_MIN: u32 = 64 << 10;

/// Follows all partitions from their beginning until the run is over.
pub async fn read(scene: Scene, client: u32) {
    let mut chance = Chance::new(scene.plan.seed, &format!("reader {client}"));
    // Zstandard is younger than some versions of the request.
    let first = match scene.plan.workload.codec {
        Codecs::Zstd | Codecs::Mixed => 10,
        // Version 4 does not tell where the log starts.
        _ => 5,
    };
    let version = chance.between(Between { low: first, high: 12 }) as i16;
    let mut positions: BTreeMap<Partition, i64> =
        scene.partitions().into_iter().map(|partition| (partition, 0)).collect();
    let mut link = None;
    while !scene.stage.is_over() {
        let pause = Duration::from_micros(500 + chance.below(20_000));
        scene.clock.sleep(pause.max(scene.leisure())).await;
        if link.is_none() {
            link = scene.connect(client).await;
        }
        let Some(open) = &mut link else { continue };
        let bytes_max = scene.plan.workload.read_bytes;
        match fetch(&scene, open, client, version, bytes_max, &positions).await {
            Err(_) => link = None,
            Ok(answers) => {
                for (partition, answer) in answers {
                    match answer {
                        Fetched::Read { next, .. } => drop(positions.insert(partition, next)),
                        Fetched::OutOfRange => {
                            if let Ok(start) = place(&scene, open, partition, EARLIEST).await {
                                positions.insert(partition, start);
                            } else {
                                link = None;
                                break;
                            }
                        }
                        Fetched::Failed(_) => {}
                    }
                }
            }
        }
    }
}

/// What a fetch of one partition came to.
enum Fetched {
    /// And the leader epoch of the first batch, if there is one.
    Read {
        next: i64,
        epoch: Option<i32>,
    },
    OutOfRange,
    Failed(i16),
}

async fn fetch(
    scene: &Scene,
    link: &mut Link,
    client: u32,
    version: i16,
    partition_bytes_max: u32,
    positions: &BTreeMap<Partition, i64>,
) -> io::Result<Vec<(Partition, Fetched)>> {
    let mut operations: BTreeMap<Partition, (OperationId, i64)> = BTreeMap::new();
    let mut topics: BTreeMap<u32, FetchTopic> = BTreeMap::new();
    for (partition, from) in positions {
        let call = Call::Read { partition: *partition, from: *from };
        let operation = scene.history().invoke(client, scene.now().monotonic, call);
        operations.insert(*partition, (operation, *from));
        let topic = topics
            .entry(partition.topic)
            .or_insert_with(|| FetchTopic { topic: topic_name(*partition), ..Default::default() });
        topic.partitions.push(FetchPartition {
            partition: partition.index as i32,
            fetch_offset: *from,
            partition_max_bytes: partition_bytes_max as i32,
            ..Default::default()
        });
    }
    let request = FetchRequest {
        max_wait_ms: scene.plan.workload.wait.as_millis() as i32,
        min_bytes: 1,
        topics: topics.into_values().collect(),
        ..Default::default()
    };
    let most = scene.timeout() + scene.plan.workload.wait;
    let response = within(&*scene.clock, most, link.call(version, &request)).await?;
    let now = scene.now().monotonic;
    let mut answers = Vec::new();
    for topic in response.responses {
        let index = topic.topic.as_str().trim_start_matches('t').parse();
        let index = index.map_err(|_| io::Error::other("a topic that nobody asked for"))?;
        for found in topic.partitions {
            let partition = Partition { topic: index, index: found.partition_index as u32 };
            let (operation, from) = operations
                .remove(&partition)
                .ok_or_else(|| io::Error::other("a partition that nobody asked for"))?;
            let (end, answer) = judge(found, from);
            if let Fetched::Failed(code) = answer {
                complain_of_rot(scene, partition, code, &format!("operation {}", operation.0));
            }
            scene.history().complete(operation, now, end);
            answers.push((partition, answer));
        }
    }
    Ok(answers)
}

/// A reader is told of a storage error only where the disk has changed or lost what it had.
pub(super) fn complain_of_rot(scene: &Scene, partition: Partition, code: i16, who: &str) {
    if code == Code::KafkaStorageError.code() {
        let name = Code::KafkaStorageError.name();
        let sentence = format!("{who} was told {name}, and the disk had failed in nothing");
        scene.history().complaints.push(Complaint { property: "rot", partition, sentence });
    }
}

fn judge(found: PartitionData, from: i64) -> (End, Fetched) {
    if found.error_code == Code::OffsetOutOfRange.code() {
        return (End::Failed, Fetched::OutOfRange);
    }
    if found.error_code != 0 {
        return (End::Failed, Fetched::Failed(found.error_code));
    }
    let bytes = found.records.map_or_else(Bytes::new, |records| records.into_bytes());
    let mut records = Vec::new();
    let (mut next, mut epoch) = (from, None);
    for batch in split(bytes) {
        match batch {
            Ok(batch) => {
                epoch = epoch.or_else(|| Some(batch.header().leader_epoch().0));
                next = batch.header().next_offset().0;
                values::records(&batch, from, &mut records);
            }
            Err(_) => {
                records.push(crate::history::Seen { offset: next, value: None, timestamp: 0 });
                break;
            }
        }
    }
    let (high_watermark, log_start) = (found.high_watermark, found.log_start_offset.max(0));
    (End::Read { records, high_watermark, log_start }, Fetched::Read { next, epoch })
}

async fn place(
    scene: &Scene,
    link: &mut Link,
    partition: Partition,
    timestamp: i64,
) -> io::Result<i64> {
    Ok(offset_at(scene, link, partition, timestamp).await?.0)
}

/// The offset that `timestamp` names, and the leader epoch that is told with it.
async fn offset_at(
    scene: &Scene,
    link: &mut Link,
    partition: Partition,
    timestamp: i64,
) -> io::Result<(i64, i32)> {
    let wanted = ListOffsetsPartition {
        partition_index: partition.index as i32,
        timestamp,
        ..Default::default()
    };
    let topic = ListOffsetsTopic { name: topic_name(partition), partitions: vec![wanted] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
    let timeout = scene.timeout();
    let response = within(&*scene.clock, timeout, link.call(5, &request)).await?;
    let found = response.topics.first().and_then(|topic| topic.partitions.first());
    match found {
        Some(found) if found.error_code == 0 => Ok((found.offset, found.leader_epoch)),
        Some(found) => {
            complain_of_rot(scene, partition, found.error_code, "whoever asked for the start");
            Err(io::Error::other(format!("error {}", found.error_code)))
        }
        None => Err(io::Error::other("an empty response")),
    }
}

/// Reads every partition from its start to its end, for the last time. However long that takes, it
/// is no failure while the reading gets on: it notes its progress.
pub async fn read_everything(scene: &Scene, client: u32, rot: bool) {
    let mut link = None;
    for partition in scene.partitions() {
        if scene.addresses.len() > 1 {
            link = None;
        }
        let mut position = None;
        let mut committed = None;
        let mut furthest = None;
        let mut at_rot = 0;
        loop {
            if link.is_none() {
                link = connect_to_leader(scene, client, partition).await;
            }
            if let Some(open) = &mut link {
                let places = (&mut position, &mut committed);
                match step(scene, open, client, partition, places).await {
                    Ok(true) => break,
                    Ok(false) => {
                        if position > furthest {
                            furthest = position;
                            let at = position.unwrap_or_default();
                            scene.stage.note(client, format!("reads {partition} at {at}"));
                            scene.stage.advance();
                        }
                        continue;
                    }
                    Err(error) => {
                        scene.stage.note(client, format!("cannot read {partition}: {error}"));
                        at_rot += 1;
                        link = None;
                    }
                }
            }
            if rot && at_rot > ATTEMPTS_AT_ROT {
                break;
            }
            scene.clock.sleep(Duration::from_millis(20)).await;
        }
    }
    scene.stage.done(client);
}

/// One step of the last reading; `true` at the end of the log.
async fn step(
    scene: &Scene,
    link: &mut Link,
    client: u32,
    partition: Partition,
    (position, committed): (&mut Option<i64>, &mut Option<i64>),
) -> io::Result<bool> {
    // A new leader tells fetchers less than it has, and whoever asks to wait.
    let least = match *committed {
        None if scene.addresses.len() > 1 => {
            let call = Call::Latest { partition };
            let operation = scene.history().invoke(client, scene.now().monotonic, call);
            let (at, leader_epoch) = offset_at(scene, link, partition, LATEST).await?;
            let now = scene.now().monotonic;
            scene.history().complete(operation, now, End::Ends { at, leader_epoch });
            *committed.insert(at)
        }
        known => known.unwrap_or_default(),
    };
    let (from, told) = match *position {
        Some(from) => (from, None),
        None => {
            let (start, epoch) = offset_at(scene, link, partition, EARLIEST).await?;
            (*position.insert(start), Some(epoch))
        }
    };
    let wanted = BTreeMap::from([(partition, from)]);
    let operations = scene.history().operations.len();
    // In pieces as small as the readers', a long log would take its time for nothing.
    let bytes_max = scene.plan.workload.read_bytes.max(LAST_READ_BYTES_MIN);
    let answers = fetch(scene, link, client, 11, bytes_max, &wanted).await?;
    match answers.first() {
        Some((_, Fetched::Read { next, epoch })) => {
            *position = Some(*next);
            if let (Some(told), Some(found)) = (told, epoch)
                && told != *found
            {
                let sentence = format!("leader epoch {told} is told of {from}, which has {found}");
                let complaint = Complaint { property: "start-epoch", partition, sentence };
                scene.history().complaints.push(complaint);
            }
            let end = match scene.history().operations[operations].end {
                End::Read { high_watermark, .. } => high_watermark.max(least),
                _ => *next,
            };
            if *next < end && *next == from {
                return Err(io::Error::other(format!("nothing comes at {from}, below {end}")));
            }
            Ok(*next >= end)
        }
        Some((_, Fetched::Failed(code))) => Err(io::Error::other(format!("error {code}"))),
        Some((_, Fetched::OutOfRange)) => {
            *position = None;
            Err(io::Error::other("the offset is out of range"))
        }
        None => Err(io::Error::other("an empty response")),
    }
}
