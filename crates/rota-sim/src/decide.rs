//! Who runs where: tasks wake, and CPUs decide (`kernel/sched/core.c`: `try_to_wake_up`, `__schedule`).

use crate::engine::Simulation;
use crate::ids::{CpuId, TaskId};
use crate::machine::Machine;
use crate::observe::{Event, Observer};
use crate::policy::{Arrival, Idle, Next, Policy};
use crate::program::Why;
use crate::task::State;

impl<P: Policy, O: Observer> Simulation<P, O> {
    pub(crate) fn wake(&mut self, id: TaskId, why: Why) {
        let task = &mut self.machine.tasks[id.index()];
        debug_assert_eq!(task.state, State::Blocked);
        task.ended = Some(why);
        task.waits = false;
        task.blocks_for = None;
        self.machine.events.cancel(task.alarm);
        self.activate(id, Arrival::Woken);
    }

    /// Queues a task that was blocked.
    pub(crate) fn activate(&mut self, id: TaskId, arrival: Arrival) {
        self.widen(id);
        let task = &self.machine.tasks[id.index()];
        let mut cpu = task.cpu;
        if task.nr_cpus_allowed > 1 && !task.held && task.realtime.is_none() {
            cpu = self.policy.select_cpu(&mut self.machine, id, arrival);
        }
        let cpu = self.usable_cpu(id, cpu);
        let task = &mut self.machine.tasks[id.index()];
        task.cpu = cpu;
        task.state = State::Queued;
        task.queued_ns = self.machine.now_ns;
        let realtime = task.realtime;
        self.observer.observe(&self.machine, Event::Woken(id));
        match realtime {
            Some(priority) => self.queue_realtime(cpu, id, priority, false),
            None => {
                self.policy.enqueue(&mut self.machine, id, arrival);
                if self.machine.cpus[cpu.index()].current.is_none() {
                    self.machine.resched(cpu);
                }
            }
        }
    }

    /// The CPU, if the task may be there; else another one.
    pub(crate) fn usable_cpu(&self, id: TaskId, cpu: CpuId) -> CpuId {
        let task = self.machine.task(id);
        let usable = |cpu: CpuId| task.affinity.has(cpu) && self.machine.cpu(cpu).online;
        if task.held || usable(cpu) {
            return cpu;
        }
        task.affinity.iter().find(|&cpu| usable(cpu)).unwrap_or_else(|| self.online_cpu(cpu))
    }

    pub(crate) fn online_cpu(&self, cpu: CpuId) -> CpuId {
        if self.machine.cpu(cpu).online {
            return cpu;
        }
        let online = self.machine.cpus.iter().position(|cpu| cpu.online).expect("a CPU is online");
        CpuId(online as u32)
    }

    pub(crate) fn queue_realtime(&mut self, cpu: CpuId, id: TaskId, priority: u8, first: bool) {
        let priority_of = |machine: &Machine, id: TaskId| machine.task(id).realtime.unwrap_or(0);
        let waiting = &self.machine.cpus[cpu.index()].realtime;
        let place = waiting.partition_point(|&other| {
            let other = priority_of(&self.machine, other);
            other < priority || (!first && other == priority)
        });
        self.machine.cpus[cpu.index()].realtime.insert(place, id);
        let current = self.machine.cpus[cpu.index()].current;
        if current.is_none_or(|current| priority_of(&self.machine, current) < priority) {
            self.policy.overtaken(&mut self.machine, cpu);
            self.machine.resched(cpu);
        }
    }

    /// A CPU decides what it runs from now on.
    pub(crate) fn schedule(&mut self, cpu: CpuId) {
        self.decisions += 1;
        self.machine.settle(cpu);
        self.machine.cpus[cpu.index()].need_resched = false;
        let prev = self.machine.cpus[cpu.index()].current;
        let runs_on = prev.is_some_and(|prev| self.machine.task(prev).state == State::Running);
        let next = self.pick(cpu, prev.filter(|_| runs_on));
        if next.is_some() && next == prev && runs_on {
            return;
        }
        if let Some(prev) = prev {
            let follows = match next {
                Some(next) if self.machine.task(next).realtime.is_some() => Next::Higher,
                Some(next) => Next::Ordinary(next),
                None => Next::Idle,
            };
            self.put(cpu, prev, follows, runs_on);
        }
        self.machine.cpus[cpu.index()].current = next;
        match next {
            Some(next) => self.run(cpu, next),
            None => self.go_idle(cpu),
        }
    }

    pub(crate) fn go_idle(&mut self, cpu: CpuId) {
        let target = &mut self.machine.cpus[cpu.index()];
        let idle = if std::mem::replace(&mut target.idles, true) { Idle::Stays } else { Idle::Enters };
        let tick = target.tick;
        self.policy.idle(&mut self.machine, cpu, idle);
        self.machine.events.cancel(tick);
        self.machine.arm_end(cpu);
    }

    /// A real-time task before any other; the present one goes on unless a higher one waits.
    pub(crate) fn pick(&mut self, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        let priority = |id: TaskId| self.machine.task(id).realtime;
        let waiting = self.machine.cpus[cpu.index()].realtime.last().copied();
        let running = prev.filter(|&prev| priority(prev).is_some());
        match (waiting, running) {
            (Some(waiting), Some(running)) if priority(running) >= priority(waiting) => Some(running),
            (None, Some(running)) => Some(running),
            (Some(waiting), _) => Some(waiting),
            (None, None) => self.policy.pick(&mut self.machine, cpu),
        }
    }

    /// What ran on a CPU does not go on there.
    pub(crate) fn put(&mut self, cpu: CpuId, prev: TaskId, follows: Next, runs_on: bool) {
        if runs_on {
            let (task, now_ns) = (&mut self.machine.tasks[prev.index()], self.machine.now_ns);
            (task.state, task.queued_ns) = (State::Queued, now_ns);
            if let Some(vcpu) = task.vcpu() {
                vcpu.stops(now_ns);
            }
        }
        self.machine.cpus[cpu.index()].last_task = Some(prev);
        match self.machine.task(prev).realtime {
            Some(priority) if runs_on => self.queue_realtime(cpu, prev, priority, true),
            Some(_) => {}
            None => self.policy.put_prev(&mut self.machine, cpu, prev, follows),
        }
        self.observer.observe(&self.machine, Event::Stops(cpu, prev, runs_on));
    }

    pub(crate) fn run(&mut self, cpu: CpuId, next: TaskId) {
        let from_idle = std::mem::take(&mut self.machine.cpus[cpu.index()].idles);
        if from_idle {
            self.policy.idle(&mut self.machine, cpu, Idle::Leaves);
        }
        match self.machine.task(next).realtime {
            Some(_) => self.machine.cpus[cpu.index()].realtime.retain(|waiting| *waiting != next),
            None => self.policy.set_next(&mut self.machine, cpu, next),
        }
        let machine = &mut self.machine;
        let (costs, target) = (&machine.costs, &mut machine.cpus[cpu.index()]);
        let task = &mut machine.tasks[next.index()];
        debug_assert!(task.cpu == cpu && task.state == State::Queued, "task {next:?} is {:?}", task.state);
        let moved = task.ran_on.is_some_and(|before| before != cpu);
        task.overhead_ns += costs.switch_ns;
        if moved {
            task.overhead_ns += costs.migration_ns;
        }
        if (moved || target.last_task != Some(next)) && task.cached.is_none() {
            task.overhead_ns += costs.refill_ns_per_kib * task.working_set_kib;
        }
        task.ran_on = Some(cpu);
        task.state = State::Running;
        if let Some(vcpu) = task.vcpu() {
            vcpu.runs(machine.now_ns);
        }
        target.settled_ns = target.settled_ns.max(machine.now_ns);
        let tick = target.tick;
        machine.arm_end(cpu);
        if machine.events.time_of(tick).is_none() {
            let next_ns = self.next_tick_ns();
            self.machine.events.set(tick, next_ns);
        }
        self.observer.observe(&self.machine, Event::Runs(cpu, next));
    }
}
