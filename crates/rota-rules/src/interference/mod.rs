//! Cache interference: which of the tables that promise the same is used, so that neighbours disturb each other least.
//!
//! After Vanga's thesis, chapter 7. `random` has vCPUs change places at random, again and again: nobody has the same
//! neighbours for long. `measured` reads what each vCPU fetches from memory, finds those that fill caches
//! ([`detect`]) and spreads them ([`spread`]). Without counters it does as `random` does, and says so.

pub mod detect;
pub mod spread;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rota_model::{Interference, Topology};
use rota_plan::{Seat, VcpuKey};

use crate::status::{InterferenceStatus, PlacePressure};
use detect::Detector;
use spread::{Pair, Pressure, by_cpu, spread};

/// Between two looks at the counters.
const LOOK_NS: u64 = 25_000_000;
/// Between two changes at random. The thesis has no pause; each change costs what caches lose by it.
const SHUFFLE_NS: u64 = 250_000_000;
/// So many pairs change places at random at once (thesis section 7.2).
const SHUFFLE_PAIRS: u32 = 100;
/// A vCPU that fills caches, or gives way to one, stays where it is then for so long.
const REST_NS: u64 = 500_000_000;
/// The operator is told of what was moved no more often.
const SAY_NS: u64 = 10_000_000_000;
/// Counters that could not be read are tried again after this.
const BLIND_NS: u64 = 60_000_000_000;
/// A vCPU's part of the time is an average over about so many looks.
const DUTY_LOOKS: u64 = 8;

/// What was counted of a vCPU since it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// How long it has run, in ns.
    pub ran_ns: u64,
    /// References to the last-level cache.
    pub references: u64,
    /// Lines fetched from memory.
    pub misses: u64,
}

/// What was counted of a thread, or of all threads of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCount {
    /// The kernel's id of its cgroup.
    pub cgroup: u64,
    /// The thread; 0 for all of the cgroup's.
    pub tid: i32,
    /// What was counted.
    pub counted: Counted,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Read the counters, and come back with them.
    Count,
    /// Have vCPUs change places at random.
    Shuffle,
}

#[derive(Clone, Debug, Default)]
struct Watched {
    last: Counted,
    detector: Detector,
    /// The part of the time in which it runs, in millionths.
    duty_ppm: u64,
}

/// The state.
#[derive(Debug)]
pub struct Neighbours {
    due_ns: u64,
    looked_ns: u64,
    /// Why there are no counters, if there are none.
    blind: Option<String>,
    /// Since when, or when they were last tried.
    blind_ns: u64,
    watched: BTreeMap<VcpuKey, Watched>,
    pressure: Pressure,
    moved_ns: BTreeMap<VcpuKey, u64>,
    chance: u64,
    exchanges: u64,
    moves: u64,
    alarms: u64,
    last: Option<(u64, String)>,
    said_ns: Option<u64>,
}

impl Neighbours {
    /// Nothing was counted or moved yet.
    pub fn new(now_ns: u64) -> Neighbours {
        Neighbours {
            due_ns: now_ns + LOOK_NS,
            looked_ns: now_ns,
            blind: None,
            blind_ns: now_ns,
            watched: BTreeMap::new(),
            pressure: Pressure::new(),
            moved_ns: BTreeMap::new(),
            chance: now_ns | 1,
            exchanges: 0,
            moves: 0,
            alarms: 0,
            last: None,
            said_ns: None,
        }
    }

    /// When something is due; never if nothing is to be done.
    pub fn due_ns(&self, wanted: Interference) -> u64 {
        if wanted == Interference::Off { u64::MAX } else { self.due_ns }
    }

    /// What is due now, if anything is.
    pub fn due(&mut self, now_ns: u64, wanted: Interference) -> Option<Due> {
        if self.due_ns(wanted) > now_ns {
            return None;
        }
        let waits = self.blind.is_some() && now_ns < self.blind_ns + BLIND_NS;
        let is_blind = wanted == Interference::Random || waits;
        let (due, period_ns) = if is_blind { (Due::Shuffle, SHUFFLE_NS) } else { (Due::Count, LOOK_NS) };
        self.due_ns = now_ns + period_ns;
        Some(due)
    }

    /// There are no counters, for this reason. What to tell the operator, if that is news.
    pub fn without_counters(&mut self, now_ns: u64, reason: &str) -> Option<String> {
        let is_news = self.blind.as_deref() != Some(reason);
        (self.blind, self.blind_ns) = (Some(reason.to_owned()), now_ns);
        self.pressure.clear();
        is_news
            .then(|| format!("interference: no counters, so vCPUs change places at random instead: {reason}"))
    }

    /// The counters of those that are here.
    pub fn counted(&mut self, now_ns: u64, all: &BTreeMap<VcpuKey, Counted>) {
        self.blind = None;
        let window_ns = now_ns.saturating_sub(self.looked_ns).max(1);
        self.looked_ns = now_ns;
        self.watched.retain(|vcpu, _| all.contains_key(vcpu));
        self.moved_ns.retain(|_, at_ns| now_ns < *at_ns + REST_NS);
        for (&vcpu, &counted) in all {
            let Some(watched) = self.watched.get_mut(&vcpu) else {
                self.watched.insert(vcpu, Watched { last: counted, ..Watched::default() });
                continue;
            };
            let grown = |of: fn(&Counted) -> u64| of(&counted).saturating_sub(of(&watched.last));
            let (ran_ns, misses) = (grown(|counted| counted.ran_ns), grown(|counted| counted.misses));
            watched.last = counted;
            let duty_ppm = ran_ns.saturating_mul(1_000_000) / window_ns;
            watched.duty_ppm = (watched.duty_ppm * (DUTY_LOOKS - 1) + duty_ppm) / DUTY_LOOKS;
            self.alarms += u64::from(watched.detector.look(ran_ns, misses) && watched.detector.is_hungry());
        }
        let hungry = self.watched.iter().filter(|(_, watched)| watched.detector.is_hungry());
        let fetches = |watched: &Watched| watched.detector.per_ms() * watched.duty_ppm / 1_000_000;
        self.pressure = hungry.map(|(vcpu, watched)| (*vcpu, fetches(watched))).collect();
    }

    /// In place of counters: what each vCPU fetches in a millisecond is known.
    pub fn known(&mut self, now_ns: u64, pressure: Pressure) {
        self.moved_ns.retain(|_, at_ns| now_ns < *at_ns + REST_NS);
        self.pressure = pressure;
    }

    /// Nobody fills caches.
    pub fn is_quiet(&self) -> bool {
        self.pressure.is_empty()
    }

    /// Who changes places by what was counted.
    pub fn spread(&self, seats: &[Seat], topology: &Topology) -> Vec<Pair> {
        spread(seats, &self.pressure, topology, &|vcpu| !self.moved_ns.contains_key(&vcpu))
    }

    /// Who changes places at random.
    pub fn shuffle(&mut self, seats: &[Seat]) -> Vec<Pair> {
        if seats.len() < 2 {
            return Vec::new();
        }
        let mut draw = || seats[(self.next() % seats.len() as u64) as usize].vcpu;
        (0..SHUFFLE_PAIRS).map(|_| (draw(), draw())).collect()
    }

    /// Marsaglia's xorshift64*.
    fn next(&mut self) -> u64 {
        self.chance ^= self.chance >> 12;
        self.chance ^= self.chance << 25;
        self.chance ^= self.chance >> 27;
        self.chance.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Who has moved, or cannot: nobody of them is asked to for a while. What to tell the operator, now and then.
    pub fn moved(&mut self, now_ns: u64, pairs: &[Pair], moved: u64, why: &str) -> Option<String> {
        for (one, other) in pairs {
            self.moved_ns.insert(*one, now_ns);
            self.moved_ns.insert(*other, now_ns);
        }
        if moved == 0 {
            return None;
        }
        (self.exchanges, self.moves) = (self.exchanges + 1, self.moves + moved);
        let line = format!("{moved} vCPUs have changed places: {why}");
        self.last = Some((now_ns, line.clone()));
        let is_due = self.said_ns.is_none_or(|said_ns| now_ns >= said_ns + SAY_NS);
        is_due.then(|| {
            self.said_ns = Some(now_ns);
            format!("interference: {line} (moved so far: {})", self.moves)
        })
    }

    /// The cache domain that is filled most, and the one that is filled least, in a few words.
    pub fn why(&self, seats: &[Seat], topology: &Topology) -> String {
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        for (cpu, per_ms) in by_cpu(seats, &self.pressure) {
            *sums.entry(topology.place(cpu).map_or(0, |place| place.cache)).or_insert(0) += per_ms;
        }
        let by_sum = |(domain, sum): (&u32, &u64)| (*sum, *domain);
        let (most, least) = (sums.iter().map(by_sum).max(), sums.iter().map(by_sum).min());
        let ((most, full), (least, other)) = (most.unwrap_or_default(), least.unwrap_or_default());
        format!("cache domain {full} fetched {most} lines a ms, domain {other} {least}")
    }

    /// What `rota status` shows; nothing if nothing is wanted.
    pub fn status(
        &self,
        now_ns: u64,
        wanted: Interference,
        seats: &[Seat],
        topology: &Topology,
    ) -> Option<InterferenceStatus> {
        let strategy = match wanted {
            Interference::Off => return None,
            Interference::Measured if self.blind.is_none() => "measured",
            Interference::Measured | Interference::Random => "random",
        };
        let place = |cpu: u32| topology.place(cpu);
        let cpus = by_cpu(seats, &self.pressure).into_iter().map(|(cpu, lines_per_ms)| PlacePressure {
            cpu,
            domain: place(cpu).map_or(0, |place| place.cache),
            socket: place(cpu).map_or(0, |place| place.socket),
            lines_per_ms,
        });
        Some(InterferenceStatus {
            strategy: strategy.to_owned(),
            no_counters: self.blind.clone(),
            counted_by: None,
            exchanges: self.exchanges,
            moves: self.moves,
            alarms: self.alarms,
            hungry: self.pressure.len() as u32,
            last: self.last.as_ref().map(|(_, line)| line.clone()),
            last_s: self.last.as_ref().map(|(at_ns, _)| now_ns.saturating_sub(*at_ns) as f64 / 1e9),
            cpus: cpus.collect(),
        })
    }
}
