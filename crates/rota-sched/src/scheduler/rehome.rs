//! Waiting threads are sent to where they belong when that has changed.

use std::mem::offset_of;

use anyhow::Result;

use super::Scheduler;
use crate::kernel::{Kernel, Memory};
use crate::shared::{Line, Live, Rehome};

/// What a CPU was about to queue is queued by then: far longer than that takes, and than a virtual CPU is away.
const LOOK_AGAIN_NS: u64 = 100_000_000;

impl<K: Kernel> Scheduler<K> {
    /// Has every task looked at anew: at once if it waits, else when it next stops or starts.
    pub(super) fn memberships_changed(&self) -> Result<()> {
        let epoch = offset_of!(Live, membership_epoch);
        let next = self.kernel.get::<u32>(Memory::Live, epoch).wrapping_add(1);
        self.kernel.write(Memory::Live, epoch, bytemuck::bytes_of(&next));
        if !self.kernel.is_attached() {
            return Ok(());
        }
        self.rehome_all()
    }

    /// Sends every waiting task to the dispatch queue where it belongs now.
    pub(super) fn rehome_all(&self) -> Result<()> {
        self.rehomed_ns.set(Some(self.kernel.now_ns()));
        self.rehome_waiting()?;
        self.kernel.call("kick_all", &mut 0u64)
    }

    /// Does it again, a while after the last time: to be called now and then. A CPU that was about to queue a thread
    /// just then may have put it where it belonged before, after that queue had been looked at, and nobody serves it
    /// there. Returns how many were sent elsewhere.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn look_again(&self) -> Result<u64> {
        let rehomed_ns = self.rehomed_ns.get();
        if rehomed_ns.is_none_or(|rehomed_ns| self.kernel.now_ns() < rehomed_ns + LOOK_AGAIN_NS) {
            return Ok(0);
        }
        let moved = self.rehome_waiting()?;
        if moved > 0 {
            self.kernel.call("kick_all", &mut 0u64)?;
        }
        if self.numbers.borrow_mut().forget_left(|queue| self.is_busy(queue)) {
            self.rehomed_ns.set(None);
        }
        Ok(moved)
    }

    /// How many were sent elsewhere.
    fn rehome_waiting(&self) -> Result<u64> {
        let queues = self.numbers.borrow().waited_in();
        let of_cpu = |cpu| [Line::Background, Line::Pinned, Line::Bound].map(|line| line.dsq(cpu));
        let of_cpus = (0..self.settings.nr_cpus).flat_map(of_cpu);
        let lines = (0..self.settings.nr_domains).map(|domain| Line::Shared.dsq(domain));
        let mut moved = 0;
        for dsq in queues.into_iter().map(|queue| Line::Queue.dsq(queue)).chain(lines).chain(of_cpus) {
            let mut rehome = Rehome { dsq, moved: 0 };
            self.kernel.call("rehome", &mut rehome)?;
            moved += rehome.moved;
        }
        Ok(moved)
    }
}
