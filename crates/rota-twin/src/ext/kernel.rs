//! The calls that a sched_ext scheduler may make, and what they are made of (`kernel/sched/ext.c`).

use rota_sim::{CpuId, CpuMask, Machine, State, TaskId};

use crate::ext::dsq::Dsq;
use crate::ext::state::{Exit, ExtState, GLOBAL, Kick, Place, flags};

/// The kernel, while a scheduler's operation runs.
pub struct Kernel<'a> {
    /// The machine.
    pub machine: &'a mut Machine,
    pub(crate) ext: &'a mut ExtState,
}

/// The tasks of a queue, one after the other; those that come in meanwhile are left out.
#[derive(Clone, Copy, Debug)]
pub struct DsqIter {
    dsq: u32,
    place: u32,
    last: Option<TaskId>,
    until: u64,
    vtime: Option<u64>,
}

/// Where a task shall go.
enum Target {
    Local(CpuId),
    Dsq(u32),
}

impl Kernel<'_> {
    /// Whether a task is on one of this class' run queues, `SCX_TASK_QUEUED`, and what is left of its slice, in ns;
    /// 0 if it has never been of this class.
    pub fn standing(&self, task: TaskId) -> (bool, u64) {
        self.ext.tasks.get(task.index()).map_or((false, 0), |task| (task.queued, task.slice_ns))
    }

    /// `scx_bpf_create_dsq`. False if there is one of that number, or it is not for schedulers to make.
    pub fn create_dsq(&mut self, id: u64) -> bool {
        if id & flags::DSQ_BUILTIN != 0 || self.ext.by_id.get(id).is_some() {
            return false;
        }
        self.ext.by_id.set(id, self.ext.dsqs.len() as u32);
        self.ext.dsqs.push(Dsq::default());
        self.ext.dsq_ids.push(id);
        true
    }

    /// `scx_bpf_dsq_nr_queued`; `None` if there is no such queue.
    pub fn dsq_nr_queued(&self, id: u64) -> Option<usize> {
        match id {
            flags::DSQ_LOCAL => Some(self.ext.rqs[self.machine.this_cpu().index()].local.len()),
            flags::DSQ_GLOBAL => Some(self.ext.dsqs[GLOBAL as usize].len()),
            _ => self.ext.by_id.get(id).map(|place| self.ext.dsqs[place as usize].len()),
        }
    }

    /// `scx_bpf_kick_cpu`: at the end of what this CPU is doing.
    pub fn kick_cpu(&mut self, cpu: CpuId, kick: u64) {
        if cpu.index() >= self.ext.rqs.len() {
            return self.ext.fail(Exit::ERROR, format!("invalid CPU {}", cpu.0));
        }
        let if_idle = kick & flags::KICK_IDLE != 0;
        if if_idle && self.machine.cpu(cpu).current.is_some() && !self.ext.rq(cpu).in_balance {
            return;
        }
        let this_cpu = self.machine.this_cpu();
        let preempt = kick & flags::KICK_PREEMPT != 0;
        self.ext.rq(this_cpu).kicks.push(Kick { cpu, if_idle, preempt });
    }

    /// `scx_bpf_pick_idle_cpu`.
    pub fn pick_idle_cpu(&mut self, allowed: &CpuMask, pick: u64) -> Option<CpuId> {
        let whole_core = pick & flags::PICK_IDLE_CORE != 0;
        self.ext.idle.pick(allowed, self.machine.this_cpu(), whole_core)
    }

    /// `scx_bpf_test_and_clear_cpu_idle`.
    pub fn test_and_clear_cpu_idle(&mut self, cpu: CpuId) -> bool {
        if cpu.index() >= self.ext.rqs.len() {
            self.ext.fail(Exit::ERROR, format!("invalid CPU {}", cpu.0));
            return false;
        }
        self.ext.idle.claim(cpu)
    }

    /// `scx_bpf_get_idle_cpumask`.
    pub fn idle_cpumask(&self) -> &CpuMask {
        self.ext.idle.cpus()
    }

    /// `bpf_cpumask_any_and_distribute`.
    pub fn any_and_distribute(&mut self, one: &CpuMask, other: &CpuMask) -> Option<CpuId> {
        self.ext.idle.distribute(one, other, self.machine.this_cpu())
    }

    /// `scx_bpf_error`: the scheduler ends.
    pub fn error(&mut self, message: String) {
        self.ext.fail(Exit::ERROR_BPF, message);
    }

    /// `scx_bpf_exit`: the scheduler ends in good order.
    pub fn exit(&mut self, code: i64, message: String) {
        self.ext.end(Exit::UNREGISTERED_BY_BPF, code, message);
    }

    /// `scx_bpf_reenqueue_local`, as it is since Linux 6.19: at the end of what this CPU is doing.
    pub fn reenqueue_local(&mut self) {
        let this_cpu = self.machine.this_cpu();
        self.ext.rq(this_cpu).queues_anew = true;
    }

    /// `scx_bpf_task_set_slice`.
    pub fn set_slice(&mut self, task: TaskId, slice_ns: u64) {
        self.ext.task(task).slice_ns = slice_ns;
    }

    /// `scx_bpf_dsq_insert`: while the task is woken or queued, or from dispatch.
    pub fn dsq_insert(&mut self, task: TaskId, dsq: u64, slice_ns: u64, enq_flags: u64) {
        self.insert(task, dsq, slice_ns, enq_flags, None);
    }

    /// `scx_bpf_dsq_insert_vtime`.
    pub fn dsq_insert_vtime(&mut self, task: TaskId, dsq: u64, slice_ns: u64, vtime: u64, enq_flags: u64) {
        if dsq & flags::DSQ_BUILTIN != 0 {
            return self.ext.fail(Exit::ERROR, "cannot use vtime ordering for built-in DSQs");
        }
        self.insert(task, dsq, slice_ns, enq_flags | BY_VTIME, Some(vtime));
    }

    fn insert(&mut self, task: TaskId, dsq: u64, slice_ns: u64, enq_flags: u64, vtime: Option<u64>) {
        let entry = self.ext.task(task);
        entry.slice_ns = if slice_ns > 0 { slice_ns } else { entry.slice_ns.max(1) };
        entry.vtime = vtime.unwrap_or(entry.vtime);
        let is_sent = entry.sent_to.is_some();
        match self.ext.sending {
            Some(sending) if sending != task => {
                let message =
                    format!("scheduling for task {} but trying to direct-dispatch {}", sending.0, task.0);
                self.ext.fail(Exit::ERROR, message);
            }
            Some(_) if is_sent => {
                self.ext.fail(Exit::ERROR, format!("task {} already direct-dispatched", task.0))
            }
            Some(_) => self.ext.task(task).sent_to = Some((dsq, enq_flags)),
            None => self.ext.buffer.push((task, dsq, enq_flags)),
        }
    }

    /// `scx_bpf_dsq_move_to_local`: from dispatch only. The first task of the queue that may run here.
    pub fn move_to_local(&mut self, dsq: u64) -> bool {
        self.flush();
        let Some(place) = self.ext.by_id.get(dsq) else {
            self.ext.fail(Exit::ERROR, format!("invalid DSQ ID {dsq:#x}"));
            return false;
        };
        let moved = self.consume(self.machine.this_cpu(), place);
        self.ext.dispatched += u32::from(moved);
        moved
    }

    /// Carries out the inserts of this run of dispatch.
    pub(crate) fn flush(&mut self) {
        if self.ext.buffer.is_empty() {
            return;
        }
        let mut buffer = std::mem::take(&mut self.ext.buffer);
        self.ext.dispatched += buffer.len() as u32;
        for (task, dsq, enq_flags) in buffer.drain(..) {
            // The scheduler may name any task; only those that it was given are its to send.
            if self.ext.task(task).place == Place::Custody {
                self.ext.task(task).place = Place::Nowhere;
                self.send(task, dsq, enq_flags);
            }
        }
        self.ext.buffer = buffer;
    }

    /// Puts a task that is in no queue where the scheduler has sent it.
    pub(crate) fn send(&mut self, task: TaskId, dsq: u64, enq_flags: u64) {
        let own = self.machine.task(task).cpu;
        match self.target(dsq, own) {
            Target::Local(cpu) if cpu != own && self.can_move(task, cpu) => {
                self.machine.set_task_cpu(task, cpu);
                self.put_local(task, enq_flags);
            }
            Target::Local(cpu) if cpu != own => {
                let message =
                    format!("SCX_DSQ_LOCAL[_ON] target CPU {} not allowed for task {}", cpu.0, task.0);
                self.ext.fail(Exit::ERROR, message);
                self.put(task, GLOBAL, 0);
            }
            Target::Local(_) => self.put_local(task, enq_flags),
            Target::Dsq(place) => self.put(task, place, enq_flags),
        }
    }

    fn target(&mut self, dsq: u64, own: CpuId) -> Target {
        if dsq == flags::DSQ_LOCAL {
            // From dispatch it is this CPU's, from a wake-up that of the task's CPU.
            let here = self.machine.this_cpu();
            return Target::Local(if self.ext.rq(here).in_balance { here } else { own });
        }
        if dsq & flags::DSQ_LOCAL_ON == flags::DSQ_LOCAL_ON {
            let cpu = CpuId(dsq as u32);
            if cpu.index() < self.ext.rqs.len() {
                return Target::Local(cpu);
            }
            self.ext.fail(Exit::ERROR, format!("invalid CPU {} in SCX_DSQ_LOCAL_ON dispatch verdict", cpu.0));
            return Target::Dsq(GLOBAL);
        }
        if dsq == flags::DSQ_GLOBAL {
            return Target::Dsq(GLOBAL);
        }
        let place = self.ext.by_id.get(dsq);
        if place.is_none() {
            self.ext.fail(Exit::ERROR, format!("non-existent DSQ {dsq:#x}"));
        }
        Target::Dsq(place.unwrap_or(GLOBAL))
    }

    /// Into the queue of the task's own CPU (`dispatch_enqueue`, `local_dsq_post_enq`).
    pub(crate) fn put_local(&mut self, task: TaskId, enq_flags: u64) {
        let cpu = self.machine.task(task).cpu;
        let preempt = enq_flags & flags::ENQ_PREEMPT != 0;
        let rq = self.ext.rq(cpu);
        rq.local.push(task, preempt || enq_flags & flags::ENQ_HEAD != 0);
        let in_balance = rq.in_balance;
        self.ext.task(task).place = Place::Local;
        if enq_flags & flags::ENQ_IMMED != 0 {
            self.ext.task(task).immediate = true;
        }
        if in_balance {
            return;
        }
        match self.machine.cpu(cpu).current {
            None => self.machine.resched(cpu),
            Some(current) if preempt && current != task && self.machine.task(current).realtime.is_none() => {
                self.ext.task(current).slice_ns = 0;
                self.machine.resched(cpu);
            }
            Some(_) => {}
        }
    }

    fn put(&mut self, task: TaskId, place: u32, enq_flags: u64) {
        let vtime = self.ext.task(task).vtime;
        let dsq = &mut self.ext.dsqs[place as usize];
        let fits = if enq_flags & BY_VTIME != 0 {
            dsq.push_by_vtime(task, vtime)
        } else {
            dsq.push(task, enq_flags & (flags::ENQ_HEAD | flags::ENQ_PREEMPT) != 0)
        };
        if !fits {
            let id = self.ext.dsq_ids[place as usize];
            self.ext.fail(Exit::ERROR, format!("DSQ ID {id:#x} already had tasks enqueued in another order"));
        }
        self.ext.task(task).place = Place::Dsq(place);
    }

    /// Whether the scheduler may bring the task to another CPU (`task_can_run_on_remote_rq`).
    fn can_move(&self, task: TaskId, cpu: CpuId) -> bool {
        self.machine.task(task).may_move_to(cpu) && self.machine.cpu(cpu).online
    }

    /// Moves the first task of a queue that may run on `cpu` there (`consume_dispatch_q`).
    pub(crate) fn consume(&mut self, cpu: CpuId, place: u32) -> bool {
        for index in 0..self.ext.dsqs[place as usize].len() {
            let Some(waiting) = self.ext.dsqs[place as usize].get(index) else { break };
            let own = self.machine.task(waiting.task).cpu;
            if own != cpu && !self.can_move(waiting.task, cpu) {
                continue;
            }
            self.ext.dsqs[place as usize].take(index);
            if own != cpu {
                self.machine.set_task_cpu(waiting.task, cpu);
            }
            self.put_local(waiting.task, 0);
            return true;
        }
        false
    }

    /// Takes a task out of whatever queue it is in.
    pub(crate) fn unqueue(&mut self, task: TaskId) {
        let cpu = self.machine.task(task).cpu;
        match std::mem::replace(&mut self.ext.task(task).place, Place::Nowhere) {
            Place::Local => {
                let rq = self.ext.rq(cpu);
                let _ = rq.local.remove(task) || rq.bypass.remove(task);
            }
            Place::Dsq(place) => {
                self.ext.dsqs[place as usize].remove(task);
            }
            Place::Custody | Place::Nowhere => {}
        }
    }

    /// `bpf_iter_scx_dsq_new`; `None` if there is no such queue.
    pub fn iterate(&self, dsq: u64) -> Option<DsqIter> {
        let place = self.ext.by_id.get(dsq)?;
        let until = self.ext.dsqs[place as usize].sequence();
        Some(DsqIter { dsq: place, place: 0, last: None, until, vtime: None })
    }

    /// `bpf_iter_scx_dsq_next`.
    pub fn iter_next(&self, iter: &mut DsqIter) -> Option<TaskId> {
        let dsq = &self.ext.dsqs[iter.dsq as usize];
        let at = dsq.get(iter.place as usize).map(|waiting| waiting.task);
        // The last one is still there unless it was moved. Then the next one is in its place, but for a move within the
        // queue to before it.
        let stays = iter.last.is_some_and(|last| {
            let is_here = self.ext.tasks[last.index()].place == Place::Dsq(iter.dsq);
            at == Some(last) || (is_here && dsq.is_before(last, iter.place as usize))
        });
        iter.place += u32::from(stays);
        while let Some(waiting) = dsq.get(iter.place as usize) {
            if waiting.sequence <= iter.until {
                iter.last = Some(waiting.task);
                return iter.last;
            }
            iter.place += 1;
        }
        None
    }

    /// `scx_bpf_dsq_move_set_vtime`: for the next move.
    pub fn iter_set_vtime(&self, iter: &mut DsqIter, vtime: u64) {
        iter.vtime = Some(vtime);
    }

    /// `scx_bpf_dsq_move`: from the queue that is gone through to another one. False if the task has left it.
    pub fn iter_move(&mut self, iter: &DsqIter, task: TaskId, dsq: u64, enq_flags: u64) -> bool {
        if self.ext.task(task).place != Place::Dsq(iter.dsq) {
            return false;
        }
        debug_assert_eq!(self.machine.task(task).state, State::Queued);
        self.unqueue(task);
        self.send(task, dsq, enq_flags);
        true
    }

    /// `scx_bpf_dsq_move_vtime`: the same into a queue that is ordered by virtual time.
    pub fn iter_move_vtime(&mut self, iter: &mut DsqIter, task: TaskId, dsq: u64, enq_flags: u64) -> bool {
        let entry = self.ext.task(task);
        if entry.place == Place::Dsq(iter.dsq) {
            entry.vtime = iter.vtime.take().unwrap_or(entry.vtime);
        }
        self.iter_move(iter, task, dsq, enq_flags | BY_VTIME)
    }
}

/// An enqueue flag of the kernel's own: ordered by virtual time.
const BY_VTIME: u64 = 1 << 57;
