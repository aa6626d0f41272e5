//! What one admission costs the daemon until the table may be installed: `cargo bench -p rota-rules --bench admission`.
//!
//! A tenant changes its share by a little on a host that is full otherwise, so that one CPU's slots change; `edit` of
//! the planner's benchmarks measures that part by itself. `propose` is all of it, the others what comes after the edit:
//! the plan written out, then as the encoder takes it, encoded, and certified.

#[path = "../../rota-plan/benches/hosts/mod.rs"]
mod hosts;

use criterion::{Criterion, criterion_group, criterion_main};
use rota_model::{Class, Model, Share, TenantId};
use rota_plan::{Options, Planner};
use rota_rules::planning::{Grants, Proposer, promises, source};
use rota_table::{certify, encode};

use hosts::{different, net, quarters};

fn admissions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("admission");
    group.sample_size(20);
    for (name, model) in [
        ("quarters", quarters(250_000_000, 1)),
        ("different", different(985_000_000, 10)),
        ("different, net", net(different(950_000_000, 10))),
    ] {
        let mut grants: Grants = (0..).zip(model.tenants.iter().cloned()).collect();
        let mut proposer = Proposer::default();
        proposer.propose(&model.host, &grants).expect("it fits");
        let mut count = 0;
        group.bench_function(format!("propose/{name}"), |bencher| {
            bencher.iter(|| {
                count += 1;
                shrink(&mut grants, count);
                let proposal = proposer.propose(&model.host, &grants).expect("it fits");
                assert!(!proposal.change.is_full, "one CPU is enough");
                proposal
            });
        });
        let model = Model { tenants: grants.into_values().collect(), ..model };
        let ids: Vec<TenantId> = (0..model.tenants.len() as TenantId).collect();
        let planner = Planner::new(model.clone(), &Options::default()).expect("it fits");
        group.bench_function(format!("plan/{name}"), |bencher| bencher.iter(|| planner.plan()));
        let plan = planner.plan();
        group.bench_function(format!("source/{name}"), |bencher| {
            bencher.iter(|| source(&plan, &ids, model.host.costs))
        });
        let source = source(&plan, &ids, model.host.costs);
        group.bench_function(format!("encode/{name}"), |bencher| bencher.iter(|| encode(&source)));
        let bytes = encode(&source).expect("it can be encoded");
        println!("{name}: {} bytes", bytes.len());
        group.bench_function(format!("certify/{name}"), |bencher| {
            bencher.iter(|| certify(&bytes, &promises(&model, &ids), model.host.costs).expect("it is right"));
        });
    }
    group.finish();
}

/// One tenant after the other, by a share that was never seen before.
fn shrink(grants: &mut Grants, count: u32) {
    let id = count * 7 % grants.len() as u32;
    let tenant = grants.get_mut(&id).expect("it is there");
    let Class::Reserved(reservation) = &mut tenant.class else { return };
    reservation.share = Share::from_ppb(reservation.share.ppb() - 1 - count).expect("a share");
}

criterion_group!(benches, admissions);
criterion_main!(benches);
