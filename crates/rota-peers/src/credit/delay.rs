//! Delayed preemption and differential scheduling: two changes to Credit by Y. Zhao, *Understanding and optimizing
//! parallel performance in multi-tenant cloud*, dissertation, UT Arlington 2019, section 3.5.

use rota_sim::{CpuId, Machine, Task, TaskId};

use super::{Credit, RATE_LIMIT_NS, SLICE_NS};

/// How long a vCPU that wakes lets a lower one go on (3.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delay {
    /// Not at all: as in Xen.
    #[default]
    None,
    /// For so many ns, unless that one stops by itself.
    Fixed(u64),
    /// For as long as each vCPU has been found to be able to wait: see [`Waits::learn`].
    Adaptive,
}

/// The least change of a delay where the lag is 1: formula (3.2).
const STEP_NS: i64 = 10_000;

/// What a vCPU can wait, and by what that was found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    delay_ns: u64,
    /// CPU time and time when it was looked at last.
    used_ns: u64,
    looked_ns: u64,
}

impl Waits {
    /// Formulas (3.1) and (3.2): the lag is what a vCPU had beyond its fair part, as a part of the time. The delay
    /// grows by the lag times itself and a little. It is no longer than a slice.
    fn learn(&mut self, used_ns: u64, now_ns: u64, weight: u64, all: u64) {
        let time_ns = (now_ns - std::mem::replace(&mut self.looked_ns, now_ns)) as i64;
        let had_ns = (used_ns - std::mem::replace(&mut self.used_ns, used_ns)) as i64;
        if time_ns > 0 {
            let (delay_ns, fair_ns) = (self.delay_ns as i64, time_ns * weight as i64 / all as i64);
            let grown_ns = (had_ns - fair_ns) * (delay_ns + STEP_NS) / time_ns;
            self.delay_ns = (delay_ns + grown_ns).clamp(0, SLICE_NS as i64) as u64;
        }
    }
}

impl Credit {
    /// One that delays preemption by who wakes.
    #[must_use]
    pub fn with_delay(self, delay: Delay) -> Credit {
        Credit { delay, ..self }
    }

    /// One whose slices are 10 to 30 ms each, drawn anew on each CPU (3.5.2).
    #[must_use]
    pub fn with_differing_slices(self) -> Credit {
        Credit { differing: true, ..self }
    }

    /// How long one runs from now on.
    pub(super) fn draw_slice_ns(&self, machine: &mut Machine) -> u64 {
        if self.differing { machine.rng().between(SLICE_NS / 3, SLICE_NS) } else { self.slice_ns }
    }

    /// One that wakes is higher than what its CPU runs: has that CPU decide, at once or later.
    pub(super) fn preempt(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        let delay_ns = match self.delay {
            Delay::None => 0,
            Delay::Fixed(ns) => ns,
            Delay::Adaptive => self.vcpu(task).waits.delay_ns,
        };
        if delay_ns < RATE_LIMIT_NS {
            return machine.resched(cpu); // who runs has so much in any case
        }
        let delayed = &mut self.cpus[cpu.index()].delayed;
        if !std::mem::replace(&mut delayed.1, true) {
            let at_ns = machine.now_ns() + delay_ns;
            machine.timer_set(delayed.0, cpu, at_ns);
        }
    }

    /// The delay is over.
    pub(super) fn delay_ends(&mut self, machine: &mut Machine, cpu: CpuId) {
        self.cpus[cpu.index()].delayed.1 = false;
        let Some(current) = self.cpus[cpu.index()].current else { return };
        let first = self.cpus[cpu.index()].waiting.front();
        if first.is_some_and(|&first| self.priority(first) > self.priority(current)) {
            machine.resched(cpu);
        }
    }

    /// The CPU has decided: nobody waits for that any more.
    pub(super) fn call_delay_off(&mut self, machine: &mut Machine, cpu: CpuId) {
        let delayed = &mut self.cpus[cpu.index()].delayed;
        if std::mem::take(&mut delayed.1) {
            machine.timer_cancel(delayed.0);
        }
    }

    /// At an account: what each vCPU had since the last one, beside its part by weight of the CPU where it is.
    pub(super) fn learn(&mut self, machine: &Machine) {
        if self.delay != Delay::Adaptive {
            return;
        }
        let here =
            || machine.tasks().filter(|(id, _)| self.vcpus.get(id.index()).is_some_and(Option::is_some));
        let weight = |task: &Task| u64::from(machine.cgroup(task.cgroup).weight);
        let mut weights = vec![0; self.cpus.len()];
        here().for_each(|(_, task)| weights[task.cpu.index()] += weight(task));
        let found: Vec<_> =
            here().map(|(id, task)| (id, task.used_ns, weight(task), weights[task.cpu.index()])).collect();
        for (id, used_ns, weight, all) in found {
            self.vcpu(id).waits.learn(used_ns, machine.now_ns(), weight, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_grows_while_one_has_more_than_its_part() {
        let ms = 1_000_000;
        let (mut waits, mut used_ns) = (Waits::default(), 0);
        for period in 1..200 {
            used_ns += 20 * ms;
            waits.learn(used_ns, period * 30 * ms, 100, 200);
        }
        assert_eq!(waits.delay_ns, SLICE_NS, "a sixth more each time, and no longer than a slice");
        for period in 200..300 {
            used_ns += 10 * ms;
            waits.learn(used_ns, period * 30 * ms, 100, 200);
        }
        assert!(waits.delay_ns < 10_000, "and shrinks while it has less: {}", waits.delay_ns);
    }
}
