//! A guest that knows its timetable: its threads leave a vCPU just before its slot ends, for one that runs then, and
//! come back when its next slot begins. The host does nothing for it but publish the slots.
//!
//! Slots are what a vCPU has at least. Between them it may have its CPU too, if nobody else wants it. A vCPU that was
//! stopped as a slot ended is without threads between its slots from then on. Once a second it stays awake beyond the
//! end of a slot, without threads, and sees whether it is still stopped. Without a timetable, a vCPU is taken to run
//! for ever until it is seen to wait.
//!
//! A thread that waits busily has nothing to do that another one could not do meanwhile. So it gives way to threads
//! that wait, on its own vCPU and on others.

use std::cmp::Reverse;

use super::inside::{Inside, Thread, Vcpu};
use super::slots::Moment;
use crate::program::{Effect, World};
use crate::task::State;

/// Threads leave so long before a slot ends: the time for a timer, a change of threads and an interrupt.
const LEAD_NS: u64 = 30_000;
/// A vCPU that stops sooner is no place to go.
const STAY_NS: u64 = 200_000;
/// Who waits longer for a CPU does so because somebody else has it.
const LATE_NS: u64 = 100_000;
/// For so long a vCPU believes that its CPU is somebody else's between its slots.
const BELIEF_NS: u64 = 1_000_000_000;
/// A vCPU that still has its CPU so long after its slot has it for itself.
const TRY_NS: u64 = 200_000;
/// For how long a thread runs if others wait and a vCPU is stopped.
const SHORT_NS: u64 = 500_000;
/// Who has waited busily for so long is seen to (as the host's scheduler does: docs/OVERSUBSCRIPTION.md).
pub const SPIN_NS: u64 = 100_000;

/// What can be expected of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// It runs, or would at once, until then.
    Runs { until_ns: u64 },
    /// It does not run before then.
    Stopped { from_ns: u64 },
}

impl Inside {
    /// A vCPU gets a CPU.
    pub fn runs(&mut self, vcpu: usize, now_ns: u64) {
        let waited_ns = self.vcpus[vcpu].sight.gets(now_ns);
        let since_ns = now_ns - waited_ns;
        let (moment, sight) = (self.moment(vcpu, since_ns), &mut self.vcpus[vcpu].sight);
        match moment {
            Some(Moment::Out { .. }) if waited_ns > LATE_NS => sight.taken_ns = Some(now_ns),
            Some(Moment::In { until_ns }) if now_ns.min(until_ns) - since_ns > LATE_NS => {
                sight.slot_was_broken(now_ns);
            }
            _ => {}
        }
    }

    /// It loses it.
    pub fn stops(&mut self, vcpu: usize, now_ns: u64) {
        self.vcpus[vcpu].sight.loses(now_ns);
        let soon = self.moment(vcpu, now_ns + LEAD_NS);
        let sight = &mut self.vcpus[vcpu].sight;
        sight.tries_until_ns = None;
        if matches!(soon, Some(Moment::Out { .. })) {
            sight.taken_ns = Some(now_ns);
        }
    }

    /// A vCPU that has its CPU beyond a slot although it was taken before has it for itself again.
    fn look_whether_taken(&mut self, vcpu: usize) {
        let sight = &mut self.vcpus[vcpu].sight;
        if sight.tries_until_ns.is_some_and(|until_ns| until_ns <= self.now_ns) {
            (sight.taken_ns, sight.tries_until_ns) = (None, None);
        }
    }

    /// The vCPU is about to stop: if it has believed so for long, it is to see whether it does.
    fn try_whether_taken(&mut self, vcpu: usize) {
        let moment = self.expected(vcpu, self.now_ns);
        let sight = &mut self.vcpus[vcpu].sight;
        let is_old = sight.taken_ns.is_some_and(|taken_ns| taken_ns + BELIEF_NS <= self.now_ns);
        if let (Some(Moment::In { until_ns }), true) = (moment, is_old) {
            sight.tries_until_ns = Some(until_ns + TRY_NS);
        }
    }

    /// For how long a vCPU without threads stays awake.
    pub(super) fn stays_ns(&self, vcpu: usize) -> Option<u64> {
        let until_ns = self.vcpus[vcpu].sight.tries_until_ns?;
        Some(until_ns.saturating_sub(self.now_ns).max(1))
    }

    fn moment(&self, vcpu: usize, at_ns: u64) -> Option<Moment> {
        self.timetable.as_ref()?.at(vcpu, at_ns)
    }

    /// The same, if the timetable is believed.
    fn expected(&self, vcpu: usize, at_ns: u64) -> Option<Moment> {
        if self.vcpus[vcpu].sight.believes(self.now_ns) { self.moment(vcpu, at_ns) } else { None }
    }

    pub(super) fn outlook(&self, vcpu: usize) -> Outlook {
        let (now_ns, sight) = (self.now_ns, &self.vcpus[vcpu].sight);
        let waited_ns = sight.waits_since_ns(now_ns).map(|since_ns| now_ns - since_ns);
        let is_taken = sight.taken_ns.is_some();
        match (self.expected(vcpu, now_ns), waited_ns) {
            (Some(Moment::Out { from_ns }), waited_ns) if is_taken || waited_ns.is_some() => {
                Outlook::Stopped { from_ns }
            }
            (Some(Moment::In { until_ns }), Some(waited_ns)) if waited_ns > LATE_NS => {
                Outlook::Stopped { from_ns: until_ns }
            }
            (None, Some(waited_ns)) if waited_ns > LATE_NS => Outlook::Stopped { from_ns: u64::MAX },
            (Some(Moment::In { until_ns }), _) if is_taken => match until_ns - LEAD_NS {
                until_ns if now_ns < until_ns => Outlook::Runs { until_ns },
                // Its next slot begins later than this; how much later does not matter.
                _ => Outlook::Stopped { from_ns: until_ns },
            },
            _ => Outlook::Runs { until_ns: u64::MAX },
        }
    }

    pub(super) fn is_there(&self, vcpu: usize) -> bool {
        let outlook = self.outlook(vcpu);
        self.has_begun(vcpu)
            && matches!(outlook, Outlook::Runs { until_ns } if until_ns - self.now_ns >= STAY_NS)
    }

    /// When a vCPU has to look at its threads again.
    pub(super) fn looks_ns(&self, vcpu: usize) -> Option<u64> {
        match self.outlook(vcpu) {
            Outlook::Runs { until_ns } => Some(until_ns).filter(|until_ns| *until_ns < u64::MAX),
            Outlook::Stopped { .. } => None,
        }
    }

    /// When a vCPU without threads has to look for some: as its next slot begins, if others have any.
    pub(super) fn returns_ns(&self, vcpu: usize) -> Option<u64> {
        self.vcpus[vcpu].sight.taken_ns?;
        let soon = self.expected(vcpu, self.now_ns + LEAD_NS)?;
        let then = if let Moment::In { until_ns } = soon { self.expected(vcpu, until_ns)? } else { soon };
        let Moment::Out { from_ns } = then else { return None };
        let has_threads = |other: &Vcpu| other.current.is_some() || !other.queue.is_empty();
        self.vcpus.iter().any(has_threads).then_some(from_ns)
    }

    /// What a vCPU does before it goes on with its threads.
    pub(super) fn keep_to_slots(&mut self, vcpu: usize, world: &mut World<'_>) {
        self.look_whether_taken(vcpu);
        if let Some(current) = self.vcpus[vcpu].current
            && let Some(to) = self.threads[current].recalled.take()
            && self.is_there(to)
        {
            self.vcpus[vcpu].current = None;
            self.place(current, to, true, Some(vcpu), world.effects);
        }
        if let Outlook::Stopped { .. } = self.outlook(vcpu) {
            self.vcpus[vcpu].sight.slot_was_kept();
            self.try_whether_taken(vcpu);
            return self.leave(vcpu, world.effects);
        }
        if self.spins_on(vcpu) {
            if self.vcpus[vcpu].queue.is_empty()
                && let Some(other) = self.fetch(vcpu)
            {
                self.vcpus[vcpu].queue.push_front(other);
            }
            self.vcpus[vcpu].slice_left_ns = 0;
        }
        if self.vcpus[vcpu].current.is_none() && self.vcpus[vcpu].queue.is_empty() {
            self.call_home(vcpu, world.effects);
        }
    }

    fn spins_on(&self, vcpu: usize) -> bool {
        let current = self.vcpus[vcpu].current.map(|current| &self.threads[current]);
        current.is_some_and(|current| current.spins && current.spun_ns >= SPIN_NS && current.ended.is_none())
    }

    /// All threads leave a vCPU that is about to stop, as far as there is a better place.
    fn leave(&mut self, vcpu: usize, outside: &mut Vec<Effect>) {
        let threads = self.vcpus[vcpu].current.into_iter().chain(self.vcpus[vcpu].queue.iter().copied());
        let threads: Vec<usize> = threads.filter(|thread| !self.threads[*thread].stays()).collect();
        for thread in threads {
            let Some(to) = self.refuge(vcpu) else { return };
            if self.vcpus[vcpu].current == Some(thread) {
                self.vcpus[vcpu].current = None;
            }
            self.vcpus[vcpu].queue.retain(|queued| *queued != thread);
            self.place(thread, to, true, Some(vcpu), outside);
        }
    }

    /// The vCPU that a thread leaves another one for: one that runs and has least to do, or that idles and is first.
    fn refuge(&self, from: usize) -> Option<usize> {
        let others = (0..self.vcpus.len()).filter(|other| *other != from);
        let burden = |other: &usize| {
            let of = &self.vcpus[*other];
            let busy = of.current.is_some_and(|current| !self.threads[current].spins);
            let until_ns = match self.outlook(*other) {
                Outlook::Runs { until_ns } => until_ns,
                Outlook::Stopped { .. } => 0,
            };
            (of.queue.len() + usize::from(busy), of.current.is_some(), Reverse(until_ns))
        };
        let there = others.clone().filter(|other| self.is_there(*other)).min_by_key(burden);
        let from_ns = |vcpu: usize| match self.expected(vcpu, self.now_ns + LEAD_NS) {
            Some(Moment::Out { from_ns }) => from_ns,
            _ => u64::MAX,
        };
        there.or_else(|| {
            let idle = others.filter(|other| self.idles(*other) && self.has_begun(*other));
            let first = idle.min_by_key(|other| from_ns(*other))?;
            (from_ns(first).saturating_add(STAY_NS) < from_ns(from)).then_some(first)
        })
    }

    /// For how long a thread runs if others wait, if not as always: less while a vCPU is stopped, so that those who
    /// share the others come forward together.
    pub(super) fn slice_ns(&self) -> Option<u64> {
        let is_stopped = |vcpu: usize| matches!(self.outlook(vcpu), Outlook::Stopped { .. });
        (0..self.vcpus.len()).any(is_stopped).then_some(SHORT_NS)
    }

    /// A thread that waits on another vCPU: one whose home this is, else one from the longest queue. None if this vCPU
    /// stops soon. Who is about to run where it is stays there.
    pub(super) fn fetch(&mut self, vcpu: usize) -> Option<usize> {
        if !self.is_there(vcpu) {
            return None;
        }
        let others = (0..self.vcpus.len()).filter(|other| *other != vcpu);
        let waiting = others.flat_map(|other| {
            let of = &self.vcpus[other];
            let takes_next = of.current.is_none() || of.slice_left_ns == 0;
            of.queue.iter().skip(usize::from(takes_next && self.is_there(other))).copied()
        });
        let movable = waiting.filter(|thread| !self.threads[*thread].stays());
        let thread = movable.min_by_key(|thread| {
            let Thread { home, vcpu: from, .. } = self.threads[*thread];
            (home != vcpu, Reverse(self.vcpus[from].queue.len()))
        })?;
        let from = self.threads[thread].vcpu;
        self.vcpus[from].queue.retain(|queued| *queued != thread);
        Some(thread)
    }

    /// A vCPU whose slot begins has its own thread back from one where others wait.
    fn call_home(&mut self, vcpu: usize, outside: &mut Vec<Effect>) {
        let is_away = |number: &usize| {
            let thread = &self.threads[*number];
            let runs = thread.state == State::Running && thread.home == vcpu && thread.vcpu != vcpu;
            runs && !thread.stays() && !self.vcpus[thread.vcpu].queue.is_empty()
        };
        let waits = self
            .vcpus
            .iter()
            .any(|other| other.queue.iter().any(|queued| self.threads[*queued].home == vcpu));
        if let Some(thread) = (0..self.threads.len()).find(is_away).filter(|_| !waits) {
            self.threads[thread].recalled = Some(vcpu);
            outside.extend(self.vcpus[self.threads[thread].vcpu].task.map(Effect::Poke));
        }
    }

    /// Where a thread goes that wakes up, and whether it runs before what runs there.
    pub(super) fn wakes_on(&self, number: usize) -> (usize, bool) {
        let Thread { home, .. } = self.threads[number];
        let is_home_there = self.is_there(home);
        if is_home_there {
            let current = self.vcpus[home].current;
            let is_guest = current.is_some_and(|current| self.threads[current].home != home);
            if self.idles(home) || is_guest {
                return (home, is_guest);
            }
        }
        let idle = |other: &usize| self.idles(*other) && self.is_there(*other);
        if let Some(other) = (0..self.vcpus.len()).find(idle) {
            return (other, false);
        }
        if is_home_there {
            return (home, false);
        }
        (self.refuge(home).unwrap_or(home), false)
    }

    /// Where a thread waits whose slice is over.
    pub(super) fn waits_on(&self, vcpu: usize, number: usize) -> usize {
        let is_free = |other: usize| other != vcpu && self.idles(other) && self.is_there(other);
        let Thread { home, .. } = self.threads[number];
        if is_free(home) {
            return home;
        }
        (0..self.vcpus.len()).find(|other| is_free(*other)).unwrap_or(vcpu)
    }
}
