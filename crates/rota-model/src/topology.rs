//! The host: its CPUs and how near they are to each other.

use crate::CpuSet;

/// Where one CPU sits. Equal numbers mean shared hardware; the numbers themselves mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// The CPU's number.
    pub cpu: u32,
    /// Physical core: CPUs of one core are SMT siblings.
    pub core: u32,
    /// Last-level cache domain.
    pub cache: u32,
    /// NUMA node.
    pub node: u32,
    /// Socket.
    pub socket: u32,
}

/// Every CPU's place, ascending by CPU number.
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

    /// The place of `cpu`, if the machine has it.
    pub fn place(&self, cpu: u32) -> Option<CpuPlace> {
        self.places.binary_search_by_key(&cpu, |place| place.cpu).ok().map(|index| self.places[index])
    }
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
}
