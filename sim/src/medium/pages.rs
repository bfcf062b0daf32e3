//! The bytes of one file: what reads see, what a power loss leaves, and which sectors stand
//! between the two.

use std::collections::BTreeMap;

use super::extent::Extent;
use crate::chance::{Chance, Ratio};
use crate::fault::power_loss::Unsynced;

/// What a disk writes whole or not at all.
pub const SECTOR: usize = 512;

#[derive(Debug, Default)]
pub struct Pages {
    live: Extent,
    durable: Extent,
    /// Sectors that were written since they were last persisted.
    dirty: BTreeMap<usize, Dirty>,
    /// Rises with each change of what readers see.
    version: u64,
    /// The length captured at or before this version is older than the durable one.
    len_floor: u64,
    /// Blocks are reserved below this length.
    backed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Dirty {
    /// The last write to the sector.
    version: u64,
    /// What was captured at or before this version is older than what is durable.
    floor: u64,
}

/// What a sync has to make durable: the state when it was called, not when it ends.
#[derive(Debug)]
pub struct Captured {
    /// Each with the version of its last write, and where in `bytes` it ends.
    sectors: Vec<(usize, u64, usize)>,
    bytes: Vec<u8>,
    len: usize,
    version: u64,
}

/// What a power loss did to unsynced sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    pub kept: u64,
    pub lost: u64,
}

impl Captured {
    /// Whether there is nothing to do but to say so.
    pub fn is_clean(&self, pages: &Pages) -> bool {
        self.sectors.is_empty() && self.len == pages.durable.len()
    }

    pub fn sectors(&self) -> usize {
        self.sectors.len()
    }
}

impl Pages {
    pub const fn len(&self) -> u64 {
        self.live.len() as u64
    }

    pub const fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Bytes that blocks are reserved for.
    pub fn backed(&self) -> u64 {
        self.backed
    }

    /// As long as it is the same, readers see the same.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether nothing would be lost without a sync.
    pub fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.live.len() == self.durable.len()
    }

    pub fn read(&self, position: u64, bytes: usize) -> Vec<u8> {
        let from = usize::try_from(position).map_or(self.live.len(), |at| at.min(self.live.len()));
        let mut read = Vec::new();
        self.live.copy(from, from.saturating_add(bytes), &mut read);
        read
    }

    pub fn write(&mut self, position: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let from = position as usize;
        let to = from + bytes.len();
        if to > self.live.len() {
            self.set_len(to as u64);
        }
        self.live.put(from, bytes);
        self.backed = self.backed.max(to as u64);
        self.touch(from, to);
    }

    pub fn allocate(&mut self, len: u64) {
        if len > self.len() {
            self.set_len(len);
        }
        self.backed = self.backed.max(len);
    }

    pub fn set_len(&mut self, len: u64) {
        let (old, new) = (self.live.len(), len as usize);
        self.live.resize(new);
        if new < old {
            self.version += 1;
            self.backed = self.backed.min(len);
            let beyond = new.div_ceil(SECTOR);
            self.dirty.split_off(&beyond);
        } else {
            // Zeros where the disk may still hold what was cut off before.
            self.touch(old, new.min(self.durable.len()));
        }
    }

    fn touch(&mut self, from: usize, to: usize) {
        let floor = self.version;
        self.version += 1;
        if from >= to {
            return;
        }
        for sector in from / SECTOR..to.div_ceil(SECTOR) {
            self.dirty.entry(sector).or_insert(Dirty { version: 0, floor }).version = self.version;
        }
    }

    /// The state that a sync called now has to make durable.
    pub fn capture(&self) -> Captured {
        let mut bytes = Vec::with_capacity(self.dirty.len() * SECTOR);
        let sector = |(sector, dirty): (&usize, &Dirty)| {
            let from = sector * SECTOR;
            self.live.copy(from, from + SECTOR, &mut bytes);
            (*sector, dirty.version, bytes.len())
        };
        let sectors = self.dirty.iter().map(sector).collect();
        Captured { sectors, bytes, len: self.live.len(), version: self.version }
    }

    /// The sync that captured this has succeeded.
    pub fn persist(&mut self, captured: Captured) {
        // What a later sync made durable is not undone by an earlier one that ends late.
        if captured.version >= self.len_floor {
            self.durable.resize(captured.len);
            self.len_floor = captured.version;
        }
        let mut from = 0;
        for (sector, version, to) in captured.sectors {
            let bytes = &captured.bytes[std::mem::replace(&mut from, to)..to];
            let Some(dirty) = self.dirty.get_mut(&sector) else { continue };
            if version <= dirty.floor {
                continue;
            }
            self.durable.put(sector * SECTOR, bytes);
            if dirty.version == version {
                self.dirty.remove(&sector);
            } else {
                dirty.floor = version;
            }
        }
    }

    /// The sync that captured this has failed: the kernel takes the pages for clean.
    pub fn forget(&mut self, captured: &Captured) {
        for (sector, version, _) in &captured.sectors {
            if self.dirty.get(sector).is_some_and(|dirty| dirty.version == *version) {
                self.dirty.remove(sector);
            }
        }
    }

    /// Power fails: each dirty sector is old or new, and so is the length.
    pub fn lose_power(&mut self, unsynced: Unsynced, chance: &mut Chance) -> Loss {
        let mut loss = Loss::default();
        let mut order: Vec<(u64, usize)> =
            self.dirty.iter().map(|(sector, dirty)| (dirty.version, *sector)).collect();
        order.sort_unstable();
        let likely = *chance.pick(&[Ratio::new(1, 8), Ratio::new(1, 2), Ratio::new(7, 8)]);
        let first = chance.below(order.len() as u64 + 1) as usize;
        let (old_len, new_len) = (self.durable.len(), self.live.len());
        let mut len = match unsynced {
            Unsynced::Lost => old_len,
            Unsynced::Kept => new_len,
            Unsynced::Torn | Unsynced::Prefix if chance.one_in(2) => new_len,
            Unsynced::Torn | Unsynced::Prefix => old_len,
        };
        let kept = |place: usize, chance: &mut Chance| match unsynced {
            Unsynced::Lost => false,
            Unsynced::Kept => true,
            Unsynced::Torn => chance.hit(likely),
            Unsynced::Prefix => place < first,
        };
        let mut durable = std::mem::take(&mut self.durable);
        durable.resize(old_len.max(new_len));
        let mut bytes = Vec::with_capacity(SECTOR);
        for (place, (_, sector)) in order.into_iter().enumerate() {
            if kept(place, chance) {
                let from = sector * SECTOR;
                let to = (from + SECTOR).min(new_len);
                bytes.clear();
                self.live.copy(from, to, &mut bytes);
                durable.put(from, &bytes);
                // The size is on the disk as soon as data behind the old size is.
                len = if to > old_len { len.max(to) } else { len };
                loss.kept += 1;
            } else {
                loss.lost += 1;
            }
        }
        durable.resize(len);
        self.live.clone_from(&durable);
        self.version += 1;
        self.durable = durable;
        self.dirty.clear();
        self.backed = len as u64;
        loss
    }

    /// One bit of one durable byte changes; readers see it unless the sector is dirty. Says which
    /// byte, or `None` if no durable byte differs from zero.
    pub fn flip_bit(&mut self, chance: &mut Chance) -> Option<u64> {
        let written = self.durable.marked();
        if written.is_empty() {
            return None;
        }
        let at = *chance.pick(&written);
        let bit = 1 << chance.below(8);
        self.durable.flip(at, bit);
        if at < self.live.len() && !self.dirty.contains_key(&(at / SECTOR)) {
            self.live.flip(at, bit);
            self.version += 1;
        }
        Some(at as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chance() -> Chance {
        Chance::new(3, "pages")
    }

    #[test]
    fn a_sync_covers_the_writes_completed_before_it_was_called() {
        let mut pages = Pages::default();
        pages.write(0, b"early");
        let captured = pages.capture();
        pages.write(0, b"after");
        pages.persist(captured);
        pages.lose_power(Unsynced::Lost, &mut chance());
        assert_eq!(pages.read(0, 10), b"early");
    }

    #[test]
    fn a_late_end_of_an_early_sync_does_not_undo_a_later_one() {
        let mut pages = Pages::default();
        pages.write(0, b"1");
        let first = pages.capture();
        pages.write(0, b"2");
        let second = pages.capture();
        pages.persist(second);
        pages.write(0, b"3");
        pages.persist(first);
        pages.lose_power(Unsynced::Lost, &mut chance());
        assert_eq!(pages.read(0, 1), b"2");
    }

    #[test]
    fn nor_does_it_cut_what_the_later_one_has_made_longer() {
        let mut pages = Pages::default();
        pages.write(0, b"1");
        let first = pages.capture();
        pages.write(0, b"long");
        let second = pages.capture();
        pages.persist(second);
        pages.persist(first);
        pages.lose_power(Unsynced::Lost, &mut chance());
        assert_eq!(pages.read(0, 9), b"long");
    }

    #[test]
    fn after_a_failed_sync_the_pages_are_clean_and_lost() {
        let mut pages = Pages::default();
        pages.write(0, b"old");
        let captured = pages.capture();
        pages.persist(captured);
        pages.write(0, b"new");
        let captured = pages.capture();
        pages.forget(&captured);
        let captured = pages.capture();
        assert!(captured.is_clean(&pages));
        pages.persist(captured);
        assert_eq!(pages.read(0, 3), b"new");
        pages.lose_power(Unsynced::Kept, &mut chance());
        assert_eq!(pages.read(0, 3), b"old");
    }

    #[test]
    fn torn_is_by_sector_and_any_subset_survives() {
        let mut seen = std::collections::BTreeSet::new();
        let mut chance = chance();
        for _ in 0..200 {
            let mut pages = Pages::default();
            pages.allocate(3 * SECTOR as u64);
            let captured = pages.capture();
            pages.persist(captured);
            pages.write(10, &[1; 2 * SECTOR]);
            pages.lose_power(Unsynced::Torn, &mut chance);
            let ones = [SECTOR - 10, SECTOR, 10];
            let found = [0, 1, 2].map(|sector| {
                pages
                    .read((sector * SECTOR) as u64, SECTOR)
                    .iter()
                    .filter(|byte| **byte == 1)
                    .count()
            });
            assert!(found.iter().zip(ones).all(|(found, all)| *found == 0 || *found == all));
            seen.insert(found.map(|found| found > 0));
        }
        assert_eq!(seen.len(), 8);
    }

    #[test]
    fn what_was_cut_off_does_not_come_back_behind_new_zeros() {
        let mut pages = Pages::default();
        pages.write(0, &[7; 1024]);
        let captured = pages.capture();
        pages.persist(captured);
        pages.set_len(100);
        pages.set_len(1024);
        let captured = pages.capture();
        pages.persist(captured);
        pages.lose_power(Unsynced::Lost, &mut chance());
        assert_eq!(pages.read(100, 924), &[0; 924]);
    }
}
