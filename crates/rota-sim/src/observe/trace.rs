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

    /// The trace as JSON that Perfetto opens: a track for each CPU, a slice for each time that a task ran there, and a
    /// mark where one woke up. `name` names a task.
    pub fn to_perfetto(&self, name: impl Fn(TaskId) -> String) -> String {
        let mut lines: Vec<String> = Vec::new();
        let mut running: Vec<Option<(u64, TaskId)>> = Vec::new();
        for &(now_ns, event) in &self.events {
            match event {
                Event::Runs(cpu, task) => {
                    running.resize(running.len().max(cpu.index() + 1), None);
                    running[cpu.index()] = Some((now_ns, task));
                }
                Event::Stops(cpu, task, _) => {
                    if let Some((since_ns, _)) = running[cpu.index()].take() {
                        let dur = microseconds(now_ns - since_ns);
                        lines.push(line("X", cpu.0, since_ns, &name(task), &format!(",\"dur\":{dur}")));
                    }
                }
                Event::Woken(task) => lines.push(line("i", u32::MAX, now_ns, &name(task), ",\"s\":\"t\"")),
                _ => {}
            }
        }
        format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
    }
}

/// Perfetto's times are in us, with decimals.
fn microseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

fn line(phase: &str, track: u32, at_ns: u64, name: &str, more: &str) -> String {
    let (name, ts) = (name.replace(['"', '\\'], "'"), microseconds(at_ns));
    format!("{{\"ph\":\"{phase}\",\"pid\":0,\"tid\":{track},\"ts\":{ts},\"name\":\"{name}\"{more}}}")
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
        ];
        let json = Trace { events }.to_perfetto(|task| format!("task \"{}\"", task.0));
        assert!(
            json.contains(r#"{"ph":"X","pid":0,"tid":1,"ts":2.500,"name":"task '7'","dur":1.501}"#),
            "{json}"
        );
        assert!(
            json.contains(r#"{"ph":"i","pid":0,"tid":4294967295,"ts":1.000,"name":"task '7'","s":"t"}"#),
            "{json}"
        );
    }
}
