//! Programs of several threads that synchronise: by locks, by barriers, by conditions, in pipelines.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use super::sync::{Barrier, Condition, Lock, Patience, Semaphore, TicketLock};
use crate::distribution::Distribution;
use crate::thread::{Script, Thread};

/// Threads of one program that share something.
fn threads<T: 'static, F: Future<Output = ()> + 'static>(
    count: u32,
    shared: T,
    body: impl Fn(u32, Rc<T>, Thread) -> F + Clone + 'static,
) -> Vec<Script> {
    let shared = Rc::new(shared);
    let script = |number| {
        let (shared, body) = (shared.clone(), body.clone());
        Script::new(move |thread| body(number, shared, thread))
    };
    (0..count).map(script).collect()
}

/// How a lock has others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// As a [`Lock`].
    Unordered(Patience),
    /// As a [`TicketLock`].
    Ordered,
}

enum AnyLock {
    Unordered(Lock),
    Ordered(TicketLock),
}

impl AnyLock {
    fn new(waiting: Waiting) -> AnyLock {
        match waiting {
            Waiting::Unordered(patience) => AnyLock::Unordered(Lock::new(patience)),
            Waiting::Ordered => AnyLock::Ordered(TicketLock::default()),
        }
    }

    async fn take(&self, thread: &Thread) {
        match self {
            AnyLock::Unordered(lock) => lock.take(thread).await,
            AnyLock::Ordered(lock) => lock.take(thread).await,
        }
    }

    fn give(&self, thread: &Thread) {
        match self {
            AnyLock::Unordered(lock) => lock.give(thread),
            AnyLock::Ordered(lock) => lock.give(thread),
        }
    }
}

/// Threads that compute, and then do so with a lock that one of them can have. Each such round is a piece of work; the
/// latency is that of getting the lock.
#[derive(Clone, Copy, Debug)]
pub struct Locking {
    /// How many.
    pub threads: u32,
    /// Computing without the lock.
    pub outside: Distribution,
    /// Computing with it.
    pub inside: Distribution,
    /// What who waits for it does.
    pub waiting: Waiting,
}

impl Locking {
    /// The threads.
    pub fn programs(&self) -> Vec<Script> {
        let Locking { outside, inside, waiting, .. } = *self;
        threads(self.threads, AnyLock::new(waiting), move |_, lock, thread| async move {
            loop {
                thread.compute_drawn(outside).await;
                let asked_ns = thread.now_ns();
                lock.take(&thread).await;
                thread.latency(thread.now_ns() - asked_ns);
                thread.compute_drawn(inside).await;
                lock.give(&thread);
                thread.work(1);
            }
        })
    }
}

/// Threads of which only so many can do something at once: a pool of connections, a limit on I/O. Each round is a piece
/// of work; the latency is that of being let in.
#[derive(Clone, Copy, Debug)]
pub struct Limited {
    /// How many.
    pub threads: u32,
    /// How many of them at once.
    pub permits: u32,
    /// Computing before.
    pub outside: Distribution,
    /// Computing with a permit.
    pub inside: Distribution,
}

impl Limited {
    /// The threads.
    pub fn programs(&self) -> Vec<Script> {
        let Limited { outside, inside, permits, .. } = *self;
        threads(self.threads, Semaphore::new(permits), move |_, semaphore, thread| async move {
            loop {
                thread.compute_drawn(outside).await;
                let asked_ns = thread.now_ns();
                semaphore.take(&thread).await;
                thread.latency(thread.now_ns() - asked_ns);
                thread.compute_drawn(inside).await;
                semaphore.give(&thread);
                thread.work(1);
            }
        })
    }
}

/// Threads that compute and then wait for each other at a barrier. Each thread's round is a piece of work; the latency
/// is how long a thread waited for the others.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// How many.
    pub threads: u32,
    /// Between two barriers.
    pub compute: Distribution,
    /// At the barrier.
    pub patience: Patience,
}

impl Rounds {
    /// The threads.
    pub fn programs(&self) -> Vec<Script> {
        let Rounds { compute, patience, .. } = *self;
        threads(self.threads, Barrier::new(self.threads, patience), move |_, barrier, thread| async move {
            loop {
                thread.compute_drawn(compute).await;
                let came_ns = thread.now_ns();
                barrier.come(&thread).await;
                thread.latency(thread.now_ns() - came_ns);
                thread.work(1);
            }
        })
    }
}

/// Fork and join: what can be divided is done by all threads, and then something by one of them alone. Each time round
/// is a piece of work, and its latency is how long it took. With 8 ms and 1 ms this is the synthetic benchmark of
/// Shan, Jia and Ding, *Rethinking multicore application scalability on big virtual machines*, section IV and figure 7.
#[derive(Clone, Copy, Debug)]
pub struct ForkJoin {
    /// How many.
    pub threads: u32,
    /// What is divided evenly among them.
    pub parallel: Distribution,
    /// What one does alone.
    pub sequential: Distribution,
    /// Whether the threads take turns with it; else it is always the first one's.
    pub balanced: bool,
    /// At the barriers before and after it.
    pub patience: Patience,
}

impl ForkJoin {
    /// The threads.
    pub fn programs(&self) -> Vec<Script> {
        let ForkJoin { threads: count, parallel, sequential, balanced, patience } = *self;
        let shared = (Barrier::new(count, patience), Cell::new(parallel.mean_ns()));
        threads(count, shared, move |number, shared, thread| async move {
            let (barrier, parallel_ns) = &*shared;
            for round in 0.. {
                let began_ns = thread.now_ns();
                thread.compute(parallel_ns.get().div_ceil(count.into())).await;
                barrier.come(&thread).await;
                if number == if balanced { round % count } else { 0 } {
                    thread.compute_drawn(sequential).await;
                    parallel_ns.set(thread.draw(|rng| parallel.draw(rng)));
                    thread.work(1);
                    thread.latency(thread.now_ns() - began_ns);
                }
                barrier.come(&thread).await;
            }
        })
    }
}

/// A leader that hands out a round of work to all others by one condition variable, and waits by another until the last
/// one has done it. Each round is a piece of work, and its latency is how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Led {
    /// How many, the leader among them.
    pub threads: u32,
    /// What each of the others does in a round.
    pub compute: Distribution,
    /// What the leader does between two.
    pub between: Distribution,
}

#[derive(Default)]
struct Round {
    lock: Lock,
    begins: Condition,
    ends: Condition,
    number: Cell<u64>,
    missing: Cell<u32>,
}

impl Led {
    /// The threads.
    pub fn programs(&self) -> Vec<Script> {
        let Led { compute, between, .. } = *self;
        let others = self.threads - 1;
        threads(self.threads, Round::default(), move |number, round, thread| async move {
            match number {
                0 => round.lead(&thread, others, between).await,
                _ => round.follow(&thread, compute).await,
            }
        })
    }
}

impl Round {
    async fn lead(&self, thread: &Thread, others: u32, between: Distribution) {
        loop {
            thread.compute_drawn(between).await;
            let began_ns = thread.now_ns();
            self.lock.take(thread).await;
            self.missing.set(others);
            self.number.set(self.number.get() + 1);
            self.begins.tell_all(thread);
            while self.missing.get() > 0 {
                self.ends.wait(thread, &self.lock).await;
            }
            self.lock.give(thread);
            thread.work(1);
            thread.latency(thread.now_ns() - began_ns);
        }
    }

    async fn follow(&self, thread: &Thread, compute: Distribution) {
        for done in 0.. {
            self.lock.take(thread).await;
            while self.number.get() == done {
                self.begins.wait(thread, &self.lock).await;
            }
            self.lock.give(thread);
            thread.compute_drawn(compute).await;
            self.lock.take(thread).await;
            self.missing.set(self.missing.get() - 1);
            if self.missing.get() == 0 {
                self.ends.tell_one(thread);
            }
            self.lock.give(thread);
        }
    }
}

/// Threads in stages; what one stage has done goes to the next, as long as there is room for it. What the last stage
/// has done is a piece of work, and its latency counts from the beginning of the first stage.
#[derive(Clone, Copy, Debug)]
pub struct Pipeline {
    /// How many, 2 at least.
    pub stages: u32,
    /// Of each stage.
    pub threads: u32,
    /// What each stage does with each piece.
    pub compute: Distribution,
    /// How many pieces can wait before each stage.
    pub room: u32,
}

impl Pipeline {
    /// The threads, stage by stage.
    pub fn programs(&self) -> Vec<Script> {
        let Pipeline { stages, compute, room, .. } = *self;
        let queues: Vec<Queue<u64>> = (1..stages).map(|_| Queue::new(room)).collect();
        let per_stage = self.threads;
        threads(stages * per_stage, queues, move |number, queues, thread| async move {
            let stage = (number / per_stage) as usize;
            let (before, after) = (stage.checked_sub(1).map(|before| &queues[before]), queues.get(stage));
            loop {
                let began_ns = match before {
                    Some(queue) => queue.take(&thread).await,
                    None => thread.now_ns(),
                };
                thread.compute_drawn(compute).await;
                match after {
                    Some(queue) => queue.put(&thread, began_ns).await,
                    None => {
                        thread.work(1);
                        thread.latency(thread.now_ns() - began_ns);
                    }
                }
            }
        })
    }
}

/// What goes from some threads to others, first in, first out, with a limit.
struct Queue<T> {
    lock: Lock,
    has_some: Condition,
    has_room: Condition,
    things: RefCell<VecDeque<T>>,
    room: usize,
}

impl<T> Queue<T> {
    fn new(room: u32) -> Queue<T> {
        Queue {
            lock: Lock::default(),
            has_some: Condition::default(),
            has_room: Condition::default(),
            things: RefCell::default(),
            room: room as usize,
        }
    }

    async fn put(&self, thread: &Thread, thing: T) {
        self.lock.take(thread).await;
        while self.things.borrow().len() == self.room {
            self.has_room.wait(thread, &self.lock).await;
        }
        self.things.borrow_mut().push_back(thing);
        self.has_some.tell_one(thread);
        self.lock.give(thread);
    }

    async fn take(&self, thread: &Thread) -> T {
        self.lock.take(thread).await;
        let thing = loop {
            let first = self.things.borrow_mut().pop_front();
            match first {
                Some(thing) => break thing,
                None => self.has_some.wait(thread, &self.lock).await,
            }
        };
        self.has_room.tell_one(thread);
        self.lock.give(thread);
        thing
    }
}
