//! What a reader of committed records leaves out: batches of transactions that were aborted. The
//! broker names them with each answer. Kafka's `CompletedFetch`.

use std::collections::BTreeSet;

use quorate_core::batch::control::{Ending, Marker};
use quorate_core::batch::{self, Batch};
use quorate_core::id::{Offset, ProducerId};
use quorate_core::mutant;

use crate::kafka::messages::fetch::AbortedTransaction;

/// `batches` without those of `aborted` transactions. Markers stay, as they have offsets. The list
/// need not be in order, and may hold transactions that begin before or behind the batches.
pub(super) fn committed(batches: Vec<Batch>, aborted: &[AbortedTransaction]) -> Vec<Batch> {
    let mut begins: Vec<(Offset, ProducerId)> =
        aborted.iter().map(|row| (Offset(row.first_offset), ProducerId(row.producer_id))).collect();
    begins.sort_unstable();
    let mut begins = begins.into_iter().peekable();
    let mut aborting = BTreeSet::new();
    let visible = |batch: &Batch| {
        let header = batch.header();
        while let Some((_, producer)) = begins.next_if(|(first, _)| *first < header.next_offset()) {
            aborting.insert(producer);
        }
        if header.is_control() {
            // A producer's next transaction is another one.
            if ends(batch) == Some(Ending::Aborted) && !mutant!("client-aborts-a-producer-for-good")
            {
                aborting.remove(&header.producer_id());
            }
            return true;
        }
        !(header.is_transactional() && aborting.contains(&header.producer_id()))
    };
    batches.into_iter().filter(visible).collect()
}

fn ends(batch: &Batch) -> Option<Ending> {
    let record = batch::Records::new(batch.records(), 1).next()?.ok()?;
    Some(Marker::parse(&record)?.ending)
}

#[cfg(test)]
mod tests {
    use quorate_core::batch::{BatchBuilder, Codec};
    use quorate_core::id::{CoordinatorEpoch, LeaderEpoch, ProducerEpoch};
    use quorate_core::time::Timestamp;

    use super::*;

    /// A log of `(producer, what)`, one offset each: a value, `commit`, `abort`, or `plain`, which
    /// no transaction holds.
    fn log(rows: &[(i64, &str)]) -> Vec<Batch> {
        let rows = rows.iter().zip(0..).map(|(&(producer, what), offset)| {
            let (producer, epoch) = (ProducerId(producer), ProducerEpoch(0));
            let marker = |ending| {
                Marker { ending, coordinator_epoch: CoordinatorEpoch(3) }.batch(
                    producer,
                    epoch,
                    Timestamp(1),
                )
            };
            let mut batch = match what {
                "commit" => marker(Ending::Committed),
                "abort" => marker(Ending::Aborted),
                value => {
                    let builder = BatchBuilder::new(Codec::None).producer(producer, epoch, 0);
                    let mut builder =
                        if value == "plain" { builder } else { builder.transactional() };
                    builder.append(Timestamp(1), None, Some(value.as_bytes()), []);
                    builder.build()
                }
            };
            batch.stamp(Offset(offset), LeaderEpoch(1));
            batch
        });
        rows.collect()
    }

    fn seen(rows: &[(i64, &str)], aborted: &[(i64, i64)]) -> Vec<i64> {
        let aborted: Vec<_> = aborted
            .iter()
            .map(|&(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset })
            .collect();
        let left = committed(log(rows), &aborted);
        let data = left.iter().filter(|batch| !batch.header().is_control());
        data.map(|batch| batch.header().base_offset().0).collect()
    }

    #[test]
    fn an_aborted_transaction_is_left_out_up_to_its_marker() {
        let rows = [(1, "a"), (2, "b"), (1, "c"), (1, "abort"), (1, "d"), (1, "commit")];
        assert_eq!(seen(&rows, &[(1, 0)]), [1, 4]);
        assert_eq!(seen(&rows, &[]), [0, 1, 2, 4]);
        // It began before what was fetched.
        assert_eq!(seen(&rows, &[(1, -7)]), [1, 4]);
    }

    #[test]
    fn only_from_its_first_offset_on() {
        let rows = [(1, "a"), (1, "commit"), (1, "b"), (1, "abort")];
        assert_eq!(seen(&rows, &[(1, 2)]), [0]);
        // The second of two, in whatever order they are told.
        let rows = [(1, "a"), (1, "abort"), (1, "b"), (1, "abort"), (1, "c"), (1, "commit")];
        assert_eq!(seen(&rows, &[(1, 2), (1, 0)]), [4]);
    }

    #[test]
    fn what_is_in_no_transaction_stays() {
        let rows = [(1, "a"), (1, "plain"), (1, "abort")];
        assert_eq!(seen(&rows, &[(1, 0)]), [1]);
    }
}
