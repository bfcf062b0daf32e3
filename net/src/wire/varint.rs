//! Unsigned variable-length integers, seven bits a byte, lowest first. KIP-482; Kafka's
//! `ByteUtils.readUnsignedVarint`. The zigzag integers of records are core's.

/// The longest encoding of a `u32`.
pub const LENGTH_MAX: usize = 5;

/// `value` as bytes, and how many of them count.
#[must_use]
pub fn encode(mut value: u32) -> ([u8; LENGTH_MAX], usize) {
    let mut bytes = [0; LENGTH_MAX];
    let mut length = 0;
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        bytes[length] = if value == 0 { low } else { low | 0x80 };
        length += 1;
        if value == 0 {
            return (bytes, length);
        }
    }
}

/// The integer at the start of `bytes` and its length there; `None` when the bytes end inside it
/// or it does not fit 32 bits. Needlessly long encodings are taken, as Kafka takes them.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut value = 0u32;
    for (place, byte) in bytes.iter().take(LENGTH_MAX).enumerate() {
        let low = u32::from(byte & 0x7f);
        // The fifth byte has room for the top four bits only.
        if place == LENGTH_MAX - 1 && low > 0x0f {
            return None;
        }
        value |= low << (7 * place);
        if byte & 0x80 == 0 {
            return Some((value, place + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_keep_their_value_and_length() {
        for (value, length) in [
            (0, 1),
            (127, 1),
            (128, 2),
            (16_383, 2),
            (16_384, 3),
            ((1 << 28) - 1, 4),
            (1 << 28, 5),
            (u32::MAX, 5),
        ] {
            let (bytes, written) = encode(value);
            assert_eq!(written, length);
            assert_eq!(decode(&bytes[..written]), Some((value, written)));
            assert_eq!(decode(&bytes[..written - 1]), None, "cut short");
        }
    }

    #[test]
    fn a_needlessly_long_zero_is_zero_and_33_bits_are_refused() {
        assert_eq!(decode(&[0x80, 0x80, 0x00]), Some((0, 3)));
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None);
        assert_eq!(decode(&[0xff; 6]), None);
    }
}
