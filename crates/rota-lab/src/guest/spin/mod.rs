//! Threads that wait busily for each other, in as many ways as the papers measure, and threads that only compute, in
//! loops as small: what tells the ones from the others is tried with them.

mod locks;
mod loops;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::clock::{Window, now_ns};
use crate::scenario::result::Work;
use locks::Lock;

/// How threads wait for each other, or compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, clap::ValueEnum)]
pub enum Kind {
    /// Test and set
    Tas,
    /// Test, then test and set, with a pause
    Ttas,
    /// Compare and swap
    Cas,
    /// In the order of asking
    Ticket,
    /// The same with a word to look at for every fourth ticket
    Partitioned,
    /// The same with a word for each ticket
    Array,
    /// A queue in which each thread looks at a word of its own
    Mcs,
    /// A queue in which each thread looks at a word of the one before it
    Clh,
    /// The C library's
    Pthread,
    /// A flag for each thread, set by the one before it
    Flag,
    /// As ticket, counting how often it has looked
    Counting,
    /// As ticket, letting others run each time
    Yielding,
    /// Adds up bytes
    Sum,
    /// Copies memory
    Copy,
    /// A checksum, bit by bit
    Crc,
    /// Multiplies matrices
    Matrix,
    /// Follows pointers through memory
    Chase,
    /// Sorts by insertion
    Sort,
    /// Counts down
    Delay,
    /// Multiplies floating point numbers in registers, and nothing else
    Float,
}

/// Runs `threads` threads, 1 to 64, until the window's end. Each waits for its turn, has it for a piece of `inside`
/// instructions, passes it on, and computes a piece of `outside`. The rounds are the turns that ended in the window; of
/// threads that only compute, the pieces.
pub fn run(kind: Kind, threads: usize, (outside, inside): (u64, u64), window: Window) -> Work {
    let (lock, rounds) = (locks::new(kind, threads), AtomicU64::new(0));
    let runs = |me| {
        let (mut numbers, mut place) = (loops::Numbers::new(), me);
        while now_ns() < window.end_ns {
            take_turn(kind, &*lock, (me, &mut place), || numbers.piece(kind, inside));
            let now = now_ns();
            rounds.fetch_add(window.overlap_ns(now, now + 1), Ordering::Relaxed);
            numbers.piece(kind, outside);
        }
        lock.ends();
    };
    thread::scope(|scope| {
        let runs = &runs;
        (0..threads).for_each(|me| _ = scope.spawn(move || runs(me)));
    });
    Work { rounds: rounds.into_inner(), longest_ns: 0 }
}

fn take_turn(kind: Kind, lock: &dyn Lock, (me, place): (usize, &mut usize), piece: impl FnOnce()) {
    if kind >= Kind::Sum {
        return piece();
    }
    lock.take(me, place);
    piece();
    lock.give(me, place);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_kind_works_in_its_window_and_ends_with_it() {
        for &kind in Kind::value_variants() {
            let window = Window::after(0, 50_000_000); // threads of a busy machine start late
            let work = run(kind, 3, (2_000, 1_000), window);
            assert!(work.rounds > 0, "{kind:?}");
        }
    }
}
