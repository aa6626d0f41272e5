//! Locks that are waited for busily. They are of the kinds of table 2 in Huang et al., *Towards exploiting CPU
//! elasticity via efficient thread oversubscription*, HPDC 2021; the flag is the wait of NPB's lu, in figure 6 there.

#![expect(clippy::missing_spin_loop, reason = "many programs wait without the instruction, and so do these")]

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::thread;

use nix::libc;

use super::Kind;

/// Threads that a lock has room for.
const THREADS_MAX: usize = 64;
/// Words of a partitioned lock.
const PARTS: usize = 4;
/// No thread.
const NOBODY: usize = usize::MAX;

/// A lock for threads by number. `place` is a word of the thread's own, at first its number.
pub trait Lock: Sync {
    /// Waits until nobody else has it.
    fn take(&self, me: usize, place: &mut usize);
    /// Gives it back, by the thread that has it.
    fn give(&self, me: usize, place: &mut usize);
    /// A thread takes it no more.
    fn ends(&self) {}
}

/// A lock of the kind, that nobody has; for threads that only compute one that nobody takes.
///
/// # Panics
///
/// If there is no room for so many threads.
pub fn new(kind: Kind, threads: usize) -> Box<dyn Lock> {
    assert!((1..=THREADS_MAX).contains(&threads), "1 to {THREADS_MAX} threads");
    match kind {
        Kind::Tas | Kind::Ttas | Kind::Cas => Box::new(Word { kind, taken: AtomicBool::new(false) }),
        Kind::Partitioned => Box::new(Tickets::<PARTS>::new(kind)),
        Kind::Array => Box::new(Tickets::<THREADS_MAX>::new(kind)),
        Kind::Mcs => Box::new(Mcs::new()),
        Kind::Clh => Box::new(Clh::new()),
        Kind::Pthread => Box::new(Pthread::new()),
        Kind::Flag => Box::new(Ring::new(threads)),
        _ => Box::new(Tickets::<1>::new(kind)),
    }
}

/// One word that says whether it is taken.
struct Word {
    kind: Kind,
    taken: AtomicBool,
}

impl Lock for Word {
    fn take(&self, _: usize, _: &mut usize) {
        match self.kind {
            Kind::Tas => while self.taken.swap(true, Acquire) {},
            Kind::Cas => while self.taken.compare_exchange(false, true, Acquire, Relaxed).is_err() {},
            _ => {
                while self.taken.load(Relaxed) || self.taken.swap(true, Acquire) {
                    spin_loop();
                }
            }
        }
    }

    fn give(&self, _: usize, _: &mut usize) {
        self.taken.store(false, Release);
    }
}

/// Tickets, and `N` words in which those look for theirs who have it.
struct Tickets<const N: usize> {
    kind: Kind,
    next: AtomicUsize,
    serves: [AtomicUsize; N],
}

impl<const N: usize> Tickets<N> {
    fn new(kind: Kind) -> Tickets<N> {
        Tickets { kind, next: AtomicUsize::new(0), serves: [const { AtomicUsize::new(0) }; N] }
    }
}

impl<const N: usize> Lock for Tickets<N> {
    fn take(&self, _: usize, place: &mut usize) {
        *place = self.next.fetch_add(1, SeqCst);
        let serves = &self.serves[*place % N];
        match self.kind {
            Kind::Counting => {
                let mut looks = 0u64;
                while serves.load(Acquire) != *place {
                    looks += 1;
                    std::hint::black_box(looks);
                }
            }
            Kind::Yielding => {
                while serves.load(Acquire) != *place {
                    thread::yield_now();
                }
            }
            _ => while serves.load(Acquire) != *place {},
        }
    }

    fn give(&self, _: usize, place: &mut usize) {
        self.serves[(*place + 1) % N].store(*place + 1, Release);
    }
}

/// Mellor-Crummey and Scott's queue.
struct Mcs {
    tail: AtomicUsize,
    waits: [AtomicBool; THREADS_MAX],
    after: [AtomicUsize; THREADS_MAX],
}

impl Mcs {
    fn new() -> Mcs {
        Mcs {
            tail: AtomicUsize::new(NOBODY),
            waits: [const { AtomicBool::new(false) }; THREADS_MAX],
            after: [const { AtomicUsize::new(NOBODY) }; THREADS_MAX],
        }
    }
}

impl Lock for Mcs {
    fn take(&self, me: usize, _: &mut usize) {
        self.after[me].store(NOBODY, Relaxed);
        self.waits[me].store(true, Relaxed);
        let before = self.tail.swap(me, SeqCst);
        if before != NOBODY {
            self.after[before].store(me, Release);
            while self.waits[me].load(Acquire) {}
        }
    }

    fn give(&self, me: usize, _: &mut usize) {
        if self.tail.compare_exchange(me, NOBODY, SeqCst, Relaxed).is_ok() {
            return;
        }
        loop {
            match self.after[me].load(Acquire) {
                NOBODY => spin_loop(),
                after => return self.waits[after].store(false, Release),
            }
        }
    }
}

/// Craig's queue, and Landin's and Hagersten's: `place` is the thread's own word, in exchange for that of the thread
/// before it.
struct Clh {
    tail: AtomicUsize,
    waits: [AtomicBool; THREADS_MAX + 1],
    before: [AtomicUsize; THREADS_MAX],
}

impl Clh {
    fn new() -> Clh {
        Clh {
            tail: AtomicUsize::new(THREADS_MAX),
            waits: [const { AtomicBool::new(false) }; THREADS_MAX + 1],
            before: [const { AtomicUsize::new(NOBODY) }; THREADS_MAX],
        }
    }
}

impl Lock for Clh {
    fn take(&self, me: usize, place: &mut usize) {
        self.waits[*place].store(true, Relaxed);
        let before = self.tail.swap(*place, SeqCst);
        while self.waits[before].load(Acquire) {}
        self.before[me].store(before, Relaxed);
    }

    fn give(&self, me: usize, place: &mut usize) {
        self.waits[*place].store(false, Release);
        *place = self.before[me].load(Relaxed);
    }
}

/// The C library's.
struct Pthread(UnsafeCell<libc::pthread_spinlock_t>);

// SAFETY: the C library's functions may be called for one lock by many threads at once.
unsafe impl Sync for Pthread {}

impl Pthread {
    fn new() -> Pthread {
        let lock = Pthread(UnsafeCell::new(0));
        // SAFETY: memory of a lock's size; nobody has it yet, so it may still be moved.
        let error = unsafe { libc::pthread_spin_init(lock.0.get(), libc::PTHREAD_PROCESS_PRIVATE) };
        assert_eq!(error, 0, "the C library makes a lock");
        lock
    }
}

impl Lock for Pthread {
    fn take(&self, _: usize, _: &mut usize) {
        // SAFETY: it was made by `new`, and lives as long as `self`.
        unsafe { libc::pthread_spin_lock(self.0.get()) };
    }

    fn give(&self, _: usize, _: &mut usize) {
        // SAFETY: as above, and this thread has it.
        unsafe { libc::pthread_spin_unlock(self.0.get()) };
    }
}

/// Threads in a ring: each waits until the one before it has had its turn.
struct Ring {
    threads: usize,
    waits: [AtomicU32; THREADS_MAX],
}

impl Ring {
    fn new(threads: usize) -> Ring {
        let waits = [const { AtomicU32::new(1) }; THREADS_MAX];
        waits[0].store(0, Relaxed);
        Ring { threads, waits }
    }
}

impl Lock for Ring {
    fn take(&self, me: usize, _: &mut usize) {
        while self.waits[me].load(Acquire) == 1 {}
        _ = self.waits[me].compare_exchange(0, 1, SeqCst, Relaxed);
    }

    fn give(&self, me: usize, _: &mut usize) {
        _ = self.waits[(me + 1) % self.threads].compare_exchange(1, 0, SeqCst, Relaxed);
    }

    /// Nobody passes this thread's turn on any more: nobody waits.
    fn ends(&self) {
        self.waits.iter().for_each(|waits| waits.store(2, SeqCst));
    }
}
