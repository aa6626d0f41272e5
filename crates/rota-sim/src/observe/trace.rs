//! What happened, event by event: to be compared, and to be looked at in Perfetto.

use crate::ids::TaskId;
use crate::machine::Machine;
use crate::observe::{Event, Observer};

/// Every event, with its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    events: Vec<(u64, Event)>,
}

impl Trace {
    /// Time in ns, and what happened.
    pub fn events(&self) -> &[(u64, Event)] {
        &self.events
    }

    /// The trace as a part of a [`perfetto`] document: a process, number `process`, that is called `label`, with a
    /// track for each CPU, a slice for each time that a task ran there, and a track of marks where one woke up. `name`
    /// names a task.
    pub fn to_perfetto<'n>(&self, process: u32, label: &str, name: impl Fn(TaskId) -> &'n str) -> String {
        let mut lines = vec![named("process_name", process, 0, label)];
        let mut running: Vec<Option<(u64, TaskId)>> = Vec::new();
        let slice = |cpu: u32, since_ns: u64, until_ns: u64, task: TaskId| {
            let dur = format!(",\"dur\":{}", microseconds(until_ns - since_ns));
            line("X", (process, cpu), since_ns, name(task), &dur)
        };
        for &(now_ns, event) in &self.events {
            match event {
                Event::Runs(cpu, task) => {
                    running.resize(running.len().max(cpu.index() + 1), None);
                    running[cpu.index()] = Some((now_ns, task));
                }
                Event::Stops(cpu, ..) => {
                    if let Some((since_ns, task)) = running[cpu.index()].take() {
                        lines.push(slice(cpu.0, since_ns, now_ns, task));
                    }
                }
                Event::Woken(task) => {
                    lines.push(line("i", (process, WAKES), now_ns, name(task), ",\"s\":\"t\""))
                }
                _ => {}
            }
        }
        let end_ns = self.events.last().map_or(0, |(time_ns, _)| *time_ns);
        lines.push(named("thread_name", process, WAKES, "wakes up"));
        for (cpu, runs) in (0..).zip(&running) {
            lines.push(named("thread_name", process, cpu, &format!("CPU {cpu}")));
            lines.extend(runs.map(|(since_ns, task)| slice(cpu, since_ns, end_ns, task)));
        }
        lines.join(",\n")
    }
}

/// A JSON document that Perfetto opens, of the parts that [`Trace::to_perfetto`] makes.
pub fn perfetto(parts: &[String]) -> String {
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", parts.join(",\n"))
}

/// The track of wake-ups, beside those of the CPUs.
const WAKES: u32 = u32::MAX;

/// Perfetto's times are in us, with decimals.
fn microseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

fn line(phase: &str, (process, track): (u32, u32), at_ns: u64, name: &str, more: &str) -> String {
    let (name, ts) = (quoted(name), microseconds(at_ns));
    format!("{{\"ph\":\"{phase}\",\"pid\":{process},\"tid\":{track},\"ts\":{ts},\"name\":\"{name}\"{more}}}")
}

/// What a process or a track is called.
fn named(what: &str, process: u32, track: u32, name: &str) -> String {
    let name = quoted(name);
    format!(
        "{{\"ph\":\"M\",\"pid\":{process},\"tid\":{track},\"name\":\"{what}\",\"args\":{{\"name\":\"{name}\"}}}}"
    )
}

fn quoted(name: &str) -> String {
    name.replace(['"', '\\'], "'")
}

impl Observer for Trace {
    fn observe(&mut self, machine: &Machine, event: Event) {
        self.events.push((machine.now_ns(), event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CpuId;

    #[test]
    fn slices_and_marks() {
        let (cpu, task) = (CpuId(1), TaskId(7));
        let events = vec![
            (1_000, Event::Woken(task)),
            (2_500, Event::Runs(cpu, task)),
            (4_001, Event::Stops(cpu, task, true)),
            (5_000, Event::Runs(cpu, task)),
            (6_000, Event::Woken(task)),
        ];
        let json = perfetto(&[Trace { events }.to_perfetto(3, "Rota", |_| "task \"7\"")]);
        for part in [
            r#"{"ph":"M","pid":3,"tid":0,"name":"process_name","args":{"name":"Rota"}}"#,
            r#"{"ph":"M","pid":3,"tid":1,"name":"thread_name","args":{"name":"CPU 1"}}"#,
            r#"{"ph":"X","pid":3,"tid":1,"ts":2.500,"name":"task '7'","dur":1.501}"#,
            r#"{"ph":"i","pid":3,"tid":4294967295,"ts":1.000,"name":"task '7'","s":"t"}"#,
            r#"{"ph":"X","pid":3,"tid":1,"ts":5.000,"name":"task '7'","dur":1.000}"#,
        ] {
            assert!(json.contains(part), "{part} in {json}");
        }
    }
}
