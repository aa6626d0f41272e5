//! From a recording to a load: what each thread does by itself, and what it waits for.

use rota_record::{Cause, How, Recording, What};
use rota_sim::Costs;

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Computes for so many ns.
    Compute(u64),
    /// Ends a wait of another thread, which may not have come to it yet.
    Wake {
        /// Whose.
        thread: u32,
        /// Which one of its waits.
        wait: u32,
    },
    /// Waits until its wait of this number is ended, unless it is already.
    Wait(u32),
    /// Sleeps for so many ns.
    Sleep(u64),
    /// Waits until so many ns after the beginning, unless it is later already.
    Until(u64),
    /// Is over.
    Exit,
}

impl Op {
    /// Whether the thread may leave its CPU for it.
    pub fn blocks(self) -> bool {
        matches!(self, Op::Wait(_) | Op::Sleep(_) | Op::Until(_))
    }
}

/// What a thread does, and how it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// What it does, one after the other; nothing if nothing is known of it.
    pub ops: Vec<Op>,
    /// The CPU that it was on first.
    pub first_cpu: Option<u32>,
    /// It was running when the recording began.
    pub runs_first: bool,
}

/// What each thread of a recording does, in their order there.
pub fn courses(recording: &Recording, costs: &Costs) -> Vec<Course> {
    let threads = recording.threads.iter().map(|_| Reading::default()).collect();
    let mut builder = Builder { threads, costs };
    for event in &recording.events {
        builder.event(event.at_ns, event.what);
    }
    builder.finish(recording.duration_ns)
}

/// What a thread does at a place in the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    /// Nothing is known of it yet.
    #[default]
    Unknown,
    Queued,
    /// Up to `counted_ns` it has computed.
    Running {
        counted_ns: u64,
    },
    Blocked {
        since_ns: u64,
        by_itself: bool,
    },
    Over,
}

/// Why a thread is being woken: by whom, or when if it was nobody.
#[derive(Clone, Copy, Debug)]
enum Waking {
    /// The thread, and the place among its ops that is kept for it.
    Thread(u32, usize),
    Timer(u64),
    Outside(u64),
}

/// A thread as far as it was read.
#[derive(Debug, Default)]
struct Reading {
    doing: Doing,
    ops: Vec<Option<Op>>,
    /// Computed since the last op.
    computed_ns: u64,
    /// What a change of task has cost and is not paid yet.
    owed_ns: u64,
    first_cpu: Option<u32>,
    runs_first: bool,
    ran_on: Option<u32>,
    waits: u32,
    waking: Option<Waking>,
    /// It was runnable when the recording began, and never blocked.
    always: bool,
}

impl Reading {
    /// It has computed up to `at_ns`, but for what changes of task have cost.
    fn count(&mut self, at_ns: u64) {
        if let Doing::Running { counted_ns } = &mut self.doing {
            let ran_ns = at_ns.saturating_sub(std::mem::replace(counted_ns, at_ns));
            let paid_ns = ran_ns.min(self.owed_ns);
            self.owed_ns -= paid_ns;
            self.computed_ns += ran_ns - paid_ns;
        }
    }

    fn push(&mut self, op: Option<Op>) {
        if self.computed_ns > 0 {
            self.ops.push(Some(Op::Compute(std::mem::take(&mut self.computed_ns))));
        }
        self.ops.push(op);
    }

    /// Takes note of what it must have been doing all the time, if this is the first that is heard of it.
    fn was(&mut self, doing: Doing) {
        if self.doing == Doing::Unknown {
            self.always = !matches!(doing, Doing::Blocked { .. });
            self.runs_first = matches!(doing, Doing::Running { .. });
            self.doing = doing;
        }
    }
}

const BLOCKED_SINCE_EVER: Doing = Doing::Blocked { since_ns: 0, by_itself: false };

struct Builder<'r> {
    threads: Vec<Reading>,
    costs: &'r Costs,
}

impl Builder<'_> {
    fn event(&mut self, at_ns: u64, what: What) {
        match what {
            What::Waking { thread, cause } => {
                self.thread(thread).was(BLOCKED_SINCE_EVER);
                if self.thread(thread).doing != Doing::Queued {
                    let waking = self.waking(at_ns, thread, cause);
                    self.thread(thread).waking = Some(waking);
                }
            }
            What::Woken { thread } => {
                self.thread(thread).was(BLOCKED_SINCE_EVER);
                let waking = self.thread(thread).waking.take().unwrap_or(Waking::Outside(at_ns));
                self.woken(thread, waking);
            }
            What::Starts { thread, cause } => {
                self.thread(thread).was(BLOCKED_SINCE_EVER);
                let waking = match self.waking(at_ns, thread, cause) {
                    Waking::Timer(at_ns) => Waking::Outside(at_ns),
                    waking => waking,
                };
                self.woken(thread, waking);
            }
            What::Runs { cpu, thread } => self.runs(at_ns, cpu, thread),
            What::Stops { thread, how } => self.stops(at_ns, thread, how),
        }
    }

    fn thread(&mut self, thread: u32) -> &mut Reading {
        &mut self.threads[thread as usize]
    }

    /// Keeps a place for the wake-up among what the waker does, if that runs.
    fn waking(&mut self, at_ns: u64, thread: u32, cause: Cause) -> Waking {
        let waker = match cause {
            Cause::Timer => return Waking::Timer(at_ns),
            Cause::Thread(waker) if waker != thread => waker,
            Cause::Thread(_) | Cause::Outside => return Waking::Outside(at_ns),
        };
        let reading = self.thread(waker);
        reading.was(Doing::Running { counted_ns: 0 });
        if !matches!(reading.doing, Doing::Running { .. }) {
            return Waking::Outside(at_ns);
        }
        reading.count(at_ns);
        reading.push(None);
        Waking::Thread(waker, reading.ops.len() - 1)
    }

    fn woken(&mut self, thread: u32, waking: Waking) {
        let reading = self.thread(thread);
        let Doing::Blocked { since_ns, by_itself } = reading.doing else { return };
        reading.doing = Doing::Queued;
        let op = match waking {
            Waking::Timer(at_ns) => Op::Sleep(at_ns.saturating_sub(since_ns)),
            Waking::Outside(at_ns) if by_itself => Op::Sleep(at_ns.saturating_sub(since_ns)),
            Waking::Outside(at_ns) => Op::Until(at_ns),
            Waking::Thread(..) => {
                reading.waits += 1;
                Op::Wait(reading.waits - 1)
            }
        };
        reading.push(Some(op));
        if let (Waking::Thread(waker, place), Op::Wait(wait)) = (waking, op) {
            self.thread(waker).ops[place] = Some(Op::Wake { thread, wait });
        }
    }

    fn runs(&mut self, at_ns: u64, cpu: u32, thread: u32) {
        let Costs { switch_ns, migration_ns, .. } = *self.costs;
        let reading = self.thread(thread);
        reading.was(if at_ns == 0 { Doing::Running { counted_ns: 0 } } else { Doing::Queued });
        reading.first_cpu.get_or_insert(cpu);
        match reading.doing {
            // Its wake-up is lost.
            Doing::Blocked { .. } => reading.push(Some(Op::Until(at_ns))),
            _ => reading.count(at_ns),
        }
        let moved = reading.ran_on.is_some_and(|before| before != cpu);
        if at_ns > 0 {
            reading.owed_ns += switch_ns + if moved { migration_ns } else { 0 };
        }
        reading.ran_on = Some(cpu);
        reading.doing = Doing::Running { counted_ns: at_ns };
    }

    fn stops(&mut self, at_ns: u64, thread: u32, how: How) {
        let reading = self.thread(thread);
        reading.was(Doing::Running { counted_ns: 0 });
        reading.count(at_ns);
        if how == How::Preempted {
            reading.doing = Doing::Queued;
            return;
        }
        reading.always = false;
        reading.doing = match how {
            How::Exits => {
                reading.push(Some(Op::Exit));
                Doing::Over
            }
            _ => Doing::Blocked { since_ns: at_ns, by_itself: how == How::WaitsForDevice },
        };
    }

    fn finish(self, end_ns: u64) -> Vec<Course> {
        let finish = |mut reading: Reading| {
            reading.count(end_ns);
            let runnable = matches!(reading.doing, Doing::Queued | Doing::Running { .. });
            if reading.always && runnable {
                reading.computed_ns = u64::MAX;
            }
            reading.push(None);
            let ops: Vec<Op> = reading.ops.iter().flatten().copied().collect();
            let over = ops.iter().position(|op| *op == Op::Exit).map_or(ops.len(), |place| place + 1);
            let Reading { first_cpu, runs_first, .. } = reading;
            Course { ops: ops[..over].to_vec(), first_cpu, runs_first }
        };
        self.threads.into_iter().map(finish).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_record::{Event, Host, Place, Policy, Rank, Thread};

    fn built(events: &[(u64, What)], threads: usize) -> Vec<Vec<Op>> {
        let thread = Thread {
            tid: 1,
            name: String::new(),
            tenant: None,
            vcpu: None,
            is_kernel: false,
            rank: Rank::Ordinary(0),
            cpus: None,
        };
        let recording = Recording {
            kernel: String::new(),
            policy: Policy::Eevdf,
            began_ns: 0,
            duration_ns: 1_000,
            lost: 0,
            host: Host { cpus: vec![Place::default()], ..Host::default() },
            tenants: vec![],
            threads: vec![thread; threads],
            events: events.iter().map(|&(at_ns, what)| Event { at_ns, what }).collect(),
        };
        recording.check().unwrap();
        let costs = Costs { switch_ns: 10, ..Costs::FREE };
        courses(&recording, &costs).into_iter().map(|course| course.ops).collect()
    }

    fn runs(thread: u32) -> What {
        What::Runs { cpu: 0, thread }
    }

    fn stops(thread: u32, how: How) -> What {
        What::Stops { thread, how }
    }

    fn waking(thread: u32, cause: Cause) -> What {
        What::Waking { thread, cause }
    }

    #[test]
    fn who_wakes_whom_is_kept_at_the_wakers_own_time() {
        let both = built(
            &[
                (100, waking(1, Cause::Thread(0))),
                (100, What::Woken { thread: 1 }),
                (300, stops(0, How::Waits)),
                (300, runs(1)),
                (410, waking(0, Cause::Thread(1))),
                (410, What::Woken { thread: 0 }),
                (500, stops(1, How::Exits)),
                (500, runs(0)),
                (600, stops(0, How::Waits)),
            ],
            2,
        );
        let woken = Op::Wake { thread: 1, wait: 0 };
        assert_eq!(both[0], [Op::Compute(100), woken, Op::Compute(200), Op::Wait(0), Op::Compute(90)]);
        let woken = Op::Wake { thread: 0, wait: 0 };
        assert_eq!(both[1], [Op::Wait(0), Op::Compute(100), woken, Op::Compute(90), Op::Exit]);
    }

    #[test]
    fn timers_count_from_the_block_and_the_outside_from_the_beginning() {
        let waits = |how, cause| {
            let events = [
                (100, stops(0, how)),
                (350, waking(0, cause)),
                (351, What::Woken { thread: 0 }),
                (400, runs(0)),
                (450, stops(0, How::Waits)),
            ];
            built(&events, 1).remove(0)[1]
        };
        assert_eq!(waits(How::Waits, Cause::Timer), Op::Sleep(250));
        assert_eq!(waits(How::Waits, Cause::Outside), Op::Until(350));
        assert_eq!(waits(How::WaitsForDevice, Cause::Outside), Op::Sleep(250));
    }

    /// The waker has decided before the other one was off its CPU; and a wake-up of a thread that runs is none.
    #[test]
    fn a_wake_up_on_the_way_to_a_block_counts_and_one_of_a_runner_does_not() {
        let threads = built(
            &[
                (10, waking(1, Cause::Thread(0))),
                (20, What::Woken { thread: 1 }),
                (30, stops(0, How::Preempted)),
                (30, runs(1)),
                (140, waking(0, Cause::Thread(1))),
                (150, What::Woken { thread: 0 }),
                (160, stops(1, How::Waits)),
                (160, runs(0)),
                (200, waking(1, Cause::Thread(0))),
                (210, What::Woken { thread: 1 }),
            ],
            2,
        );
        let wakes = |ops: &[Op]| ops.iter().filter(|op| matches!(op, Op::Wake { .. })).count();
        assert_eq!((wakes(&threads[0]), wakes(&threads[1])), (2, 0));
        assert!(!threads[0].iter().any(|op| op.blocks()));
    }

    #[test]
    fn who_was_runnable_from_end_to_end_is_a_hog_and_who_was_not_is_not() {
        let switched = |how| {
            let events = [(100, stops(0, how)), (200, What::Woken { thread: 0 }), (300, runs(0))];
            built(&events, 1).remove(0)
        };
        assert_eq!(switched(How::Preempted), [Op::Compute(u64::MAX)]);
        assert_eq!(switched(How::Waits), [Op::Compute(100), Op::Until(200), Op::Compute(690)]);
        assert_eq!(built(&[(0, runs(0))], 2), [vec![Op::Compute(u64::MAX)], vec![]]);
    }
}
