//! Programs written as async functions. What waits, what it waits for and what it has left to do is then the compiler's
//! state machine, and every way to wait can be a function that others build on.

use std::cell::RefCell;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::distribution::Distribution;
use crate::ids::{DeviceId, TaskId};
use crate::program::{Effect, Program, Reason, Resumed, Step, Why, World};
use crate::rng::Rng;

/// A program that is an async function of its [`Thread`], and over when that returns.
pub struct Script {
    thread: Thread,
    body: Pin<Box<dyn Future<Output = ()>>>,
}

impl Script {
    /// The program that `body` is. It may wait for nothing but what its thread offers.
    pub fn new<F: Future<Output = ()> + 'static>(body: impl FnOnce(Thread) -> F) -> Script {
        let thread = Thread(Rc::new(RefCell::new(Inside {
            now_ns: 0,
            task: TaskId(0),
            resumed: Resumed { why: Why::Started, done_ns: 0 },
            step: None,
            effects: Vec::new(),
            rng: Rng::new(0, 0),
        })));
        Script { body: Box::pin(body(thread.clone())), thread }
    }
}

impl Program for Script {
    fn next(&mut self, resumed: Resumed, world: &mut World<'_>) -> Step {
        self.thread.exchange(world);
        self.thread.0.borrow_mut().resumed = resumed;
        let polled = self.body.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.thread.exchange(world);
        match polled {
            Poll::Ready(()) => Step::Exit,
            Poll::Pending => {
                self.thread.0.borrow_mut().step.take().expect("a script waits for its thread only")
            }
        }
    }
}

/// A script's own thread: what it can do, and what it sees. While the script is not being asked for its next step, this
/// is of no use.
#[derive(Clone)]
pub struct Thread(Rc<RefCell<Inside>>);

struct Inside {
    now_ns: u64,
    task: TaskId,
    resumed: Resumed,
    step: Option<Step>,
    /// The world's, while the script is asked.
    effects: Vec<Effect>,
    /// The world's, while the script is asked.
    rng: Rng,
}

impl Thread {
    /// Takes the world in, or gives it back.
    fn exchange(&self, world: &mut World<'_>) {
        let mut inside = self.0.borrow_mut();
        inside.now_ns = world.now_ns;
        inside.task = world.task;
        mem::swap(&mut inside.effects, world.effects);
        mem::swap(&mut inside.rng, world.rng);
    }

    /// CLOCK_MONOTONIC.
    pub fn now_ns(&self) -> u64 {
        self.0.borrow().now_ns
    }

    /// The thread itself.
    pub fn task(&self) -> TaskId {
        self.0.borrow().task
    }

    /// Draws from the thread's own chance.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.0.borrow_mut().rng)
    }

    /// Takes a step, and says how it ended.
    pub async fn step(&self, step: Step) -> Resumed {
        let mut step = Some(step);
        std::future::poll_fn(|_| match step.take() {
            Some(step) => {
                self.0.borrow_mut().step = Some(step);
                Poll::Pending
            }
            None => Poll::Ready(self.0.borrow().resumed),
        })
        .await
    }

    /// Computes for so many ns of CPU time. `u64::MAX`: for ever.
    pub async fn compute(&self, ns: u64) {
        let mut left_ns = ns;
        while left_ns > 0 {
            let done_ns = self.step(Step::Compute(left_ns)).await.done_ns;
            if left_ns != u64::MAX {
                left_ns = left_ns.saturating_sub(done_ns);
            }
        }
    }

    /// Computes for a time that is drawn.
    pub async fn compute_drawn(&self, times: Distribution) {
        let ns = self.draw(|rng| times.draw(rng));
        self.compute(ns).await;
    }

    /// Waits busily for so many ns of CPU time, or until poked. `u64::MAX`: until poked. Says for how long.
    pub async fn spin(&self, most_ns: u64) -> u64 {
        self.step(Step::Spin(most_ns)).await.done_ns
    }

    /// Sleeps for so many ns.
    pub async fn sleep(&self, ns: u64) {
        let until_ns = self.now_ns() + ns;
        self.step(Step::SleepUntil(until_ns)).await;
    }

    /// Waits for another thread until woken.
    pub async fn wait(&self) {
        self.step(Step::Wait(None)).await;
    }

    /// The same for a device or the network.
    pub async fn wait_for_device(&self) {
        self.step(Step::WaitFor(Reason::Devices, None)).await;
    }

    /// As [`World::wake`].
    pub fn wake(&self, task: TaskId) {
        self.affect(Effect::Wake(task));
    }

    /// As [`World::poke`].
    pub fn poke(&self, task: TaskId) {
        self.affect(Effect::Poke(task));
    }

    /// As [`World::ask`].
    pub fn ask(&self, device: DeviceId, at_ns: u64) {
        self.affect(Effect::Ask(device, at_ns));
    }

    /// From here on the thread is inside of a read section of RCU, as in some of the kernel's calls; or no more.
    pub fn read_rcu(&self, reads: bool) {
        self.affect(Effect::ReadRcu(self.task(), reads));
    }

    /// As [`World::work`].
    pub fn work(&self, amount: u64) {
        self.affect(Effect::Work(self.task(), amount));
    }

    /// As [`World::latency`].
    pub fn latency(&self, ns: u64) {
        self.affect(Effect::Latency(self.task(), ns));
    }

    /// From here on the thread works on other memory, of so many KiB, at least 1. No more than that changes if caches
    /// are simulated for it, and nothing if they are not.
    pub fn working_set(&self, kib: u32) {
        self.affect(Effect::WorkingSet(self.task(), kib));
    }

    fn affect(&self, effect: Effect) {
        self.0.borrow_mut().effects.push(effect);
    }
}
