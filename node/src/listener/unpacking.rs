//! Batches are decompressed and checked on their connections' tasks, so on the runtime's threads,
//! and into memory that no frame has paid for. Small ones may be at work on every thread; of those
//! that turn out larger, one at a time in the whole node, and the others wait without a thread.

use quorate_core::batch::{Batch, Codec, Invalid, InvalidKind, Levels, Rules, validate};
use quorate_core::reached;

use super::permits::Pool;

/// A batch up to this size after decompression needs no permit: a few milliseconds of a thread.
const SMALL_BYTES: usize = 4 << 20;

/// The right to decompress what is large. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Unpacking {
    large: Pool,
}

impl Unpacking {
    /// For batches of up to `bytes_max` bytes after decompression.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { large: Pool::new(bytes_max) }
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use quorate_core::batch::BatchBuilder;
    use quorate_core::time::Timestamp;

    use super::*;

    fn batch(bytes: usize) -> Batch {
        let mut batch = BatchBuilder::new(Codec::Gzip);
        batch.append(Timestamp(1), None, Some(&vec![0; bytes]), []);
        batch.build()
    }

    #[tokio::test]
    async fn large_batches_go_one_by_one_and_small_ones_past_them() {
        let rules = Rules {
            now: Timestamp(1),
            batch_bytes_max: 1 << 20,
            uncompressed_bytes_max: 64 << 20,
            compact: false,
            log_append_time: false,
            timestamp_before_max: None,
            timestamp_after_max: None,
            zstd: true,
        };
        let unpacking = Unpacking::new(rules.uncompressed_bytes_max);
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
}
