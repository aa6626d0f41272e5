//! The control: what the machine below a guest takes from it, so that nobody else is blamed for it.

use anyhow::{Context, Result, anyhow};
use std::fs;
use std::thread;

use super::clock::Window;
use super::{probe, realtime};
use crate::scenario::result::Control;

/// Above everything else of this crate.
const PRIORITY: i32 = 50;
/// Where the kernel keeps what real-time tasks may take of each period, in us; -1 lifts the limit.
const RT_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// Runs one SCHED_FIFO probe on every CPU at once, for `length_ns` and with nothing else beside them: all gaps are the
/// kernel's own or the machine's below.
///
/// # Errors
///
/// Without root.
pub fn run(cpus: &[u32], length_ns: u64) -> Result<Vec<Control>> {
    let limit = fs::read_to_string(RT_RUNTIME).with_context(|| format!("cannot read {RT_RUNTIME}"))?;
    fs::write(RT_RUNTIME, "-1")
        .with_context(|| format!("cannot lift the limit in {RT_RUNTIME}; it needs root"))?;
    let window = Window::after(0, length_ns);
    let controls = thread::scope(|scope| {
        let probes: Vec<_> = cpus.iter().map(|cpu| scope.spawn(move || control(*cpu, window))).collect();
        let join = |probe: thread::ScopedJoinHandle<Result<Control>>| {
            probe.join().map_err(|_| anyhow!("a probe panicked"))?
        };
        probes.into_iter().map(join).collect()
    });
    fs::write(RT_RUNTIME, limit.trim()).with_context(|| format!("cannot restore {RT_RUNTIME}"))?;
    controls
}

fn control(cpu: u32, window: Window) -> Result<Control> {
    realtime::pin(cpu)?;
    realtime::set_fifo(PRIORITY)?;
    Ok(Control { cpu, gaps: probe::watch(window) })
}
