//! Gleaner over CFS: what a tenant gets in fragments on many CPUs is gathered on a few that it has for itself (Ding et
//! al., *Gleaner: mitigating the blocked-waiter wakeup problem for virtualized multicore applications*, USENIX ATC
//! 2014; as Zhao et al. compare with it: *Preemptive multi-queue fair queuing*, HPDC 2019, section 4.1). So fewer of
//! its threads run at once, and nobody else comes between them.
//!
//! How many CPUs: what the tenant used in the last period, rounded up; one more if that was all it had. If that is too
//! many in all, nobody has more than its share by weight, rounded down, but one at least.

use std::collections::BTreeMap;
use std::rc::Rc;

use rota_sim::{CgroupId, CpuMask, State, Timer};

use super::{Arrival, CpuId, Departure, Idle, KEYS, Machine, Next, Policy, TaskId, Under, pass_on};
use crate::fair::{Cfs, Fair};

/// Between decisions. Assumed.
const PERIOD_NS: u64 = 100_000_000;
/// Who used so many percent of its CPUs used them all.
const ALL_PERCENT: u64 = 95;

/// A tenant.
#[derive(Clone, Debug, Default)]
struct Tenant {
    threads: Vec<TaskId>,
    used_ns: u64,
    cpus: usize,
}

/// CFS with consolidation.
pub struct Gleaner {
    under: Under<Fair<Cfs>>,
    /// Each thread's CPU time at the last decision.
    used_ns: Vec<u64>,
    /// Each tenant's CPUs.
    sets: BTreeMap<CgroupId, Rc<CpuMask>>,
    /// Threads that are to go to other CPUs.
    moving: Vec<TaskId>,
    timer: Option<Timer>,
}

impl Default for Gleaner {
    fn default() -> Gleaner {
        let under = Under::new(Fair::default());
        Gleaner { under, used_ns: Vec::new(), sets: BTreeMap::new(), moving: Vec::new(), timer: None }
    }
}

impl Gleaner {
    /// How many CPUs a tenant has for itself; none before the first decision about it.
    pub fn cpus_of(&self, cgroup: CgroupId) -> Option<u32> {
        self.sets.get(&cgroup).map(|set| set.count())
    }

    fn set_timer(&mut self, machine: &mut Machine) {
        let (this_cpu, next_ns) = (machine.this_cpu(), machine.now_ns() + PERIOD_NS);
        machine.timer_set(self.timer.expect("it was made at the start"), this_cpu, next_ns);
    }

    /// What each tenant used since the last decision.
    fn measure(&mut self, machine: &mut Machine) -> BTreeMap<CgroupId, Tenant> {
        for cpu in (0..machine.nr_cpus()).map(CpuId) {
            machine.settle(cpu);
        }
        let mut tenants: BTreeMap<CgroupId, Tenant> = BTreeMap::new();
        for (id, task) in machine.tasks() {
            if task.state != State::Dead && task.realtime.is_none() && task.cgroup != CgroupId::ROOT {
                let tenant = tenants.entry(task.cgroup).or_default();
                tenant.threads.push(id);
                tenant.used_ns +=
                    task.used_ns - std::mem::replace(&mut self.used_ns[id.index()], task.used_ns);
            }
        }
        tenants
    }

    /// How many CPUs each tenant is to have.
    fn decide(&self, machine: &Machine, tenants: &mut BTreeMap<CgroupId, Tenant>, online: usize) {
        let weight = |cgroup: &CgroupId| u64::from(machine.cgroup(*cgroup).weight);
        let weights: u64 = tenants.keys().map(weight).sum();
        for (cgroup, tenant) in tenants.iter_mut() {
            let before = self.sets.get(cgroup).map_or(online, |set| set.count() as usize);
            let had_all = tenant.used_ns * 100 >= before as u64 * PERIOD_NS * ALL_PERCENT;
            let more = had_all && tenant.threads.len() > before;
            tenant.cpus = (tenant.used_ns.div_ceil(PERIOD_NS) as usize + usize::from(more)).clamp(1, online);
        }
        if tenants.values().map(|tenant| tenant.cpus).sum::<usize>() > online {
            for (cgroup, tenant) in tenants.iter_mut() {
                let fair = (online as u64 * weight(cgroup) / weights.max(1)) as usize;
                tenant.cpus = tenant.cpus.min(fair.max(1));
            }
        }
    }

    /// The end of a period: tenants have their CPUs anew, and threads that are elsewhere are moved.
    fn gather(&mut self, machine: &mut Machine) {
        let online: Vec<CpuId> =
            (0..machine.nr_cpus()).map(CpuId).filter(|&cpu| machine.cpu(cpu).online).collect();
        let mut tenants = self.measure(machine);
        self.decide(machine, &mut tenants, online.len());
        self.sets.clear();
        let mut round = online.iter().copied().cycle();
        for (cgroup, tenant) in tenants {
            let set = machine.mask(round.by_ref().take(tenant.cpus));
            for task in tenant.threads {
                self.keep(machine, task, &set);
            }
            self.sets.insert(cgroup, set);
        }
    }

    /// Keeps a thread to these CPUs, as far as its affinity lets it.
    fn keep(&mut self, machine: &mut Machine, task: TaskId, set: &Rc<CpuMask>) {
        let of = machine.task(task);
        let usable = set.iter().any(|cpu| of.affinity.has(cpu) && machine.cpu(cpu).online);
        let elsewhere = usable && !of.held && !set.has(of.cpu);
        machine.keep_to(task, Some(set.clone()).filter(|_| usable));
        if elsewhere {
            self.under.take_out(machine, task);
            if self.under.out.contains(&task) {
                self.moving.push(task);
            }
        }
    }

    /// A CPU where a thread may be, that with the fewest tasks.
    fn place(&self, machine: &Machine, task: TaskId) -> Option<CpuId> {
        let usable = |cpu: &CpuId| machine.cpu(*cpu).online && machine.task(task).may_move_to(*cpu);
        let mut tasks = vec![0; machine.nr_cpus() as usize];
        for (_, other) in
            machine.tasks().filter(|(_, other)| matches!(other.state, State::Queued | State::Running))
        {
            tasks[other.cpu.index()] += 1;
        }
        (0..machine.nr_cpus()).map(CpuId).filter(usable).min_by_key(|cpu| tasks[cpu.index()])
    }
}

impl Policy for Gleaner {
    fn start(&mut self, machine: &mut Machine) {
        self.under.policy.start(machine);
        self.timer = Some(machine.timer_new(machine.this_cpu(), KEYS));
        self.set_timer(machine);
    }

    fn task_new(&mut self, machine: &mut Machine, task: TaskId) {
        self.used_ns.resize(task.index() + 1, 0);
        if let Some(set) = self.sets.get(&machine.task(task).cgroup).cloned() {
            self.keep(machine, task, &set);
        }
        self.under.policy.task_new(machine, task);
    }

    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) -> CpuId {
        let cpu = self.under.policy.select_cpu(machine, task, arrival);
        match machine.task(task).may_move_to(cpu) {
            true => cpu,
            false => self.place(machine, task).unwrap_or(cpu),
        }
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, departure: Departure) {
        self.under.dequeue(machine, task, departure);
    }

    fn timer(&mut self, machine: &mut Machine, cpu: CpuId, key: u64) {
        if key < KEYS {
            return self.under.policy.timer(machine, cpu, key);
        }
        self.set_timer(machine);
        self.gather(machine);
    }

    fn deferred(&mut self, machine: &mut Machine, cpu: CpuId) {
        self.under.policy.deferred(machine, cpu);
        for task in std::mem::take(&mut self.moving) {
            let (state, own) = (machine.task(task).state, machine.task(task).cpu);
            if !self.under.out.contains(&task) {
                continue; // it has gone, or has come back by itself
            }
            if state == State::Running || machine.cpu(own).current == Some(task) {
                self.moving.push(task);
                continue;
            }
            let to = self.place(machine, task).unwrap_or(own);
            self.under.put_back(machine, task, to);
        }
    }

    pass_on! {
        task_dead(task: TaskId);
        enqueue(task: TaskId, arrival: Arrival);
        pick(cpu: CpuId) -> Option<TaskId>;
        put_prev(cpu: CpuId, task: TaskId, next: Next);
        set_next(cpu: CpuId, task: TaskId);
        yielded(cpu: CpuId, task: TaskId);
        tick(cpu: CpuId, task: TaskId);
        idle(cpu: CpuId, idle: Idle);
        hotplug(cpu: CpuId, online: bool);
    }
}
