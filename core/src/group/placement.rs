//! Which partition of `__consumer_offsets` a group belongs to.

/// Kafka's rule: Java's string hash without its sign, modulo the number of partitions, which must
/// be positive. `GroupMetadataManager.partitionFor`.
pub fn partition_of(group: &str, partitions: i32) -> i32 {
    assert!(partitions > 0, "a topic has partitions");
    let hash = group
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    (hash & i32::MAX) % partitions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_javas() {
        // `hashCode() & 0x7fffffff` of a JVM.
        assert_eq!(partition_of("", 50), 0);
        assert_eq!(partition_of("console-consumer-12345", i32::MAX), 158_455_506);
        assert_eq!(partition_of("grüße-🦀", i32::MAX), 347_391_480);
        assert_eq!(partition_of("my-group", 50), 36);
    }
}
