//! From a reservation (share U, latency L) to a periodic task (budget C, period T). Thesis section 5.1.

use rota_model::{Reservation, Share};

/// Every period divides this, so every table repeats after it at the latest: close to 100 ms, and rich in divisors
/// (thesis section 5.1).
pub const HYPERPERIOD_NS: u64 = 102_702_600;

/// No period is shorter than this: below it the cost of scheduling eats what is scheduled (thesis section 5.1).
pub const PERIOD_MIN_NS: u64 = 100_000;

/// The candidate periods in ns, descending: the divisors of [`HYPERPERIOD_NS`] that are at least [`PERIOD_MIN_NS`].
pub const CANDIDATES: [u64; 186] = candidates();

const fn candidates() -> [u64; 186] {
    let mut periods = [0; 186];
    let mut found = 0;
    let mut divisor = 1;
    while divisor <= HYPERPERIOD_NS / PERIOD_MIN_NS {
        if HYPERPERIOD_NS.is_multiple_of(divisor) {
            periods[found] = HYPERPERIOD_NS / divisor;
            found += 1;
        }
        divisor += 1;
    }
    assert!(found == periods.len());
    periods
}

/// A periodic task: the share of the CPU in every window [k*T, (k+1)*T).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Task {
    /// T in ns, one of [`CANDIDATES`].
    pub period: u64,
    pub share: Share,
}

impl Task {
    /// C in ns.
    pub fn budget(self) -> u64 {
        self.share.of(self.period)
    }

    /// What the task takes of a CPU in [`HYPERPERIOD_NS`], in ns: its share with the rounding of C included.
    pub fn load(self) -> u64 {
        self.budget() * (HYPERPERIOD_NS / self.period)
    }
}

/// Which period to take of those that keep the latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The longest: fewest preemptions.
    Longest,
    /// Of those not below half of the longest, the one that wastes least by rounding C up to a whole ns. Four vCPUs of
    /// share 0.25 only fit on one CPU if their T is a multiple of 4 ns.
    LeastWaste,
}

/// The task for a reservation, or the smallest latency in ns that its share could have, if none keeps it.
///
/// A task that gets C in every period window may wait 2 * (T - C) at worst: from the end of a budget served at once to
/// the start of the next served as late as possible.
pub(crate) fn task(reservation: &Reservation, choice: Choice) -> Result<Task, u64> {
    let share = reservation.share;
    // T - C = floor((1 - U) * T) falls with T, so those that keep the latency are a suffix.
    let first = CANDIDATES.partition_point(|&period| wait(share, period) > reservation.latency_ns);
    let Some(&longest) = CANDIDATES.get(first) else {
        return Err(wait(share, CANDIDATES[CANDIDATES.len() - 1]));
    };
    let task = Task { period: longest, share };
    if choice == Choice::Longest {
        return Ok(task);
    }
    let near = CANDIDATES[first..].iter().take_while(|&&period| period * 2 >= longest);
    // The first of equals is the longest.
    Ok(near.map(|&period| Task { period, share }).min_by_key(|task| task.load()).unwrap_or(task))
}

fn wait(share: Share, period: u64) -> u64 {
    2 * (period - share.of(period))
}

/// The least common multiple.
pub(crate) fn lcm(a: u64, b: u64) -> u64 {
    let (mut greater, mut less) = (a, b);
    while less != 0 {
        (greater, less) = (less, greater % less);
    }
    a / greater * b
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reservation(share: f64, latency_ns: u64) -> Reservation {
        Reservation { share: Share::from_fraction(share).unwrap(), latency_ns, capped: false }
    }

    fn both(share: f64, latency_ns: u64) -> [(u64, u64); 2] {
        [Choice::Longest, Choice::LeastWaste].map(|choice| {
            let task = task(&reservation(share, latency_ns), choice).unwrap();
            (task.budget(), task.period)
        })
    }

    #[test]
    fn candidates_are_all_186_divisors() {
        assert_eq!(CANDIDATES.len(), 186);
        assert!(CANDIDATES.is_sorted_by(|a, b| a > b));
        assert_eq!((CANDIDATES[0], CANDIDATES[185]), (HYPERPERIOD_NS, 100_100));
        let divisors =
            (PERIOD_MIN_NS..=HYPERPERIOD_NS).filter(|period| HYPERPERIOD_NS.is_multiple_of(*period));
        assert!(divisors.eq(CANDIDATES.into_iter().rev()));
    }

    /// The thesis' vCPUs of a quarter of a CPU (section 6.1): at 20 ms about 13 ms and 3.2 ms.
    #[test]
    fn worked_values() {
        assert_eq!(both(0.25, 1_000_000), [(164_588, 658_350), (155_610, 622_440)]);
        assert_eq!(both(0.25, 20_000_000), [(3_209_457, 12_837_825), (2_852_850, 11_411_400)]);
        assert_eq!(both(0.25, 30_000_000), [(4_279_275, 17_117_100); 2]);
        assert_eq!(both(0.25, 60_000_000), [(8_558_550, 34_234_200); 2]);
        assert_eq!(both(0.25, 100_000_000), [(12_837_825, 51_351_300); 2]);
        // Table 5.1's first vCPU: T <= 31.25 ms.
        assert_eq!(both(0.6, 25_000_000)[0], (15_405_390, 25_675_650));
    }

    #[test]
    fn an_unreachable_latency_is_answered_with_the_smallest() {
        assert_eq!(task(&reservation(0.5, 100_099), Choice::Longest), Err(100_100));
        assert!(task(&reservation(0.5, 100_100), Choice::Longest).is_ok());
    }

    proptest! {
        /// Against the definition, candidate by candidate.
        #[test]
        fn the_longest_period_that_keeps_the_latency(ppb in 1..=1_000_000_000_u32, latency_ns in 1..300_000_000_u64) {
            let share = Share::from_ppb(ppb).unwrap();
            let keeps = |period: &u64| 2 * (period - share.of(*period)) <= latency_ns;
            let found = task(&Reservation { share, latency_ns, capped: false }, Choice::Longest);
            match CANDIDATES.into_iter().filter(keeps).max() {
                Some(period) => prop_assert_eq!(found, Ok(Task { period, share })),
                None => {
                    let smallest = CANDIDATES.into_iter().map(|period| 2 * (period - share.of(period))).min();
                    prop_assert_eq!(found.unwrap_err(), smallest.unwrap());
                }
            }
        }
    }
}
