//! What a table costs to write, to certify and to look things up in: `cargo bench -p rota-table`.
//!
//! Two hosts, as the planner's benchmark has them: 176 vCPUs on 44 CPUs, and 10,240 on 1,024, ten on each, all
//! different. The tables are laid out here, in slots about as many and as long as the planner's.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rota_model::{Costs, CpuSet, Reservation, Share};
use rota_table::layout::HYPERPERIOD_NS;
use rota_table::{CpuSource, Promise, SlotSource, TableSource, VcpuSource, certify, encode};

/// In each of its windows, every CPU serves its vCPUs one after the other, beginning with another one each time.
fn host(cpus: u32, vcpus_per_cpu: u32, windows: u32) -> TableSource {
    let period_ns = HYPERPERIOD_NS / windows;
    let mut source = TableSource { length_ns: HYPERPERIOD_NS, ..Default::default() };
    for cpu in 0..cpus {
        let first = source.vcpus.len() as u32;
        let budget_ns = |place: u32| period_ns / (vcpus_per_cpu + 1) + place * 1_000 + cpu;
        source.vcpus.extend((0..vcpus_per_cpu).map(|place| {
            let share = u64::from(budget_ns(place)) * 1_000_000_000 / u64::from(period_ns);
            let share = Share::from_ppb(share as u32).expect("a part of a CPU");
            let reservation =
                Reservation { share, latency_ns: 2 * u64::from(period_ns), capped: place.is_multiple_of(2) };
            VcpuSource {
                tenant: first + place,
                index: 0,
                reservation,
                budget_ns: budget_ns(place),
                period_ns,
                walls: false,
            }
        }));
        let mut slots = Vec::new();
        for window in 0..windows {
            let mut start_ns = window * period_ns;
            for turn in 0..vcpus_per_cpu {
                let place = (turn + window) % vcpus_per_cpu;
                let end_ns = start_ns + budget_ns(place);
                slots.push(SlotSource { start_ns, end_ns, vcpu: first + place });
                start_ns = end_ns;
            }
        }
        source.cpus.push(CpuSource { cpu, length_ns: HYPERPERIOD_NS, slots, exclusive: false });
    }
    source
}

fn promises(source: &TableSource) -> Vec<Promise> {
    let all = source.cpus.iter().map(|cpu| cpu.cpu).collect::<CpuSet>();
    let none: Arc<[CpuSet]> = [].into();
    let promise = |vcpu: &VcpuSource| Promise {
        tenant: vcpu.tenant,
        index: vcpu.index,
        reservation: vcpu.reservation,
        cpus: all.clone(),
        unshared: none.clone(),
        together: false,
    };
    source.vcpus.iter().map(promise).collect()
}

fn tables(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("table");
    for (name, cpus, vcpus_per_cpu, windows) in [("176 on 44", 44, 4, 56), ("10240 on 1024", 1_024, 10, 6)] {
        let source = host(cpus, vcpus_per_cpu, windows);
        let promises = promises(&source);
        let bytes = encode(&source).expect("a table");
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("encode", name), |bencher| {
            bencher.iter(|| encode(black_box(&source)));
        });
        group.bench_function(BenchmarkId::new("certify", name), |bencher| {
            bencher.iter(|| certify(black_box(&bytes), &promises, Costs::DEFAULT).expect("sound"));
        });
        let certified = certify(&bytes, &promises, Costs::DEFAULT).expect("sound");
        let (view, mut now_ns) = (certified.view(), 0);
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("lookup", name), |bencher| {
            bencher.iter(|| {
                now_ns += 1_234_567;
                view.lookup(now_ns as u32 % cpus, now_ns)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, tables);
criterion_main!(benches);
