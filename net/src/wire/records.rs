//! The record bytes of a Produce request or a Fetch response: opaque here, one chunk when decoded,
//! as many as the reader of the log found when encoded.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

/// Record batches one after another, in chunks that are never joined on the way out. Equal when
/// the bytes are, wherever the chunks begin.
#[derive(Clone, Default)]
pub struct Records {
    /// Apart from the others, so that decoding allocates nothing.
    first: Bytes,
    others: Vec<Bytes>,
}

impl Records {
    pub fn push(&mut self, chunk: Bytes) {
        if self.first.is_empty() {
            self.first = chunk;
        } else if !chunk.is_empty() {
            self.others.push(chunk);
        }
    }

    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks().map(Bytes::len).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    pub fn chunks(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// All bytes in one piece: free for decoded records, a copy for more than one chunk.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        if self.others.is_empty() {
            return self.first;
        }
        let mut joined = BytesMut::with_capacity(self.len());
        for chunk in self.chunks() {
            joined.put_slice(chunk);
        }
        joined.freeze()
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Self {
        Self { first: bytes, others: Vec::new() }
    }
}

impl FromIterator<Bytes> for Records {
    fn from_iter<I: IntoIterator<Item = Bytes>>(chunks: I) -> Self {
        let mut records = Self::default();
        records.extend(chunks);
        records
    }
}

impl Extend<Bytes> for Records {
    fn extend<I: IntoIterator<Item = Bytes>>(&mut self, chunks: I) {
        for chunk in chunks {
            self.push(chunk);
        }
    }
}

impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |records: &Self| -> Vec<u8> { records.clone().into_bytes().to_vec() };
        self.len() == other.len() && bytes(self) == bytes(other)
    }
}

impl Eq for Records {}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records")
            .field("bytes", &self.len())
            .field("chunks", &(1 + self.others.len()))
            .finish()
    }
}
