//! What the nodes' disks hold at the end, compared: replicas of one log are one log, and what was
//! cut off stands in the orphan files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::batch::checksum::checksum;
use quorate_core::id::{LeaderEpoch, Offset, PartitionId};
use quorate_core::segment::cleaned::{CLEANED_FILE, Cleaned};
use quorate_core::segment::frame::Frame;
use quorate_core::segment::orphan::{HEAD_BYTES, OrphanName};
use quorate_core::segment::{FileKind, parse_directory_name, parse_segment_file_name};

use super::member::Member;
use crate::check::Violation;

/// Batches by offset: where each ends, its leader epoch, and a checksum.
type Batches = BTreeMap<Offset, (Offset, LeaderEpoch, u32)>;

/// Logs that differ between nodes, and cuts that no orphan file tells of.
pub fn logs(members: &[Arc<Member>]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut seen: BTreeMap<PartitionId, (&'static str, Batches)> = BTreeMap::new();
    for member in members {
        for (partition, batches) in logs_of(member) {
            if let Some((other, there)) = seen.get(&partition) {
                violations.extend(difference(partition, (member.name, &batches), (other, there)));
            } else {
                seen.insert(partition, (member.name, batches));
            }
        }
        violations.extend(missing_orphans(member));
    }
    violations
}

/// Replicas that do not end where the others do: a sentence each.
pub fn lagging(members: &[Arc<Member>]) -> Vec<String> {
    let mut ends: BTreeMap<PartitionId, BTreeMap<&'static str, Offset>> = BTreeMap::new();
    for member in members {
        for (partition, batches) in logs_of(member) {
            let end = batches.last_key_value().map_or(Offset::ZERO, |(_, (end, ..))| *end);
            ends.entry(partition).or_default().insert(member.name, end);
        }
    }
    let differ = |ends: &BTreeMap<&str, Offset>| ends.values().collect::<BTreeSet<_>>().len() > 1;
    let lagging = ends.iter().filter(|(_, ends)| differ(ends));
    lagging
        .map(|(partition, ends)| format!("the replicas of {partition} end at {ends:?}"))
        .collect()
}

/// Nodes that were let go and still have logs: a sentence each.
pub fn kept(members: &[Arc<Member>], left: &BTreeSet<u32>) -> Vec<String> {
    let left = (1..).zip(members).filter(|(number, _)| left.contains(number));
    let kept = left.filter_map(|(_, member)| Some((member.name, *logs_of(member).keys().next()?)));
    kept.map(|(name, partition)| format!("{name} was let go and still has {partition}")).collect()
}

fn difference(
    partition: PartitionId,
    (one, batches): (&str, &Batches),
    (other, there): (&str, &Batches),
) -> Option<Violation> {
    let both =
        batches.iter().filter_map(|(offset, batch)| Some((offset, batch, there.get(offset)?)));
    let (offset, batch, found) = both.into_iter().find(|(_, batch, found)| batch != found)?;
    let sentence = format!("at {offset} {one} has {batch:?}, and {other} has {found:?}");
    Some(Violation { property: "log-matching", place: partition.to_string(), sentence })
}

/// The logs of users' topics; each node's metadata log is its own.
fn logs_of(member: &Member) -> BTreeMap<PartitionId, Batches> {
    let mut logs: BTreeMap<PartitionId, Batches> = BTreeMap::new();
    let files = member.disk.medium().contents(Path::new("/data/logs"));
    let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    let log =
        |path: &Path| path.parent().and_then(name).and_then(|name| parse_directory_name(&name));
    let mut cleaned = BTreeMap::new();
    for (path, bytes) in &files {
        if name(path).as_deref() == Some(CLEANED_FILE)
            && let Ok(told) = Cleaned::decode(bytes)
        {
            cleaned.insert(log(path), told.until);
        }
    }
    for (path, bytes) in files {
        let file = name(&path).and_then(|name| parse_segment_file_name(&name));
        let log = log(&path);
        // Each node compacts its own copy: they are equal only beyond.
        let until = cleaned.get(&log).copied().unwrap_or_default();
        if let (Some(partition), Some((base, 0, FileKind::Segment))) = (log, file)
            && partition != PartitionId::METADATA
            && base >= until
        {
            logs.entry(partition).or_default().extend(frames(bytes));
        }
    }
    logs
}

/// The frames at the front of a file.
fn frames(mut bytes: Bytes) -> Batches {
    let mut found = Batches::new();
    while let Ok(Some(frame)) = Frame::decode(&bytes) {
        let header = frame.batch.header();
        let content = checksum(frame.batch.records());
        found.insert(header.base_offset(), (header.next_offset(), header.leader_epoch(), content));
        bytes = bytes.slice(frame.header.frame_bytes() as usize..);
    }
    found
}

fn missing_orphans(member: &Member) -> Option<Violation> {
    let mut cut = member.cut();
    for (path, bytes) in member.disk.medium().contents(Path::new("/data/orphans")) {
        let name = path.file_name().and_then(|name| OrphanName::parse(name.to_str()?));
        if let Some(name) = name
            && bytes.len() > HEAD_BYTES
        {
            for (base, (_, epoch, _)) in frames(bytes.slice(HEAD_BYTES..)) {
                cut.remove(&(name.partition, base, epoch));
            }
        }
    }
    let (partition, offset, epoch) = cut.first()?;
    let sentence = format!(
        "{} has cut {} batches off and not set them aside, such as that at {offset} of leader \
         epoch {epoch}",
        member.name,
        cut.len()
    );
    Some(Violation { property: "orphans", place: partition.to_string(), sentence })
}
