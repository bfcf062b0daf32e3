//! The bytes of the storage engine, as pure functions: what stands in segments, in the journal, in
//! indexes and in small checksummed files. Storage does the reading and writing.

pub(crate) mod bytes;
pub mod checkpoint;
pub mod cleaned;
pub mod frame;
pub mod index;
pub mod journal;
pub mod orphan;
pub mod scan;

use crate::id::{Offset, PartitionId, TopicId};

/// What kinds of files belong to one stretch of a log; each is named for its first offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// Frames, one after another.
    Segment,
    /// Where in the segment to look for an offset or a time.
    Index,
    /// The replica's `Recovered` state at the base offset.
    Snapshot,
}

impl FileKind {
    pub const ALL: [Self; 3] = [Self::Segment, Self::Index, Self::Snapshot];

    const fn extension(self) -> &'static str {
        match self {
            Self::Segment => "segment",
            Self::Index => "index",
            Self::Snapshot => "snapshot",
        }
    }
}

/// `00000000000000000042.segment`: the names sort as the offsets do.
pub fn file_name(base: Offset, kind: FileKind) -> String {
    format!("{:020}.{}", base.0, kind.extension())
}

/// `None` for a file that is not one of ours.
pub fn parse_file_name(name: &str) -> Option<(Offset, FileKind)> {
    let (base, extension) = name.split_once('.')?;
    let kind = FileKind::ALL.into_iter().find(|kind| kind.extension() == extension)?;
    if base.len() != 20 || !base.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    Some((Offset(base.parse().ok()?), kind))
}

/// As `file_name`, of a segment that compaction wrote: `00000000000000000042-3.segment`.
/// Generation 0 is that of the writer.
pub fn segment_file_name(base: Offset, generation: u32, kind: FileKind) -> String {
    match generation {
        0 => file_name(base, kind),
        _ => format!("{:020}-{generation}.{}", base.0, kind.extension()),
    }
}

/// A name of either kind. `None` for a file that is not one of ours.
pub fn parse_segment_file_name(name: &str) -> Option<(Offset, u32, FileKind)> {
    if let Some((base, kind)) = parse_file_name(name) {
        return Some((base, 0, kind));
    }
    let (front, extension) = name.split_once('.')?;
    let (base, generation) = front.split_once('-')?;
    let generation: u32 = generation.parse().ok()?;
    let (base, kind) = parse_file_name(&format!("{base}.{extension}"))?;
    (segment_file_name(base, generation, kind) == name).then_some((base, generation, kind))
}

/// `<topic id>-<partition>`: a topic's name may be used again, its id never is.
pub fn directory_name(partition: PartitionId) -> String {
    format!("{}-{}", partition.topic, partition.index)
}

/// `None` for a directory that is not a partition's.
pub fn parse_directory_name(name: &str) -> Option<PartitionId> {
    let (topic, index) = name.rsplit_once('-')?;
    let digits = topic.replace('-', "");
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut id = [0; 16];
    for (place, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).ok()?;
    }
    let partition = PartitionId { topic: TopicId(id), index: index.parse().ok()? };
    (directory_name(partition) == name).then_some(partition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_and_strangers_are_left_alone() {
        for kind in FileKind::ALL {
            let name = file_name(Offset(42), kind);
            assert_eq!(parse_file_name(&name), Some((Offset(42), kind)));
        }
        for name in ["42.segment", "00000000000000000042.log", "0000000000000000004x.index", ""] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
        for generation in [0, 1, 70] {
            let name = segment_file_name(Offset(42), generation, FileKind::Index);
            let parsed = parse_segment_file_name(&name);
            assert_eq!(parsed, Some((Offset(42), generation, FileKind::Index)));
        }
        assert_eq!(parse_segment_file_name("00000000000000000042-0.segment"), None);
        assert_eq!(parse_segment_file_name("00000000000000000042-03.segment"), None);
        let partition = PartitionId { topic: TopicId([0xab; 16]), index: 7 };
        let name = directory_name(partition);
        assert_eq!(name, "abababab-abab-abab-abab-abababababab-7");
        assert_eq!(parse_directory_name(&name), Some(partition));
        for name in ["lost+found", "abababab-7", "ABababab-abab-abab-abab-abababababab-7", "-"] {
            assert_eq!(parse_directory_name(name), None, "{name}");
        }
    }
}
