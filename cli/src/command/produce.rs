//! `quorate produce`: lines from standard input, each a record.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::partition::interface::Acks;
use quorate_net::client::{
    Client, Delivery, Message, ProducerConfig, Receipt, RecordHeader, Resource,
};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{Context, about_topic, existing_topic, parse_acks, parse_codec};
use crate::args::ProduceArgs;
use crate::failure::Failure;
use crate::record_format::{RecordFormat, parse_header, unescaped};
use crate::record_json::JsonRecord;

/// How a line becomes a record.
enum Reading {
    Value,
    Keyed(Vec<u8>),
    Format(RecordFormat),
    Json,
}

/// Deliveries that may be awaited at one time, so that memory does not follow the input.
const AWAITED_MAX: usize = 100_000;

pub(crate) async fn run(context: &Context, args: ProduceArgs) -> Result<(), Failure> {
    let reading = reading(&args)?;
    let headers = headers(&args)?;
    let acks = parse_acks(&args.acks)?;
    let client = context.connect().await?;
    let config = ProducerConfig {
        acks,
        batch_bytes_max: batch_bytes_max(&client, &args.topic).await,
        idempotent: matches!(acks, Acks::All | Acks::AtLeast(_)),
        codec: parse_codec(&args.codec)?,
        linger: args.linger,
        delivery_timeout: context.timeout,
        ..ProducerConfig::default()
    };
    if let Some(partition) = args.partition {
        let topic = existing_topic(&client, &args.topic).await?;
        if !(0..topic.partition_count()).contains(&partition) {
            let what = format!("topic {} has no partition {partition}", args.topic);
            let last = topic.partition_count() - 1;
            return Err(Failure::new(what).hint(format!("its partitions are 0 to {last}")));
        }
    }
    let topic: Arc<str> = Arc::from(args.topic.as_str());
    let producer = client.producer(config)?;
    let mut receipts = Receipts::new(context, args.receipts);
    if io::stdin().is_terminal() {
        let hint = "each line is a record; Ctrl-D ends";
        context.output.note(&context.output.notes.dim(hint));
    }
    let mut input = BufReader::with_capacity(1 << 20, tokio::io::stdin());
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        line.clear();
        let read = read_line(&mut input, &mut line, &mut receipts).await?;
        if read == 0 {
            break;
        }
        number += 1;
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let mut message = message(&reading, text)
            .map_err(|wrong| Failure::new(format!("line {number}: {wrong}")))?;
        message.topic = Arc::clone(&topic);
        message.partition = args.partition.or(message.partition);
        message.headers.extend(headers.iter().cloned());
        if args.empty_is_null && message.value.as_ref().is_some_and(Bytes::is_empty) {
            message.value = None;
        }
        match producer.send(message).await {
            Ok(delivery) => receipts.expect(delivery).await?,
            Err(failed) => {
                let error = failed.error.clone();
                return Err(match error.code() {
                    Some(_) => about_topic(&client, &args.topic, error).await,
                    None => failed.into(),
                });
            }
        }
    }
    producer.flush().await;
    receipts.finish().await?;
    producer.close().await;
    Ok(())
}

/// A batch larger than the topic allows would be refused as a whole, small records and all.
async fn batch_bytes_max(client: &Client, topic: &str) -> usize {
    let usual = ProducerConfig::default().batch_bytes_max;
    // The topic may not exist yet.
    let resource = Resource::Topic(topic.to_owned());
    let configs = client.describe_configs(&resource).await.unwrap_or_default();
    let allowed = configs.iter().find(|config| config.name == "max.message.bytes");
    let allowed = allowed.and_then(|config| config.value.as_ref()?.parse().ok());
    allowed.map_or(usual, |allowed: usize| allowed.clamp(1, usual))
}

/// Reads a line. While none comes, receipts are handled, so that an interactive user sees them.
async fn read_line(
    input: &mut BufReader<tokio::io::Stdin>,
    line: &mut Vec<u8>,
    receipts: &mut Receipts,
) -> Result<usize, Failure> {
    let unreadable =
        |error: io::Error| Failure::new(format!("standard input cannot be read: {error}"));
    let mut reading = std::pin::pin!(input.read_until(b'\n', line));
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            biased;
            // What was read before is still sent.
            _ = &mut interrupted => return Ok(0),
            read = &mut reading => return read.map_err(unreadable),
            outcome = receipts.next(), if receipts.is_awaiting() => outcome?,
        }
    }
}

fn reading(args: &ProduceArgs) -> Result<Reading, Failure> {
    if args.json_lines {
        return Ok(Reading::Json);
    }
    if let Some(text) = &args.format {
        let format = RecordFormat::parse(text).and_then(|format| {
            format.check_readable()?;
            Ok(format)
        });
        let wrong = |wrong| Failure::usage(format!("--format {text}: {wrong}"));
        return format.map(Reading::Format).map_err(wrong);
    }
    match &args.key_delimiter {
        None => Ok(Reading::Value),
        Some(text) => match unescaped(text) {
            Ok(delimiter) if !delimiter.is_empty() => Ok(Reading::Keyed(delimiter)),
            Ok(_) => Err(Failure::usage("--key-delimiter cannot be empty")),
            Err(wrong) => Err(Failure::usage(format!("--key-delimiter {text}: {wrong}"))),
        },
    }
}

fn headers(args: &ProduceArgs) -> Result<Vec<RecordHeader>, Failure> {
    let mut headers = Vec::new();
    for text in &args.headers {
        let header = parse_header(text.as_bytes());
        headers.push(header.map_err(|wrong| Failure::usage(format!("--header {text}: {wrong}")))?);
    }
    if let Some(level) = args.priority {
        let value = Some(Bytes::from(level.to_string()));
        headers.push(RecordHeader { key: Bytes::from_static(b"priority"), value });
    }
    Ok(headers)
}

fn message(reading: &Reading, line: &[u8]) -> Result<Message, String> {
    let value = |bytes: &[u8]| Some(Bytes::copy_from_slice(bytes));
    match reading {
        Reading::Value => Ok(Message { value: value(line), ..Message::default() }),
        Reading::Keyed(delimiter) => {
            let at = line.windows(delimiter.len()).position(|window| window == delimiter);
            Ok(match at {
                Some(at) => Message {
                    key: value(&line[..at]),
                    value: value(&line[at + delimiter.len()..]),
                    ..Message::default()
                },
                // As kcat: a line without the delimiter is a value without a key.
                None => Message { value: value(line), ..Message::default() },
            })
        }
        Reading::Format(format) => format.read(line),
        Reading::Json => {
            let record: JsonRecord =
                serde_json::from_slice(line).map_err(|wrong| format!("no JSON record: {wrong}"))?;
            record.into_message()
        }
    }
}

/// Outcomes in the order of the input, printed if wanted.
struct Receipts {
    awaited: VecDeque<Delivery>,
    print: bool,
    json: bool,
    acknowledged: u64,
}

#[derive(Serialize)]
struct Printed<'a> {
    topic: &'a str,
    partition: i32,
    offset: Option<i64>,
    timestamp: i64,
}

impl Receipts {
    fn new(context: &Context, print: bool) -> Self {
        let json = context.output.json;
        Self { awaited: VecDeque::new(), print, json, acknowledged: 0 }
    }

    fn is_awaiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    async fn expect(&mut self, delivery: Delivery) -> Result<(), Failure> {
        self.awaited.push_back(delivery);
        if self.awaited.len() > AWAITED_MAX { self.next().await } else { Ok(()) }
    }

    /// The outcome of the oldest record. Safe to drop while it waits.
    async fn next(&mut self) -> Result<(), Failure> {
        let Some(delivery) = self.awaited.front_mut() else { return Ok(()) };
        let outcome = delivery.await;
        self.awaited.pop_front();
        let receipt = outcome.map_err(|failed| {
            let hint = format!("{} records before it were acknowledged", self.acknowledged);
            Failure::from(failed).hint(hint)
        })?;
        self.acknowledged += 1;
        if self.print { self.write(&receipt) } else { Ok(()) }
    }

    fn write(&self, receipt: &Receipt) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let (partition, timestamp) = (receipt.partition, receipt.timestamp.0);
        let offset = receipt.offset.map(|offset| offset.0);
        if self.json {
            let printed = Printed { topic: &receipt.topic, partition, offset, timestamp };
            serde_json::to_writer(&mut out, &printed).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            let offset = offset.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
            writeln!(out, "{partition}\t{offset}\t{timestamp}")?;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Failure> {
        while self.is_awaiting() {
            self.next().await?;
        }
        Ok(())
    }
}
