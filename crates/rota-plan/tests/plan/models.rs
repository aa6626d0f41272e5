//! Short ways to write a model.

use rota_model::{Class, CpuSet, Host, Model, Reservation, Share, Tenant, Topology};

pub const MS: u64 = 1_000_000;

/// A flat machine of which every ns may be reserved.
pub fn host(cpus: &str, housekeeping: &str) -> Host {
    let cpus: CpuSet = cpus.parse().unwrap();
    Host {
        topology: Topology::flat(&cpus),
        cpus,
        housekeeping: housekeeping.parse().unwrap(),
        floor_ppb: 0,
        slot_min_ns: Host::SLOT_MIN_NS,
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
        matcher: None,
    }
}

/// The same on some CPUs only.
pub fn on(cpus: &str, tenant: Tenant) -> Tenant {
    Tenant { affinity: Some(cpus.parse().unwrap()), ..tenant }
}

pub fn model(host: Host, tenants: impl IntoIterator<Item = Tenant>) -> Model {
    Model { host, tenants: tenants.into_iter().collect() }
}
