//! What the nodes' disks hold at the end, compared: replicas of one log are one log, but for what
//! each has compacted of its own; and what was cut off stands in the orphan files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use quorate_core::batch::checksum::checksum;
use quorate_core::id::{LeaderEpoch, Offset, PartitionId};
use quorate_core::reached;
use quorate_core::segment::cleaned::{CLEANED_FILE, Cleaned};
use quorate_core::segment::frame::{Frame, FrameHeader};
use quorate_core::segment::orphan::{HEAD_BYTES, OrphanName};
use quorate_core::segment::{FileKind, parse_directory_name, parse_segment_file_name};

use super::member::Member;
use crate::check::Violation;
use crate::medium::names::FileId;
use crate::shadow::compacted::{self, Survivors};

/// Batches by offset: where each ends, its leader epoch, and a checksum.
type Batches = BTreeMap<Offset, (Offset, LeaderEpoch, u32)>;

/// A node's copy of a log.
struct Copy {
    batches: Batches,
    /// Some of its segments were written by compaction.
    is_compacted: bool,
    /// Durable bytes of its disk were changed, and something in its files cannot be read.
    has_rotted: bool,
    files: Vec<Bytes>,
}

/// Logs that differ between nodes, and cuts that no orphan file tells of.
pub fn logs(members: &[Arc<Member>]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut copies: BTreeMap<PartitionId, Vec<(&Arc<Member>, Copy)>> = BTreeMap::new();
    for member in members {
        for (partition, copy) in logs_of(member) {
            copies.entry(partition).or_default().push((member, copy));
        }
        violations.extend(missing_orphans(member));
    }
    for (partition, copies) in copies {
        let Some(((first, one), others)) = copies.split_first() else { continue };
        let is_compacted = copies.iter().any(|(_, copy)| copy.is_compacted);
        for (other, there) in others {
            violations.extend(if is_compacted {
                let start = first.log_start(partition).max(other.log_start(partition));
                lost_by_key(partition, (first.name, one), (other.name, there), start)
            } else {
                let there = (other.name, &there.batches);
                difference(partition, (first.name, &one.batches), there)
            });
        }
    }
    violations
}

/// Each node compacts its own copy: what survives is compared by key. Compaction leaves no gaps, so
/// where no frame stands something is lost. A disk that has rotted may have lost it: the node tells
/// of it, and leaves it as it is. Where nobody compacts only what both have is compared anyway.
fn lost_by_key(
    partition: PartitionId,
    (one, copy): (&str, &Copy),
    (other, there): (&str, &Copy),
    start: Offset,
) -> Option<Violation> {
    reached!("compacted-copies-are-compared");
    let survivors = |copy: &Copy| {
        let mut survivors = Survivors::new();
        for file in &copy.files {
            each_frame(file.clone(), |frame| compacted::gather(&frame.batch, &mut survivors));
        }
        survivors
    };
    // What is filled in comes from the other, which has it: the order does not matter.
    let (mut ours, mut theirs) = (survivors(copy), survivors(there));
    if copy.has_rotted {
        compacted::fill(&mut ours, &theirs, |offset| copy.has_frame(offset));
    }
    if there.has_rotted {
        compacted::fill(&mut theirs, &ours, |offset| there.has_frame(offset));
    }
    let (offset, why) = compacted::difference(&ours, &theirs, start, false)?;
    let sentence = format!("{one} and {other} differ at {offset} by more than compaction: {why}");
    Some(Violation { property: "log-matching", place: partition.to_string(), sentence })
}

/// Where files of logs end, as they were when somebody looked: who waits looks often, and most of
/// them are closed.
#[derive(Debug, Default)]
pub struct Ends(BTreeMap<(&'static str, FileId), ((u32, u64), Offset)>);

impl Ends {
    fn of(&mut self, member: &Member, file: FileId) -> Offset {
        let medium = member.disk.medium();
        let version = medium.version(file);
        match self.0.get(&(member.name, file)) {
            Some((known, end)) if *known == version => *end,
            _ => {
                let end = end_of(&frames(medium.content(file)));
                self.0.insert((member.name, file), (version, end));
                end
            }
        }
    }
}

/// Replicas that do not end where the others do: a sentence each.
pub fn lagging(members: &[Arc<Member>], known: &mut Ends) -> Vec<String> {
    let mut ends: BTreeMap<PartitionId, BTreeMap<&'static str, Offset>> = BTreeMap::new();
    for member in members {
        for segment in segments_of(member) {
            let copies = ends.entry(segment.partition).or_default();
            let end = copies.entry(member.name).or_insert(Offset::ZERO);
            *end = known.of(member, segment.file).max(*end);
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
    let kept = left.filter_map(|(_, member)| Some((member.name, first_of(member)?)));
    kept.map(|(name, partition)| format!("{name} was let go and still has {partition}")).collect()
}

fn first_of(member: &Member) -> Option<PartitionId> {
    segments_of(member).iter().map(|segment| segment.partition).min()
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

/// A file of a log that counts.
struct Segment {
    partition: PartitionId,
    file: FileId,
    /// Its log has been compacted.
    is_compacted: bool,
}

/// The segments of users' topics, log by log; each node's metadata log is its own.
fn segments_of(member: &Member) -> Vec<Segment> {
    let medium = member.disk.medium();
    let files = medium.files(Path::new("/data/logs"));
    let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    let mut segments = Vec::new();
    for files in files.chunk_by(|(one, _), (other, _)| one.parent() == other.parent()) {
        let directory = files[0].0.parent().and_then(name);
        let log = directory.and_then(|name| parse_directory_name(&name));
        let Some(partition) = log.filter(|log| *log != PartitionId::METADATA) else { continue };
        let told = files.iter().find(|(path, _)| path.ends_with(CLEANED_FILE));
        let told = told.and_then(|(_, file)| Cleaned::decode(&medium.content(*file)).ok());
        for (path, file) in files {
            let parsed = name(path).and_then(|name| parse_segment_file_name(&name));
            if let Some((base, generation, FileKind::Segment)) = parsed
                && told.as_ref().map_or(Some(0), |told| told.generation(base)) == Some(generation)
            {
                segments.push(Segment { partition, file: *file, is_compacted: told.is_some() });
            }
        }
    }
    segments
}

fn logs_of(member: &Member) -> BTreeMap<PartitionId, Copy> {
    let mut logs: BTreeMap<PartitionId, Copy> = BTreeMap::new();
    let has_rotted = member.has_rotted();
    for Segment { partition, file, is_compacted } in segments_of(member) {
        let bytes = member.disk.medium().content(file);
        let copy = logs.entry(partition).or_insert_with(Copy::nothing);
        let batches = frames(bytes.clone());
        // Room that is allocated and was not used holds zeros.
        let rest = each_frame(bytes.clone(), |_| ());
        copy.has_rotted |= has_rotted && rest.iter().any(|byte| *byte != 0);
        copy.is_compacted |= is_compacted;
        copy.batches.extend(batches);
        copy.files.push(bytes);
    }
    logs
}

impl Copy {
    const fn nothing() -> Self {
        Self { batches: Batches::new(), is_compacted: false, has_rotted: false, files: Vec::new() }
    }

    /// Whether a frame that can be read stands for the offset, be it a filler's.
    fn has_frame(&self, offset: Offset) -> bool {
        let before = self.batches.range(..=offset).next_back();
        before.is_some_and(|(_, (end, ..))| offset < *end)
    }
}

/// Says what cannot be read behind them.
fn each_frame(mut bytes: Bytes, mut take: impl FnMut(&Frame)) -> Bytes {
    while let Ok(Some(frame)) = Frame::decode(&bytes) {
        take(&frame);
        bytes = bytes.slice(frame.header.frame_bytes() as usize..);
    }
    bytes
}

/// The frames at the front of a file.
fn frames(bytes: Bytes) -> Batches {
    let mut found = Batches::new();
    each_frame(bytes, |frame| {
        let header = frame.batch.header();
        let content = checksum(frame.batch.records());
        found.insert(header.base_offset(), (header.next_offset(), header.leader_epoch(), content));
    });
    found
}

fn end_of(batches: &Batches) -> Offset {
    batches.last_key_value().map_or(Offset::ZERO, |(_, (end, ..))| *end)
}

/// The frames in an orphan file, and how many of its bytes no frame tells of. What had rotted in
/// its log is set aside as it was, for a human to look at, and what stood behind it follows.
/// Where only the batch is damaged, the frame's header still says where it stood, and where the
/// next frame begins. Where the header is damaged too, or was never there (a write that landed
/// elsewhere leaves zeros), the next one is looked for. This excuses nothing on a disk that did
/// not rot, and no frame that is cut short.
fn set_aside(mut bytes: Bytes, name: &OrphanName, has_rotted: bool) -> (Vec<FrameHeader>, u64) {
    let (mut found, mut unreadable) = (Vec::new(), 0);
    // What went astray is not what stood here.
    let belongs = |header: &FrameHeader, left: usize| {
        header.partition == name.partition
            && (name.first..name.end).contains(&header.base_offset)
            && header.frame_bytes() <= left as u64
    };
    while !bytes.is_empty() {
        let header = FrameHeader::decode(&bytes).ok().flatten();
        let header = header.filter(|header| belongs(header, bytes.len()));
        let is_whole = header.is_some() && matches!(Frame::decode(&bytes), Ok(Some(_)));
        if !is_whole && !has_rotted {
            break;
        }
        if let Some(header) = header {
            if !is_whole {
                reached!("rotten-frame-set-aside");
            }
            found.push(header);
            bytes.advance(header.frame_bytes() as usize);
        } else {
            unreadable += 1;
            bytes.advance(1);
        }
    }
    (found, unreadable)
}

fn missing_orphans(member: &Member) -> Option<Violation> {
    let mut cut = member.cut();
    let has_rotted = member.has_rotted();
    let mut rotten = Vec::new();
    for (path, bytes) in member.disk.medium().contents(Path::new("/data/orphans")) {
        let name = path.file_name().and_then(|name| OrphanName::parse(name.to_str()?));
        if let Some(name) = name
            && bytes.len() > HEAD_BYTES
        {
            let (frames, unreadable) = set_aside(bytes.slice(HEAD_BYTES..), &name, has_rotted);
            for frame in frames {
                cut.remove(&(name.partition, frame.base_offset, frame.leader_epoch));
            }
            rotten.push((name, unreadable));
        }
    }
    // What no frame tells of is what the disk gave for these batches: not one byte less than they
    // had, so that nothing is excused that was left out.
    for (name, mut unreadable) in rotten {
        cut.retain(|(partition, offset, _), bytes| {
            let stood_here =
                *partition == name.partition && (name.first..name.end).contains(offset);
            let is_there = stood_here && *bytes <= unreadable;
            if is_there {
                reached!("rotten-bytes-set-aside");
                unreadable -= *bytes;
            }
            !is_there
        });
    }
    let (&(partition, offset, epoch), _) = cut.first_key_value()?;
    let sentence = format!(
        "{} has cut {} batches off and not set them aside, such as that at {offset} of leader \
         epoch {epoch}",
        member.name,
        cut.len()
    );
    Some(Violation { property: "orphans", place: partition.to_string(), sentence })
}
