//! Times that are drawn: how long something takes, or until when.

use crate::rng::Rng;

/// What times, in ns, are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// The same each time.
    Constant(u64),
    /// Each from the first to the second as likely as any other.
    Uniform(u64, u64),
    /// With this mean, and without a memory: as between the requests of many clients that know nothing of each other.
    Exponential(u64),
}

impl Distribution {
    /// A time of it.
    pub fn draw(self, rng: &mut Rng) -> u64 {
        match self {
            Distribution::Constant(ns) => ns,
            Distribution::Uniform(least_ns, most_ns) => rng.between(least_ns, most_ns),
            Distribution::Exponential(mean_ns) => {
                // -ln(u / 2^64) = (64 - log2(u)) ln 2, for any u in 1 ..= 2^64 - 1.
                let halvings = (64 << FRACTION) - log2(rng.between(1, u64::MAX));
                let scaled = u128::from(mean_ns) * u128::from(halvings) * u128::from(LN_2);
                (scaled >> (FRACTION + 32)).try_into().unwrap_or(u64::MAX)
            }
        }
    }

    /// The mean of it.
    pub fn mean_ns(self) -> u64 {
        match self {
            Distribution::Constant(ns) | Distribution::Exponential(ns) => ns,
            Distribution::Uniform(least_ns, most_ns) => least_ns.midpoint(most_ns),
        }
    }
}

/// ln 2, 32 bits behind the point.
const LN_2: u64 = 2_977_044_472;
/// 1 / ln 2, 30 bits behind the point.
const PER_LN_2: i64 = 1_549_082_005;
/// Bits behind the point of a logarithm: a draw is exact to a millionth of the mean.
const FRACTION: u32 = 24;
/// Bits behind the point while one is computed.
const INNER: u32 = 40;
/// Parts of [1, 2) with a logarithm written down, as a power of two.
const PART_BITS: u32 = 8;
/// Of each part the middle's logarithm, [`INNER`] bits behind the point, and 2^32 over the middle.
const PARTS: [(i64, i64); 1 << PART_BITS] = parts();

const fn parts() -> [(i64, i64); 1 << PART_BITS] {
    let mut parts = [(0, 0); 1 << PART_BITS];
    let mut part = 0;
    while part < parts.len() {
        let middle = (1 << 63) + ((2 * part as u64 + 1) << (62 - PART_BITS));
        parts[part] = (log2_by_squares(middle), ((1 << 95) / middle as u128) as i64);
        part += 1;
    }
    parts
}

/// The logarithm of `mantissa`, in [1, 2) with 63 bits behind the point: each squaring gives one more bit.
const fn log2_by_squares(mut mantissa: u64) -> i64 {
    let (mut log, mut bits) = (0, 0);
    while bits < INNER {
        let square = mantissa as u128 * mantissa as u128; // in [1, 4), 126 bits behind the point
        let carry = (square >> 127) as i64;
        mantissa = (square >> (63 + carry)) as u64;
        log = log << 1 | carry;
        bits += 1;
    }
    log
}

/// The logarithm of `x`, at least 1, to the base of 2, with [`FRACTION`] bits behind the point. In integers, which are
/// the same on every machine: from the middle c of its part of [1, 2) on, log2(c (1 + d)) = log2(c) + (d - d^2/2 +
/// d^3/3) / ln 2, where |d| < 2^-9 leaves less than 2^-37 out.
fn log2(x: u64) -> u64 {
    let whole = x.ilog2();
    let mantissa = x << (63 - whole); // in [1, 2), 63 bits behind the point
    let part = (mantissa >> (63 - PART_BITS)) & ((1 << PART_BITS) - 1);
    let (log, per_middle) = PARTS[part as usize];
    let middle = (1 << 63) + ((2 * part + 1) << (62 - PART_BITS));
    let from_middle = (mantissa.wrapping_sub(middle) as i64) >> (63 - INNER);
    let d = (from_middle * per_middle) >> 32;
    let square = (d * d) >> INNER;
    let series = d - square / 2 + ((square * d) >> INNER) / 3;
    let fraction = log + ((series * PER_LN_2) >> 30);
    (u64::from(whole) << FRACTION) + (fraction.max(0) >> (INNER - FRACTION)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_mathematics() {
        let mut rng = Rng::new(3, 0);
        let numbers = (0..64).map(|bit| 1 << bit).chain((0..1000).map(|_| rng.between(1, u64::MAX)));
        for x in numbers.chain([u64::MAX]) {
            let exact = (x as f64).log2();
            let ours = log2(x) as f64 / f64::from(1 << FRACTION);
            assert!((ours - exact).abs() < 1e-7, "{x}: {ours}, not {exact}");
        }
    }

    /// Against its distribution function: of many draws, the part up to x is 1 - e^(-x / mean).
    #[test]
    fn exponential_times_are_so_distributed() {
        const DRAWS: usize = 100_000;
        let mut rng = Rng::new(7, 0);
        let mut drawn: Vec<u64> =
            (0..DRAWS).map(|_| Distribution::Exponential(1000).draw(&mut rng)).collect();
        drawn.sort_unstable();
        for x in [10, 100, 500, 1000, 2000, 5000] {
            let part = drawn.partition_point(|ns| *ns < x) as f64 / DRAWS as f64;
            let expected = 1.0 - (-(x as f64) / 1000.0).exp();
            assert!((part - expected).abs() < 0.006, "up to {x}: {part}, not {expected}");
        }
    }

    #[test]
    fn means_are_means() {
        let mut rng = Rng::new(1, 0);
        for distribution in
            [Distribution::Constant(70), Distribution::Uniform(1000, 13_000), Distribution::Exponential(7000)]
        {
            let total: u64 = (0..100_000).map(|_| distribution.draw(&mut rng)).sum();
            assert!((total / 100_000).abs_diff(distribution.mean_ns()) * 100 <= distribution.mean_ns());
        }
        assert!(Distribution::Exponential(u64::MAX).draw(&mut rng) > 0);
    }
}
