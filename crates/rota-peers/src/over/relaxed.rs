//! Relaxed co-scheduling over another policy, CFS or Credit, as Zhao et al. built it after VMware's (*Preemptive
//! multi-queue fair queuing*, HPDC 2019, section 4.1; Zhao, dissertation, UT Arlington 2019, section 4.5). A
//! tenant's threads are to come forward together: one that runs or sleeps does so, one that waits for a CPU or is
//! stopped does not. Every 30 ms the thread of a tenant that is furthest ahead is stopped for a period if another lags
//! far behind, and that one has its CPU.

use std::collections::BTreeMap;

use rota_sim::{CgroupId, State, Timer};

use super::{Arrival, Below, CpuId, Departure, Idle, KEYS, Machine, Next, Policy, TaskId, Under, pass_on};

/// Between looks: Xen's accounting period.
const PERIOD_NS: u64 = 30_000_000;
/// How much further ahead is far. Assumed: VMware does not say.
const SKEW_NS: u64 = 3_000_000;
/// Being further ahead than this is forgotten; so a new thread has not been ahead for all the time before. Assumed.
const SKEW_MAX_NS: u64 = 100_000_000;

/// How long a thread has waited, or was stopped; what matters is the difference to others.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    since_ns: Option<u64>,
    ns: u64,
}

impl Waited {
    fn end(&mut self, now_ns: u64) {
        self.ns += self.since_ns.take().map_or(0, |since_ns| now_ns - since_ns);
    }
}

/// A policy with relaxed co-scheduling.
pub struct RelaxedCo<P> {
    under: Under<P>,
    threads: Vec<Waited>,
    stopped: Vec<TaskId>,
    /// Who has the CPU of one that was stopped.
    instead: Vec<Option<TaskId>>,
    timer: Option<Timer>,
}

impl<P: Policy + Default> Default for RelaxedCo<P> {
    fn default() -> RelaxedCo<P> {
        let under = Under::new(P::default());
        RelaxedCo { under, threads: Vec::new(), stopped: Vec::new(), instead: Vec::new(), timer: None }
    }
}

impl<P: Below> RelaxedCo<P> {
    pub(crate) fn below(&mut self) -> &mut P {
        &mut self.under.policy
    }

    fn set_timer(&mut self, machine: &mut Machine) {
        let (this_cpu, next_ns) = (machine.this_cpu(), machine.now_ns() + PERIOD_NS);
        machine.timer_set(self.timer.expect("it was made at the start"), this_cpu, next_ns);
    }

    /// The end of a period.
    fn look(&mut self, machine: &mut Machine) {
        let now_ns = machine.now_ns();
        for task in std::mem::take(&mut self.stopped) {
            let cpu = machine.task(task).cpu;
            self.under.put_back(machine, task, cpu);
        }
        let mut tenants: BTreeMap<CgroupId, Vec<TaskId>> = BTreeMap::new();
        for (id, task) in machine.tasks() {
            if task.state != State::Dead && task.realtime.is_none() && task.cgroup != CgroupId::ROOT {
                tenants.entry(task.cgroup).or_default().push(id);
            }
        }
        for waited in &mut self.threads {
            let waits = waited.since_ns;
            waited.end(now_ns);
            waited.since_ns = waits.map(|_| now_ns);
        }
        for threads in tenants.into_values() {
            self.even_out(machine, &threads);
        }
    }

    /// Stops the thread that is furthest ahead, if another is far behind, and gives its CPU to that one.
    fn even_out(&mut self, machine: &mut Machine, threads: &[TaskId]) {
        let most_ns = threads.iter().map(|task| self.threads[task.index()].ns).max().unwrap_or(0);
        for task in threads {
            let ns = &mut self.threads[task.index()].ns;
            *ns = (*ns).max(most_ns.saturating_sub(SKEW_MAX_NS));
        }
        let waited_ns = |task: &TaskId| self.threads[task.index()].ns;
        let state = |task: &TaskId| machine.task(*task).state;
        let runs = |task: &&TaskId| state(task) == State::Running;
        let would_run = |task: &&TaskId| matches!(state(task), State::Queued | State::Running);
        let first = threads.iter().filter(runs).min_by_key(|task| waited_ns(task)).copied();
        let last = threads.iter().filter(would_run).max_by_key(|task| waited_ns(task)).copied();
        let (Some(first), Some(last)) = (first, last) else { return };
        if waited_ns(&last).saturating_sub(waited_ns(&first)) <= SKEW_NS {
            return;
        }
        let (cpu, from) = (machine.task(first).cpu, machine.task(last).cpu);
        self.under.take_out(machine, first);
        self.stopped.push(first);
        if !self.under.waits(machine, last) {
            return;
        }
        // Where it may not move, it is first on its own CPU.
        let to = if machine.task(last).may_move_to(cpu) { cpu } else { from };
        if from != to {
            self.under.take_out(machine, last);
            self.under.put_back(machine, last, to);
        }
        self.instead[to.index()] = Some(last);
        machine.resched(to);
    }
}

impl<P: Below> Policy for RelaxedCo<P> {
    fn start(&mut self, machine: &mut Machine) {
        self.under.policy.start(machine);
        self.instead = vec![None; machine.nr_cpus() as usize];
        self.timer = Some(machine.timer_new(machine.this_cpu(), KEYS));
        self.set_timer(machine);
    }

    fn task_new(&mut self, machine: &mut Machine, task: TaskId) {
        self.threads.resize(task.index() + 1, Waited::default());
        self.under.policy.task_new(machine, task);
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) {
        self.threads[task.index()].since_ns = Some(machine.now_ns());
        self.under.policy.enqueue(machine, task, arrival);
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, departure: Departure) {
        self.threads[task.index()].end(machine.now_ns());
        self.under.dequeue(machine, task, departure);
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        let picked = self.under.policy.pick(machine, cpu)?;
        let instead = self.instead[cpu.index()].take().filter(|&task| {
            let here = machine.task(task).cpu == cpu && self.under.waits(machine, task);
            here && self.under.policy.may_run(task)
        });
        instead.or(Some(picked))
    }

    fn put_prev(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId, next: Next) {
        if machine.task(task).state == State::Queued {
            self.threads[task.index()].since_ns = Some(machine.now_ns());
        }
        self.under.policy.put_prev(machine, cpu, task, next);
    }

    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.threads[task.index()].end(machine.now_ns());
        self.under.policy.set_next(machine, cpu, task);
    }

    fn timer(&mut self, machine: &mut Machine, cpu: CpuId, key: u64) {
        if key < KEYS {
            return self.under.policy.timer(machine, cpu, key);
        }
        self.set_timer(machine);
        self.look(machine);
    }

    pass_on! {
        task_dead(task: TaskId);
        select_cpu(task: TaskId, arrival: Arrival) -> CpuId;
        yielded(cpu: CpuId, task: TaskId);
        tick(cpu: CpuId, task: TaskId);
        idle(cpu: CpuId, idle: Idle);
        deferred(cpu: CpuId);
        hotplug(cpu: CpuId, online: bool);
    }
}
