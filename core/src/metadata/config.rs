//! A topic's configuration: the settings that were given, what they mean to its replicas, and how
//! requests change them. The table of names, kinds and defaults stands in `config/table.rs`.

pub mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use self::table::{Kind, Setting, TOPIC_SETTINGS, setting};
use crate::batch::{Codec, Rules};
use crate::id::NodeId;
use crate::partition::cleaning::SHARE_WHOLE;
use crate::partition::interface::{Assignment, Flush, PartitionConfig, Racks};
use crate::time::Timestamp;

/// Settings of one topic, those that were given only, by name. Every value is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicConfigs {
    given: BTreeMap<String, String>,
}

/// One change of one setting. KIP-339.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Set(String),
    /// Back to the default.
    Delete,
    /// Adds to a list what is not yet in it.
    Append(String),
    /// Takes out of a list.
    Subtract(String),
}

/// Why a setting is refused: `INVALID_CONFIG`, with this sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSetting {
    pub reason: String,
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for InvalidSetting {}

fn invalid(reason: String) -> InvalidSetting {
    InvalidSetting { reason }
}

impl TopicConfigs {
    /// Takes settings from a request or a record.
    ///
    /// # Errors
    ///
    /// The first setting with an unknown name or a value that its kind does not allow.
    pub fn from_given(
        given: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, InvalidSetting> {
        let mut configs = Self::default();
        for (name, value) in given {
            configs.change(&name, &Change::Set(value))?;
        }
        Ok(configs)
    }

    /// Takes settings as the metadata log keeps them. One that this build does not know, or would
    /// not accept, leaves its default in force: a log that another build wrote stays readable.
    pub fn from_stored(stored: &BTreeMap<String, String>) -> Self {
        let known = |name: &str, value: &str| {
            setting(name).is_some_and(|setting| setting.check(value).is_ok())
        };
        let given = stored.iter().filter(|(name, value)| known(name, value));
        Self { given: given.map(|(name, value)| (name.clone(), value.clone())).collect() }
    }

    /// # Errors
    ///
    /// As `from_given`; or if a change of a list is asked of what is none.
    pub fn change(&mut self, name: &str, change: &Change) -> Result<(), InvalidSetting> {
        let setting = setting(name).ok_or_else(|| unknown(name))?;
        let value = match change {
            Change::Delete => {
                self.given.remove(name);
                return Ok(());
            }
            Change::Set(value) => value.trim().to_owned(),
            Change::Append(value) => self.edited_list(setting, value, true)?,
            Change::Subtract(value) => self.edited_list(setting, value, false)?,
        };
        setting.check(&value).map_err(|reason| {
            invalid(format!("Invalid value {value} for configuration {name}: {reason}"))
        })?;
        self.given.insert(name.to_owned(), value);
        Ok(())
    }

    fn edited_list(
        &self,
        setting: &Setting,
        value: &str,
        append: bool,
    ) -> Result<String, InvalidSetting> {
        if !matches!(setting.kind, Kind::List(_)) {
            return Err(invalid(format!(
                "{} is not a list: nothing can be appended to it or subtracted from it",
                setting.name
            )));
        }
        let mut items: Vec<&str> = list_items(self.value(setting.name)).collect();
        for item in list_items(value) {
            let place = items.iter().position(|other| *other == item);
            match (append, place) {
                (true, None) => items.push(item),
                (false, Some(place)) => drop(items.remove(place)),
                _ => {}
            }
        }
        Ok(items.join(","))
    }

    /// What was given, in order of names.
    pub fn given(&self) -> impl Iterator<Item = (&str, &str)> {
        self.given.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether the value was given, rather than being the default.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The value that is in force. Panics on a name that is not in the table.
    pub fn value(&self, name: &str) -> &str {
        match self.given.get(name) {
            Some(value) => value,
            None => setting(name).expect("a name from the table").default,
        }
    }

    fn number(&self, name: &str) -> i64 {
        self.value(name).parse().expect("checked when it was set")
    }

    /// Kafka's "-1 is for ever".
    fn bounded(&self, name: &str) -> Option<u64> {
        u64::try_from(self.number(name)).ok()
    }

    /// A decimal from 0 to 1, in millionths; digits beyond are cut off.
    fn share(&self, name: &str) -> u64 {
        let value = self.value(name);
        let (whole, rest) = value.split_once('.').unwrap_or((value, ""));
        let digits = rest.bytes().chain(std::iter::repeat(b'0')).take(6);
        let part = digits.fold(0, |part, digit| part * 10 + u64::from(digit.saturating_sub(b'0')));
        whole.parse::<u64>().unwrap_or(0) * SHARE_WHOLE + part
    }

    /// `max.compaction.lag.ms`: Kafka's largest number is no bound.
    fn compaction_lag_max(&self) -> Option<Duration> {
        let millis = self.bounded("max.compaction.lag.ms").filter(|&lag| lag < i64::MAX as u64);
        millis.map(Duration::from_millis)
    }

    /// `segment.ms`, and where compaction must not take longer, that.
    fn segment_time_max(&self) -> Duration {
        let time = Duration::from_millis(self.bounded("segment.ms").unwrap_or(u64::MAX));
        let lag = self.compaction_lag_max().filter(|_| self.has("cleanup.policy", "compact"));
        lag.map_or(time, |lag| lag.min(time))
    }

    fn has(&self, name: &str, item: &str) -> bool {
        list_items(self.value(name)).any(|other| other == item)
    }

    /// `min.insync.replicas`: unless given, 2 as soon as there are 3 replicas, so that an
    /// acknowledgement survives the loss of a node.
    pub fn min_insync_replicas(&self, replicas: usize) -> usize {
        if self.is_given("min.insync.replicas") {
            usize::try_from(self.number("min.insync.replicas")).unwrap_or(usize::MAX)
        } else if replicas >= 3 {
            2
        } else {
            1
        }
    }

    /// `max.message.bytes`.
    pub fn batch_bytes_max(&self) -> usize {
        usize::try_from(self.number("max.message.bytes")).unwrap_or(usize::MAX)
    }

    /// Whether it matters where replicas stand.
    pub fn counts_racks(&self) -> bool {
        self.is_given("quorate.min.insync.racks")
    }

    /// `quorate.min.insync.racks`, for `replicas` with their racks.
    pub fn racks<'a>(
        &self,
        replicas: &[NodeId],
        rack: impl Fn(NodeId) -> Option<&'a str>,
    ) -> Racks {
        let min = usize::try_from(self.number("quorate.min.insync.racks")).unwrap_or(usize::MAX);
        let named = replicas.iter().filter_map(|node| Some((*node, rack(*node)?.to_owned())));
        Racks::new(min, named)
    }

    /// What the replicas of a partition of this topic act on.
    pub fn partition_config<'a>(
        &self,
        assignment: &Assignment,
        rack: impl Fn(NodeId) -> Option<&'a str>,
    ) -> PartitionConfig {
        let replicas = assignment.copies();
        PartitionConfig {
            retention_time: self.bounded("retention.ms").map(Duration::from_millis),
            retention_bytes: self.bounded("retention.bytes"),
            delete: self.has("cleanup.policy", "delete"),
            compact: self.has("cleanup.policy", "compact"),
            cleanable_share: self.share("min.cleanable.dirty.ratio"),
            compaction_lag_min: Duration::from_millis(
                self.bounded("min.compaction.lag.ms").unwrap_or(0),
            ),
            compaction_lag_max: self.compaction_lag_max(),
            tombstone_time: Duration::from_millis(self.bounded("delete.retention.ms").unwrap_or(0)),
            segment_bytes_max: self.bounded("segment.bytes").unwrap_or(u64::MAX),
            segment_time_max: self.segment_time_max(),
            log_append_time: self.value("message.timestamp.type") == "LogAppendTime",
            flush: self.flush(),
            in_sync_min: u16::try_from(self.min_insync_replicas(replicas)).unwrap_or(u16::MAX),
            racks: self.racks(&assignment.replicas, rack),
        }
    }

    /// `quorate.flush`.
    pub fn flush(&self) -> Flush {
        if self.value("quorate.flush") == "replicated" { Flush::Replicated } else { Flush::Durable }
    }

    /// `compression.type`: the codec in which batches are kept; `None` for that of the producer.
    pub fn kept_codec(&self) -> Option<Codec> {
        match self.value("compression.type") {
            "uncompressed" => Some(Codec::None),
            name => Codec::from_name(name),
        }
    }

    /// What a producer's batch must keep to. `uncompressed_bytes_max` is the node's bound; `zstd`
    /// says whether the request's version knows that codec.
    pub fn batch_rules(&self, now: Timestamp, uncompressed_bytes_max: usize, zstd: bool) -> Rules {
        let bound = |name| {
            let millis = self.bounded(name)?;
            (millis < i64::MAX as u64).then(|| Duration::from_millis(millis))
        };
        Rules {
            now,
            batch_bytes_max: self.batch_bytes_max(),
            uncompressed_bytes_max,
            compact: self.has("cleanup.policy", "compact"),
            log_append_time: self.value("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max: bound("message.timestamp.before.max.ms"),
            timestamp_after_max: bound("message.timestamp.after.max.ms"),
            zstd,
        }
    }
}

/// The items of a list as Kafka writes it: by commas, blanks around them do not count.
pub fn list_items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn unknown(name: &str) -> InvalidSetting {
    let nearest = TOPIC_SETTINGS.iter().min_by_key(|setting| distance(setting.name, name));
    let hint = match nearest {
        Some(setting) if distance(setting.name, name) <= 1 + name.len() / 3 => {
            format!(". Did you mean {}?", setting.name)
        }
        _ => String::new(),
    };
    invalid(format!("Unknown topic config name: {name}{hint}"))
}

/// Edits that make one name of the other (Levenshtein). Names above 100 bytes are never near.
pub fn distance(left: &str, right: &str) -> usize {
    if left.len() > 100 || right.len() > 100 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, one) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (place, other) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(one != other);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(row[place] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(configs: &mut TopicConfigs, name: &str, value: &str) -> Result<(), InvalidSetting> {
        configs.change(name, &Change::Set(value.to_owned()))
    }

    #[test]
    fn every_default_is_valid_and_every_name_is_there_once() {
        for (place, setting) in TOPIC_SETTINGS.iter().enumerate() {
            assert_eq!(setting.check(setting.default), Ok(()), "{}", setting.name);
            let next = TOPIC_SETTINGS.get(place + 1);
            assert!(next.is_none_or(|next| setting.name < next.name), "{}", setting.name);
            assert!(setting.doc.ends_with('.'), "{}", setting.name);
        }
    }

    #[test]
    fn defaults_keep_the_promise() {
        let configs = TopicConfigs::default();
        assert_eq!(configs.flush(), Flush::Durable);
        assert_eq!(configs.min_insync_replicas(1), 1);
        assert_eq!(configs.min_insync_replicas(3), 2);
        let alone = Assignment { replicas: vec![NodeId(1)], ..Assignment::default() };
        let config = configs.partition_config(&alone, |_| Some("a"));
        assert_eq!(config, PartitionConfig::default());
        assert_eq!(config.retention_time, Some(Duration::from_secs(7 * 24 * 3600)));
        assert_eq!((config.retention_bytes, config.delete, config.compact), (None, true, false));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let mut configs = TopicConfigs::default();
        let error = set(&mut configs, "retention.mss", "1").unwrap_err();
        assert!(error.reason.ends_with("Did you mean retention.ms?"), "{error}");
        let error = set(&mut configs, "something.else.entirely", "1").unwrap_err();
        assert!(!error.reason.contains("Did you mean"), "{error}");
    }

    #[test]
    fn values_are_held_to_their_bounds() {
        let mut configs = TopicConfigs::default();
        for (name, good, bad) in [
            ("segment.bytes", "1024", "1023"),
            ("segment.bytes", "2147483647", "2147483648"),
            ("retention.ms", "-1", "-2"),
            ("max.message.bytes", "0", "-1"),
            ("min.insync.replicas", "1", "0"),
            ("min.cleanable.dirty.ratio", "0.5", "1.01"),
            ("min.cleanable.dirty.ratio", "1", "-0.1"),
            ("min.cleanable.dirty.ratio", "0", "half"),
            ("cleanup.policy", "compact,delete", "shred"),
            ("message.timestamp.type", "LogAppendTime", "logappendtime"),
            ("quorate.flush", "replicated", "never"),
            ("preallocate", "TRUE", "yes"),
        ] {
            assert_eq!(set(&mut configs, name, good), Ok(()), "{name}={good}");
            assert!(set(&mut configs, name, bad).is_err(), "{name}={bad}");
            assert_eq!(configs.value(name), good);
        }
    }

    #[test]
    fn shares_are_millionths() {
        let mut configs = TopicConfigs::default();
        for (text, millionths) in [
            ("0", 0),
            ("0.5", 500_000),
            (".25", 250_000),
            ("1.0", 1_000_000),
            ("0.1234567", 123_456),
        ] {
            set(&mut configs, "min.cleanable.dirty.ratio", text).unwrap();
            let config = configs.partition_config(&Assignment::default(), |_| None);
            assert_eq!(config.cleanable_share, millionths, "{text}");
        }
        set(&mut configs, "max.compaction.lag.ms", "5000").unwrap();
        let times = |configs: &TopicConfigs| {
            let config = configs.partition_config(&Assignment::default(), |_| None);
            (config.compaction_lag_max.is_some(), config.segment_time_max.as_millis())
        };
        assert_eq!(times(&configs), (true, 604_800_000));
        set(&mut configs, "cleanup.policy", "compact").unwrap();
        assert_eq!(times(&configs), (true, 5_000));
    }

    #[test]
    fn lists_are_edited_and_nothing_else_is() {
        let mut configs = TopicConfigs::default();
        let append = |value: &str| Change::Append(value.to_owned());
        configs.change("cleanup.policy", &append("compact")).unwrap();
        assert_eq!(configs.value("cleanup.policy"), "delete,compact");
        configs.change("cleanup.policy", &append("compact")).unwrap();
        assert_eq!(configs.value("cleanup.policy"), "delete,compact");
        configs.change("cleanup.policy", &Change::Subtract("delete".to_owned())).unwrap();
        assert_eq!(configs.value("cleanup.policy"), "compact");
        assert!(configs.partition_config(&Assignment::default(), |_| None).compact);
        assert!(configs.change("retention.ms", &append("1")).is_err());
        configs.change("cleanup.policy", &Change::Delete).unwrap();
        assert!(!configs.is_given("cleanup.policy"));
    }
}
