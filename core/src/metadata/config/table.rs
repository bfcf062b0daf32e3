//! The settings of a topic: Kafka's names, kinds and defaults (`LogConfig`, `TopicConfig` of
//! Kafka 4.4), and ours, which begin with `quorate.`.

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A 32-bit number within bounds.
    Int { min: i64, max: i64 },
    /// A 64-bit number within bounds.
    Long { min: i64, max: i64 },
    /// A decimal number from 0 to 1.
    Share,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any of these words, by commas.
    List(&'static [&'static str]),
    /// Partition and broker ids by commas, or `*`; kept for the tools that set it.
    ReplicaList,
}

/// One setting a topic can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    /// One sentence for whoever lists settings.
    pub doc: &'static str,
}

/// The setting of this name.
pub fn setting(name: &str) -> Option<&'static Setting> {
    let place = TOPIC_SETTINGS.binary_search_by(|setting| setting.name.cmp(name)).ok()?;
    Some(&TOPIC_SETTINGS[place])
}

impl Setting {
    /// # Errors
    ///
    /// What the value should be.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let good = match self.kind {
            Kind::Switch => {
                value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false")
            }
            Kind::Int { min, max } | Kind::Long { min, max } => {
                value.parse::<i64>().is_ok_and(|number| (min..=max).contains(&number))
            }
            Kind::Share => is_share(value),
            Kind::Choice(words) => words.contains(&value),
            Kind::List(words) => super::list_items(value).all(|item| words.contains(&item)),
            Kind::ReplicaList => {
                value.bytes().all(|byte| byte.is_ascii_digit() || b":,* ".contains(&byte))
            }
        };
        if good { Ok(()) } else { Err(self.kind.wants()) }
    }
}

impl Kind {
    fn wants(self) -> String {
        match self {
            Self::Switch => "it must be true or false".to_owned(),
            Self::Int { min, max } | Self::Long { min, max } => {
                format!("it must be a number from {min} to {max}")
            }
            Self::Share => "it must be a number from 0 to 1".to_owned(),
            Self::Choice(words) => format!("it must be one of {}", words.join(", ")),
            Self::List(words) => format!("each of the list must be one of {}", words.join(", ")),
            Self::ReplicaList => "it must be a list like 0:1,1:2 or *".to_owned(),
        }
    }
}

/// A decimal from 0 to 1, read without floats: `0`, `0.5`, `1`, `1.0`.
fn is_share(value: &str) -> bool {
    let (whole, rest) = value.split_once('.').unwrap_or((value, "0"));
    let digits = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "0" | "" => digits,
        "1" => digits && rest.bytes().all(|byte| byte == b'0'),
        _ => false,
    }
}

const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];
const INT_MAX: i64 = i32::MAX as i64;
const LONG_MAX: i64 = i64::MAX;
const SEVEN_DAYS: &str = "604800000";

const fn int(name: &'static str, min: i64, default: &'static str, doc: &'static str) -> Setting {
    Setting { name, kind: Kind::Int { min, max: INT_MAX }, default, doc }
}

const fn long(name: &'static str, min: i64, default: &'static str, doc: &'static str) -> Setting {
    Setting { name, kind: Kind::Long { min, max: LONG_MAX }, default, doc }
}

const fn other(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting { name, kind, default, doc }
}

/// All settings, in order of their names.
pub const TOPIC_SETTINGS: &[Setting] = &[
    other(
        "cleanup.policy",
        Kind::List(&["compact", "delete"]),
        "delete",
        "What happens to old records: delete by time and size, compact by key, or both.",
    ),
    other(
        "compression.gzip.level",
        Kind::Int { min: -1, max: 9 },
        "-1",
        "The level at which the node compresses with gzip; -1 is the codec's own.",
    ),
    other(
        "compression.lz4.level",
        Kind::Int { min: 1, max: 17 },
        "9",
        "The level at which the node compresses with lz4.",
    ),
    other(
        "compression.type",
        Kind::Choice(CODECS),
        "producer",
        "How batches are kept: as the producer sent them, or in this codec.",
    ),
    other(
        "compression.zstd.level",
        Kind::Int { min: -131_072, max: 22 },
        "3",
        "The level at which the node compresses with zstd.",
    ),
    long(
        "delete.retention.ms",
        0,
        "86400000",
        "How long a compacted topic keeps the markers of deleted keys.",
    ),
    long("file.delete.delay.ms", 0, "60000", "How long a removed segment's file is kept."),
    long(
        "flush.messages",
        1,
        "9223372036854775807",
        "Kept for Kafka's tools; quorate.flush says when records are synced.",
    ),
    long(
        "flush.ms",
        0,
        "9223372036854775807",
        "Kept for Kafka's tools; quorate.flush says when records are synced.",
    ),
    other(
        "follower.replication.throttled.replicas",
        Kind::ReplicaList,
        "",
        "Replicas whose catching up is throttled where they follow.",
    ),
    int("index.interval.bytes", 0, "4096", "Bytes of a log between two entries of its index."),
    other(
        "leader.replication.throttled.replicas",
        Kind::ReplicaList,
        "",
        "Replicas whose catching up is throttled where they are led.",
    ),
    long(
        "max.compaction.lag.ms",
        1,
        "9223372036854775807",
        "How long a record may at most stay uncompacted.",
    ),
    int("max.message.bytes", 0, "1048588", "The largest batch that is accepted, compressed."),
    long(
        "message.timestamp.after.max.ms",
        0,
        "3600000",
        "How far a record's timestamp may lie in the future.",
    ),
    long(
        "message.timestamp.before.max.ms",
        0,
        "9223372036854775807",
        "How far a record's timestamp may lie in the past.",
    ),
    other(
        "message.timestamp.type",
        Kind::Choice(&["CreateTime", "LogAppendTime"]),
        "CreateTime",
        "Whose clock stamps records: the producer's, or the log's.",
    ),
    other(
        "min.cleanable.dirty.ratio",
        Kind::Share,
        "0.5",
        "The share of a log that must be uncompacted before compaction begins.",
    ),
    long("min.compaction.lag.ms", 0, "0", "How long a record at least stays uncompacted."),
    int(
        "min.insync.replicas",
        1,
        "1",
        "Copies that must be in sync for acks=all; unless given, 2 as soon as there are 3.",
    ),
    other("preallocate", Kind::Switch, "false", "Kept for Kafka's tools; files grow in chunks."),
    other(
        "quorate.flush",
        Kind::Choice(&["durable", "replicated"]),
        "durable",
        "What an acknowledgement means: on the disk of every in-sync replica, or in its memory.",
    ),
    int(
        "quorate.min.insync.racks",
        1,
        "1",
        "Racks in which a copy must be in sync for acks=all, and for anything to be committed.",
    ),
    long("retention.bytes", -1, "-1", "Bytes of a partition that are kept; -1 is no bound."),
    long("retention.ms", -1, SEVEN_DAYS, "How long records are kept; -1 is for ever."),
    int("segment.bytes", 1024, "1073741824", "The size at which a segment is closed."),
    int("segment.index.bytes", 4, "10485760", "The largest index of a segment."),
    long("segment.jitter.ms", 0, "0", "Kept for Kafka's tools; segments are not closed at once."),
    long("segment.ms", 1, SEVEN_DAYS, "The age at which a segment is closed."),
    other(
        "unclean.leader.election.enable",
        Kind::Switch,
        "false",
        "Must stay false: an unclean election is a human's explicit act.",
    ),
];
