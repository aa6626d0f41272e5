//! A guest that knows its timetable at one moment, and what it decides then: an oracle for schedulers of real guests.

use super::aware::Outlook;
use super::inside::Inside;
use super::{Help, Timetable};
use crate::costs::Costs;
use crate::ids::TaskId;
use crate::program::{Program, Resumed, Step, World};
use crate::rng::Rng;
use crate::task::State;

/// A vCPU. One on which nothing runs has halted, with nothing on its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VcpuSnapshot {
    /// The home of the thread that runs here.
    pub runs: Option<usize>,
    /// That thread's home wants it back.
    pub is_recalled: bool,
    /// How many threads wait here.
    pub waiting: usize,
    /// When its CPU was last seen to be somebody else's between its slots.
    pub taken_ns: Option<u64>,
    /// When its slots had begun late too often.
    pub distrusted_ns: Option<u64>,
}

/// A guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestSnapshot {
    /// The host's CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// None if no table is in force.
    pub timetable: Option<Timetable>,
    /// Its vCPUs.
    pub vcpus: Vec<VcpuSnapshot>,
    /// The home of a thread that wakes up.
    pub wakes: usize,
}

impl GuestSnapshot {
    /// Until when a vCPU runs: `u64::MAX` if nothing is known to stop it, none if it is stopped or about to be.
    pub fn runs_until_ns(&self, vcpu: usize) -> Option<u64> {
        match self.inside().outlook(vcpu) {
            Outlook::Runs { until_ns } => Some(until_ns),
            Outlook::Stopped { .. } => None,
        }
    }

    /// Whether a vCPU is a place to go.
    pub fn is_there(&self, vcpu: usize) -> bool {
        self.inside().is_there(vcpu)
    }

    /// Where the thread goes that wakes up.
    pub fn wakes_on(&self) -> usize {
        let inside = self.inside();
        inside.wakes_on(inside.threads.len() - 1).0
    }

    /// Where the thread that runs on a vCPU is after that has looked at its slots.
    pub fn goes_on_on(&self, vcpu: usize) -> Option<usize> {
        let mut inside = self.inside();
        let running = inside.vcpus[vcpu].current?;
        let (mut rng, mut effects, costs) = (Rng::new(0, 0), Vec::new(), Costs::default());
        let task = TaskId(0);
        let mut world =
            World { now_ns: self.now_ns, task, rng: &mut rng, costs: &costs, effects: &mut effects };
        inside.keep_to_slots(vcpu, &mut world);
        Some(inside.threads[running].vcpu)
    }

    fn inside(&self) -> Inside {
        let mut inside = Inside::new(self.vcpus.len() as u32, Rng::new(0, 0), Help::Timetable);
        (inside.now_ns, inside.timetable) = (self.now_ns, self.timetable.clone());
        for (number, vcpu) in self.vcpus.iter().enumerate() {
            let running = vcpu.runs.map(|home| thread(&mut inside, number, home));
            if let Some(running) = running {
                inside.threads[running].state = State::Running;
                inside.threads[running].recalled = vcpu.runs.filter(|_| vcpu.is_recalled);
            }
            let waiting = (0..vcpu.waiting).map(|_| thread(&mut inside, number, number)).collect();
            let of = &mut inside.vcpus[number];
            (of.current, of.queue, of.idle) = (running, waiting, running.is_none());
            (of.task, of.sight.runs) = (Some(TaskId(number as u32)), running.is_some());
            of.sight.taken_ns = vcpu.taken_ns;
            of.sight.set_distrusted(vcpu.distrusted_ns);
        }
        let wakes = thread(&mut inside, self.wakes, self.wakes);
        inside.threads[wakes].state = State::Blocked;
        inside
    }
}

/// Another thread, on no queue.
fn thread(inside: &mut Inside, vcpu: usize, home: usize) -> usize {
    let number = inside.threads.len();
    inside.add(Box::new(Ends), false);
    inside.vcpus.iter_mut().for_each(|of| of.queue.retain(|queued| *queued != number));
    (inside.threads[number].vcpu, inside.threads[number].home) = (vcpu, home);
    number
}

/// A program that does nothing.
struct Ends;

impl Program for Ends {
    fn next(&mut self, _: Resumed, _: &mut World<'_>) -> Step {
        Step::Exit
    }
}
