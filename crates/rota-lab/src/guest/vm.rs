//! A virtual machine that does nothing but count: real vCPU threads, under KVM, for a scheduler to be seen with.
//!
//! Each vCPU runs a loop of real-mode instructions that counts in the guest's memory and now and then exits to its
//! thread, which carries the name that QEMU would give it. The calling thread is the monitor's own: it wakes up all
//! the time, as a monitor with devices does. In another loop vCPUs take turns, and wait for theirs busily. As they wait
//! they ask KVM for the vCPU whose turn it is (`KVM_HC_SCHED_YIELD`). KVM does then what it does when a processor tells
//! it of a loop with `pause`, which emulated ones do not.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use serde::Serialize;

use super::clock::now_ns;

const MEMORY_BYTES: usize = 0x4000;
/// Where the loop is, and the vCPUs' counters, one a cache line.
const CODE: usize = 0x1000;
const COUNTERS: usize = 0x2000;
const COUNTER_BYTES: usize = 64;
/// The counters have two pages.
const VCPUS_MAX: u8 = 128;
/// Between two exits with more time than this a vCPU has waited for a CPU.
const RUN_MAX_NS: u64 = 3_000_000;
const MONITOR_PERIOD: Duration = Duration::from_millis(10);

/// A vCPU has counted as far as its program does at once, and says so at this port.
const COUNTED: u16 = 0x10;

/// What all vCPUs of a machine do.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// They count.
    Count,
    /// They count by turns, and wait for theirs busily.
    TakeTurns,
}

impl Program {
    /// Instructions for a vCPU with its counter at [di], its number in si, and the next one's in dx.
    fn code(self) -> &'static [u8] {
        match self {
            Program::Count => &COUNT,
            Program::TakeTurns => &TAKE_TURNS,
        }
    }

    /// How often a vCPU counts before it exits. In the emulator that takes 1 ms to count, and 0.25 ms to take turns.
    fn counts_per_exit(self) -> u64 {
        match self {
            Program::Count => 1 << 16,
            Program::TakeTurns => 1 << 14,
        }
    }
}

/// Counts 65,536 times, then exits by writing to a port, for ever.
#[rustfmt::skip]
const COUNT: [u8; 12] = [
    0x31, 0xc9,             // again: xor cx, cx
    0x66, 0x83, 0x05, 0x01, // next:  add dword [di], 1
    0xe2, 0xfa,             //        loop next
    0xe6, 0x10,             //        out 0x10, al
    0xeb, 0xf4,             //        jmp again
];

/// Looks 2,000 times whether it is its turn, at 0x1800. Then it asks KVM for the vCPU whose turn it is, and exits, so
/// that it can be told to stop. In its turn it counts 16,384 times, and then it is the next one's.
#[rustfmt::skip]
const TAKE_TURNS: [u8; 49] = [
    0xb9, 0xd0, 0x07,                   // again: mov cx, 2000
    0xf3, 0x90,                         // wait:  pause
    0x39, 0x36, 0x00, 0x18,             //        cmp [0x1800], si
    0x74, 0x14,                         //        je turn
    0xe2, 0xf6,                         //        loop wait
    0x66, 0xb8, 0x0b, 0x00, 0x00, 0x00, //        mov eax, 11: KVM_HC_SCHED_YIELD
    0x66, 0x8b, 0x1e, 0x00, 0x18,       //        mov ebx, [0x1800]
    0x0f, 0x01, 0xd9,                   //        vmmcall
    0xe6, 0x11,                         //        out 0x11, al
    0xeb, 0xe1,                         //        jmp again
    0xb9, 0x00, 0x40,                   // turn:  mov cx, 16384
    0x66, 0x83, 0x05, 0x01,             // next:  add dword [di], 1
    0xe2, 0xfa,                         //        loop next
    0x66, 0x89, 0x16, 0x00, 0x18,       //        mov [0x1800], edx
    0xe6, 0x10,                         //        out 0x10, al
    0xeb, 0xcf,                         //        jmp again
];

/// What one vCPU has done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Work {
    /// Exits to its thread.
    pub exits: u64,
    /// What it has counted.
    pub counts: u64,
    /// The part of its time on a CPU in which all other vCPUs had one too, 0 to 1, as far as exits tell.
    pub together: f64,
}

/// Runs a virtual machine of `vcpus` (1 ..= 128) for `time`, and says what each has done.
///
/// # Errors
///
/// Without a usable `/dev/kvm`, and if a vCPU does what it should not.
pub fn run(program: Program, vcpus: u8, time: Duration) -> Result<Vec<Work>> {
    ensure!((1..=VCPUS_MAX).contains(&vcpus), "{vcpus} vCPUs: it can have 1 to {VCPUS_MAX}");
    let kvm = Kvm::new().context("cannot open /dev/kvm; load the module kvm-amd or kvm-intel")?;
    let vm = kvm.create_vm().context("KVM does not create a virtual machine")?;
    // With a local APIC for each vCPU, by the number of which others ask for it.
    vm.create_irq_chip().context("KVM does not emulate interrupt controllers")?;
    let memory = Memory::new(&vm, program.code())?;
    let machine: Vec<VcpuFd> = (0..vcpus).map(|index| vcpu(&vm, index, vcpus)).collect::<Result<_>>()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, mut vcpu) in machine.into_iter().enumerate() {
            let (stop, counter) = (&stop, memory.counter(index));
            let thread = thread::Builder::new().name(format!("CPU {index}/KVM"));
            threads.push(thread.spawn_scoped(scope, move || work(&mut vcpu, program, counter, stop))?);
        }
        let end = Instant::now() + time;
        while Instant::now() < end && !threads.iter().all(|thread| thread.is_finished()) {
            thread::sleep(MONITOR_PERIOD);
        }
        stop.store(true, Ordering::Relaxed);
        let joined = threads.into_iter().map(|thread| thread.join().expect("a vCPU thread does not panic"));
        let done: Vec<(u64, Vec<Range<u64>>)> = joined.collect::<Result<_>>()?;
        let runs: Vec<&[Range<u64>]> = done.iter().map(|(_, runs)| &runs[..]).collect();
        let all = runs.iter().skip(1).fold(runs[0].to_vec(), |all, of| common(&all, of));
        let work = |(exits, runs): &(u64, Vec<Range<u64>>)| Work {
            exits: *exits,
            counts: exits * program.counts_per_exit(),
            together: total(&all) as f64 / total(runs).max(1) as f64,
        };
        Ok(done.iter().map(work).collect())
    })
}

/// A vCPU about to begin the loop.
fn vcpu(vm: &VmFd, index: u8, vcpus: u8) -> Result<VcpuFd> {
    let vcpu =
        vm.create_vcpu(u64::from(index)).with_context(|| format!("KVM does not create vCPU {index}"))?;
    let mut segments = vcpu.get_sregs()?;
    segments.cs.base = 0;
    segments.cs.selector = 0;
    vcpu.set_sregs(&segments)?;
    let mut registers = vcpu.get_regs()?;
    registers.rip = CODE as u64;
    registers.rdi = (COUNTERS + usize::from(index) * COUNTER_BYTES) as u64;
    registers.rsi = u64::from(index);
    registers.rdx = u64::from((index + 1) % vcpus);
    registers.rflags = 2;
    vcpu.set_regs(&registers)?;
    // All but the first would wait to be started by another one.
    vcpu.set_mp_state(kvm_bindings::kvm_mp_state { mp_state: kvm_bindings::KVM_MP_STATE_RUNNABLE })?;
    Ok(vcpu)
}

/// Runs a vCPU until it is told to stop, which it sees at an exit. How many exits there were, and when it ran.
fn work(
    vcpu: &mut VcpuFd,
    program: Program,
    counter: &AtomicU64,
    stop: &AtomicBool,
) -> Result<(u64, Vec<Range<u64>>)> {
    let (mut exits, mut runs, mut last_ns) = (0, Vec::<Range<u64>>::new(), now_ns());
    while !stop.load(Ordering::Relaxed) {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(port, _)) => {
                exits += u64::from(port == COUNTED);
                let from_ns = std::mem::replace(&mut last_ns, now_ns());
                match runs.last_mut() {
                    _ if last_ns - from_ns > RUN_MAX_NS => {}
                    Some(run) if run.end == from_ns => run.end = last_ns,
                    _ => runs.push(from_ns..last_ns),
                }
            }
            Ok(other) => bail!("a vCPU left its loop: {other:?}"),
            Err(error) if error.errno() == Errno::EINTR as i32 => {}
            Err(error) => return Err(error).context("a vCPU does not run"),
        }
    }
    // The counter has 32 bits; exits tell how often it has wrapped.
    let low = counter.load(Ordering::Relaxed) & u64::from(u32::MAX);
    let whole = exits * program.counts_per_exit();
    ensure!(low == whole & u64::from(u32::MAX), "a vCPU counted to {low} in {exits} exits");
    Ok((exits, runs))
}

/// What lies in both; each in order.
fn common(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut common, mut place) = (Vec::new(), 0);
    for run in one {
        while other.get(place).is_some_and(|of| of.end <= run.start) {
            place += 1;
        }
        let beside = other[place..].iter().take_while(|of| of.start < run.end);
        common.extend(beside.map(|of| of.start.max(run.start)..of.end.min(run.end)));
    }
    common
}

fn total(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

/// The guest's memory, with the loop in it.
struct Memory(NonNull<u8>);

impl Memory {
    fn new(vm: &VmFd, code: &[u8]) -> Result<Memory> {
        let length = NonZeroUsize::new(MEMORY_BYTES).context("there is memory")?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: fresh memory, at an address that the kernel chooses.
        let memory = Memory(unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_SHARED) }?.cast());
        // SAFETY: the loop fits between CODE and COUNTERS, and nobody else has the memory yet.
        unsafe { memory.0.add(CODE).as_ptr().copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        let region = kvm_bindings::kvm_userspace_memory_region {
            memory_size: MEMORY_BYTES as u64,
            userspace_addr: memory.0.as_ptr() as u64,
            ..Default::default()
        };
        // SAFETY: `run` keeps the memory until no vCPU runs any more.
        unsafe { vm.set_user_memory_region(region) }.context("KVM does not take the guest's memory")?;
        Ok(memory)
    }

    fn counter(&self, index: usize) -> &AtomicU64 {
        // SAFETY: inside the memory (VCPUS_MAX counters fit), aligned, and shared with the guest as an atomic.
        unsafe { self.0.add(COUNTERS + index * COUNTER_BYTES).cast().as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and nobody has a reference longer than this value. It was mapped, so it can be
        // unmapped.
        let _ = unsafe { munmap(self.0.cast(), MEMORY_BYTES) };
    }
}
