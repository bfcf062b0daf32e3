//! Topics, partitions and configurations.

use quorate_core::id::TopicId;
use quorate_net::kafka::messages::alter_configs as whole;
use quorate_net::kafka::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use quorate_net::kafka::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use quorate_net::kafka::messages::delete_topics::DeleteTopicState;
use quorate_net::kafka::messages::describe_configs::DescribeConfigsResource;
use quorate_net::kafka::messages::describe_topic_partitions::TopicRequest;
use quorate_net::kafka::messages::incremental_alter_configs as single;
use quorate_net::kafka::messages::{
    AlterConfigsRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    DescribeClusterRequest, DescribeConfigsRequest, DescribeTopicPartitionsRequest,
    IncrementalAlterConfigsRequest,
};

use super::{Case, case, text};

const WAIT: i32 = 5000;

fn create(name: &str, num_partitions: i32, replication_factor: i16) -> CreateTopicsRequest {
    let name = text(name);
    let topic = CreatableTopic { name, num_partitions, replication_factor, ..Default::default() };
    CreateTopicsRequest { topics: vec![topic], timeout_ms: WAIT, validate_only: false }
}

fn configured(name: &str, key: &str, value: Option<&str>) -> CreateTopicsRequest {
    let mut request = create(name, 1, 1);
    let config = CreatableTopicConfig { name: text(key), value: value.map(text) };
    request.topics[0].configs.push(config);
    request
}

fn assigned(partition_index: i32, nodes: &[i32]) -> CreateTopicsRequest {
    let mut request = create("assigned", -1, -1);
    let assignment = CreatableReplicaAssignment { partition_index, broker_ids: nodes.to_vec() };
    request.topics[0].assignments.push(assignment);
    request.validate_only = true;
    request
}

pub(crate) fn creating() -> Vec<Case> {
    let mut both = assigned(0, &[1]);
    (both.topics[0].num_partitions, both.topics[0].replication_factor) = (1, 1);
    let mut by_default = create("by-default", -1, -1);
    by_default.validate_only = true;
    vec![
        case("create", 7, create("d", 2, 1), &[0]),
        case("create a compacted one", 7, configured("c", "cleanup.policy", Some("compact")), &[0]),
        case("create one with a dot", 7, create("d.x", 1, 1), &[0]),
        case("create by default", 7, by_default, &[0]),
        case("create again", 7, create("d", 2, 1), &[36]),
        case("create one that collides", 7, create("d_x", 1, 1), &[17]),
        case("create with a space", 7, create("a b", 1, 1), &[17]),
        case("create two dots", 7, create("..", 1, 1), &[17]),
        case("create no name", 7, create("", 1, 1), &[17]),
        case("create 0 partitions", 7, create("z", 0, 1), &[37]),
        case("create -2 partitions", 7, create("z", -2, 1), &[37]),
        case("create 0 replicas", 7, create("z", 1, 0), &[38]),
        case("create 2 replicas", 7, create("z", 1, 2), &[38]),
        case("create with an unknown key", 7, configured("z", "nope", Some("1")), &[40]),
        case("create with a bad value", 7, configured("z", "retention.ms", Some("x")), &[40]),
        case("create with a null value", 7, configured("z", "retention.ms", None), &[40]),
        case("assign", 7, assigned(0, &[1]), &[0]),
        case("assign with a gap", 7, assigned(1, &[1]), &[39]),
        case("assign to an unknown node", 7, assigned(0, &[9]), &[39]),
        case("assign and count", 7, both, &[42]),
    ]
}

fn more(name: &str, count: i32, nodes: Option<&[&[i32]]>) -> CreatePartitionsRequest {
    let each = |ids: &&[i32]| CreatePartitionsAssignment { broker_ids: ids.to_vec() };
    let assignments = nodes.map(|nodes| nodes.iter().map(each).collect());
    let topics = vec![CreatePartitionsTopic { name: text(name), count, assignments }];
    CreatePartitionsRequest { topics, timeout_ms: WAIT, validate_only: false }
}

fn describe(resource_type: i8, name: &str) -> DescribeConfigsRequest {
    let resource_name = text(name);
    let configuration_keys = Some(Vec::new());
    let resource = DescribeConfigsResource { resource_type, resource_name, configuration_keys };
    DescribeConfigsRequest { resources: vec![resource], ..Default::default() }
}

fn alter(name: &str, key: &str, value: &str) -> AlterConfigsRequest {
    let config = whole::AlterableConfig { name: text(key), value: Some(text(value)) };
    let resource = whole::AlterConfigsResource {
        resource_type: 2,
        resource_name: text(name),
        configs: vec![config],
    };
    AlterConfigsRequest { resources: vec![resource], validate_only: false }
}

fn edit(operation: i8, name: &str, key: &str, value: &str) -> IncrementalAlterConfigsRequest {
    let config = single::AlterableConfig {
        name: text(key),
        config_operation: operation,
        value: Some(text(value)),
    };
    let resource = single::AlterConfigsResource {
        resource_type: 2,
        resource_name: text(name),
        configs: vec![config],
    };
    IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false }
}

fn delete(name: Option<&str>, topic_id: TopicId) -> DeleteTopicsRequest {
    let topics = vec![DeleteTopicState { name: name.map(text), topic_id }];
    DeleteTopicsRequest { topics, timeout_ms: WAIT, ..Default::default() }
}

fn endpoints(endpoint_type: i8) -> DescribeClusterRequest {
    DescribeClusterRequest { endpoint_type, ..Default::default() }
}

pub(crate) fn changing() -> Vec<Case> {
    let other = TopicId([7; 16]);
    let topics = ["d", "nope"].map(|name| TopicRequest { name: text(name) }).to_vec();
    let pages = DescribeTopicPartitionsRequest { topics, ..Default::default() };
    vec![
        case("describe two topics", 0, pages, &[0, 0, 0, 3]),
        case("describe brokers", 1, endpoints(1), &[0]),
        case("describe controllers", 1, endpoints(2), &[114]),
        case("describe something else", 1, endpoints(7), &[115]),
        case("fewer partitions", 3, more("d", 1, None), &[37]),
        case("as many partitions", 3, more("d", 2, None), &[37]),
        case("-1 partitions", 3, more("d", -1, None), &[37]),
        case("more of no topic", 3, more("nope", 3, None), &[3]),
        case("one more, two assigned", 3, more("d", 3, Some(&[&[1], &[1]])), &[39]),
        case("one more on an unknown node", 3, more("d", 3, Some(&[&[9]])), &[39]),
        case("one more on no node", 3, more("d", 3, Some(&[&[]])), &[39]),
        case("describe a topic", 4, describe(2, "d"), &[0]),
        case("describe no topic", 4, describe(2, "nope"), &[3]),
        case("describe a node", 4, describe(4, "1"), &[0]),
        case("describe another node", 4, describe(4, "9"), &[42]),
        case("describe nothing known", 4, describe(99, "x"), &[42]),
        case("set", 1, edit(0, "d", "max.message.bytes", "2000"), &[0]),
        case("unset", 1, edit(1, "d", "max.message.bytes", ""), &[0]),
        case("append to a list", 1, edit(2, "d", "cleanup.policy", "compact"), &[0]),
        case("subtract from a list", 1, edit(3, "d", "cleanup.policy", "compact"), &[0]),
        case("append to a number", 1, edit(2, "d", "retention.ms", "1"), &[40]),
        case("set an unknown key", 1, edit(0, "d", "nope", "1"), &[40]),
        case("set a bad value", 1, edit(0, "d", "retention.ms", "x"), &[40]),
        case("set of no topic", 1, edit(0, "nope", "retention.ms", "1"), &[3]),
        case("replace", 2, alter("d", "retention.ms", "5000000"), &[0]),
        case("replace by an unknown key", 2, alter("d", "nope", "1"), &[40]),
        case("replace of no topic", 2, alter("nope", "retention.ms", "1"), &[3]),
        case("delete no topic", 6, delete(Some("nope"), TopicId::NONE), &[3]),
        case("delete by an unknown id", 6, delete(None, other), &[100]),
        case("delete by name and id", 6, delete(Some("d"), other), &[42]),
        case("delete by nothing", 6, delete(None, TopicId::NONE), &[42]),
        case("delete", 6, delete(Some("d.x"), TopicId::NONE), &[0]),
    ]
}
