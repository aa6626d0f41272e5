//! Preemptive multi-queue fair queuing, the centralised algorithm: the definition of what is fair, to hold other
//! policies against (Zhao et al., *Preemptive multi-queue fair queuing*, HPDC 2019, section 3; Zhao, dissertation,
//! UT Arlington 2019, section 5.3). CPU time is divided between tenants, not threads, over all CPUs, by weight.
//!
//! A thread's demand for a time quantum is a request, and has a start tag in virtual time, which is CPU time over
//! weight. The system's virtual time is the largest start tag in service, a tenant's the largest of its own. A
//! tenant that has a thread running or queued is backlogged: its requests' tags follow one another. Else its next
//! one begins at the system's virtual time. Requests are served by increasing start tags, and one that arrives with
//! a smaller tag than one in service has preempts the one with the largest. Who blocks early hands tag and quantum
//! to a queued sibling (the paper's SWITCH).
//!
//! Where the paper leaves something open:
//!
//! - What a request in service counts for. The bound, (D + 1) (l / w_f + l / w_g), has for l the minimum slice and
//!   not the quantum. So a request counts with one minimum slice when it begins, with another one each time that it
//!   is let go on, and when it ends with what it used. If nobody else's tag is smaller, its thread goes on until
//!   the quantum is over, and then a sibling's turn comes.
//! - Whom the minimum slice protects. A CPU without a use for the tenant that is behind, since that one's threads
//!   wait for each other, is lent to others. Were who borrows it sure of a slice, a program that synchronises more
//!   often than that would wait in each round, which is deceptive idleness again. So only a request that was due
//!   when it was dispatched is sure of its slice: one whose tag was no larger than any backlogged tenant's.
//! - Who comes while the tenant that is furthest ahead has nothing in service, since others are made good what they are
//!   owed. The system's virtual time has gone back then. Who began there would be owed something, too, and get ahead of
//!   that tenant by more than the bound. So it begins where the furthest backlogged tenant is.
//! - Weights that a tenant has not the threads to use. It stays behind, and would be owed more and more. Nobody is
//!   owed more than its share of [`HORIZON_NS`]: so nobody else waits for longer than that while it is made good.
//!
//! A tenant is a cgroup below the root with all that is in it. Left out: weights of threads among siblings,
//! `cpu.max`, and what one lock over all of this would cost.

mod tags;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use rota_sim::{Arrival, CgroupId, CpuId, Departure, Idle, Machine, Next, Policy, State, TaskId, Timer};

use tags::{Tag, Tags};

/// Nobody whose turn it was is preempted before: the paper's l_min. As Xen's `sched_ratelimit_us`.
pub const MIN_SLICE_NS: u64 = 1_000_000;
/// How long a thread goes on before its siblings' turn: the quantum of Rota's queues.
pub const QUANTUM_NS: u64 = 4_000_000;
/// Of how long a time a tenant may be owed its share.
pub const HORIZON_NS: u64 = 100_000_000;

/// A thread.
#[derive(Clone, Copy, Debug)]
struct Thread {
    tenant: usize,
    runnable: bool,
    /// What is left of its quantum.
    left_ns: u64,
}

/// A request in service, or one that its CPU has been told of.
#[derive(Clone, Copy, Debug)]
struct Request {
    task: TaskId,
    tenant: usize,
    /// What it counts with since `from_ns` of the thread's CPU time.
    sure_ns: u64,
    from_ns: u64,
    /// When the present slice is over, by the clock.
    until_ns: u64,
    /// Nobody may preempt it before.
    protected_until_ns: u64,
    /// It counts no more: its CPU has been told of another one.
    ended: bool,
}

/// A CPU.
#[derive(Debug)]
struct Server {
    serving: Option<Request>,
    /// What it runs next, as it has been told.
    coming: Option<Request>,
    timer: Timer,
}

/// The scheduler.
#[derive(Default)]
pub struct Mqfq {
    tags: Tags,
    /// Each tenant's threads that wait, the next one first.
    queues: Vec<VecDeque<TaskId>>,
    threads: Vec<Option<Thread>>,
    servers: Vec<Server>,
}

/// The cgroup below the root that a task is in, or the root.
fn tenant_of(machine: &Machine, task: TaskId) -> usize {
    let mut cgroup = machine.task(task).cgroup;
    while let Some(parent) = machine.cgroup(cgroup).parent.filter(|parent| *parent != CgroupId::ROOT) {
        cgroup = parent;
    }
    cgroup.index()
}

impl Mqfq {
    fn thread(&mut self, task: TaskId) -> &mut Thread {
        self.threads[task.index()].as_mut().expect("the task has come and is not over")
    }

    fn server(&mut self, cpu: CpuId) -> &mut Server {
        &mut self.servers[cpu.index()]
    }

    /// Has a request begin, with the tenant's next tag. It does not run yet.
    fn begin(&mut self, machine: &Machine, task: TaskId) -> Request {
        let tenant = self.thread(task).tenant;
        self.tags.forget(tenant, machine.nr_cpus());
        let due = self.tags.is_due(tenant);
        self.tags.begins(tenant, MIN_SLICE_NS);
        let now_ns = machine.now_ns();
        Request {
            task,
            tenant,
            sure_ns: MIN_SLICE_NS,
            from_ns: machine.task(task).used_ns,
            until_ns: now_ns + MIN_SLICE_NS,
            protected_until_ns: if due { now_ns + MIN_SLICE_NS } else { now_ns },
            ended: false,
        }
    }

    /// Counts what a CPU's request has used up to now; it is sure of nothing more.
    fn count(&mut self, machine: &mut Machine, cpu: CpuId) {
        machine.settle(cpu);
        let Some(request) = &mut self.servers[cpu.index()].serving else { return };
        let used_ns = machine.task(request.task).used_ns - request.from_ns;
        self.tags.corrects(request.tenant, request.sure_ns, used_ns);
        (request.sure_ns, request.from_ns) = (0, request.from_ns + used_ns);
        let thread = self.threads[request.task.index()].as_mut().expect("the task has come and is not over");
        // Less than half a slice is not worth a turn of its own.
        let worth_it = |left_ns: &u64| *left_ns >= MIN_SLICE_NS / 2;
        thread.left_ns = thread.left_ns.checked_sub(used_ns).filter(worth_it).unwrap_or(0);
    }

    /// A CPU's request counts no more.
    fn end(&mut self, machine: &mut Machine, cpu: CpuId) {
        self.count(machine, cpu);
        if let Some(request) = self.server(cpu).serving.as_mut().filter(|request| !request.ended) {
            request.ended = true;
            let tenant = request.tenant;
            self.tags.ends(tenant);
        }
    }

    /// Takes back what a CPU was told to run; the thread waits again, before its siblings.
    fn recall(&mut self, cpu: CpuId) {
        if let Some(request) = self.server(cpu).coming.take() {
            self.tags.corrects(request.tenant, request.sure_ns, 0);
            self.tags.ends(request.tenant);
            self.queues[request.tenant].push_front(request.task);
        }
    }

    /// Takes a thread out of its queue, or back from the CPU that was told of it.
    fn take(&mut self, task: TaskId) {
        let tenant = self.thread(task).tenant;
        let told = |server: &Server| server.coming.is_some_and(|request| request.task == task);
        if let Some(cpu) = self.servers.iter().position(told) {
            self.recall(CpuId(cpu as u32));
        }
        self.queues[tenant].retain(|other| *other != task);
    }

    /// Tenants with a thread that waits, the smallest next tag first.
    fn waiting(&self) -> Vec<(Tag, usize)> {
        let some = self.queues.iter().enumerate().filter(|(_, queue)| !queue.is_empty());
        let mut waiting: Vec<_> = some.map(|(tenant, _)| (self.tags.flows[tenant].finish, tenant)).collect();
        waiting.sort_unstable();
        waiting
    }

    /// The first thread of a tenant that waits and may run on `cpu`.
    fn first_of(&self, machine: &Machine, tenant: usize, cpu: CpuId) -> Option<TaskId> {
        self.queues[tenant].iter().copied().find(|task| machine.task(*task).may_run_on(cpu))
    }

    /// The thread with the smallest tag that waits and may run on `cpu`, with its tag.
    fn first(&self, machine: &Machine, cpu: CpuId) -> Option<(Tag, TaskId)> {
        let mut waiting = self.waiting().into_iter();
        waiting.find_map(|(tag, tenant)| Some((tag, self.first_of(machine, tenant, cpu)?)))
    }

    /// Has every thread that waits run somewhere, as long as a CPU idles or serves a larger tag. Not on `but`.
    fn place(&mut self, machine: &mut Machine, but: Option<CpuId>) {
        while let Some((task, cpu)) = self.placement(machine, but) {
            self.end(machine, cpu);
            self.take(task);
            let request = self.begin(machine, task);
            self.server(cpu).coming = Some(request);
            machine.resched(cpu);
        }
    }

    /// The next one that should run, and where.
    fn placement(&self, machine: &Machine, but: Option<CpuId>) -> Option<(TaskId, CpuId)> {
        let queued = self.queues.iter().zip(&self.tags.flows).filter(|(queue, _)| !queue.is_empty());
        let least = queued.map(|(_, flow)| flow.finish).min()?;
        let serves_larger = |&cpu: &CpuId| Some(cpu) != but && self.start_tag(cpu) > least;
        let open: Vec<CpuId> = (0..machine.nr_cpus())
            .map(CpuId)
            .filter(serves_larger)
            .filter(|&cpu| self.is_open(machine, cpu))
            .collect();
        let largest = open.iter().map(|&cpu| self.start_tag(cpu)).max()?;
        let waiting = self.waiting().into_iter().filter(|(tag, _)| *tag < largest);
        for (tag, tenant) in waiting {
            for &task in &self.queues[tenant] {
                let of = machine.task(task);
                let usable = open.iter().filter(|&&cpu| of.may_run_on(cpu) && self.start_tag(cpu) > tag);
                let best =
                    usable.max_by_key(|&&cpu| (self.start_tag(cpu), cpu == of.cpu, self.since_ns(cpu)));
                if let Some(&cpu) = best {
                    return Some((task, cpu));
                }
                if of.nr_cpus_allowed >= machine.nr_cpus() && !of.held {
                    break; // nor is there a CPU for its siblings
                }
            }
        }
        None
    }

    /// Whether a CPU may be told what to run: it idles, or its request may be preempted.
    fn is_open(&self, machine: &Machine, cpu: CpuId) -> bool {
        let of = machine.cpu(cpu);
        let server = &self.servers[cpu.index()];
        if !of.online || server.coming.is_some() {
            return false;
        }
        match (of.current, server.serving) {
            (None, _) => true,
            (Some(current), Some(request)) => {
                request.task == current && !request.ended && request.protected_until_ns <= machine.now_ns()
            }
            (Some(_), None) => false, // of a higher class
        }
    }

    /// The largest start tag of the tenant that a CPU serves; above all if it idles.
    fn start_tag(&self, cpu: CpuId) -> Tag {
        let serving = self.servers[cpu.index()].serving;
        let tag = serving.and_then(|request| self.tags.flows[request.tenant].virtual_time());
        tag.unwrap_or(Tag::MAX)
    }

    /// Of requests of one tenant, the one that began last has the largest tag.
    fn since_ns(&self, cpu: CpuId) -> u64 {
        self.servers[cpu.index()].serving.map_or(0, |request| request.until_ns)
    }

    /// What a CPU runs after a request that has ended: the smallest tag, and of equal ones the present thread's.
    fn next(&mut self, machine: &Machine, cpu: CpuId, current: Option<TaskId>) -> Option<TaskId> {
        let Some(current) = current else { return self.first(machine, cpu).map(|(_, task)| task) };
        let thread = *self.thread(current);
        self.tags.forget(thread.tenant, machine.nr_cpus());
        let mine = self.tags.flows[thread.tenant].finish;
        let sibling = self.first_of(machine, thread.tenant, cpu).filter(|_| thread.left_ns == 0);
        match self.first(machine, cpu) {
            Some((tag, other)) if tag < mine => Some(other),
            _ => Some(sibling.unwrap_or(current)),
        }
    }

    /// The thread on a CPU goes on for another slice.
    fn renew(&mut self, machine: &mut Machine, cpu: CpuId) {
        let Some(Request { task, protected_until_ns, .. }) = self.server(cpu).serving else { return };
        let thread = self.thread(task);
        if thread.left_ns == 0 {
            thread.left_ns = QUANTUM_NS;
        }
        let request = Request { protected_until_ns, ..self.begin(machine, task) };
        self.server(cpu).serving = Some(request);
        self.arm(machine, cpu);
    }

    /// The paper's SWITCH: the thread that ran on a CPU has blocked, and a sibling that waits has the rest of its
    /// slice and of its quantum.
    fn switch(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        let request = self.server(cpu).serving.filter(|request| !request.ended)?;
        let (sure_ns, left_ns) = (request.sure_ns, self.thread(request.task).left_ns);
        let used_ns = machine.task(request.task).used_ns - request.from_ns;
        let (rest_ns, left_ns) = (sure_ns.saturating_sub(used_ns), left_ns.saturating_sub(used_ns));
        if rest_ns == 0 || left_ns == 0 {
            return None;
        }
        let sibling = self.first_of(machine, request.tenant, cpu)?;
        self.take(sibling);
        self.end(machine, cpu);
        self.tags.begins(request.tenant, rest_ns);
        self.thread(sibling).left_ns = left_ns;
        let from_ns = machine.task(sibling).used_ns;
        self.server(cpu).coming = Some(Request { task: sibling, sure_ns: rest_ns, from_ns, ..request });
        Some(sibling)
    }

    fn arm(&mut self, machine: &mut Machine, cpu: CpuId) {
        let server = &self.servers[cpu.index()];
        if let Some(request) = server.serving {
            machine.timer_set(server.timer, cpu, request.until_ns);
        }
    }
}

impl Policy for Mqfq {
    fn start(&mut self, machine: &mut Machine) {
        for cpu in (0..machine.nr_cpus()).map(CpuId) {
            let timer = machine.timer_new(cpu, u64::from(cpu.0));
            self.servers.push(Server { serving: None, coming: None, timer });
        }
    }

    fn task_new(&mut self, _: &mut Machine, task: TaskId) {
        self.threads.resize(self.threads.len().max(task.index() + 1), None);
        self.threads[task.index()] = Some(Thread { tenant: 0, runnable: false, left_ns: QUANTUM_NS });
    }

    fn task_dead(&mut self, _: &mut Machine, task: TaskId) {
        self.threads[task.index()] = None;
    }

    /// Where a thread waits means nothing: there is one queue.
    fn select_cpu(&mut self, machine: &mut Machine, task: TaskId, _: Arrival) -> CpuId {
        machine.task(task).cpu
    }

    fn enqueue(&mut self, machine: &mut Machine, task: TaskId, arrival: Arrival) {
        let tenant = tenant_of(machine, task);
        let weight = machine.cgroup(CgroupId(tenant as u32)).weight;
        self.tags.flow(tenant, weight);
        self.queues.resize(self.queues.len().max(tenant + 1), VecDeque::new());
        self.tags.arrives(tenant, machine.nr_cpus());
        let thread = self.thread(task);
        (thread.tenant, thread.runnable) = (tenant, true);
        if matches!(arrival, Arrival::Woken | Arrival::New) || thread.left_ns == 0 {
            thread.left_ns = QUANTUM_NS;
        }
        self.queues[tenant].push_back(task);
        if machine.task(task).state != State::Running {
            self.place(machine, None);
        }
    }

    fn dequeue(&mut self, machine: &mut Machine, task: TaskId, _: Departure) {
        self.take(task);
        let thread = self.thread(task);
        thread.runnable = false;
        let tenant = thread.tenant;
        self.tags.departs(tenant);
        if machine.task(task).state != State::Running {
            self.place(machine, None); // a CPU may have been told to run it
        }
    }

    fn pick(&mut self, machine: &mut Machine, cpu: CpuId) -> Option<TaskId> {
        machine.settle(cpu);
        let serving = self.server(cpu).serving;
        let current = serving.map(|request| request.task).filter(|task| self.thread(*task).runnable);
        let chosen = match (self.server(cpu).coming, serving) {
            (Some(coming), _) => Some(coming.task),
            (None, Some(request))
                if current.is_some() && !request.ended && machine.now_ns() < request.until_ns =>
            {
                return current;
            }
            (None, Some(_)) if current.is_none() => self.switch(machine, cpu),
            _ => None,
        };
        let chosen = chosen.or_else(|| {
            self.end(machine, cpu);
            let next = self.next(machine, cpu, current)?;
            if Some(next) == current {
                self.renew(machine, cpu);
            } else {
                self.take(next);
                let request = self.begin(machine, next);
                self.server(cpu).coming = Some(request);
            }
            Some(next)
        })?;
        if machine.task(chosen).cpu != cpu {
            machine.set_task_cpu(chosen, cpu);
        }
        self.place(machine, Some(cpu));
        Some(chosen)
    }

    fn put_prev(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId, next: Next) {
        self.end(machine, cpu);
        self.server(cpu).serving = None;
        let timer = self.server(cpu).timer;
        machine.timer_cancel(timer);
        let Thread { tenant, runnable, left_ns } = *self.thread(task);
        match (runnable, left_ns) {
            (true, 0) => {
                self.thread(task).left_ns = QUANTUM_NS;
                self.queues[tenant].push_back(task);
            }
            (true, _) => self.queues[tenant].push_front(task),
            (false, _) => {}
        }
        if next == Next::Higher {
            self.recall(cpu);
        }
        self.place(machine, Some(cpu));
    }

    fn set_next(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        let coming = self.server(cpu).coming.take_if(|request| request.task == task);
        let request = coming.unwrap_or_else(|| {
            self.take(task); // it was only changed, and goes on
            self.begin(machine, task)
        });
        self.server(cpu).serving = Some(request);
        self.arm(machine, cpu);
    }

    /// Its siblings' turn comes, and anybody's with a smaller tag.
    fn yielded(&mut self, machine: &mut Machine, cpu: CpuId, task: TaskId) {
        self.thread(task).left_ns = 0;
        if let Some(request) = self.server(cpu).serving.as_mut() {
            request.until_ns = machine.now_ns();
        }
    }

    fn tick(&mut self, _: &mut Machine, _: CpuId, _: TaskId) {}

    /// A CPU that idled may have been told of a thread, and then have got a task of a higher class instead.
    fn idle(&mut self, machine: &mut Machine, cpu: CpuId, idle: Idle) {
        let current = machine.cpu(cpu).current;
        if idle == Idle::Leaves && current.is_some_and(|current| machine.task(current).realtime.is_some()) {
            self.recall(cpu);
            self.place(machine, Some(cpu));
        }
    }

    fn timer(&mut self, machine: &mut Machine, cpu: CpuId, _: u64) {
        machine.resched(cpu);
    }

    fn deferred(&mut self, _: &mut Machine, _: CpuId) {}

    fn hotplug(&mut self, machine: &mut Machine, cpu: CpuId, online: bool) {
        if !online {
            self.recall(cpu);
            self.place(machine, Some(cpu));
        }
    }
}
