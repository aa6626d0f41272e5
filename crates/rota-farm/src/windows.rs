//! CPUs that serve their vCPUs in windows: whether each vCPU has its budget in each window in which it wants it, none
//! more than that before others, and whether what it has left goes to it as it waits.
//!
//! From the table and from what happens on the machine: who waits, who runs, and for how long. In which order the
//! scheduler serves them does not matter here.

use rota_sim::CpuId;

use super::finding::Fault;
use super::threads::{Owner, Thread, Threads, place_of};
use super::timetable::{Timetable, Vcpu};

/// So little of a budget may be left in the end.
const GRAIN_NS: u64 = 25_000;

/// A vCPU in its present window.
#[derive(Clone, Copy, Debug, Default)]
struct Had {
    start_ns: u64,
    /// What it has had of the window.
    had_ns: u64,
    /// So much of that perhaps is of no budget: threads had it that were another tenant's as they were chosen, or that
    /// may not run on every CPU and are served as background; or it was had before a table or a tenant changed, or was
    /// perhaps taken by the hypervisor.
    unsure_ns: u64,
    /// It would run, without a pause since `line_from_ns` or the window's start.
    wants: bool,
    /// It is due its share of the time from there on. What it had had by then, but for what was more than its share
    /// before: that is of what it is due.
    line_from_ns: u64,
    line_had_ns: u64,
    /// How often it has started, or woken.
    starts: u64,
    /// How many turns have ended on the CPU, each perhaps late.
    turns: u64,
    /// All of the window was seen, and the scheduler had the CPU all the time.
    is_clean: bool,
}

/// Of each CPU its vCPUs, by their places in the list of the table that holds since a time.
#[derive(Debug, Default)]
pub struct Windows {
    cpus: Vec<(u64, Vec<Had>)>,
}

/// What changes of task may have taken from a vCPU's budget.
fn changes_ns(vcpu: &Vcpu, had: &Had) -> u64 {
    2 * vcpu.switch_ns * (had.starts + 1) + GRAIN_NS
}

impl Had {
    /// It wants to run from now on.
    fn begins_to_want(&mut self, vcpu: &Vcpu, at_ns: u64) {
        let share_ns = vcpu.window_ns * at_ns.saturating_sub(self.line_from_ns) / vcpu.period_ns;
        let more_ns = (self.had_ns - self.line_had_ns).saturating_sub(share_ns);
        *self = Had { wants: true, line_from_ns: at_ns, line_had_ns: self.had_ns - more_ns, ..*self };
    }
}

impl Windows {
    /// What was seen up to now says nothing of the windows that are in force.
    pub fn forget(&mut self) {
        for had in self.cpus.iter_mut().flat_map(|(_, hads)| hads) {
            (had.is_clean, had.unsure_ns) = (false, had.had_ns);
        }
    }

    /// Judges the windows that are over, and begins others. Returns until when none ends, how many were over, and what
    /// is missing in one.
    pub fn roll(
        &mut self,
        table: &Timetable,
        cpu: usize,
        at_ns: u64,
        late_ns: u64,
    ) -> (u64, u64, Option<Fault>) {
        let (mut until_ns, mut over, mut found) = (u64::MAX, 0, None);
        let (from_ns, hads) = place_of(&mut self.cpus, cpu);
        if std::mem::replace(from_ns, table.from_ns) != table.from_ns {
            hads.clear();
        }
        hads.resize(table.residents(cpu).len(), Had::default());
        // What came late in a long window is made good in it, at the cost of those that end before.
        let turns = hads.iter().map(|had| had.turns).max().unwrap_or(0);
        for (had, number) in hads.iter_mut().zip(table.residents(cpu)) {
            let vcpu = &table.vcpus[*number as usize];
            let start_ns = at_ns - at_ns % vcpu.period_ns;
            until_ns = until_ns.min(start_ns + vcpu.period_ns);
            if had.start_ns == start_ns {
                continue;
            }
            over += 1;
            found = found.or(missing(vcpu, had, cpu, (turns + 1) * late_ns));
            *had = Had {
                start_ns,
                wants: had.wants,
                line_from_ns: start_ns,
                is_clean: start_ns == at_ns,
                ..Had::default()
            };
        }
        (until_ns, over, found)
    }

    /// Which vCPU a thread runs for that is within its budget, and what that has left.
    pub fn owner(&self, table: &Timetable, cpu: usize, owner: Owner) -> Option<(u32, u64)> {
        let (_, hads) = self.cpus.get(cpu)?;
        let residents = || hads.iter().zip(table.residents(cpu));
        let is_alone = table.is_alone(cpu, owner.tenant);
        residents().find_map(|(had, number)| {
            let vcpu = &table.vcpus[*number as usize];
            // Of which of several it is not to be seen.
            let own_ns = had.had_ns - had.unsure_ns;
            let left_ns = if is_alone { vcpu.window_ns.saturating_sub(own_ns) } else { u64::MAX };
            (owner.may_use(vcpu.tenant, vcpu.index) && left_ns > 0).then_some((*number, left_ns))
        })
    }

    /// The CPU goes on for so long with a thread of `runs`. `excused`: nobody could have had it otherwise.
    pub fn passes(
        &mut self,
        threads: &Threads,
        table: &Timetable,
        (cpu, at_ns, ns): (usize, u64, u64),
        runs: Option<Thread>,
        excused: bool,
    ) {
        let is_unsure = runs.is_some_and(|thread| thread.moved || !thread.free);
        let runs = runs.map(|thread| thread.owner);
        let within = runs.and_then(|owner| self.owner(table, cpu, owner));
        let (_, hads) = place_of(&mut self.cpus, cpu);
        for (had, number) in hads.iter_mut().zip(table.residents(cpu)) {
            let vcpu = &table.vcpus[*number as usize];
            let is_its = runs.is_some_and(|owner| owner.may_use(vcpu.tenant, vcpu.index));
            // Threads of a monitor, or of a container with several vCPUs, may be had by another of its vCPUs.
            let is_alone = table.is_alone(cpu, vcpu.tenant)
                && runs.is_none_or(|owner| !is_its || is_alone(threads, owner));
            had.is_clean &= !excused && is_alone;
            if !is_its && !threads.sole_waits(vcpu.tenant, vcpu.index) {
                had.wants = false;
            } else if !had.wants {
                had.begins_to_want(vcpu, at_ns);
            }
            let own_ns = if within.is_some_and(|(owner, _)| owner == *number) { ns } else { 0 };
            had.had_ns += own_ns;
            had.unsure_ns += if is_unsure || excused { own_ns } else { 0 };
        }
    }

    /// A thread wakes that may come there.
    pub fn wakes(&mut self, table: &Timetable, cpu: usize, owner: Owner) {
        for (had, number) in place_of(&mut self.cpus, cpu).1.iter_mut().zip(table.residents(cpu)) {
            let vcpu = &table.vcpus[*number as usize];
            had.starts += u64::from(owner.may_use(vcpu.tenant, vcpu.index));
        }
    }

    /// A thread starts there.
    pub fn starts(&mut self, table: &Timetable, cpu: usize, owner: Owner) {
        for (had, number) in place_of(&mut self.cpus, cpu).1.iter_mut().zip(table.residents(cpu)) {
            let vcpu = &table.vcpus[*number as usize];
            had.starts += u64::from(owner.may_use(vcpu.tenant, vcpu.index));
            had.turns += 1;
        }
    }

    /// A vCPU that waits there with a part of its budget left, more than changes of task may have taken.
    pub fn in_vain<'t>(
        &self,
        threads: &Threads,
        table: &'t Timetable,
        cpu: usize,
        late_ns: u64,
    ) -> Option<&'t Vcpu> {
        let waits = |(had, number): (&Had, &u32)| {
            let vcpu = &table.vcpus[*number as usize];
            let least_ns = had.had_ns + changes_ns(vcpu, had) + (had.turns + 1) * late_ns;
            let is_left =
                had.is_clean && least_ns < vcpu.window_ns && threads.sole_waits(vcpu.tenant, vcpu.index);
            is_left.then_some(vcpu)
        };
        self.cpus.get(cpu)?.1.iter().zip(table.residents(cpu)).find_map(waits)
    }
}

/// Whether a thread is all that its vCPU is, or one of its tenant's only vCPU.
fn is_alone(threads: &Threads, owner: Owner) -> bool {
    owner.vcpu.is_some() || threads.vcpus(owner.tenant) == 1
}

/// What a vCPU has had too little in a window that is over: of one that wanted to run since some time in it up to the
/// end, its part of that time, if it had as much left.
fn missing(vcpu: &Vcpu, had: &Had, cpu: usize, late_ns: u64) -> Option<Fault> {
    if !had.wants || !had.is_clean {
        return None;
    }
    let end_ns = had.start_ns + vcpu.period_ns;
    let due_ns = vcpu.window_ns * (end_ns - had.line_from_ns) / vcpu.period_ns;
    let due_ns = due_ns.min(vcpu.window_ns.saturating_sub(had.line_had_ns));
    let least_ns = due_ns.saturating_sub(changes_ns(vcpu, had) + late_ns);
    let ns = least_ns.saturating_sub(had.had_ns - had.line_had_ns);
    (ns > 0).then_some(Fault::Short { cpu: CpuId(cpu as u32), tenant: vcpu.tenant, vcpu: vcpu.index, ns })
}
