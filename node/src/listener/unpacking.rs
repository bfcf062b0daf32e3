//! Batches are decompressed and checked on their connections' tasks, so on the runtime's threads,
//! and into memory that no frame has paid for. Small ones may be at work on every thread; of those
//! that turn out larger, one at a time in the whole node, and the others wait without a thread.

use quorate_core::batch::compression::CompressionError;
use quorate_core::batch::{Batch, Codec, Invalid, InvalidKind, Levels, Rules, validate};
use quorate_core::reached;

use super::permits::{Pool, hold};
use crate::storage::{Unpack, Unpacked};

/// A batch up to this size after decompression needs no permit: a few milliseconds of a thread.
const SMALL_BYTES: usize = 4 << 20;

/// The right to decompress what is large. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Unpacking {
    large: Pool,
    /// Memory of batches that were compressed anew; their frames have paid for others.
    anew: Pool,
    bytes_max: usize,
}

impl Unpacking {
    /// For batches of up to `bytes_max` bytes after decompression, of which `memory_max` bytes may
    /// be kept in another codec than they came in.
    pub(crate) fn new(bytes_max: usize, memory_max: usize) -> Self {
        Self { large: Pool::new(bytes_max), anew: Pool::new(memory_max), bytes_max }
    }

    /// A batch that was found good, in the codec that its topic keeps.
    ///
    /// # Errors
    ///
    /// A sentence: it is larger than the topic allows so.
    pub(crate) async fn recompress(
        &self,
        mut batch: Batch,
        codec: Codec,
        rules: &Rules,
    ) -> Result<Batch, String> {
        // It may be as large as the topic allows, whatever it was.
        let mut permit = self.anew.take(rules.batch_bytes_max).await;
        if batch.recompress(codec, SMALL_BYTES.min(rules.uncompressed_bytes_max)).is_err() {
            let _large = self.large.take(rules.uncompressed_bytes_max).await;
            let done = batch.recompress(codec, rules.uncompressed_bytes_max);
            done.map_err(|error| error.to_string())?;
        }
        if batch.len() > rules.batch_bytes_max {
            return Err(format!(
                "in {codec}, the topic's compression.type, the batch has {} bytes, and the topic \
                 allows {} (max.message.bytes)",
                batch.len(),
                rules.batch_bytes_max
            ));
        }
        drop(permit.split(permit.num_permits().saturating_sub(batch.len())));
        Ok(batch.map_records(|records| hold(records, Some(permit))))
    }

    /// As `batch::validate`, in the order in which large batches ask.
    pub(crate) async fn validate(
        &self,
        batch: &mut Batch,
        rules: &Rules,
    ) -> Result<Levels, Invalid> {
        if batch.header().codec() == Codec::None || rules.uncompressed_bytes_max <= SMALL_BYTES {
            return validate(batch, rules);
        }
        let small = Rules { uncompressed_bytes_max: SMALL_BYTES, ..rules.clone() };
        match validate(batch, &small) {
            Err(invalid) if invalid.kind == InvalidKind::TooLarge => {}
            outcome => return outcome,
        }
        reached!("large-batch-decompressed");
        let _permit = self.large.take(rules.uncompressed_bytes_max).await;
        validate(batch, rules)
    }
}

impl Unpack for Unpacking {
    /// What is large keeps its permit for as long as somebody looks at it.
    fn unpack<'a>(&'a self, batch: &'a Batch) -> Unpacked<'a> {
        Box::pin(async move {
            match batch.uncompressed(SMALL_BYTES.min(self.bytes_max)) {
                Err(CompressionError::TooLarge { .. }) if self.bytes_max > SMALL_BYTES => {}
                outcome => return outcome.map_err(|error| error.to_string()),
            }
            reached!("large-batch-searched");
            let permit = self.large.take(self.bytes_max).await;
            let records = batch.uncompressed(self.bytes_max).map_err(|error| error.to_string())?;
            Ok(hold(records, Some(permit)))
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use quorate_core::batch::BatchBuilder;
    use quorate_core::time::Timestamp;

    use super::*;

    fn rules() -> Rules {
        Rules {
            now: Timestamp(1),
            batch_bytes_max: 1 << 20,
            uncompressed_bytes_max: 64 << 20,
            compact: false,
            log_append_time: false,
            timestamp_before_max: None,
            timestamp_after_max: None,
            zstd: true,
        }
    }

    fn batch(bytes: usize) -> Batch {
        let mut batch = BatchBuilder::new(Codec::Gzip);
        batch.append(Timestamp(1), None, Some(&vec![0; bytes]), []);
        batch.build()
    }

    #[tokio::test]
    async fn batches_are_kept_in_the_codec_of_their_topic_within_its_size() {
        let rules = rules();
        let unpacking = Unpacking::new(rules.uncompressed_bytes_max, 4 << 20);
        for codec in Codec::ALL {
            let kept = unpacking.recompress(batch(100_000), codec, &rules).await.unwrap();
            kept.verify().unwrap();
            assert_eq!(kept.header().codec(), codec);
            assert_eq!(kept.uncompressed(1 << 20), batch(100_000).uncompressed(1 << 20));
            assert_eq!(unpacking.anew.taken(), kept.len());
            drop(kept);
            assert_eq!(unpacking.anew.taken(), 0);
        }
        let why = unpacking.recompress(batch(2 << 20), Codec::None, &rules).await.unwrap_err();
        assert!(why.contains("max.message.bytes"), "{why}");
    }

    #[tokio::test]
    async fn large_batches_go_one_by_one_and_small_ones_past_them() {
        let rules = rules();
        let unpacking = Unpacking::new(rules.uncompressed_bytes_max, 16 << 20);
        let (mut small, mut large) = (batch(1000), batch(SMALL_BYTES + 1));
        let at_work = unpacking.large.take(rules.uncompressed_bytes_max).await;
        let done = unpacking.validate(&mut small, &rules).now_or_never();
        done.expect("a small one does not wait").unwrap();
        let mut waiting = Box::pin(unpacking.validate(&mut large, &rules));
        assert!(waiting.as_mut().now_or_never().is_none(), "one at a time");
        drop(at_work);
        waiting.now_or_never().expect("its turn has come").unwrap();
        let strict = Rules { uncompressed_bytes_max: SMALL_BYTES + 1, ..rules };
        let refused = unpacking.validate(&mut batch(SMALL_BYTES + 1), &strict).await.unwrap_err();
        assert_eq!(refused.kind, InvalidKind::TooLarge, "with its framing it is beyond");
    }

    #[tokio::test]
    async fn what_is_searched_for_a_time_waits_like_what_is_validated() {
        let rules = rules();
        let unpacking = Unpacking::new(rules.uncompressed_bytes_max, 16 << 20);
        let (small, large) = (batch(1000), batch(SMALL_BYTES + 1));
        let at_work = unpacking.large.take(rules.uncompressed_bytes_max).await;
        unpacking.unpack(&small).now_or_never().expect("a small one does not wait").unwrap();
        let mut waiting = unpacking.unpack(&large);
        assert!(waiting.as_mut().now_or_never().is_none(), "one at a time");
        drop(at_work);
        let records = waiting.now_or_never().expect("its turn has come").unwrap();
        assert!(unpacking.large.taken() > 0, "as long as somebody looks at it");
        drop(records);
        assert_eq!(unpacking.large.taken(), 0);
        let poor = Unpacking::new(SMALL_BYTES + 1, 16 << 20);
        assert!(poor.unpack(&large).await.unwrap_err().contains("more than the allowed"));
    }
}
