//! The last offset of each key of a stretch of a log, in bounded memory: hashes of 16 bytes beside
//! offsets, in one table. Kafka's `SkimpyOffsetMap`.

use super::siphash::hash;
use crate::id::Offset;

/// Bytes of a place in the table.
pub const PLACE_BYTES: usize = 24;

/// Whether a batch's keys found room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    All,
    Full,
}

#[derive(Clone, Copy)]
struct Place {
    hash: [u8; 16],
    /// Negative: nothing stands here.
    offset: i64,
}

const FREE: Place = Place { hash: [0; 16], offset: -1 };

/// See the file's comment.
pub struct Keys {
    hash_key: [u8; 16],
    places: Vec<Place>,
    taken: usize,
    taken_max: usize,
}

impl Keys {
    /// A table that takes at most `bytes_max` bytes, or a kilobyte. It grows as it fills. Whoever
    /// can choose keys must not know `hash_key`.
    pub fn new(bytes_max: usize, hash_key: [u8; 16]) -> Self {
        let places_max = (bytes_max / PLACE_BYTES).max(1024 / PLACE_BYTES);
        Self { hash_key, places: Vec::new(), taken: 0, taken_max: places_max / 10 * 9 }
    }

    /// Keys in the table.
    pub fn len(&self) -> usize {
        self.taken
    }

    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Whether `count` more keys find room. The first batch always does: a pass must come on, and
    /// one batch is bounded.
    pub fn has_room_for(&self, count: i32) -> bool {
        let count = usize::try_from(count).unwrap_or(0);
        self.taken == 0 || self.taken + count <= self.taken_max
    }

    /// `key` stands at `offset`; the largest of its offsets counts.
    pub fn note(&mut self, key: &[u8], offset: Offset) {
        if (self.taken + 1) * 10 > self.places.len() * 9 {
            self.grow();
        }
        let hash = hash(self.hash_key, key);
        let at = self.find(&hash);
        let place = &mut self.places[at];
        self.taken += usize::from(place.offset < 0);
        *place = Place { hash, offset: place.offset.max(offset.0) };
    }

    /// The last offset of `key`, if it was noted.
    pub fn latest(&self, key: &[u8]) -> Option<Offset> {
        if self.places.is_empty() {
            return None;
        }
        let place = &self.places[self.find(&hash(self.hash_key, key))];
        (place.offset >= 0).then_some(Offset(place.offset))
    }

    /// Where `hash` stands, or would.
    fn find(&self, hash: &[u8; 16]) -> usize {
        let mut start = [0; 8];
        start.copy_from_slice(&hash[..8]);
        let places = self.places.len();
        let mut at = (u64::from_le_bytes(start) % places as u64) as usize;
        while self.places[at].offset >= 0 && self.places[at].hash != *hash {
            at = (at + 1) % places;
        }
        at
    }

    fn grow(&mut self) {
        // Beyond what was asked for only for a first batch that is larger.
        let most = (self.taken_max / 9 * 10 + 10).max(self.taken * 10 / 9 + 2);
        let wanted = (self.places.len() * 2).clamp(64, most.max(64));
        let wanted = wanted.max(self.taken * 10 / 9 + 2);
        let before = std::mem::replace(&mut self.places, vec![FREE; wanted]);
        for place in before.into_iter().filter(|place| place.offset >= 0) {
            let at = self.find(&place.hash);
            self.places[at] = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_table_is_a_map() {
        let mut rng = Rng::new(7);
        for _ in 0..50 {
            let mut keys = Keys::new(4096, [3; 16]);
            let mut twin = BTreeMap::new();
            for offset in 0..200 {
                let key = rng.below(150).to_be_bytes();
                keys.note(&key, Offset(offset));
                twin.insert(key, Offset(offset));
                assert_eq!(keys.len(), twin.len());
            }
            for key in 0..200_u64 {
                let key = key.to_be_bytes();
                assert_eq!(keys.latest(&key), twin.get(&key).copied());
            }
        }
    }

    #[test]
    fn the_bound_holds_but_for_a_first_batch() {
        let mut keys = Keys::new(2400, [0; 16]);
        assert!(keys.has_room_for(1000), "the first always finds room");
        for number in 0..80_u64 {
            keys.note(&number.to_be_bytes(), Offset(1));
        }
        assert!(keys.has_room_for(10) && !keys.has_room_for(11));
        assert!(keys.places.len() * PLACE_BYTES <= 2400 + 10 * PLACE_BYTES);
    }
}
