//! CRC-32C (Castagnoli), the checksum of batches, frames and small files.

/// The checksum of `bytes`.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The checksum of what `checksum` covers, followed by `bytes`.
pub fn extend(checksum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(checksum, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_published_vectors() {
        // RFC 3720, appendix B.4.
        assert_eq!(checksum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(checksum(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn may_be_taken_in_parts() {
        let whole = checksum(b"a record batch");
        assert_eq!(extend(checksum(b"a record"), b" batch"), whole);
    }
}
