//! What threads spend their time on: the truth to which a scheduler's own account is held.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{CpuId, TaskId, UnitId};
use crate::machine::Machine;
use crate::observe::{Event, Observer};
use crate::program::Reason;

/// Of a unit, in ns of its threads' time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// They ran.
    pub running_ns: u64,
    /// The part of it in which they waited busily.
    pub spinning_ns: u64,
    /// They would have run.
    pub waiting_ns: u64,
    /// They were blocked, by [`Reason`]: others, devices, time, interrupt, unknown.
    pub blocked_ns: [u64; 5],
    /// Of the waits that are over: who ran meanwhile on the CPU where the thread then ran.
    pub waited_for: BTreeMap<UnitId, u64>,
    /// Of the same waits: nobody did.
    pub waited_for_nobody_ns: u64,
}

impl Spent {
    /// All of it: the threads' lifetime.
    pub fn total_ns(&self) -> u64 {
        self.running_ns + self.waiting_ns + self.blocked_ns.iter().sum::<u64>()
    }

    /// Takes in what another unit's threads spent.
    pub fn join(&mut self, other: &Spent) {
        self.running_ns += other.running_ns;
        self.spinning_ns += other.spinning_ns;
        self.waiting_ns += other.waiting_ns;
        self.waited_for_nobody_ns += other.waited_for_nobody_ns;
        for (mine, theirs) in self.blocked_ns.iter_mut().zip(other.blocked_ns) {
            *mine += theirs;
        }
        for (unit, ns) in &other.waited_for {
            *self.waited_for.entry(*unit).or_default() += ns;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Running,
    Waiting,
    Blocked(Reason),
}

/// What a thread does.
#[derive(Clone, Copy, Debug)]
struct Doing {
    on: On,
    since_ns: u64,
    /// Up to here it is counted.
    counted_ns: u64,
    /// So much of its busy waiting is counted.
    spun_ns: u64,
}

/// A turn of a unit's thread on a CPU.
#[derive(Clone, Copy, Debug)]
struct Turn {
    unit: UnitId,
    from_ns: u64,
    to_ns: u64,
}

/// The turns on a CPU that a wait may have to do with.
#[derive(Clone, Debug, Default)]
struct Turns {
    latest: VecDeque<Turn>,
    /// With so many, those that no wait has to do with are forgotten.
    most: usize,
}

/// So many turns are kept of a CPU at least.
const TURNS: usize = 64;

/// Watches every thread.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    threads: Vec<Option<Doing>>,
    units: Vec<Spent>,
    turns: Vec<Turns>,
}

impl Spending {
    /// What it was so far, up to now.
    pub fn of(&mut self, machine: &mut Machine, unit: UnitId) -> Spent {
        self.count_all(machine);
        self.units.get(unit.index()).cloned().unwrap_or_default()
    }

    /// The same of every unit that had a thread, by its number.
    pub fn so_far(&mut self, machine: &mut Machine) -> &[Spent] {
        self.count_all(machine);
        &self.units
    }

    /// Forgets what was measured so far: the measurement begins now, and so do waits.
    pub fn begin(&mut self, machine: &mut Machine) {
        self.count_all(machine);
        self.units.iter_mut().for_each(|spent| *spent = Spent::default());
        self.threads.iter_mut().flatten().for_each(|doing| doing.since_ns = machine.now_ns());
    }

    fn count_all(&mut self, machine: &mut Machine) {
        (0..machine.nr_cpus()).for_each(|cpu| machine.settle(CpuId(cpu)));
        (0..self.threads.len() as u32).for_each(|id| self.count(machine, TaskId(id)));
    }

    /// Counts what the thread has done until now.
    fn count(&mut self, machine: &Machine, id: TaskId) {
        let Some(doing) = self.threads.get_mut(id.index()).and_then(Option::as_mut) else { return };
        let task = machine.task(id);
        if self.units.len() <= task.unit.index() {
            self.units.resize(task.unit.index() + 1, Spent::default());
        }
        let spent = &mut self.units[task.unit.index()];
        let ns = machine.now_ns() - std::mem::replace(&mut doing.counted_ns, machine.now_ns());
        match doing.on {
            On::Running => {
                spent.running_ns += ns;
                spent.spinning_ns += task.spun_ns - std::mem::replace(&mut doing.spun_ns, task.spun_ns);
            }
            On::Waiting => spent.waiting_ns += ns,
            On::Blocked(reason) => spent.blocked_ns[reason as usize] += ns,
        }
    }

    /// Returns what it did before.
    fn begins(&mut self, machine: &Machine, id: TaskId, on: On) -> Option<Doing> {
        self.count(machine, id);
        if self.threads.len() <= id.index() {
            self.threads.resize(id.index() + 1, None);
        }
        let now_ns = machine.now_ns();
        let spun_ns = machine.task(id).spun_ns;
        self.threads[id.index()].replace(Doing { on, since_ns: now_ns, counted_ns: now_ns, spun_ns })
    }

    /// A wait from then until now is over, on this CPU.
    fn waited(&mut self, machine: &Machine, unit: UnitId, cpu: CpuId, since_ns: u64) {
        let spent = &mut self.units[unit.index()];
        let mut nobody_ns = machine.now_ns() - since_ns;
        let turns = self.turns.get(cpu.index()).into_iter().flat_map(|turns| turns.latest.iter().rev());
        for turn in turns.take_while(|turn| turn.to_ns > since_ns) {
            let ns = turn.to_ns - turn.from_ns.max(since_ns);
            *spent.waited_for.entry(turn.unit).or_default() += ns;
            nobody_ns -= ns;
        }
        spent.waited_for_nobody_ns += nobody_ns;
    }

    fn turn_ends(&mut self, cpu: CpuId, turn: Turn) {
        if self.turns.len() <= cpu.index() {
            self.turns.resize(cpu.index() + 1, Turns::default());
        }
        if self.turns[cpu.index()].latest.len() >= self.turns[cpu.index()].most {
            let waits = self.threads.iter().flatten().filter(|doing| doing.on == On::Waiting);
            let oldest_ns = waits.map(|doing| doing.since_ns).min().unwrap_or(turn.to_ns);
            let turns = &mut self.turns[cpu.index()];
            let old = turns.latest.partition_point(|turn| turn.to_ns <= oldest_ns);
            turns.latest.drain(..old);
            turns.most = (2 * turns.latest.len()).max(TURNS);
        }
        self.turns[cpu.index()].latest.push_back(turn);
    }
}

impl Observer for Spending {
    fn observe(&mut self, machine: &Machine, event: Event) {
        match event {
            Event::Woken(task) => {
                self.begins(machine, task, On::Waiting);
            }
            Event::Runs(cpu, task) => {
                if let Some(Doing { on: On::Waiting, since_ns, .. }) = self.begins(machine, task, On::Running)
                {
                    self.waited(machine, machine.task(task).unit, cpu, since_ns);
                }
            }
            Event::Stops(cpu, task, goes_on) => {
                let reason = machine.task(task).blocks_for.filter(|_| !goes_on);
                let before = self.begins(machine, task, reason.map_or(On::Waiting, On::Blocked));
                if let Some(Doing { on: On::Running, since_ns, .. }) = before {
                    let turn =
                        Turn { unit: machine.task(task).unit, from_ns: since_ns, to_ns: machine.now_ns() };
                    self.turn_ends(cpu, turn);
                }
            }
            Event::Died(task) => {
                self.count(machine, task);
                self.threads[task.index()] = None;
            }
            _ => {}
        }
    }
}
