//! One batch on its way into a request: compressed when it first goes, sent again as it was, and
//! numbered anew only when the producer has a new identity.

use std::sync::Arc;

use quorate_core::batch::{self, Batch, BatchBuilder, Codec};
use quorate_core::id::{Offset, ProducerEpoch, ProducerId, TopicId};
use quorate_core::time::Timestamp;

use super::Message;

/// What a record costs beside its key, value and headers, in bytes: lengths, deltas, attributes,
/// and its share of the batch's header.
const RECORD_OVERHEAD: usize = 70;

/// Bytes that a message takes in the buffer; at least what it takes in a batch.
pub(super) fn size_of(message: &Message) -> usize {
    let part = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
    let headers = message.headers.iter();
    let headers = headers.map(|header| header.key.len() + part(&header.value) + 10);
    part(&message.key) + part(&message.value) + headers.sum::<usize>() + RECORD_OVERHEAD
}

/// What a broker said about a batch that it accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub base: Option<Offset>,
    pub append_time: Option<Timestamp>,
}

/// One batch on its way into a request.
#[derive(Debug)]
pub(super) struct Part {
    pub topic: Arc<str>,
    pub topic_id: TopicId,
    pub partition: i32,
    pub entry: u64,
    pub content: Content,
    pub codec: Codec,
    pub identity: Option<(ProducerId, ProducerEpoch, i32)>,
    /// It is part of its producer's transaction.
    pub transactional: bool,
}

#[derive(Debug)]
pub(super) enum Content {
    Fresh(BatchBuilder),
    Built(Batch),
    /// It is in the request that is under way.
    Away,
}

impl Part {
    /// Compresses the batch, or takes it as it was sent before.
    pub(super) fn build(&mut self) -> Batch {
        match std::mem::replace(&mut self.content, Content::Away) {
            Content::Fresh(builder) => match self.identity {
                Some((id, epoch, sequence)) => {
                    let builder = builder.producer(id, epoch, sequence);
                    if self.transactional { builder.transactional() } else { builder }.build()
                }
                None => builder.build(),
            },
            Content::Built(batch) => match self.identity {
                Some(identity) if !carries(&batch, identity) => {
                    renumbered(&batch, self.codec, identity)
                }
                _ => batch,
            },
            Content::Away => unreachable!("a part is built once"),
        }
    }
}

fn carries(batch: &Batch, (id, epoch, sequence): (ProducerId, ProducerEpoch, i32)) -> bool {
    let header = batch.header();
    (header.producer_id(), header.producer_epoch(), header.base_sequence()) == (id, epoch, sequence)
}

/// The same records under another identity.
fn renumbered(
    batch: &Batch,
    codec: Codec,
    (id, epoch, sequence): (ProducerId, ProducerEpoch, i32),
) -> Batch {
    let ours = "a batch of our own can be read back";
    let bytes = batch.uncompressed(usize::MAX).expect(ours);
    let mut builder = BatchBuilder::new(codec).producer(id, epoch, sequence);
    for record in batch::Records::new(&bytes, batch.header().record_count()) {
        let record = record.expect(ours);
        let headers: Vec<_> = record.headers.clone().collect();
        builder.append(batch.timestamp_of(&record), record.key, record.value, headers);
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_under_another_identity_has_the_same_records() {
        for codec in Codec::ALL {
            let mut builder = BatchBuilder::new(codec).producer(ProducerId(1), ProducerEpoch(0), 7);
            for value in [&b"one"[..], b"two"] {
                builder.append(Timestamp(5), Some(b"key"), Some(value), []);
            }
            let batch = builder.build();
            let identity = (ProducerId(2), ProducerEpoch(3), 0);
            let again = renumbered(&batch, codec, identity);
            assert!(carries(&again, identity) && !carries(&batch, identity));
            let content = |batch: &Batch| {
                let bytes = batch.uncompressed(usize::MAX).expect("whole");
                let records = batch::Records::new(&bytes, batch.header().record_count());
                let values = records.map(|record| record.expect("whole").value.map(<[u8]>::to_vec));
                values.collect::<Vec<_>>()
            };
            assert_eq!(content(&again), [Some(b"one".to_vec()), Some(b"two".to_vec())], "{codec}");
        }
    }
}
