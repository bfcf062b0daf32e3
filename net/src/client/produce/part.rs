//! One batch on its way into a request: compressed when it first goes, sent again as it was, and
//! numbered anew only when the producer has a new identity.

use std::sync::Arc;

use quorate_core::batch::{self, Batch, BatchBuilder, Codec};
use quorate_core::id::{ProducerEpoch, ProducerId, TopicId};

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
                Some((id, epoch, sequence)) => builder.producer(id, epoch, sequence).build(),
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
