//! Xen's Credit scheduler (`xen/common/sched/credit.c`; Vanga, thesis section 2.3.2). A tenant is a domain, its tasks
//! are vCPUs. Every 30 ms each gets credits by its domain's weight; who runs burns them. Who has some is UNDER, who has
//! not is OVER, and who wakes while UNDER is BOOSTed, until a tick finds it running. A CPU runs the highest priority of
//! its queue in turn, 30 ms at a time, and steals what is higher from others. `cpu.max` is a domain's cap.
//!
//! Left out: soft affinity, moving a running vCPU to a core with more idle siblings, and the limit on how often a CPU
//! steals, which came after the version that the thesis compares with (4.9).

mod account;
mod delay;

use std::collections::VecDeque;

pub use delay::Delay;
use rota_sim::{Arrival, CgroupId, CpuId, Departure, Idle, Machine, Next, Policy, TaskId, Timer};

/// What one runs at a time, unless told otherwise: `CSCHED_DEFAULT_TSLICE_MS`. Credits are given as often.
const SLICE_NS: u64 = 30_000_000;
/// So many looks at who runs in each: `CSCHED_TICKS_PER_TSLICE`.
const TICKS: u64 = 3;
/// Nobody is preempted before: `sched_ratelimit_us`.
const RATE_LIMIT_NS: u64 = 1_000_000;
/// No timer is shorter: `CSCHED_MIN_TIMER`.
const TIMER_MIN_NS: u64 = 100_000;

/// From low to high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Over,
    Under,
    Boost,
}

#[derive(Clone, Copy, Debug)]
struct Vcpu {
    priority: Priority,
    /// Ten a ms.
    credit: i64,
    /// What of a credit was burnt, in ns.
    burnt_ns: u64,
    /// It earns credits.
    active: bool,
    /// Its domain's cap is used up.
    parked: bool,
    yields: bool,
    runnable: bool,
    charged_ns: u64,
    since_ns: u64,
    /// Before it preempts.
    waits: delay::Waits,
}

#[derive(Debug)]
struct Pcpu {
    current: Option<TaskId>,
    /// By priority, the first one goes next.
    waiting: VecDeque<TaskId>,
    /// It idles, and nobody has told it to look for work.
    idler: bool,
    /// Priorities have changed since the queue was sorted.
    unsorted: bool,
    slice: Timer,
    tick: Timer,
    /// Comes when who runs has been let go on for long enough; whether it is set.
    delayed: (Timer, bool),
}

/// What a timer is for: the accounts, or one of a CPU's.
const ACCOUNTS: u64 = 0;
/// A CPU has so many: its slice, its tick, a preemption that is delayed.
const TIMERS: u64 = 3;

/// The scheduler.
pub struct Credit {
    /// What one runs at a time, and between accounts.
    slice_ns: u64,
    /// Whether slices are drawn instead.
    differing: bool,
    delay: Delay,
    vcpus: Vec<Option<Vcpu>>,
    cpus: Vec<Pcpu>,
    /// Domains with active vCPUs.
    domains: Vec<CgroupId>,
    /// What all credits add up to, if that is less than nothing.
    balance: i64,
    accounts: Option<Timer>,
    /// The CPU that was told last to look for work.
    told: u32,
}

impl Default for Credit {
    fn default() -> Credit {
        Credit::with_slice(SLICE_NS)
    }
}

impl Credit {
    /// One with another time slice, in ns: a hypervisor's `sched_credit_tslice_ms`, 1 ms to 1 s.
    pub fn with_slice(slice_ns: u64) -> Credit {
        Credit {
            slice_ns,
            differing: false,
            delay: Delay::None,
            vcpus: Vec::new(),
            cpus: Vec::new(),
            domains: Vec::new(),
            balance: 0,
            accounts: None,
            told: 0,
        }
    }

    fn tick_ns(&self) -> u64 {
        self.slice_ns / TICKS
    }

    fn vcpu(&mut self, task: TaskId) -> &mut Vcpu {
        self.vcpus[task.index()].as_mut().expect("the task has come and is not over")
    }

    fn priority(&self, task: TaskId) -> Priority {
        self.vcpus[task.index()].expect("the task has come and is not over").priority
    }

    /// Whether a task waits because its domain's cap is used up.
    pub(crate) fn is_parked(&self, task: TaskId) -> bool {
        self.vcpus[task.index()].is_some_and(|vcpu| vcpu.parked)
    }

    /// Counts what runs on a CPU up to now.
    fn burn(&mut self, machine: &mut Machine, cpu: CpuId) {
        let Some(task) = self.cpus[cpu.index()].current else { return };
        machine.settle(cpu);
        let used_ns = machine.task(task).used_ns;
        let vcpu = self.vcpu(task);
        let ran_ns = used_ns - std::mem::replace(&mut vcpu.charged_ns, used_ns) + vcpu.burnt_ns;
        vcpu.credit -= (ran_ns * account::CREDITS_PER_MS / 1_000_000) as i64;
        vcpu.burnt_ns = ran_ns % (1_000_000 / account::CREDITS_PER_MS);
    }

    /// Behind all of its priority; one that has yielded behind a lower one too.
    fn insert(&mut self, machine: &Machine, task: TaskId) {
        let cpu = machine.task(task).cpu;
        let (priority, yields) = (self.priority(task), self.vcpu(task).yields);
        let waiting = &self.cpus[cpu.index()].waiting;
        let place =
            waiting.iter().position(|&other| priority > self.priority(other)).unwrap_or(waiting.len());
        let place = (place + usize::from(yields)).min(waiting.len());
        self.cpus[cpu.index()].waiting.insert(place, task);
    }

    fn remove(&mut self, machine: &Machine, task: TaskId) {
        let cpu = machine.task(task).cpu;
        self.cpus[cpu.index()].waiting.retain(|other| *other != task);
    }

    fn is_idler(&self, machine: &Machine, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].idler && machine.cpu(cpu).online && machine.cpu(cpu).current.is_none()
    }

    /// Has a CPU look for work.
    fn tell(&mut self, machine: &mut Machine, cpu: CpuId) {
        self.cpus[cpu.index()].idler = false;
        machine.resched(cpu);
    }

    /// The next idling CPU where a task may run, after the one that was told last.
    fn next_idler(&self, machine: &Machine, task: TaskId) -> Option<CpuId> {
        let cpus = machine.nr_cpus();
        let mut round = (1..=cpus).map(|step| CpuId((self.told + step) % cpus));
        let usable = |cpu: &CpuId| self.is_idler(machine, *cpu) && machine.task(task).may_move_to(*cpu);
        round.find(usable)
    }

    /// A vCPU waits: tells its CPU, or one that idles (`__runq_tickle`).
    fn tickle(&mut self, machine: &mut Machine, task: TaskId) {
        let cpu = machine.task(task).cpu;
        if machine.cpu(cpu).current.is_none() {
            return self.tell(machine, cpu);
        }
        if let Some(idler) = self.next_idler(machine, task) {
            self.told = idler.0;
            return self.tell(machine, idler);
        }
        if self.cpus[cpu.index()].current.is_some_and(|current| self.priority(task) > self.priority(current))
        {
            self.preempt(machine, cpu, task);
        }
    }

    /// The highest that waits elsewhere and may run here, if it is higher than `than` (`csched_load_balance`).
    fn steal(&mut self, machine: &mut Machine, to: CpuId, than: Option<Priority>) -> Option<TaskId> {
        let cpus = machine.nr_cpus();
        for from in (1..cpus).map(|step| CpuId((to.0 + step) % cpus)) {
            if machine.cpu(from).current.is_none() {
                continue; // it is about to take its own
            }
            let stealable = |task: &TaskId| {
                let vcpu = self.vcpus[task.index()].expect("who waits is there");
                Some(vcpu.priority) > than && !vcpu.yields && machine.task(*task).may_move_to(to)
            };
            if let Some(task) = self.cpus[from.index()].waiting.iter().copied().find(stealable) {
                self.remove(machine, task);
                machine.set_task_cpu(task, to);
                self.insert(machine, task);
                return Some(task);
            }
        }
        None
    }

    /// Who runs next, and for how long.
    fn choose(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<(TaskId, u64)> {
        let now_ns = machine.now_ns();
        let current = self.cpus[cpu.index()].current.filter(|&task| {
            let vcpu = self.vcpus[task.index()].expect("who runs is there");
            vcpu.runnable && !vcpu.parked
        });
        if let Some(current) = current {
            let Vcpu { since_ns, yields, .. } = *self.vcpu(current);
            let ran_ns = now_ns - since_ns;
            if ran_ns < RATE_LIMIT_NS && !yields {
                return Some((current, (RATE_LIMIT_NS - ran_ns).max(TIMER_MIN_NS)));
            }
        }
        let first = self.cpus[cpu.index()].waiting.front().copied();
        let local = match (current, first) {
            (Some(current), Some(first)) => {
                let goes_on = self.priority(current) > self.priority(first) && !self.vcpu(current).yields;
                Some(if goes_on { current } else { first })
            }
            (current, first) => current.or(first),
        };
        let priority = local.map(|local| self.priority(local));
        let stolen = match priority {
            Some(Priority::Under | Priority::Boost) => None,
            _ if !machine.cpu(cpu).online => None,
            than => self.steal(machine, cpu, than),
        };
        stolen.or(local).map(|task| (task, self.draw_slice_ns(machine)))
    }
}

impl Policy for Credit {
    fn start(&mut self, machine: &mut Machine) {
        let now_ns = machine.now_ns();
        for cpu in (0..machine.nr_cpus()).map(CpuId) {
            let key = 1 + TIMERS * u64::from(cpu.0);
            let [slice, tick, delayed] = [0, 1, 2].map(|kind| machine.timer_new(cpu, key + kind));
            machine.timer_set(tick, cpu, now_ns + self.tick_ns());
            let waiting = VecDeque::new();
            let delayed = (delayed, false);
            self.cpus.push(Pcpu {
                current: None,
                waiting,
                idler: true,
                unsorted: false,
                slice,
                tick,
                delayed,
            });
        }
        let this_cpu = machine.this_cpu();
        let accounts = machine.timer_new(this_cpu, ACCOUNTS);
        machine.timer_set(accounts, this_cpu, now_ns + self.slice_ns);
        self.accounts = Some(accounts);
    }

    fn task_new(&mut self, _: &mut Machine, task: TaskId) {
        self.vcpus.resize(self.vcpus.len().max(task.index() + 1), None);
        self.vcpus[task.index()] = Some(Vcpu {
            priority: Priority::Under,
            credit: 0,
            burnt_ns: 0,
            active: false,
            parked: false,
            yields: false,
            runnable: false,
            charged_ns: 0,
            since_ns: 0,
            waits: delay::Waits::default(),
        });
    }

    fn task_dead(&mut self, _: &mut Machine, task: TaskId) {
        self.vcpus[task.index()] = None;
    }

    /// Who wakes stays where it was; who is new goes where least is to do.
    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) -> CpuId {
        let before = machine.task(task).cpu;
        if arrival != Arrival::New {
            return before;
        }
        let usable = |cpu: &CpuId| machine.task(task).may_move_to(*cpu) && machine.cpu(*cpu).online;
        let load = |cpu: &CpuId| {
            let of = &self.cpus[cpu.index()];
            (of.waiting.len() + usize::from(machine.cpu(*cpu).current.is_some()), *cpu != before)
        };
        (0..machine.nr_cpus()).map(CpuId).filter(usable).min_by_key(load).unwrap_or(before)
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) {
        let vcpu = self.vcpu(task);
        vcpu.runnable = true;
        if arrival == Arrival::Woken && vcpu.priority == Priority::Under && !vcpu.parked {
            vcpu.priority = Priority::Boost;
        }
        if !vcpu.parked {
            self.insert(machine, task);
            self.tickle(machine, task);
        }
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, _: Departure) {
        let cpu = machine.task(task).cpu;
        if self.cpus[cpu.index()].current == Some(task) {
            self.burn(machine, cpu);
        }
        self.vcpu(task).runnable = false;
        self.remove(machine, task);
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        self.burn(machine, cpu);
        self.call_delay_off(machine, cpu);
        let chosen = self.choose(machine, cpu);
        let Pcpu { slice, .. } = self.cpus[cpu.index()];
        self.cpus[cpu.index()].idler = chosen.is_none();
        let Some((task, slice_ns)) = chosen else {
            machine.timer_cancel(slice);
            return None;
        };
        let until_ns = machine.now_ns() + slice_ns;
        machine.timer_set(slice, cpu, until_ns);
        if self.cpus[cpu.index()].current == Some(task) {
            self.vcpu(task).yields = false;
        }
        Some(task)
    }

    fn put_prev(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId, _: Next) {
        self.burn(machine, cpu);
        self.cpus[cpu.index()].current = None;
        let Vcpu { runnable, parked, .. } = *self.vcpu(task);
        if runnable && !parked {
            self.insert(machine, task);
            if let Some(idler) = self.next_idler(machine, task) {
                self.tell(machine, idler);
            }
        }
    }

    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.remove(machine, task);
        let (used_ns, now_ns) = (machine.task(task).used_ns, machine.now_ns());
        let vcpu = self.vcpu(task);
        vcpu.charged_ns = used_ns;
        vcpu.since_ns = now_ns;
        vcpu.yields = false;
        self.cpus[cpu.index()].current = Some(task);
        self.cpus[cpu.index()].idler = false;
    }

    fn yielded(&mut self, _: &mut Machine, _: CpuId, task: TaskId) {
        self.vcpu(task).yields = true;
    }

    /// The hypervisor's ticks are timers of its own.
    fn tick(&mut self, _: &mut Machine, _: CpuId, _: TaskId) {}

    fn idle(&mut self, _: &mut Machine, _: CpuId, _: Idle) {}

    fn timer(&mut self, machine: &mut Machine, _: CpuId, key: u64) {
        if key == ACCOUNTS {
            return self.account(machine);
        }
        let cpu = CpuId(((key - 1) / TIMERS) as u32);
        match (key - 1) % TIMERS {
            0 if machine.cpu(cpu).online => machine.resched(cpu),
            1 => self.look(machine, cpu),
            2 => self.delay_ends(machine, cpu),
            _ => {}
        }
    }

    fn deferred(&mut self, _: &mut Machine, _: CpuId) {}

    fn hotplug(&mut self, _: &mut Machine, cpu: CpuId, online: bool) {
        self.cpus[cpu.index()].idler = online;
    }
}
