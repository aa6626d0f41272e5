//! What each tenant got in a recording. A recording and its replay are compared by what this says of both.

use rota_model::histogram::Histogram;

use crate::recording::{How, Recording, What};

/// What all threads of a tenant got together, up to a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// CPU time: what lies between going onto a CPU and leaving it.
    pub cpu_ns: u64,
    /// Time in which a thread was runnable and did not run, summed over threads.
    pub waiting_ns: u64,
    /// From being runnable to running, each time that a thread woke.
    pub wakeups: Histogram,
    /// How often a thread was put on a CPU.
    pub dispatches: u64,
    /// How often a thread was taken from a CPU and would have gone on.
    pub preemptions: u64,
    /// When its last thread left its CPU for good, whether before that time or after; none if one was runnable at the
    /// recording's end.
    pub done_ns: Option<u64>,
}

/// What a thread does, and since when.
#[derive(Clone, Copy, Debug)]
enum Doing {
    /// Not seen yet.
    Unknown,
    Waiting,
    /// Whether it has just woken.
    Queued(u64, bool),
    Running(u64),
}

/// What each tenant got up to `until_ns`, in the recording's order; the last one is the system.
pub fn summaries(recording: &Recording, until_ns: u64) -> Vec<Summary> {
    let mut count = Count {
        until_ns: until_ns.min(recording.duration_ns),
        summaries: vec![Summary::default(); recording.tenants.len() + 1],
    };
    let mut doing = vec![Doing::Unknown; recording.threads.len()];
    let place = |thread: u32| {
        let tenant = recording.threads[thread as usize].tenant;
        tenant.map_or(recording.tenants.len(), |tenant| tenant as usize)
    };
    for event in &recording.events {
        let thread = event.what.thread();
        let doing = &mut doing[thread as usize];
        *doing = count.event(place(thread), *doing, event.at_ns, event.what);
    }
    for (thread, doing) in (0..).zip(doing) {
        count.end(place(thread), doing, recording.duration_ns);
    }
    count.summaries
}

struct Count {
    until_ns: u64,
    summaries: Vec<Summary>,
}

impl Count {
    /// What the thread does after an event. One that does not fit to what it did means that others are lost.
    fn event(&mut self, tenant: usize, before: Doing, at_ns: u64, what: What) -> Doing {
        let counts = at_ns <= self.until_ns;
        match (what, before) {
            (What::Waking { .. }, Doing::Unknown) => Doing::Waiting,
            (What::Waking { .. }, _) => before,
            (What::Woken { .. } | What::Starts { .. }, Doing::Unknown | Doing::Waiting) => {
                Doing::Queued(at_ns, true)
            }
            (What::Woken { .. } | What::Starts { .. }, _) => before,
            (What::Runs { .. }, _) => {
                if let Doing::Queued(since_ns, woken) = before {
                    self.waited(tenant, since_ns, at_ns);
                    if woken && counts {
                        self.summaries[tenant].wakeups.add(at_ns - since_ns);
                    }
                } else if matches!(before, Doing::Unknown) && at_ns > 0 {
                    self.waited(tenant, 0, at_ns);
                }
                if let Doing::Running(since_ns) = before {
                    self.ran(tenant, since_ns, at_ns);
                }
                self.summaries[tenant].dispatches += u64::from(counts && at_ns > 0);
                Doing::Running(at_ns)
            }
            (What::Stops { how, .. }, _) => {
                let since_ns = match before {
                    Doing::Running(since_ns) => Some(since_ns),
                    Doing::Unknown => Some(0),
                    Doing::Queued(..) | Doing::Waiting => None,
                };
                if let Some(since_ns) = since_ns {
                    self.ran(tenant, since_ns, at_ns);
                }
                self.summaries[tenant].done_ns = Some(at_ns);
                if how != How::Preempted {
                    return Doing::Waiting;
                }
                self.summaries[tenant].preemptions += u64::from(counts);
                Doing::Queued(at_ns, false)
            }
        }
    }

    fn end(&mut self, tenant: usize, doing: Doing, end_ns: u64) {
        match doing {
            Doing::Queued(since_ns, _) => self.waited(tenant, since_ns, end_ns),
            Doing::Running(since_ns) => self.ran(tenant, since_ns, end_ns),
            Doing::Unknown | Doing::Waiting => return,
        }
        self.summaries[tenant].done_ns = None;
    }

    fn ran(&mut self, tenant: usize, since_ns: u64, at_ns: u64) {
        self.summaries[tenant].cpu_ns += at_ns.min(self.until_ns).saturating_sub(since_ns);
    }

    fn waited(&mut self, tenant: usize, since_ns: u64, at_ns: u64) {
        self.summaries[tenant].waiting_ns += at_ns.min(self.until_ns).saturating_sub(since_ns);
    }
}
