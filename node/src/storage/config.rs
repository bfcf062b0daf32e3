//! The limits of the storage engine: their defaults, their bounds, and the check at start.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use quorate_core::id::NodeId;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DAY: Duration = Duration::from_secs(86_400);

/// Whose data a directory holds. Written into a fresh directory, compared with an old one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub node: NodeId,
    /// Drawn anew for each fresh directory, so that an emptied disk is not taken for the old one.
    pub directory: [u8; 16],
}

/// What the storage engine may use. Every bound is checked by `Storage::open`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// The data directory; made if absent.
    pub directory: PathBuf,
    /// For a fresh directory. An old one keeps its directory id, which `OpenReport::identity`
    /// tells; its node id must be this one.
    pub identity: Identity,
    /// Nothing outlives the process (`--ephemeral`): no journal is kept, and an append is complete
    /// once it stands in the segment, whatever its topic's `quorate.flush` says.
    pub ephemeral: bool,
    /// Writes that may wait for the writer: 4096; 1 to 1,048,576.
    pub queue_writes_max: usize,
    /// Bytes of batches that wait for one sync together: 16 MiB; 4 KiB to 1 GiB. The group that
    /// reaches it is closed, so it may be larger by one batch.
    pub group_bytes_max: u64,
    /// A log with so many bytes in one group has its segment synced instead of the rest going into
    /// the journal: 32 MiB; 4 KiB to 1 GiB. So has one whose group would take more than three
    /// quarters of a journal file, so that a batch of any size finds a way.
    pub direct_bytes_min: u64,
    /// Bytes of one journal file, allocated at once: 64 MiB; 64 KiB to 2 GiB.
    pub journal_file_bytes: u64,
    /// Journal files kept at most, before writes wait for a checkpoint: 8; 2 to 64.
    pub journal_files_max: usize,
    /// Bytes appended between two checkpoints, at least: 96 MiB; 16 KiB to 64 GiB.
    pub checkpoint_bytes: u64,
    /// Bytes written to one segment after which it is synced ahead of the checkpoint: 1 MiB; 4 KiB
    /// to 64 GiB.
    pub ahead_bytes: u64,
    /// A batch larger than this is refused by `Storage` as a programmer's error, and a length
    /// beyond it on disk is not believed: 128 MiB; 1 KiB to 1 GiB. `max.message.bytes` of every
    /// topic stays below it.
    pub batch_bytes_max: u64,
    /// A segment's file grows by so much at least: 64 KiB; 4 KiB to 16 MiB.
    pub allocation_bytes_min: u64,
    /// ... and by so much at most: 16 MiB; `allocation_bytes_min` to 1 GiB.
    pub allocation_bytes_max: u64,
    /// Segments held open: 8192; 4 to 1,000,000. A quarter may be unsynced, a quarter on its way
    /// to the disk, the rest is for readers. That descriptors suffice is the node's to see to.
    pub open_files_max: usize,
    /// Indexes of closed segments held in memory: 512; 1 to 1,000,000.
    pub open_indexes_max: usize,
    /// Bytes of records that were cut off and set aside, on the whole node: 1 GiB; up to 1 PiB. The
    /// newest file stays, however large.
    pub orphan_bytes_max: u64,
    /// ... and how long they are kept: 30 days; a minute to ten years.
    pub orphan_age_max: Duration,
    /// Bytes that one read of a file asks for, at least: 64 KiB; 512 B to 16 MiB.
    pub read_bytes: u64,
}

impl StorageConfig {
    pub fn new(directory: impl Into<PathBuf>, identity: Identity) -> Self {
        Self {
            directory: directory.into(),
            identity,
            ephemeral: false,
            queue_writes_max: 4096,
            group_bytes_max: 16 * MIB,
            direct_bytes_min: 32 * MIB,
            journal_file_bytes: 64 * MIB,
            journal_files_max: 8,
            checkpoint_bytes: 96 * MIB,
            ahead_bytes: MIB,
            batch_bytes_max: 128 * MIB,
            allocation_bytes_min: 64 * KIB,
            allocation_bytes_max: 16 * MIB,
            open_files_max: 8192,
            open_indexes_max: 512,
            orphan_bytes_max: GIB,
            orphan_age_max: 30 * DAY,
            read_bytes: 64 * KIB,
        }
    }

    /// # Errors
    ///
    /// The first limit that is out of its bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let within = |name, value: u64, bounds: RangeInclusive<u64>| {
            if bounds.contains(&value) {
                return Ok(());
            }
            Err(ConfigError { name, value, min: *bounds.start(), max: *bounds.end() })
        };
        within("queue_writes_max", self.queue_writes_max as u64, 1..=MIB)?;
        within("group_bytes_max", self.group_bytes_max, 4 * KIB..=GIB)?;
        within("journal_file_bytes", self.journal_file_bytes, 64 * KIB..=2 * GIB)?;
        within("direct_bytes_min", self.direct_bytes_min, 4 * KIB..=GIB)?;
        within("journal_files_max", self.journal_files_max as u64, 2..=64)?;
        within("checkpoint_bytes", self.checkpoint_bytes, 16 * KIB..=64 * GIB)?;
        within("ahead_bytes", self.ahead_bytes, 4 * KIB..=64 * GIB)?;
        within("batch_bytes_max", self.batch_bytes_max, KIB..=GIB)?;
        within("allocation_bytes_min", self.allocation_bytes_min, 4 * KIB..=16 * MIB)?;
        let least = self.allocation_bytes_min;
        within("allocation_bytes_max", self.allocation_bytes_max, least..=GIB)?;
        within("open_files_max", self.open_files_max as u64, 4..=1_000_000)?;
        within("open_indexes_max", self.open_indexes_max as u64, 1..=1_000_000)?;
        within("orphan_bytes_max", self.orphan_bytes_max, 0..=1 << 50)?;
        within("orphan_age_max", self.orphan_age_max.as_secs(), 60..=3660 * 86_400)?;
        within("read_bytes", self.read_bytes, 512..=16 * MIB)
    }
}

/// A limit out of its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub name: &'static str,
    pub value: u64,
    pub min: u64,
    pub max: u64,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, min, max } = self;
        write!(f, "storage: {name} is {value}, and must be {min} to {max}")
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> StorageConfig {
        let identity = Identity { node: NodeId(1), directory: [2; 16] };
        StorageConfig::new("data", identity)
    }

    type Set = fn(&mut StorageConfig, u64);

    #[test]
    fn every_limit_is_checked_at_its_edges() {
        config().check().expect("the defaults hold");
        let limits: [(&str, Set, u64, u64); 14] = [
            ("queue_writes_max", |c, v| c.queue_writes_max = v as usize, 1, MIB),
            ("group_bytes_max", |c, v| c.group_bytes_max = v, 4 * KIB, GIB),
            ("direct_bytes_min", |c, v| c.direct_bytes_min = v, 4 * KIB, GIB),
            ("journal_file_bytes", |c, v| c.journal_file_bytes = v, 64 * KIB, 2 * GIB),
            ("journal_files_max", |c, v| c.journal_files_max = v as usize, 2, 64),
            ("checkpoint_bytes", |c, v| c.checkpoint_bytes = v, 16 * KIB, 64 * GIB),
            ("ahead_bytes", |c, v| c.ahead_bytes = v, 4 * KIB, 64 * GIB),
            ("batch_bytes_max", |c, v| c.batch_bytes_max = v, KIB, GIB),
            ("allocation_bytes_min", |c, v| c.allocation_bytes_min = v, 4 * KIB, 16 * MIB),
            ("allocation_bytes_max", |c, v| c.allocation_bytes_max = v, 64 * KIB, GIB),
            ("open_files_max", |c, v| c.open_files_max = v as usize, 4, 1_000_000),
            ("open_indexes_max", |c, v| c.open_indexes_max = v as usize, 1, 1_000_000),
            ("orphan_age_max", |c, v| c.orphan_age_max = Duration::from_secs(v), 60, 3660 * 86_400),
            ("read_bytes", |c, v| c.read_bytes = v, 512, 16 * MIB),
        ];
        for (name, set, min, max) in limits {
            for (value, good) in [(min, true), (max, true), (min - 1, false), (max + 1, false)] {
                let mut config = config();
                set(&mut config, value);
                match config.check() {
                    Ok(()) => assert!(good, "{name} = {value} was accepted"),
                    Err(error) => {
                        assert!(!good, "{error}");
                        assert_eq!((error.name, error.min, error.max), (name, min, max));
                    }
                }
            }
        }
    }
}
