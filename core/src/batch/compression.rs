//! The edge to the compression codecs: what comes out is bounded while it comes, so that a small
//! batch cannot become a large memory.

mod snappy;

use std::fmt;
use std::io::{self, Read, Write};

use bytes::Bytes;

/// How the records of a batch are compressed: the low three bits of its attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Codec {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    pub const fn from_bits(bits: i16) -> Option<Self> {
        match bits {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    pub const fn bits(self) -> i16 {
        self as i16
    }

    /// Kafka's name, as in `compression.type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why records did not come out of their compression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompressionError {
    /// More than this many bytes would come out.
    TooLarge { bytes_max: usize },
    /// The bytes are not what the codec writes; the sentence is the codec's.
    Corrupt { codec: Codec, reason: String },
}

impl fmt::Display for CompressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes_max } => {
                write!(f, "the batch decompresses to more than the allowed {bytes_max} bytes")
            }
            Self::Corrupt { codec, reason } => {
                write!(f, "the batch is not valid {codec}: {reason}")
            }
        }
    }
}

impl std::error::Error for CompressionError {}

/// Undoes `codec`. At most `bytes_max` bytes come out, and at no time is there more memory in use
/// than these, what went in, and the codec's window (lz4 8 MiB, zstd 128 MiB of address space that
/// is touched only as far as bytes come out).
///
/// # Errors
///
/// `TooLarge` as soon as one byte too many has come out; `Corrupt` if the bytes are not the
/// codec's.
pub fn decompress(
    codec: Codec,
    bytes: &Bytes,
    bytes_max: usize,
) -> Result<Bytes, CompressionError> {
    let out = match codec {
        // Compaction leaves batches without records and without a compressed nothing.
        _ if bytes.is_empty() => Ok(Some(Bytes::new())),
        Codec::None => Ok((bytes.len() <= bytes_max).then(|| bytes.clone())),
        Codec::Gzip => {
            read_bounded(flate2::bufread::MultiGzDecoder::new(&bytes[..]), bytes.len(), bytes_max)
        }
        Codec::Snappy => snappy::decompress(bytes, bytes_max),
        Codec::Lz4 => {
            read_bounded(lz4_flex::frame::FrameDecoder::new(&bytes[..]), bytes.len(), bytes_max)
        }
        Codec::Zstd => {
            zstd_decoder(bytes).and_then(|decoder| read_bounded(decoder, bytes.len(), bytes_max))
        }
    };
    match out {
        Ok(Some(out)) => Ok(out),
        Ok(None) => Err(CompressionError::TooLarge { bytes_max }),
        Err(error) => Err(CompressionError::Corrupt { codec, reason: error.to_string() }),
    }
}

/// Compresses as Kafka's Java producer does by default: what comes out, every client reads.
pub fn compress(codec: Codec, bytes: &[u8]) -> Bytes {
    let out = match codec {
        Codec::None => Ok(bytes.to_vec()),
        Codec::Gzip => {
            let level = flate2::Compression::default();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).and_then(|()| encoder.finish())
        }
        Codec::Snappy => snappy::compress(bytes),
        Codec::Lz4 => lz4_compress(bytes),
        Codec::Zstd => zstd::bulk::compress(bytes, zstd::DEFAULT_COMPRESSION_LEVEL),
    };
    Bytes::from(out.expect("compressing into memory does not fail"))
}

/// Everything `reader` gives, or `None` if that is more than `bytes_max`.
fn read_bounded(reader: impl Read, bytes_in: usize, bytes_max: usize) -> io::Result<Option<Bytes>> {
    // A first guess in proportion to what is there, not to what is claimed.
    let mut out = Vec::with_capacity(bytes_in.saturating_mul(3).min(bytes_max));
    reader.take((bytes_max as u64).saturating_add(1)).read_to_end(&mut out)?;
    Ok((out.len() <= bytes_max).then(|| Bytes::from(out)))
}

/// zstd's own limit for a 32-bit reader, and that of Kafka's clients.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

fn zstd_decoder(bytes: &[u8]) -> io::Result<zstd::stream::read::Decoder<'static, &[u8]>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

/// Independent blocks of 64 KiB without content checksum: Java's reader refuses linked blocks.
fn lz4_compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes)?;
    encoder.finish().map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
