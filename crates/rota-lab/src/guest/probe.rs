//! The intrinsic-latency probe: a loop that does nothing but read the clock, and notes whenever it was not let read it.
//!
//! `redis-cli --intrinsic-latency` measures so, and the Tableau thesis (section 6.3) scheduling latency with it. For a
//! tenant that always wants its CPU, a gap is a blackout as the tenant itself sees it, whatever took the CPU: another
//! tenant, the kernel, or the machine below.

use super::clock::{Window, now_ns};
use crate::scenario::result::Gaps;

/// Occupies a CPU from now to the window's end, and says what it saw in the window.
pub fn watch(window: Window) -> Gaps {
    let mut gaps = Gaps { window_ns: window.length_ns(), ..Gaps::default() };
    let mut last = now_ns();
    while last < window.end_ns {
        let now = now_ns();
        note(&mut gaps, window, last, now);
        last = now;
    }
    gaps
}

/// Notes one turn of the loop.
fn note(gaps: &mut Gaps, window: Window, last_ns: u64, now_ns: u64) {
    if now_ns >= window.start_ns {
        gaps.note(window.overlap_ns(last_ns, now_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_in_the_window_are_noted_and_others_are_not() {
        let window = Window { start_ns: 10_000_000, end_ns: 20_000_000 };
        let mut gaps = Gaps::default();
        for (last, now) in [
            (1_000_000, 9_000_000),
            (9_500_000, 10_300_000),
            (10_300_000, 10_300_050),
            (11_000_000, 15_000_000),
            (19_000_000, 30_000_000),
        ] {
            note(&mut gaps, window, last, now);
        }
        assert_eq!((gaps.turns, gaps.count, gaps.longest_ns, gaps.lost_ns), (4, 3, 4_000_000, 5_300_000));
        assert_eq!(gaps.histogram.total(), 3);
    }

    #[test]
    fn the_loop_ends_with_its_window() {
        let window = Window::after(0, 1_000_000);
        let gaps = watch(window);
        assert!(now_ns() >= window.end_ns && gaps.turns > 0);
    }
}
