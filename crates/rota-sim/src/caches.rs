//! Caches and memory: what threads' working sets hold of caches, take from each other, and wait for.
//!
//! A core has a private cache, and the CPUs of a last-level cache domain share one, with the memory behind it. While a
//! thread runs, each of its references hits a private cache, the shared one, or memory, with the probability that the
//! line is there: what the thread has of the cache over its working set. A miss brings a line in. Once a cache is full,
//! the line takes the place of any other, whosever it is, with equal chance: the occupancy model of R. West, P. Zaroo,
//! C. Waldspurger and X. Zhang, *Online cache modeling for commodity multicore processors*, SIGOPS Operating Systems
//! Review 44(4), 2010. What memory is asked for by all threads of a domain waits in the queues of its channels.
//!
//! The shared cache has all that the private ones have. There are no addresses, no sets and no prefetcher, and threads
//! share no lines.

use rota_model::Topology;

use crate::ids::CpuId;

/// What a thread's computing asks of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What it works on, in KiB, at least 1: each line is as likely as any other to be next.
    pub working_set_kib: u32,
    /// So many lines it refers to in each microsecond of computing that finds all of them in the private cache.
    pub references_per_us: u32,
    /// So many of its misses are under way at a time, at least 1: their waiting overlaps.
    pub overlap: u32,
}

impl Memory {
    /// What a microsecond of computing takes that finds all in the private cache, in ns, if nobody disturbs it: the
    /// private cache and the shared one, of `shared_kib`, have as much of the working set as they can hold, and no
    /// channel is busy.
    pub fn undisturbed_ns_per_us(self, shared_kib: u64) -> u64 {
        let working_set = lines(self.working_set_kib.into());
        let held = |kib| lines(kib).min(working_set);
        Pace::of(self, working_set, held(PRIVATE_KIB), held(shared_kib), 0).ns_per_us
    }
}

/// What a processor's counters say of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// References to the last-level cache.
    pub references: u64,
    /// Those that went on to memory.
    pub misses: u64,
    /// How long it ran, and waited for one or the other, in ns.
    pub stalled_ns: u64,
}

impl CacheCounters {
    /// Of both together.
    #[must_use]
    pub fn plus(self, other: CacheCounters) -> CacheCounters {
        CacheCounters {
            references: self.references + other.references,
            misses: self.misses + other.misses,
            stalled_ns: self.stalled_ns + other.stalled_ns,
        }
    }

    /// What came after `before`.
    #[must_use]
    pub fn since(self, before: CacheCounters) -> CacheCounters {
        CacheCounters {
            references: self.references - before.references,
            misses: self.misses - before.misses,
            stalled_ns: self.stalled_ns - before.stalled_ns,
        }
    }
}

/// A line has so many bytes on x86-64.
const LINE: u64 = 64;
/// The second-level cache of a core, in KiB: Haswell and Broadwell servers. Figure 4 of Huang et al. (HPDC 2021) has
/// the indirect cost of a switch begin where two threads' arrays exceed it.
pub const PRIVATE_KIB: u64 = 256;
/// The last-level cache of a domain, in KiB, if nobody says another size: Xeon E5-2667 v3, eight cores at 3.2 GHz, as
/// in the thesis (chapter 6).
pub const SHARED_KIB: u64 = 20 * 1024;
/// A hit in the last-level cache, and in memory of the same node, in ns: D. Molka, D. Hackenberg, R. Schöne and W.
/// Nagel, *Cache coherence protocol and memory performance of the Intel Haswell-EP architecture*, ICPP 2015.
const SHARED_NS: u64 = 21;
const MEMORY_NS: u64 = 96;
/// Channels of memory of a domain, and how long a line takes on one, in ps: DDR4-2133, 17.07 GB/s (JEDEC JESD79-4).
const CHANNELS: u64 = 4;
const LINE_PS: u64 = 3_750;
/// How busy the channels are is measured over this.
const WINDOW_NS: u64 = 1_000_000;
/// The busiest that channels are taken for, of 1,024: their queues would have no end.
const BUSY_MAX: u64 = 1_000;
/// How fast a thread gets on is looked at anew after so long.
pub(crate) const QUANTUM_NS: u64 = 200_000;
/// A private cache fills within microseconds: no more than a part of it between two looks.
const STEP_PART: u64 = 8;

/// Occupancies are counted in parts of a line.
const FRACTION: u32 = 10;
/// Probabilities are of 2^16.
const CERTAIN: u64 = 1 << 16;

fn lines(kib: u64) -> u64 {
    (kib * 1024 / LINE) << FRACTION
}

/// A cache, and who has how much of it.
#[derive(Clone, Debug)]
struct Cache {
    size: u64,
    used: u64,
    /// By the thread's number here; those without a line are left out.
    owners: Vec<(u32, u64)>,
}

impl Cache {
    fn new(kib: u64) -> Cache {
        Cache { size: lines(kib), used: 0, owners: Vec::new() }
    }

    fn has(&self, thread: u32) -> u64 {
        self.owners.iter().find(|(owner, _)| *owner == thread).map_or(0, |(_, lines)| *lines)
    }

    /// So much comes in for a thread, which has no more than its working set here afterwards.
    fn fill(&mut self, thread: u32, amount: u64, working_set: u64) {
        if amount == 0 {
            return;
        }
        let amount = amount.min(self.size / 2);
        let free = amount.min(self.size - self.used);
        let evicting = amount - free;
        let keep = ((u128::from(self.size - evicting) << 32) / u128::from(self.size)) as u64;
        if evicting > 0 {
            for (_, lines) in &mut self.owners {
                *lines = ((u128::from(*lines) * u128::from(keep)) >> 32) as u64;
            }
            self.owners.retain(|(_, lines)| *lines > 0);
        }
        let kept: u64 = self.owners.iter().map(|(_, lines)| lines).sum();
        let before = self.has(thread);
        let after = (before + amount).min(working_set).min(before + self.size - kept);
        match self.owners.iter_mut().find(|(owner, _)| *owner == thread) {
            Some((_, lines)) => *lines = after,
            None => self.owners.push((thread, after)),
        }
        self.used = kept - before + after;
    }

    fn forget(&mut self, thread: u32) {
        self.used -= self.has(thread);
        self.owners.retain(|(owner, _)| *owner != thread);
    }
}

/// The channels behind a last-level cache.
#[derive(Clone, Copy, Debug, Default)]
struct Channels {
    window: u64,
    /// Lines in the present window, and in the one before.
    lines: u64,
    before: u64,
}

impl Channels {
    fn ask(&mut self, now_ns: u64, lines: u64) {
        self.turn(now_ns);
        self.lines += lines;
    }

    fn turn(&mut self, now_ns: u64) {
        let window = now_ns / WINDOW_NS;
        if window != self.window {
            self.before = if window == self.window + 1 { self.lines } else { 0 };
            (self.window, self.lines) = (window, 0);
        }
    }

    /// How long a line waits for a channel, in ns: the queue M/D/1 at the use of the last window.
    fn wait_ns(&mut self, now_ns: u64) -> u64 {
        self.turn(now_ns);
        let busy = (self.before * LINE_PS * 1024 / (CHANNELS * WINDOW_NS * 1000)).min(BUSY_MAX);
        LINE_PS * busy / (2 * (1024 - busy)) / 1000
    }
}

/// A thread that refers to memory.
#[derive(Clone, Copy, Debug)]
struct Thread {
    memory: Memory,
    /// In parts of a line.
    working_set: u64,
    /// References to the shared cache and misses there, in parts of a line.
    counted: [u64; 2],
    stalled_ns: u64,
}

/// How a thread gets on now.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// What a microsecond of computing takes, in ns.
    ns_per_us: u64,
    /// The chances of a miss, of [`CERTAIN`].
    private: u64,
    shared: u64,
}

impl Pace {
    /// Of a thread that has so much of its working set in the private cache and in the shared one, which has the
    /// other's too. A line from memory waits `wait_ns` for a channel.
    fn of(memory: Memory, working_set: u64, private: u64, shared: u64, wait_ns: u64) -> Pace {
        let (absent, beyond) = (working_set - shared, working_set - private);
        let part = |of: u64, whole: u64| (of * CERTAIN).checked_div(whole).unwrap_or(0);
        let (private, shared) = (part(beyond, working_set), part(absent, beyond));
        let beyond_ns = MEMORY_NS - SHARED_NS + wait_ns;
        let miss_parts = SHARED_NS * CERTAIN + beyond_ns * shared;
        let wait_parts = u64::from(memory.references_per_us) * ((private * miss_parts) >> 16);
        Pace { ns_per_us: 1000 + (wait_parts >> 16) / u64::from(memory.overlap.max(1)), private, shared }
    }
}

/// The caches of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    /// By core and by domain.
    private: Vec<Cache>,
    shared: Vec<Cache>,
    channels: Vec<Channels>,
    /// Of each CPU: its core's and its domain's place.
    places: Vec<(usize, usize)>,
    threads: Vec<Thread>,
}

impl Caches {
    /// Each domain's shared cache has `shared_kib`.
    pub fn new(topology: &Topology, shared_kib: u64) -> Caches {
        let (mut cores, mut domains) = (Vec::new(), Vec::new());
        let place = |list: &mut Vec<u32>, number: u32| {
            list.iter().position(|known| *known == number).unwrap_or_else(|| {
                list.push(number);
                list.len() - 1
            })
        };
        let nr_cpus = topology.places.last().map_or(0, |last| last.cpu as usize + 1);
        let mut places = vec![(0, 0); nr_cpus];
        for at in &topology.places {
            places[at.cpu as usize] = (place(&mut cores, at.core), place(&mut domains, at.cache));
        }
        Caches {
            private: vec![Cache::new(PRIVATE_KIB); cores.len()],
            shared: vec![Cache::new(shared_kib); domains.len()],
            channels: vec![Channels::default(); domains.len()],
            places,
            threads: Vec::new(),
        }
    }

    /// A thread that refers to memory from now on, and its number here.
    pub fn add(&mut self, memory: Memory) -> u32 {
        self.threads.push(Thread {
            memory,
            working_set: lines(memory.working_set_kib.into()),
            counted: [0; 2],
            stalled_ns: 0,
        });
        self.threads.len() as u32 - 1
    }

    /// It works on something else from now on.
    pub fn change(&mut self, thread: u32, memory: Memory) {
        self.leave(thread);
        let known = &mut self.threads[thread as usize];
        (known.memory, known.working_set) = (memory, lines(memory.working_set_kib.into()));
    }

    /// Nothing that it had in caches is of use any more.
    pub fn leave(&mut self, thread: u32) {
        self.private.iter_mut().chain(&mut self.shared).for_each(|cache| cache.forget(thread));
    }

    pub fn memory(&self, thread: u32) -> Memory {
        self.threads[thread as usize].memory
    }

    pub fn counters(&self, thread: u32) -> CacheCounters {
        let Thread { counted, stalled_ns, .. } = self.threads[thread as usize];
        let [references, misses] = counted.map(|parts| parts >> FRACTION);
        CacheCounters { references, misses, stalled_ns }
    }

    /// What a thread has of the shared cache of a CPU's domain, in bytes.
    pub fn shared_bytes(&self, thread: u32, cpu: CpuId) -> u64 {
        (self.shared[self.places[cpu.index()].1].has(thread) * LINE) >> FRACTION
    }

    fn pace(&mut self, thread: u32, cpu: CpuId, now_ns: u64) -> Pace {
        let (core, domain) = self.places[cpu.index()];
        let Thread { memory, working_set, .. } = self.threads[thread as usize];
        // The shared cache has all that private ones have: a reference that missed there may be to any other line.
        let shared = self.shared[domain].has(thread);
        let private = self.private[core].has(thread).min(shared);
        let wait_ns = self.channels[domain].wait_ns(now_ns);
        Pace::of(memory, working_set, private, shared, wait_ns)
    }

    /// What `ns` of computing take at the pace of now, or [`QUANTUM_NS`] if that is less.
    pub fn stretched(&mut self, thread: u32, cpu: CpuId, now_ns: u64, ns: u64) -> u64 {
        let pace = self.pace(thread, cpu, now_ns);
        let whole = u128::from(ns) * u128::from(pace.ns_per_us);
        u64::try_from(whole.div_ceil(1000)).unwrap_or(u64::MAX).min(QUANTUM_NS)
    }

    /// A thread has run for so long until now; how much of its computing it has done, in ns.
    pub fn advance(&mut self, thread: u32, cpu: CpuId, now_ns: u64, ran_ns: u64) -> u64 {
        let (core, domain) = self.places[cpu.index()];
        let Thread { memory, working_set, .. } = self.threads[thread as usize];
        let (mut left_ns, mut done_ns, mut missed) = (ran_ns, 0, 0);
        while left_ns > 0 {
            let pace = self.pace(thread, cpu, now_ns);
            // References of a step, in parts of a line, for each ns of it.
            let per_us = (u64::from(memory.references_per_us) << FRACTION) * 1000 / pace.ns_per_us;
            let most = self.private[core].size / STEP_PART;
            let step_ns = (most * 1000 / per_us.max(1)).max(1).min(left_ns);
            let beyond = ((per_us * step_ns / 1000) * pace.private) >> 16;
            let misses = (beyond * pace.shared) >> 16;
            self.private[core].fill(thread, beyond, working_set);
            missed += misses;
            let step_done_ns = step_ns * 1000 / pace.ns_per_us;
            let Thread { counted, stalled_ns, .. } = &mut self.threads[thread as usize];
            *counted = [counted[0] + beyond, counted[1] + misses];
            *stalled_ns += step_ns - step_done_ns;
            done_ns += step_done_ns;
            left_ns -= step_ns;
        }
        self.shared[domain].fill(thread, missed, working_set);
        self.channels[domain].ask(now_ns, missed >> FRACTION);
        done_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_cache_is_shared_as_lines_come_in() {
        let (mut cache, large) = (Cache::new(1024), lines(1 << 20));
        (0..4_000).for_each(|round| cache.fill(u32::from(round % 4 == 0), 16 << FRACTION, large));
        let part = cache.has(1) * 100 / cache.size;
        assert!((24..=26).contains(&part), "a quarter of what comes in is its own: {part} %");
    }

    #[test]
    fn undisturbed_a_thread_waits_for_what_its_caches_cannot_hold() {
        let of = |working_set_kib, overlap| {
            Memory { working_set_kib, references_per_us: 10, overlap }.undisturbed_ns_per_us(SHARED_KIB)
        };
        assert_eq!(of(PRIVATE_KIB as u32, 1), 1_000, "all is in the private cache");
        // Half of the references go to the shared cache; of a set of twice its size, half of all go to memory.
        assert_eq!(of(2 * PRIVATE_KIB as u32, 1), 1_000 + 10 * SHARED_NS / 2);
        let [one, two] = [1, 2].map(|overlap| of(2 * SHARED_KIB as u32, overlap) - 1_000);
        let expected = 10 * SHARED_NS * 159 / 160 + 10 * (MEMORY_NS - SHARED_NS) / 2;
        assert!(one.abs_diff(expected) <= 5 && one.abs_diff(2 * two) <= 1, "{one} {two}, not {expected}");
    }

    #[test]
    fn channels_have_a_queue_once_they_are_busy() {
        let mut channels = Channels::default();
        channels.ask(0, 100);
        assert_eq!(channels.wait_ns(WINDOW_NS), 0);
        // Nine tenths of what four channels carry in a window.
        channels.ask(WINDOW_NS, 960_000);
        assert_eq!(channels.wait_ns(2 * WINDOW_NS), 16);
        assert_eq!(channels.wait_ns(4 * WINDOW_NS), 0);
    }

    proptest! {
        #[test]
        fn a_cache_holds_no_more_than_it_can(fills in prop::collection::vec((0u32..6, 0u64..1 << 24), 1..200)) {
            let mut cache = Cache::new(256);
            for (thread, amount) in fills {
                let working_set = lines(64 << thread);
                cache.fill(thread, amount, working_set);
                let held: u64 = cache.owners.iter().map(|(_, lines)| lines).sum();
                prop_assert_eq!(cache.used, held);
                prop_assert!(held <= cache.size && cache.has(thread) <= working_set);
            }
        }
    }
}
