//! Partitions of topics, as members of a group have them, want them, or give them up.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::TopicId;

/// Partitions by topic. No topic stands in it without partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment(BTreeMap<TopicId, BTreeSet<i32>>);

impl Assignment {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many partitions.
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    pub fn insert(&mut self, topic: TopicId, partition: i32) {
        self.0.entry(topic).or_default().insert(partition);
    }

    pub fn contains(&self, topic: TopicId, partition: i32) -> bool {
        self.0.get(&topic).is_some_and(|partitions| partitions.contains(&partition))
    }

    /// Ascending.
    pub fn iter(&self) -> impl Iterator<Item = (TopicId, i32)> + '_ {
        self.0.iter().flat_map(|(&topic, partitions)| {
            partitions.iter().map(move |&partition| (topic, partition))
        })
    }

    /// Ascending by topic; partitions ascend too.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = (TopicId, &BTreeSet<i32>)> {
        self.0.iter().map(|(&topic, partitions)| (topic, partitions))
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        self.iter().all(|(topic, partition)| other.contains(topic, partition))
    }

    pub fn is_disjoint(&self, other: &Self) -> bool {
        !self.iter().any(|(topic, partition)| other.contains(topic, partition))
    }

    /// What stands in both.
    pub fn and(&self, other: &Self) -> Self {
        self.iter().filter(|&(topic, partition)| other.contains(topic, partition)).collect()
    }

    /// What stands here and not in `other`.
    pub fn minus(&self, other: &Self) -> Self {
        self.iter().filter(|&(topic, partition)| !other.contains(topic, partition)).collect()
    }
}

impl FromIterator<(TopicId, i32)> for Assignment {
    fn from_iter<I: IntoIterator<Item = (TopicId, i32)>>(partitions: I) -> Self {
        let mut all = Self::default();
        all.extend(partitions);
        all
    }
}

impl Extend<(TopicId, i32)> for Assignment {
    fn extend<I: IntoIterator<Item = (TopicId, i32)>>(&mut self, partitions: I) {
        for (topic, partition) in partitions {
            self.insert(topic, partition);
        }
    }
}
