//! `quorate bench`: throughput, and latency from the instant at which a record was due, so that a
//! stall is not forgiven to the records that waited behind it (no coordinated omission).

mod report;
mod run;

use std::sync::Arc;

use bytes::Bytes;
use quorate_core::partition::interface::Acks;
use quorate_net::client::{Client, NewTopic, ProducerConfig};

use self::report::Report;
use super::{Context, existing_topic, parse_acks, parse_codec, parse_config};
use crate::args::{BenchArgs, BenchCommand};
use crate::failure::Failure;

pub(crate) async fn run(context: &Context, command: BenchCommand) -> Result<(), Failure> {
    let (kind, args) = match command {
        BenchCommand::Produce(args) => (Kind::Produce, args),
        BenchCommand::Consume(args) => (Kind::Consume, args),
        BenchCommand::EndToEnd(args) => (Kind::EndToEnd, args),
    };
    if args.size > 100 << 20 {
        return Err(Failure::usage("a record of more than 100 MiB is not a record"));
    }
    if kind == Kind::EndToEnd && args.size < 16 {
        let failure = Failure::usage("an end-to-end record holds its time and place");
        return Err(failure.hint("--size 16 or more"));
    }
    if args.transactional.is_some() && (kind != Kind::Produce || !args.idempotent) {
        let failure = Failure::usage("transactions are for `bench produce` with acks all");
        return Err(failure.hint("leave --transactional out, or --idempotent and --acks"));
    }
    let client = context.connect().await?;
    let topic = Topic::prepare(context, &client, &args).await?;
    let outcome = tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Err(Failure::new("interrupted")),
        outcome = measure(context, kind, &args, &topic.name) => outcome,
    };
    context.output.progress("");
    topic.remove(&client).await?;
    let report = outcome?;
    if context.output.json { context.output.json(&report) } else { report.print(context) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Produce,
    Consume,
    EndToEnd,
}

async fn measure(
    context: &Context,
    kind: Kind,
    args: &BenchArgs,
    topic: &Arc<str>,
) -> Result<Report, Failure> {
    match kind {
        Kind::Produce => run::produce(context, args, topic).await,
        Kind::EndToEnd => run::end_to_end(context, args, topic).await,
        Kind::Consume => {
            // What is measured is reading: fill as fast as it goes.
            let filling = BenchArgs { rate: None, warmup: 0, ..args.clone() };
            if run::records_in(context, topic).await? < args.records {
                run::produce(context, &filling, topic).await?;
            }
            run::consume(context, args, topic).await
        }
    }
}

/// The topic of a run: named by the user, or made for it and deleted after it.
struct Topic {
    name: Arc<str>,
    made: bool,
}

impl Topic {
    async fn prepare(
        context: &Context,
        client: &Client,
        args: &BenchArgs,
    ) -> Result<Self, Failure> {
        if let Some(name) = &args.topic {
            existing_topic(client, name).await?;
            return Ok(Self { name: Arc::from(name.as_str()), made: false });
        }
        let name = format!("bench-{}-{}", std::process::id(), context.clock.now().wall);
        let configs = args.config.iter().map(|text| parse_config(text));
        let topic = NewTopic {
            name: name.clone(),
            partitions: Some(args.partitions),
            replication_factor: None,
            configs: configs.collect::<Result<_, _>>()?,
        };
        client.create_topic(&topic).await?;
        Ok(Self { name: Arc::from(name.as_str()), made: true })
    }

    async fn remove(&self, client: &Client) -> Result<(), Failure> {
        if self.made {
            client.delete_topic(&self.name).await?;
        }
        Ok(())
    }
}

fn producer_config(args: &BenchArgs) -> Result<ProducerConfig, Failure> {
    let acks = parse_acks(&args.acks)?;
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let batch_bytes_max = bytes(args.batch);
    let defaults = ProducerConfig::default();
    let record = bytes(args.size) + 1024;
    Ok(ProducerConfig {
        acks,
        idempotent: args.idempotent && matches!(acks, Acks::All | Acks::AtLeast(_)),
        codec: parse_codec(&args.codec)?,
        batch_bytes_max,
        batch_records_max: i32::try_from(args.batch_records).unwrap_or(i32::MAX).max(1),
        linger: args.linger,
        request_bytes_max: defaults.request_bytes_max.max(batch_bytes_max),
        buffer_bytes_max: defaults.buffer_bytes_max.max(batch_bytes_max * 2).max(record * 2),
        ..defaults
    })
}

/// Values of capital letters, as `kafka-producer-perf-test` makes them, so that codecs have the
/// same work. A few different ones, drawn in advance.
fn values(size: u64) -> Vec<Bytes> {
    let size = usize::try_from(size).unwrap_or_default();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b'A' + (state % 26) as u8
    };
    (0..16).map(|_| (0..size).map(|_| letter()).collect::<Vec<u8>>().into()).collect()
}
