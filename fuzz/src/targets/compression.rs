//! Decompression within bounds, and compression that comes back.

use bytes::Bytes;
use quorate_core::batch::compression::{Codec, CompressionError, compress, decompress};

use super::Draw;

/// A codec and a bound, then what was compressed, or what is to be.
pub fn compression(bytes: &[u8]) {
    let mut draw = Draw(bytes);
    let codec = Codec::ALL[usize::from(draw.byte()) % Codec::ALL.len()];
    let bytes_max = draw.place();
    let matter = Bytes::copy_from_slice(draw.0);
    if let Ok(out) = decompress(codec, &matter, bytes_max) {
        assert!(out.len() <= bytes_max);
    }
    let compressed = compress(codec, &matter);
    assert_eq!(decompress(codec, &compressed, matter.len()).as_ref(), Ok(&matter));
    if let Some(less) = matter.len().checked_sub(1) {
        let error = CompressionError::TooLarge { bytes_max: less };
        assert_eq!(decompress(codec, &compressed, less), Err(error));
    }
}
