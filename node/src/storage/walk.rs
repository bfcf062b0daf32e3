//! A window that slides over a file, so that a walk over frames reads it in large pieces.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use super::config::StorageConfig;
use crate::disk::File;

/// Pieces are at least so many bytes in a walk over a whole file.
const PIECE_BYTES: usize = 1 << 20;

/// See the file's comment.
pub(super) struct Window {
    file: Arc<dyn File>,
    position: u64,
    bytes: Bytes,
    /// At the position that is asked for next, so many bytes are needed.
    wanted: usize,
    piece: usize,
    /// Nothing is read from here on; the file may be longer.
    end: u64,
    batch_bytes_max: usize,
}

impl Window {
    /// Over the whole file.
    pub(super) fn new(file: Arc<dyn File>, config: &StorageConfig) -> Self {
        let end = file.len();
        Self::until(file, end, PIECE_BYTES, config)
    }

    /// Over the file up to `end`, read in pieces of `piece` bytes.
    pub(super) fn until(
        file: Arc<dyn File>,
        end: u64,
        piece: usize,
        config: &StorageConfig,
    ) -> Self {
        let batch_bytes_max = usize::try_from(config.batch_bytes_max).unwrap_or(usize::MAX);
        let bytes = Bytes::new();
        Self { file, position: 0, bytes, wanted: 1, piece, end, batch_bytes_max }
    }

    /// What stands at `position`, as far as it was read: at least what was wanted, if the file
    /// has it. Positions never go back.
    pub(super) async fn at(&mut self, position: u64) -> io::Result<Bytes> {
        let skipped = position.saturating_sub(self.position);
        match usize::try_from(skipped) {
            Ok(skipped) if skipped < self.bytes.len() => self.bytes.advance(skipped),
            _ => self.bytes.clear(),
        }
        self.position = position;
        let left = usize::try_from(self.end.saturating_sub(position)).unwrap_or(usize::MAX);
        if self.bytes.len() < self.wanted.min(left) {
            let bytes = self.wanted.max(self.piece).min(left);
            self.bytes = self.file.read_at(position, bytes).await?;
        }
        self.wanted = 1;
        Ok(self.bytes.clone())
    }

    /// The next call of `at` shall give so many bytes. A length that no batch has is not believed:
    /// the file then seems to end.
    pub(super) fn want(&mut self, bytes: usize) {
        self.wanted = bytes;
        if bytes > self.batch_bytes_max {
            self.end = self.position + self.bytes.len() as u64;
        }
    }

    /// Whether the file has nothing behind the bytes given last.
    pub(super) fn is_last(&self) -> bool {
        self.position + self.bytes.len() as u64 >= self.end
    }
}
