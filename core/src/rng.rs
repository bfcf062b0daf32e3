//! A small seeded generator, integers only: the same seed gives the same numbers on every machine
//! and in every build. PCG-XSH-RR 64/32 (O'Neill 2014); not for secrets.

use std::fmt;

/// The state of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_add(INCREMENT).wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT),
        }
    }

    pub const fn u32(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        let mixed = (((old >> 18) ^ old) >> 27) & 0xffff_ffff;
        (mixed as u32).rotate_right((old >> 59) as u32)
    }

    pub const fn u64(&mut self) -> u64 {
        ((self.u32() as u64) << 32) | self.u32() as u64
    }

    /// A number below `bound`, which is at least 1. Even to within 2^-32 of it.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        ((u128::from(self.u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Sixteen bytes, such as name a topic.
    pub fn bytes(&mut self) -> [u8; 16] {
        let (high, low) = (self.u64(), self.u64());
        ((u128::from(high) << 64) | u128::from(low)).to_be_bytes()
    }

    /// Whether an event of this probability happens now.
    pub fn happens(&mut self, ratio: Ratio) -> bool {
        self.below(u64::from(ratio.of)) < u64::from(ratio.times)
    }
}

/// A probability in integers, so that no rounding differs between machines: 3 of 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    times: u32,
    of: u32,
}

impl Ratio {
    /// `times` out of `of`; at most 1, and `of` at least 1.
    pub const fn new(times: u32, of: u32) -> Self {
        assert!(of > 0 && times <= of, "a ratio from 0 to 1");
        Self { times, of }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.times, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_numbers_for_ever() {
        let mut rng = Rng::new(7);
        let first: Vec<u32> = (0..4).map(|_| rng.u32()).collect();
        assert_eq!(first, [1_273_465_047, 4_201_302_492, 1_760_530_922, 3_811_196_712]);
    }

    #[test]
    fn below_stays_below_and_reaches_every_number() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 10];
        for _ in 0..1000 {
            seen[rng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|times| (50..200).contains(times)), "{seen:?}");
    }

    #[test]
    fn a_ratio_happens_as_often_as_it_says() {
        let mut rng = Rng::new(2);
        let ratio = Ratio::new(3, 100);
        let times = (0..100_000).filter(|_| rng.happens(ratio)).count();
        assert!((2700..3300).contains(&times), "{times}");
        assert!((0..1000).all(|_| rng.happens(Ratio::new(1, 1))));
        assert!((0..1000).all(|_| !rng.happens(Ratio::new(0, 1))));
        assert_eq!(ratio.to_string(), "3/100");
    }
}
