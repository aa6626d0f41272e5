//! How long a full plan takes: `cargo bench -p rota-plan`.
//!
//! `quarters` is the thesis' host (section 6.1): 176 vCPUs of share 0.25 on 44 of 48 CPUs, by latency. `different` is a
//! host of 1,024 CPUs, each with ten vCPUs of its own shares and latencies (10 to 100 ms), 98.5 % reserved; `narrow` is
//! the same with latencies from 1 ms, where most slots are short. Changes of task cost nothing there, as in the thesis;
//! `net` has such hosts where they cost what they do by default.

mod hosts;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rota_model::Model;
use rota_plan::{Options, plan};

use hosts::{different, net, quarters};

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
