//! The Rust mirror of `src/bpf/shared.h`, which says what each field means. A test has the C compiler compare the two.

use bytemuck::{Pod, Zeroable};

/// No such number.
pub const NONE: u32 = u32::MAX;
/// A time that does not come.
pub const NEVER: u64 = u64::MAX;
/// Table buffers in the kernel.
pub const NR_BUFFERS: usize = 2;
/// Events of each CPU that are counted for the scheduler: see [`crate::MissEvents`].
pub const NR_MISSES: usize = 2;
/// Entries of the ring that spreads background threads over CPUs.
pub const RING: usize = 1024;
/// Causes of lost time.
pub const NR_CAUSES: usize = 6;
/// A CPU tells others what it has given to a shared tenant once it is this much, in ns.
pub const FAIR_GRAIN_NS: u64 = 125_000;
/// The scheduler has ended, as no daemon came back within the grace time.
pub const EXIT_ABANDONED: i64 = 1;
/// What a thread may spend its time on.
pub const NR_SPENT: usize = 7;
/// So many tenants for which a queue's threads waited are known one by one.
pub const WAITED_FOR: usize = 8;
/// CPU numbers are below this.
const CPUS_MAX: usize = rota_table::layout::CPUS_MAX as usize;

/// `enum rota_class`.
pub mod class {
    /// The map's empty entry.
    pub const NONE: u32 = 0;
    /// Has a reservation.
    pub const RESERVED: u32 = 1;
    /// Has a weight.
    pub const SHARED: u32 = 2;
    /// Has what is left.
    pub const BACKGROUND: u32 = 3;
    /// The tasks of no tenant, on a host with housekeeping CPUs.
    pub const SYSTEM: u32 = 4;
}

/// `enum rota_line`: the kinds of lines in which threads wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the header documents the kinds
pub enum Line {
    Queue = 1,
    Pinned = 2,
    Background = 3,
    Shared = 4,
    Bound = 5,
}

impl Line {
    /// The number of the dispatch queue of the line that belongs to queue, CPU or domain `at`.
    pub fn dsq(self, at: u32) -> u64 {
        (self as u64) << 32 | u64::from(at)
    }
}

/// Defines structures as the header does, and for the test that compares the two.
macro_rules! structures {
    ($($name:ident = $c_name:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            #[derive(Clone, Copy, Debug, Pod, Zeroable)]
            #[repr(C)]
            #[allow(missing_docs)] // the header documents the fields
            pub struct $name { $(pub $field: $type,)* }
        )*

        /// What the C compiler must agree with, as assertions in C.
        #[cfg(test)]
        fn assertions() -> String {
            let mut text = String::new();
            $(
                text += &format!("_Static_assert(sizeof(struct {}) == {}, \"\");\n", $c_name, size_of::<$name>());
                $(text += &format!(
                    "_Static_assert(__builtin_offsetof(struct {}, {}) == {}, \"\");\n",
                    $c_name, stringify!($field).trim_start_matches("r#"), std::mem::offset_of!($name, $field));)*
            )*
            text
        }
    };
}

structures! {
    Tenant = "rota_tenant" {
        class: u32,
        kind: u32,
        weight: u32,
        nr_vcpus: u32,
        first_queue: u32,
        first_vcpu: [u32; NR_BUFFERS],
        migrates: u32,
        latency_ns: u64,
        promised_from: u64,
        nr_former: u32,
        former_entry: u32,
        oversubscribe: u32,
        nr_queues: u32,
        monitor: u32,
        reserved: u32,
    }
    CpuView = "rota_cpu_view" {
        slices: u32,
        slots: u32,
        locals: u32,
        first_slot: u32,
        nr_slots: u32,
        nr_slices: u32,
        nr_locals: u32,
        length_ns: u32,
        slice_ns: u32,
        vcpus: u32,
        nr_vcpus: u32,
        flags: u32,
        homes: u32,
        switch_ns: u32,
        reserved: [u32; 2],
    }
    VcpuThread = "rota_vcpu_thread" {
        tenant: u32,
        index: u32,
    }
    QueueHead = "rota_queue_head" {
        lock: u32,
        nr_runnable: u32,
        nr_running: u32,
        vm: u32,
        wanted_since: u64,
        blackout_since: u64,
        waiting: u32,
        claimed_by: u32,
    }
    FairClock = "rota_fair_clock" {
        clock: u64,
    }
    FairTimes = "rota_fair_times" {
        v: u64,
        v_since: u64,
        v_before: u64,
    }
    QueueCounters = "rota_queue_account" {
        used_ns: u64,
        used_in_slots_ns: u64,
        wanted_ns: u64,
        blackout_max_ns: u64,
        missed: u64,
        missed_by_cause: [u64; NR_CAUSES],
        lost_ns: [u64; NR_CAUSES],
        dispatches: u64,
        migrations: u64,
        spins: u64,
        spins_ns: u64,
    }
    SpentTime = "rota_spent_time" {
        ns: u64,
        since: u64,
        threads: u32,
        reserved: u32,
    }
    WaitedFor = "rota_waited_for" {
        ns: u64,
        tenant: u32,
        reserved: u32,
    }
    Profile = "rota_profile" {
        lock: u32,
        reserved: u32,
        born: u64,
        spent: [SpentTime; NR_SPENT],
        waited_for: [WaitedFor; WAITED_FOR],
        waited_for_rest_ns: u64,
        waited_for_nobody_ns: u64,
        waited_unseen_ns: u64,
        preempted: u64,
        yields: u64,
    }
    Spending = "rota_spending" {
        on: u32,
        queue: u32,
        tenant: u32,
        reserved: u32,
        born: u64,
        since: u64,
        ns: [u64; NR_SPENT],
    }
    CpuCounters = "rota_cpu_account" {
        generation: u64,
        mixed: u64,
        idle_ns: u64,
        background_ns: u64,
        second_level_ns: u64,
        lost_ns: [u64; NR_CAUSES],
    }
    Settings = "rota_settings" {
        nr_cpus: u32,
        nr_queues: u32,
        nr_tenants: u32,
        table_bytes: u32,
        nr_domains: u32,
        reserved: u32,
        build: u64,
        housekeeping: [u64; CPUS_MAX / 64],
        domain: [u16; CPUS_MAX],
        sibling: [u16; CPUS_MAX],
    }
    TableRef = "rota_table_ref" {
        from_ns: u64,
        generation: u64,
    }
    Live = "rota_live" {
        tables: [TableRef; NR_BUFFERS],
        membership_epoch: u32,
        background_ring: [u32; RING],
        reserved: u32,
        stalled_publishers: u64,
        alive_ns: u64,
        grace_ns: u64,
        sample_until_ns: u64,
        sample_tenant: u32,
        padding: u32,
    }
    Publish = "rota_publish" {
        buffer: u32,
        reserved: u32,
        generation: u64,
        boundary_ns: u64,
        from_ns: u64,
        stored_ns: u64,
    }
    Rehome = "rota_rehome" {
        dsq: u64,
        moved: u64,
    }
    Open = "rota_open" {
        buffer: u32,
        reserved: u32,
    }
    Sample = "rota_sample" {
        tenant: u32,
        reserved: u32,
        length_ns: u64,
        until_ns: u64,
    }
    Reweigh = "rota_reweigh" {
        tenant: u32,
        weight_before: u32,
    }
    Exit = "rota_exit" {
        kind: i32,
        padding: i32,
        code: i64,
        reason: [u8; 128],
        msg: [u8; 512],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// Whether the C compiler accepts the header followed by `text`.
    fn compiles(text: &str) -> bool {
        let mut compiler = Command::new("cc")
            .args(["-fsyntax-only", "-x", "c", "-Isrc/bpf", "-I../rota-table/include", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a C compiler");
        let source = format!("#include \"shared.h\"\n{text}");
        compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        compiler.wait().unwrap().success()
    }

    #[test]
    fn the_mirror_is_the_header() {
        let constants = [
            ("ROTA_NR_BUFFERS", NR_BUFFERS),
            ("ROTA_NR_MISSES", NR_MISSES),
            ("ROTA_RING", RING),
            ("ROTA_NR_CAUSES", NR_CAUSES),
            ("ROTA_CGROUP_DEPTH", rota_model::config::CGROUP_LEVELS + 1),
            ("ROTA_EXIT_ABANDONED", EXIT_ABANDONED as usize),
            ("ROTA_NR_SPENT", NR_SPENT),
            ("ROTA_WAITED_FOR", WAITED_FOR),
            ("ROTA_FAIR_GRAIN_NS", FAIR_GRAIN_NS as usize),
            ("ROTA_CLASS_SYSTEM", class::SYSTEM as usize),
            ("ROTA_CLASS_RESERVED", class::RESERVED as usize),
            ("ROTA_CLASS_SHARED", class::SHARED as usize),
            ("ROTA_CLASS_BACKGROUND", class::BACKGROUND as usize),
            ("ROTA_LINE_QUEUE", Line::Queue as usize),
            ("ROTA_LINE_PINNED", Line::Pinned as usize),
            ("ROTA_LINE_BACKGROUND", Line::Background as usize),
            ("ROTA_LINE_SHARED", Line::Shared as usize),
            ("ROTA_LINE_BOUND", Line::Bound as usize),
        ];
        let mut text = assertions();
        for (name, value) in constants {
            text += &format!("_Static_assert({name} == {value}, \"\");\n");
        }
        assert!(compiles(&text), "shared.rs and shared.h differ");
        assert!(
            !compiles("_Static_assert(sizeof(struct rota_tenant) == 1, \"\");"),
            "the check checks nothing"
        );
    }
}
