//! What a node answers to requests that few clients send, or that fail.

use std::time::Duration;

use crate::connections::Raw;
use crate::house::{
    MIB, assert_values, client, config, consume, in_memory, pause, produce, soon, world,
};
use quorate_core::id::Offset;
use quorate_core::partition::interface::Isolation;
use quorate_core::time::Timestamp;
use quorate_net::client::{
    Client, ConfigurationChange, GroupConfig, GroupConsumer, ListedOffset, Message, NewTopic,
    OnReset, Polled, Position, ProducerConfig, Resource,
};
use quorate_net::kafka::messages::ListOffsetsRequest;
use quorate_net::kafka::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use quorate_node::disk::memory::MemoryDisk;
use quorate_node::node::{NodeError, RunningNode, run};

pub(crate) async fn create(client: &Client, name: &str, partitions: i32, configs: &[(&str, &str)]) {
    let configs = configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let topic = NewTopic {
        name: name.to_owned(),
        partitions: Some(partitions),
        replication_factor: None,
        configs: configs.collect(),
    };
    client.create_topic(&topic).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_come_grow_and_go() {
    let node = in_memory(&[("topic.auto_create", "false")]).await;
    let client = client(&node);
    create(&client, "t", 2, &[]).await;
    client.add_partitions("t", 5).await.unwrap();
    let cluster = client.cluster().await.unwrap();
    let topic = &cluster.topics["t"];
    assert_eq!(topic.partitions.len(), 5);
    let again = NewTopic {
        name: "t".to_owned(),
        partitions: None,
        replication_factor: None,
        configs: Vec::new(),
    };
    let error = client.create_topic(&again).await.unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    produce(&client, "t", 0..10).await;
    client.delete_topic("t").await.unwrap();
    assert!(client.cluster().await.unwrap().topics.is_empty());
    // The same name is another topic, and empty.
    create(&client, "t", 1, &[]).await;
    produce(&client, "t", 0..3).await;
    assert_values(&consume(&client, "t", 3).await);
    node.shutdown().await.unwrap();
}

/// ListOffsets for -3: the offset and the timestamp.
async fn largest_timestamp(node: &RunningNode) -> (i64, i64) {
    let request = ListOffsetsRequest {
        topics: vec![ListOffsetsTopic {
            name: "t".into(),
            partitions: vec![ListOffsetsPartition { timestamp: -3, ..Default::default() }],
        }],
        ..ListOffsetsRequest::default()
    };
    let response = Raw::connect(node).await.ask(7, &request).await;
    let row = &response.topics[0].partitions[0];
    assert_eq!(row.error_code, 0);
    (row.offset, row.timestamp)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_are_found_by_time_and_records_deleted() {
    let node = in_memory(&[]).await;
    let client = client(&node);
    create(&client, "t", 1, &[("message.timestamp.before.max.ms", "9223372036854775807")]).await;
    let producer = client.producer(ProducerConfig::default()).unwrap();
    for number in 0..100_i64 {
        let message = Message {
            topic: "t".into(),
            partition: Some(0),
            value: Some("v".into()),
            timestamp: Some(Timestamp(1000 + number * 10)),
            ..Message::default()
        };
        producer.send(message).await.unwrap().await.unwrap();
    }
    let list = |position| client.list_offsets("t", &[0], position, Isolation::ReadUncommitted);
    let at = |listed: &[ListedOffset]| listed[0].offset.map(|offset| offset.0);
    assert_eq!(at(&list(Position::Beginning).await.unwrap()), Some(0));
    assert_eq!(at(&list(Position::End).await.unwrap()), Some(100));
    assert_eq!(at(&list(Position::Time(Timestamp(1495))).await.unwrap()), Some(50));
    assert_eq!(client.delete_records("t", 0, Some(Offset(60))).await.unwrap(), Offset(60));
    assert_eq!(at(&list(Position::Beginning).await.unwrap()), Some(60));
    assert_eq!(at(&list(Position::Time(Timestamp(0))).await.unwrap()), Some(60));
    assert!(client.delete_records("t", 0, Some(Offset(101))).await.is_err());
    // The largest timestamp is that of what is left.
    let older = Message {
        topic: "t".into(),
        partition: Some(0),
        value: Some("v".into()),
        timestamp: Some(Timestamp(700)),
        ..Message::default()
    };
    producer.send(older).await.unwrap().await.unwrap();
    assert_eq!(largest_timestamp(&node).await, (99, 1990));
    assert_eq!(client.delete_records("t", 0, Some(Offset(100))).await.unwrap(), Offset(100));
    assert_eq!(largest_timestamp(&node).await, (100, 700));
    assert_eq!(client.delete_records("t", 0, None).await.unwrap(), Offset(101));
    assert_eq!(largest_timestamp(&node).await, (-1, -1));
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configurations_are_shown_changed_and_obeyed() {
    let node = in_memory(&[]).await;
    let client = client(&node);
    create(&client, "t", 1, &[("retention.ms", "1000000")]).await;
    let resource = Resource::Topic("t".to_owned());
    let shown = client.describe_configs(&resource).await.unwrap();
    let value = |name: &str| {
        let found = shown.iter().find(|setting| setting.name == name).unwrap();
        found.value.clone().unwrap_or_default()
    };
    assert_eq!(value("retention.ms"), "1000000");
    assert_eq!(value("quorate.flush"), "durable");
    let change =
        |value: &str| ConfigurationChange::Set("max.message.bytes".to_owned(), value.to_owned());
    client.alter_configs(&resource, &[change("100")]).await.unwrap();
    let producer =
        client.producer(ProducerConfig { attempts_max: Some(1), ..Default::default() }).unwrap();
    let message = Message {
        topic: "t".into(),
        partition: Some(0),
        value: Some(vec![b'x'; 200].into()),
        ..Message::default()
    };
    // The change is shown before it is answered, or a moment later.
    let refused = async {
        while producer.send(message.clone()).await.unwrap().await.is_ok() {
            pause(5).await;
        }
    };
    soon(refused).await;
    let wrong = ConfigurationChange::Set("max.message.bytess".to_owned(), "1".to_owned());
    let error = client.alter_configs(&resource, &[wrong]).await.unwrap_err().to_string();
    assert!(error.contains("max.message.bytes?"), "{error}");
    let node_settings = client.describe_configs(&Resource::Broker(1)).await.unwrap();
    assert!(node_settings.iter().any(|setting| setting.name == "num.partitions"));
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_kept_in_the_codec_that_the_topic_asks_for() {
    let node = in_memory(&[]).await;
    let client = client(&node);
    for (name, codec) in [("uncompressed", 0), ("zstd", 4), ("gzip", 1), ("producer", 0)] {
        create(&client, name, 1, &[("compression.type", name)]).await;
        produce(&client, name, 0..50).await;
        let request = crate::connections::fetch_request(name, 0);
        let response = Raw::connect(&node).await.ask(11, &request).await;
        let records = response.responses[0].partitions[0].records.clone().unwrap();
        // The codec stands in the lowest bits of the attributes.
        assert_eq!(records.into_bytes()[22] & 7, codec, "{name}");
        assert_values(&consume(&client, name, 50).await);
    }
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_goes_on_where_it_was_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    for life in 0..2_u64 {
        let node = crate::house::in_directory(directory.path(), life).await;
        let client = client(&node);
        let from = life as usize * 50;
        produce(&client, "t", from..from + 50).await;
        let config = GroupConfig { on_reset: OnReset::Beginning, ..GroupConfig::new("g", &["t"]) };
        let mut group = GroupConsumer::new(&client, config);
        let (mut values, mut next) = (Vec::new(), Offset::ZERO);
        while values.len() < 50 {
            if let Polled::Batches(some) = group.poll(Duration::from_secs(10)).await.unwrap() {
                values.extend(some.records().unwrap().into_iter().filter_map(|one| one.value));
                next = some.next();
            }
        }
        let expected: Vec<_> = (from..from + 50).map(crate::house::value).collect();
        assert_eq!(values, expected);
        group.commit(&[("t".into(), 0, next)]).await.unwrap();
        group.close().await.unwrap();
        node.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_wrong_setting_or_a_taken_address_does_not_start() {
    let start = |settings: &[(&str, &str)]| {
        run(config(settings), world(std::sync::Arc::new(MemoryDisk::ephemeral(64 * MIB)), 3))
    };
    let error = start(&[("topic.partitions", "0")]).await.unwrap_err();
    assert!(matches!(error, NodeError::Config(_)), "{error}");
    let node = in_memory(&[]).await;
    let taken = node.address().to_string();
    let error = start(&[("network.listen", &taken)]).await.unwrap_err();
    assert!(matches!(error, NodeError::Listen { .. }), "{error}");
    node.shutdown().await.unwrap();
}
