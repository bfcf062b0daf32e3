//! Transactions end once, and what a reader of committed records sees is what was committed.

use std::collections::BTreeMap;

use quorate_core::partition::interface::Isolation;

use super::*;

fn with_transactions(level: i16) -> Cluster {
    let cluster = cluster();
    cluster.0.lock().unwrap().transactions.version = level;
    cluster
}

async fn transactional(cluster: &Cluster) -> Result<TransactionalProducer, Error> {
    let config = TransactionConfig { producer: producer(), ..TransactionConfig::new("transfers") };
    client_of(cluster, "one:1").transactional(config).await
}

fn message(value: &str) -> Message {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    Message { topic: Arc::from(TOPIC), value, ..Message::default() }
}

async fn transact(producer: &mut TransactionalProducer, values: &[&str]) {
    producer.begin().unwrap();
    for value in values {
        producer.send(message(value)).await.unwrap();
    }
}

async fn read(cluster: &Cluster, isolation: Isolation) -> Vec<String> {
    let config = ConsumerConfig {
        fetch: FetchOptions { isolation, ..FetchOptions::default() },
        on_reset: OnReset::Beginning,
        ..ConsumerConfig::default()
    };
    let mut consumer = Consumer::new(client_of(cluster, "one:1"), config);
    consumer.assign(&Arc::from(TOPIC), 0, Position::Beginning);
    let mut values = Vec::new();
    while !consumer.is_at_end() {
        let Some(batches) = consumer.poll(BRIEF).await.unwrap() else { continue };
        let records = batches.records().unwrap().into_iter();
        let text = |value: Bytes| String::from_utf8(value.to_vec()).unwrap();
        values.extend(records.map(|record| text(record.value.unwrap())));
    }
    values
}

#[tokio::test]
async fn a_reader_of_committed_records_sees_what_was_committed() {
    let cluster = with_transactions(2);
    let mut producer = transactional(&cluster).await.unwrap();
    let before = producer.identity();
    transact(&mut producer, &["a", "b"]).await;
    producer.commit().await.unwrap();
    assert!(producer.identity().1 > before.1, "each transaction has an epoch of its own");
    transact(&mut producer, &["c"]).await;
    producer.flush().await;
    assert_eq!(read(&cluster, Isolation::ReadCommitted).await, ["a", "b"], "one is open");
    producer.abort().await.unwrap();
    transact(&mut producer, &["d"]).await;
    producer.commit().await.unwrap();
    assert_eq!(read(&cluster, Isolation::ReadCommitted).await, ["a", "b", "d"]);
    assert_eq!(read(&cluster, Isolation::ReadUncommitted).await, ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_reader_passes_over_what_ends_aborted() {
    let cluster = with_transactions(2);
    let mut producer = transactional(&cluster).await.unwrap();
    transact(&mut producer, &["a"]).await;
    producer.flush().await;
    producer.abort().await.unwrap();
    // It ends, although it is given nothing.
    assert!(read(&cluster, Isolation::ReadCommitted).await.is_empty());
}

#[tokio::test]
async fn an_end_whose_answer_is_lost_is_asked_for_again() {
    let cluster = with_transactions(2);
    let mut producer = transactional(&cluster).await.unwrap();
    let faults = [Fault::LoseAnswer, Fault::LoseRequest, Fault::Refuse(51), Fault::Refuse(16)];
    cluster.0.lock().unwrap().transactions.faults.extend(faults);
    transact(&mut producer, &["a"]).await;
    producer.commit().await.unwrap();
    let markers = |cluster: &Cluster| {
        let state = cluster.0.lock().unwrap();
        state.log.iter().filter(|batch| batch.header().is_control()).count()
    };
    assert_eq!(markers(&cluster), 1);
    transact(&mut producer, &["b"]).await;
    producer.commit().await.unwrap();
    assert_eq!(read(&cluster, Isolation::ReadCommitted).await, ["a", "b"]);
}

#[tokio::test]
async fn an_end_that_is_never_answered_is_unknown_until_init() {
    let cluster = with_transactions(2);
    let mut producer = transactional(&cluster).await.unwrap();
    transact(&mut producer, &["a"]).await;
    let never = std::iter::repeat_n(Fault::LoseRequest, 100_000);
    cluster.0.lock().unwrap().transactions.faults.extend(never);
    let error = producer.commit().await.unwrap_err();
    assert_eq!(error.fate, Fate::Unknown, "{error}");
    assert!(producer.is_adrift() && producer.begin().is_err());
    cluster.0.lock().unwrap().transactions.faults.clear();
    producer.init().await.unwrap();
    transact(&mut producer, &["b"]).await;
    producer.commit().await.unwrap();
    assert_eq!(read(&cluster, Isolation::ReadCommitted).await, ["b"]);
}

#[tokio::test]
async fn what_failed_in_part_is_not_committed() {
    let cluster = with_transactions(2);
    let mut producer = transactional(&cluster).await.unwrap();
    transact(&mut producer, &["a"]).await;
    producer.flush().await;
    // MESSAGE_TOO_LARGE: the record is lost, the transaction with it.
    cluster.0.lock().unwrap().faults.push_back(Fault::Refuse(10));
    producer.send(message("b")).await.unwrap();
    let error = producer.commit().await.unwrap_err();
    assert_eq!((error.fate, error.error.code()), (Fate::NotDone, Some(Code::MessageTooLarge)));
    assert!(producer.send(message("c")).await.is_err() && producer.commit().await.is_err());
    producer.abort().await.unwrap();
    transact(&mut producer, &["d"]).await;
    producer.commit().await.unwrap();
    assert_eq!(read(&cluster, Isolation::ReadCommitted).await, ["d"]);
}

#[tokio::test]
async fn a_zombie_is_shut_out() {
    let cluster = with_transactions(2);
    let mut zombie = transactional(&cluster).await.unwrap();
    transact(&mut zombie, &["a"]).await;
    zombie.flush().await;
    let mut heir = transactional(&cluster).await.unwrap();
    zombie.send(message("b")).await.unwrap();
    let error = zombie.commit().await.unwrap_err();
    assert_eq!((error.fate, error.error.code()), (Fate::NotDone, Some(Code::InvalidProducerEpoch)));
    let error = zombie.abort().await.unwrap_err();
    assert_eq!(error.error.code(), Some(Code::ProducerFenced));
    assert!(zombie.is_adrift());
    transact(&mut heir, &["c"]).await;
    heir.commit().await.unwrap();
    assert_eq!(read(&cluster, Isolation::ReadCommitted).await, ["c"]);
}

#[tokio::test]
async fn offsets_go_with_the_transaction() {
    let cluster = with_transactions(2);
    let mut producer = transactional(&cluster).await.unwrap();
    let place = GroupPlace {
        group: "billing".to_owned(),
        generation: 7,
        member: "m".to_owned(),
        instance: None,
    };
    let name = PartitionName { topic: TOPIC.to_owned(), partition: 0 };
    let offsets = BTreeMap::from([(name, Offset(5))]);
    producer.begin().unwrap();
    producer.send_offsets(&place, &offsets).await.unwrap();
    producer.commit().await.unwrap();
    assert_eq!(cluster.0.lock().unwrap().transactions.offsets, [("billing".to_owned(), 7, 5)]);
    // ILLEGAL_GENERATION: another member has the partitions by now.
    cluster.0.lock().unwrap().transactions.offsets_refused = Some(22);
    producer.begin().unwrap();
    assert!(producer.send_offsets(&place, &offsets).await.is_err());
    let error = producer.commit().await.unwrap_err();
    assert_eq!((error.fate, error.error.code()), (Fate::NotDone, Some(Code::IllegalGeneration)));
    producer.abort().await.unwrap();
}

#[tokio::test]
async fn what_is_empty_needs_no_end() {
    let cluster = with_transactions(2);
    let mut producer = transactional(&cluster).await.unwrap();
    assert!(producer.commit().await.is_err() && producer.abort().await.is_err());
    producer.begin().unwrap();
    assert!(producer.begin().is_err());
    producer.commit().await.unwrap();
    producer.begin().unwrap();
    producer.abort().await.unwrap();
    let asked = cluster.0.lock().unwrap().requests.clone();
    assert!(asked.iter().all(|(_, key, _)| *key != ApiKey::EndTxn));
}

#[tokio::test]
async fn an_older_protocol_is_refused() {
    for level in [0, 1] {
        let error = transactional(&with_transactions(level)).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains("transaction.version 2"), "{error}");
    }
}
