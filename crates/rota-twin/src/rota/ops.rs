//! The scheduler's operations: its C functions, called with the model in the kernel's place.

use std::ffi::{CString, c_void};
use std::ptr;

use rota_sim::{CpuId, Machine, TaskId, Timer};

use crate::ext::{Exit, Kernel, Ops};
use crate::rota::calls::enter;
use crate::rota::instance::Instance;
use crate::rota::maps::Maps;
use crate::rota::native::{Moment, NativeMap, SchedExtOps, ScxExitInfo, Shown, TaskStruct};

/// A timer of the scheduler: where it is, and what it calls.
struct NativeTimer {
    timer: Timer,
    map: *const NativeMap,
    value: *mut u8,
    key: u32,
    callback: Option<extern "C" fn(*const NativeMap, *mut u32, *mut u8) -> i32>,
}

/// What the scheduler's C works on.
pub struct Model {
    pub maps: Maps,
    pub shown: Shown,
    /// What it was shown of a CPU's times last.
    pub cpustat: [u64; 10],
    /// The machine's processor records branches and counts misses: on each CPU, so many so far.
    pub misses: Option<Vec<u64>>,
    /// Where the scheduler finds when and where it is.
    moment: *mut Moment,
    /// Whose scheduler it is, if this thread has several of its kind.
    pub instance: Option<Instance>,
    timers: Vec<NativeTimer>,
}

impl Model {
    pub fn new(moment: *mut Moment, maps: Maps) -> Model {
        let shown = Shown::new(maps.storage_size);
        Model { maps, shown, cpustat: [0; 10], misses: None, moment, instance: None, timers: Vec::new() }
    }

    /// An operation begins, here and now. A kernel's clock is never 0, which the scheduler takes for never.
    pub fn begin(&mut self, machine: &Machine) {
        if let Some(instance) = &self.instance {
            instance.enter();
        }
        // SAFETY: a variable of this thread's scheduler, which nobody holds a reference to.
        unsafe { self.moment.write(Moment { now_ns: machine.now_ns().max(1), cpu: machine.this_cpu().0 }) };
    }

    /// What the scheduler is shown of a task.
    pub fn show(&mut self, kernel: &Kernel<'_>, task: TaskId) -> *mut TaskStruct {
        self.shown.task(kernel, task)
    }

    /// A timer in an entry of an array; its number.
    pub fn timer_init(
        &mut self,
        kernel: &mut Kernel<'_>,
        map: *const NativeMap,
        timer: *const u8,
    ) -> Option<u64> {
        let (value, key) = self.maps.entry_at(map, timer)?;
        let number = self.timers.len() as u64;
        let cpu = kernel.machine.this_cpu();
        let timer = kernel.machine.timer_new(cpu, number);
        self.timers.push(NativeTimer { timer, map, value, key, callback: None });
        Some(number)
    }

    /// What a timer calls.
    pub fn timer_callback(&mut self, key: u64, callback: *const c_void) {
        // SAFETY: the scheduler passes a function of this type: the kernel's verifier sees to that.
        let callback = unsafe {
            std::mem::transmute::<*const c_void, extern "C" fn(*const NativeMap, *mut u32, *mut u8) -> i32>(
                callback,
            )
        };
        self.timers[key as usize].callback = Some(callback);
    }

    /// Has a timer fire on this CPU.
    pub fn timer_start(&mut self, kernel: &mut Kernel<'_>, key: u64, at_ns: u64) {
        let cpu = kernel.machine.this_cpu();
        kernel.machine.timer_set(self.timers[key as usize].timer, cpu, at_ns);
    }
}

/// Rota's scheduler as [`Ops`], with its loader if that is told what to do from outside.
pub struct NativeOps<L = ()> {
    ops: &'static SchedExtOps,
    pub(crate) model: Model,
    pub(crate) loader: L,
}

impl<L> NativeOps<L> {
    pub fn new(ops: &'static SchedExtOps, moment: *mut Moment, maps: Maps, loader: L) -> NativeOps<L> {
        NativeOps { ops, model: Model::new(moment, maps), loader }
    }
}

impl<L> Ops for NativeOps<L> {
    fn flags(&self) -> u64 {
        self.ops.flags
    }

    fn timeout_ns(&self) -> u64 {
        u64::from(self.ops.timeout_ms) * 1_000_000
    }

    fn init(&mut self, kernel: &mut Kernel<'_>) -> Result<(), i32> {
        outcome(enter(kernel, &mut self.model, || (self.ops.init)()))
    }

    fn init_task(&mut self, kernel: &mut Kernel<'_>, task: TaskId) -> Result<(), i32> {
        let shown = self.model.show(kernel, task);
        outcome(enter(kernel, &mut self.model, || (self.ops.init_task)(shown, ptr::null_mut())))
    }

    fn disable(&mut self, kernel: &mut Kernel<'_>, task: TaskId) {
        let Some(disable) = self.ops.disable else { return };
        let shown = self.model.show(kernel, task);
        enter(kernel, &mut self.model, || disable(shown));
    }

    fn exit_task(&mut self, _: &mut Kernel<'_>, task: TaskId) {
        self.model.shown.forget(task);
    }

    fn select_cpu(&mut self, kernel: &mut Kernel<'_>, task: TaskId, prev: CpuId, wake_flags: u64) -> CpuId {
        let shown = self.model.show(kernel, task);
        CpuId(
            enter(kernel, &mut self.model, || (self.ops.select_cpu)(shown, prev.0 as i32, wake_flags)) as u32
        )
    }

    fn enqueue(&mut self, kernel: &mut Kernel<'_>, task: TaskId, enq_flags: u64) {
        let shown = self.model.show(kernel, task);
        enter(kernel, &mut self.model, || (self.ops.enqueue)(shown, enq_flags));
    }

    fn dispatch(&mut self, kernel: &mut Kernel<'_>, cpu: CpuId, prev: Option<TaskId>) {
        let shown = prev.map_or(ptr::null_mut(), |prev| self.model.show(kernel, prev));
        enter(kernel, &mut self.model, || (self.ops.dispatch)(cpu.0 as i32, shown));
    }

    fn running(&mut self, kernel: &mut Kernel<'_>, task: TaskId) {
        let shown = self.model.show(kernel, task);
        enter(kernel, &mut self.model, || (self.ops.running)(shown));
    }

    fn stopping(&mut self, kernel: &mut Kernel<'_>, task: TaskId, runnable: bool) {
        let shown = match runnable {
            true => self.model.show(kernel, task),
            false => self.model.shown.stopping(kernel, task),
        };
        enter(kernel, &mut self.model, || (self.ops.stopping)(shown, runnable));
    }

    fn update_idle(&mut self, kernel: &mut Kernel<'_>, cpu: CpuId, idle: bool) {
        let Some(update_idle) = self.ops.update_idle else { return };
        enter(kernel, &mut self.model, || update_idle(cpu.0 as i32, idle));
    }

    fn yields(&mut self, kernel: &mut Kernel<'_>, task: TaskId) {
        let Some(yields) = self.ops.r#yield else { return kernel.set_slice(task, 0) };
        let shown = self.model.show(kernel, task);
        enter(kernel, &mut self.model, || yields(shown, ptr::null_mut()));
    }

    fn timer(&mut self, kernel: &mut Kernel<'_>, key: u64) {
        let NativeTimer { map, value, mut key, callback, .. } = self.model.timers[key as usize];
        let callback = callback.expect("a timer that is started has a callback");
        let this_cpu = kernel.machine.this_cpu();
        if let Some(task) = kernel.machine.cpu(this_cpu).current {
            self.model.shown.interrupt(kernel, task);
        }
        enter(kernel, &mut self.model, || callback(map, &raw mut key, value));
    }

    fn foresee(&self, cpu: CpuId, task: Option<TaskId>) {
        self.model.maps.foresee_cpu(cpu.0);
        if let Some(task) = task {
            self.model.shown.foresee(task);
        }
    }

    fn exit(&mut self, kernel: &mut Kernel<'_>, exit: &Exit) {
        let text = |text: &str| CString::new(text).expect("no message has a zero in it");
        let (reason, message) = (text(exit.reason), text(&exit.message));
        let (reason, msg) = (reason.as_ptr(), message.as_ptr());
        let mut info = ScxExitInfo { kind: exit.kind, exit_code: exit.code, reason, msg };
        enter(kernel, &mut self.model, || (self.ops.exit)(&raw mut info));
    }
}

fn outcome(error: i32) -> Result<(), i32> {
    if error == 0 { Ok(()) } else { Err(error) }
}
