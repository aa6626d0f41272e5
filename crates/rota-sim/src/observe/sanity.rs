//! What no scheduler may do, whatever it promises.

use crate::ids::{CpuId, TaskId};
use crate::machine::Machine;
use crate::observe::{Event, Observer};

/// Something that must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insane {
    /// A task runs on two CPUs.
    Twice(TaskId, CpuId, CpuId),
    /// A CPU runs two tasks.
    Crowded(CpuId, TaskId, TaskId),
    /// A task runs where it may not.
    Forbidden(TaskId, CpuId),
    /// A task has waited so long that the kernel's watchdog would be due.
    Starved(TaskId, u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    runs_on: Option<CpuId>,
    waits_since_ns: Option<u64>,
}

/// Watches every task and CPU.
#[derive(Clone, Debug)]
pub struct Sanity {
    tasks: Vec<Task>,
    cpus: Vec<Option<TaskId>>,
    watchdog_ns: u64,
    found: Vec<(u64, Insane)>,
    longest_wait_ns: u64,
}

impl Sanity {
    /// Who waits for longer than `watchdog_ns` is starved.
    pub fn new(watchdog_ns: u64) -> Sanity {
        Sanity { tasks: Vec::new(), cpus: Vec::new(), watchdog_ns, found: Vec::new(), longest_wait_ns: 0 }
    }

    /// What was found, with the time; tasks that still wait included.
    pub fn finish(&mut self, machine: &Machine) -> &[(u64, Insane)] {
        for task in (0..self.tasks.len() as u32).map(TaskId) {
            self.waited(machine, task);
        }
        &self.found
    }

    /// What was found so far.
    pub fn found(&self) -> &[(u64, Insane)] {
        &self.found
    }

    /// The longest that a task has waited for a CPU.
    pub fn longest_wait_ns(&self) -> u64 {
        self.longest_wait_ns
    }

    fn task(&mut self, task: TaskId) -> &mut Task {
        if self.tasks.len() <= task.index() {
            self.tasks.resize(task.index() + 1, Task::default());
        }
        &mut self.tasks[task.index()]
    }

    fn waited(&mut self, machine: &Machine, task: TaskId) {
        let Some(since_ns) = self.task(task).waits_since_ns else { return };
        let waited_ns = machine.now_ns() - since_ns;
        self.longest_wait_ns = self.longest_wait_ns.max(waited_ns);
        if waited_ns > self.watchdog_ns {
            self.found.push((machine.now_ns(), Insane::Starved(task, waited_ns)));
        }
    }

    fn runs(&mut self, machine: &Machine, cpu: CpuId, task: TaskId) {
        self.waited(machine, task);
        self.cpus.resize(self.cpus.len().max(cpu.index() + 1), None);
        let now_ns = machine.now_ns();
        if let Some(other) = self.cpus[cpu.index()].replace(task) {
            self.found.push((now_ns, Insane::Crowded(cpu, other, task)));
        }
        let before = std::mem::replace(self.task(task), Task { runs_on: Some(cpu), waits_since_ns: None });
        if let Some(other) = before.runs_on {
            self.found.push((now_ns, Insane::Twice(task, other, cpu)));
        }
        if !machine.task(task).may_run_on(cpu) || !machine.cpu(cpu).online {
            self.found.push((now_ns, Insane::Forbidden(task, cpu)));
        }
    }
}

impl Observer for Sanity {
    #[inline(always)]
    fn observe(&mut self, machine: &Machine, event: Event) {
        match event {
            Event::Woken(task) => {
                self.task(task).waits_since_ns.get_or_insert(machine.now_ns());
            }
            Event::Runs(cpu, task) => self.runs(machine, cpu, task),
            Event::Stops(cpu, task, runnable) => {
                self.cpus[cpu.index()] = None;
                let waits_since_ns = runnable.then_some(machine.now_ns());
                *self.task(task) = Task { runs_on: None, waits_since_ns };
            }
            _ => {}
        }
    }
}
