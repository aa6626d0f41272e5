//! Who fills caches: a change-point detector for each vCPU.
//!
//! What is looked at is how many lines a vCPU fetches from memory in a millisecond of its running, as a logarithm: an
//! idle vCPU says nothing, and a thrasher differs from others by powers of two. A two-sided cumulative sum (E. S. Page,
//! *Continuous inspection schemes*, Biometrika 41, 1954) tells that the level has changed. Each look counts for no more
//! than [`CLIP`], so that one burst is no change. The thesis (section 7.3) compares two moving averages instead, and
//! calls that too noisy. Integers only.

/// Logarithms to base two are counted in parts of 16.
const ONE: i64 = 16;
/// Half of the least change that is looked for, a doubling: the slack of the sums.
const SLACK: i64 = ONE / 2;
/// The most that one look counts.
const CLIP: i64 = 2 * ONE;
/// A sum beyond this is a change: at least three looks.
const LIMIT: i64 = 4 * ONE;
/// What a vCPU has run for less than this is added to its next look, in ns.
const RAN_MIN_NS: u64 = 1_000_000;
/// Who fetches so many lines in a millisecond is hungry: 128 MB/s, the cache of a server in some 160 ms.
const HUNGRY_PER_MS: u64 = 2_000;
/// Who is hungry is so until it fetches no more than this.
const SATED_PER_MS: u64 = 1_000;

/// The state of one vCPU.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    ran_ns: u64,
    misses: u64,
    /// Of the present phase, in parts of a doubling; none before the first look.
    level: Option<i64>,
    rise: Excursion,
    fall: Excursion,
    hungry: bool,
}

/// A sum that may become a change.
#[derive(Clone, Copy, Debug, Default)]
struct Excursion {
    sum: i64,
    /// Of the looks since it was zero.
    total: i64,
    looks: i64,
}

impl Excursion {
    /// Takes in how far a look lies beyond the level. Whether that makes a change.
    fn take(&mut self, beyond: i64, look: i64) -> bool {
        self.sum = (self.sum + beyond.min(CLIP) - SLACK).max(0);
        if self.sum == 0 {
            *self = Excursion::default();
            return false;
        }
        (self.total, self.looks) = (self.total + look, self.looks + 1);
        self.sum >= LIMIT
    }
}

impl Detector {
    /// Takes in what the vCPU has run and fetched since the last time. Whether it is another now: hungry or sated.
    pub fn look(&mut self, ran_ns: u64, misses: u64) -> bool {
        (self.ran_ns, self.misses) = (self.ran_ns + ran_ns, self.misses + misses);
        if self.ran_ns < RAN_MIN_NS {
            return false;
        }
        let look = logarithm(self.misses * 1_000_000 / self.ran_ns);
        (self.ran_ns, self.misses) = (0, 0);
        let Some(level) = self.level else {
            self.level = Some(look);
            return self.judge();
        };
        let (rises, falls) = (self.rise.take(look - level, look), self.fall.take(level - look, look));
        let Some(excursion) = rises.then_some(self.rise).or_else(|| falls.then_some(self.fall)) else {
            return false;
        };
        self.level = Some(excursion.total / excursion.looks);
        (self.rise, self.fall) = Default::default();
        self.judge()
    }

    fn judge(&mut self) -> bool {
        let level = self.level.unwrap_or(0);
        let least = if self.hungry { SATED_PER_MS } else { HUNGRY_PER_MS };
        std::mem::replace(&mut self.hungry, level >= logarithm(least)) != self.hungry
    }

    /// Whether it fills caches.
    pub fn is_hungry(&self) -> bool {
        self.hungry
    }

    /// Lines that it fetches in a millisecond of its running in the present phase.
    pub fn per_ms(&self) -> u64 {
        power(self.level.unwrap_or(0))
    }
}

/// The logarithm of 1 + `value` to base two, in parts of 16, between powers on a line.
fn logarithm(value: u64) -> i64 {
    let value = value.saturating_add(1);
    let whole = value.ilog2();
    let rest = value - (1 << whole);
    i64::from(whole) * ONE + ((u128::from(rest) * ONE as u128) >> whole) as i64
}

/// What has this logarithm.
fn power(logarithm: i64) -> u64 {
    let (whole, rest) = (logarithm / ONE, logarithm % ONE);
    let base = 1u64 << whole.clamp(0, 62);
    base + ((u128::from(base) * rest as u128) / ONE as u128) as u64 - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOOK_NS: u64 = 25_000_000;

    /// How often it was told to be another, by looks of so many lines a millisecond.
    fn changes(detector: &mut Detector, looks: impl IntoIterator<Item = u64>) -> usize {
        looks.into_iter().filter(|per_ms| detector.look(LOOK_NS, per_ms * LOOK_NS / 1_000_000)).count()
    }

    #[test]
    fn who_begins_to_thrash_is_found_at_the_third_look_and_who_ends_too() {
        let mut detector = Detector::default();
        assert_eq!(changes(&mut detector, [30; 50]), 0);
        assert_eq!(changes(&mut detector, [20_000; 2]), 0);
        assert_eq!(changes(&mut detector, [20_000]), 1);
        assert!(detector.is_hungry() && detector.per_ms().abs_diff(20_000) < 1_500, "{}", detector.per_ms());
        assert_eq!(changes(&mut detector, [20_000; 100]), 0);
        assert_eq!(changes(&mut detector, [40; 2]), 0);
        assert_eq!(changes(&mut detector, [40]), 1);
        assert!(!detector.is_hungry());
    }

    #[test]
    fn a_burst_of_one_look_is_no_change() {
        let mut detector = Detector::default();
        let bursts = (0..600).map(|look| if look % 10 == 9 { 30_000 } else { 50 });
        assert_eq!(changes(&mut detector, bursts), 0);
    }

    #[test]
    fn an_idle_vcpu_says_nothing() {
        let mut detector = Detector::default();
        assert!((0..10).all(|_| !detector.look(0, 0)));
        changes(&mut detector, [20_000; 3]);
        assert!(detector.is_hungry());
        assert!((0..1_000).all(|_| !detector.look(1_000, 20)), "it is what it was while it hardly runs");
        assert!(detector.is_hungry());
    }

    #[test]
    fn between_the_limits_it_stays_what_it_is() {
        let mut hungry = Detector::default();
        changes(&mut hungry, [20_000; 4]);
        changes(&mut hungry, [1_500; 20]);
        let mut sated = Detector::default();
        changes(&mut sated, [100; 3]);
        changes(&mut sated, [1_500; 20]);
        assert!(hungry.is_hungry() && !sated.is_hungry());
    }

    proptest! {
        #[test]
        fn a_logarithm_is_undone(value in 0u64..1 << 50) {
            let back = power(logarithm(value));
            prop_assert!(back <= value && value - back <= value / 16 + 1, "{value} {back}");
        }

        /// Noise of a factor of two either way about a level that is far from the limits is never told.
        #[test]
        fn noise_is_no_change(level in 0u32..9, noise in prop::collection::vec(0u64..4, 2_000)) {
            let mut detector = Detector::default();
            let looks = noise.iter().map(|noise| (1 << level) * (2 + noise) / 4);
            prop_assert_eq!(changes(&mut detector, looks), 0);
        }
    }
}
