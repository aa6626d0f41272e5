//! CLOCK_MONOTONIC, which programs, observer and runner share, and the window of it that is measured.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use std::time::Duration;

/// CLOCK_MONOTONIC in ns.
///
/// # Panics
///
/// Never on Linux, which has this clock.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has CLOCK_MONOTONIC");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Sleeps until CLOCK_MONOTONIC has reached `time_ns`, and not at all if it has.
pub fn sleep_until(time_ns: u64) {
    let time = TimeSpec::from_duration(Duration::from_nanos(time_ns));
    // A signal's handler is the only thing that ends this early.
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &time).is_err() {}
}

/// What is measured: from `start_ns` to before `end_ns` of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct Window {
    /// Begin to measure at this time of CLOCK_MONOTONIC, in ns
    #[arg(long)]
    pub start_ns: u64,
    /// Stop at this time
    #[arg(long)]
    pub end_ns: u64,
}

impl Window {
    /// From `delay_ns` from now, for `length_ns`.
    pub fn after(delay_ns: u64, length_ns: u64) -> Window {
        let start_ns = now_ns() + delay_ns;
        Window { start_ns, end_ns: start_ns + length_ns }
    }

    /// Its length.
    pub fn length_ns(self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// How much of the interval lies in the window.
    pub fn overlap_ns(self, from_ns: u64, to_ns: u64) -> u64 {
        to_ns.min(self.end_ns).saturating_sub(from_ns.max(self.start_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_as_far_as_it_overlaps() {
        let window = Window { start_ns: 100, end_ns: 200 };
        for (from, to, overlap) in [(0, 100, 0), (50, 150, 50), (120, 130, 10), (0, 999, 100), (200, 300, 0)]
        {
            assert_eq!(window.overlap_ns(from, to), overlap, "{from} to {to}");
        }
    }

    #[test]
    fn sleeping_ends_after_the_time_and_at_once_if_it_has_passed() {
        let time = now_ns() + 2_000_000;
        sleep_until(time);
        assert!(now_ns() >= time);
        sleep_until(0);
    }
}
