//! A window that slides over a file, so that a walk over frames reads it in large pieces.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::disk::File;

/// Pieces are at least so many bytes in a walk over a whole file.
const PIECE_BYTES: usize = 1 << 20;
/// ... and in a search for what is not zero.
const ZEROS_BYTES: usize = 256 << 10;

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
}

impl Window {
    /// Over the whole file.
    pub(super) fn new(file: Arc<dyn File>) -> Self {
        let end = file.len();
        Self::until(file, end, PIECE_BYTES)
    }

    /// Over the file up to `end`, read in pieces of `piece` bytes.
    pub(super) fn until(file: Arc<dyn File>, end: u64, piece: usize) -> Self {
        Self { file, position: 0, bytes: Bytes::new(), wanted: 1, piece, end }
    }

    /// What stands at `position`, as far as it was read: at least what was wanted, or what is left
    /// up to the end. Positions never go back.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the file is shorter than whoever opened the window knew it to be: asked
    /// again, it would give no more.
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
            if self.bytes.len() < self.wanted.min(left) {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "the file ends early"));
            }
        }
        self.wanted = 1;
        Ok(self.bytes.clone())
    }

    /// The next call of `at` shall give so many bytes. The scan asks for no more than a header
    /// under a checksum announces and the file has.
    pub(super) fn want(&mut self, bytes: usize) {
        self.wanted = bytes;
    }
}

/// Whether nothing was ever written from `position` on.
pub(super) async fn is_zero_from(file: &dyn File, mut position: u64) -> io::Result<bool> {
    // The room that was allocated and not written is not read: it may be more than the log.
    while let Some(data) = file.data_from(position).await? {
        position = data;
        // To the end of a page: the rest of one that is in the cache counts as data.
        let most = ZEROS_BYTES - (position % ZEROS_BYTES as u64) as usize;
        let bytes: Bytes = file.read_at(position, most).await?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        if bytes.is_empty() {
            break;
        }
        position += bytes.len() as u64;
    }
    Ok(true)
}
