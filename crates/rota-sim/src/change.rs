//! What is done to a machine while it runs: affinities and cgroups are changed, CPUs come, go, and are taken away for a
//! while. After `kernel/sched/core.c`: `set_cpus_allowed_ptr`, `sched_change_begin`, `migration_cpu_stop`.

use std::rc::Rc;

use crate::engine::Simulation;
use crate::ids::{CpuId, TaskId};
use crate::machine::Theft;
use crate::mask::CpuMask;
use crate::observe::{Event, Observer};
use crate::policy::{Arrival, Departure, Next, Policy};
use crate::task::{CgroupId, State, Task};

impl<P: Policy, O: Observer> Simulation<P, O> {
    /// A task may run on these CPUs from now on. If its own is not one of them, it is moved.
    pub fn set_affinity(&mut self, id: TaskId, affinity: Rc<CpuMask>) {
        assert!(affinity.first().is_some(), "a task may run somewhere");
        self.come_in();
        self.change(id, |task| {
            task.nr_cpus_allowed = affinity.count();
            task.affinity = affinity;
        });
        let Task { cpu, held, .. } = *self.machine.task(id);
        if !held && !self.machine.task(id).affinity.has(cpu) {
            self.push_away(id);
        }
        self.leave(self.machine.this_cpu());
    }

    /// A task is in another cgroup from now on.
    pub fn set_cgroup(&mut self, id: TaskId, cgroup: CgroupId) {
        self.come_in();
        self.change(id, |task| task.cgroup = cgroup);
        self.leave(self.machine.this_cpu());
    }

    /// Changes something about a task. One that is queued is taken off its queue meanwhile.
    fn change(&mut self, id: TaskId, change: impl FnOnce(&mut Task)) {
        let Task { state, cpu, realtime, .. } = *self.machine.task(id);
        let queued = matches!(state, State::Queued | State::Running) && realtime.is_none();
        let running = queued && state == State::Running;
        if queued {
            self.policy.dequeue(&mut self.machine, id, Departure::Changed);
        }
        if running {
            self.policy.put_prev(&mut self.machine, cpu, id, Next::Ordinary(id));
        }
        change(&mut self.machine.tasks[id.index()]);
        self.machine.tasks[id.index()].changes += 1;
        if queued {
            self.policy.enqueue(&mut self.machine, id, Arrival::Changed);
        }
        if running {
            self.policy.set_next(&mut self.machine, cpu, id);
        }
    }

    /// Moves a task to a CPU where it may be, and makes one if there is none. If it runs, the kernel's stopper
    /// interrupts it first, which is of a higher class.
    fn push_away(&mut self, id: TaskId) {
        let Task { state, cpu, .. } = *self.machine.task(id);
        if state == State::Running {
            self.machine.settle(cpu);
            self.put(cpu, id, Next::Higher, true);
            self.machine.cpus[cpu.index()].current = None;
            self.machine.resched(cpu);
        }
        self.widen(id);
        let to = self.usable_cpu(id, cpu);
        match (self.machine.task(id).state, self.machine.task(id).realtime) {
            (State::Queued, None) => {
                self.policy.dequeue(&mut self.machine, id, Departure::Moved);
                self.machine.set_task_cpu(id, to);
                self.policy.enqueue(&mut self.machine, id, Arrival::Moved);
                if self.machine.cpu(to).current.is_none() {
                    self.machine.resched(to);
                }
            }
            (State::Queued, Some(priority)) => {
                self.machine.cpus[cpu.index()].realtime.retain(|waiting| *waiting != id);
                self.machine.set_task_cpu(id, to);
                self.queue_realtime(to, id, priority, false);
            }
            (State::Blocked | State::Dead | State::Running, _) => {}
        }
    }

    /// A task none of whose CPUs is there may run on every CPU from now on (`select_fallback_rq`).
    pub(crate) fn widen(&mut self, id: TaskId) {
        if !self.machine.task(id).affinity.iter().any(|cpu| self.machine.cpu(cpu).online) {
            let everywhere = self.machine.everywhere.clone();
            self.change(id, |task| {
                task.nr_cpus_allowed = everywhere.count();
                task.affinity = everywhere;
            });
        }
    }

    /// A CPU goes; what was there goes on elsewhere.
    pub fn offline(&mut self, cpu: CpuId) {
        if !self.machine.cpu(cpu).online {
            return;
        }
        assert!(self.machine.cpus.iter().filter(|cpu| cpu.online).count() > 1, "the last CPU cannot go");
        self.come_in();
        if self.machine.this_cpu == cpu {
            let other =
                self.machine.cpus.iter().zip(0..).find(|(other, number)| other.online && *number != cpu.0);
            self.machine.this_cpu = CpuId(other.expect("there is another").1);
        }
        self.policy.hotplug(&mut self.machine, cpu, false);
        let this_cpu = self.machine.this_cpu;
        self.policy.deferred(&mut self.machine, this_cpu);
        self.machine.cpus[cpu.index()].online = false;
        let here = |task: &Task| task.cpu == cpu && matches!(task.state, State::Queued | State::Running);
        let queued = self.machine.tasks().filter(|(_, task)| here(task));
        let mut queued: Vec<(u64, TaskId)> = queued.map(|(id, task)| (task.queued_ns, id)).collect();
        // The kernel pushes away what the CPU would run next (`balance_push`): about the one that has waited longest.
        queued.sort_unstable();
        for (_, id) in queued {
            self.machine.tasks[id.index()].held = false; // the kernel waits for as long as a task is held there
            self.push_away(id);
        }
        let gone = &mut self.machine.cpus[cpu.index()];
        gone.need_resched = false;
        gone.idles = true;
        let slots = [gone.end, gone.tick, gone.resched];
        slots.into_iter().for_each(|slot| self.machine.events.cancel(slot));
        self.observer.observe(&self.machine, Event::Hotplug(cpu, false));
        self.leave(self.machine.this_cpu());
    }

    /// A CPU comes, or comes back.
    pub fn online(&mut self, cpu: CpuId) {
        if self.machine.cpu(cpu).online {
            return;
        }
        self.come_in();
        self.machine.cpus[cpu.index()].online = true;
        self.policy.hotplug(&mut self.machine, cpu, true);
        self.observer.observe(&self.machine, Event::Hotplug(cpu, true));
        self.machine.resched(cpu);
        self.leave(self.machine.this_cpu());
    }

    /// Something takes a CPU away for so many ns from now on: its task stands still, and nothing happens there before.
    pub fn steal(&mut self, cpu: CpuId, ns: u64, theft: Theft) {
        self.machine.steal(cpu, ns, theft);
        let target = &mut self.machine.cpus[cpu.index()];
        target.away_until_ns = target.away_until_ns.max(self.machine.now_ns) + ns;
        self.machine.arm_end(cpu);
        self.observer.observe(&self.machine, Event::Stolen(cpu, theft, ns));
    }
}
