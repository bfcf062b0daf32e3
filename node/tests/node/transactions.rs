//! What readers see of transactions: nothing of one that is open or was aborted, if they read
//! committed records only; and the same after a restart.

use std::time::Duration;

use quorate_core::id::Offset;
use quorate_core::partition::interface::Isolation;
use quorate_net::client::{
    Client, Consumer, ConsumerConfig, Message, Position, TransactionConfig, TransactionalProducer,
};

use crate::house::{client as connect, in_directory, pause, produce, soon, value};

async fn send(producer: &mut TransactionalProducer, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let message = Message {
            topic: "orders".into(),
            partition: Some(0),
            value: Some(value(number)),
            ..Message::default()
        };
        producer.send(message).await.unwrap().await.unwrap();
    }
}

/// Where readers end.
async fn end(client: &Client, isolation: Isolation) -> Option<i64> {
    let listed = client.list_offsets("orders", &[0], Position::End, isolation).await.unwrap();
    listed[0].offset.map(|offset| offset.0)
}

/// Offsets of all records up to the one at `last`, as a reader of committed records sees them.
async fn read_committed(client: &Client, from: i64, last: i64) -> Vec<i64> {
    let mut config = ConsumerConfig::default();
    config.fetch.isolation = Isolation::ReadCommitted;
    let mut consumer = Consumer::new(client.clone(), config);
    consumer.assign(&"orders".into(), 0, Position::Offset(Offset(from)));
    let mut offsets = Vec::new();
    soon(async {
        while offsets.last() != Some(&last) {
            let some = consumer.poll(Duration::from_secs(10)).await.unwrap().expect("in time");
            offsets.extend(some.records().unwrap().iter().map(|record| record.offset.0));
        }
    })
    .await;
    offsets
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_committed_records_see_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let node = in_directory(directory.path(), 1).await;
    let client = connect(&node);
    produce(&client, "orders", 0..1).await;
    let mut producer = client.transactional(TransactionConfig::new("bills")).await.unwrap();

    // Open: 1 and 2, and 3 without a transaction behind them.
    producer.begin().unwrap();
    send(&mut producer, 0..2).await;
    produce(&client, "orders", 0..1).await;
    assert_eq!(end(&client, Isolation::ReadUncommitted).await, Some(4));
    assert_eq!(end(&client, Isolation::ReadCommitted).await, Some(1));
    let known = client.describe_producers("orders", 0).await.unwrap();
    let open: Vec<_> = known.iter().filter_map(|known| known.open_since).collect();
    assert_eq!(open, [Offset(1)]);

    // Aborted, with its marker at 4; committed are 5 and 6, with theirs at 7; then 8.
    producer.abort().await.unwrap();
    producer.begin().unwrap();
    send(&mut producer, 2..4).await;
    producer.commit().await.unwrap();
    // The outcome is told before the marker stands in the log.
    soon(async {
        while end(&client, Isolation::ReadCommitted).await != Some(8) {
            pause(10).await;
        }
    })
    .await;
    produce(&client, "orders", 0..1).await;
    assert_eq!(read_committed(&client, 0, 8).await, [0, 3, 5, 6, 8]);
    assert_eq!(read_committed(&client, 2, 8).await, [3, 5, 6, 8], "from the midst of it");
    assert_eq!(end(&client, Isolation::ReadCommitted).await, Some(9));

    drop((producer, client));
    node.shutdown().await.unwrap();
    let node = in_directory(directory.path(), 2).await;
    let client = connect(&node);
    assert_eq!(read_committed(&client, 0, 8).await, [0, 3, 5, 6, 8], "after a restart");
    node.shutdown().await.unwrap();
}
