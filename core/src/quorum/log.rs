//! The replicated log as a node holds it in memory: the entries behind a base, and which
//! configuration counts at each place. It decides nothing and never goes below its base.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::configuration::Configuration;
use super::identity::{Index, Position, Term};

/// One decision of the quorum, or one of its own marks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub index: Index,
    /// The leader of this term wrote it.
    pub term: Term,
    pub payload: Payload,
}

/// New kinds go to the end: the place is the kind's number on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// The application's; the quorum does not look inside.
    Data(#[serde(with = "super::opaque")] Bytes),
    /// Who votes from here on.
    Configuration(Configuration),
    /// The first entry of a leader: with it, everything before it is committed. Raft §8.
    LeaderChange,
}

impl Entry {
    pub const fn position(&self) -> Position {
        Position::new(self.index, self.term)
    }

    /// What it counts against limits: its payload and a little for what is around it.
    pub fn bytes(&self) -> u64 {
        const AROUND: usize = 32;
        let payload = match &self.payload {
            Payload::Data(data) => data.len(),
            Payload::Configuration(configuration) => {
                (configuration.voters.len() + configuration.kept.len()) * 20 + 16
            }
            Payload::LeaderChange => 0,
        };
        (payload + AROUND) as u64
    }
}

/// The entries behind `base`, without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The last entry that is not here any more; a snapshot covers it.
    base: Position,
    entries: VecDeque<Entry>,
    /// By the index from which it counts; the first is the base's or the snapshot's.
    configurations: BTreeMap<Index, Configuration>,
    bytes: u64,
}

impl Log {
    /// A log of nothing but the knowledge that `configuration` counted at `base`.
    pub fn new(base: Position, configuration: Option<(Index, Configuration)>) -> Self {
        Self { base, configurations: configuration.into_iter().collect(), ..Self::default() }
    }

    pub const fn base(&self) -> Position {
        self.base
    }

    /// The last entry; the base if there are none.
    pub fn last(&self) -> Position {
        self.entries.back().map_or(self.base, Entry::position)
    }

    /// Bytes of all entries here.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub fn entry(&self, index: Index) -> Option<&Entry> {
        self.entries.get(self.place(index)?)
    }

    /// Which term wrote the entry at `index`; `None` below the base and beyond the end.
    pub fn term(&self, index: Index) -> Option<Term> {
        if index == self.base.index {
            return Some(self.base.term);
        }
        self.entry(index).map(|entry| entry.term)
    }

    /// Whether this very entry is here, or the base.
    pub fn has(&self, position: Position) -> bool {
        self.term(position.index) == Some(position.term)
    }

    /// Entries from `from` on, up to `through`, of at most `bytes_max` in all, but at least one.
    pub fn slice(&self, from: Index, through: Index, bytes_max: u64) -> Vec<Entry> {
        let Some(start) = self.place(from) else { return Vec::new() };
        let mut bytes = 0;
        let mut entries = Vec::new();
        for entry in self.entries.range(start..).take_while(|entry| entry.index <= through) {
            bytes += entry.bytes();
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        entries
    }

    /// Bytes of the entries behind `index`.
    pub fn bytes_behind(&self, index: Index) -> u64 {
        let start = self.place(index.next()).unwrap_or(self.entries.len());
        self.entries.range(start..).map(Entry::bytes).sum()
    }

    /// The last position whose index is at most `limit.index` and whose term is at most
    /// `limit.term`: where two logs may still agree, term by term rather than entry by entry.
    /// The base if there is none here.
    pub fn last_within(&self, limit: Position) -> Position {
        let end = limit.index.min(self.last().index);
        if end <= self.base.index {
            return self.base;
        }
        let count = usize::try_from(end.0 - self.base.index.0).unwrap_or(usize::MAX);
        // Terms never fall along a log.
        let (front, back) = self.entries.as_slices();
        let behind = count.saturating_sub(front.len());
        let within = |entry: &Entry| entry.term <= limit.term;
        let fit = back[..behind.min(back.len())].partition_point(within);
        let fit = match fit {
            0 => front[..count.min(front.len())].partition_point(within),
            fit => front.len() + fit,
        };
        fit.checked_sub(1).map_or(self.base, |place| self.entries[place].position())
    }

    /// Who votes, by the last word in the log, committed or not.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.configurations.values().next_back()
    }

    /// Where the last configuration stands.
    pub fn configuration_index(&self) -> Index {
        self.configurations.keys().next_back().copied().unwrap_or_default()
    }

    /// Who voted at `index`.
    pub fn configuration_at(&self, index: Index) -> Option<&Configuration> {
        self.configurations.range(..=index).next_back().map(|(_, configuration)| configuration)
    }

    /// Who votes at `committed`, and by every entry behind it.
    pub fn configurations_from(&self, committed: Index) -> impl Iterator<Item = &Configuration> {
        let before = self.configurations.range(..=committed).next_back();
        let first = before.map_or(committed, |(index, _)| *index);
        self.configurations.range(first..).map(|(_, configuration)| configuration)
    }

    /// Puts `entry` behind the last one; panics if there would be a gap or a term would fall.
    pub fn push(&mut self, entry: Entry) {
        let last = self.last();
        assert!(
            entry.index == last.index.next() && entry.term >= last.term,
            "{} cannot follow {last}",
            entry.position()
        );
        if let Payload::Configuration(configuration) = &entry.payload {
            self.configurations.insert(entry.index, configuration.clone());
        }
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
    }

    /// Cuts everything behind `after`; the configuration before the cut counts again.
    pub fn truncate(&mut self, after: Index) {
        assert!(after >= self.base.index, "{after} is below the base {}", self.base);
        while self.entries.back().is_some_and(|entry| entry.index > after) {
            self.bytes -= self.entries.pop_back().map_or(0, |entry| entry.bytes());
        }
        // zoo C14: what was cut must not count.
        if !crate::mutant!("config-not-reverted-on-truncate") {
            self.configurations.split_off(&after.next());
        }
    }

    /// Forgets the entries up to `through`, which a snapshot covers.
    pub fn forget(&mut self, through: Index) {
        let through = through.min(self.last().index);
        while self.entries.front().is_some_and(|entry| entry.index <= through) {
            if let Some(entry) = self.entries.pop_front() {
                self.bytes -= entry.bytes();
                self.base = entry.position();
            }
        }
    }

    /// Forgets configurations that no cut can bring back: those before the one of `committed`.
    pub fn settle(&mut self, committed: Index) {
        if let Some((index, _)) = self.configurations.range(..=committed).next_back() {
            self.configurations = self.configurations.split_off(&index.clone());
        }
    }

    pub fn check(&self) {
        let mut before = self.base;
        for entry in &self.entries {
            assert_eq!(entry.index, before.index.next(), "a gap behind {before}");
            assert!(entry.term >= before.term, "a term falls at {}", entry.position());
            before = entry.position();
        }
        assert_eq!(self.bytes, self.entries.iter().map(Entry::bytes).sum::<u64>());
        let last = self.last().index;
        assert!(self.configurations.keys().all(|index| *index <= last), "a ghost configuration");
        for entry in &self.entries {
            if let Payload::Configuration(configuration) = &entry.payload {
                let first = self.configurations.keys().next();
                let known = self.configurations.get(&entry.index);
                assert!(
                    known == Some(configuration) || first.is_some_and(|first| entry.index < *first),
                    "the configuration at {} is not known",
                    entry.index
                );
            }
        }
    }

    fn place(&self, index: Index) -> Option<usize> {
        let place = index.0.checked_sub(self.base.index.0 + 1)?;
        usize::try_from(place).ok().filter(|place| *place < self.entries.len())
    }
}
