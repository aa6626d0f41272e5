//! How long it takes to admit, remove or change one tenant: `cargo bench -p rota-plan --bench edit`.
//!
//! On `quarters` the CPUs are equal, so that each timetable is known after the first; on `different` every edit has a
//! reservation that was never seen before. `net` is with what a change of tasks costs by default. `plan` writes the
//! edited plan out, as a new table needs it.

mod hosts;

use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use rota_model::{Class, Host, Model, Share, Spare, Tenant};
use rota_plan::{Options, Planner};

use hosts::{MS, different, net, quarters};

/// One edit of a tenant, timed, from the same plan each time.
struct Edits {
    planner: Planner,
    /// How many of the host's tenants are edited in turn.
    tenants: u32,
    /// A tenant as it was, or as it never was before.
    vary: fn(&Tenant, u32) -> Tenant,
    count: u32,
}

impl Edits {
    fn new(model: Model, vary: fn(&Tenant, u32) -> Tenant) -> Edits {
        let tenants = model.tenants.len() as u32;
        let planner = Planner::new(model, &Options::default()).expect("it fits");
        Edits { planner, tenants, vary, count: 0 }
    }

    /// The next tenant's number, as it was, and another one.
    fn next(&mut self) -> (u32, Tenant, Tenant) {
        self.count += 1;
        let id = self.count * 7 % self.tenants;
        let before = self.planner.model().tenants[id as usize].clone();
        let after = (self.vary)(&before, self.count);
        (id, before, after)
    }

    fn admit(&mut self, id: u32, tenant: Tenant) {
        let change = self.planner.admit(id, tenant).expect("it fits");
        assert!(!change.is_full, "one CPU is enough");
    }

    fn run(
        &mut self,
        group: &mut BenchmarkGroup<'_, WallTime>,
        name: String,
        edit: fn(&mut Edits) -> Duration,
    ) {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| (0..rounds).map(|_| edit(self)).sum());
        });
    }

    fn bench_admission(&mut self, group: &mut BenchmarkGroup<'_, WallTime>, name: &str) {
        self.run(group, format!("admit/{name}"), |edits| {
            let (id, before, new) = edits.next();
            edits.planner.remove(id);
            let time = timed(|| edits.admit(id, new));
            edits.admit(id, before);
            edits.planner.restock();
            time
        });
    }

    fn bench(&mut self, group: &mut BenchmarkGroup<'_, WallTime>, name: &str) {
        self.bench_admission(group, name);
        self.run(group, format!("remove/{name}"), |edits| {
            let (id, before, new) = edits.next();
            edits.admit(id, new);
            let time = timed(|| edits.planner.remove(id));
            edits.admit(id, before);
            time
        });
        self.run(group, format!("change/{name}"), |edits| {
            let (id, before, new) = edits.next();
            let time = timed(|| edits.admit(id, new));
            edits.admit(id, before);
            time
        });
        self.run(group, format!("plan/{name}"), |edits| timed(|| edits.planner.plan()));
    }
}

fn timed<T>(edit: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    let result = edit();
    let time = start.elapsed();
    drop(result);
    time
}

/// Two spares of a quarter.
fn with_spares(model: Model) -> Model {
    let share = Share::from_ppb(250_000_000).expect("a share");
    let spares = vec![Spare { share, latency_ns: MS, count: 2 }];
    Model { host: Host { spares, ..model.host }, tenants: model.tenants[..174].to_vec() }
}

/// One size down.
fn smaller(tenant: &Tenant, _: u32) -> Tenant {
    let Class::Reserved(mut reservation) = tenant.class else { return tenant.clone() };
    reservation.share = Share::from_ppb(200_000_000).expect("a share");
    Tenant { class: Class::Reserved(reservation), ..tenant.clone() }
}

/// A little less, a little later.
fn unlike(tenant: &Tenant, count: u32) -> Tenant {
    let Class::Reserved(mut reservation) = tenant.class else { return tenant.clone() };
    reservation.share = Share::from_ppb(reservation.share.ppb() - 1 - count % 1_000_000).expect("a share");
    reservation.latency_ns += u64::from(count) % MS;
    Tenant { class: Class::Reserved(reservation), ..tenant.clone() }
}

fn edits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("edit");
    Edits::new(quarters(250_000_000, 1), smaller).bench(&mut group, "quarters");
    Edits::new(quarters(250_000_000, 20), smaller).bench(&mut group, "quarters, 20 ms");
    Edits::new(with_spares(quarters(250_000_000, 1)), smaller)
        .bench_admission(&mut group, "quarters, spares");
    Edits::new(different(985_000_000, 10), unlike).bench(&mut group, "different");
    Edits::new(net(different(950_000_000, 10)), unlike).bench(&mut group, "different, net");
    group.finish();
}

criterion_group!(benches, edits);
criterion_main!(benches);
