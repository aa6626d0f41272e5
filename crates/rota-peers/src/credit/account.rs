//! Credits: who earns how many, and what priority that makes (`csched_acct`, `csched_tick`).

use rota_sim::{CgroupId, CpuId, Machine, TaskId};

use super::{Credit, Priority};

/// `CSCHED_CREDITS_PER_MSEC`.
pub const CREDITS_PER_MS: u64 = 10;
/// A cgroup of weight 100: `CSCHED_DEFAULT_WEIGHT`.
const WEIGHT: i64 = 256;

/// A domain's share of a distribution.
struct Share {
    /// To each of its vCPUs.
    each: i64,
    /// Who owes more is parked.
    cap_each: Option<i64>,
}

/// What is distributed.
struct Pot {
    total: i64,
    weight: i64,
    /// Of domains that have not had theirs.
    weight_left: i64,
    /// Somebody could use more than it got.
    wanting: bool,
}

fn weight(machine: &Machine, domain: CgroupId) -> i64 {
    (i64::from(machine.cgroup(domain).weight) * WEIGHT / 100).max(1)
}

fn divided_up(part: i64, whole: i64) -> i64 {
    (part + whole - 1).div_euclid(whole)
}

impl Credit {
    /// What a CPU burns between two accounts, and the most that a vCPU has or owes.
    fn credits_per_slice(&self) -> i64 {
        (self.slice_ns / 1_000_000 * CREDITS_PER_MS) as i64
    }

    /// A CPU's tick: who is found running is not boosted any more, and earns credits from now on.
    pub(super) fn look(&mut self, machine: &mut Machine, cpu: CpuId) {
        self.burn(machine, cpu);
        if let Some(current) = self.cpus[cpu.index()].current {
            let vcpu = self.vcpu(current);
            vcpu.priority = vcpu.priority.min(Priority::Under);
            if !std::mem::replace(&mut vcpu.active, true) {
                let domain = machine.task(current).cgroup;
                if !self.domains.contains(&domain) {
                    self.domains.insert(0, domain);
                }
            }
        }
        if std::mem::take(&mut self.cpus[cpu.index()].unsorted) {
            let vcpus = &self.vcpus;
            let priority = |task: &TaskId| vcpus[task.index()].map(|vcpu| vcpu.priority);
            let waiting = self.cpus[cpu.index()].waiting.make_contiguous();
            waiting.sort_by_key(|task| std::cmp::Reverse(priority(task)));
        }
        let (tick, next_ns) = (self.cpus[cpu.index()].tick, machine.now_ns() + self.tick_ns());
        machine.timer_set(tick, cpu, next_ns);
    }

    fn active(&self, machine: &Machine, domain: CgroupId) -> Vec<TaskId> {
        let active = machine.tasks().filter(|(id, task)| {
            let vcpu = self.vcpus.get(id.index()).copied().flatten();
            task.cgroup == domain && vcpu.is_some_and(|vcpu| vcpu.active)
        });
        active.map(|(id, _)| id).collect()
    }

    /// Gives every active vCPU its credits.
    pub(super) fn account(&mut self, machine: &mut Machine) {
        let (this_cpu, next_ns) = (machine.this_cpu(), machine.now_ns() + self.slice_ns);
        machine.timer_set(self.accounts.expect("it was made at the start"), this_cpu, next_ns);
        self.learn(machine);
        // Those that have moved to another domain take part there.
        let mut domains = std::mem::take(&mut self.domains);
        for (id, task) in machine.tasks() {
            let vcpu = self.vcpus.get(id.index()).copied().flatten();
            if vcpu.is_some_and(|vcpu| vcpu.active) && !domains.contains(&task.cgroup) {
                domains.push(task.cgroup);
            }
        }
        let active: Vec<Vec<TaskId>> = domains.iter().map(|&domain| self.active(machine, domain)).collect();
        let weight_of =
            |(domain, active): (&CgroupId, &Vec<TaskId>)| weight(machine, *domain) * active.len() as i64;
        let whole: i64 = domains.iter().zip(&active).map(weight_of).sum();
        let online = (0..machine.nr_cpus()).filter(|&cpu| machine.cpu(CpuId(cpu)).online).count() as i64;
        let total = online * self.credits_per_slice() - self.balance.min(0);
        let mut pot = Pot { total, weight: whole, weight_left: whole, wanting: false };
        let mut balance = 0;
        let mut order = Vec::new();
        for (domain, active) in domains.into_iter().zip(active).filter(|(_, active)| !active.is_empty()) {
            let (share, to_front) = self.share(machine, domain, active.len() as i64, &mut pot);
            for task in active {
                balance += self.earn(machine, task, &share);
            }
            order.insert(if to_front { 0 } else { order.len() }, domain);
        }
        self.domains = order;
        self.balance = balance;
        self.cpus.iter_mut().for_each(|cpu| cpu.unsorted = true);
    }

    /// A domain's share, and whether it is to be asked first the next time.
    fn share(&self, machine: &Machine, domain: CgroupId, count: i64, pot: &mut Pot) -> (Share, bool) {
        let weight = weight(machine, domain) * count;
        pot.weight_left -= weight;
        let mut peak = count * self.credits_per_slice();
        if self.balance < 0 {
            peak += divided_up(-self.balance * weight, pot.weight);
        }
        let mut cap_each = None;
        if let Some((quota_ns, period_ns)) = machine.cgroup(domain).max {
            let cap = (u128::from(quota_ns) * self.credits_per_slice() as u128)
                .div_ceil(u128::from(period_ns)) as i64;
            peak = peak.min(cap);
            cap_each = Some(divided_up(cap, count));
        }
        let mut fair = divided_up(pot.total * weight, pot.weight);
        let mut to_front = false;
        if fair < peak {
            pot.wanting = true;
        } else {
            if pot.weight_left > 0 {
                pot.total += divided_up((fair - peak) * pot.weight, pot.weight_left);
            }
            to_front = pot.wanting;
            fair = peak;
        }
        (Share { each: divided_up(fair, count), cap_each }, to_front)
    }

    /// A vCPU gets its credits; what it has then.
    fn earn(&mut self, machine: &mut Machine, task: TaskId, share: &Share) -> i64 {
        let whole = self.credits_per_slice();
        let vcpu = self.vcpu(task);
        vcpu.credit += share.each;
        if vcpu.credit < 0 {
            vcpu.priority = Priority::Over;
            let parks = share.cap_each.is_some_and(|cap| vcpu.credit < -cap) && !vcpu.parked;
            vcpu.credit = vcpu.credit.max(-whole);
            let credit = vcpu.credit;
            if parks {
                self.park(machine, task);
            }
            return credit;
        }
        vcpu.priority = Priority::Under;
        if vcpu.credit > whole {
            vcpu.active = false; // it does not use what it earns
            vcpu.credit /= 2;
        }
        let (credit, runnable) = (vcpu.credit, vcpu.runnable);
        if std::mem::take(&mut vcpu.parked) && runnable {
            self.insert(machine, task);
            self.tickle(machine, task);
        }
        credit
    }

    /// Has a vCPU wait until it owes nothing.
    fn park(&mut self, machine: &mut Machine, task: TaskId) {
        self.vcpu(task).parked = true;
        self.remove(machine, task);
        let cpu = machine.task(task).cpu;
        if self.cpus[cpu.index()].current == Some(task) {
            machine.resched(cpu);
        }
    }
}
