//! What a seed draws: which kinds of things there are at all, and how often. Each seed leaves a random part of them
//! out: where everything happens at once, much never happens alone (Groce et al., *Swarm testing*, ISSTA 2012).

use std::fmt;

use rota_sched::Cause;
use rota_sim::Rng;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// Of chance, for what bound threads there are: see `FARM_STREAM`.
pub const BOUND_STREAM: u64 = 5 << 32;
/// Likewise, for what changes of task cost.
pub const COSTS_STREAM: u64 = 6 << 32;
/// Likewise, for whether tenants' slots come together.
pub const TOGETHER_STREAM: u64 = 7 << 32;
/// Likewise, for whether VMs are shown their slots.
pub const TIMETABLE_STREAM: u64 = 9 << 32;
/// Likewise, for when the daemon is killed.
pub const DAEMON_STREAM: u64 = 8 << 32;

/// What may be done to a host while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// A tenant comes or goes.
    Churn,
    /// A tenant's class, share, latency or weight is edited.
    Edit,
    /// Threads come in a crowd, and go.
    Crowd,
    /// A thread moves to another cgroup.
    Move,
    /// A thread's affinity changes.
    Affinity,
    /// A real-time task takes a CPU.
    Realtime,
    /// Interrupts, soft interrupts or the hypervisor take a CPU.
    Theft,
    /// A kernel thread runs that is bound to a CPU.
    Kthread,
    /// For a while timers and kicks come late.
    Late,
    /// A CPU goes, or comes back.
    Hotplug,
    /// The daemon is killed, or the next one comes. Drawn apart: see [`Swarm::daemon`].
    Daemon,
}

impl Deal {
    pub const ALL: [Deal; 10] = [
        Deal::Churn,
        Deal::Edit,
        Deal::Crowd,
        Deal::Move,
        Deal::Affinity,
        Deal::Realtime,
        Deal::Theft,
        Deal::Kthread,
        Deal::Late,
        Deal::Hotplug,
    ];

    /// Whether a promise may be missed for it.
    pub fn excuses(self) -> bool {
        !matches!(self, Deal::Churn | Deal::Edit | Deal::Crowd | Deal::Daemon)
    }
}

/// What a seed has drawn.
#[derive(Clone, Debug)]
pub struct Swarm {
    pub seed: u64,
    pub cpus: u32,
    /// CPUs of a core.
    pub siblings: u32,
    pub housekeeping: u32,
    /// Of all that tenants may be promised, in percent; there may be more tenants than fit.
    pub load_percent: u64,
    /// How many tenants at most.
    pub tenants: u64,
    pub vms: bool,
    pub capped: bool,
    pub uncapped: bool,
    pub affinities: bool,
    pub exclusive: bool,
    pub shared: bool,
    pub background: bool,
    pub monitors: bool,
    /// Threads may be bound to some CPUs for good.
    pub bound: bool,
    /// What is done, and how long between two times on average, in ns.
    pub deals: Vec<(Deal, u64)>,
    pub safety_ns: u64,
    pub liveness_ns: u64,
}

/// From `least` to `most`, each power of two as likely as any other.
pub fn spread(rng: &mut Rng, least: u64, most: u64) -> u64 {
    let powers = u64::from((most / least).ilog2());
    let low = least << rng.between(0, powers);
    rng.between(low, (2 * low).min(most))
}

impl Swarm {
    pub fn draw(seed: u64, rng: &mut Rng) -> Swarm {
        let cpus = match rng.below(100) {
            0..60 => rng.between(1, 8),
            60..90 => rng.between(5, 24),
            90..98 => rng.between(16, 64),
            _ => rng.between(65, 320),
        } as u32;
        let siblings = if rng.chance(1, 3) && cpus >= 4 { 2 } else { 1 };
        let cpus = cpus / siblings * siblings;
        let kept =
            if rng.chance(1, 2) { siblings * rng.between(1, 1 + u64::from(cpus) / 16) as u32 } else { 0 };
        let mut coin = |parts| rng.chance(parts, 8);
        let (vms, capped) = (coin(5), coin(4));
        let mut swarm = Swarm {
            seed,
            cpus,
            siblings,
            housekeeping: if kept < cpus { kept } else { 0 },
            load_percent: 0,
            tenants: 0,
            vms,
            capped,
            uncapped: !capped || coin(5),
            affinities: coin(2),
            exclusive: siblings > 1 && kept > 0 && kept < cpus && coin(3),
            shared: coin(4),
            background: coin(5),
            monitors: vms && coin(3),
            bound: false,
            deals: Vec::new(),
            safety_ns: 0,
            liveness_ns: 0,
        };
        swarm.load_percent = if rng.chance(1, 2) { rng.between(85, 115) } else { rng.between(10, 90) };
        swarm.tenants = spread(rng, 2, 4 * u64::from(cpus).clamp(2, 64));
        for deal in Deal::ALL {
            let (least, most) = match deal {
                Deal::Hotplug => (16, 1),
                _ => (3, 1),
            };
            if rng.chance(most, least) {
                swarm.deals.push((deal, spread(rng, MS, 512 * MS)));
            }
        }
        swarm.time(rng);
        swarm.daemon(&mut Rng::new(seed, DAEMON_STREAM));
        swarm.bind(&mut Rng::new(seed, BOUND_STREAM));
        swarm
    }

    /// On one host of eight the daemon is killed and comes back.
    fn daemon(&mut self, rng: &mut Rng) {
        if rng.chance(1, 8) {
            self.deals.push((Deal::Daemon, spread(rng, 16 * MS, 512 * MS)));
        }
    }

    /// Where all promises are kept to the letter threads may be bound, too, and wait for as long as the floor has it.
    fn bind(&mut self, rng: &mut Rng) {
        self.bound = self.is_calm() && rng.chance(1, 2);
        if self.bound && self.cpus <= 4 && rng.chance(1, 8) {
            self.safety_ns = self.safety_ns.max(20 * S);
        }
    }

    /// How long it goes on: as many slots on a large host as on a small one, and seldom for so long that the kernel's
    /// watchdog would see who is forgotten.
    fn time(&mut self, rng: &mut Rng) {
        let is_long = self.cpus <= 4 && rng.chance(1, 50);
        let cpu_ns = spread(rng, 2 * S, 16 * S);
        self.safety_ns =
            if is_long { 40 * S } else { (cpu_ns / u64::from(self.cpus)).clamp(200 * MS, 3 * S) };
        self.liveness_ns = (self.safety_ns / 4).clamp(200 * MS, S);
    }

    pub fn has(&self, deal: Deal) -> bool {
        self.deals.iter().any(|(other, _)| *other == deal)
    }

    /// Whether there are faults for which the scheduler may say that a promise was missed for this cause.
    pub fn explains(&self, cause: Cause) -> bool {
        let deals: &[Deal] = match cause {
            Cause::KernelThread => &[Deal::Kthread],
            // A bound kernel thread too takes the CPU with the scheduler not asked.
            Cause::HigherClass => &[Deal::Realtime, Deal::Affinity, Deal::Kthread],
            Cause::Interrupt | Cause::Steal => &[Deal::Theft],
            // A turn of the floor ends late, in the slot after it, or when its owner wakes. Or it is in a slot of the
            // system's, of which a kernel thread alone waits, bound to another CPU.
            Cause::Floor => &[Deal::Affinity, Deal::Move, Deal::Late, Deal::Theft, Deal::Kthread],
            // The scheduler's attribution is coarse: what took most of a blackout may be none of what it counts.
            Cause::Rota => {
                &[Deal::Late, Deal::Affinity, Deal::Move, Deal::Realtime, Deal::Theft, Deal::Kthread]
            }
        };
        deals.iter().any(|deal| self.has(*deal))
    }

    /// Whether all promises are to be kept to the letter while faults go on.
    pub fn is_calm(&self) -> bool {
        !self.deals.iter().any(|(deal, _)| deal.excuses())
    }
}

impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Swarm { seed, cpus, siblings, housekeeping, load_percent, .. } = self;
        writeln!(
            f,
            "seed {seed}: {cpus} CPUs in cores of {siblings}, {housekeeping} for the system, {load_percent} % wanted, \
             {} ms with faults and {} ms without",
            self.safety_ns / MS,
            self.liveness_ns / MS
        )?;
        let deals = self.deals.iter().map(|(deal, every_ns)| format!("{deal:?} every {} ms", every_ns / MS));
        let deals: Vec<String> = deals.chain(self.bound.then(|| "bound threads".to_owned())).collect();
        write!(f, "faults: {}", if deals.is_empty() { "none".to_owned() } else { deals.join(", ") })
    }
}
