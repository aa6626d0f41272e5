//! A process that never stops wanting its CPU, and notes how long it was not let run.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{ForkResult, Pid, fork};
use rota_lab::guest::realtime;

/// Of a probe that nothing but the machine itself shall stop.
const PRIORITY: i32 = 10;

/// CLOCK_MONOTONIC in ns, as the scheduler's.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock is there");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// What the process and its parent both see.
struct Shared {
    /// Pauses that began before do not count.
    from_ns: AtomicU64,
    longest_gap_ns: AtomicU64,
}

/// The process. Dropped, it is ended.
pub struct Busy {
    pid: Pid,
    shared: &'static Shared,
}

impl Busy {
    /// Starts it in a cgroup.
    pub fn start(cgroup: &std::path::Path) -> Result<Busy> {
        let entrance = cgroup.join("cgroup.procs");
        Busy::with(u64::MAX, move || {
            std::fs::write(&entrance, "0").with_context(|| format!("cannot enter {}", entrance.display()))
        })
    }

    /// Starts it with real-time priority on one CPU, from now to `until_ns`, where it ends.
    pub fn real_time(cpu: u32, until_ns: u64) -> Result<Busy> {
        let probe = Busy::with(until_ns, move || {
            realtime::pin(cpu)?;
            realtime::set_fifo(PRIORITY)
        })?;
        probe.watch_from(0);
        Ok(probe)
    }

    fn with(until_ns: u64, prepare: impl FnOnce() -> Result<()>) -> Result<Busy> {
        let length = NonZeroUsize::new(size_of::<Shared>()).context("something is shared")?;
        // SAFETY: fresh memory, at an address that the kernel chooses.
        let memory = unsafe {
            mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED)
        }?;
        // SAFETY: the memory is zeroed, aligned to a page, lives until the drop, and is only used as atomics.
        let shared: &'static Shared = unsafe { memory.cast().as_ref() };
        shared.from_ns.store(u64::MAX, Ordering::Relaxed);
        // SAFETY: this program has one thread, so the child may do all that the parent could.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Busy { pid: child, shared }),
            ForkResult::Child => {
                if let Err(error) = prepare() {
                    eprintln!("{error:#}");
                    std::process::exit(1);
                }
                shared.spin(until_ns);
                std::process::exit(0)
            }
        }
    }

    /// Counts pauses that begin at `from_ns` or later.
    pub fn watch_from(&self, from_ns: u64) {
        self.shared.from_ns.store(from_ns, Ordering::Relaxed);
    }

    /// Has it end, without waiting for that.
    pub fn kill(&self) {
        // Not waited for before the drop, so the number is still its own.
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    /// Waits for its end, if it has one.
    pub fn wait(&self) -> Result<()> {
        waitid(Id::Pid(self.pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
        Ok(())
    }

    /// The longest of them.
    pub fn longest_gap_ns(&self) -> u64 {
        self.shared.longest_gap_ns.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn spin(&self, until_ns: u64) {
        let mut last = now_ns();
        while last < until_ns {
            let now = now_ns();
            let gap = now - last;
            if gap > self.longest_gap_ns.load(Ordering::Relaxed)
                && last >= self.from_ns.load(Ordering::Relaxed)
            {
                self.longest_gap_ns.store(gap, Ordering::Relaxed);
            }
            last = now;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.kill();
        let _ = waitpid(self.pid, None);
        // SAFETY: the child is gone, and the reference goes with this value.
        let _ = unsafe { munmap(std::ptr::NonNull::from(self.shared).cast(), size_of::<Shared>()) };
    }
}
