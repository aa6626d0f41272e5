//! A share of one CPU, exactly.

use std::fmt;

/// A share of one CPU in parts per billion, 1 ..= 1,000,000,000. Integers, so that a plan is the same bytes everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    /// A whole CPU.
    pub const ONE: Share = Share(1_000_000_000);

    /// `ppb` parts per billion, or nothing if that is no share of a CPU (0, or more than one CPU).
    pub const fn from_ppb(ppb: u32) -> Option<Share> {
        if ppb == 0 || ppb > Self::ONE.0 { None } else { Some(Share(ppb)) }
    }

    /// The nearest share to a fraction in (0, 1], or nothing outside of it.
    pub fn from_fraction(fraction: f64) -> Option<Share> {
        // NaN and everything out of range fail this comparison.
        if !(fraction > 0.0 && fraction <= 1.0) {
            return None;
        }
        Share::from_ppb(((fraction * f64::from(Self::ONE.0)).round() as u32).max(1))
    }

    /// Parts per billion.
    pub const fn ppb(self) -> u32 {
        self.0
    }

    /// For display and for ratios; never for planning.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ONE.0)
    }

    /// The least whole number of nanoseconds that is at least this share of `period_ns`: C = ceil(U * T).
    pub const fn of(self, period_ns: u64) -> u64 {
        (self.0 as u128 * period_ns as u128).div_ceil(Self::ONE.0 as u128) as u64
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_rounds_up() {
        assert_eq!(Share::from_fraction(0.25).unwrap().of(1_000_001), 250_001);
        assert_eq!(Share::ONE.of(102_702_600), 102_702_600);
        assert_eq!(Share::from_ppb(1).unwrap().of(100_000), 1);
    }

    #[test]
    fn only_shares_of_one_cpu_exist() {
        for fraction in [0.0, -0.1, 1.0000001, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::from_fraction(fraction), None, "{fraction}");
        }
        assert_eq!(Share::from_fraction(1.0), Some(Share::ONE));
        assert_eq!(Share::from_fraction(1e-12), Share::from_ppb(1));
    }
}
