//! How busy something was lately: the kernel's per-entity load tracking (`kernel/sched/pelt.c`). Time is counted in
//! units of 1024 ns and periods of 1024 units; what was a period ago counts y times as much, y^32 = 1/2.

/// Units of a period.
const PERIOD: u64 = 1024;
/// The sum that always being busy tends to: `LOAD_AVG_MAX`.
const SUM_MAX: u64 = 47_742;
/// Periods after which half is left.
const HALF_LIFE: u64 = 32;
/// y in 2^-64.
const Y: u128 = 18_051_468_387_014_017_850;

/// y^n in 2^-32.
const POWERS: [u64; HALF_LIFE as usize] = {
    let mut powers = [0; HALF_LIFE as usize];
    let (mut power, mut n) = ((1u128 << 64) - 1, 0);
    while n < HALF_LIFE as usize {
        powers[n] = (power >> 32) as u64;
        power = (power * Y) >> 64;
        n += 1;
    }
    powers
};

/// The part of the time in which something was so, lately.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Up to when it is counted, in units.
    counted: u64,
    /// How much of the present period has passed, in units.
    part: u64,
    sum: u64,
}

impl Load {
    /// The whole of it, as of something new.
    pub const WHOLE: u64 = 1024;

    /// Of something new: taken for busy, until more is known.
    pub fn new(now_ns: u64) -> Load {
        Load { counted: now_ns / 1024, part: 0, sum: SUM_MAX - PERIOD }
    }

    /// Counts the time up to now, in which it was so, or not.
    pub fn count(&mut self, now_ns: u64, so: bool) {
        let now = now_ns / 1024;
        let passed = now - std::mem::replace(&mut self.counted, now);
        let (periods, part) = ((self.part + passed) / PERIOD, (self.part + passed) % PERIOD);
        let mut added = passed;
        if periods > 0 {
            self.sum = decayed(self.sum, periods);
            let whole = SUM_MAX - decayed(SUM_MAX, periods) - PERIOD;
            added = decayed(PERIOD - self.part, periods) + whole + part;
        }
        self.part = part;
        self.sum += if so { added } else { 0 };
    }

    /// Of [`Load::WHOLE`].
    pub fn part(&self) -> u64 {
        (self.sum * Load::WHOLE / (SUM_MAX - PERIOD + self.part)).min(Load::WHOLE)
    }
}

/// What is left of `sum` after so many periods.
fn decayed(sum: u64, periods: u64) -> u64 {
    let halved = sum.checked_shr((periods / HALF_LIFE).min(u64::from(u32::MAX)) as u32).unwrap_or(0);
    (halved * POWERS[(periods % HALF_LIFE) as usize]) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn half_is_forgotten_in_32_periods() {
        let mut load = Load::new(0);
        assert_eq!(load.part(), Load::WHOLE);
        load.count(32 * 1024 * 1024, false);
        assert!(load.part().abs_diff(512) < 8, "{load:?}");
        load.count(64 * 1024 * 1024, false);
        assert!(load.part().abs_diff(256) < 8, "{load:?}");
        load.count(100_000 * MS, false);
        assert_eq!(load.part(), 0);
    }

    #[test]
    fn always_tends_to_the_whole_and_half_to_half() {
        let mut load = Load::new(0);
        load.count(1_000 * MS, false);
        load.count(2_000 * MS, true);
        assert!(load.part() >= Load::WHOLE - 1, "{load:?}");
        for ms in 1000..2000 {
            load.count(2 * ms * MS, false);
            load.count((2 * ms + 1) * MS, true);
        }
        assert!(load.part().abs_diff(512) < 16, "{load:?}");
    }
}
