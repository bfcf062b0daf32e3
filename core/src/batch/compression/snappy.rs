//! Snappy as Kafka's clients write it: raw blocks in snappy-java's framing, or one bare block.

use std::io;

use bytes::Bytes;

/// snappy-java's stream header: magic, then version and oldest compatible version, both 1.
const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER_BYTES: usize = 16;

/// snappy-java's default block.
const BLOCK_BYTES: usize = 32 * 1024;

/// `None` if more than `bytes_max` bytes would come out.
pub(super) fn decompress(bytes: &[u8], bytes_max: usize) -> io::Result<Option<Bytes>> {
    let mut out = Vec::new();
    if !bytes.starts_with(&MAGIC) {
        let within = append_block(bytes, bytes_max, &mut out)?;
        return Ok(within.then(|| Bytes::from(out)));
    }
    let mut rest = bytes;
    while !rest.is_empty() {
        // A stream header may stand again where streams were concatenated.
        if rest.starts_with(&MAGIC) {
            rest = rest.get(HEADER_BYTES..).ok_or_else(|| flaw("its header is cut short"))?;
            continue;
        }
        let (length, after) =
            rest.split_first_chunk::<4>().ok_or_else(|| flaw("a block's length is cut short"))?;
        let length = usize::try_from(i32::from_be_bytes(*length))
            .map_err(|_| flaw("a block's length is negative"))?;
        let (block, after) =
            after.split_at_checked(length).ok_or_else(|| flaw("a block is cut short"))?;
        if !append_block(block, bytes_max, &mut out)? {
            return Ok(None);
        }
        rest = after;
    }
    Ok(Some(Bytes::from(out)))
}

/// Whether the block's content fits beside what `out` holds already.
fn append_block(block: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> io::Result<bool> {
    let length = snap::raw::decompress_len(block)?;
    if length > bytes_max - out.len() {
        return Ok(false);
    }
    // Snappy copies at most 64 bytes for each 2 of input: a larger claim is a lie, and is refused
    // before memory is set aside for it.
    if length / 32 > block.len() {
        return Err(flaw("a block claims more than its bytes can hold"));
    }
    let start = out.len();
    out.resize(start + length, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut out[start..])?;
    out.truncate(start + written);
    Ok(true)
}

pub(super) fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(HEADER_BYTES + bytes.len() / 2);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&1_i32.to_be_bytes());
    out.extend_from_slice(&1_i32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in bytes.chunks(BLOCK_BYTES) {
        let compressed = encoder.compress_vec(block)?;
        let length = i32::try_from(compressed.len()).map_err(io::Error::other)?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&compressed);
    }
    Ok(out)
}

fn flaw(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
