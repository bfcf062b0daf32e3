//! Follows the metadata log on one node: opens the logs of which the node keeps a copy, drops those
//! that it keeps no more, and tells replicas who leads. A thin version of the node's own keeper.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use quorate_core::id::{LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, PartitionId, TopicId};
use quorate_core::metadata::config::TopicConfigs;
use quorate_core::metadata::topic::{OFFSETS_TOPIC, TRANSACTIONS_TOPIC};
use quorate_core::metadata::{ConfigResource, Image, Record, Topic};
use quorate_core::partition::interface::{Input as ForReplica, PartitionConfig};
use quorate_core::shard::interface::{Input, Open, Role};
use quorate_core::shard::topics::Told;

use super::{Cluster, Event};

/// Between a commit and what the node does about it.
const DELAY_MICROS: u64 = 500;
/// Now and then it takes long.
const SLOW_MICROS: u64 = 50_000;

/// What was committed, or all of it anew.
struct Stretch {
    is_restored: bool,
    records: Vec<Record>,
}

/// What a replica was told.
struct Shown {
    epochs: (LeaderEpoch, PartitionEpoch),
    config: PartitionConfig,
}

#[derive(Default)]
pub(super) struct Keeper {
    /// What the node knows of the cluster, and shows to requests.
    pub(super) image: Image,
    touched: BTreeSet<TopicId>,
    pub(super) registered: Option<NodeEpoch>,
    /// The image holds this life's registration, and so all that was decided before it.
    pub(super) is_current: bool,
    open: BTreeMap<PartitionId, Shown>,
    /// What coordinators of groups were told of the topics.
    told: Told,
    news: VecDeque<Stretch>,
    is_planned: bool,
}

impl Keeper {
    /// Which nodes count as there again.
    fn take(&mut self) -> Vec<NodeId> {
        let mut unfenced = Vec::new();
        for Stretch { is_restored, records } in std::mem::take(&mut self.news) {
            if is_restored {
                let before = std::mem::take(&mut self.image);
                self.touched.extend(before.topics_by_id().map(|topic| topic.id));
            }
            for record in &records {
                self.image.apply(record);
                self.touched.extend(topic_of(record));
                if let Record::NodeUnfenced { node, .. } = record {
                    unfenced.push(*node);
                }
            }
        }
        let next = self.image.next_node_epoch();
        self.is_current |= self.registered.is_some_and(|epoch| next > epoch);
        unfenced
    }

    pub(super) fn open_partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.open.keys().copied()
    }
}

impl Cluster {
    /// The seat has committed these, or says what all that was committed adds up to.
    pub(super) fn news(&mut self, n: usize, is_restored: bool, records: Vec<Record>) {
        self.nodes[n].keeper.news.push_back(Stretch { is_restored, records });
        self.wake_keeper(n);
    }

    pub(super) fn wake_keeper(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if std::mem::replace(&mut node.keeper.is_planned, true) {
            return;
        }
        let slow = self.inbox.one_in(64);
        let delay = self.inbox.below(if slow { SLOW_MICROS } else { DELAY_MICROS });
        let life = node.life;
        self.agenda.after(Duration::from_micros(delay), Event::News { n, life });
    }

    pub(super) fn on_news(&mut self, n: usize) {
        let keeper = &mut self.nodes[n].keeper;
        keeper.is_planned = false;
        let was_current = keeper.is_current;
        let unfenced = keeper.take();
        if keeper.is_current {
            let touched = std::mem::take(&mut self.nodes[n].keeper.touched);
            for topic in &touched {
                self.keep_topic(n, *topic);
            }
            // Groups share out anew when topics come, grow or go.
            let keeper = &mut self.nodes[n].keeper;
            if !self.plan.groups.is_empty()
                && let Some(news) = keeper.told.news(&keeper.image, &touched)
            {
                self.tell(n, Input::Topics(news));
            }
            if !was_current {
                self.remove_strays(n);
            }
            // Leaders need not wait any more for those that were not there.
            for peer in unfenced {
                self.tell(n, Input::Unfenced { peer });
            }
        }
        self.on_image(n);
    }

    fn keep_topic(&mut self, n: usize, id: TopicId) {
        let image = &self.nodes[n].keeper.image;
        let topic = image.topic(id).cloned();
        let open = self.nodes[n].keeper.open.keys().copied();
        let here: Vec<PartitionId> = open.filter(|partition| partition.topic == id).collect();
        let stays = |partition: &PartitionId| {
            let index = usize::try_from(partition.index).unwrap_or(usize::MAX);
            let assignment = topic.as_ref().and_then(|topic| topic.partitions.get(index));
            assignment.is_some_and(|found| found.replicas.contains(&self.nodes[n].id))
        };
        let gone: Vec<PartitionId> = here.into_iter().filter(|here| !stays(here)).collect();
        for partition in gone {
            self.nodes[n].keeper.open.remove(&partition);
            self.tell(n, Input::Drop { partition });
            self.remove_log(n, partition);
        }
        if let Some(topic) = topic {
            self.serve_topic(n, &topic);
        }
    }

    fn serve_topic(&mut self, n: usize, topic: &Topic) {
        let configs = TopicConfigs::from_stored(&topic.configs);
        for (index, assignment) in (0..).zip(&topic.partitions) {
            let partition = PartitionId { topic: topic.id, index };
            if !assignment.replicas.contains(&self.nodes[n].id) {
                continue;
            }
            let image = &self.nodes[n].keeper.image;
            let rack = |node| image.node(node)?.rack.as_deref();
            let config = configs.partition_config(assignment, rack);
            let epochs = (assignment.leader_epoch, assignment.partition_epoch);
            let shown = Shown { epochs, config: config.clone() };
            let is_compacted = config.compact;
            let Some(before) = self.nodes[n].keeper.open.insert(partition, shown) else {
                let recovered = self.recover(n, partition);
                let log = self.nodes[n].disk.log_mut(partition);
                log.into_iter().for_each(|log| log.is_compacted |= is_compacted);
                let role = role_of(&topic.name);
                let assignment = assignment.clone();
                let open = Open { partition, role, recovered, config, assignment };
                self.tell(n, Input::Open(Box::new(open)));
                let stopping = self.nodes[n].stopping.as_mut();
                if let Some(stop) = stopping.filter(|stop| stop.closing.is_some()) {
                    stop.late.insert(partition);
                }
                continue;
            };
            if before.epochs != epochs {
                let input = ForReplica::Assigned(assignment.clone());
                self.tell(n, Input::Partition { partition, input });
            }
            if before.config != config {
                let input = ForReplica::Configured(config);
                self.tell(n, Input::Partition { partition, input });
            }
        }
    }

    /// Logs that an earlier life left behind, of partitions that are kept elsewhere by now.
    fn remove_strays(&mut self, n: usize) {
        let node = &self.nodes[n];
        let strays: Vec<PartitionId> = node
            .disk
            .logs()
            .map(|(partition, _)| partition)
            .filter(|partition| {
                *partition != PartitionId::METADATA && !node.keeper.open.contains_key(partition)
            })
            .collect();
        for partition in strays {
            self.remove_log(n, partition);
        }
    }
}

/// Whose truth stands in a partition of this topic.
fn role_of(topic: &str) -> Role {
    match topic {
        OFFSETS_TOPIC => Role::Offsets,
        TRANSACTIONS_TOPIC => Role::Transactions,
        _ => Role::Data,
    }
}

const fn topic_of(record: &Record) -> Option<TopicId> {
    match record {
        Record::TopicCreated { topic, .. }
        | Record::PartitionsAdded { topic, .. }
        | Record::TopicDeleted { topic }
        | Record::PartitionsChanged { topic, .. }
        | Record::ConfigsSet { resource: ConfigResource::Topic(topic), .. } => Some(*topic),
        _ => None,
    }
}
