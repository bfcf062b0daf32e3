//! Which partition a record goes to: the key's murmur2 as Java's clients compute it, or, without a
//! key, one partition for as long as a batch fills (KIP-794). A client with another rule scatters
//! the same keys over other partitions; librdkafka's default (`consistent_random`, CRC-32) does.

/// Kafka's `Utils.murmur2`: 32-bit MurmurHash2 with Kafka's seed.
#[must_use]
pub fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const MIX: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ u32::try_from(bytes.len() & 0xffff_ffff).unwrap_or(u32::MAX);
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(MIX);
        k ^= k >> 24;
        hash = hash.wrapping_mul(MIX) ^ k.wrapping_mul(MIX);
    }
    if !tail.is_empty() {
        for (place, &byte) in tail.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * place);
        }
        hash = hash.wrapping_mul(MIX);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MIX);
    hash ^ (hash >> 15)
}

/// The partition of `key` among `partitions`: Java's `toPositive(murmur2(key)) % partitions`.
///
/// # Panics
///
/// If `partitions` is not positive.
#[must_use]
pub fn partition_of_key(key: &[u8], partitions: i32) -> i32 {
    assert!(partitions > 0, "a topic has at least one partition");
    let positive = (murmur2(key) & 0x7fff_ffff).cast_signed();
    positive % partitions
}

/// Where records without a key go: one partition until `bytes_max` bytes went there, then another,
/// drawn from the seed, so that batches fill and all partitions get their share.
#[derive(Clone, Debug)]
pub(crate) struct Sticky {
    state: u64,
    partition: i32,
    bytes: usize,
    bytes_max: usize,
}

impl Sticky {
    pub(crate) fn new(seed: u64, bytes_max: usize) -> Self {
        Self { state: seed, partition: -1, bytes: 0, bytes_max }
    }

    pub(crate) fn next(&mut self, partitions: i32, bytes: usize) -> i32 {
        if self.partition < 0 || self.partition >= partitions || self.bytes >= self.bytes_max {
            self.partition = self.draw(partitions);
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.partition
    }

    /// Another partition than the last one, if there is another.
    fn draw(&mut self, partitions: i32) -> i32 {
        let count = u64::try_from(partitions.max(1)).unwrap_or(1);
        if self.partition < 0 || self.partition >= partitions || count == 1 {
            return self.random(count);
        }
        let other = self.random(count - 1);
        if other >= self.partition { other + 1 } else { other }
    }

    /// SplitMix64: good enough to spread, and it replays.
    fn random(&mut self, below: u64) -> i32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        i32::try_from((z ^ (z >> 31)) % below).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of Kafka's `UtilsTest.testMurmur2`.
    #[test]
    fn murmur2_is_javas() {
        let vectors: [(&[u8], i32); 7] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
            (b"", 275_646_681),
        ];
        for (bytes, hash) in vectors {
            assert_eq!(murmur2(bytes).cast_signed(), hash, "{bytes:?}");
        }
    }

    #[test]
    fn keys_keep_their_partition() {
        // murmur2("foobar") is negative: toPositive keeps the low 31 bits, it does not negate.
        assert_eq!(partition_of_key(b"foobar", 10), (-790_332_482 & 0x7fff_ffff) % 10);
        for key in 0..1000_u32 {
            let partition = partition_of_key(&key.to_be_bytes(), 7);
            assert!((0..7).contains(&partition));
        }
    }

    #[test]
    fn sticky_fills_a_batch_then_moves_on() {
        let mut sticky = Sticky::new(7, 100);
        let mut counts = [0; 4];
        let mut moves = 0;
        let mut last = sticky.next(4, 0);
        for _ in 0..4000 {
            let partition = sticky.next(4, 10);
            moves += i32::from(partition != last);
            last = partition;
            counts[usize::try_from(partition).unwrap()] += 1;
        }
        assert_eq!(moves, 399, "each full batch moves to another partition");
        assert!(counts.iter().all(|&count| (700..1300).contains(&count)), "{counts:?}");
        // The topic lost partitions (it was made anew): the old choice is void.
        assert!((0..2).contains(&sticky.next(2, 10)));
        assert_eq!(sticky.next(1, 1000), 0);
        assert_eq!(sticky.next(1, 1000), 0);
    }
}
