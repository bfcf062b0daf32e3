//! Control records: the markers that end a transaction in a partition. KIP-98.

use super::build::BatchBuilder;
use super::compression::Codec;
use super::{Batch, Record, Records};
use crate::id::{CoordinatorEpoch, ProducerEpoch, ProducerId};
use crate::time::Timestamp;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Aborted,
    Committed,
}

/// What a transaction marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    pub ending: Ending,
    /// Which leadership of the transaction log decided.
    pub coordinator_epoch: CoordinatorEpoch,
}

const VERSION: [u8; 2] = [0, 0];
const ABORT: [u8; 2] = [0, 0];
const COMMIT: [u8; 2] = [0, 1];

impl Marker {
    /// The batch that ends the open transaction of `producer`: one record, not compressed.
    pub fn batch(self, producer: ProducerId, epoch: ProducerEpoch, at: Timestamp) -> Batch {
        let ending = match self.ending {
            Ending::Aborted => ABORT,
            Ending::Committed => COMMIT,
        };
        let mut builder =
            BatchBuilder::new(Codec::None).producer(producer, epoch, -1).transactional().control();
        let [major, minor, ..] = self.coordinator_epoch.0.to_be_bytes();
        let [.., third, fourth] = self.coordinator_epoch.0.to_be_bytes();
        builder.append(
            at,
            Some(&[VERSION, ending].concat()),
            Some(&[VERSION, [major, minor], [third, fourth]].concat()),
            [],
        );
        builder.build()
    }

    /// The marker in a batch; `None` if it is no control batch, or one of another kind, or if
    /// compaction has left nothing in it.
    pub fn of(batch: &Batch) -> Option<Self> {
        if !batch.header().is_control() {
            return None;
        }
        // Never compressed, whoever wrote it.
        let record = Records::new(batch.records(), batch.header().record_count()).next()?.ok()?;
        Self::parse(&record)
    }

    /// `None` if the record of a control batch is no marker of a known kind: newer brokers may
    /// write others, which readers skip.
    pub fn parse(record: &Record<'_>) -> Option<Self> {
        let ending = match record.key?.get(..4)? {
            [_, _, 0, 0] => Ending::Aborted,
            [_, _, 0, 1] => Ending::Committed,
            _ => return None,
        };
        let coordinator_epoch = record.value?.get(2..6)?.try_into().ok()?;
        let coordinator_epoch = CoordinatorEpoch(i32::from_be_bytes(coordinator_epoch));
        Some(Self { ending, coordinator_epoch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_survives_its_bytes() {
        for ending in [Ending::Aborted, Ending::Committed] {
            let marker = Marker { ending, coordinator_epoch: CoordinatorEpoch(0x0102_0304) };
            let batch = marker.batch(ProducerId(7), ProducerEpoch(1), Timestamp(5));
            let header = batch.header();
            assert!(header.is_control() && header.is_transactional());
            assert_eq!((header.base_sequence(), header.last_sequence()), (-1, -1));
            let record = Records::new(batch.records(), 1).next().unwrap().unwrap();
            assert_eq!(Marker::parse(&record), Some(marker));
            assert_eq!(Marker::of(&batch), Some(marker));
        }
    }
}
