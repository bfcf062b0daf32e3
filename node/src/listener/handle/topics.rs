//! CreateTopics, DeleteTopics, CreatePartitions: asked of the controller, answered once this node
//! serves what was decided.

use std::sync::Arc;

use futures_util::future::{Either, select};
use quorate_core::controller::REPLICATION_GOAL;
use quorate_core::controller::interface::{
    CreatedTopic, Input, MorePartitions, NewTopic, Outcome, Problem, TopicName,
};
use quorate_core::id::{NodeId, TopicId};
use quorate_core::metadata::Duty;
use quorate_core::metadata::config::{TOPIC_SETTINGS, TopicConfigs};
use quorate_core::quorum::interface::Question;
use quorate_core::time::Instant;
use quorate_core::{metadata, quorum, reached};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::create_partitions::{
    CreatePartitionsTopic, CreatePartitionsTopicResult,
};
use quorate_net::kafka::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult,
};
use quorate_net::kafka::messages::delete_topics::{DeletableTopicResult, DeleteTopicState};
use quorate_net::kafka::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse,
};
use quorate_net::wire::Text;

use super::configs::{SOURCE_DEFAULT, SOURCE_TOPIC};
use crate::catalog::{OFFSETS_TOPIC, State, TRANSACTIONS_TOPIC, Topic};
use crate::driver::ask::Stopped;
use crate::node::Node;

/// The first version of DeleteTopics that may name topics by their ids. KIP-516.
const DELETE_BY_ID: i16 = 6;

/// Waits until this node serves what was decided, or the client's patience is over.
async fn served(node: &Node, until: Instant, holds: impl Fn(&State) -> bool) -> bool {
    let shown = Box::pin(node.catalog.until(holds));
    matches!(select(shown, node.clock.sleep_until(until)).await, Either::Left(_))
}

fn sentence(problem: &Problem) -> Option<Text> {
    Some(problem.message.as_str().into())
}

/// Creates a topic with all defaults, because somebody asked for it. `Err` says why it is not
/// there.
pub(crate) async fn create_one(
    node: &Arc<Node>,
    name: &str,
) -> Result<Result<Arc<Topic>, Code>, Stopped> {
    let own = match name {
        OFFSETS_TOPIC => Some(node.config.group.offsets_partitions),
        TRANSACTIONS_TOPIC => Some(node.config.transaction.state_partitions),
        _ => None,
    };
    let (partitions, configs) = if own.is_some() {
        // As Kafka's `offsets.topic.segment.bytes` and `transaction.state.log.segment.bytes`: what
        // a new coordinator reads is bounded by compaction, and compaction by the active segment.
        let configs = [("cleanup.policy", "compact"), ("segment.bytes", "104857600")];
        let given = |(name, value): (&str, &str)| (name.to_owned(), Some(value.to_owned()));
        (own, configs.map(given).to_vec())
    } else {
        (None, Vec::new())
    };
    let until = node.clock.now().monotonic + node.config.request.produce_wait_max;
    if own.is_some() && is_awaited(node, name, until).await? {
        reached!("coordinators-topic-waits-for-a-voter");
        return Ok(Err(Code::LeaderNotAvailable));
    }
    let topic = NewTopic { name: name.to_owned(), partitions, configs, ..NewTopic::default() };
    let input = |request| {
        let topics = vec![topic.clone()];
        Input::CreateTopics { request, topics, validate_only: false }
    };
    let outcome = node.controller.ask(until, input).await?;
    let code = match outcome {
        Outcome::TopicsCreated(mut created) => match created.pop() {
            Some((_, Err(problem))) => Code::from(problem.kind),
            _ => Code::None,
        },
        Outcome::Refused(problem) => Code::from(problem.kind),
        other => unreachable!("topics are created, not {other:?}"),
    };
    match code {
        // Somebody else was faster: as good as ours.
        Code::None | Code::TopicAlreadyExists => {}
        // A client asks for metadata again until it has an answer.
        Code::NotController | Code::CoordinatorLoadInProgress => {
            return Ok(Err(Code::LeaderNotAvailable));
        }
        other => return Ok(Err(other)),
    }
    served(node, until, |state| state.topic_named(name).is_some()).await;
    Ok(node.catalog.topic_named(name).ok_or(Code::LeaderNotAvailable))
}

/// Whether a topic of coordinators waits for a voter. It is created once, with as many copies as
/// there are nodes for: beside a voter that was late it had two, of which one may acknowledge, and
/// what groups had committed was gone with that one's disk (as KAFKA-3959).
async fn is_awaited(node: &Node, topic: &str, until: Instant) -> Result<bool, Stopped> {
    let wanted = usize::try_from(node.config.topic.replication).unwrap_or(0);
    let wanted = if wanted == 0 { REPLICATION_GOAL } else { wanted };
    let has_enough = || {
        let state = node.catalog.read();
        // As the controller counts places: who leaves for good has none.
        let stays = |known: &metadata::Node| known.roles.broker && known.duty != Duty::Leave;
        state.image.nodes().filter(|known| stays(known)).count() >= wanted
    };
    if !node.config.is_cluster() || has_enough() {
        return Ok(false);
    }
    let found = node.controller.ask_quorum(until, Question::Describe).await?;
    // Who votes is not known, and a controller may be found the next moment.
    let quorum::interface::Outcome::Described(status) = found else { return Ok(true) };
    let state = node.catalog.read();
    let mut voters = status.configuration.voters.iter().map(|voter| voter.node);
    let missing = voters.find(|voter| state.image.node(*voter).is_none());
    if let Some(voter) = missing {
        tracing::debug!(%voter, topic, "not created before this voter was here once");
    }
    Ok(missing.is_some())
}

pub(crate) async fn create_topics(
    node: &Arc<Node>,
    request: CreateTopicsRequest,
) -> Result<CreateTopicsResponse, Stopped> {
    let until = node.clock.now().monotonic
        + node.patience(request.timeout_ms, node.config.request.produce_wait_max);
    let validate_only = request.validate_only;
    let names: Vec<Text> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let (topics, problems) = new_topics(request.topics);
    let input = |request| Input::CreateTopics { request, topics: topics.clone(), validate_only };
    let outcome = node.controller.ask(until, input).await?;
    let mut created = match outcome {
        Outcome::TopicsCreated(created) => created,
        Outcome::Refused(problem) => {
            let topics = names.into_iter().map(|name| create_failure(name, &problem)).collect();
            return Ok(CreateTopicsResponse { topics, ..CreateTopicsResponse::default() });
        }
        other => unreachable!("topics are created, not {other:?}"),
    };
    let wait_for: Vec<TopicId> =
        created.iter().filter_map(|(_, done)| done.as_ref().ok().map(|topic| topic.id)).collect();
    if !validate_only {
        served(node, until, |state| wait_for.iter().all(|id| state.topic(*id).is_some())).await;
    }
    // In the order of the request, those that never came to the controller among them.
    let mut topics: Vec<CreatableTopicResult> = Vec::with_capacity(names.len());
    created.reverse();
    for (name, problem) in names.into_iter().zip(problems) {
        topics.push(match problem {
            Some(message) => CreatableTopicResult {
                name,
                error_code: Code::InvalidRequest.code(),
                error_message: Some(message.into()),
                ..CreatableTopicResult::default()
            },
            None => match created.pop() {
                Some((_, Ok(topic))) => create_success(name, &topic),
                Some((_, Err(problem))) => create_failure(name, &problem),
                None => unreachable!("the controller answers each topic"),
            },
        });
    }
    Ok(CreateTopicsResponse { topics, ..CreateTopicsResponse::default() })
}

/// The topics for the controller, and for each of the request's what is wrong with its form.
fn new_topics(asked: Vec<CreatableTopic>) -> (Vec<NewTopic>, Vec<Option<&'static str>>) {
    let mut topics = Vec::new();
    let problems = asked.into_iter().map(|topic| match new_topic(topic) {
        Ok(topic) => {
            topics.push(topic);
            None
        }
        Err(problem) => Some(problem),
    });
    let problems = problems.collect();
    (topics, problems)
}

fn new_topic(topic: CreatableTopic) -> Result<NewTopic, &'static str> {
    let mut assignments = std::collections::BTreeMap::new();
    for assignment in topic.assignments {
        let replicas = assignment.broker_ids.into_iter().map(NodeId).collect();
        if assignments.insert(assignment.partition_index, replicas).is_some() {
            return Err("a partition is assigned twice");
        }
    }
    let configs = topic.configs.into_iter();
    Ok(NewTopic {
        name: topic.name.to_string(),
        partitions: (topic.num_partitions != -1).then_some(topic.num_partitions),
        replication: (topic.replication_factor != -1).then_some(topic.replication_factor),
        assignments,
        configs: configs
            .map(|config| (config.name.to_string(), config.value.map(|value| value.to_string())))
            .collect(),
    })
}

fn create_success(name: Text, created: &CreatedTopic) -> CreatableTopicResult {
    let configs = TopicConfigs::from_stored(&created.configs);
    let shown = TOPIC_SETTINGS.iter().map(|setting| CreatableTopicConfigs {
        name: setting.name.into(),
        value: Some(configs.value(setting.name).into()),
        config_source: if configs.is_given(setting.name) { SOURCE_TOPIC } else { SOURCE_DEFAULT },
        ..CreatableTopicConfigs::default()
    });
    CreatableTopicResult {
        name,
        topic_id: created.id,
        num_partitions: created.partitions,
        replication_factor: created.replication,
        configs: Some(shown.collect()),
        ..CreatableTopicResult::default()
    }
}

fn create_failure(name: Text, problem: &Problem) -> CreatableTopicResult {
    CreatableTopicResult {
        name,
        error_code: Code::from(problem.kind).code(),
        error_message: sentence(problem),
        ..CreatableTopicResult::default()
    }
}

pub(crate) async fn delete_topics(
    node: &Arc<Node>,
    version: i16,
    request: DeleteTopicsRequest,
) -> Result<DeleteTopicsResponse, Stopped> {
    let until = node.clock.now().monotonic
        + node.patience(request.timeout_ms, node.config.request.produce_wait_max);
    let (topics, unclear) = if version >= DELETE_BY_ID {
        named_once(request.topics)
    } else {
        let names = request.topic_names.iter().map(|name| TopicName::Name(name.to_string()));
        (names.collect(), Vec::new())
    };
    let input = |request| Input::DeleteTopics { request, topics: topics.clone() };
    let mut responses: Vec<DeletableTopicResult> = match node.controller.ask(until, input).await? {
        Outcome::TopicsDeleted(deleted) => {
            let gone: Vec<TopicId> = deleted
                .iter()
                .filter_map(|(_, done)| done.as_ref().ok().map(|topic| topic.id))
                .collect();
            served(node, until, |state| gone.iter().all(|id| state.topic(*id).is_none())).await;
            let rows = deleted.into_iter().map(|(name, done)| match done {
                Ok(topic) => DeletableTopicResult {
                    name: Some(topic.name.into()),
                    topic_id: topic.id,
                    ..DeletableTopicResult::default()
                },
                Err(problem) => delete_failure(name, &problem),
            });
            rows.collect()
        }
        Outcome::Refused(problem) => {
            topics.into_iter().map(|name| delete_failure(name, &problem)).collect()
        }
        other => unreachable!("topics are deleted, not {other:?}"),
    };
    responses.extend(unclear);
    Ok(DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() })
}

/// The topics that go by a name or by an id, and a refusal for those that go by both or by
/// neither: what is to be deleted must be clear.
fn named_once(topics: Vec<DeleteTopicState>) -> (Vec<TopicName>, Vec<DeletableTopicResult>) {
    let mut clear = Vec::with_capacity(topics.len());
    let mut unclear = Vec::new();
    for DeleteTopicState { name, topic_id } in topics {
        match name {
            Some(name) if topic_id == TopicId::NONE => {
                clear.push(TopicName::Name(name.to_string()));
            }
            None if topic_id != TopicId::NONE => clear.push(TopicName::Id(topic_id)),
            name => unclear.push(DeletableTopicResult {
                name,
                topic_id,
                error_code: Code::InvalidRequest.code(),
                error_message: Some("a topic goes by its name or by its id, not by both".into()),
            }),
        }
    }
    (clear, unclear)
}

fn delete_failure(name: TopicName, problem: &Problem) -> DeletableTopicResult {
    let (name, topic_id) = match name {
        TopicName::Name(name) => (Some(name.into()), TopicId::NONE),
        TopicName::Id(id) => (None, id),
    };
    DeletableTopicResult {
        name,
        topic_id,
        error_code: Code::from(problem.kind).code(),
        error_message: sentence(problem),
    }
}

pub(crate) async fn create_partitions(
    node: &Arc<Node>,
    request: CreatePartitionsRequest,
) -> Result<CreatePartitionsResponse, Stopped> {
    let until = node.clock.now().monotonic
        + node.patience(request.timeout_ms, node.config.request.produce_wait_max);
    let validate_only = request.validate_only;
    let topics: Vec<MorePartitions> = request.topics.into_iter().map(more_partitions).collect();
    let input =
        |request| Input::CreatePartitions { request, topics: topics.clone(), validate_only };
    let outcome = node.controller.ask(until, input).await?;
    let results = match outcome {
        Outcome::PartitionsCreated(results) => results,
        Outcome::Refused(problem) => {
            let all = topics.iter().map(|more| (more.topic.clone(), Err(problem.clone())));
            all.collect()
        }
        other => unreachable!("partitions are created, not {other:?}"),
    };
    if !validate_only {
        let grown: Vec<(&str, usize)> = topics
            .iter()
            .zip(&results)
            .filter(|(_, (_, done))| done.is_ok())
            .map(|(more, _)| (more.topic.as_str(), usize::try_from(more.count).unwrap_or(0)))
            .collect();
        served(node, until, |state| {
            grown.iter().all(|(name, count)| {
                // A topic that was deleted meanwhile is nothing to wait for.
                state.topic_named(name).is_none_or(|topic| topic.partitions.len() >= *count)
            })
        })
        .await;
    }
    let rows = results.into_iter().map(|(name, done)| CreatePartitionsTopicResult {
        name: name.into(),
        error_code: done.as_ref().err().map_or(Code::None, |problem| problem.kind.into()).code(),
        error_message: done.err().and_then(|problem| sentence(&problem)),
    });
    Ok(CreatePartitionsResponse { results: rows.collect(), ..CreatePartitionsResponse::default() })
}

fn more_partitions(topic: CreatePartitionsTopic) -> MorePartitions {
    let assignments = topic.assignments.unwrap_or_default().into_iter();
    MorePartitions {
        topic: topic.name.to_string(),
        count: topic.count,
        assignments: assignments
            .map(|assignment| assignment.broker_ids.into_iter().map(NodeId).collect())
            .collect(),
    }
}
