//! Short ways to write a model.

use std::sync::LazyLock;

use rota_model::{Class, Costs, CpuSet, Host, Model, Placement, Reservation, Share, Team, Tenant, Topology};

pub const MS: u64 = 1_000_000;

/// The periods that a plan may have, descending: all divisors of the longest from 100 us up.
pub static PERIODS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let longest = 102_702_600_u64;
    (1..=longest / 100_000).filter(|by| longest.is_multiple_of(*by)).map(|by| longest / by).collect()
});

/// A flat machine of which every ns may be reserved: changes of task cost nothing.
pub fn host(cpus: &str, housekeeping: &str) -> Host {
    let cpus: CpuSet = cpus.parse().unwrap();
    Host {
        topology: Topology::flat(&cpus),
        cpus,
        housekeeping: housekeeping.parse().unwrap(),
        floor_ppb: 0,
        slot_min_ns: Host::SLOT_MIN_NS,
        placement: Placement::WorstFit,
        costs: Costs::default(),
        spares: Vec::new(),
        interference: rota_model::Interference::Off,
        branch_records: false,
    }
}

/// A tenant with `vcpus` of one reservation.
pub fn reserved(name: &str, vcpus: u32, share: f64, latency_ns: u64) -> Tenant {
    let share = Share::from_fraction(share).unwrap();
    Tenant {
        name: name.to_owned(),
        class: Class::Reserved(Reservation { share, latency_ns, capped: false }),
        vcpus,
        affinity: None,
        pinned: false,
        exclusive_cores: false,
        oversubscribe: true,
        team: Team::default(),
        matcher: None,
    }
}

/// The same on some CPUs only.
pub fn on(cpus: &str, tenant: Tenant) -> Tenant {
    Tenant { affinity: Some(cpus.parse().unwrap()), ..tenant }
}

/// The same with cores to itself.
pub fn alone(tenant: Tenant) -> Tenant {
    Tenant { exclusive_cores: true, ..tenant }
}

/// The same host with cores of `threads` CPUs each.
pub fn with_siblings(threads: u32, mut host: Host) -> Host {
    host.topology.places.iter_mut().for_each(|place| place.core = place.cpu / threads);
    host
}

/// A vCPU on each of some CPUs.
pub fn pinned(name: &str, cpus: &str, share: f64) -> Tenant {
    let tenant = on(cpus, reserved(name, 1, share, 50 * MS));
    Tenant { vcpus: cpus.parse::<CpuSet>().unwrap().len() as u32, pinned: true, ..tenant }
}

pub fn model(host: Host, tenants: impl IntoIterator<Item = Tenant>) -> Model {
    Model { host, tenants: tenants.into_iter().collect() }
}
