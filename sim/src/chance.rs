//! Chance: seeded generators, one independent stream for each source, so that a new kind of fault
//! does not reshuffle what the others do.
//!
//! The arithmetic on top of ChaCha8 is our own and frozen: a seed means the same plan for ever,
//! whatever `rand` does to its samplers.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// One stream of chance.
#[derive(Clone, Debug)]
pub struct Chance(ChaCha8Rng);

/// A probability as two integers: `hits` out of `of`, at most 1. Floats round differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    pub hits: u32,
    pub of: u32,
}

/// An inclusive range of a drawn quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between<T> {
    pub low: T,
    pub high: T,
}

impl Chance {
    /// The stream of `source` (for instance `disk n1`) in the run of `seed`.
    pub fn new(seed: u64, source: &str) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&fnv(0xcbf2_9ce4_8422_2325, source.as_bytes()).to_le_bytes());
        key[16..24].copy_from_slice(&fnv(0x8422_2325_cbf2_9ce4, source.as_bytes()).to_le_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    pub fn between(&mut self, range: Between<u64>) -> u64 {
        range.low + self.below(range.high.saturating_sub(range.low).saturating_add(1))
    }

    /// A duration, in whole nanoseconds.
    pub fn duration(&mut self, range: Between<Duration>) -> Duration {
        let nanos = |duration: Duration| duration.as_nanos() as u64;
        let range = Between { low: nanos(range.low), high: nanos(range.high) };
        Duration::from_nanos(self.between(range))
    }

    pub fn hit(&mut self, ratio: Ratio) -> bool {
        // No draw for a certainty, so that switching a feature off does not shift its stream.
        match ratio.hits {
            0 => false,
            hits if hits >= ratio.of => true,
            hits => self.below(u64::from(ratio.of)) < u64::from(hits),
        }
    }

    pub fn one_in(&mut self, of: u32) -> bool {
        self.hit(Ratio::new(1, of))
    }

    /// One of the choices, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

impl Ratio {
    pub const NEVER: Self = Self::new(0, 1);

    pub const fn new(hits: u32, of: u32) -> Self {
        Self { hits, of }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hits, self.of)
    }
}

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once('/')
            .and_then(|(hits, of)| Some(Self { hits: hits.parse().ok()?, of: of.parse().ok()? }));
        parsed
            .filter(|ratio| ratio.of > 0 && ratio.hits <= ratio.of)
            .ok_or_else(|| format!("{text:?} is not a ratio such as 1/8"))
    }
}

/// FNV-1a, started at `state`.
pub fn fnv(state: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(state, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_frozen() {
        let mut chance = Chance::new(7, "disk n1");
        let first = [chance.below(1000), chance.below(1000), chance.below(1000)];
        let mut again = Chance::new(7, "disk n1");
        assert_eq!(first, [again.below(1000), again.below(1000), again.below(1000)]);
        let mut other = Chance::new(7, "disk n2");
        assert_ne!(first, [other.below(1000), other.below(1000), other.below(1000)]);
    }

    #[test]
    fn bounds_are_kept() {
        let mut chance = Chance::new(1, "");
        for _ in 0..1000 {
            assert!(chance.below(3) < 3);
            let drawn = chance.between(Between { low: 5, high: 6 });
            assert!((5..=6).contains(&drawn));
        }
        assert_eq!(chance.below(0), 0);
        assert!(!chance.hit(Ratio::NEVER));
        assert!(chance.hit(Ratio::new(4, 4)));
        assert!("3/2".parse::<Ratio>().is_err());
    }
}
