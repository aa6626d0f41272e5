//! What threads synchronise on: locks, condition variables, semaphores, barriers. Each thread that has to wait looks
//! for a while in a loop, if it is patient, and then sleeps, as with the kernel's futex: who gives something free wakes
//! one that sleeps, and whoever comes first takes it.
//!
//! They cost nothing by themselves: sleeping, waking up and moving cost what the machine makes of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::ids::TaskId;
use crate::thread::Thread;

/// How long a thread that has to wait looks in a loop before it sleeps, in ns of CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience(pub u64);

impl Patience {
    /// It sleeps at once.
    pub const NONE: Patience = Patience(0);
    /// It never sleeps.
    pub const ENDLESS: Patience = Patience(u64::MAX);
}

/// Threads that wait for the same thing.
#[derive(Debug, Default)]
struct Gate {
    patience: Patience,
    looking: RefCell<Vec<TaskId>>,
    asleep: RefCell<VecDeque<TaskId>>,
}

impl Gate {
    fn new(patience: Patience) -> Gate {
        Gate { patience, ..Gate::default() }
    }

    /// Lets the thread through once `open` says so. It is asked again whenever the thread looks.
    async fn pass(&self, thread: &Thread, mut open: impl FnMut() -> bool) {
        let mut left_ns = self.patience.0;
        while !open() {
            if left_ns == 0 {
                self.asleep.borrow_mut().push_back(thread.task());
                thread.wait().await;
                continue;
            }
            self.looking.borrow_mut().push(thread.task());
            let looked_ns = thread.spin(left_ns).await;
            self.looking.borrow_mut().retain(|task| *task != thread.task());
            if left_ns != u64::MAX {
                left_ns = left_ns.saturating_sub(looked_ns);
            }
        }
    }

    /// Whoever looks sees it, and so do as many of those that sleep, who are woken in the order in which they came.
    fn tell(&self, thread: &Thread, sleepers: usize) {
        self.looking.borrow().iter().for_each(|task| thread.poke(*task));
        let mut asleep = self.asleep.borrow_mut();
        let count = sleepers.min(asleep.len());
        asleep.drain(..count).for_each(|task| thread.wake(task));
    }
}

/// A mutual exclusion lock. With [`Patience::NONE`] it blocks, with [`Patience::ENDLESS`] it is a bare spinlock, and
/// with anything between it spins, then blocks. It goes to whoever looks first, not to who has waited longest.
#[derive(Debug, Default)]
pub struct Lock {
    taken: Cell<bool>,
    gate: Gate,
}

impl Lock {
    /// A lock that nobody has.
    pub fn new(patience: Patience) -> Lock {
        Lock { taken: Cell::new(false), gate: Gate::new(patience) }
    }

    /// Takes it, once nobody else has it.
    pub async fn take(&self, thread: &Thread) {
        self.gate.pass(thread, || !self.taken.replace(true)).await;
    }

    /// Gives it back.
    pub fn give(&self, thread: &Thread) {
        assert!(self.taken.replace(false), "a lock is given back by who has it");
        self.gate.tell(thread, 1);
    }
}

/// A spinlock that goes round in the order of asking, as the kernel's and many guests' do. So everybody waits when the
/// next one is not running: lock-waiter preemption.
#[derive(Debug)]
pub struct TicketLock {
    next: Cell<u64>,
    serves: Cell<u64>,
    gate: Gate,
}

impl Default for TicketLock {
    fn default() -> TicketLock {
        TicketLock { next: Cell::new(0), serves: Cell::new(0), gate: Gate::new(Patience::ENDLESS) }
    }
}

impl TicketLock {
    /// Takes it, once everybody who asked before has given it back.
    pub async fn take(&self, thread: &Thread) {
        let ticket = self.next.replace(self.next.get() + 1);
        self.gate.pass(thread, || self.serves.get() == ticket).await;
    }

    /// Gives it back.
    pub fn give(&self, thread: &Thread) {
        assert!(self.serves.get() < self.next.get(), "a lock is given back by who has it");
        self.serves.set(self.serves.get() + 1);
        self.gate.tell(thread, 0);
    }
}

/// A condition variable. Who waits sleeps at once, and is woken in the order of waiting.
#[derive(Debug, Default)]
pub struct Condition {
    waits: Cell<u64>,
    woken: Cell<u64>,
    gate: Gate,
}

impl Condition {
    /// Gives the lock back, waits to be told, and takes the lock again.
    pub async fn wait(&self, thread: &Thread, lock: &Lock) {
        let ticket = self.waits.replace(self.waits.get() + 1);
        lock.give(thread);
        self.gate.pass(thread, || self.woken.get() > ticket).await;
        lock.take(thread).await;
    }

    /// Tells the one that has waited longest.
    pub fn tell_one(&self, thread: &Thread) {
        self.woken.set(self.waits.get().min(self.woken.get() + 1));
        self.gate.tell(thread, 1);
    }

    /// Tells all that wait.
    pub fn tell_all(&self, thread: &Thread) {
        self.woken.set(self.waits.get());
        self.gate.tell(thread, usize::MAX);
    }
}

/// A counting semaphore.
#[derive(Debug)]
pub struct Semaphore {
    left: Cell<u32>,
    gate: Gate,
}

impl Semaphore {
    /// With so many to take.
    pub fn new(count: u32) -> Semaphore {
        Semaphore { left: Cell::new(count), gate: Gate::default() }
    }

    /// Takes one, once there is one.
    pub async fn take(&self, thread: &Thread) {
        let take = || match self.left.get() {
            0 => false,
            left => {
                self.left.set(left - 1);
                true
            }
        };
        self.gate.pass(thread, take).await;
    }

    /// Gives one.
    pub fn give(&self, thread: &Thread) {
        self.left.set(self.left.get() + 1);
        self.gate.tell(thread, 1);
    }
}

/// A barrier: nobody goes on before all have come.
#[derive(Debug)]
pub struct Barrier {
    threads: u32,
    missing: Cell<u32>,
    round: Cell<u64>,
    gate: Gate,
}

impl Barrier {
    /// For so many threads.
    pub fn new(threads: u32, patience: Patience) -> Barrier {
        assert!(threads > 0, "somebody comes to a barrier");
        Barrier { threads, missing: Cell::new(threads), round: Cell::new(0), gate: Gate::new(patience) }
    }

    /// Comes to it, and goes on with the others. Says whether it was the last one.
    pub async fn come(&self, thread: &Thread) -> bool {
        let round = self.round.get();
        self.missing.set(self.missing.get() - 1);
        if self.missing.get() > 0 {
            self.gate.pass(thread, || self.round.get() != round).await;
            return false;
        }
        self.missing.set(self.threads);
        self.round.set(round + 1);
        self.gate.tell(thread, usize::MAX);
        true
    }
}
