//! Control records: the markers that end a transaction in a partition. KIP-98.

use super::build::BatchBuilder;
use super::compression::Codec;
use super::{Batch, Record};
use crate::id::{ProducerEpoch, ProducerId};
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
    /// Kafka's coordinator epoch: which leadership of the transaction log decided.
    pub coordinator_epoch: i32,
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
        let [major, minor, ..] = self.coordinator_epoch.to_be_bytes();
        let [.., third, fourth] = self.coordinator_epoch.to_be_bytes();
        builder.append(
            at,
            Some(&[VERSION, ending].concat()),
            Some(&[VERSION, [major, minor], [third, fourth]].concat()),
            [],
        );
        builder.build()
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
        Some(Self { ending, coordinator_epoch: i32::from_be_bytes(coordinator_epoch) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Records;

    #[test]
    fn a_marker_survives_its_bytes() {
        for ending in [Ending::Aborted, Ending::Committed] {
            let marker = Marker { ending, coordinator_epoch: 0x0102_0304 };
            let batch = marker.batch(ProducerId(7), ProducerEpoch(1), Timestamp(5));
            let header = batch.header();
            assert!(header.is_control() && header.is_transactional());
            assert_eq!((header.base_sequence(), header.last_sequence()), (-1, -1));
            let record = Records::new(batch.records(), 1).next().unwrap().unwrap();
            assert_eq!(Marker::parse(&record), Some(marker));
        }
    }
}
