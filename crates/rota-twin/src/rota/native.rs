//! The scheduler's C, compiled for this machine (`src/native`, `compile.rs`): its structures, maps and functions.
//!
//! Its variables are thread-local. What is found here is this thread's, and stays in this thread.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::ptr;

use rota_sim::fetch::fetch_bytes;
use rota_sim::{CgroupId, CpuMask, Machine, Reason, TaskId};

use crate::ext::Kernel;
use crate::rota::memory::Memory;

/// `struct task_struct`, as `kernel.bpf.h` declares it, and what is the model's, behind it. What is used most has
/// one cache line.
#[repr(C, align(64))]
pub struct TaskStruct {
    flags: u32,
    migration_disabled: u16,
    /// A read section of RCU is reported as the thread is stopped inside of it.
    rcu_special: u8,
    nr_cpus_allowed: i32,
    state: u32,
    cpus_ptr: *const CpuMask,
    scx: SchedExtEntity,
    pid: i32,
    tgid: i32,
    cgroups: *const CssSet,
    /// The value of the task storage map, or null: `bpf_helpers.h` looks here.
    value: *mut u8,
    /// The task's registers: `bpf_helpers.h` looks here.
    registers: Registers,
    /// Which task it is in the model.
    pub id: TaskId,
    /// How many of the task's changes are in here.
    changes: u32,
    /// What that is the address of, once it is made.
    storage: Option<Memory>,
}

/// `struct pt_regs`, on x86-64.
#[repr(C)]
struct Registers {
    orig_ax: u64,
    /// r15 down to di; all but ax are 0.
    others: [u64; 15],
    ip: u64,
    sp: u64,
}

/// Where `ax` is among the others.
const AX: usize = 10;

/// Where a program waits, and how much of it computes.
const SPINS_AT: u64 = 0x40_0000;
const PROGRAM_BYTES: u64 = 1 << 20;

/// A branch as a processor records it: `struct branch`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    from: u64,
    to: u64,
    flags: u64,
}

impl Branch {
    /// The branch of that number in a program.
    pub fn of(number: u64) -> Branch {
        let from = SPINS_AT + 16 * (1 + number);
        Branch { from, to: from - 16, flags: 0 }
    }
}

/// No system call.
const NO_CALL: u64 = u64::MAX;

/// The size of C's `struct task_struct`, and what is behind it.
const _: () = assert!(offset_of!(TaskStruct, value) == 56 && offset_of!(TaskStruct, registers) == 64);

/// `struct native_moment`: when and where an operation is carried out.
#[repr(C)]
pub struct Moment {
    pub now_ns: u64,
    pub cpu: u32,
}

#[repr(C)]
struct SchedExtEntity {
    flags: u32,
    weight: u32,
    slice: u64,
}

/// `struct css_set`.
#[repr(C)]
pub struct CssSet {
    dfl_cgrp: *const Cgroup,
}

/// The root's cgroup, and as many below it as may have tenants.
const CGROUP_DEPTH: usize = rota_model::config::CGROUP_LEVELS + 1;

/// `struct cgroup`.
#[repr(C)]
pub struct Cgroup {
    own: CgroupSubsysState,
    kn: *const KernfsNode,
    level: i32,
    /// From the root down to itself, as far as the scheduler looks.
    ancestors: [*const Cgroup; CGROUP_DEPTH],
    node: KernfsNode,
    set: CssSet,
}

#[repr(C)]
struct CgroupSubsysState {
    cgroup: *const Cgroup,
    parent: *const CgroupSubsysState,
}

#[repr(C)]
struct KernfsNode {
    id: u64,
}

/// `struct sched_ext_ops`.
#[repr(C)]
pub struct SchedExtOps {
    pub select_cpu: extern "C" fn(*mut TaskStruct, i32, u64) -> i32,
    pub enqueue: extern "C" fn(*mut TaskStruct, u64),
    pub dispatch: extern "C" fn(i32, *mut TaskStruct),
    pub running: extern "C" fn(*mut TaskStruct),
    pub stopping: extern "C" fn(*mut TaskStruct, bool),
    pub update_idle: Option<extern "C" fn(i32, bool)>,
    pub r#yield: Option<extern "C" fn(*mut TaskStruct, *mut TaskStruct) -> bool>,
    pub init_task: extern "C" fn(*mut TaskStruct, *mut c_void) -> i32,
    pub disable: Option<extern "C" fn(*mut TaskStruct)>,
    pub init: extern "C" fn() -> i32,
    pub exit: extern "C" fn(*mut ScxExitInfo),
    pub flags: u64,
    pub timeout_ms: u32,
}

/// `struct scx_exit_info`.
#[repr(C)]
pub struct ScxExitInfo {
    pub kind: u32,
    pub exit_code: i64,
    pub reason: *const c_char,
    pub msg: *const c_char,
}

/// `struct native_map`: where a map's values are.
#[repr(C)]
#[derive(Debug)]
pub struct NativeMap {
    pub values: *mut u8,
    pub entries: u32,
    pub value_size: u32,
}

/// A map of the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct MapDefinition {
    pub name: &'static str,
    pub map: *mut NativeMap,
    pub kind: u32,
    pub key_size: u32,
    pub value_size: u32,
}

/// `BPF_MAP_TYPE_*`.
pub mod kind {
    pub const HASH: u32 = 1;
    pub const ARRAY: u32 = 2;
    pub const PERF_EVENT_ARRAY: u32 = 4;
    pub const TASK_STORAGE: u32 = 29;
}

const TASK_INTERRUPTIBLE: u32 = 1;
const TASK_DEAD: u32 = 0x80;
const PF_KTHREAD: u32 = 0x0020_0000;
const SCX_TASK_QUEUED: u32 = 1;

type MapFound = extern "C" fn(*mut c_void, *const c_char, *mut NativeMap, u32, u32, u32);
type AddressFound = extern "C" fn(*mut c_void, *const c_char, *mut c_void, u64);

/// `struct native_code`: where the parts of the scheduler's C are.
#[repr(C)]
pub struct Parts {
    maps: unsafe extern "C" fn(*mut c_void, MapFound),
    variables: unsafe extern "C" fn(*mut c_void, AddressFound),
    programs: unsafe extern "C" fn(*mut c_void, AddressFound),
    operations: unsafe extern "C" fn() -> *const SchedExtOps,
}

/// The scheduler's C, compiled once: the scheduler, or a copy of it.
#[derive(Clone, Copy, Debug)]
pub struct Code(unsafe extern "C" fn() -> Parts);

unsafe extern "C" {
    fn native_code() -> Parts;
    fn guest_native_code() -> Parts;
}

impl Code {
    /// The scheduler as it is.
    pub const REAL: Code = Code(native_code);

    /// Guests' scheduler.
    pub const GUEST: Code = Code(guest_native_code);

    /// A copy of a scheduler.
    ///
    /// # Safety
    ///
    /// `parts` is the function `native_code` of a copy of `native.c` or `guest.c`.
    pub const unsafe fn copy(parts: unsafe extern "C" fn() -> Parts) -> Code {
        Code(parts)
    }

    fn parts(&self) -> Parts {
        // SAFETY: it returns addresses, and changes nothing.
        unsafe { (self.0)() }
    }
}

thread_local! {
    static TAKEN: Cell<bool> = const { Cell::new(false) };
}

/// Takes this thread's scheduler, of which there is one.
///
/// # Panics
///
/// If it was taken before: its variables are no longer what they were at first. A new thread has a new one.
pub fn take(code: &Code) -> &'static SchedExtOps {
    assert!(
        !TAKEN.replace(true),
        "this thread has had its scheduler; a new one begins in a new thread: crate::apart"
    );
    operations(code)
}

/// What this thread's scheduler is called by.
pub fn operations(code: &Code) -> &'static SchedExtOps {
    // SAFETY: it returns the address of this thread's variable, which is written by nobody and lives as long as the
    // thread. The reference stays in this thread: it is kept in an `Ops`, which is no `Send`.
    unsafe { &*(code.parts().operations)() }
}

fn name(text: *const c_char) -> &'static str {
    // SAFETY: the names are string literals in C.
    unsafe { CStr::from_ptr(text) }.to_str().expect("names in C are ASCII")
}

/// This thread's maps.
pub fn maps(code: &Code) -> Vec<MapDefinition> {
    extern "C" fn found(
        to: *mut c_void,
        text: *const c_char,
        map: *mut NativeMap,
        kind: u32,
        key_size: u32,
        value_size: u32,
    ) {
        // SAFETY: `to` is the vector below, borrowed by nobody else during the call.
        let list = unsafe { &mut *to.cast::<Vec<MapDefinition>>() };
        list.push(MapDefinition { name: name(text), map, kind, key_size, value_size });
    }
    let mut list: Vec<MapDefinition> = Vec::new();
    // SAFETY: it calls `found` with `list` and nothing else.
    unsafe { (code.parts().maps)((&raw mut list).cast(), found) };
    list
}

type Addresses = Vec<(&'static str, *mut c_void, u64)>;

extern "C" fn address_found(to: *mut c_void, text: *const c_char, address: *mut c_void, size: u64) {
    // SAFETY: `to` is a vector of the functions below, borrowed by nobody else during the call.
    let list = unsafe { &mut *to.cast::<Addresses>() };
    list.push((name(text), address, size));
}

/// Address and size of one of this thread's variables that the loader or the model knows.
pub fn variable(code: &Code, name: &str) -> (*mut c_void, u64) {
    let (_, address, size) =
        variables(code).into_iter().find(|found| found.0 == name).expect("a variable of native.c");
    (address, size)
}

/// All of them, with their names.
pub fn variables(code: &Code) -> Vec<(&'static str, *mut c_void, u64)> {
    let mut list: Addresses = Vec::new();
    // SAFETY: it calls `address_found` with `list` and nothing else.
    unsafe { (code.parts().variables)((&raw mut list).cast(), address_found) };
    list
}

/// Where this thread's scheduler finds when and where it is.
pub fn moment(code: &Code) -> *mut Moment {
    let (address, size) = variable(code, "native_moment");
    assert_eq!(size as usize, size_of::<Moment>());
    address.cast()
}

/// The programs that the loader runs, by name.
pub fn programs(code: &Code) -> Vec<(&'static str, extern "C" fn(*mut c_void) -> i32)> {
    let mut list: Addresses = Vec::new();
    // SAFETY: it calls `address_found` with `list` and nothing else.
    unsafe { (code.parts().programs)((&raw mut list).cast(), address_found) };
    let program = |address: *mut c_void| {
        // SAFETY: each is a function of this type: `struct native_program` in native.c.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void) -> i32>(address) }
    };
    list.into_iter().map(|(name, address, _)| (name, program(address))).collect()
}

/// The structures that the scheduler is shown instead of the kernel's, made when they are needed first and kept where
/// they are: of each task and cgroup one. Only raw pointers to them exist once they are made.
#[derive(Default)]
pub struct Shown {
    tasks: Vec<*mut TaskStruct>,
    cgroups: Vec<*mut Cgroup>,
    storage_size: usize,
    /// Loops that wait count as they do: their registers are never the same.
    pub loops_count: bool,
}

impl Shown {
    /// The value of the task storage map has `storage_size` bytes.
    pub fn new(storage_size: usize) -> Shown {
        Shown { tasks: Vec::new(), cgroups: Vec::new(), storage_size, loops_count: false }
    }

    /// What the scheduler is shown of a task, as it is now.
    pub fn task(&mut self, kernel: &Kernel<'_>, id: TaskId) -> *mut TaskStruct {
        let task = kernel.machine.task(id);
        let shown = match self.tasks.get(id.index()) {
            // SAFETY: made by `make_task` and freed with `self`; nobody holds a reference to it.
            Some(&shown) if !shown.is_null() && unsafe { (*shown).changes } == task.changes => shown,
            _ => self.show_anew(kernel.machine, id),
        };
        let (queued, slice_ns) = kernel.standing(id);
        // SAFETY: as above.
        unsafe {
            (*shown).migration_disabled = u16::from(task.held);
            (*shown).rcu_special = u8::from(task.reads_rcu);
            (*shown).scx.flags = if queued { SCX_TASK_QUEUED } else { 0 };
            (*shown).scx.slice = slice_ns;
        }
        shown
    }

    /// An interrupt finds a task in its program. A loop that waits has the same registers each time, but for one time
    /// in a hundred; and a loop that computes has others.
    pub fn interrupt(&mut self, kernel: &Kernel<'_>, id: TaskId) {
        let shown = self.task(kernel, id);
        let (task, now_ns) = (kernel.machine.task(id), kernel.machine.now_ns());
        let is_seen = task.spins()
            && !self.loops_count
            && now_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 > u64::from(u32::MAX) / 100;
        // SAFETY: as in `task`.
        unsafe {
            let registers = &mut (*shown).registers;
            registers.orig_ax = NO_CALL;
            registers.others[AX] = if is_seen { 0 } else { now_ns };
            registers.sp = u64::from(id.0);
            registers.ip =
                if task.spins() { SPINS_AT } else { SPINS_AT + PROGRAM_BYTES / 2 + now_ns % PROGRAM_BYTES };
        }
    }

    /// The same of a task that stops, and would not go on: whether it is over, changed, or blocks in a system call.
    pub fn stopping(&mut self, kernel: &Kernel<'_>, id: TaskId) -> *mut TaskStruct {
        let shown = self.task(kernel, id);
        let task = kernel.machine.task(id);
        let (state, call) = match task.blocks_for {
            Some(reason) => (TASK_INTERRUPTIBLE, call_of(reason)),
            None if task.is_over() => (TASK_DEAD, 0),
            None => (0, 0),
        };
        // SAFETY: as in `task`.
        unsafe {
            (*shown).state = state;
            (*shown).registers.orig_ax = call;
        }
        shown
    }

    /// The same with what seldom changes.
    #[cold]
    fn show_anew(&mut self, machine: &Machine, id: TaskId) -> *mut TaskStruct {
        let task = machine.task(id);
        let shown = match self.tasks.get(id.index()) {
            Some(&shown) if !shown.is_null() => shown,
            _ => self.make_task(id),
        };
        let cgroup = match self.cgroups.get(task.cgroup.index()) {
            Some(&cgroup) => cgroup,
            None => self.make_cgroups(machine, task.cgroup),
        };
        // SAFETY: as in `task`; the cgroup is made and freed likewise.
        unsafe {
            (*shown).changes = task.changes;
            (*shown).flags = if task.kernel_thread { PF_KTHREAD } else { 0 };
            (*shown).nr_cpus_allowed = task.nr_cpus_allowed as i32;
            (*shown).cpus_ptr = &raw const *task.affinity;
            (*shown).scx.weight = task.weight;
            (*shown).pid = task.pid;
            (*shown).tgid = task.unit.0 as i32 + 1;
            (*shown).cgroups = &raw const (*cgroup).set;
        }
        shown
    }

    /// The task of which this is what the scheduler is shown.
    pub fn id(shown: *const TaskStruct) -> TaskId {
        // SAFETY: the scheduler has only pointers that `task` has made, to structures that live as long as `self`.
        unsafe { (*shown).id }
    }

    fn make_task(&mut self, id: TaskId) -> *mut TaskStruct {
        if self.tasks.len() <= id.index() {
            self.tasks.resize(id.index() + 1, ptr::null_mut());
        }
        self.tasks[id.index()] = Box::into_raw(Box::new(TaskStruct {
            flags: 0,
            migration_disabled: 0,
            rcu_special: 0,
            nr_cpus_allowed: 0,
            state: 0,
            cpus_ptr: ptr::null(),
            scx: SchedExtEntity { flags: 0, weight: 0, slice: 0 },
            pid: 0,
            tgid: 0,
            id,
            cgroups: ptr::null(),
            value: ptr::null_mut(),
            registers: Registers { orig_ax: NO_CALL, others: [0; 15], ip: 0, sp: 0 },
            changes: 0,
            storage: None,
        }));
        self.tasks[id.index()]
    }

    /// All up to this one, each after its parent.
    fn make_cgroups(&mut self, machine: &Machine, cgroup: CgroupId) -> *mut Cgroup {
        while self.cgroups.len() <= cgroup.index() {
            let next = self.cgroups.len();
            let parent = machine.cgroups()[next].parent.map(|parent| self.cgroups[parent.index()]);
            // SAFETY: made before, and lives as long.
            let above = parent.map(|parent| unsafe { ((*parent).level, (*parent).ancestors) });
            let (level, ancestors) =
                above.map_or((0, [ptr::null(); CGROUP_DEPTH]), |(level, ancestors)| (level + 1, ancestors));
            let made = Box::into_raw(Box::new(Cgroup {
                own: CgroupSubsysState { cgroup: ptr::null(), parent: ptr::null() },
                kn: ptr::null(),
                level,
                ancestors,
                node: KernfsNode { id: cgroup_id(next as u32) },
                set: CssSet { dfl_cgrp: ptr::null() },
            }));
            // SAFETY: just made; the parent was made before it and lives as long.
            unsafe {
                (*made).own.cgroup = made;
                (*made).own.parent = parent.map_or(ptr::null(), |parent| &raw const (*parent).own);
                (*made).kn = &raw const (*made).node;
                (*made).set.dfl_cgrp = made;
                if let Some(own) = (*made).ancestors.get_mut((*made).level as usize) {
                    *own = made;
                }
            }
            self.cgroups.push(made);
        }
        self.cgroups[cgroup.index()]
    }

    /// The task's value of the task storage map, made if it was not yet.
    pub fn storage(&self, shown: *mut TaskStruct) -> *mut u8 {
        // SAFETY: as in `id`; C reads `value`, not while this runs, and does not know of `storage`.
        let TaskStruct { value, storage, .. } = unsafe { &mut *shown };
        *value = storage.get_or_insert_with(|| Memory::new(self.storage_size)).address();
        *value
    }

    /// Has what the scheduler will look at of a task come.
    pub fn foresee(&self, id: TaskId) {
        if let Some(&shown) = self.tasks.get(id.index()).filter(|shown| !shown.is_null()) {
            // SAFETY: as in `id`; the value is not looked at.
            fetch_bytes(unsafe { (*shown).value }, self.storage_size);
        }
    }

    /// The task is over, and so is its value of the task storage map.
    pub fn forget(&mut self, id: TaskId) {
        if let Some(&shown) = self.tasks.get(id.index()).filter(|shown| !shown.is_null()) {
            // SAFETY: as in `storage`.
            unsafe { ((*shown).value, (*shown).storage) = (ptr::null_mut(), None) };
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // SAFETY: each was made by `Box::into_raw` and is used by nobody any more.
        unsafe {
            self.tasks.iter().filter(|task| !task.is_null()).for_each(|&task| drop(Box::from_raw(task)));
            self.cgroups.iter().for_each(|&cgroup| drop(Box::from_raw(cgroup)));
        }
    }
}

/// The number of a system call, on x86-64, in which a thread waits for that.
fn call_of(reason: Reason) -> u64 {
    match reason {
        Reason::Others => 202,   // futex
        Reason::Devices => 232,  // epoll_wait
        Reason::Time => 230,     // clock_nanosleep
        Reason::Interrupt => 16, // ioctl
        Reason::Unknown => 34,   // pause
    }
}

/// A cgroup's id in the kernel.
pub fn cgroup_id(number: u32) -> u64 {
    u64::from(number) + 1
}

/// The cgroup that has this id.
pub fn cgroup_number(id: u64) -> CgroupId {
    CgroupId((id - 1) as u32)
}
