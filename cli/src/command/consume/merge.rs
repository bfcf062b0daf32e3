//! `quorate consume --merge time`: all partitions in the order of (timestamp, partition, offset).
//! A record is printed once every other partition has shown a later one or its end.

use std::collections::VecDeque;
use std::time::Duration;

use quorate_core::id::Offset;
use quorate_core::time::Instant;
use quorate_net::client::{Client, ConsumedRecord, FetchOptions, records_of};

use super::{Bounds, Printer};
use crate::args::ConsumeArgs;
use crate::command::Context;
use crate::failure::Failure;

/// How often a partition at its end is looked at. It holds the others up no longer than that.
const LOOK: Duration = Duration::from_millis(100);
/// How often a fetch is repeated before its error counts.
const ATTEMPTS: u32 = 20;

/// One partition's place in the merge. Holds one fetch at most.
struct Cursor {
    partition: i32,
    next: Offset,
    end: Option<Offset>,
    records: VecDeque<ConsumedRecord>,
    over: bool,
    look_at: Instant,
}

pub(super) async fn run(
    context: &Context,
    client: &Client,
    args: &ConsumeArgs,
    bounds: Bounds,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut cursors: Vec<Cursor> = bounds
        .starts
        .iter()
        .map(|(&partition, &next)| {
            let end = bounds.end(partition);
            let over = end.is_some_and(|end| next >= end);
            let (records, look_at) = (VecDeque::new(), Instant::ZERO);
            Cursor { partition, next, end, records, over, look_at }
        })
        .collect();
    while !printer.is_full() && cursors.iter().any(|cursor| !cursor.over) {
        let now = context.clock.now().monotonic;
        let empty = |cursor: &&mut Cursor| !cursor.over && cursor.records.is_empty();
        for cursor in cursors.iter_mut().filter(empty) {
            if cursor.look_at <= now {
                cursor.fill(context, client, args).await?;
                cursor.look_at = now + LOOK;
            }
        }
        match earliest(&cursors) {
            Some(place) => {
                let cursor = &mut cursors[place];
                if let Some(record) = cursor.records.pop_front() {
                    printer.record(&args.topic, cursor.partition, &record)?;
                }
                cursor.settle();
            }
            None => {
                printer.flush()?;
                context.clock.sleep(LOOK).await;
            }
        }
    }
    Ok(())
}

/// The cursor whose first record comes first.
fn earliest(cursors: &[Cursor]) -> Option<usize> {
    let heads = cursors.iter().enumerate().filter_map(|(place, cursor)| {
        let head = cursor.records.front()?;
        Some((head.timestamp, cursor.partition, head.offset, place))
    });
    heads.min().map(|(.., place)| place)
}

impl Cursor {
    async fn fill(
        &mut self,
        context: &Context,
        client: &Client,
        args: &ConsumeArgs,
    ) -> Result<(), Failure> {
        let isolation = args.isolation.of();
        let wait_max = Duration::ZERO;
        let options = FetchOptions { wait_max, isolation, ..FetchOptions::default() };
        let mut attempt = 1;
        let fetched = loop {
            match client.fetch(&args.topic, self.partition, self.next, &options).await {
                Ok(fetched) => break fetched,
                Err(error) if error.is_retriable() && attempt < ATTEMPTS => {
                    attempt += 1;
                    context.clock.sleep(LOOK).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        let from = self.next;
        for batch in &fetched.batches {
            self.records.extend(records_of(batch, from)?);
        }
        self.next = fetched.next.unwrap_or(from);
        if let Some(end) = self.end {
            self.records.retain(|record| record.offset < end);
        }
        self.settle();
        Ok(())
    }

    fn settle(&mut self) {
        let reached = self.end.is_some_and(|end| self.next >= end);
        self.over = reached && self.records.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::time::Timestamp;

    use super::*;

    fn cursor(partition: i32, records: &[(i64, i64)]) -> Cursor {
        let records = records.iter().map(|&(offset, time)| ConsumedRecord {
            offset: Offset(offset),
            timestamp: Timestamp(time),
            key: None,
            value: None,
            headers: Vec::new(),
        });
        let records = records.collect();
        let (next, end, look_at) = (Offset(9), Some(Offset(9)), Instant::ZERO);
        Cursor { partition, next, end, records, over: false, look_at }
    }

    #[test]
    fn time_then_partition_then_offset() {
        let mut cursors = [cursor(0, &[(0, 5), (1, 5)]), cursor(1, &[(0, 4), (1, 5)])];
        let mut order = Vec::new();
        while let Some(place) = earliest(&cursors) {
            let record = cursors[place].records.pop_front().unwrap();
            order.push((cursors[place].partition, record.offset.0));
        }
        assert_eq!(order, [(1, 0), (0, 0), (0, 1), (1, 1)]);
    }
}
