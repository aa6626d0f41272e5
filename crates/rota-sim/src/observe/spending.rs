//! What threads spend their time on: the truth to which a scheduler's own account is held.

use std::collections::BTreeMap;

use crate::ids::{CpuId, TaskId, UnitId};
use crate::machine::Machine;
use crate::observe::{Event, Observer};
use crate::program::Reason;

/// Of a unit, in ns of its threads' time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// They ran.
    pub running_ns: u64,
    /// They would have run.
    pub waiting_ns: u64,
    /// They were blocked, by [`Reason`]: others, devices, time, interrupt, unknown.
    pub blocked_ns: [u64; 5],
    /// Of the waits that are over: who ran meanwhile on the CPU where the thread then ran.
    pub waited_for: BTreeMap<UnitId, u64>,
}

impl Spent {
    /// All of it: the threads' lifetime.
    pub fn total_ns(&self) -> u64 {
        self.running_ns + self.waiting_ns + self.blocked_ns.iter().sum::<u64>()
    }
}

#[derive(Clone, Copy, Debug)]
enum On {
    Running,
    Waiting,
    Blocked(Reason),
}

/// A turn of a unit's thread on a CPU.
#[derive(Clone, Copy, Debug)]
struct Turn {
    unit: UnitId,
    from_ns: u64,
    to_ns: u64,
}

/// Watches every thread.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    threads: BTreeMap<u32, (On, u64)>,
    units: BTreeMap<UnitId, Spent>,
    turns: BTreeMap<u32, Vec<Turn>>,
}

impl Spending {
    /// What it was so far, up to now.
    pub fn of(&mut self, machine: &Machine, unit: UnitId) -> Spent {
        let threads: Vec<(u32, On)> = self.threads.iter().map(|(&id, &(on, _))| (id, on)).collect();
        for (id, on) in threads {
            self.begins(machine, TaskId(id), on);
        }
        self.units.get(&unit).cloned().unwrap_or_default()
    }

    /// Counts what the thread has done until now.
    fn ends(&mut self, machine: &Machine, task: TaskId) -> Option<(On, u64)> {
        let (on, since_ns) = self.threads.remove(&task.0)?;
        let spent = self.units.entry(machine.task(task).unit).or_default();
        let ns = machine.now_ns() - since_ns;
        match on {
            On::Running => spent.running_ns += ns,
            On::Waiting => spent.waiting_ns += ns,
            On::Blocked(reason) => spent.blocked_ns[reason as usize] += ns,
        }
        Some((on, since_ns))
    }

    fn begins(&mut self, machine: &Machine, task: TaskId, on: On) -> Option<(On, u64)> {
        let before = self.ends(machine, task);
        self.threads.insert(task.0, (on, machine.now_ns()));
        before
    }

    fn waited(&mut self, unit: UnitId, cpu: CpuId, since_ns: u64) {
        let spent = self.units.entry(unit).or_default();
        for turn in self.turns.entry(cpu.0).or_default().iter().rev() {
            if turn.to_ns <= since_ns {
                break;
            }
            *spent.waited_for.entry(turn.unit).or_default() += turn.to_ns - turn.from_ns.max(since_ns);
        }
    }
}

impl Observer for Spending {
    fn observe(&mut self, machine: &Machine, event: Event) {
        match event {
            Event::Woken(task) => {
                self.begins(machine, task, On::Waiting);
            }
            Event::Runs(cpu, task) => {
                if let Some((On::Waiting, since_ns)) = self.begins(machine, task, On::Running) {
                    self.waited(machine.task(task).unit, cpu, since_ns);
                }
            }
            Event::Stops(cpu, task, goes_on) => {
                let reason = machine.task(task).blocks_for.filter(|_| !goes_on);
                let before = self.begins(machine, task, reason.map_or(On::Waiting, On::Blocked));
                if let Some((On::Running, from_ns)) = before {
                    let turn = Turn { unit: machine.task(task).unit, from_ns, to_ns: machine.now_ns() };
                    self.turns.entry(cpu.0).or_default().push(turn);
                }
            }
            Event::Died(task) => {
                self.ends(machine, task);
            }
            _ => {}
        }
    }
}
