//! Where the time of single threads went: read from the storage that the scheduler has with each thread.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::libc;
use rota_model::TenantId;

use crate::object::{map_of_this_build, now_ns};
use crate::shared::{NR_SPENT, Spending};

/// The threads of the scheduler that runs. Looking at them does not disturb it, nor the daemon.
pub struct Threads(MapHandle);

/// What the scheduler knows of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Whose it is.
    pub tenant: TenantId,
    /// The number of its tenant's queue: a VM has one for each vCPU. The account begins anew in another one.
    pub queue: u32,
    /// Its time in ns, by what it was spent on: indexed as [`Spent::ALL`](crate::Spent::ALL).
    pub spent_ns: [u64; NR_SPENT],
}

impl Threads {
    /// Of the scheduler that is pinned in the BPF file system at `root`.
    ///
    /// # Errors
    ///
    /// None is pinned, it is of another build of Rota, or this process is not root's.
    pub fn open(root: &Path) -> Result<Threads> {
        map_of_this_build(root, "tasks").map(Threads)
    }

    /// The thread with this id; nothing if it has ended, or the scheduler has not seen it yet.
    ///
    /// # Errors
    ///
    /// The kernel cannot look threads up by id.
    pub fn read(&self, tid: i32) -> Result<Option<Thread>> {
        let Some(thread) = pidfd(tid)? else { return Ok(None) };
        let mut last = self.look_up(&thread)?;
        // A thread may go on meanwhile. Then its times are not of one moment, and the next look differs.
        for _ in 0..LOOKS_MAX {
            let next = self.look_up(&thread)?;
            if next.as_ref().map(bytemuck::bytes_of) == last.as_ref().map(bytemuck::bytes_of) {
                break;
            }
            last = next;
        }
        Ok(last.and_then(|spending| decode(&spending, now_ns())))
    }

    fn look_up(&self, thread: &OwnedFd) -> Result<Option<Spending>> {
        let value = self.0.lookup(&thread.as_raw_fd().to_ne_bytes(), MapFlags::ANY);
        let value = value.context("looking at a thread")?;
        Ok(value.map(|value| bytemuck::pod_read_unaligned(&value[..size_of::<Spending>()])))
    }
}

/// A thread is looked at so often for two looks that are the same.
const LOOKS_MAX: usize = 8;

/// What it does at `now_ns` counts up to then.
fn decode(read: &Spending, now_ns: u64) -> Option<Thread> {
    if read.since == 0 {
        return None;
    }
    let mut spent_ns = read.ns;
    if let Some(going_on) = (read.on as usize).checked_sub(1).and_then(|on| spent_ns.get_mut(on)) {
        *going_on += now_ns.saturating_sub(read.since);
    }
    Some(Thread { tenant: read.tenant, queue: read.queue, spent_ns })
}

/// `PIDFD_THREAD` of Linux 6.9: a thread, and not only a process.
const PIDFD_THREAD: libc::c_int = libc::O_EXCL;

/// A descriptor of the thread; nothing if it has ended.
fn pidfd(tid: i32) -> Result<Option<OwnedFd>> {
    // SAFETY: the call takes two numbers, and returns a descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, tid, PIDFD_THREAD) };
    if fd >= 0 {
        // SAFETY: it is open, and nobody else's.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd as i32) }));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(None),
        _ => Err(error).with_context(|| format!("opening thread {tid}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spent;
    use bytemuck::Zeroable;

    #[test]
    fn what_a_thread_does_counts_up_to_now() {
        let mut ns = [0; NR_SPENT];
        ns[Spent::Waiting as usize] = 7;
        let on = Spent::Time as u32 + 1;
        let asleep = Spending { on, queue: 4, tenant: 3, since: 100, ns, ..Spending::zeroed() };
        let told = decode(&asleep, 110).unwrap();
        assert_eq!((told.tenant, told.queue), (3, 4));
        assert_eq!(told.spent_ns, [0, 7, 0, 0, 10, 0, 0]);
        assert_eq!(decode(&Spending { on: 0, ..asleep }, 110).unwrap().spent_ns, ns, "it is not counted now");
        assert_eq!(decode(&Spending::zeroed(), 110), None, "it was never seen");
    }

    #[test]
    fn threads_are_found_and_those_that_have_ended_are_not() {
        let tid = nix::unistd::gettid().as_raw();
        assert!(pidfd(tid).unwrap().is_some());
        let ended = std::thread::spawn(|| nix::unistd::gettid().as_raw()).join().unwrap();
        assert!(pidfd(ended).unwrap().is_none());
    }
}
