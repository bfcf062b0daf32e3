//! The operator of several nodes in the world of cores: asks for the plan's topics until all are
//! there.

use std::time::Duration;

use quorate_core::controller::interface::{Input, NewTopic};
use quorate_core::id::RequestId;

use super::asks::Purpose;
use super::{Cluster, Event};
use crate::plan::text::Value as _;
use crate::plan::{Plan, Topic};

/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);
/// How long it asks.
const ASKING: Duration = Duration::from_secs(2);

impl Cluster {
    pub(super) fn operate(&mut self) {
        let place = self.inbox.below(self.nodes.len() as u64) as usize;
        let all = (0..self.nodes.len()).map(|n| (place + n) % self.nodes.len());
        let Some(n) = all.into_iter().find(|n| self.nodes[*n].serves()) else {
            self.agenda.after(LOOK, Event::Operate);
            return;
        };
        let image = &self.nodes[n].keeper.image;
        let topics = (0..).zip(&self.plan.topics);
        let missing = topics.filter(|(place, _)| image.topic_named(&format!("t{place}")).is_none());
        let missing: Vec<NewTopic> =
            missing.map(|(place, topic): (u32, _)| new_topic(&self.plan, place, topic)).collect();
        if missing.is_empty() {
            return;
        }
        let there = image.nodes().filter(|node| !node.fenced).count();
        if there >= self.plan.cluster.replication as usize {
            let input = Input::CreateTopics {
                request: RequestId(0),
                topics: missing,
                validate_only: false,
            };
            self.ask(n, Purpose::Operate, ASKING, input);
        }
        self.agenda.after(LOOK, Event::Operate);
    }
}

fn new_topic(plan: &Plan, place: u32, topic: &Topic) -> NewTopic {
    let time = if topic.log_append_time { "LogAppendTime" } else { "CreateTime" };
    let millis = |time: Duration| time.as_millis() as u64;
    let settings = [
        ("segment.bytes", topic.segment_bytes.to_string()),
        ("segment.ms", topic.segment_time.as_millis().to_string()),
        ("quorate.flush", topic.flush.print()),
        ("message.timestamp.type", time.to_owned()),
        ("retention.ms", kept(topic.retention_time.map(millis))),
        ("retention.bytes", kept(topic.retention_bytes)),
        ("min.insync.replicas", plan.cluster.in_sync_min.to_string()),
    ];
    NewTopic {
        name: format!("t{place}"),
        partitions: Some(topic.partitions as i32),
        replication: Some(plan.cluster.replication as i16),
        configs: settings.map(|(name, value)| (name.to_owned(), Some(value))).to_vec(),
        ..NewTopic::default()
    }
}

/// How Kafka writes a bound; -1 is none.
fn kept(bound: Option<u64>) -> String {
    bound.map_or_else(|| "-1".to_owned(), |bound| bound.to_string())
}
