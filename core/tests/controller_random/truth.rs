//! What the metadata log says, record by record, and what no record may ever do.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::id::{LeaderEpoch, NodeId, PartitionId, TopicId};
use quorate_core::metadata::config::TopicConfigs;
use quorate_core::metadata::{Image, Record, Wish};
use quorate_core::partition::interface::Assignment;

/// The fold of the log, and the records that each replica has, counted.
#[derive(Default)]
pub(crate) struct Truth {
    pub(crate) image: Image,
    pub(crate) created: BTreeSet<TopicId>,
    leaders: BTreeMap<(PartitionId, LeaderEpoch), Option<NodeId>>,
    pub(crate) committed: BTreeMap<PartitionId, u64>,
    pub(crate) has: BTreeMap<(PartitionId, NodeId), u64>,
    /// A human may lose records here.
    pub(crate) unclean: BTreeSet<PartitionId>,
}

impl Truth {
    /// One append, which all see at once.
    pub(crate) fn apply(&mut self, records: &[Record]) {
        let mut changes = Vec::new();
        for record in records {
            let before = match record {
                Record::PartitionsChanged { topic, partitions } => {
                    let id = |index: &u32| PartitionId {
                        topic: *topic,
                        index: i32::try_from(*index).expect("small"),
                    };
                    let ids = partitions.iter().map(|(index, _)| id(index));
                    ids.filter_map(|id| Some((id, self.image.partition(id)?.clone()))).collect()
                }
                _ => Vec::new(),
            };
            if let Record::TopicCreated { topic, .. } = record {
                self.created.insert(*topic);
            }
            self.image.apply(record);
            for (id, before) in before {
                let after = self.image.partition(id).expect("it is there").clone();
                self.check_change(id, &before, &after);
                changes.push((id, before, after));
            }
        }
        for (id, before, after) in changes {
            self.check_leavers(id, &before, &after);
        }
        for (id, partition) in self.image.partitions() {
            check_shape(&self.image, id, partition);
        }
    }

    /// A leader that is there has every committed record. One that is not may be elected: what it
    /// lost since is known when it registers again.
    pub(crate) fn check_leaders(&self, is_present: impl Fn(NodeId) -> bool) {
        for (id, partition) in self.image.partitions() {
            if let Some(leader) = partition.leader.filter(|leader| is_present(*leader)) {
                let has = self.has.get(&(id, leader)).copied().unwrap_or(0);
                let committed = self.committed.get(&id).copied().unwrap_or(0);
                assert!(has >= committed, "{has} of {committed} records: {id} {partition:?}");
            }
        }
    }

    /// A copy that has all that is committed, and counted for it, goes only if enough of those that
    /// stay are in sync, or all of them.
    fn check_leavers(&self, id: PartitionId, before: &Assignment, after: &Assignment) {
        let Some(topic) = self.image.topic(id.topic) else { return };
        let min = TopicConfigs::from_stored(&topic.configs).min_insync_replicas(after.copies());
        if after.in_sync.len() >= min.min(after.replicas.len()) {
            return;
        }
        let committed = self.committed.get(&id).copied().unwrap_or(0).max(1);
        let members = before.in_sync.iter().chain(&before.eligible);
        for node in members.filter(|node| !after.replicas.contains(node)) {
            let has = self.has.get(&(id, *node)).copied().unwrap_or(0);
            assert!(has < committed, "n{node} is needed: {id}\n{before:?}\n{after:?}");
        }
    }

    fn check_change(&mut self, id: PartitionId, before: &Assignment, after: &Assignment) {
        let change = || format!("{id}\n{before:?}\n{after:?}");
        assert_eq!(after.partition_epoch.0, before.partition_epoch.0 + 1, "{}", change());
        let moved = i32::from(before.leader != after.leader);
        // Who goes may be back before it knows: what it says of its old copy is of an old epoch.
        let stays = |node: &NodeId| after.replicas.contains(node);
        let goes = after.leader.is_some() && !before.replicas.iter().all(stays);
        let rises = i32::from(moved == 1 || goes);
        assert_eq!(after.leader_epoch.0, before.leader_epoch.0 + rises, "{}", change());
        let leader = self.leaders.entry((id, after.leader_epoch)).or_insert(after.leader);
        assert_eq!(*leader, after.leader, "one leader an epoch: {}", change());
        for node in after.in_sync.iter().filter(|node| !before.in_sync.contains(node)) {
            let wish = self.image.node(*node).map(|node| node.wish);
            let elected = after.leader == Some(*node);
            assert!(elected || wish != Some(Wish::Stop), "stopping and in sync: {}", change());
        }
        if before.is_reassigning() && !after.is_reassigning() {
            let taken_back = after.replicas.len() == before.copies()
                && after.replicas.iter().all(|node| !before.adding.contains(node));
            let all = after.replicas.iter().all(|node| after.in_sync.contains(node));
            assert!(taken_back || all, "completed early (C9): {}", change());
        }
        if let Some(leader) = after.leader.filter(|_| moved == 1) {
            let has = self.has.get(&(id, leader)).copied().unwrap_or(0);
            let committed = self.committed.entry(id).or_default();
            if self.unclean.remove(&id) {
                *committed = (*committed).min(has);
            }
        }
    }
}

fn check_shape(image: &Image, id: PartitionId, partition: &Assignment) {
    let within = |nodes: &[NodeId]| nodes.iter().all(|node| partition.replicas.contains(node));
    let Assignment { leader, in_sync, eligible, adding, removing, .. } = partition;
    assert!(within(in_sync) && within(eligible), "{id} {partition:?}");
    assert!(within(adding) && within(removing), "{id} {partition:?}");
    assert!(in_sync.iter().all(|node| !eligible.contains(node)), "{id} {partition:?}");
    assert_eq!(leader.is_none(), in_sync.is_empty(), "{id} {partition:?}");
    assert!(leader.is_none_or(|leader| in_sync.contains(&leader)), "{id} {partition:?}");
    for node in in_sync {
        let live = image.node(*node).is_some_and(|node| node.is_live());
        assert!(live, "{node} is in sync and fenced: {id} {partition:?}");
    }
}

/// An image tells everything that matters of how it came to be.
pub(crate) fn check_records(image: &Image) {
    let mut rebuilt = Image::default();
    image.to_records().iter().for_each(|record| rebuilt.apply(record));
    assert_eq!(rebuilt, *image, "an image is what its records add up to");
}
