//! Budgets and deadlines: each task may run for its budget in each period, and on all CPUs together the earliest
//! deadlines go first. What RTDS and `SCHED_DEADLINE` have in common, and how they differ.

use std::collections::BTreeSet;

use rota_sim::{CpuId, Machine, TaskId, Timer};

/// What a task may run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// In each period, in ns.
    pub budget_ns: u64,
    /// In ns.
    pub period_ns: u64,
}

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has its budget anew in each period, counted from the first, and may use it at any time. RTDS.
    Deferrable,
    /// It may never use more than its share of the time until its deadline, which begins anew when it wakes otherwise.
    /// `SCHED_DEADLINE`: Abeni and Buttazzo, *Integrating multimedia applications in hard real-time systems*, RTSS
    /// 1998.
    ConstantBandwidth,
}

#[derive(Clone, Copy, Debug)]
struct Vcpu {
    server: Server,
    left_ns: i64,
    deadline_ns: u64,
    runnable: bool,
    /// It has used up its budget, and waits for more.
    spent: bool,
    charged_ns: u64,
    /// When it ran last, or woke: of equal deadlines, who waits longest goes first.
    waits_since_ns: u64,
}

impl Vcpu {
    fn rank(&self, task: TaskId) -> Rank {
        (self.deadline_ns, self.waits_since_ns, task)
    }
}

/// Who goes first: deadline, since when it waits, task.
type Rank = (u64, u64, TaskId);

/// The timer for budgets that are due; those of CPUs have their numbers from [`CPU_KEYS`] on.
const DUE_KEY: u64 = u64::MAX;
const CPU_KEYS: u64 = 1 << 63;

/// The tasks that have a server.
pub struct Edf {
    kind: Kind,
    vcpus: Vec<Option<Vcpu>>,
    /// Those that would run and may.
    ready: BTreeSet<Rank>,
    /// On each CPU, with the timer for the end of its budget.
    running: Vec<(Option<TaskId>, Timer)>,
    /// Whose budget comes when.
    due: BTreeSet<(u64, TaskId)>,
    timer: Option<Timer>,
}

impl Edf {
    /// Without a task.
    pub fn new(kind: Kind) -> Edf {
        let (vcpus, running) = (Vec::new(), Vec::new());
        Edf { kind, vcpus, ready: BTreeSet::new(), running, due: BTreeSet::new(), timer: None }
    }

    /// Whether a timer's key is one of these.
    pub fn owns_timer(key: u64) -> bool {
        key >= CPU_KEYS
    }

    /// Whether the task has a server.
    pub fn has(&self, task: TaskId) -> bool {
        self.vcpus.get(task.index()).is_some_and(Option::is_some)
    }

    /// Makes the timers.
    pub fn start(&mut self, machine: &mut Machine) {
        self.timer = Some(machine.timer_new(machine.this_cpu(), DUE_KEY));
        for cpu in (0..machine.nr_cpus()).map(CpuId) {
            self.running.push((None, machine.timer_new(cpu, CPU_KEYS + u64::from(cpu.0))));
        }
    }

    /// A task has this server from now on.
    pub fn add(&mut self, task: TaskId, server: Server) {
        assert!(
            0 < server.budget_ns && server.budget_ns <= server.period_ns,
            "a budget fits into its period"
        );
        self.vcpus.resize(self.vcpus.len().max(task.index() + 1), None);
        self.vcpus[task.index()] = Some(Vcpu {
            server,
            left_ns: 0,
            deadline_ns: 0,
            runnable: false,
            spent: false,
            charged_ns: 0,
            waits_since_ns: 0,
        });
    }

    /// A task is over; the server that it had.
    pub fn remove(&mut self, task: TaskId) -> Server {
        let vcpu = self.vcpus[task.index()].take().expect("it was added");
        self.due.retain(|&(_, other)| other != task);
        vcpu.server
    }

    fn vcpu(&mut self, task: TaskId) -> &mut Vcpu {
        self.vcpus[task.index()].as_mut().expect("it was added")
    }

    fn runs_on(&self, machine: &Machine, task: TaskId) -> Option<CpuId> {
        let cpu = machine.task(task).cpu;
        (self.running[cpu.index()].0 == Some(task)).then_some(cpu)
    }

    /// Counts what runs on a CPU up to now.
    fn charge(&mut self, machine: &mut Machine, cpu: CpuId) {
        let Some(task) = self.running[cpu.index()].0 else { return };
        machine.settle(cpu);
        let (used_ns, kind, now_ns) = (machine.task(task).used_ns, self.kind, machine.now_ns());
        let vcpu = self.vcpu(task);
        vcpu.left_ns -= (used_ns - std::mem::replace(&mut vcpu.charged_ns, used_ns)) as i64;
        vcpu.waits_since_ns = now_ns;
        if vcpu.left_ns > 0 || vcpu.spent {
            return;
        }
        vcpu.spent = true;
        let deadline_ns = vcpu.deadline_ns;
        match kind {
            Kind::Deferrable => vcpu.left_ns = 0,
            Kind::ConstantBandwidth => {
                self.due.insert((deadline_ns, task));
                self.arm_due(machine);
            }
        }
    }

    fn arm_due(&mut self, machine: &mut Machine) {
        let (timer, this_cpu) = (self.timer.expect("it was made at the start"), machine.this_cpu());
        match self.due.first() {
            Some(&(due_ns, _)) => machine.timer_set(timer, this_cpu, due_ns),
            None => machine.timer_cancel(timer),
        }
    }

    /// A task would run from now on.
    pub fn enqueue(&mut self, machine: &mut Machine, task: TaskId) {
        let (now_ns, kind) = (machine.now_ns(), self.kind);
        let vcpu = self.vcpu(task);
        vcpu.runnable = true;
        vcpu.waits_since_ns = now_ns;
        match kind {
            Kind::Deferrable => {
                if now_ns >= vcpu.deadline_ns {
                    vcpu.begin_period(now_ns);
                }
                let deadline_ns = vcpu.deadline_ns;
                self.due.insert((deadline_ns, task));
                self.arm_due(machine);
            }
            Kind::ConstantBandwidth if !vcpu.spent && vcpu.would_use_too_much(now_ns) => {
                vcpu.deadline_ns = now_ns + vcpu.server.period_ns;
                vcpu.left_ns = vcpu.server.budget_ns as i64;
            }
            Kind::ConstantBandwidth => {}
        }
        let vcpu = *self.vcpu(task);
        if !vcpu.spent {
            self.ready.insert(vcpu.rank(task));
            self.tickle(machine, task);
        }
    }

    /// A task would not run from now on.
    pub fn dequeue(&mut self, machine: &mut Machine, task: TaskId) {
        if let Some(cpu) = self.runs_on(machine, task) {
            self.charge(machine, cpu);
        }
        let vcpu = *self.vcpu(task);
        self.ready.remove(&vcpu.rank(task));
        self.vcpu(task).runnable = false;
        if self.kind == Kind::Deferrable {
            self.due.remove(&(vcpu.deadline_ns, task));
            self.arm_due(machine);
        }
    }

    /// The task that a CPU shall run.
    pub fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        self.charge(machine, cpu);
        let current = self.running[cpu.index()].0.filter(|&task| {
            let vcpu = self.vcpus[task.index()].expect("it was added");
            vcpu.runnable && !vcpu.spent
        });
        let may_run = |&&(_, _, task): &&Rank| machine.task(task).may_run_on(cpu);
        let first = self.ready.iter().find(may_run).copied();
        let chosen = match (current, first) {
            (Some(current), Some((deadline_ns, _, _))) if self.vcpu(current).deadline_ns <= deadline_ns => {
                current
            }
            (_, Some((_, _, first))) => first,
            (Some(current), None) => current,
            (None, None) => return None,
        };
        if machine.task(chosen).cpu != cpu {
            machine.set_task_cpu(chosen, cpu);
        }
        self.arm(machine, cpu, chosen);
        Some(chosen)
    }

    /// Has the CPU decide anew when the task's budget is over.
    fn arm(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        let until_ns = machine.now_ns() + self.vcpu(task).left_ns.max(0) as u64;
        machine.timer_set(self.running[cpu.index()].1, cpu, until_ns);
    }

    /// What ran on a CPU runs there no more.
    pub fn put(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.charge(machine, cpu);
        self.running[cpu.index()].0 = None;
        machine.timer_cancel(self.running[cpu.index()].1);
        let vcpu = *self.vcpu(task);
        if vcpu.runnable && !vcpu.spent {
            self.ready.insert(vcpu.rank(task));
            self.tickle(machine, task);
        }
    }

    /// A task runs from now on.
    pub fn set(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        let used_ns = machine.task(task).used_ns;
        let vcpu = self.vcpu(task);
        vcpu.charged_ns = used_ns;
        let (rank, spent) = (vcpu.rank(task), vcpu.spent);
        self.ready.remove(&rank);
        self.running[cpu.index()].0 = Some(task);
        self.arm(machine, cpu, task);
        if spent {
            machine.resched(cpu);
        }
    }

    /// Has a CPU decide anew that should run the task: one that idles, or runs the latest deadline, or none.
    fn tickle(&mut self, machine: &mut Machine, task: TaskId) {
        let own = machine.task(task).cpu;
        let own_first =
            std::iter::once(own).chain((0..machine.nr_cpus()).map(CpuId).filter(|&cpu| cpu != own));
        let deadline_ns = self.vcpu(task).deadline_ns;
        let mut latest: Option<(u64, CpuId)> = None;
        for cpu in own_first {
            let of = machine.cpu(cpu);
            if !of.online || of.need_resched || !machine.task(task).may_run_on(cpu) {
                continue;
            }
            let Some(current) = of.current else { return machine.resched(cpu) };
            let there_ns = match self.vcpus.get(current.index()).copied().flatten() {
                Some(vcpu) => vcpu.deadline_ns,
                None if machine.task(current).realtime.is_some() => 0,
                None => u64::MAX,
            };
            if there_ns > latest.map_or(deadline_ns, |(latest_ns, _)| latest_ns) {
                latest = Some((there_ns, cpu));
            }
        }
        if let Some((_, cpu)) = latest {
            machine.resched(cpu);
        }
    }

    /// The task that runs on a CPU wants no more until its next period: what is left of its budget is lost.
    pub fn give_up(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.charge(machine, cpu);
        let vcpu = self.vcpu(task);
        if !vcpu.spent {
            vcpu.left_ns = 0;
            self.charge(machine, cpu);
        }
    }

    /// One of the timers.
    pub fn timer(&mut self, machine: &mut Machine, key: u64) {
        if key != DUE_KEY {
            let cpu = CpuId((key - CPU_KEYS) as u32);
            return machine.resched(cpu);
        }
        let now_ns = machine.now_ns();
        while let Some(&(due_ns, task)) = self.due.first().filter(|(due_ns, _)| *due_ns <= now_ns) {
            self.due.remove(&(due_ns, task));
            self.replenish(machine, task);
        }
        self.arm_due(machine);
    }

    fn replenish(&mut self, machine: &mut Machine, task: TaskId) {
        let (now_ns, kind) = (machine.now_ns(), self.kind);
        let runs = self.runs_on(machine, task);
        if let Some(cpu) = runs {
            self.charge(machine, cpu);
            self.due.retain(|&(_, other)| other != task);
        }
        let before = *self.vcpu(task);
        self.ready.remove(&before.rank(task));
        let vcpu = self.vcpu(task);
        match kind {
            Kind::Deferrable => vcpu.begin_period(now_ns),
            Kind::ConstantBandwidth => vcpu.pay_off(now_ns),
        }
        vcpu.spent = false;
        let vcpu = *vcpu;
        if kind == Kind::Deferrable {
            self.due.insert((vcpu.deadline_ns, task));
        }
        match runs {
            Some(cpu) => machine.resched(cpu),
            None if vcpu.runnable => {
                self.ready.insert(vcpu.rank(task));
                self.tickle(machine, task);
            }
            None => {}
        }
    }
}

impl Vcpu {
    /// `rt_update_deadline`: a whole budget, until the end of the present period.
    fn begin_period(&mut self, now_ns: u64) {
        let Server { budget_ns, period_ns } = self.server;
        self.deadline_ns += (now_ns.saturating_sub(self.deadline_ns) / period_ns + 1) * period_ns;
        self.left_ns = budget_ns as i64;
        self.spent = false;
    }

    /// `replenish_dl_entity`: as many budgets, with as many periods, as it takes to have something left.
    fn pay_off(&mut self, now_ns: u64) {
        let Server { budget_ns, period_ns } = self.server;
        while self.left_ns <= 0 {
            self.left_ns += budget_ns as i64;
            self.deadline_ns += period_ns;
        }
        if self.deadline_ns <= now_ns {
            self.deadline_ns = now_ns + period_ns;
            self.left_ns = budget_ns as i64;
        }
    }

    /// `dl_entity_overflow`: what is left would be more than its share of the time until its deadline.
    fn would_use_too_much(&self, now_ns: u64) -> bool {
        let Server { budget_ns, period_ns } = self.server;
        let Some(until_ns) = self.deadline_ns.checked_sub(now_ns).filter(|&until_ns| until_ns > 0) else {
            return true;
        };
        i128::from(self.left_ns) * i128::from(period_ns) > i128::from(budget_ns) * i128::from(until_ns)
    }
}
