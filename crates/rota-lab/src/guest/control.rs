//! The control: what the machine below a guest takes from it, so that nobody else is blamed for it.
//!
//! Before the run a tight loop alone on each CPU sees every gap; but an emulator is at its worst when much goes on.
//! So during the run, under every policy alike, an alarm rings on each CPU every few milliseconds for a real-time task
//! that no tenant can hold up: what it is late by is the machine's doing, or the kernel's own.

use anyhow::{Context, Result, anyhow};
use std::fs;
use std::thread;

use super::clock::{self, Window};
use super::{probe, realtime};
use crate::scenario::result::{Control, Gaps};

/// Above everything else of this crate.
const PRIORITY: i32 = 50;
/// Where the kernel keeps what real-time tasks may take of each period, in us; -1 lifts the limit.
const RT_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
/// Between two alarms: no stall that is longer goes unseen.
const ALARM_NS: u64 = 2_000_000;

/// Runs one SCHED_FIFO probe on every CPU at once, for `length_ns` and with nothing else beside them: all gaps are the
/// kernel's own or the machine's below.
///
/// # Errors
///
/// Without root.
pub fn alone(cpus: &[u32], length_ns: u64) -> Result<Vec<Control>> {
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
    Ok(Control { cpu, gaps: probe::watch(window), late: Gaps::default() })
}

/// The alarms of a run, one thread a CPU.
pub struct Alarms(Vec<thread::JoinHandle<Result<Gaps>>>);

impl Alarms {
    /// Sets them for all of the window.
    pub fn set(cpus: &[u32], window: Window) -> Alarms {
        Alarms(cpus.iter().map(|&cpu| thread::spawn(move || alarm(cpu, window))).collect())
    }

    /// Waits for the window's end, and notes how late they were in the control of the same CPUs.
    ///
    /// # Errors
    ///
    /// Without root.
    pub fn finish(self, controls: &mut [Control]) -> Result<()> {
        for (alarm, control) in self.0.into_iter().zip(controls) {
            control.late = alarm.join().map_err(|_| anyhow!("an alarm panicked"))??;
        }
        Ok(())
    }
}

fn alarm(cpu: u32, window: Window) -> Result<Gaps> {
    realtime::pin(cpu)?;
    realtime::set_fifo(PRIORITY)?;
    let mut late = Gaps { window_ns: window.length_ns(), ..Gaps::default() };
    let mut due = window.start_ns;
    while due < window.end_ns {
        clock::sleep_until(due);
        let now = clock::now_ns();
        late.note(window.overlap_ns(due, now));
        due = now + ALARM_NS;
    }
    Ok(late)
}
