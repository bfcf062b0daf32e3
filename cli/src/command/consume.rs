//! `quorate consume`: the records of a topic, alone or as a member of a group, partition by
//! partition or merged by time.

mod group;
mod merge;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::Offset;
use quorate_core::time::Timestamp;
use quorate_net::client::{
    Client, ConsumedRecord, Consumer, ConsumerConfig, FetchOptions, PartitionBatches, Position,
};

use super::{Context, existing_topic};
use crate::args::ConsumeArgs;
use crate::failure::Failure;
use crate::output::human::parse_duration;
use crate::record_format::RecordFormat;
use crate::record_json::JsonRecord;

/// How long one wait for records lasts before the loop looks around.
const STEP: Duration = Duration::from_millis(500);

pub(crate) async fn run(context: &Context, args: ConsumeArgs) -> Result<(), Failure> {
    let client = context.connect().await?;
    let topic = existing_topic(&client, &args.topic).await?;
    let count = topic.partition_count();
    if let Some(wrong) = args.partition.iter().find(|partition| !(0..count).contains(partition)) {
        let failure = Failure::new(format!("topic {} has no partition {wrong}", args.topic));
        return Err(failure.hint(format!("its partitions are 0 to {}", count - 1)));
    }
    let mut printer = Printer::new(context, &args)?;
    if args.group.is_some() {
        return group::run(context, &client, &args, &mut printer).await;
    }
    let partitions = match args.partition.as_slice() {
        [] => (0..count).collect(),
        some => some.to_vec(),
    };
    let bounds = Bounds::of(context, &client, &args, &partitions).await?;
    let outcome = {
        let reading = async {
            match args.merge {
                Some(_) => merge::run(context, &client, &args, bounds, &mut printer).await,
                None => plain(&client, &args, bounds, &mut printer).await,
            }
        };
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => Ok(()),
            outcome = reading => outcome,
        }
    };
    // What has been read is written out, whatever ended the reading.
    printer.flush().and(outcome)
}

/// Where each partition begins and, with `--exit`, ends.
struct Bounds {
    starts: BTreeMap<i32, Offset>,
    ends: BTreeMap<i32, Offset>,
}

impl Bounds {
    async fn of(
        context: &Context,
        client: &Client,
        args: &ConsumeArgs,
        partitions: &[i32],
    ) -> Result<Self, Failure> {
        let isolation = args.isolation.of();
        let list = |position| client.list_offsets(&args.topic, partitions, position, isolation);
        let ends = offsets(partitions, &list(Position::End).await?);
        let text = args.offset.as_deref().unwrap_or("beginning");
        let starts = match last_records(text) {
            Some(last) => {
                let first = offsets(partitions, &list(Position::Beginning).await?);
                let start = |(&partition, end): (&i32, &Offset)| {
                    let first = first.get(&partition).copied().unwrap_or_default();
                    (partition, end.plus(-last).max(first))
                };
                ends.iter().map(start).collect()
            }
            None => {
                let position = parse_position(text, context)?;
                let listed = list(position).await?;
                let places = partitions.iter().zip(&listed);
                places
                    .map(|(&partition, listed)| {
                        // No record is so new: what comes next is.
                        let end = ends.get(&partition).copied();
                        (partition, listed.offset.or(end).unwrap_or_default())
                    })
                    .collect()
            }
        };
        let ends = if args.exit { ends } else { BTreeMap::new() };
        Ok(Self { starts, ends })
    }

    /// The end of `partition`, if it has one.
    fn end(&self, partition: i32) -> Option<Offset> {
        self.ends.get(&partition).copied()
    }
}

fn offsets(
    partitions: &[i32],
    listed: &[quorate_net::client::ListedOffset],
) -> BTreeMap<i32, Offset> {
    let places = partitions.iter().zip(listed);
    places.map(|(&partition, listed)| (partition, listed.offset.unwrap_or_default())).collect()
}

/// `-N`: the last N records of each partition.
fn last_records(text: &str) -> Option<i64> {
    text.strip_prefix('-').and_then(|number| number.parse().ok()).filter(|&number| number > 0)
}

/// `beginning`, `end`, an offset, `@MILLISECONDS` since 1970, or `@1h` ago.
pub(crate) fn parse_position(text: &str, context: &Context) -> Result<Position, Failure> {
    let failure = || {
        Failure::usage(format!("`{text}` is no position"))
            .hint("beginning, end, an offset, -N for the last N, @MILLISECONDS, or @1h ago")
    };
    if let Some(time) = text.strip_prefix('@') {
        if let Ok(millis) = time.parse() {
            return Ok(Position::Time(Timestamp(millis)));
        }
        let ago = parse_duration(time).map_err(|_| failure())?;
        let ago = i64::try_from(ago.as_millis()).map_err(|_| failure())?;
        return Ok(Position::Time(Timestamp(context.clock.now().wall.0 - ago)));
    }
    match text {
        "beginning" | "earliest" | "start" => Ok(Position::Beginning),
        "end" | "latest" => Ok(Position::End),
        number => match number.parse() {
            Ok(offset @ 0..) => Ok(Position::Offset(Offset(offset))),
            _ => Err(failure()),
        },
    }
}

async fn plain(
    client: &Client,
    args: &ConsumeArgs,
    mut bounds: Bounds,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let topic: Arc<str> = Arc::from(args.topic.as_str());
    let fetch = FetchOptions { isolation: args.isolation.of(), ..FetchOptions::default() };
    let config = ConsumerConfig { fetch, ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(client.clone(), config);
    let starts = std::mem::take(&mut bounds.starts);
    let mut open = 0;
    for (partition, start) in starts {
        if bounds.end(partition).is_none_or(|end| start < end) {
            consumer.assign(&topic, partition, Position::Offset(start));
            open += 1;
        }
    }
    while open > 0 && !printer.is_full() {
        let Some(batches) = consumer.poll(STEP).await? else {
            printer.flush()?;
            continue;
        };
        let end = bounds.end(batches.partition);
        printer.print(&batches, end)?;
        if end.is_some_and(|end| batches.next() >= end) {
            consumer.unassign(&topic, batches.partition);
            open -= 1;
        }
        printer.flush_if_watched()?;
    }
    Ok(())
}

/// Writes records as they were asked for, and stops at `--count`.
struct Printer {
    out: io::BufWriter<io::Stdout>,
    shape: Shape,
    left: Option<u64>,
    watched: bool,
}

enum Shape {
    Format(RecordFormat),
    Json,
}

impl Printer {
    fn new(context: &Context, args: &ConsumeArgs) -> Result<Self, Failure> {
        let shape = if args.json_lines || context.output.json {
            Shape::Json
        } else {
            let text = args.format.as_deref().unwrap_or("%s\\n");
            let format = RecordFormat::parse(text);
            let wrong = |wrong| Failure::usage(format!("--format {text}: {wrong}"));
            Shape::Format(format.map_err(wrong)?)
        };
        let watched = io::stdout().is_terminal();
        let out = io::BufWriter::with_capacity(256 * 1024, io::stdout());
        Ok(Self { out, shape, left: args.count, watched })
    }

    fn is_full(&self) -> bool {
        self.left == Some(0)
    }

    /// Prints the records below `end`; gives the offset after the last one printed.
    fn print(
        &mut self,
        batches: &PartitionBatches,
        end: Option<Offset>,
    ) -> Result<Offset, Failure> {
        let mut next = batches.from;
        for batch in &batches.batches {
            for record in quorate_net::client::records_of(batch, batches.from)? {
                if self.is_full() || end.is_some_and(|end| record.offset >= end) {
                    return Ok(next);
                }
                next = record.offset.plus(1);
                self.record(&batches.topic, batches.partition, &record)?;
            }
        }
        // What was left out is behind the reader too.
        Ok(batches.next())
    }

    fn record(
        &mut self,
        topic: &str,
        partition: i32,
        record: &ConsumedRecord,
    ) -> Result<(), Failure> {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
        }
        match &self.shape {
            Shape::Format(format) => format.write(&mut self.out, topic, partition, record)?,
            Shape::Json => {
                let json = JsonRecord::new(topic, partition, record);
                serde_json::to_writer(&mut self.out, &json).map_err(io::Error::from)?;
                self.out.write_all(b"\n")?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }

    /// Somebody who looks on sees each record at once.
    fn flush_if_watched(&mut self) -> Result<(), Failure> {
        if self.watched { self.flush() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_records_are_counted_back() {
        assert_eq!(last_records("-5"), Some(5));
        assert_eq!((last_records("5"), last_records("-0"), last_records("-x")), (None, None, None));
    }
}
