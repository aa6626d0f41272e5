//! `cpu.max`: a group may run for its quota in each period, on all CPUs together (`kernel/sched/fair.c`, "CFS bandwidth
//! control"; Turner, Rao and Rao, *CPU bandwidth control for CFS*, Linux Symposium 2010). A queue takes runtime from
//! its group's pool, a slice at a time; one that gets none is throttled with all below it, until the pool is filled.

use std::collections::BTreeSet;

use rota_sim::{CgroupId, CpuId, Machine, Timer};

use super::Fair;
use super::queue::{EntityId, Queue, QueueId};
use super::rule::{Comes, Rule};

/// What a queue takes from the pool at once: `sched_cfs_bandwidth_slice_us`.
const SLICE_NS: u64 = 5_000_000;
/// What a queue without tasks keeps: `min_cfs_rq_runtime`.
const KEPT_NS: i64 = 1_000_000;
/// After so long, what was given back goes to those that are throttled: `cfs_bandwidth_slack_period`.
const SLACK_NS: u64 = 5_000_000;

/// A group's limit.
#[derive(Clone, Debug)]
pub struct Limit {
    quota_ns: u64,
    period_ns: u64,
    /// What is left of the quota.
    pool_ns: u64,
    /// Nothing was taken in the present period.
    idle: bool,
    active: bool,
    timer: Timer,
    slack: Timer,
    /// When the present period ends.
    ends_ns: u64,
    throttled: BTreeSet<QueueId>,
    /// How often a period began with somebody throttled.
    pub throttled_periods: u64,
}

impl<R: Rule> Fair<R> {
    fn limit(&mut self, machine: &mut Machine, cgroup: CgroupId) -> Option<&mut Limit> {
        let (quota_ns, period_ns) = machine.cgroup(cgroup).max?;
        Some(self.limits.entry(cgroup).or_insert_with(|| {
            let this_cpu = machine.this_cpu();
            Limit {
                quota_ns,
                period_ns,
                pool_ns: quota_ns,
                idle: false,
                active: false,
                timer: machine.timer_new(this_cpu, u64::from(cgroup.0) * 2),
                slack: machine.timer_new(this_cpu, u64::from(cgroup.0) * 2 + 1),
                ends_ns: 0,
                throttled: BTreeSet::new(),
                throttled_periods: 0,
            }
        }))
    }

    /// How many periods of a group began with some of it throttled: `nr_throttled` of `cpu.stat`.
    pub fn throttled_periods(&self, cgroup: CgroupId) -> u64 {
        self.limits.get(&cgroup).map_or(0, |limit| limit.throttled_periods)
    }

    /// A queue has run. If it may not go on, its CPU decides anew.
    pub(super) fn use_up(&mut self, machine: &mut Machine, id: QueueId, ran_ns: u64) {
        let queue = self.queue(id);
        let (cgroup, cpu) = (queue.cgroup, queue.cpu);
        if machine.cgroup(cgroup).max.is_none() {
            return;
        }
        queue.runtime_ns -= ran_ns as i64;
        if !self.may_run(machine, id) {
            machine.resched(cpu);
        }
    }

    /// Whether a queue has runtime, if need be from the pool (`__assign_cfs_rq_runtime`).
    fn may_run(&mut self, machine: &mut Machine, id: QueueId) -> bool {
        let Queue { cgroup, runtime_ns, .. } = *self.queue(id);
        if runtime_ns > 0 {
            return true;
        }
        let (now_ns, this_cpu) = (machine.now_ns(), machine.this_cpu());
        let Some(limit) = self.limit(machine, cgroup) else { return true };
        if !limit.active {
            limit.active = true;
            limit.ends_ns = match limit.ends_ns {
                0 => now_ns + limit.period_ns,
                before => before + (now_ns.saturating_sub(before) / limit.period_ns + 1) * limit.period_ns,
            };
            let (timer, ends_ns) = (limit.timer, limit.ends_ns);
            machine.timer_set(timer, this_cpu, ends_ns);
        }
        let limit = self.limits.get_mut(&cgroup).expect("it was there");
        let taken_ns = limit.pool_ns.min(SLICE_NS.saturating_add_signed(-runtime_ns));
        if taken_ns > 0 {
            limit.pool_ns -= taken_ns;
            limit.idle = false;
        }
        let queue = self.queue(id);
        queue.runtime_ns += taken_ns as i64;
        queue.runtime_ns > 0
    }

    /// Whether a queue may be picked from; if not, it is throttled (`throttle_cfs_rq`).
    pub(super) fn admits(&mut self, machine: &mut Machine, id: QueueId) -> bool {
        if machine.cgroup(self.queue(id).cgroup).max.is_none() || self.may_run(machine, id) {
            return true;
        }
        let Queue { cgroup, own, tasks, .. } = *self.queue(id);
        if let Some(own) = own {
            self.remove_upwards(own, false);
            let above = self.entity(own).queue;
            self.count_tasks(above, -i64::from(tasks));
        }
        self.queue(id).throttled = true;
        self.limits.get_mut(&cgroup).expect("it has a limit").throttled.insert(id);
        false
    }

    fn unthrottle(&mut self, machine: &mut Machine, id: QueueId) {
        let Queue { cgroup, cpu, own, tasks, count, .. } = *self.queue(id);
        self.charge(machine, cpu);
        self.queue(id).throttled = false;
        self.limits.get_mut(&cgroup).expect("it has a limit").throttled.remove(&id);
        let Some(own) = own.filter(|_| count > 0) else { return };
        self.add_upwards(own, None, Comes::Moves);
        let above = self.entity(own).queue;
        self.count_tasks(above, i64::from(tasks));
        if machine.cpu(cpu).current.is_none() {
            machine.resched(cpu);
        }
    }

    /// Gives each throttled queue what it lacks, as far as the pool goes (`distribute_cfs_runtime`).
    fn distribute(&mut self, machine: &mut Machine, cgroup: CgroupId) {
        let waiting: Vec<QueueId> = self.limits[&cgroup].throttled.iter().copied().collect();
        for id in waiting {
            let lacks_ns = 1u64.saturating_add_signed(-self.queue(id).runtime_ns);
            let limit = self.limits.get_mut(&cgroup).expect("it was there");
            let given_ns = limit.pool_ns.min(lacks_ns);
            limit.pool_ns -= given_ns;
            let queue = self.queue(id);
            queue.runtime_ns += given_ns as i64;
            if queue.runtime_ns > 0 {
                self.unthrottle(machine, id);
            }
        }
    }

    /// A queue has nothing left to run: it gives back most of its runtime (`return_cfs_rq_runtime`).
    pub(super) fn give_back(&mut self, machine: &mut Machine, id: QueueId) {
        let Queue { cgroup, count, runtime_ns, .. } = *self.queue(id);
        let (now_ns, this_cpu) = (machine.now_ns(), machine.this_cpu());
        let Some(limit) = self.limits.get_mut(&cgroup).filter(|_| count == 0 && runtime_ns > KEPT_NS) else {
            return;
        };
        limit.pool_ns += (runtime_ns - KEPT_NS) as u64;
        if limit.pool_ns > SLICE_NS && !limit.throttled.is_empty() {
            machine.timer_set(limit.slack, this_cpu, now_ns + SLACK_NS);
        }
        self.queue(id).runtime_ns = KEPT_NS;
    }

    /// A timer of a limit: a period has ended, or what was given back is distributed.
    pub(super) fn limit_timer(&mut self, machine: &mut Machine, key: u64) {
        let cgroup = CgroupId((key / 2) as u32);
        if key % 2 == 1 {
            return self.distribute(machine, cgroup);
        }
        let (now_ns, this_cpu) = (machine.now_ns(), machine.this_cpu());
        let limit = self.limits.get_mut(&cgroup).expect("it has a timer");
        limit.pool_ns = limit.quota_ns;
        let throttled = !limit.throttled.is_empty();
        limit.active = throttled || !limit.idle;
        limit.idle = !throttled;
        if !limit.active {
            return;
        }
        limit.ends_ns += (now_ns.saturating_sub(limit.ends_ns) / limit.period_ns + 1) * limit.period_ns;
        machine.timer_set(limit.timer, this_cpu, limit.ends_ns);
        limit.throttled_periods += u64::from(throttled);
        self.distribute(machine, cgroup);
    }

    /// What a CPU has that is throttled runs on, since the CPU goes (`unthrottle_offline_cfs_rqs`).
    pub(super) fn unthrottle_all(&mut self, machine: &mut Machine, cpu: CpuId) {
        let here = |id: &&QueueId| self.queues[id.0 as usize].cpu == cpu;
        let throttled: Vec<QueueId> =
            self.limits.values().flat_map(|limit| limit.throttled.iter().filter(here)).copied().collect();
        for id in throttled {
            self.queue(id).runtime_ns = 1;
            self.unthrottle(machine, id);
        }
    }

    /// Whether a task is in a queue that is throttled, or below one.
    pub(super) fn is_throttled(&self, id: EntityId) -> bool {
        self.upwards(id).any(|id| self.queues[self.entities[id.0 as usize].queue.0 as usize].throttled)
    }
}
