//! What lies before a reader of one log: the first record that it has not read, and the bytes from
//! there on.

use quorate_core::batch::Records;
use quorate_core::id::Offset;
use quorate_core::time::Timestamp;

use super::error::{ReadError, Rot};
use super::reader::{LogReader, Unpack};
use crate::storage::log::Place;

/// What a reader has before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The first record of a user at or after the reader's offset, and its timestamp; `None` where
    /// there is nothing for users between there and the end.
    pub first: Option<(Offset, Timestamp)>,
    /// Of the frames from the reader's on to the end, as they stand on the disk. Half a batch that
    /// is read already counts as unread.
    pub bytes: u64,
}

impl LogReader {
    /// What a reader at `from`, which lies within the log, has before it below `end`. Has `unpack`
    /// look into compressed batches.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub async fn unread(
        &self,
        from: Offset,
        end: Offset,
        unpack: &dyn Unpack,
    ) -> Result<Unread, ReadError> {
        if from >= end {
            return Ok(Unread { first: None, bytes: 0 });
        }
        let bytes = self.bytes_from(from).await?.saturating_sub(self.bytes_from(end).await?);
        Ok(Unread { first: self.first_record(from, end, unpack).await?, bytes })
    }

    /// Bytes of the frames from the one that holds `from` on.
    async fn bytes_from(&self, from: Offset) -> Result<u64, ReadError> {
        let Some(Place { segment, position, .. }) = self.place_of(from).await? else {
            return Ok(0);
        };
        let state = self.log.state();
        let from_there = state.segments.iter().filter(|other| other.base >= segment);
        let bytes = from_there.map(|other| other.bytes).sum::<u64>();
        Ok(bytes.saturating_sub(position))
    }

    /// Compaction leaves batches without records, and transactions leave markers: neither is
    /// anything to a reader.
    async fn first_record(
        &self,
        from: Offset,
        end: Offset,
        unpack: &dyn Unpack,
    ) -> Result<Option<(Offset, Timestamp)>, ReadError> {
        let mut next = from;
        while next < end {
            let Some(batch) = self.read(next, end, 1, true).await?.into_iter().next() else {
                return Ok(None);
            };
            let header = batch.header();
            if !header.is_control() && header.record_count() > 0 {
                let rot = |why: String| {
                    let (partition, path) = (self.log.partition, self.log.directory.clone());
                    ReadError::Rot(Rot { partition, path, position: 0, offset: next, why })
                };
                let records = unpack.unpack(&batch).await.map_err(rot)?;
                for record in Records::new(&records, header.record_count()) {
                    let record = record.map_err(|error| rot(error.to_string()))?;
                    let offset = batch.offset_of(&record);
                    if offset >= from {
                        let first = (offset, batch.timestamp_of(&record));
                        return Ok((offset < end).then_some(first));
                    }
                }
            }
            next = header.next_offset();
        }
        Ok(None)
    }
}
