//! Random hosts through planner, encoder and certifier, as the daemon sends every table: whatever is planned, at once
//! or edit by edit, is certified, to the byte that would be installed.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rota_model::{
    Class, Costs, CpuSet, Host, Model, Placement, Reservation, Share, Spare, Tenant, TenantId, Topology,
};
use rota_plan::{CpuPlan, Infeasible, Options, Plan, Planner, Slot, plan};
use rota_rules::planning::{promises, source};
use rota_table::{certify, encode};

/// How many hosts must have been planned for the test to have seen enough.
const PLANNED: u32 = 10_000;
/// How many hosts are edited.
const EDITED: u32 = 4_000;

fn tenants(cpus: u32) -> impl Strategy<Value = Vec<Tenant>> {
    let share =
        prop_oneof![prop::sample::select(vec![0.05, 0.1, 0.2, 0.25, 0.3333, 0.5, 1.0]), 0.01..0.6_f64,];
    let latency = prop_oneof![
        prop::sample::select(vec![1_000_000, 10_000_000, 20_000_000, 50_000_000_u64]),
        2_000_000..200_000_000_u64,
    ];
    let affinity = prop::option::weighted(0.2, prop::collection::btree_set(0..cpus, 1..=cpus as usize));
    let exclusive = prop::bool::weighted(0.1);
    let tenant = (share, latency, any::<bool>(), 1..3_u32, affinity, exclusive).prop_map(
        |(share, latency_ns, capped, vcpus, affinity, exclusive_cores)| Tenant {
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
            matcher: None,
        },
    );
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

fn models() -> impl Strategy<Value = Model> {
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
            };
            Model { host, tenants }
        })
    })
}

#[test]
fn ten_thousand_random_hosts_are_planned_and_certified() {
    let (planned, refused) = (Cell::new(0), Cell::new(0));
    for batch in 0.. {
        if planned.get() >= PLANNED {
            break;
        }
        let config = Config { failure_persistence: None, ..Config::with_cases(500) };
        let mut runner =
            TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[batch; 32]));
        let outcome = runner.run(&models(), |model| {
            let ids: Vec<TenantId> = (0..model.tenants.len() as TenantId).collect();
            let Ok(plan) = plan(&model, &Options::default()) else {
                refused.set(refused.get() + 1);
                return Ok(());
            };
            let bytes =
                encode(&source(&plan, &ids)).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let certified = certify(&bytes, &promises(&model, &ids), model.host.costs);
            prop_assert!(certified.is_ok(), "{}", certified.unwrap_err());
            planned.set(planned.get() + 1);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
        assert!(refused.get() < 4 * PLANNED, "too few hosts are feasible to learn anything");
    }
    println!("{} hosts planned and certified, {} refused", planned.get(), refused.get());
}

/// A tenant comes, changes or goes.
#[derive(Clone, Debug)]
struct Edit {
    place: usize,
    tenant: Option<Tenant>,
}

fn edits(cpus: u32) -> impl Strategy<Value = Vec<Edit>> {
    let tenant = prop::option::weighted(0.7, tenants(cpus).prop_map(|mut tenants| tenants.remove(0)));
    let edit = (any::<usize>(), tenant).prop_map(|(place, tenant)| Edit { place, tenant });
    prop::collection::vec(edit, 1..12)
}

/// The table of a planner's plan, as the daemon makes it.
fn check(planner: &Planner) -> Result<Plan, TestCaseError> {
    let (model, plan) = (planner.model(), planner.plan());
    let ids: Vec<TenantId> = (0..model.tenants.len() as TenantId).collect();
    let bytes = encode(&source(&plan, &ids)).map_err(|error| TestCaseError::fail(error.to_string()))?;
    certify(&bytes, &promises(model, &ids), model.host.costs)
        .map_err(|violation| TestCaseError::fail(violation.to_string()))?;
    Ok(plan)
}

/// Its length, whose alone it is, and each slot's start, end, tenant and vCPU.
type OwnedSlots = (u64, Option<TenantId>, Vec<(u64, u64, TenantId, u32)>);

/// Slots by owner. A CPU that one vCPU has to itself, or nobody, is as long as the table.
fn slots(plan: &Plan, cpu: &CpuPlan) -> OwnedSlots {
    let owned = |slot: &Slot| {
        let vcpu = &plan.vcpus[slot.vcpu as usize];
        (slot.start_ns, slot.end_ns, vcpu.tenant, vcpu.index)
    };
    let slots: Vec<_> = cpu.slots.iter().map(owned).collect();
    match slots[..] {
        [] => (0, cpu.exclusive_to, slots),
        [(0, end_ns, tenant, index)] if end_ns == cpu.length_ns => {
            (0, cpu.exclusive_to, vec![(0, 0, tenant, index)])
        }
        _ => (cpu.length_ns, cpu.exclusive_to, slots),
    }
}

/// Whatever edits make is certified, leaves the CPUs alone that it does not name, and finds a place for all that a full
/// plan has one for.
#[test]
fn edited_plans_are_certified_and_leave_other_cpus_as_they_were() {
    let [alone, full, refused, taken] = [const { Cell::new(0) }; 4];
    let config = Config { failure_persistence: None, ..Config::with_cases(EDITED) };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]));
    let cases = models().prop_flat_map(|model| {
        let cpus = model.host.cpus.len() as u32;
        (Just(model), edits(cpus))
    });
    let outcome = runner.run(&cases, |(mut model, edits)| {
        // Some begin with nobody.
        while plan(&model, &Options::default()).is_err() {
            model.tenants.truncate(model.tenants.len() / 2);
        }
        let mut planner = Planner::new(model, &Options::default()).expect("it has a plan");
        let mut before = check(&planner)?;
        for (number, Edit { place, tenant }) in edits.into_iter().enumerate() {
            let id = place % (planner.model().tenants.len() + 1);
            let mut wanted = planner.model().clone();
            let tenant = tenant.map(|tenant| Tenant { name: format!("edit{number}"), ..tenant });
            if let Some(tenant) = &tenant {
                wanted.tenants.splice(id..wanted.tenants.len().min(id + 1), [tenant.clone()]);
            }
            let change = match tenant {
                None => Ok(planner.remove(id as TenantId)),
                Some(tenant) => planner.admit(id as TenantId, tenant),
            };
            let Ok(change) = change else {
                refused.set(refused.get() + 1);
                prop_assert!(plan(&wanted, &Options::default()).is_err());
                prop_assert_eq!(check(&planner)?, before.clone());
                continue;
            };
            let count = if change.is_full { &full } else { &alone };
            count.set(count.get() + 1);
            taken.set(taken.get() + change.spares);
            let restocks = number % 2 == 0;
            let change = if restocks { change.and(&planner.restock()) } else { change };
            let after = check(&planner)?;
            for (old, new) in before.cpus.iter().zip(&after.cpus) {
                if !change.cpus.contains(new.cpu) {
                    prop_assert_eq!(slots(&before, old), slots(&after, new));
                }
            }
            before = after;
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    let [alone, full, refused, taken] = [alone, full, refused, taken].map(Cell::into_inner);
    println!("{alone} edits CPU by CPU, {taken} spares taken, {full} full plans, {refused} refused");
    assert!(
        alone > EDITED && [full, refused, taken].iter().all(|&count| count > EDITED / 10),
        "too few of some"
    );
}

/// 101 vCPUs of 0.99 on 100 CPUs: each CPU has a hundredth of the last one to give, which may not have slots on all of
/// them.
#[test]
fn what_is_free_on_a_hundred_cpus_is_gathered() {
    const CPUS: u32 = 100;
    let cpus: CpuSet = (0..CPUS).collect();
    let host = Host {
        topology: Topology::flat(&cpus),
        cpus,
        housekeeping: CpuSet::default(),
        floor_ppb: 0,
        slot_min_ns: Host::SLOT_MIN_NS,
        placement: Placement::WorstFit,
        costs: Costs::default(),
        spares: Vec::new(),
    };
    let planned = |affinity: &dyn Fn(u32) -> Option<CpuSet>| {
        let tenant = |number| Tenant {
            name: format!("vm-{number}"),
            class: Class::Reserved(Reservation {
                share: Share::from_fraction(0.99).expect("a share"),
                latency_ns: 20_000_000 + 100_000 * u64::from(number),
                capped: true,
            }),
            vcpus: 1,
            affinity: affinity(number),
            pinned: false,
            exclusive_cores: false,
            matcher: None,
        };
        let model = Model { host: host.clone(), tenants: (0..=CPUS).map(tenant).collect() };
        let ids: Vec<TenantId> = (0..=CPUS).collect();
        plan(&model, &Options::default()).map(|plan| {
            let bytes = encode(&source(&plan, &ids)).expect("it can be encoded");
            certify(&bytes, &promises(&model, &ids), model.host.costs).expect("it keeps its promises");
        })
    };
    planned(&|_| None).expect("they fit, wherever they may go");
    let pair = |number| [number / 2 * 2, number / 2 * 2 + 1];
    planned(&|number| (number < CPUS).then(|| pair(number).into_iter().collect()))
        .expect("they fit, in pairs");
    let refused = planned(&|number| (number < CPUS).then(|| [number].into_iter().collect()));
    assert_eq!(refused, Err(Infeasible::Scattered { tenant: format!("vm-{CPUS}"), index: 0 }));
}

/// The thesis' host (section 6.1): 176 vCPUs of a quarter on 44 of 48 CPUs. Its own tables were up to 4 MB large.
#[test]
fn the_thesis_host_has_a_small_table() {
    let cpus: CpuSet = (0..48).collect();
    let host = Host {
        topology: Topology::flat(&cpus),
        cpus,
        housekeeping: (0..4).collect(),
        floor_ppb: 0,
        slot_min_ns: Host::SLOT_MIN_NS,
        placement: Placement::WorstFit,
        costs: Costs::default(),
        spares: Vec::new(),
    };
    for latency_ms in [1, 30, 60, 100] {
        let quarter = Tenant {
            name: "vm".to_owned(),
            class: Class::Reserved(Reservation {
                share: Share::from_fraction(0.25).expect("a share"),
                latency_ns: latency_ms * 1_000_000,
                capped: false,
            }),
            vcpus: 176,
            affinity: None,
            pinned: false,
            exclusive_cores: false,
            matcher: None,
        };
        let model = Model { host: host.clone(), tenants: vec![quarter] };
        let plan = plan(&model, &Options::default()).expect("it fits");
        let bytes = encode(&source(&plan, &[0])).expect("it can be encoded");
        certify(&bytes, &promises(&model, &[0]), model.host.costs).expect("it keeps its promises");
        println!("{latency_ms} ms: {} bytes", bytes.len());
        assert!(bytes.len() < 64 << 10, "{latency_ms} ms: {} bytes", bytes.len());
    }
}
