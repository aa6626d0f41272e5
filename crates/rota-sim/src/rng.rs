//! Chance, from one seed. Each task draws from a stream of its own, so that a load is the same under every policy.

use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// A stream of numbers that depends on nothing but the seed and the stream's number. Its numbers are PCG's, which that
/// crate keeps the same from version to version. Integers only: floating point differs between machines.
#[derive(Clone, Debug)]
pub struct Rng(Pcg64Mcg);

impl Rng {
    /// Stream `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut seeds = Pcg64Mcg::seed_from_u64(seed);
        let mixed = seeds.next_u64().wrapping_add(stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Rng(Pcg64Mcg::seed_from_u64(mixed))
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `limit`, which is not 0. Numbers differ in likelihood by less than `limit` in 2^64.
    pub fn below(&mut self, limit: u64) -> u64 {
        assert!(limit > 0, "no number is below 0");
        ((u128::from(self.draw()) * u128::from(limit)) >> 64) as u64
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        assert!(least <= most, "no number is between {least} and {most}");
        match (most - least).checked_add(1) {
            Some(count) => least + self.below(count),
            None => self.draw(),
        }
    }

    /// True `parts` times of `whole`.
    pub fn chance(&mut self, parts: u64, whole: u64) -> bool {
        self.below(whole) < parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let drawn = |seed, stream| {
            (0..4)
                .map({
                    let mut rng = Rng::new(seed, stream);
                    move |_| rng.draw()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(drawn(1, 2), drawn(1, 2));
        assert_ne!(drawn(1, 2), drawn(1, 3));
        assert_ne!(drawn(1, 2), drawn(2, 2));
    }

    /// If this changes, every seed that was ever written down has lost its meaning.
    #[test]
    fn the_numbers_stay_the_same() {
        let mut rng = Rng::new(42, 7);
        assert_eq!([rng.draw(), rng.below(1000), rng.between(5, 6)], [11_053_337_264_992_356_646, 987, 6]);
    }

    #[test]
    fn ranges_are_covered_and_kept() {
        let mut rng = Rng::new(0, 0);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.between(3, 5)).collect();
        assert!((3..=5).all(|number| drawn.iter().filter(|drawn| **drawn == number).count() > 250));
        assert!(drawn.iter().all(|drawn| (3..=5).contains(drawn)));
        rng.between(0, u64::MAX);
    }
}
