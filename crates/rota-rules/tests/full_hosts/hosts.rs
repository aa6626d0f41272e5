//! Random hosts that are 90 to 100 % reserved, each known by its number.

use rota_model::{
    Class, Costs, CpuPlace, CpuSet, Host, Model, Placement, Reservation, Share, Team, Tenant, Topology,
};

const ONE: u64 = Share::ONE.ppb() as u64;
const MS: u64 = 1_000_000;
/// Shares between this and a whole CPU are left out: they hardly leave time to change tasks.
const SHARE_MAX: u64 = 990_000_000;
/// A host has no more vCPUs than this, but for those that fill what the others leave of single CPUs.
const VCPUS_MAX: u64 = 40;
/// Shares that do not add up to whole CPUs, in parts per billion; 17 of the second fill 16 CPUs but for an eighth of a
/// percent.
const ODD_SHARES: [u32; 8] =
    [333_300_000, 940_000_000, 600_000_000, 700_000_000, 123_456_789, 510_000_000, 250_000_000, 666_666_667];

/// Steele, Lea and Flood's SplitMix (2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// In so many of a hundred cases.
    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn choose<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn shuffle<T>(&mut self, of: &mut [T]) {
        for end in (1..of.len()).rev() {
            of.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}

/// Host number `number`.
pub fn model(number: u64) -> Model {
    let mut random = Random(number.wrapping_mul(0xd134_2543_de82_ef95));
    let host = machine(&mut random);
    let mut draft = Draft::new(host, random);
    draft.add_alone();
    draft.add_dedicated();
    match draft.random.below(4) {
        0 => draft.add_equal(),
        1 => draft.add_random(),
        _ => draft.pour(),
    }
    let mut tenants = draft.tenants;
    for (place, tenant) in tenants.iter_mut().enumerate() {
        tenant.name = format!("t{place}");
    }
    Model { host: draft.host, tenants }
}

/// Threads of a core, four CPUs of a cache and a node, eight of a socket; the system's cores first.
fn machine(random: &mut Random) -> Host {
    let nr_cpus = if random.percent(80) { random.within(1..9) } else { random.within(9..17) } as u32;
    let threads = random.choose(&[1, 1, 1, 1, 2, 2, 2, 4]);
    let place = |cpu| CpuPlace { cpu, core: cpu / threads, cache: cpu / 4, node: cpu / 4, socket: cpu / 8 };
    let housekeeping = if nr_cpus > threads && random.percent(30) { threads } else { 0 };
    let costs = match random.below(4) {
        0 => Costs { switch_ns: 5_000, migration_ns: 0 },
        1 => Costs {
            switch_ns: random.choose(&[500, 1_000, 5_000, 20_000]),
            migration_ns: random.choose(&[0, 2_000, 10_000]),
        },
        _ => Costs::default(),
    };
    Host {
        cpus: (0..nr_cpus).collect(),
        housekeeping: (0..housekeeping).collect(),
        topology: Topology { places: (0..nr_cpus).map(place).collect() },
        floor_ppb: random.choose(&[0, Host::FLOOR_PPB]),
        slot_min_ns: Host::SLOT_MIN_NS,
        placement: random.choose(&[Placement::WorstFit, Placement::WorstFit, Placement::BestFit]),
        costs,
        spares: Vec::new(),
        interference: rota_model::Interference::Off,
        branch_records: false,
    }
}

/// A host on the way to be filled.
struct Draft {
    random: Random,
    host: Host,
    tenants: Vec<Tenant>,
    /// CPUs that are not yet filled, and how much of each is to be, in parts per billion.
    room: Vec<(u32, u64)>,
    /// Latencies to choose from, in ns.
    latencies: Vec<u64>,
    /// Whether tenants have affinities.
    is_choosy: bool,
}

impl Draft {
    fn new(host: Host, mut random: Random) -> Draft {
        let load_ppm = match random.below(4) {
            0 => 1_000_000,
            1 => random.within(995_000..1_000_000),
            _ => random.within(900_000..1_000_000),
        };
        let each = (ONE - u64::from(host.floor_ppb)) * load_ppm / 1_000_000;
        let latencies = match random.below(3) {
            0 => vec![random.choose(&[1, 2, 5, 20, 100]) * MS],
            1 => (0..8).map(|_| random.choose(&[1, 5, 10, 20, 30, 50, 100]) * MS).collect(),
            _ => (0..40).map(|_| random.within(MS..200 * MS)).collect(),
        };
        let room = host.tenant_cpus().iter().map(|cpu| (cpu, each)).collect();
        let is_choosy = random.percent(45);
        Draft { random, host, tenants: Vec::new(), room, latencies, is_choosy }
    }

    fn add(&mut self, share_ppb: u64, vcpus: u32, affinity: Option<CpuSet>) -> &mut Tenant {
        let share = Share::from_ppb(share_ppb.clamp(1, ONE) as u32).expect("a share");
        let reservation = Reservation {
            share,
            latency_ns: self.random.choose(&self.latencies),
            capped: self.random.percent(50),
        };
        self.tenants.push(Tenant {
            name: String::new(),
            class: Class::Reserved(reservation),
            vcpus,
            affinity,
            pinned: false,
            exclusive_cores: false,
            oversubscribe: true,
            team: Team::default(),
            matcher: None,
        });
        self.tenants.last_mut().expect("it has just been added")
    }

    /// Tenants with cores to themselves, which they fill.
    fn add_alone(&mut self) {
        let wanted = if self.random.percent(25) { self.random.within(1..3) } else { 0 };
        for _ in 0..wanted {
            let usable = self.host.exclusive_cpus();
            let open: CpuSet = self.room.iter().map(|&(cpu, _)| cpu).collect();
            let mut cores = self.host.topology.siblings();
            cores.retain(|core| core.difference(&usable).is_empty() && core.difference(&open).is_empty());
            if cores.is_empty() {
                return;
            }
            let core = cores[self.random.below(cores.len() as u64) as usize].clone();
            let is_bound = self.random.percent(20);
            let load: u64 =
                self.room.iter().filter(|(cpu, _)| core.contains(*cpu)).map(|(_, room)| room).sum();
            self.room.retain(|(cpu, _)| !core.contains(*cpu));
            let vcpus = core.len() as u64 + self.random.below(3);
            let affinity = is_bound.then_some(core);
            self.add((load / vcpus).min(SHARE_MAX), vcpus as u32, affinity).exclusive_cores = true;
        }
    }

    /// Tenants with a CPU to each vCPU.
    fn add_dedicated(&mut self) {
        let wanted = if self.random.percent(20) { self.random.within(1..3) } else { 0 };
        for _ in 0..wanted.min(self.room.len() as u64) {
            let place = self.random.below(self.room.len() as u64) as usize;
            let (cpu, _) = self.room.swap_remove(place);
            let affinity = self.affinity(cpu);
            self.add(ONE, 1, affinity);
        }
    }

    /// As many of one odd share as there is room for.
    fn add_equal(&mut self) {
        let share = u64::from(self.random.choose(&ODD_SHARES));
        let load: u64 = self.room.iter().map(|(_, room)| room).sum();
        self.add_all(vec![share; (load / share).min(160) as usize]);
    }

    /// Shares of their own that fill the host.
    fn add_random(&mut self) {
        let count = self.random.within(1..VCPUS_MAX);
        let parts: Vec<u64> = (0..count).map(|_| self.random.within(1..1_000)).collect();
        let sum: u64 = parts.iter().sum();
        let load: u64 = self.room.iter().map(|(_, room)| room).sum();
        let shares = parts.into_iter().map(|part| load * part / sum);
        self.add_all(shares.map(|share| share.min(SHARE_MAX)).collect());
    }

    /// Whether they fit is not looked at.
    fn add_all(&mut self, shares: Vec<u64>) {
        let cpus: Vec<u32> = self.room.iter().map(|&(cpu, _)| cpu).collect();
        for share in shares {
            let cpu = if cpus.is_empty() { 0 } else { self.random.choose(&cpus) };
            let affinity = if cpus.is_empty() { None } else { self.affinity(cpu) };
            self.add(share, 1, affinity);
        }
    }

    /// vCPUs that each take something of what CPUs they may use have left, until nothing is left: a fluid fits, however
    /// choosy they are.
    fn pour(&mut self) {
        let wanted = self.random.within(1..VCPUS_MAX);
        let load: u64 = self.room.iter().map(|(_, room)| room).sum();
        let mean = (load / wanted).max(ONE / 1_000);
        while let Some(place) = (!self.room.is_empty()).then(|| self.random.below(self.room.len() as u64)) {
            let (cpu, _) = self.room[place as usize];
            let affinity = self.affinity(cpu);
            let may_use = |cpu: u32| affinity.as_ref().is_none_or(|affinity| affinity.contains(cpu));
            let mut places: Vec<usize> =
                (0..self.room.len()).filter(|&place| may_use(self.room[place].0)).collect();
            self.random.shuffle(&mut places);
            let mut left = (self.random.within(mean / 4..2 * mean)).min(SHARE_MAX);
            let mut share = 0;
            for place in places {
                let room = &mut self.room[place].1;
                // Not always all of it, so that what is left has to be found in pieces.
                let most = if self.random.percent(50) { *room } else { room.div_ceil(2) };
                let taken = most.min(left);
                *room -= taken;
                left -= taken;
                share += taken;
            }
            self.room.retain(|(_, room)| *room > ONE / 2_000);
            if share > 0 {
                self.add(share, 1, affinity);
            }
        }
    }

    /// One that `cpu` is part of: a node, neighbouring CPUs or any.
    fn affinity(&mut self, cpu: u32) -> Option<CpuSet> {
        if !self.is_choosy || self.random.percent(40) {
            return None;
        }
        let usable = self.host.tenant_cpus();
        let first = cpu - cpu.min(self.random.below(4) as u32);
        let end = cpu + 1 + self.random.below(4) as u32;
        let cpus: CpuSet = match self.random.below(3) {
            0 => usable.iter().filter(|other| other / 4 == cpu / 4).collect(),
            1 => usable.iter().filter(|other| (first..end).contains(other)).collect(),
            _ => usable.iter().filter(|&other| other == cpu || self.random.percent(40)).collect(),
        };
        Some(cpus)
    }
}
