//! Before the workload: the plan's topics are created, whatever strikes meanwhile.

use std::io;
use std::time::Duration;

use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::CreateTopicsRequest;
use quorate_net::kafka::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use quorate_net::wire::Text;

use super::super::client::{Link, within};
use super::Scene;
use crate::history::transactions;
use crate::plan::text::Value as _;
use crate::plan::{Flush, Plan, Topic};

/// Creates all topics; returns once each exists.
pub async fn create_topics(scene: &Scene, client: u32) {
    let request = request(&scene.plan);
    loop {
        if let Some(mut link) = scene.connect(client).await {
            match attempt(scene, &mut link, &request).await {
                Ok(()) => {
                    scene.stage.done(client);
                    return;
                }
                Err(error) => scene.stage.note(client, format!("cannot create topics: {error}")),
            }
        }
        scene.clock.sleep(Duration::from_millis(50)).await;
    }
}

async fn attempt(scene: &Scene, link: &mut Link, request: &CreateTopicsRequest) -> io::Result<()> {
    let timeout = scene.timeout();
    let response = within(&*scene.clock, timeout, link.call(5, request)).await?;
    let done = [Code::None.code(), Code::TopicAlreadyExists.code()];
    match response.topics.iter().find(|topic| !done.contains(&topic.error_code)) {
        None if response.topics.len() == request.topics.len() => Ok(()),
        None => Err(io::Error::other("topics are missing in the response")),
        Some(topic) => {
            let message = topic.error_message.as_ref().map_or("", Text::as_str);
            let name = topic.name.as_str();
            Err(io::Error::other(format!("{name}: error {} {message}", topic.error_code)))
        }
    }
}

fn request(plan: &Plan) -> CreateTopicsRequest {
    let topics = (0..).zip(&plan.topics).map(|(place, topic): (u32, &Topic)| CreatableTopic {
        name: Text::from(format!("t{place}")),
        num_partitions: topic.partitions as i32,
        replication_factor: plan.cluster.replication as i16,
        configs: configs(plan, topic),
        ..Default::default()
    });
    let topics = topics.chain(transactional(plan)).collect();
    let timeout_ms = plan.workload.timeout.as_millis() as i32;
    CreateTopicsRequest { topics, timeout_ms, ..Default::default() }
}

/// The topics of transactions: nothing is deleted in them, and nothing but a client's word counts.
fn transactional(plan: &Plan) -> impl Iterator<Item = CreatableTopic> {
    let named = plan.transactions.iter().flat_map(|it| {
        [transactions::Topic::Input, transactions::Topic::Output]
            .map(|topic| plain(plan, Text::from_static(topic.name()), it.partitions))
    });
    named.collect::<Vec<_>>().into_iter()
}

/// A topic in which nothing is deleted by age or size, nor compacted.
pub(super) fn plain(plan: &Plan, name: Text, partitions: u32) -> CreatableTopic {
    let first = plan.topics.first().expect("a plan has topics").clone();
    let topic = Topic {
        flush: Flush::Durable,
        log_append_time: false,
        retention_bytes: None,
        retention_time: None,
        compact: false,
        ..first
    };
    CreatableTopic {
        name,
        num_partitions: partitions as i32,
        replication_factor: plan.cluster.replication as i16,
        configs: configs(plan, &topic),
        ..Default::default()
    }
}

/// How Kafka writes a bound; -1 is none.
fn kept(bound: Option<u64>) -> String {
    bound.map_or_else(|| "-1".to_owned(), |bound| bound.to_string())
}

fn configs(plan: &Plan, topic: &Topic) -> Vec<CreatableTopicConfig> {
    let time = if topic.log_append_time { "LogAppendTime" } else { "CreateTime" };
    let settings = [
        ("segment.bytes", topic.segment_bytes.to_string()),
        ("segment.ms", topic.segment_time.as_millis().to_string()),
        ("quorate.flush", topic.flush.print()),
        ("message.timestamp.type", time.to_owned()),
        ("retention.ms", kept(topic.retention_time.map(|time| time.as_millis() as u64))),
        ("retention.bytes", kept(topic.retention_bytes)),
    ];
    let policy = if topic.retention_bytes.is_some() || topic.retention_time.is_some() {
        "compact,delete"
    } else {
        "compact"
    };
    let share = topic.cleanable.hits * 100 / topic.cleanable.of.max(1);
    let compacted = [
        ("cleanup.policy", policy.to_owned()),
        ("min.cleanable.dirty.ratio", format!("0.{share:02}")),
    ];
    let compacted = compacted.into_iter().filter(|_| topic.compact);
    let config = |(name, value)| CreatableTopicConfig {
        name: Text::from_static(name),
        value: Some(Text::from(value)),
    };
    let mut configs: Vec<_> = settings.into_iter().chain(compacted).map(config).collect();
    if plan.cluster.nodes > 1 {
        configs.push(config(("min.insync.replicas", plan.cluster.in_sync_min.to_string())));
    }
    configs
}
