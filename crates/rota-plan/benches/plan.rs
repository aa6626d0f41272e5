//! How long a full plan takes: `cargo bench -p rota-plan`.
//!
//! `quarters` is the thesis' host (section 6.1): 176 vCPUs of share 0.25 on 44 of 48 CPUs, by latency. `different` is a
//! host of 1,024 CPUs, each with ten vCPUs of its own shares and latencies (10 to 100 ms), 98.5 % reserved; `narrow` is
//! the same with latencies from 1 ms, where most slots are short. Changes of task cost nothing there, as in the thesis;
//! `thirds` are 66 vCPUs of 0.6633 on 44 CPUs, 99.5 % reserved, of which every third has to be divided: all are split
//! if they have one latency, six are in clusters if each has its own. `net` has such hosts where changes cost what they
//! do by default.

mod hosts;

use std::ops::RangeInclusive;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rota_model::Model;
use rota_plan::{Options, plan};

use hosts::{MS, different, host, net, quarters, tenant};

/// 66 vCPUs on 44 CPUs, 99.5 % reserved: every third one fits on no CPU. Of one latency, or each of its own.
fn thirds(latencies_ms: RangeInclusive<u64>) -> Model {
    let (least, range) = (*latencies_ms.start(), latencies_ms.end() - latencies_ms.start() + 1);
    let latency_ns = |vm: u64| (least + vm * 37 % range) * MS;
    let tenants = (0..66).map(|vm| tenant(format!("vm-{vm}"), 663_333_333, latency_ns(vm))).collect();
    Model { host: host(44, 0), tenants }
}

fn plans(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("quarters");
    let mut bench = |name: &str, model: Model| {
        group.bench_with_input(BenchmarkId::from_parameter(name), &model, |bencher, model| {
            bencher.iter(|| plan(model, &Options::default()).expect("it fits"));
        });
    };
    for latency_ms in [1, 30, 60, 100] {
        bench(&latency_ms.to_string(), quarters(250_000_000, latency_ms));
    }
    bench("1, net", net(quarters(240_000_000, 1)));
    group.finish();
    let mut group = criterion.benchmark_group("thirds");
    let mut bench = |name: &str, model: Model| {
        group.bench_with_input(BenchmarkId::from_parameter(name), &model, |bencher, model| {
            bencher.iter(|| plan(model, &Options::default()).expect("it fits"));
        });
    };
    bench("20 ms", thirds(20..=20));
    bench("10 to 100 ms", thirds(10..=100));
    group.finish();
    let mut group = criterion.benchmark_group("10240 on 1024");
    group.sample_size(20);
    let mut bench = |name: &str, model: Model| {
        group.bench_with_input(BenchmarkId::from_parameter(name), &model, |bencher, model| {
            bencher.iter(|| plan(model, &Options::default()).expect("it fits"));
        });
    };
    bench("different", different(985_000_000, 10));
    bench("narrow", different(985_000_000, 1));
    bench("different, net", net(different(950_000_000, 10)));
    bench("narrow, net", net(different(900_000_000, 1)));
    group.finish();
}

criterion_group!(benches, plans);
criterion_main!(benches);
