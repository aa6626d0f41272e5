//! The host: its CPUs and how near they are to each other.

use std::collections::BTreeMap;

use crate::{CpuSet, Share};

/// Where one CPU sits. Equal numbers mean shared hardware; the numbers themselves mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// The CPU's number.
    pub cpu: u32,
    /// Physical core: CPUs of one core are SMT siblings.
    pub core: u32,
    /// Last-level cache domain.
    pub cache: u32,
    /// NUMA node; this number is what the configuration calls the node.
    pub node: u32,
    /// Socket.
    pub socket: u32,
}

impl CpuPlace {
    /// How far apart two CPUs are: 0 for SMT siblings, 1 within a last-level cache, 2 within a NUMA node, 3 within a
    /// socket, 4 beyond.
    pub fn distance(&self, other: &CpuPlace) -> u32 {
        let shared = [
            self.core == other.core,
            self.cache == other.cache,
            self.node == other.node,
            self.socket == other.socket,
        ];
        (0..).zip(shared).find(|(_, is_shared)| *is_shared).map_or(4, |(distance, _)| distance)
    }
}

/// Every CPU's place, ascending by CPU number. There may be CPUs that are not the [`Host`]'s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// One entry a CPU.
    pub places: Vec<CpuPlace>,
}

impl Topology {
    /// The CPUs of the machine.
    pub fn cpus(&self) -> CpuSet {
        self.places.iter().map(|place| place.cpu).collect()
    }

    /// A flat machine: one socket, one node, one cache, no siblings.
    pub fn flat(cpus: &CpuSet) -> Topology {
        let places =
            cpus.iter().map(|cpu| CpuPlace { cpu, core: cpu, cache: 0, node: 0, socket: 0 }).collect();
        Topology { places }
    }

    /// The machine with more CPUs, each a core of its own.
    pub fn with(&self, more: &CpuSet) -> Topology {
        let mut places = self.places.clone();
        places.extend(Topology::flat(&more.difference(&self.cpus())).places);
        places.sort_unstable_by_key(|place| place.cpu);
        Topology { places }
    }

    /// The cores with several CPUs (SMT siblings), each as the set of these; in the order of their first CPUs.
    pub fn siblings(&self) -> Vec<CpuSet> {
        let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for place in &self.places {
            cores.entry(place.core).or_default().push(place.cpu);
        }
        let mut cores: Vec<Vec<u32>> = cores.into_values().filter(|cpus| cpus.len() > 1).collect();
        cores.sort_unstable();
        cores.into_iter().map(CpuSet::from_iter).collect()
    }

    /// The place of `cpu`, if the machine has it.
    pub fn place(&self, cpu: u32) -> Option<CpuPlace> {
        self.places.binary_search_by_key(&cpu, |place| place.cpu).ok().map(|index| self.places[index])
    }
}

/// Which of the CPUs that have room a vCPU goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The one with most room: spreads the load.
    #[default]
    WorstFit,
    /// The one with least: frees whole CPUs.
    BestFit,
}

/// What is done about tenants that disturb each other in caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interference {
    /// Nothing.
    #[default]
    Off,
    /// vCPUs that are promised the same change places at random, again and again.
    Random,
    /// Those that fill caches are spread over cache domains, then over CPUs.
    Measured,
}

/// The machine to plan for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Those kept for the system; tenants are never planned on them. If there are none, the system's tasks are a tenant
    /// of their own: [`crate::Model::system`].
    pub housekeeping: CpuSet,
    /// How near the CPUs are to each other.
    pub topology: Topology,
    /// The part of every CPU, in parts per billion, that stays unreserved so that background tenants and whatever else
    /// may wait long keep a floor of service. A CPU dedicated to one vCPU (share 1) has none.
    pub floor_ppb: u32,
    /// Slots shorter than this, in ns, are not planned: a context switch would eat them.
    pub slot_min_ns: u64,
    /// Which of the CPUs that have room for a vCPU it goes to.
    pub placement: Placement,
    /// What promises are net of.
    pub costs: Costs,
    /// What is kept ready for tenants to come, as far as there is room.
    pub spares: Vec<Spare>,
    /// Which of the tables that promise the same is used.
    pub interference: Interference,
    /// The processor records branches and counts misses all the time: more threads are seen that wait busily.
    pub branch_records: bool,
}

/// Slots that are planned before anybody wants them: whoever comes and is content with them needs no plan. Until then
/// their time is idle. They give way to whoever finds no room otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Of one CPU.
    pub share: Share,
    /// The longest wait, in ns.
    pub latency_ns: u64,
    /// For so many vCPUs.
    pub count: u32,
}

/// What changing from one task to another takes of the CPU time that a table gives, in ns. What is promised is net of
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Lost at the start of each stretch of time in which one vCPU has one CPU.
    pub switch_ns: u64,
    /// Lost as well where the vCPU's stretch before was on another CPU.
    pub migration_ns: u64,
}

impl Costs {
    /// The default: a change of tasks takes 5 us, a change of CPU nothing beyond that.
    ///
    /// Meant is the direct cost on server hardware: the timer's interrupt, the scheduler's decision, the exchange of
    /// registers and address spaces. Huang et al. (HPDC 2021, section 2.3) measured 1.5 us between threads of one
    /// process on a Xeon E5-2695, and call changes between processes much dearer; 5 us leave room for these and for the
    /// timer. What caches lose comes on top and depends on the tenant; it is not counted.
    pub const DEFAULT: Costs = Costs { switch_ns: 5_000, migration_ns: 0 };
}

impl Host {
    /// Half a percent: 5 ms of every second.
    pub const FLOOR_PPB: u32 = 5_000_000;
    /// What the authors' prototype used (thesis section 5.5.1).
    pub const SLOT_MIN_NS: u64 = 50_000;

    /// CPUs that reservations may be planned on.
    pub fn tenant_cpus(&self) -> CpuSet {
        self.cpus.difference(&self.housekeeping)
    }

    /// Those of them on which a tenant may have a core to itself: no sibling is kept for the system.
    pub fn exclusive_cpus(&self) -> CpuSet {
        let tenant_cpus = self.tenant_cpus();
        let shared =
            self.topology.siblings().into_iter().filter(|core| !core.difference(&tenant_cpus).is_empty());
        shared.fold(tenant_cpus.clone(), |cpus, core| cpus.difference(&core))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_hardware_that_is_shared_counts() {
        let place = |core, cache, node, socket| CpuPlace { cpu: 0, core, cache, node, socket };
        let one = place(1, 1, 1, 1);
        let others =
            [place(1, 1, 1, 1), place(2, 1, 1, 1), place(2, 2, 1, 1), place(2, 2, 2, 1), place(2, 2, 2, 2)];
        assert_eq!(others.map(|other| one.distance(&other)), [0, 1, 2, 3, 4]);
    }
}
