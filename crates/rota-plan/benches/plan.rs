//! How long a full plan takes: `cargo bench -p rota-plan`.
//!
//! `quarters` is the thesis' host (section 6.1): 176 vCPUs of share 0.25 on 44 of 48 CPUs, by latency. `different` is a
//! host of 1,024 CPUs, each with ten vCPUs of its own shares and latencies (10 to 100 ms), 99 % reserved; `narrow` is
//! the same with latencies from 1 ms, where most slots are short.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rota_model::{Class, CpuSet, Host, Model, Reservation, Share, Tenant, Topology};
use rota_plan::{Options, plan};

const MS: u64 = 1_000_000;

fn host(cpus: u32, housekeeping: u32, floor_ppb: u32) -> Host {
    let all: CpuSet = (0..cpus).collect();
    Host {
        topology: Topology::flat(&all),
        cpus: all,
        housekeeping: (0..housekeeping).collect(),
        floor_ppb,
        slot_min_ns: Host::SLOT_MIN_NS,
    }
}

fn tenant(name: String, share_ppb: u32, latency_ns: u64) -> Tenant {
    let share = Share::from_ppb(share_ppb).expect("a share of one CPU");
    let class = Class::Reserved(Reservation { share, latency_ns, capped: false });
    Tenant { name, class, vcpus: 1, affinity: None, pinned: false, matcher: None }
}

fn quarters(latency_ms: u64) -> Model {
    let tenants = (0..176).map(|vm| tenant(format!("vm-{vm}"), 250_000_000, latency_ms * MS)).collect();
    Model { host: host(48, 4, 0), tenants }
}

/// Ten vCPUs a CPU with shares from 1 to 16 % or so and latencies from `latency_min_ms` to 100 ms.
fn different(latency_min_ms: u64) -> Model {
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
            let share_ppb = 985_000_000 * part / sum;
            let latency_ns = latency_min_ms * MS + random((100 - latency_min_ms) * MS);
            tenants.push(tenant(format!("vm-{cpu}-{vm}"), share_ppb as u32, latency_ns));
        }
    }
    Model { host: host(1_024, 0, Host::FLOOR_PPB), tenants }
}

fn plans(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("quarters");
    for latency_ms in [1, 30, 60, 100] {
        let model = quarters(latency_ms);
        group.bench_with_input(BenchmarkId::from_parameter(latency_ms), &model, |bencher, model| {
            bencher.iter(|| plan(model, &Options::default()).expect("it fits"));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("10240 on 1024");
    group.sample_size(20);
    for (name, latency_min_ms) in [("different", 10), ("narrow", 1)] {
        let model = different(latency_min_ms);
        group.bench_with_input(BenchmarkId::from_parameter(name), &model, |bencher, model| {
            bencher.iter(|| plan(model, &Options::default()).expect("it fits"));
        });
    }
    group.finish();
}

criterion_group!(benches, plans);
criterion_main!(benches);
