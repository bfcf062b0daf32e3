//! SipHash-2-4 with 128 bits (Aumasson, Bernstein): a keyed hash, so that nobody who does not know
//! the key can make two record keys that are taken for one.

const ROUNDS: usize = 2;
const FINAL_ROUNDS: usize = 4;

struct Lanes([u64; 4]);

impl Lanes {
    fn rounds(&mut self, count: usize) {
        let [a, b, c, d] = &mut self.0;
        for _ in 0..count {
            *a = a.wrapping_add(*b);
            *b = b.rotate_left(13) ^ *a;
            *a = a.rotate_left(32);
            *c = c.wrapping_add(*d);
            *d = d.rotate_left(16) ^ *c;
            *a = a.wrapping_add(*d);
            *d = d.rotate_left(21) ^ *a;
            *c = c.wrapping_add(*b);
            *b = b.rotate_left(17) ^ *c;
            *c = c.rotate_left(32);
        }
    }

    fn take(&mut self, word: u64) {
        self.0[3] ^= word;
        self.rounds(ROUNDS);
        self.0[0] ^= word;
    }

    fn fold(&self) -> u64 {
        self.0.iter().fold(0, |folded, lane| folded ^ lane)
    }
}

/// The hash of `bytes` under `key`.
pub(super) fn hash(key: [u8; 16], bytes: &[u8]) -> [u8; 16] {
    let half = |at: usize| {
        let mut half = [0; 8];
        half.copy_from_slice(&key[at..at + 8]);
        u64::from_le_bytes(half)
    };
    let (low, high) = (half(0), half(8));
    let mut lanes = Lanes([
        low ^ 0x736f_6d65_7073_6575,
        high ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        low ^ 0x6c79_6765_6e65_7261,
        high ^ 0x7465_6462_7974_6573,
    ]);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        lanes.take(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    lanes.take(u64::from_le_bytes(last) | (bytes.len() as u64) << 56);
    let mut out = [0; 16];
    lanes.0[2] ^= 0xee;
    lanes.rounds(FINAL_ROUNDS);
    out[..8].copy_from_slice(&lanes.fold().to_le_bytes());
    lanes.0[1] ^= 0xdd;
    lanes.rounds(FINAL_ROUNDS);
    out[8..].copy_from_slice(&lanes.fold().to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first vectors of the authors' reference implementation, `vectors_sip128`.
    #[test]
    fn the_authors_vectors() {
        let mut key = [0; 16];
        for (place, byte) in key.iter_mut().enumerate() {
            *byte = place as u8;
        }
        let hex = |bytes: &[u8]| {
            let hash = hash(key, bytes);
            hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(hex(&[]), "a3817f04ba25a8e66df67214c7550293");
        assert_eq!(hex(&[0]), "da87c1d86b99af44347659119b22fc45");
        assert_eq!(hex(&[0, 1]), "8177228da4a45dc7fca38bdef60affe4");
    }
}
