//! The scheduler reads what the processor counts and records of the threads that it looks at: `branches.bpf.h`.

use std::os::fd::{AsRawFd, BorrowedFd};

use anyhow::Result;

use super::Scheduler;
use crate::kernel::Kernel;
use crate::shared::NR_MISSES;

/// Events of one CPU, opened by `perf_event_open(2)`: misses of the first-level data cache in programs, and of its TLB.
pub type MissEvents<'a> = [BorrowedFd<'a>; NR_MISSES];

impl<K: Kernel> Scheduler<K> {
    /// Has the scheduler read these events as it looks at what the CPU runs, and then the CPU's branch records. With
    /// `None` it reads neither. Nor does it once the process has ended that told it.
    ///
    /// # Errors
    ///
    /// The scheduler knows no such CPU, or the kernel refuses an event.
    pub fn read_branches(&self, cpu: u32, misses: Option<MissEvents<'_>>) -> Result<()> {
        for kind in 0..NR_MISSES {
            let entry = (cpu as usize * NR_MISSES + kind) as u32;
            let key = entry.to_ne_bytes();
            match misses {
                Some(misses) => {
                    self.kernel.put_bytes("misses", &key, &misses[kind].as_raw_fd().to_ne_bytes())?
                }
                None => self.kernel.remove_bytes("misses", &key)?,
            }
        }
        Ok(())
    }
}
