//! rskafka behind the adapter protocol of ../README.md. It knows neither groups nor acks.

use std::collections::BTreeMap;
use std::io::BufRead;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{TimeZone, Utc};
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| STANDARD.decode(text).expect("base64"))
}

fn text(value: Option<&Vec<u8>>) -> Value {
    value.map_or(Value::Null, |bytes| json!(STANDARD.encode(bytes)))
}

fn string<'a>(p: &'a Value, name: &str) -> &'a str {
    p[name].as_str().unwrap_or_default()
}

async fn client(p: &Value) -> Result<Client, Failure> {
    Ok(ClientBuilder::new(vec![string(p, "bootstrap").to_owned()]).build().await?)
}

/// One request per run of records of one partition, in order.
async fn produce(p: &Value) -> Result<(), Failure> {
    let client = client(p).await?;
    let codec = match string(p, "codec") {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    };
    let mut runs: Vec<(i32, Vec<Record>)> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let r: Value = serde_json::from_str(&line?)?;
        let headers = r["h"].as_array().into_iter().flatten();
        let record = Record {
            key: bytes(&r["k"]),
            value: bytes(&r["v"]),
            headers: headers
                .map(|h| (h[0].as_str().unwrap().to_owned(), bytes(&h[1]).unwrap_or_default()))
                .collect::<BTreeMap<_, _>>(),
            timestamp: Utc.timestamp_millis_opt(r["t"].as_i64().unwrap()).unwrap(),
        };
        let partition = r["p"].as_i64().unwrap() as i32;
        match runs.last_mut() {
            Some((last, records)) if *last == partition => records.push(record),
            _ => runs.push((partition, vec![record])),
        }
    }
    for (partition, records) in runs {
        let count = records.len();
        let handling = UnknownTopicHandling::Retry;
        let to = client.partition_client(string(p, "topic"), partition, handling).await?;
        match to.produce(records, codec).await {
            Ok(offsets) => {
                for offset in offsets {
                    println!("{}", json!({"p": partition, "o": offset}));
                }
            }
            Err(error) => {
                for _ in 0..count {
                    println!("{}", json!({"error": error.to_string()}));
                }
            }
        }
    }
    Ok(())
}

async fn consume(p: &Value) -> Result<(), Failure> {
    let client = client(p).await?;
    for topic in client.list_topics().await? {
        if !p["topics"].as_array().unwrap().iter().any(|name| name == &topic.name) {
            continue;
        }
        for partition in topic.partitions {
            let handling = UnknownTopicHandling::Retry;
            let from = client.partition_client(&topic.name, partition, handling).await?;
            let mut next = from.get_offset(OffsetAt::Earliest).await?;
            let end = from.get_offset(OffsetAt::Latest).await?;
            while next < end {
                let (records, _) = from.fetch_records(next, 1..4_000_000, 1000).await?;
                for found in records {
                    next = found.offset + 1;
                    let r = found.record;
                    let headers: Vec<Value> =
                        r.headers.iter().map(|(n, v)| json!([n, text(Some(v))])).collect();
                    println!(
                        "{}",
                        json!({"topic": topic.name, "p": partition, "o": found.offset,
                            "k": text(r.key.as_ref()), "v": text(r.value.as_ref()),
                            "h": headers, "t": r.timestamp.timestamp_millis()})
                    );
                }
            }
        }
    }
    Ok(())
}

async fn lookup(p: &Value) -> Result<(), Failure> {
    let client = client(p).await?;
    let from = client.partition_client(string(p, "topic"), 0, UnknownTopicHandling::Retry).await?;
    for time in p["times"].as_array().unwrap() {
        let at = Utc.timestamp_millis_opt(time.as_i64().unwrap()).unwrap();
        // rskafka calls "no such record" an invalid response.
        let offset = from.get_offset(OffsetAt::Timestamp(at)).await.unwrap_or(-1);
        println!("{}", json!({"t": time, "o": offset}));
    }
    Ok(())
}

fn step(op: &str, outcome: Result<bool, Failure>) {
    match outcome {
        Ok(ok) => println!("{}", json!({"op": op, "ok": ok})),
        Err(error) => println!("{}", json!({"op": op, "ok": false, "why": error.to_string()})),
    }
}

async fn partitions(client: &Client, topic: &str) -> Result<usize, Failure> {
    let topics = client.list_topics().await?;
    Ok(topics.iter().find(|t| t.name == topic).map_or(0, |t| t.partitions.len()))
}

async fn delete_records(client: &Client, topic: &str) -> Result<bool, Failure> {
    let to = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?;
    let record = Record {
        key: None,
        value: Some(b"x".to_vec()),
        headers: BTreeMap::new(),
        timestamp: Utc.timestamp_millis_opt(1).unwrap(),
    };
    to.produce(vec![record; 5], Compression::NoCompression).await?;
    to.delete_records(3, 5000).await?;
    let first = to.get_offset(OffsetAt::Earliest).await?;
    Ok(first == 3 && to.get_offset(OffsetAt::Latest).await? == 5)
}

async fn admin(p: &Value) -> Result<(), Failure> {
    let client = client(p).await?;
    let controller = client.controller_client()?;
    let topic = string(p, "topic");
    let create = || controller.create_topic(topic, 3, 1, 5000);
    step("create", create().await.map(|()| true).map_err(Into::into));
    let again = create().await.err().is_some_and(|e| e.to_string().contains("AlreadyExists"));
    step("create again", Ok(again));
    step("list", partitions(&client, topic).await.map(|count| count > 0));
    step("describe", partitions(&client, topic).await.map(|count| count == 3));
    step("delete records", delete_records(&client, topic).await);
    let deleted = controller.delete_topic(topic, 5000).await;
    step("delete", deleted.map(|()| true).map_err(Into::into));
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    step("gone", partitions(&client, topic).await.map(|count| count == 0));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let p: Value = serde_json::from_str(&arguments[2])?;
    match arguments[1].as_str() {
        "produce" => produce(&p).await,
        "consume" => consume(&p).await,
        "lookup" => lookup(&p).await,
        "admin" => admin(&p).await,
        verb => Err(format!("rskafka has no {verb}").into()),
    }
}
