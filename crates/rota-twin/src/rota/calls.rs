//! The kernel's calls, for the scheduler's C: each finds the [`Kernel`] of the operation that makes it and passes it
//! on.
//!
//! Every function here is declared in `kernel.bpf.h` or in `src/native/bpf`. One that is missing is found by the
//! linker.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use rota_sched::NR_MISSES;
use rota_sim::{CpuId, CpuMask, TaskId};

use crate::ext::{DsqIter, Kernel};
use crate::rota::native::{Branch, NativeMap, Shown, TaskStruct};
use crate::rota::ops::Model;

/// What the calls of one operation work on.
pub struct Context<'a, 'k> {
    pub kernel: &'a mut Kernel<'k>,
    pub model: &'a mut Model,
}

thread_local! {
    static CONTEXT: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
}

/// Runs `call`, which is or makes calls of the scheduler's C, with `kernel` for what that calls in turn.
pub fn enter<T>(kernel: &mut Kernel<'_>, model: &mut Model, call: impl FnOnce() -> T) -> T {
    model.begin(kernel.machine);
    let mut context = Context { kernel, model };
    let before = CONTEXT.replace((&raw mut context).cast());
    assert!(before.is_null(), "an operation within an operation");
    let result = call();
    CONTEXT.set(ptr::null_mut());
    result
}

/// The context of the operation that is being run.
pub fn context<'a>() -> &'a mut Context<'a, 'a> {
    let context: *mut Context<'_, '_> = CONTEXT.get().cast();
    assert!(!context.is_null(), "a call outside of any operation");
    // SAFETY: set by `enter`, whose caller waits for the operation to end and touches nothing of it. Each call below
    // takes it once and calls nothing that takes it again, so there is one reference at a time.
    unsafe { &mut *context }
}

/// The task that the scheduler means.
fn id(task: *const TaskStruct) -> TaskId {
    Shown::id(task)
}

impl Context<'_, '_> {
    fn show(&mut self, task: TaskId) -> *mut TaskStruct {
        self.model.show(self.kernel, task)
    }
}

const EINVAL: i32 = 22;
const EBUSY: i32 = 16;

#[unsafe(no_mangle)]
extern "C" fn bpf_get_current_task_btf() -> *mut TaskStruct {
    let context = context();
    let cpu = context.kernel.machine.this_cpu();
    match context.kernel.machine.cpu(cpu).current {
        Some(task) => context.show(task),
        None => ptr::null_mut(), // the idle task, which is no other
    }
}

#[unsafe(no_mangle)]
extern "C" fn native_storage_new(task: *mut TaskStruct) -> *mut u8 {
    context().model.shown.storage(task)
}

#[unsafe(no_mangle)]
extern "C" fn native_hash_find(map: *const NativeMap, key: *const u8) -> *mut u8 {
    // SAFETY: the macro `bpf_map_lookup_elem` passes a map and the address of a key of its type.
    unsafe { context().model.maps.find(map, key) }
}

/// `struct kernel_cpustat` of a CPU: soft interrupts, interrupts and steal are its elements 3, 4 and 7.
#[unsafe(no_mangle)]
extern "C" fn native_cpustat(cpu: u32) -> *const [u64; 10] {
    let context = context();
    if cpu >= context.kernel.machine.nr_cpus() {
        return ptr::null();
    }
    let [interrupt, soft, steal] = context.kernel.machine.cpu(CpuId(cpu)).stolen_ns;
    context.model.cpustat = [0, 0, 0, soft, interrupt, 0, 0, steal, 0, 0];
    &raw const context.model.cpustat
}

#[unsafe(no_mangle)]
extern "C" fn bpf_timer_init(timer: *mut u64, map: *const NativeMap, _: u64) -> i64 {
    let context = context();
    match context.model.timer_init(context.kernel, map, timer.cast()) {
        // SAFETY: the scheduler passes a `struct bpf_timer`, which has 16 bytes for us.
        Some(key) => unsafe { *timer = key + 1 },
        None => return -i64::from(EINVAL),
    }
    0
}

/// The number that `bpf_timer_init` has given to a timer.
fn timer_key(timer: *const u64) -> Option<u64> {
    // SAFETY: as above.
    unsafe { *timer }.checked_sub(1)
}

#[unsafe(no_mangle)]
extern "C" fn bpf_timer_set_callback(timer: *const u64, callback: *const c_void) -> i64 {
    let Some(key) = timer_key(timer) else { return -i64::from(EINVAL) };
    context().model.timer_callback(key, callback);
    0
}

#[unsafe(no_mangle)]
extern "C" fn bpf_timer_start(timer: *const u64, at_ns: u64, flags: u64) -> i64 {
    let Some(key) = timer_key(timer) else { return -i64::from(EINVAL) };
    let context = context();
    assert_eq!(flags, 3, "the model has timers at an absolute time, on the CPU that sets them");
    context.model.timer_start(context.kernel, key, at_ns);
    0
}

const ENOENT: i64 = 2;

/// The task on this CPU, and whether it waits busily.
fn present(kernel: &Kernel<'_>) -> (u64, bool) {
    let cpu = kernel.machine.this_cpu();
    let current = kernel.machine.cpu(cpu).current;
    current.map_or((0, false), |task| (u64::from(task.0), kernel.machine.task(task).spins()))
}

/// A task that computes misses caches as programs do (Huang et al., section 3.2), or none: then its branches differ. A
/// task that waits busily misses none. Both of a CPU's events count the same.
#[unsafe(no_mangle)]
extern "C" fn bpf_perf_event_read(_: *const NativeMap, entry: u64) -> i64 {
    const MISSES: u64 = 6_667;
    let context = context();
    let (task, spins) = present(context.kernel);
    let Some(counts) = &mut context.model.misses else { return -ENOENT };
    let cpu = entry as usize / NR_MISSES;
    counts.resize(counts.len().max(cpu + 1), 0);
    counts[cpu] += if spins || task % 2 == 0 { 0 } else { MISSES };
    counts[cpu] as i64
}

/// A loop that waits has one to four branches. So has a task that computes and misses caches.
#[unsafe(no_mangle)]
extern "C" fn bpf_get_branch_snapshot(entries: *mut Branch, size: u32, _: u64) -> i64 {
    let context = context();
    if context.model.misses.is_none() {
        return -ENOENT;
    }
    let (task, spins) = present(context.kernel);
    let length = if spins || task % 2 == 1 { 1 + task / 2 % 4 } else { u64::MAX };
    for number in 0..u64::from(size) / size_of::<Branch>() as u64 {
        // SAFETY: the scheduler's own array, of `size` bytes.
        unsafe { entries.add(number as usize).write(Branch::of(number % length)) };
    }
    i64::from(size)
}

#[unsafe(no_mangle)]
extern "C" fn bpf_probe_read_kernel_str(to: *mut u8, size: u32, from: *const c_char) -> i64 {
    if from.is_null() || size == 0 {
        return -i64::from(EINVAL);
    }
    // SAFETY: the model's own text, and a buffer of the scheduler's of `size` bytes.
    unsafe {
        let text = CStr::from_ptr(from).to_bytes();
        let length = text.len().min(size as usize - 1);
        ptr::copy_nonoverlapping(text.as_ptr(), to, length);
        *to.add(length) = 0;
        length as i64 + 1
    }
}

// One CPU of the model runs at a time, and nothing interrupts it.
#[unsafe(no_mangle)]
extern "C" fn bpf_rcu_read_lock() {}
#[unsafe(no_mangle)]
extern "C" fn bpf_rcu_read_unlock() {}
#[unsafe(no_mangle)]
extern "C" fn bpf_preempt_disable() {}
#[unsafe(no_mangle)]
extern "C" fn bpf_preempt_enable() {}

#[unsafe(no_mangle)]
extern "C" fn bpf_cpumask_create() -> *mut CpuMask {
    let cpus = context().kernel.machine.nr_cpus();
    Box::into_raw(Box::new(CpuMask::none(cpus)))
}

#[unsafe(no_mangle)]
extern "C" fn bpf_cpumask_release(mask: *mut CpuMask) {
    // SAFETY: made by `bpf_cpumask_create`, and released once: the kernel's verifier sees to that.
    drop(unsafe { Box::from_raw(mask) });
}

#[unsafe(no_mangle)]
extern "C" fn bpf_cpumask_set_cpu(cpu: u32, mask: *mut CpuMask) {
    // SAFETY: as above; no other reference to it is alive.
    unsafe { &mut *mask }.set(CpuId(cpu), true);
}

#[unsafe(no_mangle)]
extern "C" fn bpf_cpumask_test_cpu(cpu: u32, mask: *const CpuMask) -> bool {
    // SAFETY: one that the scheduler has made, or a task's.
    unsafe { &*mask }.has(CpuId(cpu))
}

#[unsafe(no_mangle)]
extern "C" fn bpf_cpumask_and(both: *mut CpuMask, a: *const CpuMask, b: *const CpuMask) -> bool {
    // SAFETY: `both` is one that the scheduler has made, and neither of the others, which are that or a task's.
    unsafe { (*both).set_common(&*a, &*b) };
    // SAFETY: as above.
    unsafe { (*both).first() }.is_some()
}

#[unsafe(no_mangle)]
extern "C" fn bpf_cpumask_subset(part: *const CpuMask, whole: *const CpuMask) -> bool {
    // SAFETY: as above.
    unsafe { (*whole).holds(&*part) }
}

#[unsafe(no_mangle)]
extern "C" fn bpf_cpumask_intersects(a: *const CpuMask, b: *const CpuMask) -> bool {
    // SAFETY: as above.
    unsafe { (*a).meets(&*b) }
}

#[unsafe(no_mangle)]
extern "C" fn bpf_cpumask_any_and_distribute(a: *const CpuMask, b: *const CpuMask) -> u32 {
    // SAFETY: as above.
    let common = context().kernel.any_and_distribute(unsafe { &*a }, unsafe { &*b });
    common.map_or(u32::MAX, |cpu| cpu.0)
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_get_online_cpumask() -> *const CpuMask {
    let machine = &context().kernel.machine;
    let online = (0..machine.nr_cpus()).map(CpuId).filter(|&cpu| machine.cpu(cpu).online);
    Box::into_raw(Box::new(CpuMask::of(machine.nr_cpus(), online)))
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_put_cpumask(mask: *const CpuMask) {
    // SAFETY: made by `scx_bpf_get_online_cpumask`, and put once: the kernel's verifier sees to that.
    drop(unsafe { Box::from_raw(mask.cast_mut()) });
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_get_idle_cpumask() -> *const CpuMask {
    context().kernel.idle_cpumask()
}

/// The mask is the kernel's own.
#[unsafe(no_mangle)]
extern "C" fn scx_bpf_put_idle_cpumask(_: *const CpuMask) {}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_create_dsq(dsq: u64, _: i32) -> i32 {
    if context().kernel.create_dsq(dsq) { 0 } else { -EINVAL }
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_nr_queued(dsq: u64) -> i32 {
    context().kernel.dsq_nr_queued(dsq).map_or(-2, |count| count as i32)
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_kick_cpu(cpu: i32, flags: u64) {
    context().kernel.kick_cpu(CpuId(cpu as u32), flags);
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_pick_idle_cpu(allowed: *const CpuMask, flags: u64) -> i32 {
    // SAFETY: one that the scheduler has made, or a task's.
    let picked = context().kernel.pick_idle_cpu(unsafe { &*allowed }, flags);
    picked.map_or(-EBUSY, |cpu| cpu.0 as i32)
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_test_and_clear_cpu_idle(cpu: i32) -> bool {
    context().kernel.test_and_clear_cpu_idle(CpuId(cpu as u32))
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_task_cpu(task: *const TaskStruct) -> i32 {
    context().kernel.machine.task(id(task)).cpu.0 as i32
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_error_bstr(format: *const c_char, data: *const u64, _: u32) {
    // SAFETY: `scx_fail` passes a text with one %llu, and one number for it.
    let (text, number) = unsafe { (CStr::from_ptr(format).to_string_lossy(), *data) };
    context().kernel.error(text.replace("%llu", &number.to_string()));
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_exit_bstr(code: i64, text: *const c_char, _: *const u64, _: u32) {
    // SAFETY: `scx_end` passes a text.
    let text = unsafe { CStr::from_ptr(text).to_string_lossy() };
    context().kernel.exit(code, text.into_owned());
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_reenqueue_local___v2___compat() {
    context().kernel.reenqueue_local();
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_task_set_slice___v2(task: *const TaskStruct, slice_ns: u64) -> bool {
    context().kernel.set_slice(id(task), slice_ns);
    true
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_insert___v2___compat(
    task: *const TaskStruct,
    dsq: u64,
    slice_ns: u64,
    enq_flags: u64,
) -> bool {
    context().kernel.dsq_insert(id(task), dsq, slice_ns, enq_flags);
    true
}

/// `struct scx_bpf_dsq_insert_vtime_args`.
#[repr(C)]
struct InsertVtimeArgs {
    dsq: u64,
    slice_ns: u64,
    vtime: u64,
    enq_flags: u64,
}

#[unsafe(no_mangle)]
extern "C" fn __scx_bpf_dsq_insert_vtime(task: *const TaskStruct, args: &InsertVtimeArgs) -> bool {
    context().kernel.dsq_insert_vtime(id(task), args.dsq, args.slice_ns, args.vtime, args.enq_flags);
    true
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_move_to_local___v2(dsq: u64, _: u64) -> bool {
    context().kernel.move_to_local(dsq)
}

/// `struct bpf_iter_scx_dsq` has 48 bytes for what an iterator remembers.
const _: () = assert!(size_of::<Option<DsqIter>>() <= 48 && align_of::<Option<DsqIter>>() <= 8);

#[unsafe(no_mangle)]
extern "C" fn bpf_iter_scx_dsq_new(iter: *mut Option<DsqIter>, dsq: u64, _: u64) -> i32 {
    let begun = context().kernel.iterate(dsq);
    let result = if begun.is_some() { 0 } else { -2 };
    // SAFETY: the scheduler's iterator, which has not been begun.
    unsafe { iter.write(begun) };
    result
}

#[unsafe(no_mangle)]
extern "C" fn bpf_iter_scx_dsq_next(iter: &mut Option<DsqIter>) -> *mut TaskStruct {
    let context = context();
    let next = iter.as_mut().and_then(|iter| context.kernel.iter_next(iter));
    next.map_or(ptr::null_mut(), |task| context.show(task))
}

#[unsafe(no_mangle)]
extern "C" fn bpf_iter_scx_dsq_destroy(_: *mut Option<DsqIter>) {}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_move_set_vtime(iter: &mut Option<DsqIter>, vtime: u64) {
    if let Some(iter) = iter {
        context().kernel.iter_set_vtime(iter, vtime);
    }
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_move(
    iter: &mut Option<DsqIter>,
    task: *const TaskStruct,
    dsq: u64,
    enq_flags: u64,
) -> bool {
    let Some(iter) = iter else { return false };
    context().kernel.iter_move(iter, id(task), dsq, enq_flags)
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_move_vtime(
    iter: &mut Option<DsqIter>,
    task: *const TaskStruct,
    dsq: u64,
    enq_flags: u64,
) -> bool {
    let Some(iter) = iter else { return false };
    context().kernel.iter_move_vtime(iter, id(task), dsq, enq_flags)
}
