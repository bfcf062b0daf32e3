//! What remains of a batch whose records go: fewer records, none, or a stretch of offsets at which
//! nothing stands. Offsets never move. Kafka's `MemoryRecords.filterTo`, KIP-534.

use bytes::Bytes;

use super::compression::{self, Codec};
use super::record::put_record;
use super::{Batch, Header, Record, Records, TimestampType};
use crate::id::{LeaderEpoch, Offset};
use crate::time::Timestamp;

impl Batch {
    /// A batch without records, of no producer, that stands for the offsets from `base` to below
    /// `next`: at least one, at most 2^31. It keeps the log without gaps, so that a frame that is
    /// missing is always a loss.
    pub fn filler(base: Offset, next: Offset, leader_epoch: LeaderEpoch) -> Self {
        let delta = i32::try_from(next.0 - base.0 - 1).expect("a filler has at most 2^31 offsets");
        let mut header = Header::blank();
        header.set_last_offset_delta(delta);
        let mut batch = Self { header, records: Bytes::new() };
        batch.stamp(base, leader_epoch);
        batch.renew_checksum();
        batch
    }

    /// Whether it stands for offsets only: nobody's records, nobody's sequence.
    pub fn is_filler(&self) -> bool {
        is_filler(&self.header)
    }

    /// The part of a filler from `from` to below `to`; any other batch as it is. `None` if nothing
    /// of the filler lies between.
    #[must_use]
    pub fn narrowed(self, from: Offset, to: Offset) -> Option<Self> {
        if !self.is_filler() {
            return Some(self);
        }
        let (base, next) = (self.header.base_offset().max(from), self.header.next_offset().min(to));
        (base < next).then(|| Self::filler(base, next, self.header.leader_epoch()))
    }

    /// The same place, producer and sequence, without a record.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let mut header = self.header;
        header.set_codec(Codec::None);
        header.set_count(0);
        header.set_records_bytes(0);
        header.set_delete_horizon(false, header.max_timestamp());
        let mut batch = Self { header, records: Bytes::new() };
        batch.renew_checksum();
        batch
    }

    /// The same batch with those of its records (`unpacked`: without compression) for which `keeps`
    /// says so. With a `horizon` the base timestamp becomes that, and says when the tombstones in
    /// it may go; times of records stay what they are.
    ///
    /// The records must have been read to their end before: what cannot be read ends the batch.
    #[must_use]
    pub fn thinned(
        &self,
        unpacked: &Bytes,
        horizon: Option<Timestamp>,
        mut keeps: impl FnMut(&Record<'_>) -> bool,
    ) -> Self {
        let mut header = self.header;
        let base = header.base_timestamp();
        let shift = horizon.map_or(0, |horizon| base.0.wrapping_sub(horizon.0));
        let (mut out, mut count, mut max) =
            (Vec::with_capacity(unpacked.len()), 0, Timestamp::NONE);
        for record in Records::new(unpacked, header.record_count()).map_while(Result::ok) {
            if !keeps(&record) {
                continue;
            }
            count += 1;
            max = max.max(self.timestamp_of(&record));
            let delta = record.timestamp_delta.wrapping_add(shift);
            let Record { offset_delta, key, value, headers, .. } = record;
            put_record(&mut out, offset_delta, delta, key, value, headers);
        }
        if header.timestamp_type() == TimestampType::CreateTime {
            header.set_max_timestamp(max);
        }
        if let Some(horizon) = horizon {
            header.set_delete_horizon(true, horizon);
        }
        let records = match header.codec() {
            Codec::None => Bytes::from(out),
            codec => compression::compress(codec, &out),
        };
        header.set_count(count);
        header.set_records_bytes(records.len());
        let mut batch = Self { header, records };
        batch.renew_checksum();
        batch
    }

    /// When the tombstones in it may go; `None` as long as compaction has not said.
    pub fn delete_horizon(&self) -> Option<Timestamp> {
        self.header.has_delete_horizon().then(|| self.header.base_timestamp())
    }
}

/// See `Batch::is_filler`.
pub fn is_filler(header: &Header) -> bool {
    header.record_count() == 0 && !header.producer_id().is_some() && !header.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BatchBuilder;
    use crate::id::{ProducerEpoch, ProducerId};

    fn batch(codec: Codec) -> Batch {
        let mut builder = BatchBuilder::new(codec).producer(ProducerId(7), ProducerEpoch(1), 40);
        for (time, key, value) in
            [(100, "a", Some("1")), (300, "b", None), (200, "c", Some("3")), (50, "a", Some("4"))]
        {
            let value = value.map(str::as_bytes);
            builder.append(Timestamp(time), Some(key.as_bytes()), value, []);
        }
        let mut batch = builder.build();
        batch.stamp(Offset(1000), LeaderEpoch(3));
        batch
    }

    fn seen(batch: &Batch) -> Vec<(i64, i64, String)> {
        let records = batch.uncompressed(1 << 20).unwrap();
        let records = Records::new(&records, batch.header().record_count());
        let seen = records.map(|record| {
            let record = record.unwrap();
            let key = String::from_utf8_lossy(record.key.unwrap()).into_owned();
            (batch.offset_of(&record).0, batch.timestamp_of(&record).0, key)
        });
        seen.collect()
    }

    #[test]
    fn what_remains_keeps_its_offsets_times_and_sequence() {
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            let whole = batch(codec);
            let records = whole.uncompressed(1 << 20).unwrap();
            for horizon in [None, Some(Timestamp(9_000))] {
                let thin = whole.thinned(&records, horizon, |record| record.offset_delta % 2 == 1);
                thin.verify().unwrap();
                let (old, new) = (whole.header(), thin.header());
                assert_eq!(seen(&thin), [(1001, 300, "b".into()), (1003, 50, "a".into())]);
                assert_eq!((new.base_offset(), new.last_offset()), (Offset(1000), Offset(1003)));
                assert_eq!(new.last_sequence(), old.last_sequence());
                assert_eq!((new.leader_epoch(), new.codec()), (old.leader_epoch(), old.codec()));
                assert_eq!(new.max_timestamp(), Timestamp(300));
                assert_eq!(thin.delete_horizon(), horizon);
            }
            let empty = whole.emptied();
            empty.verify().unwrap();
            assert!(empty.is_empty() && !empty.is_filler());
            assert_eq!(empty.header().last_sequence(), 43);
            assert_eq!(empty.header().next_offset(), Offset(1004));
            assert_eq!(Batch::parse(empty.chunks().concat().into()).unwrap(), empty);
        }
    }

    #[test]
    fn a_filler_is_cut_where_it_is_asked_to_be() {
        let filler = Batch::filler(Offset(10), Offset(20), LeaderEpoch(2));
        filler.verify().unwrap();
        assert!(filler.is_filler() && filler.len() == 61);
        assert_eq!(Batch::parse(filler.chunks().concat().into()).unwrap(), filler);
        let part = filler.clone().narrowed(Offset(12), Offset(15)).unwrap();
        assert_eq!(part, Batch::filler(Offset(12), Offset(15), LeaderEpoch(2)));
        assert_eq!(filler.narrowed(Offset(20), Offset(25)), None);
        let whole = batch(Codec::None);
        assert_eq!(whole.clone().narrowed(Offset(1002), Offset(1003)), Some(whole));
    }
}
