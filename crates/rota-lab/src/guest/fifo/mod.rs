//! A minimal scheduler to compare with, and the kernel's count of what each scheduler's operations cost.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore, ObjectBuilder};
use serde::{Deserialize, Serialize};

/// `fifo.bpf.c`, compiled by the build script.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static PROGRAM: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/fifo.bpf.o")));

/// How often an operation ran, and for how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Calls.
    pub calls: u64,
    /// Time in all of them, ns.
    pub time_ns: u64,
}

/// Schedules everything first in, first out, for so long.
///
/// # Errors
///
/// The kernel has no sched_ext, or another scheduler is attached.
pub fn run(time: Duration) -> Result<()> {
    let mut object = ObjectBuilder::default().open_memory(&PROGRAM.0)?.load().context("loading the FIFO")?;
    let mut map =
        object.maps_mut().find(|map| map.name() == "fifo").context("the FIFO has its operations")?;
    let _attached = map.attach_struct_ops().context("attaching the FIFO")?;
    thread::sleep(time);
    Ok(())
}

/// What the loaded programs whose names begin with `prefix` have cost since `kernel.bpf_stats_enabled` was set.
pub fn costs(prefix: &str) -> BTreeMap<String, Cost> {
    let named = ProgInfoIter::default().filter_map(|program| {
        let name = program.name.to_string_lossy().into_owned();
        let cost = Cost { calls: program.run_cnt, time_ns: program.run_time_ns };
        name.starts_with(prefix).then_some((name, cost))
    });
    named.collect()
}
