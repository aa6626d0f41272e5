//! Interference-resilient scheduling (Zhao, dissertation, sections 4.3 and 4.4): the host tells a vCPU that it is about
//! to be stopped and waits; the guest takes the running thread off it, gives the CPU up, and moves the thread to a vCPU
//! that idles, or else to the one that runs with the least to do.
//!
//! The text leaves open what the migrator costs: here nothing but an interrupt. A thread that comes to a busy vCPU
//! runs at once, since its virtual time is likely the least. Load is the threads of a vCPU, and what it has waited of
//! late. Linux' balancer comes down to this: a busy vCPU with a thread to spare wakes one that idles, at its tick.

use super::inside::Inside;
use crate::program::{Effect, Reason, Step, World};
use crate::task::State;

/// What the answer takes: from the interrupt until the CPU is given up, in ns (section 4.3.1).
const ANSWER_NS: (u64, u64) = (20_000, 26_000);
/// Between ticks of a guest's busy vCPU.
pub const TICK_NS: u64 = 4_000_000;
/// What a thread weighs against time waited, in ns: a vCPU that has waited for all of late has a thread more.
const THREAD_NS: u64 = 1_000_000_000;

/// A vCPU that gives its CPU up.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// What ran there.
    pub thread: usize,
    /// How much of the answer is left.
    pub left_ns: u64,
}

impl Inside {
    /// What a vCPU does before anything else: it answers an upcall, or goes on to.
    pub(super) fn answer(&mut self, vcpu: usize, world: &mut World<'_>) -> Option<Step> {
        self.wake_one_that_idles(vcpu, world.effects);
        if std::mem::take(&mut self.vcpus[vcpu].upcalled) && self.vcpus[vcpu].leaving.is_none() {
            let Some(thread) = self.vcpus[vcpu].current.take() else { return Some(Step::Yield) };
            self.threads[thread].state = State::Queued;
            let left_ns = self.rng.between(ANSWER_NS.0, ANSWER_NS.1);
            self.vcpus[vcpu].leaving = Some(Leaving { thread, left_ns });
        }
        let Leaving { thread, left_ns } = self.vcpus[vcpu].leaving?;
        if left_ns > 0 {
            return Some(Step::Compute(left_ns));
        }
        self.vcpus[vcpu].leaving = None;
        match self.least_loaded(vcpu).filter(|_| !self.threads[thread].stays()) {
            Some(to) => {
                self.threads[thread].left.get_or_insert(vcpu);
                self.place(thread, to, true, Some(vcpu), world.effects);
            }
            None => self.place(thread, vcpu, true, Some(vcpu), world.effects),
        }
        let has_none = self.vcpus[vcpu].queue.is_empty();
        Some(if has_none { self.halt(vcpu, self.next_alarm_ns(vcpu)) } else { Step::Yield })
    }

    /// Where the migrator puts a thread (algorithm 2).
    fn least_loaded(&self, from: usize) -> Option<usize> {
        let mut others = (0..self.vcpus.len()).filter(|other| *other != from && self.has_begun(*other));
        if let Some(idle) = others.clone().find(|other| self.idles(*other)) {
            return Some(idle);
        }
        let load_ns = |other: &usize| {
            let of = &self.vcpus[*other];
            let threads = of.queue.len() + usize::from(of.current.is_some());
            threads as u64 * THREAD_NS + of.sight.stolen_ns(self.now_ns)
        };
        let running = others.by_ref().filter(|other| self.vcpus[*other].sight.runs);
        running.min_by_key(load_ns)
    }

    /// The next tick at which a vCPU has to look for one that idles.
    pub(super) fn balances_ns(&self, vcpu: usize) -> Option<u64> {
        let is_needed =
            !self.vcpus[vcpu].queue.is_empty() && (0..self.vcpus.len()).any(|other| self.idles(other));
        is_needed.then(|| (self.ticks() + 1) * TICK_NS - self.tick_phase_ns)
    }

    /// How many ticks there were.
    fn ticks(&self) -> u64 {
        (self.now_ns + self.tick_phase_ns) / TICK_NS
    }

    fn wake_one_that_idles(&mut self, vcpu: usize, outside: &mut Vec<Effect>) {
        let tick = self.ticks();
        if std::mem::replace(&mut self.vcpus[vcpu].tick, tick) == tick || self.vcpus[vcpu].queue.is_empty() {
            return;
        }
        if let Some(idle) = (0..self.vcpus.len()).find(|other| self.idles(*other) && self.has_begun(*other)) {
            self.tell(idle, Some(vcpu), outside);
        }
    }

    /// Where a thread goes that wakes up, if its own vCPU runs one that was moved there: to its own, and it runs first.
    pub(super) fn preempts_guest(&self, number: usize) -> Option<usize> {
        let vcpu = self.threads[number].vcpu;
        self.threads[self.vcpus[vcpu].current?].left.is_some_and(|left| left != vcpu).then_some(vcpu)
    }

    /// Has a vCPU without anything to do sleep.
    pub(super) fn halt(&mut self, vcpu: usize, alarm_ns: Option<u64>) -> Step {
        let own = &mut self.vcpus[vcpu];
        own.idle = true;
        own.sight.halts(alarm_ns);
        Step::WaitFor(Reason::Interrupt, alarm_ns)
    }
}
