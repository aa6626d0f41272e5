//! Xen's Credit2 (`xen/common/sched/credit2.c`; Vanga, thesis section 2.3.3.1). The CPUs of a socket share a queue,
//! sorted by credit; who runs burns credit, the faster the lower its weight. Once the first of a queue has none left,
//! everybody of the queue gets 10 ms more. Who wakes is not boosted: it preempts whom it has more credit than. Each
//! task is a vCPU.
//!
//! Left out: soft affinity, and caps, which the version that the thesis compares with (4.9) does not have.

mod balance;

use rota_sim::{Arrival, CpuId, Departure, Idle, Machine, Next, Policy, TaskId, Timer};

use balance::Average;

/// What everybody begins with and gets at a reset: `CSCHED2_CREDIT_INIT`. Nobody runs longer at a time.
const CREDIT_NS: i64 = 10_000_000;
/// Nobody owes more.
const CREDIT_MIN_NS: i64 = -CREDIT_NS;
/// Nobody runs shorter at a time: `CSCHED2_MIN_TIMER`. As much may be kept at a reset.
const TIMER_MIN_NS: i64 = 500_000;
/// Nobody is preempted before: `sched_ratelimit_us`; and how early a waker may look.
const RATE_LIMIT_NS: i64 = 1_000_000;
const RATE_TOLERANCE_NS: i64 = 50_000;
/// How much more credit it takes to change the CPU, and what that is worth.
const MIGRATE_RESIST_NS: i64 = 500_000;
const MIGRATE_COMPENSATION_NS: i64 = 50_000;
/// Less than anybody's.
const IDLE_CREDIT_NS: i64 = CREDIT_MIN_NS - 1;

#[derive(Clone, Copy, Debug)]
struct Vcpu {
    /// Whose weight: see [`weight`].
    weight: i64,
    credit_ns: i64,
    /// Of a division.
    residual: i64,
    /// The CPU that was told to take it.
    told: Option<CpuId>,
    yields: bool,
    runnable: bool,
    queue: usize,
    average: Average,
    charged_ns: u64,
    since_ns: u64,
}

#[derive(Debug)]
struct Pcpu {
    current: Option<TaskId>,
    queue: usize,
    /// It was told to look, and has not done so yet.
    tickled: bool,
    timer: Timer,
}

/// A socket's.
#[derive(Debug, Default)]
struct Queue {
    cpus: Vec<CpuId>,
    /// By credit, the highest first.
    waiting: Vec<TaskId>,
    /// All that belong to it.
    members: Vec<TaskId>,
    /// The highest of them.
    weight_max: i64,
    runnable: u32,
    average: Average,
}

/// The scheduler.
#[derive(Default)]
pub struct Credit2 {
    vcpus: Vec<Option<Vcpu>>,
    cpus: Vec<Pcpu>,
    queues: Vec<Queue>,
}

/// A cgroup of weight 100 is a domain of weight 256.
fn weight(machine: &Machine, task: TaskId) -> i64 {
    (i64::from(machine.cgroup(machine.task(task).cgroup).weight) * 256 / 100).max(1)
}

impl Credit2 {
    fn vcpu(&mut self, task: TaskId) -> &mut Vcpu {
        self.vcpus[task.index()].as_mut().expect("the task has come and is not over")
    }

    fn of(&self, task: TaskId) -> &Vcpu {
        self.vcpus[task.index()].as_ref().expect("the task has come and is not over")
    }

    /// Counts what runs on a CPU up to now: the highest weight burns one credit a ns, a lower one more.
    fn burn(&mut self, machine: &mut Machine, cpu: CpuId) {
        let Some(task) = self.cpus[cpu.index()].current else { return };
        machine.settle(cpu);
        let used_ns = machine.task(task).used_ns;
        let weight_max = self.queues[self.of(task).queue].weight_max;
        let vcpu = self.vcpu(task);
        let ran_ns = (used_ns - std::mem::replace(&mut vcpu.charged_ns, used_ns)) as i64;
        let burnt = ran_ns * weight_max + vcpu.residual;
        vcpu.residual = burnt % vcpu.weight;
        vcpu.credit_ns = (vcpu.credit_ns - burnt / vcpu.weight).max(CREDIT_MIN_NS);
    }

    /// Puts a vCPU under the queue of its CPU.
    fn join(&mut self, machine: &Machine, task: TaskId) {
        let to = self.cpus[machine.task(task).cpu.index()].queue;
        let from = self.of(task).queue;
        self.vcpu(task).queue = to;
        self.vcpu(task).weight = weight(machine, task);
        self.queues[from].members.retain(|other| *other != task);
        self.queues[to].members.push(task);
        for queue in [from, to] {
            let highest = self.queues[queue].members.iter().map(|&task| self.of(task).weight).max();
            self.queues[queue].weight_max = highest.unwrap_or(1);
        }
    }

    fn insert(&mut self, task: TaskId) {
        let (credit_ns, queue) = (self.of(task).credit_ns, self.of(task).queue);
        let waiting = &self.queues[queue].waiting;
        let place =
            waiting.iter().position(|&other| self.of(other).credit_ns < credit_ns).unwrap_or(waiting.len());
        self.queues[queue].waiting.insert(place, task);
    }

    fn remove(&mut self, task: TaskId) {
        let queue = self.of(task).queue;
        self.queues[queue].waiting.retain(|other| *other != task);
    }

    fn tell(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.cpus[cpu.index()].tickled = true;
        self.vcpu(task).told = Some(cpu);
        machine.resched(cpu);
    }

    /// A vCPU waits: tells a CPU that idles, or the one that runs the least credit, if that is less (`runq_tickle`).
    fn tickle(&mut self, machine: &mut Machine, task: TaskId) {
        let own = machine.task(task).cpu;
        let cpus = self.queues[self.of(task).queue].cpus.clone();
        let own_first = std::iter::once(own).chain(cpus.into_iter().filter(|&cpu| cpu != own));
        let usable: Vec<CpuId> = own_first
            .filter(|&cpu| machine.cpu(cpu).online && machine.task(task).may_run_on(cpu))
            .filter(|&cpu| !self.cpus[cpu.index()].tickled)
            .collect();
        if let Some(&idle) = usable.iter().find(|&&cpu| machine.cpu(cpu).current.is_none()) {
            return self.tell(machine, idle, task);
        }
        let mut best = (0, None);
        for cpu in usable {
            let Some(current) = self.cpus[cpu.index()].current else { continue };
            if (machine.now_ns() - self.of(current).since_ns) as i64 <= RATE_LIMIT_NS - RATE_TOLERANCE_NS {
                continue;
            }
            self.burn(machine, cpu);
            let resist_ns = if cpu == own { 0 } else { MIGRATE_RESIST_NS };
            let score = self.of(task).credit_ns - self.of(current).credit_ns - resist_ns;
            if score > best.0 {
                best = (score, Some(cpu));
                if cpu == own {
                    break;
                }
            }
        }
        if let Some(cpu) = best.1 {
            self.tell(machine, cpu, task);
        }
    }

    /// Who shall run on a CPU (`runq_candidate`).
    fn candidate(&mut self, machine: &Machine, cpu: CpuId) -> Option<TaskId> {
        let current = self.cpus[cpu.index()].current.filter(|&task| self.of(task).runnable);
        let mut yields = false;
        if let Some(current) = current {
            yields = std::mem::take(&mut self.vcpu(current).yields);
            let ran_ns = (machine.now_ns() - self.of(current).since_ns) as i64;
            if !yields && ran_ns < RATE_LIMIT_NS {
                return Some(current);
            }
        }
        let credit_ns = current.map_or(IDLE_CREDIT_NS, |current| self.of(current).credit_ns);
        for &task in &self.queues[self.cpus[cpu.index()].queue].waiting {
            let vcpu = self.of(task);
            if !yields && vcpu.credit_ns <= credit_ns {
                break;
            }
            let left_to = vcpu.told.filter(|told| *told != cpu && self.cpus[told.index()].tickled);
            let resists = machine.task(task).cpu != cpu && credit_ns + MIGRATE_RESIST_NS > vcpu.credit_ns;
            // An idling CPU takes whom it can get.
            let resists = resists && current.is_some();
            if machine.task(task).may_run_on(cpu) && left_to.is_none() && !resists {
                return Some(task);
            }
        }
        current
    }

    /// Everybody of a queue gets more, so that `next` has some (`reset_credit`).
    fn reset(&mut self, machine: &mut Machine, queue: usize, next: TaskId) {
        let more_ns = if self.of(next).credit_ns == CREDIT_MIN_NS { 2 * CREDIT_NS } else { CREDIT_NS };
        for cpu in self.queues[queue].cpus.clone() {
            self.burn(machine, cpu);
        }
        for task in self.queues[queue].members.clone() {
            let vcpu = self.vcpu(task);
            vcpu.credit_ns = (vcpu.credit_ns + more_ns).min(CREDIT_NS + TIMER_MIN_NS);
        }
    }

    /// For how long `next` runs before others are asked (`csched2_runtime`).
    fn runtime_ns(&self, machine: &Machine, cpu: CpuId, next: TaskId) -> u64 {
        let of = self.of(next);
        let current = self.cpus[cpu.index()].current;
        let mut least_ns = RATE_LIMIT_NS.max(TIMER_MIN_NS);
        if current == Some(next) {
            let ran_ns = (machine.now_ns() - of.since_ns) as i64;
            least_ns = (RATE_LIMIT_NS - ran_ns).max(TIMER_MIN_NS);
        }
        let put_back = current.filter(|&current| current != next && self.of(current).runnable);
        let first = self.queues[of.queue].waiting.iter().find(|&&task| task != next);
        let others = first.copied().into_iter().chain(put_back).map(|task| self.of(task).credit_ns);
        let credit_ns = of.credit_ns - others.max().unwrap_or(0).max(0);
        let time_ns = credit_ns.max(0) * of.weight / self.queues[of.queue].weight_max;
        time_ns.clamp(least_ns, CREDIT_NS) as u64
    }

    fn count(&mut self, machine: &Machine, task: TaskId, runnable: bool) {
        let now_ns = machine.now_ns();
        let vcpu = self.vcpu(task);
        vcpu.average.count(now_ns, u32::from(vcpu.runnable));
        let was = std::mem::replace(&mut vcpu.runnable, runnable);
        let queue = vcpu.queue;
        let queue = &mut self.queues[queue];
        queue.average.count(now_ns, queue.runnable);
        queue.runnable = queue.runnable + u32::from(runnable) - u32::from(was);
    }
}

impl Policy for Credit2 {
    fn start(&mut self, machine: &mut Machine) {
        let mut sockets: Vec<u32> = machine.topology().places.iter().map(|place| place.socket).collect();
        sockets.sort_unstable();
        sockets.dedup();
        self.queues = sockets.iter().map(|_| Queue { weight_max: 1, ..Queue::default() }).collect();
        for cpu in (0..machine.nr_cpus()).map(CpuId) {
            let place = machine.topology().place(cpu.0);
            let queue = place.map_or(0, |place| sockets.partition_point(|&socket| socket < place.socket));
            self.queues[queue].cpus.push(cpu);
            let timer = machine.timer_new(cpu, u64::from(cpu.0));
            self.cpus.push(Pcpu { current: None, queue, tickled: false, timer });
        }
    }

    fn task_new(&mut self, machine: &mut Machine, task: TaskId) {
        self.vcpus.resize(self.vcpus.len().max(task.index() + 1), None);
        self.vcpus[task.index()] = Some(Vcpu {
            weight: weight(machine, task),
            credit_ns: CREDIT_NS,
            residual: 0,
            told: None,
            yields: false,
            runnable: false,
            queue: 0,
            average: Average::default(),
            charged_ns: 0,
            since_ns: 0,
        });
        self.join(machine, task);
    }

    fn task_dead(&mut self, _: &mut Machine, task: TaskId) {
        let queue = self.of(task).queue;
        self.queues[queue].members.retain(|other| *other != task);
        self.vcpus[task.index()] = None;
    }

    /// Who wakes stays where it was; who is new goes to the queue with the least load.
    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) -> CpuId {
        let before = machine.task(task).cpu;
        if arrival != Arrival::New {
            return before;
        }
        let usable = |cpu: &CpuId| machine.cpu(*cpu).online && machine.task(task).may_move_to(*cpu);
        let load = |cpu: &CpuId| {
            let queue = &self.queues[self.cpus[cpu.index()].queue];
            (queue.runnable as usize * 1_000 / queue.cpus.len(), machine.cpu(*cpu).current.is_some())
        };
        (0..machine.nr_cpus()).map(CpuId).filter(usable).min_by_key(load).unwrap_or(before)
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, _: Arrival) {
        self.join(machine, task);
        self.count(machine, task, true);
        self.insert(task);
        self.tickle(machine, task);
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, _: Departure) {
        let cpu = machine.task(task).cpu;
        if self.cpus[cpu.index()].current == Some(task) {
            self.burn(machine, cpu);
        }
        self.count(machine, task, false);
        self.remove(task);
        self.vcpu(task).told = None;
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        self.cpus[cpu.index()].tickled = false;
        self.burn(machine, cpu);
        let timer = self.cpus[cpu.index()].timer;
        let Some(next) = self.candidate(machine, cpu) else {
            machine.timer_cancel(timer);
            return None;
        };
        let queue = self.cpus[cpu.index()].queue;
        let first = self.queues[queue].waiting.first().map(|&first| self.of(first).credit_ns);
        if self.of(next).credit_ns.max(first.unwrap_or(IDLE_CREDIT_NS)) <= 0 {
            self.reset(machine, queue, next);
            self.balance(machine, queue, next);
        }
        self.vcpu(next).told = None;
        if machine.task(next).cpu != cpu {
            self.vcpu(next).credit_ns += MIGRATE_COMPENSATION_NS;
            machine.set_task_cpu(next, cpu);
        }
        let until_ns = machine.now_ns() + self.runtime_ns(machine, cpu, next);
        machine.timer_set(timer, cpu, until_ns);
        Some(next)
    }

    fn put_prev(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId, _: Next) {
        self.burn(machine, cpu);
        self.cpus[cpu.index()].current = None;
        if self.of(task).runnable {
            self.insert(task);
            self.tickle(machine, task);
        }
    }

    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.remove(task);
        let (used_ns, now_ns) = (machine.task(task).used_ns, machine.now_ns());
        let vcpu = self.vcpu(task);
        vcpu.charged_ns = used_ns;
        vcpu.since_ns = now_ns;
        vcpu.yields = false;
        self.cpus[cpu.index()].current = Some(task);
    }

    fn yielded(&mut self, _: &mut Machine, _: CpuId, task: TaskId) {
        self.vcpu(task).yields = true;
    }

    /// The hypervisor has timers of its own.
    fn tick(&mut self, _: &mut Machine, _: CpuId, _: TaskId) {}

    fn idle(&mut self, _: &mut Machine, _: CpuId, _: Idle) {}

    fn timer(&mut self, machine: &mut Machine, _: CpuId, key: u64) {
        machine.resched(CpuId(key as u32));
    }

    fn deferred(&mut self, _: &mut Machine, _: CpuId) {}

    fn hotplug(&mut self, _: &mut Machine, cpu: CpuId, _: bool) {
        self.cpus[cpu.index()].tickled = false;
    }
}
