//! A crowd: as many threads as a tenant could have, which all want a CPU from one moment on.

use std::thread;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::clock::{Window, now_ns, sleep_until};

/// Of a thread's stack, in bytes: it calls next to nothing.
const STACK: usize = 64 << 10;
/// Between two that wake: the kernel would wake all at one time in one interrupt.
const PAUSE_NS: u64 = 10_000;

/// What became of a crowd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crowd {
    /// Those that ran within the window.
    pub ran: u32,
    /// The longest that one of them waited in the window, ns.
    pub longest_ns: u64,
}

/// Starts threads that sleep until the window begins. Then all compute.
///
/// # Errors
///
/// The machine has no room for so many threads.
pub fn run(threads: u32, window: Window) -> Result<Crowd> {
    thread::scope(|scope| {
        let start = |number| {
            let member = move || {
                sleep_until(window.start_ns + u64::from(number) * PAUSE_NS);
                longest(window)
            };
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, member)
        };
        let started: std::io::Result<Vec<_>> = (0..threads).map(start).collect();
        let members = started.with_context(|| format!("starting {threads} threads"))?;
        let mut crowd = Crowd { ran: 0, longest_ns: 0 };
        for longest_ns in members.into_iter().map(|member| member.join().unwrap_or(u64::MAX)) {
            crowd.ran += u32::from(longest_ns < window.length_ns());
            crowd.longest_ns = crowd.longest_ns.max(longest_ns);
        }
        Ok(crowd)
    })
}

/// Reads the clock until the window ends. The longest time between two readings, from the window's start on.
fn longest(window: Window) -> u64 {
    let (mut last, mut longest_ns) = (window.start_ns, 0);
    while last < window.end_ns {
        let now = now_ns();
        longest_ns = longest_ns.max(window.overlap_ns(last, now));
        last = now;
    }
    longest_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_ends_with_its_window() {
        let window = Window::after(0, 1_000_000);
        let crowd = run(20, window).unwrap();
        assert!(now_ns() >= window.end_ns);
        assert!(
            crowd.ran <= 20 && crowd.longest_ns > 0 && crowd.longest_ns <= window.length_ns(),
            "{crowd:?}"
        );
    }
}
