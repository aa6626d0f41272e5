//! The run of a simulation: events, one after the other, each on its CPU, and what every one ends with.
//!
//! The kernel's core is here and in `decide` (who runs where), `steps` (what threads do) and `change` (what is done to
//! them). The order of calls is that of Linux, `kernel/sched/core.c`. What the kernel does at once, with a lock held,
//! happens here at one time; what takes the kernel a while is an event of its own.

use rota_model::Topology;

use crate::costs::Costs;
use crate::event::Slot;
use crate::fetch::{fetch, fetch_start};
use crate::ids::CpuId;
use crate::machine::{Cpu, Due, Machine, Theft};
use crate::observe::Observer;
use crate::policy::Policy;
use crate::program::{Device, Effect};
use crate::rng::Rng;

/// A device, its chance, and its interrupt.
pub(crate) struct Attached {
    pub device: Box<dyn Device>,
    pub rng: Rng,
    pub slot: Slot,
}

/// A host of so many CPUs, with what is on them, is larger than a processor's own caches: what the next event needs is
/// fetched while one happens. On a smaller host that takes longer than it saves.
const FORESEEING_CPUS: usize = 256;

/// A call of the scenario's, at a time.
type Call<P, O> = Box<dyn FnOnce(&mut Simulation<P, O>)>;

/// A machine under a policy, seen by an observer.
pub struct Simulation<P, O> {
    /// Time, CPUs and tasks.
    pub machine: Machine,
    /// Who decides.
    pub policy: P,
    /// Who watches.
    pub observer: O,
    pub(crate) devices: Vec<Attached>,
    calls: Vec<Option<Call<P, O>>>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) events: u64,
    pub(crate) decisions: u64,
}

impl<P: Policy, O: Observer> Simulation<P, O> {
    /// A machine without a task, under `policy`. The time begins at `now_ns`.
    pub fn new(topology: Topology, costs: Costs, seed: u64, now_ns: u64, mut policy: P, observer: O) -> Self {
        let mut machine = Machine::new(topology, costs, seed, now_ns);
        policy.start(&mut machine);
        let (devices, calls, effects) = (Vec::new(), Vec::new(), Vec::new());
        Simulation { machine, policy, observer, devices, calls, effects, events: 0, decisions: 0 }
    }

    /// How many events there were.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How often a CPU decided what it runs.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Runs everything up to `until_ns`, that time included.
    pub fn run_until(&mut self, until_ns: u64) {
        self.run_within(until_ns, u64::MAX);
    }

    /// The same with so many events at most. False if there are more.
    pub fn run_within(&mut self, until_ns: u64, events_max: u64) -> bool {
        let last = self.events.saturating_add(events_max);
        while let Some((time_ns, slot)) = self.machine.events.pop(until_ns) {
            if self.events == last {
                return false;
            }
            self.machine.now_ns = time_ns;
            self.events += 1;
            let due = self.machine.due[slot.index()];
            let on = match due {
                Due::End(cpu) | Due::Tick(cpu) | Due::Resched(cpu) => cpu,
                Due::Timer(cpu, _) | Due::Device(cpu, _) => self.online_cpu(cpu),
                Due::Alarm(task) => self.online_cpu(self.machine.task(task).cpu),
                Due::Call(_) => self.online_cpu(self.machine.this_cpu),
            };
            let away_until_ns = self.machine.cpus[on.index()].away_until_ns;
            if time_ns < away_until_ns {
                self.machine.events.set(slot, away_until_ns);
                continue;
            }
            self.machine.this_cpu = on;
            if self.machine.cpus.len() >= FORESEEING_CPUS {
                self.foresee();
            }
            self.happen(on, due);
        }
        self.machine.now_ns = until_ns.max(self.machine.now_ns);
        true
    }

    /// Has `call` run at `time_ns`.
    pub fn at(&mut self, time_ns: u64, call: impl FnOnce(&mut Self) + 'static) {
        self.calls.push(Some(Box::new(call)));
        let slot = self.machine.slot(Due::Call(self.calls.len() - 1));
        self.machine.events.set(slot, time_ns.max(self.machine.now_ns));
    }

    /// Has what the next event needs come from memory while this one happens.
    fn foresee(&self) {
        let machine = &self.machine;
        let Some(slot) = machine.events.foreseen() else { return };
        let (cpu, task) = match machine.due[slot.index()] {
            Due::End(cpu) | Due::Tick(cpu) | Due::Resched(cpu) | Due::Timer(cpu, _) => {
                fetch(&machine.cpus[cpu.index()]);
                (cpu, machine.cpus[cpu.index()].current)
            }
            Due::Alarm(task) => (machine.tasks[task.index()].cpu, Some(task)),
            Due::Device(_, device) => return fetch_start(&raw const *self.devices[device.index()].device),
            Due::Call(_) => return,
        };
        if let Some(task) = task {
            let task = &machine.tasks[task.index()];
            fetch(task);
            if let Some(program) = &task.program {
                fetch_start(&raw const **program);
            }
        }
        self.policy.foresee(cpu, task);
    }

    pub(crate) fn happen(&mut self, on: CpuId, due: Due) {
        match due {
            Due::End(cpu) => self.step(cpu),
            Due::Tick(cpu) => self.tick(cpu),
            Due::Resched(cpu) => {
                if self.machine.cpus[cpu.index()].need_resched {
                    self.interrupt(cpu);
                }
            }
            Due::Alarm(task) => {
                self.interrupt(on);
                self.alarm(task);
            }
            Due::Timer(_, key) => {
                self.interrupt(on);
                self.policy.timer(&mut self.machine, on, key);
            }
            Due::Device(_, id) => {
                self.interrupt(on);
                self.device(id);
            }
            Due::Call(place) => {
                if let Some(call) = self.calls[place].take() {
                    call(self);
                }
            }
        }
        self.leave(on);
    }

    /// The end of what happens on a CPU: deferred work, and a decision if one is due.
    pub(crate) fn leave(&mut self, cpu: CpuId) {
        let Cpu { away_until_ns, resched, .. } = self.machine.cpus[cpu.index()];
        if self.machine.now_ns < away_until_ns {
            return self.machine.events.set(resched, away_until_ns);
        }
        self.policy.deferred(&mut self.machine, cpu);
        if self.machine.cpus[cpu.index()].need_resched {
            self.schedule(cpu);
            self.policy.deferred(&mut self.machine, cpu);
            if self.machine.cpus[cpu.index()].need_resched {
                // It has kicked itself meanwhile: that interrupt comes once this one is over.
                self.machine.interrupt_later(cpu);
            }
        }
        self.machine.arm_end(cpu);
    }

    pub(crate) fn interrupt(&mut self, cpu: CpuId) {
        let ns = self.machine.costs.interrupt_ns;
        if ns > 0 {
            self.machine.steal(cpu, ns, Theft::Interrupt);
        }
    }

    /// Does something to the machine or its policy from outside, as a system call on [`Machine::this_cpu`] would.
    pub fn act<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        self.come_in();
        let done = call(self);
        self.leave(self.machine.this_cpu);
        done
    }

    /// Something is done from outside: on a CPU that runs programs, which one that is away does not. If all are away,
    /// on the one that comes back first.
    pub(crate) fn come_in(&mut self) {
        let Machine { now_ns, this_cpu, cpus, .. } = &self.machine;
        if *now_ns < cpus[this_cpu.index()].away_until_ns {
            self.machine.this_cpu = self.machine.first_there().0;
        }
    }

    fn tick(&mut self, cpu: CpuId) {
        let Some(current) = self.machine.cpus[cpu.index()].current else { return };
        let next_ns = self.next_tick_ns();
        self.machine.events.set(self.machine.cpus[cpu.index()].tick, next_ns);
        self.interrupt(cpu);
        if self.machine.task(current).realtime.is_none() {
            self.policy.tick(&mut self.machine, cpu, current);
        }
    }

    pub(crate) fn next_tick_ns(&self) -> u64 {
        let tick_ns = self.machine.costs.tick_ns;
        (self.machine.now_ns / tick_ns + 1) * tick_ns
    }
}
