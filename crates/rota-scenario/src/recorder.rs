//! A simulation as a recording, as a host's recorder would make one.

use rota_record::{Event as Recorded, How, What};
use rota_sim::observe::{Event, Observer};
use rota_sim::{CpuId, Machine, TaskId};

/// Writes down what happens from a time on.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    began_ns: Option<u64>,
    born: Option<TaskId>,
    events: Vec<Recorded>,
}

impl Recorder {
    /// Begins now. What runs is noted first.
    pub fn begin(&mut self, machine: &Machine) {
        self.began_ns = Some(machine.now_ns());
        for cpu in (0..machine.nr_cpus()).map(CpuId) {
            if let Some(task) = machine.cpu(cpu).current {
                self.note(machine, What::Runs { cpu: cpu.0, thread: task.0 });
            }
        }
    }

    /// When it began, and what happened since; threads are called by their tasks' numbers.
    pub fn finish(self) -> (u64, Vec<Recorded>) {
        (self.began_ns.unwrap_or(0), self.events)
    }

    fn note(&mut self, machine: &Machine, what: What) {
        if let Some(began_ns) = self.began_ns {
            self.events.push(Recorded { at_ns: machine.now_ns() - began_ns, what });
        }
    }
}

impl Observer for Recorder {
    fn observe(&mut self, machine: &Machine, event: Event) {
        match event {
            Event::Born(task) => self.born = Some(task),
            Event::Woken(task) if self.born == Some(task) => {
                self.born = None;
                self.note(machine, What::Starts { thread: task.0, cause: machine.cause() });
            }
            Event::Woken(task) => {
                self.note(machine, What::Waking { thread: task.0, cause: machine.cause() });
                self.note(machine, What::Woken { thread: task.0 });
            }
            Event::Runs(cpu, task) => self.note(machine, What::Runs { cpu: cpu.0, thread: task.0 }),
            Event::Stops(_, task, runnable) => {
                let how = if runnable { How::Preempted } else { How::Waits };
                self.note(machine, What::Stops { thread: task.0, how });
            }
            Event::Died(task) => {
                // It has just left its CPU for that.
                let last = self.events.iter_mut().rev().find(|event| event.what.thread() == task.0);
                if let Some(Recorded { what: What::Stops { how, .. }, .. }) = last {
                    *how = How::Exits;
                }
            }
            Event::Stolen(..) | Event::Hotplug(..) | Event::Work(..) | Event::Latency(..) => {}
        }
    }
}
