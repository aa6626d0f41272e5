//! From what the BPF program tells to threads and events.

use std::collections::HashMap;

use rota_model::{Cause, CpuSet};

use super::{RawEvent, RawThread};
use crate::recording::{Event, How, Rank, What};

/// `enum kind` of `recorder.h`.
const SWITCH: u32 = 1;
const WAKING: u32 = 2;
const WOKEN: u32 = 3;
const STARTS: u32 = 4;
const RUNS: u32 = 5;

/// `enum how` of `recorder.h`.
const PREEMPTED: u32 = 0;
const WAITS_FOR_DEVICE: u32 = 2;
const EXITS: u32 = 3;

/// `BY_TIMER` of `recorder.h`.
const BY_TIMER: i32 = -1;

/// `SCHED_IDLE`, and the policies above ordinary threads: `SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`.
const SCHED_IDLE: u32 = 5;
const SCHED_FIFO: u32 = 1;
const SCHED_RR: u32 = 2;
const SCHED_DEADLINE: u32 = 6;
/// `static_prio` of niceness 0.
const NICE_0: i32 = 120;

/// A thread as it was seen last.
#[derive(Clone, Debug)]
pub struct Seen {
    pub tid: i32,
    pub name: String,
    pub cgroup: u64,
    pub is_kernel: bool,
    pub rank: Rank,
    /// Where it may run; unknown if absent.
    pub cpus: Option<CpuSet>,
}

/// What was told so far, in the order of telling, which is nearly that of time.
#[derive(Debug, Default)]
pub struct Gathered {
    events: Vec<Told>,
    introductions: Vec<RawThread>,
}

/// Something that was told: an event, or the number of an introduction.
#[derive(Clone, Copy, Debug)]
enum Told {
    Event(RawEvent),
    Introduction(u64, usize),
}

impl Told {
    fn at_ns(&self) -> u64 {
        match self {
            Told::Event(event) => event.at_ns,
            Told::Introduction(at_ns, _) => *at_ns,
        }
    }
}

impl Gathered {
    /// One entry of the ring.
    pub fn take(&mut self, bytes: &[u8]) {
        if let Ok(event) = bytemuck::try_pod_read_unaligned::<RawEvent>(bytes) {
            self.events.push(Told::Event(event));
        } else if let Ok(thread) = bytemuck::try_pod_read_unaligned::<RawThread>(bytes) {
            self.events.push(Told::Introduction(thread.event.at_ns, self.introductions.len()));
            self.introductions.push(thread);
        }
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.events.len() - self.introductions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Threads, and what happened to them from `began_ns` on for so long, ascending by time.
    ///
    /// What was before was seen in part: the recorder's programs begin one after the other, and switches are told
    /// without the wake-ups between.
    pub fn finish(mut self, began_ns: u64, duration_ns: u64) -> (Vec<Seen>, Vec<Event>) {
        self.events.sort_by_key(Told::at_ns);
        let mut telling = Telling::default();
        for told in &self.events {
            match told {
                Told::Introduction(_, place) => telling.meet(&self.introductions[*place]),
                Told::Event(event) if event.at_ns < began_ns => telling.forget(event),
                Told::Event(event) => telling.event((event.at_ns - began_ns).min(duration_ns), event),
            }
        }
        (telling.threads, telling.events)
    }
}

#[derive(Default)]
struct Telling {
    threads: Vec<Seen>,
    events: Vec<Event>,
    /// The threads that live, by id.
    living: HashMap<i32, u32>,
}

impl Telling {
    fn meet(&mut self, raw: &RawThread) {
        let thread = self.thread(raw.event.tid) as usize;
        let name = raw.name.split(|byte| *byte == 0).next().unwrap_or_default();
        self.threads[thread] = Seen {
            tid: raw.event.tid,
            name: String::from_utf8_lossy(name).into_owned(),
            cgroup: raw.cgroup,
            is_kernel: raw.is_kernel != 0,
            rank: rank(raw),
            cpus: (raw.nr_cpus > 0).then(|| cpus(&raw.cpus)),
        };
    }

    /// The thread of that id. One whose introduction is lost is known by its id alone.
    fn thread(&mut self, tid: i32) -> u32 {
        *self.living.entry(tid).or_insert_with(|| {
            self.threads.push(Seen {
                tid,
                name: String::new(),
                cgroup: 0,
                is_kernel: false,
                rank: Rank::Ordinary(0),
                cpus: None,
            });
            self.threads.len() as u32 - 1
        })
    }

    fn cause(&mut self, other: i32) -> Cause {
        match other {
            BY_TIMER => Cause::Timer,
            ..=0 => Cause::Outside,
            tid => Cause::Thread(self.thread(tid)),
        }
    }

    /// Of what was before the beginning: another thread may have the id from now on.
    fn forget(&mut self, raw: &RawEvent) {
        if (raw.kind, raw.how) == (SWITCH, EXITS) {
            self.living.remove(&raw.tid);
        }
    }

    fn event(&mut self, at_ns: u64, raw: &RawEvent) {
        match raw.kind {
            SWITCH => {
                if raw.tid != 0 {
                    let how = match raw.how {
                        PREEMPTED => How::Preempted,
                        WAITS_FOR_DEVICE => How::WaitsForDevice,
                        EXITS => How::Exits,
                        _ => How::Waits,
                    };
                    let thread = self.thread(raw.tid);
                    self.note(at_ns, What::Stops { thread, how });
                    if how == How::Exits {
                        self.living.remove(&raw.tid);
                    }
                }
                if raw.other != 0 {
                    let thread = self.thread(raw.other);
                    self.note(at_ns, What::Runs { cpu: raw.cpu, thread });
                }
            }
            WAKING => {
                let (thread, cause) = (self.thread(raw.tid), self.cause(raw.other));
                self.note(at_ns, What::Waking { thread, cause });
            }
            WOKEN => {
                let thread = self.thread(raw.tid);
                self.note(at_ns, What::Woken { thread });
            }
            STARTS => {
                let (thread, cause) = (self.thread(raw.tid), self.cause(raw.other));
                self.note(at_ns, What::Starts { thread, cause });
            }
            RUNS => {
                let thread = self.thread(raw.tid);
                self.note(at_ns, What::Runs { cpu: raw.cpu, thread });
            }
            _ => {}
        }
    }

    fn note(&mut self, at_ns: u64, what: What) {
        self.events.push(Event { at_ns, what });
    }
}

/// As the kernel's own scheduler ranks it. Deadlines are above all priorities.
fn rank(raw: &RawThread) -> Rank {
    match raw.policy {
        SCHED_FIFO | SCHED_RR => Rank::Realtime(raw.rt_priority.clamp(1, 99) as u8),
        SCHED_DEADLINE => Rank::Realtime(99),
        SCHED_IDLE => Rank::Idle,
        _ => Rank::Ordinary((raw.static_prio - NICE_0).clamp(-20, 19) as i8),
    }
}

fn cpus(words: &[u64]) -> CpuSet {
    let bits = |(number, word): (usize, &u64)| {
        let word = *word;
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| number as u32 * 64 + bit)
    };
    words.iter().enumerate().flat_map(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    fn event(at_ns: u64, kind: u32, tid: i32, other: i32, how: u32) -> Vec<u8> {
        bytemuck::bytes_of(&RawEvent { at_ns, kind, cpu: 3, tid, other, how, padding: 0 }).to_vec()
    }

    fn thread(at_ns: u64, tid: i32, name: &[u8]) -> Vec<u8> {
        let mut raw = RawThread { cgroup: 7, static_prio: 125, nr_cpus: 2, ..RawThread::zeroed() };
        (raw.event.at_ns, raw.event.tid, raw.cpus[1]) = (at_ns, tid, 0b110);
        raw.name[..name.len()].copy_from_slice(name);
        bytemuck::bytes_of(&raw).to_vec()
    }

    fn gathered(told: &[Vec<u8>]) -> (Vec<Seen>, Vec<Event>) {
        let mut gathered = Gathered::default();
        told.iter().for_each(|bytes| gathered.take(bytes));
        gathered.finish(1_000, 500)
    }

    #[test]
    fn events_are_put_in_order_and_ids_that_are_used_again_are_other_threads() {
        let (threads, events) = gathered(&[
            thread(1_000, 40, b"first"),
            event(1_200, SWITCH, 40, 41, EXITS),
            event(1_100, SWITCH, 0, 40, PREEMPTED),
            thread(1_300, 40, b"second"),
            event(1_300, STARTS, 40, 41, 0),
            event(1_900, WAKING, 41, BY_TIMER, 0),
        ]);
        let names: Vec<&str> = threads.iter().map(|thread| thread.name.as_str()).collect();
        assert_eq!(names, ["first", "", "second"]);
        let expected = [
            (100, What::Runs { cpu: 3, thread: 0 }),
            (200, What::Stops { thread: 0, how: How::Exits }),
            (200, What::Runs { cpu: 3, thread: 1 }),
            (300, What::Starts { thread: 2, cause: Cause::Thread(1) }),
            (500, What::Waking { thread: 1, cause: Cause::Timer }),
        ];
        assert_eq!(events, expected.map(|(at_ns, what)| Event { at_ns, what }));
        let first = &threads[0];
        assert_eq!(
            (first.rank, first.cpus.as_ref().unwrap().to_string()),
            (Rank::Ordinary(5), "65-66".into())
        );
    }

    #[test]
    fn what_was_before_the_beginning_is_not_told() {
        let (threads, events) = gathered(&[
            thread(900, 40, b"gone"),
            event(910, SWITCH, 40, 41, EXITS),
            event(920, SWITCH, 41, 42, 1),
            thread(950, 40, b"here"),
            event(1_010, RUNS, 40, 0, 0),
        ]);
        let names: Vec<&str> = threads.iter().map(|thread| thread.name.as_str()).collect();
        assert_eq!(names, ["gone", "here"]);
        assert_eq!(events, [Event { at_ns: 10, what: What::Runs { cpu: 3, thread: 1 } }]);
    }

    #[test]
    fn bytes_of_another_length_are_none() {
        let (threads, events) = gathered(&[vec![1; 31], vec![], vec![0; 4096]]);
        assert!(threads.is_empty() && events.is_empty());
    }
}
