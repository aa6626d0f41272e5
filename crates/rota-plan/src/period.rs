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

/// A periodic task: the share of the CPU, net of what it costs to change to it, in every window [k*T, (k+1)*T).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Task {
    /// T in ns, one of [`CANDIDATES`].
    pub period: u64,
    pub share: Share,
    /// What changes of task take of its time in the window with the most of them, in ns. How many there are shows only
    /// when the slots are known; [`task`] counts one.
    pub cost: u64,
}

impl Task {
    /// What the share comes to in each window, in ns.
    pub fn net(self) -> u64 {
        self.share.of(self.period)
    }

    /// The same share with a shorter period, and as much of it lost as before, one change of tasks at least.
    pub fn shortened(self, period: u64, switch_ns: u64) -> Task {
        let cost = u128::from(self.cost) * u128::from(period);
        let cost = cost.div_ceil(u128::from(self.period)) as u64;
        Task { period, cost: cost.max(switch_ns.min(self.cost)), ..self }
    }

    /// The same share with the longest period up to this one that is a multiple of `base`, itself a candidate and not
    /// longer.
    pub fn with_multiple_of(self, base: u64, switch_ns: u64) -> Task {
        let fits = |period: &u64| *period <= self.period && period.is_multiple_of(base);
        self.shortened(CANDIDATES.into_iter().find(fits).unwrap_or(base), switch_ns)
    }

    /// C in ns: what it is given in each window.
    pub fn budget(self) -> u64 {
        self.net() + self.cost
    }

    /// What the task takes of a CPU in [`HYPERPERIOD_NS`], in ns: its share with the rounding of C included, and what
    /// it costs.
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

/// Why no candidate period does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unkept {
    /// The smallest latency that the share could have, in ns.
    Latency(u64),
    /// Whatever the latency: even the longest period has no room for the share and a change of tasks.
    Share,
}

/// The task for a reservation, where a change of tasks takes `switch_ns`.
///
/// A task that gets U*T net in every period window may wait 2 * (T - U*T) at worst: from the end of a budget served at
/// once to the end of the change that begins the next, served as late as possible. The change has to fit into the
/// window, too.
pub(crate) fn task(reservation: &Reservation, choice: Choice, switch_ns: u64) -> Result<Task, Unkept> {
    let share = reservation.share;
    // Also what only rounding makes a whole CPU has one to itself, and changes no tasks.
    let cost = if share.of(HYPERPERIOD_NS) == HYPERPERIOD_NS { 0 } else { switch_ns };
    // T - U*T falls with T, so those that keep the latency are a suffix, and those with room for a change a prefix.
    let first = CANDIDATES.partition_point(|&period| wait(share, period) > reservation.latency_ns);
    let end = CANDIDATES.partition_point(|&period| wait(share, period) >= 2 * cost);
    if first >= end {
        let shortest = end.checked_sub(1).ok_or(Unkept::Share)?;
        return Err(Unkept::Latency(wait(share, CANDIDATES[shortest])));
    }
    let longest = CANDIDATES[first];
    let task = Task { period: longest, share, cost };
    if choice == Choice::Longest {
        return Ok(task);
    }
    let near = CANDIDATES[first..end].iter().take_while(|&&period| period * 2 >= longest);
    // The first of equals is the longest.
    Ok(near.map(|&period| Task { period, ..task }).min_by_key(|task| task.load()).unwrap_or(task))
}

fn wait(share: Share, period: u64) -> u64 {
    2 * (period - share.of(period))
}

/// The least common multiple.
pub(crate) fn lcm(a: u64, b: u64) -> u64 {
    a / gcd(a, b) * b
}

/// The greatest common divisor.
pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    let (mut greater, mut less) = (a, b);
    while less != 0 {
        (greater, less) = (less, greater % less);
    }
    greater
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
            let task = task(&reservation(share, latency_ns), choice, 0).unwrap();
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
        assert_eq!(task(&reservation(0.5, 100_099), Choice::Longest, 0), Err(Unkept::Latency(100_100)));
        assert!(task(&reservation(0.5, 100_100), Choice::Longest, 0).is_ok());
    }

    /// A hundredth of the shortest period is 1,001 ns: too little for a change of 5 us, which takes 5 times that.
    #[test]
    fn a_change_of_tasks_has_to_fit_into_the_period() {
        let near_one = |latency_ns, switch_ns| {
            task(&reservation(0.99, latency_ns), Choice::LeastWaste, switch_ns)
                .map(|task| (task.budget(), task.period))
        };
        assert_eq!(near_one(2_002, 0), Ok((99_099, 100_100)));
        assert_eq!(near_one(2_002, 5_000), Err(Unkept::Latency(10_270)));
        assert_eq!(near_one(10_270, 5_000), Ok((513_378, 513_513)));
        assert_eq!(task(&reservation(0.99999, 1_000_000_000), Choice::Longest, 5_000), Err(Unkept::Share));
        for share in [1.0, 0.999999999] {
            let whole =
                task(&reservation(share, 1), Choice::Longest, 5_000).map(|task| (task.budget(), task.period));
            assert_eq!(whole, Ok((HYPERPERIOD_NS, HYPERPERIOD_NS)));
        }
    }

    proptest! {
        /// Against the definition, candidate by candidate.
        #[test]
        fn the_longest_period_that_keeps_the_latency(ppb in 1..=1_000_000_000_u32, latency_ns in 1..300_000_000_u64) {
            let share = Share::from_ppb(ppb).unwrap();
            let keeps = |period: &u64| 2 * (period - share.of(*period)) <= latency_ns;
            let found = task(&Reservation { share, latency_ns, capped: false }, Choice::Longest, 0);
            match CANDIDATES.into_iter().filter(keeps).max() {
                Some(period) => prop_assert_eq!(found, Ok(Task { period, share, cost: 0 })),
                None => {
                    let smallest = CANDIDATES.into_iter().map(|period| 2 * (period - share.of(period))).min();
                    prop_assert_eq!(found.unwrap_err(), Unkept::Latency(smallest.unwrap()));
                }
            }
        }
    }
}
