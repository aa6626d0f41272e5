//! The hosts of the benchmarks.

use rota_model::{Class, Costs, CpuSet, Host, Model, Placement, Reservation, Share, Team, Tenant, Topology};

pub const MS: u64 = 1_000_000;

/// As in the thesis: all may be reserved, and changes of task cost nothing.
pub fn host(cpus: u32, housekeeping: u32) -> Host {
    let all: CpuSet = (0..cpus).collect();
    Host {
        topology: Topology::flat(&all),
        cpus: all,
        housekeeping: (0..housekeeping).collect(),
        floor_ppb: 0,
        slot_min_ns: Host::SLOT_MIN_NS,
        placement: Placement::WorstFit,
        costs: Costs::default(),
        spares: Vec::new(),
        interference: rota_model::Interference::Off,
        branch_records: false,
    }
}

/// One vCPU with a reservation.
pub fn tenant(name: String, share_ppb: u32, latency_ns: u64) -> Tenant {
    let share = Share::from_ppb(share_ppb).expect("a share of one CPU");
    let class = Class::Reserved(Reservation { share, latency_ns, capped: false });
    Tenant {
        name,
        class,
        vcpus: 1,
        affinity: None,
        pinned: false,
        exclusive_cores: false,
        oversubscribe: true,
        team: Team::default(),
        matcher: None,
    }
}

/// With what a host has by default.
pub fn net(model: Model) -> Model {
    Model { host: Host { floor_ppb: Host::FLOOR_PPB, costs: Costs::DEFAULT, ..model.host }, ..model }
}

/// The thesis' host (section 6.1): four vCPUs a CPU.
pub fn quarters(share_ppb: u32, latency_ms: u64) -> Model {
    let tenants = (0..176).map(|vm| tenant(format!("vm-{vm}"), share_ppb, latency_ms * MS)).collect();
    Model { host: host(48, 4), tenants }
}

/// Ten vCPUs a CPU with `load_ppb` between them, and latencies from `latency_min_ms` to 100 ms.
pub fn different(load_ppb: u64, latency_min_ms: u64) -> Model {
    let mut state = 1_u64;
    let mut random = |limit: u64| {
        // Knuth's linear congruential generator (MMIX).
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut tenants = Vec::new();
    for cpu in 0..1_024 {
        let parts: Vec<u64> = (0..10).map(|_| 10 + random(90)).collect();
        let sum: u64 = parts.iter().sum();
        for (vm, part) in parts.into_iter().enumerate() {
            let share_ppb = load_ppb * part / sum;
            let latency_ns = latency_min_ms * MS + random((100 - latency_min_ms) * MS);
            tenants.push(tenant(format!("vm-{cpu}-{vm}"), share_ppb as u32, latency_ns));
        }
    }
    Model { host: Host { floor_ppb: Host::FLOOR_PPB, ..host(1_024, 0) }, tenants }
}
