//! What a guest's scheduler decides, written again from its description: of one moment, from a snapshot of the guest.
//! It shares nothing with the scheduler's C.

use std::cmp::Reverse;

use rota_table::OwnSlots;

/// Threads leave so long before a slot ends, in ns.
pub const LEAD_NS: u64 = 30_000;
/// A CPU that stops sooner is no place to go.
pub const STAY_NS: u64 = 200_000;
/// For so long a timetable that was wrong is not believed.
pub const BELIEF_NS: u64 = 1_000_000_000;

/// A CPU. One on which nothing runs idles, and nobody waits there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The home of the thread that runs here.
    pub runs: Option<usize>,
    /// That thread's home wants it back.
    pub is_recalled: bool,
    /// How many threads wait here.
    pub waiting: usize,
    /// When it was last seen to be somebody else's between its slots.
    pub taken_ns: Option<u64>,
    /// When its slots had not been as published too often.
    pub distrusted_ns: Option<u64>,
}

/// A guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guest {
    /// The host's CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// None if no table is in force.
    pub timetable: Option<Vec<OwnSlots>>,
    /// Its CPUs.
    pub cpus: Vec<Cpu>,
    /// The home of a thread that wakes up.
    pub wakes: usize,
}

/// Where a time is among a CPU's slots, of which those that touch are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// In a slot, until then.
    In(u64),
    /// Between two, until then.
    Out(u64),
}

impl Guest {
    /// Where a time is; none for a CPU that has no slots, or no end of one.
    fn moment(&self, cpu: usize, now_ns: u64) -> Option<Moment> {
        let own = self.timetable.as_ref()?.iter().find(|own| own.index as usize == cpu)?;
        let is_in = |at_ns: u64| {
            let place_ns = at_ns % own.length_ns;
            own.slots.iter().any(|(start_ns, end_ns)| (*start_ns..*end_ns).contains(&place_ns))
        };
        let round_ns = now_ns - now_ns % own.length_ns;
        let mut changes: Vec<u64> = (0..3)
            .flat_map(|round| {
                let at_ns = round_ns + round * own.length_ns;
                own.slots.iter().flat_map(move |(start_ns, end_ns)| [at_ns + start_ns, at_ns + end_ns])
            })
            .filter(|change_ns| *change_ns > now_ns)
            .collect();
        changes.sort_unstable();
        let is_in_now = is_in(now_ns);
        let change_ns = changes.into_iter().find(|change_ns| is_in(*change_ns) != is_in_now)?;
        Some(if is_in_now { Moment::In(change_ns) } else { Moment::Out(change_ns) })
    }

    /// The same, if the CPU's timetable is believed.
    fn expected(&self, cpu: usize) -> Option<Moment> {
        let is_believed =
            self.cpus[cpu].distrusted_ns.is_none_or(|distrusted_ns| distrusted_ns + BELIEF_NS <= self.now_ns);
        self.moment(cpu, self.now_ns).filter(|_| is_believed)
    }

    /// Until when a CPU runs: `u64::MAX` if nothing is known to stop it, none if it is stopped or about to be.
    pub fn runs_until_ns(&self, cpu: usize) -> Option<u64> {
        match self.expected(cpu).filter(|_| self.cpus[cpu].taken_ns.is_some()) {
            None => Some(u64::MAX),
            Some(Moment::Out(_)) => None,
            Some(Moment::In(until_ns)) => Some(until_ns - LEAD_NS).filter(|end_ns| *end_ns > self.now_ns),
        }
    }

    /// Whether a CPU is a place to go.
    pub fn is_there(&self, cpu: usize) -> bool {
        self.runs_until_ns(cpu).is_some_and(|until_ns| until_ns - self.now_ns >= STAY_NS)
    }

    fn idles(&self, cpu: usize) -> bool {
        self.cpus[cpu].runs.is_none() && self.cpus[cpu].waiting == 0
    }

    /// When a CPU goes on that is stopped, as published, believed or not; `u64::MAX` if that is not known. One that is
    /// in its slot goes on after the next gap.
    fn goes_on_ns(&self, cpu: usize) -> u64 {
        match self.moment(cpu, self.now_ns) {
            None => u64::MAX,
            Some(Moment::Out(from_ns)) => from_ns,
            Some(Moment::In(until_ns)) => match self.moment(cpu, until_ns) {
                Some(Moment::Out(from_ns)) => from_ns,
                _ => u64::MAX,
            },
        }
    }

    /// The CPU that a thread leaves another one for.
    fn refuge(&self, from: usize) -> Option<usize> {
        let others = || (0..self.cpus.len()).filter(|other| *other != from);
        let burden = |cpu: &usize| {
            let of = &self.cpus[*cpu];
            (of.waiting + usize::from(of.runs.is_some()), Reverse(self.runs_until_ns(*cpu)))
        };
        let there = others().filter(|other| self.is_there(*other)).min_by_key(burden);
        there.or_else(|| {
            let first =
                others().filter(|other| self.idles(*other)).min_by_key(|cpu| self.goes_on_ns(*cpu))?;
            let is_sooner = self.goes_on_ns(first).saturating_add(STAY_NS) < self.goes_on_ns(from);
            is_sooner.then_some(first)
        })
    }

    /// Where the thread goes that wakes up.
    pub fn wakes_on(&self) -> usize {
        let home = self.wakes;
        let has_guest = self.cpus[home].runs.is_some_and(|of| of != home);
        let is_home_there = self.is_there(home);
        if is_home_there && (self.idles(home) || has_guest) {
            return home;
        }
        let idle = (0..self.cpus.len()).find(|cpu| self.idles(*cpu) && self.is_there(*cpu));
        match idle {
            Some(idle) => idle,
            None if is_home_there => home,
            None => self.refuge(home).unwrap_or(home),
        }
    }

    /// Where the thread waits that has run on a CPU and would go on.
    pub fn goes_on_on(&self, cpu: usize) -> Option<usize> {
        let home = self.cpus[cpu].runs?;
        let is_called = self.cpus[cpu].is_recalled && self.is_there(home);
        if is_called {
            return Some(home);
        }
        let is_stopped = self.runs_until_ns(cpu).is_none();
        Some(self.refuge(cpu).filter(|_| is_stopped).unwrap_or(cpu))
    }
}
