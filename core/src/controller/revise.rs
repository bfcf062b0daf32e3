//! Revisions of assignments become decisions: each is made from all that was decided before it.

use super::Controller;
use super::election::Revision;
use crate::id::{PartitionId, TopicId};
use crate::metadata::config::TopicConfigs;
use crate::metadata::{Placement, Record};
use crate::mutant;
use crate::partition::interface::Assignment;

impl Controller {
    /// Revises those partitions that `wants`, until `limit` of them have changed; one record a
    /// topic. How many have changed.
    pub(super) fn revise(
        &mut self,
        limit: usize,
        wants: impl Fn(&Assignment) -> bool,
        act: impl Fn(&mut Revision<'_>, &Assignment),
    ) -> usize {
        // zoo B31: from an image that is older than the last decision.
        let image = match mutant!("concurrent-expiry-lost-update") {
            true => &self.committed,
            false => &self.decided,
        };
        let mut left = limit;
        let mut records: Vec<(TopicId, Vec<(u32, Placement)>)> = Vec::new();
        for topic in image.topics_by_id() {
            let mut configs = None;
            let mut changed = Vec::new();
            for (index, before) in (0..).zip(&topic.partitions) {
                if left == 0 {
                    break;
                }
                if !wants(before) {
                    continue;
                }
                let configs =
                    configs.get_or_insert_with(|| TopicConfigs::from_stored(&topic.configs));
                let index_of = i32::try_from(index).expect("within topic_partitions_max");
                let id = PartitionId { topic: topic.id, index: index_of };
                let mut revision = Revision::new(image, configs, id, before);
                act(&mut revision, before);
                if let Some(next) = revision.finish() {
                    changed.push((index, next.into()));
                    left -= 1;
                }
            }
            if !changed.is_empty() {
                records.push((topic.id, changed));
            }
        }
        for (topic, partitions) in records {
            self.push(Record::PartitionsChanged { topic, partitions });
        }
        limit - left
    }

    /// Whether the partition changed.
    pub(super) fn revise_one(
        &mut self,
        id: PartitionId,
        act: impl FnOnce(&mut Revision<'_>),
    ) -> bool {
        let record = self.revised(id, act);
        let changes = record.is_some();
        record.into_iter().for_each(|record| self.push(record));
        changes
    }

    fn revised(&self, id: PartitionId, act: impl FnOnce(&mut Revision<'_>)) -> Option<Record> {
        let topic = self.decided.topic(id.topic)?;
        let before = self.decided.partition(id)?;
        let configs = TopicConfigs::from_stored(&topic.configs);
        let mut revision = Revision::new(&self.decided, &configs, id, before);
        act(&mut revision);
        let next = revision.finish()?;
        let index = u32::try_from(id.index).ok()?;
        Some(Record::PartitionsChanged { topic: id.topic, partitions: vec![(index, next.into())] })
    }
}
