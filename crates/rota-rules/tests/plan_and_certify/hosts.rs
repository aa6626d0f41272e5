//! Random hosts, of which about as many can be planned as cannot.

use proptest::prelude::*;
use rota_model::{
    Class, Costs, CpuSet, Host, Model, Placement, Reservation, Share, Spare, Team, Tenant, Topology,
};

pub fn tenants(cpus: u32) -> impl Strategy<Value = Vec<Tenant>> {
    let share =
        prop_oneof![prop::sample::select(vec![0.05, 0.1, 0.2, 0.25, 0.3333, 0.5, 1.0]), 0.01..0.6_f64,];
    let latency = prop_oneof![
        prop::sample::select(vec![1_000_000, 10_000_000, 20_000_000, 50_000_000_u64]),
        2_000_000..200_000_000_u64,
    ];
    let affinity = prop::option::weighted(0.2, prop::collection::btree_set(0..cpus, 1..=cpus as usize));
    let exclusive = prop::bool::weighted(0.1);
    let together = prop::bool::weighted(0.15);
    let timetable = prop::bool::weighted(0.03);
    let tenant = (share, latency, any::<bool>(), 1..3_u32, affinity, exclusive, together, timetable)
        .prop_map(|(share, latency_ns, capped, vcpus, affinity, exclusive_cores, together, timetable)| {
            Tenant {
                oversubscribe: true,
                name: String::new(),
                class: Class::Reserved(Reservation {
                    share: Share::from_fraction(share).expect("a share"),
                    latency_ns,
                    capped,
                }),
                vcpus,
                affinity: affinity.map(CpuSet::from_iter),
                pinned: false,
                exclusive_cores,
                team: Team { together, timetable, ..Team::default() },
                matcher: None,
            }
        });
    prop::collection::vec(tenant, 1..=3 * cpus as usize)
}

/// None as often as not.
fn spares() -> impl Strategy<Value = Vec<Spare>> {
    let share = prop::sample::select(vec![0.05, 0.1, 0.25, 0.5, 1.0])
        .prop_map(|share| Share::from_fraction(share).expect("a share"));
    let latency = prop::sample::select(vec![2_000_000, 10_000_000, 30_000_000]);
    let spare =
        (share, latency, 1..4_u32).prop_map(|(share, latency_ns, count)| Spare { share, latency_ns, count });
    prop_oneof![Just(Vec::new()), prop::collection::vec(spare, 1..4)]
}

/// Cores of so many CPUs.
fn siblings(threads: u32, cpus: &CpuSet) -> Topology {
    let mut topology = Topology::flat(cpus);
    topology.places.iter_mut().for_each(|place| place.core = place.cpu / threads);
    topology
}

pub fn models() -> impl Strategy<Value = Model> {
    let floor = prop::sample::select(vec![0, Host::FLOOR_PPB]);
    let switch = prop::sample::select(vec![0, 1_000, Costs::DEFAULT.switch_ns, 50_000]);
    (1..9_u32, 1..3_u32, floor, switch).prop_flat_map(|(nr_cpus, threads, floor_ppb, switch_ns)| {
        (tenants(nr_cpus), spares()).prop_map(move |(mut tenants, spares)| {
            for (number, tenant) in tenants.iter_mut().enumerate() {
                tenant.name = format!("t{number}");
            }
            let cpus = CpuSet::from_iter(0..nr_cpus);
            let host = Host {
                topology: siblings(threads, &cpus),
                cpus,
                housekeeping: CpuSet::default(),
                floor_ppb,
                slot_min_ns: Host::SLOT_MIN_NS,
                placement: Placement::WorstFit,
                costs: Costs { switch_ns, migration_ns: 0 },
                spares,
                interference: rota_model::Interference::Off,
                branch_records: false,
            };
            Model { host, tenants }
        })
    })
}
