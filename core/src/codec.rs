//! Values of ours as bytes: a version tag, then bincode. The one place that names bincode.
//!
//! Used for metadata records and for snapshots of a replica. Changing a type that is written this
//! way needs a new version and keeps a reader for the old one; golden bytes in the tests notice.

use std::fmt;

use bincode::serde::decode_from_slice;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// No value of ours is larger: a bound on what a decoder reads and allocates.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

const FORMAT: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<VALUE_BYTES_MAX>,
> = bincode::config::standard().with_limit::<VALUE_BYTES_MAX>();

/// Writes `version` and `value`. The value is ours, so it can be written; if it is larger than
/// `VALUE_BYTES_MAX` this panics, and whoever builds such values has a bound of its own.
pub fn encode<T: Serialize>(version: u8, value: &T) -> Vec<u8> {
    let mut out = vec![version];
    let body = bincode::serde::encode_to_vec(value, FORMAT).expect("our own types can be written");
    out.extend_from_slice(&body);
    out
}

/// The version in front of `bytes`, and what follows it.
///
/// # Errors
///
/// `Empty` if there is not even a version; `Version` if it is not among `1..=version_max`.
pub fn version(bytes: &[u8], version_max: u8) -> Result<(u8, &[u8]), CodecError> {
    let (&found, body) = bytes.split_first().ok_or(CodecError::Empty)?;
    if found == 0 || found > version_max {
        return Err(CodecError::Version { found, known: version_max });
    }
    Ok((found, body))
}

/// Reads one value that fills `body` to its last byte. What a claimed length can cost is
/// bounded: 1 MiB for bodies of up to 64 KiB, 64 MiB for those of up to 4 MiB.
///
/// # Errors
///
/// `Malformed` if the bytes are not that of a `T`, `Trailing` if some are left.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, CodecError> {
    // bincode reserves a claimed length up to the limit, which must be known when compiling; its
    // integers take up to eight times their bytes. So a step for each size of body.
    let (value, read) = match body.len() {
        0..=0x1_0000 => decode_from_slice(body, FORMAT.with_limit::<0x10_0000>()),
        0x1_0001..=0x40_0000 => decode_from_slice(body, FORMAT.with_limit::<0x400_0000>()),
        _ => decode_from_slice(body, FORMAT),
    }
    .map_err(|error| CodecError::Malformed { reason: error.to_string() })?;
    match body.len() - read {
        0 => Ok(value),
        bytes => Err(CodecError::Trailing { bytes }),
    }
}

/// Why bytes are not a value of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodecError {
    Empty,
    Version { found: u8, known: u8 },
    Malformed { reason: String },
    Trailing { bytes: usize },
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there are no bytes"),
            Self::Version { found, known } => {
                write!(f, "the value has format {found}; this build knows 1 to {known}")
            }
            Self::Malformed { reason } => write!(f, "the bytes are not such a value: {reason}"),
            Self::Trailing { bytes } => write!(f, "{bytes} bytes follow the value"),
        }
    }
}

impl std::error::Error for CodecError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_and_lies_do_not() {
        let value = (7_u64, "name".to_owned(), vec![1_i32, -1]);
        let bytes = encode(1, &value);
        let (found, body) = version(&bytes, 1).unwrap();
        assert_eq!(found, 1);
        assert_eq!(decode::<(u64, String, Vec<i32>)>(body).unwrap(), value);
        assert_eq!(version(&[], 1), Err(CodecError::Empty));
        assert_eq!(version(&[2, 0], 1), Err(CodecError::Version { found: 2, known: 1 }));
        assert_eq!(version(&[0, 0], 1), Err(CodecError::Version { found: 0, known: 1 }));
        assert_eq!(decode::<u8>(&[1, 2]), Err(CodecError::Trailing { bytes: 1 }));
        for cut in 0..body.len() {
            assert!(decode::<(u64, String, Vec<i32>)>(&body[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_length_from_outside_is_not_believed() {
        // A vector of 2^60 elements, and of as many as the limit just allows.
        for length in [1_u64 << 60, VALUE_BYTES_MAX as u64] {
            let mut bytes = vec![253];
            bytes.extend_from_slice(&length.to_le_bytes());
            assert!(decode::<Vec<u64>>(&bytes).is_err());
            assert!(decode::<String>(&bytes).is_err());
        }
    }
}
