//! Parallel programs: threads that compute and wait for each other, as those do with which the papers on fair shares
//! measure, and hogs that wait for nobody.
//!
//! A piece of computing is a number of instructions and not a time, so what a scheduler costs shows in what is done.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::libc;

use super::clock::{Window, now_ns};
use crate::scenario::Shape;
use crate::scenario::result::Work;

/// Pieces between two stages of a pipeline.
const ROOM: usize = 4;

/// Runs a program of `threads` threads, 1 or more, from now to the window's end, and says what it did in the window. A
/// piece takes four to six fifths of `compute` instructions.
pub fn run(shape: Shape, threads: u32, compute: u64, window: Window) -> Work {
    let shared = Shared::new(threads);
    thread::scope(|scope| {
        let start = |index| {
            let (shared, worker) = (&shared, Worker::new(index, compute, window));
            scope.spawn(move || match shape {
                Shape::Barrier => shared.barrier(worker),
                Shape::Loops => shared.loops(worker),
                Shape::Pipeline => shared.pipeline(worker),
                Shape::Hog => hog(worker),
            })
        };
        let started: Vec<_> = (0..threads as usize).map(start).collect();
        let ended = started.into_iter().map(|thread| thread.join().unwrap_or_default());
        ended.fold(Work::default(), |all, one| Work {
            rounds: all.rounds + one.rounds,
            longest_ns: all.longest_ns.max(one.longest_ns),
        })
    })
}

/// One thread's own part. What it says it has done are the program's rounds, if it is the one that counts them.
struct Worker {
    index: usize,
    compute: u64,
    window: Window,
    random: u64,
    done: Work,
}

impl Worker {
    fn new(index: usize, compute: u64, window: Window) -> Worker {
        let random = 0x9e37_79b9_7f4a_7c15 ^ index as u64;
        Worker { index, compute, window, random, done: Work::default() }
    }

    /// Computes one piece.
    fn piece(&mut self) {
        let length = self.draw();
        self.instructions(length);
    }

    /// How long the next piece is. By xorshift64: the same in every run.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.compute * 4 / 5 + self.random % (self.compute * 2 / 5 + 1)
    }

    fn instructions(&mut self, count: u64) {
        let since = now_ns();
        execute(count);
        self.done.longest_ns = self.done.longest_ns.max(self.window.overlap_ns(since, now_ns()));
    }

    /// Counts a round that ends now; whether it is the last.
    fn round(&mut self) -> bool {
        let now = now_ns();
        self.done.rounds += self.window.overlap_ns(now, now + 1);
        now >= self.window.end_ns
    }
}

fn hog(mut worker: Worker) -> Work {
    loop {
        worker.piece();
        if worker.round() {
            return worker.done;
        }
    }
}

/// Executes so many instructions, or one more.
pub(super) fn execute(count: u64) {
    // SAFETY: a loop of two instructions that counts a register of its own down from 1 or more.
    unsafe {
        std::arch::asm!(
            "2: dec {turns}", "jnz 2b",
            turns = inout(reg) count / 2 + 1 => _,
            options(nomem, nostack),
        );
    }
}

/// What the threads have in common.
struct Shared {
    barrier: Barrier,
    /// The round after which all end: the first thread says it before the others can have come so far.
    last: AtomicU64,
    /// Before each stage of a pipeline but the first.
    queues: Vec<Queue>,
}

impl Shared {
    fn new(threads: u32) -> Shared {
        let queues = (1..threads).map(|_| Queue::default()).collect();
        Shared { barrier: Barrier::new(threads), last: AtomicU64::new(u64::MAX), queues }
    }

    fn barrier(&self, mut worker: Worker) -> Work {
        for round in 0.. {
            worker.piece();
            if self.ends(&mut worker, round) {
                break;
            }
        }
        worker.done
    }

    fn loops(&self, mut worker: Worker) -> Work {
        for round in 0.. {
            if worker.index == 0 {
                worker.instructions(worker.compute / 10);
            }
            self.barrier.wait();
            worker.piece();
            if self.ends(&mut worker, round) {
                break;
            }
        }
        worker.done
    }

    /// Waits for the others; whether the round was the last.
    fn ends(&self, worker: &mut Worker, round: u64) -> bool {
        if worker.index == 0 && worker.round() {
            self.last.store(round, Ordering::Relaxed);
        }
        self.barrier.wait();
        round >= self.last.load(Ordering::Relaxed)
    }

    fn pipeline(&self, mut worker: Worker) -> Work {
        let before = worker.index.checked_sub(1).map(|index| &self.queues[index]);
        let after = self.queues.get(worker.index);
        while before.is_none_or(Queue::take) {
            worker.piece();
            if let Some(after) = after {
                after.give();
            }
            let over = worker.round();
            if over && before.is_none() {
                break;
            }
        }
        if let Some(after) = after {
            after.close();
            worker.done.rounds = 0; // it is done when it comes out at the other end
        }
        worker.done
    }
}

/// The C library's barrier: threads that wait are asleep in the kernel, and the last one wakes all.
struct Barrier(Box<UnsafeCell<libc::pthread_barrier_t>>);

// SAFETY: the C library's functions may be called for one barrier by many threads at once.
unsafe impl Sync for Barrier {}

impl Barrier {
    fn new(threads: u32) -> Barrier {
        let mut barrier = MaybeUninit::uninit();
        // SAFETY: the first pointer is to memory of a barrier's size; without attributes it is the process' own.
        let result = unsafe { libc::pthread_barrier_init(barrier.as_mut_ptr(), std::ptr::null(), threads) };
        assert_eq!(result, 0, "a barrier is for one thread or more");
        // SAFETY: it was made above, and nobody has waited at it yet, so it may still be moved.
        Barrier(Box::new(UnsafeCell::new(unsafe { barrier.assume_init() })))
    }

    fn wait(&self) {
        // SAFETY: the barrier was made by `new`, and lives as long as `self`.
        unsafe { libc::pthread_barrier_wait(self.0.get()) };
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        // SAFETY: nobody else has it any more.
        unsafe { libc::pthread_barrier_destroy(self.0.get()) };
    }
}

/// Pieces on their way from one stage to the next.
#[derive(Default)]
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    pieces: usize,
    /// Whether no more come.
    closed: bool,
}

impl Queue {
    /// Waits for a piece; false if no more come.
    fn take(&self) -> bool {
        let mut state = self.wait_while(|state| state.pieces == 0 && !state.closed);
        let found = state.pieces > 0;
        state.pieces -= usize::from(found);
        self.changed.notify_one();
        found
    }

    /// Waits for room, and adds a piece.
    fn give(&self) {
        self.wait_while(|state| state.pieces == ROOM).pieces += 1;
        self.changed.notify_one();
    }

    fn close(&self) {
        self.wait_while(|_| false).closed = true;
        self.changed.notify_one();
    }

    fn wait_while(&self, condition: impl Fn(&mut Waiting) -> bool) -> MutexGuard<'_, Waiting> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.wait_while(state, condition).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_works_in_its_window_and_ends_with_it() {
        for shape in [Shape::Barrier, Shape::Loops, Shape::Pipeline, Shape::Hog] {
            let window = Window::after(0, 200_000_000); // threads of a busy machine start late
            let work = run(shape, 3, 10_000, window);
            assert!(work.rounds > 0 && work.longest_ns > 0, "{shape:?}: {work:?}");
            assert!(now_ns() >= window.end_ns);
        }
    }

    #[test]
    fn what_is_outside_of_the_window_does_not_count() {
        let work = run(Shape::Barrier, 2, 10_000, Window { start_ns: 0, end_ns: 0 });
        assert_eq!(work, Work::default());
    }

    #[test]
    fn a_piece_is_four_to_six_fifths_long() {
        let mut worker = Worker::new(0, 1_000, Window { start_ns: 0, end_ns: 0 });
        let drawn: Vec<u64> = (0..100).map(|_| worker.draw()).collect();
        assert!(drawn.iter().all(|length| (800..=1_200).contains(length)), "{drawn:?}");
        assert!(drawn.iter().any(|length| *length < 900) && drawn.iter().any(|length| *length > 1_100));
    }
}
