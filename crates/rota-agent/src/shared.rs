//! The Rust mirror of `src/bpf/live.h`, which says what each field means.

use bytemuck::{Pod, Zeroable};
use rota_sched::NR_BUFFERS;

/// `GUEST_CPUS_MAX`: CPU numbers are below this.
pub const CPUS_MAX: usize = 1024;

/// `struct guest_settings`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Settings {
    /// The highest CPU number and 1.
    pub nr_cpus: u32,
    /// Of one buffer.
    pub table_bytes: u32,
    /// A bit for each CPU.
    pub online: [u64; CPUS_MAX / 64],
}

impl Settings {
    /// Those of a machine with CPU numbers below `nr_cpus`, of which these are online.
    pub fn new(nr_cpus: u32, online: impl Iterator<Item = u32>) -> Settings {
        let mut settings =
            Settings { nr_cpus, table_bytes: crate::tables::BYTES_MAX, online: [0; CPUS_MAX / 64] };
        online
            .filter(|cpu| *cpu < nr_cpus)
            .for_each(|cpu| settings.online[cpu as usize / 64] |= 1 << (cpu % 64));
        settings
    }
}

/// `struct rota_table_ref`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TableRef {
    pub from_ns: u64,
    pub generation: u64,
}

/// `struct guest_live`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Live {
    /// Which table is in each buffer.
    pub tables: [TableRef; NR_BUFFERS],
    /// The host's CLOCK_MONOTONIC less the guest's.
    pub offset_ns: i64,
    /// Of each CPU's time of late, in thousandths.
    pub stolen: [u32; CPUS_MAX],
}

/// `struct guest_account`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Account {
    /// Slot ends before which the running thread had left, or no thread was there.
    pub left: u64,
    /// Slot ends at which a thread still ran that could have been moved.
    pub caught: u64,
    /// Threads that began to run on a CPU that was stopped, or about to be.
    pub strays: u64,
    /// Threads that went elsewhere since their own CPU was stopped, or about to be.
    pub moved: u64,
    /// Threads that came back to their own CPU.
    pub back: u64,
    /// Times that slots began late too often, and the timetable was not believed for a while.
    pub distrusted: u64,
    /// Times that a thread waited busily, and gave way to others on its CPU.
    pub spins: u64,
}

impl std::ops::AddAssign for Account {
    fn add_assign(&mut self, other: Account) {
        self.left += other.left;
        self.caught += other.caught;
        self.strays += other.strays;
        self.moved += other.moved;
        self.back += other.back;
        self.distrusted += other.distrusted;
        self.spins += other.spins;
    }
}

/// What `struct rota_exit` has before the reason, and the lengths of its texts.
pub const EXIT_HEAD: usize = 16;
/// See [`EXIT_HEAD`].
pub const EXIT_REASON: usize = 128;
/// See [`EXIT_HEAD`].
pub const EXIT_MSG: usize = 512;

const _: () =
    assert!(size_of::<Settings>() == 136 && size_of::<Live>() == 4136 && size_of::<Account>() == 56);
