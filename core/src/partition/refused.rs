//! Producers whose batch was refused for the moment, and comes again. What they sent behind it may
//! be on its way: where a producer is not known, it must not pass for its beginning.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::batch::Header;
use crate::id::{ProducerEpoch, ProducerId};
use crate::time::Instant;

/// How many are remembered by name, at most.
const REMEMBERED_MAX: usize = 1000;
/// Sequence numbers have 31 bits.
const SEQUENCE_MASK: i32 = i32::MAX;

/// Refusals of late. Whoever retries prolongs the memory of itself, and of nobody else.
#[derive(Clone, Debug, Default)]
pub(super) struct Refused {
    known: BTreeMap<ProducerId, Beginning>,
    /// Until then, somebody may have been refused for whom there was no room here.
    others_until: Instant,
}

/// Where a producer must go on.
#[derive(Clone, Debug)]
struct Beginning {
    epoch: ProducerEpoch,
    sequence: i32,
    until: Instant,
}

impl Refused {
    /// A batch of a producer that is not known was refused; its client retries for less than
    /// `patience`. Of a table of `producers_max`, no more are remembered than fit it.
    pub(super) fn note(
        &mut self,
        now: Instant,
        header: &Header,
        patience: Duration,
        producers_max: usize,
    ) {
        let (id, epoch) = (header.producer_id(), header.producer_epoch());
        let sequence = header.base_sequence();
        let until = now + patience;
        let most = producers_max.min(REMEMBERED_MAX);
        if self.known.len() >= most && !self.known.contains_key(&id) {
            self.known.retain(|_, beginning| now < beginning.until);
        }
        if self.known.len() >= most && !self.known.contains_key(&id) {
            self.others_until = until;
            return;
        }
        let fresh = Beginning { epoch, sequence, until };
        let beginning = self.known.entry(id).or_insert(fresh);
        let is_over = beginning.epoch != epoch || now >= beginning.until;
        if is_over || is_at_or_before(sequence, beginning.sequence) {
            *beginning = Beginning { epoch, sequence, until };
        }
    }

    /// Whether nothing that was refused is missing before this batch of a producer that is not
    /// known.
    pub(super) fn may_begin(&self, now: Instant, header: &Header) -> bool {
        let beginning = self.known.get(&header.producer_id()).filter(|beginning| {
            now < beginning.until && beginning.epoch == header.producer_epoch()
        });
        match beginning {
            Some(beginning) => is_at_or_before(header.base_sequence(), beginning.sequence),
            None => header.base_sequence() == 0 || now >= self.others_until,
        }
    }

    /// The producer is known from now on.
    pub(super) fn forget(&mut self, id: ProducerId) {
        self.known.remove(&id);
    }
}

/// Numbers go round; of two, the one that is less than half the circle away comes first.
const fn is_at_or_before(sequence: i32, other: i32) -> bool {
    other.wrapping_sub(sequence) & SEQUENCE_MASK <= SEQUENCE_MASK / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round() {
        assert!(is_at_or_before(5, 5) && is_at_or_before(0, 5) && !is_at_or_before(6, 5));
        assert!(is_at_or_before(i32::MAX - 1, 0) && !is_at_or_before(0, i32::MAX - 1));
    }
}
