//! How long threads wait for a CPU: at most, by unit; and how long although one idles that they could have.

use crate::ids::{CpuId, TaskId, UnitId};
use crate::machine::Machine;
use crate::observe::{Event, Observer};

/// The longest waits of a unit's threads, each from when it would run, or was preempted, until it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    /// In ns.
    pub wait_ns: u64,
    /// The part of a wait in which a CPU idled that the thread may run on, without a pause; in ns.
    pub beside_idle_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    task: TaskId,
    since_ns: u64,
    beside_idle_since_ns: Option<u64>,
}

/// Watches every thread but real-time ones.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    waiting: Vec<Waiting>,
    idle: Vec<bool>,
    units: Vec<Longest>,
}

impl Waits {
    /// What it was so far, waits that go on included.
    pub fn of(&mut self, machine: &Machine, unit: UnitId) -> Longest {
        self.look(machine);
        for place in 0..self.waiting.len() {
            self.count(machine, place);
        }
        self.units.get(unit.index()).copied().unwrap_or_default()
    }

    /// Forgets what was measured so far: waits begin now.
    pub fn begin(&mut self, machine: &Machine) {
        let now_ns = machine.now_ns();
        self.units.clear();
        for waiting in &mut self.waiting {
            waiting.since_ns = now_ns;
            waiting.beside_idle_since_ns = None;
        }
    }

    fn count(&mut self, machine: &Machine, place: usize) {
        let Waiting { task, since_ns, beside_idle_since_ns } = self.waiting[place];
        let unit = machine.task(task).unit.index();
        self.units.resize(self.units.len().max(unit + 1), Longest::default());
        let (longest, now_ns) = (&mut self.units[unit], machine.now_ns());
        longest.wait_ns = longest.wait_ns.max(now_ns - since_ns);
        let beside_idle_ns = beside_idle_since_ns.map_or(0, |since_ns| now_ns - since_ns);
        longest.beside_idle_ns = longest.beside_idle_ns.max(beside_idle_ns);
    }

    fn ends(&mut self, machine: &Machine, task: TaskId) {
        if let Some(place) = self.waiting.iter().position(|waiting| waiting.task == task) {
            self.count(machine, place);
            self.waiting.swap_remove(place);
        }
    }

    fn begins(&mut self, machine: &Machine, task: TaskId) {
        let known = self.waiting.iter().any(|waiting| waiting.task == task);
        if !known && machine.task(task).realtime.is_none() {
            self.waiting.push(Waiting { task, since_ns: machine.now_ns(), beside_idle_since_ns: None });
        }
    }

    /// Who waits beside an idle CPU now.
    fn look(&mut self, machine: &Machine) {
        let cpus = (0..machine.nr_cpus()).map(CpuId);
        let idles = |cpu| machine.cpu(cpu).online && machine.cpu(cpu).current.is_none();
        self.idle = cpus.map(idles).collect();
        let any = self.idle.contains(&true);
        for place in 0..self.waiting.len() {
            let task = machine.task(self.waiting[place].task);
            let could_run = |(cpu, idle): (u32, &bool)| *idle && task.may_run_on(CpuId(cpu));
            if any && (0..).zip(&self.idle).any(could_run) {
                self.waiting[place].beside_idle_since_ns.get_or_insert(machine.now_ns());
            } else if self.waiting[place].beside_idle_since_ns.is_some() {
                self.count(machine, place);
                self.waiting[place].beside_idle_since_ns = None;
            }
        }
    }
}

impl Observer for Waits {
    fn observe(&mut self, machine: &Machine, event: Event) {
        match event {
            Event::Woken(task) => self.begins(machine, task),
            Event::Runs(_, task) => self.ends(machine, task),
            Event::Stops(_, task, true) => self.begins(machine, task),
            Event::Hotplug(..) => {}
            _ => return,
        }
        self.look(machine);
    }
}
