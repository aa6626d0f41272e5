//! Random hosts through planner, encoder and certifier, as the daemon sends every table: whatever is planned, at once
//! or edit by edit, is certified, to the byte that would be installed.

mod budgets;
mod hosts;

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rota_model::{
    Class, Costs, CpuSet, Host, Model, Placement, Reservation, Share, Team, Tenant, TenantId, Topology,
};
use rota_plan::{
    CpuPlan, HYPERPERIOD_NS, Infeasible, Options, Plan, Planner, SLICES_MAX, Slot, VCPU_CPUS_MAX,
    WINDOW_VCPUS_MAX, plan, slots_alone,
};
use rota_rules::planning::{promises, source};
use rota_table::{TableView, certify, encode, layout};

use hosts::{models, tenants};

/// How many hosts must have been planned for the test to have seen enough.
const PLANNED: u32 = 10_000;
/// How many hosts are edited.
const EDITED: u32 = 4_000;

#[test]
fn ten_thousand_random_hosts_are_planned_and_certified() {
    let [planned, refused, opened, closed] = [const { Cell::new(0) }; 4];
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
            let bytes = encode(&source(&plan, &ids, model.host.costs))
                .map_err(|error| TestCaseError::fail(error.to_string()))?;
            let certified = certify(&bytes, &promises(&model, &ids), model.host.costs);
            prop_assert!(certified.is_ok(), "{}", certified.unwrap_err());
            let in_windows = in_windows(&plan, &bytes, model.host.costs)?;
            let count = |open: bool| in_windows.iter().filter(|&&is_open| is_open == open).count() as u32;
            opened.set(opened.get() + count(true));
            closed.set(closed.get() + count(false));
            planned.set(planned.get() + 1);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
        assert!(refused.get() < 4 * PLANNED, "too few hosts are feasible to learn anything");
    }
    println!("{} hosts planned and certified, {} refused", planned.get(), refused.get());
    println!("{} CPUs serve in windows, {} by their slots", opened.get(), closed.get());
    assert!(opened.get() > 2 * closed.get(), "too few CPUs serve in windows");
}

/// Whether each of the table's CPUs that several vCPUs could have serves in windows. It does where the planner says
/// nothing against it.
fn in_windows(plan: &Plan, bytes: &[u8], costs: Costs) -> Result<Vec<bool>, TestCaseError> {
    let view = TableView::new(bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let mut in_windows = Vec::new();
    for (cpu, view) in plan.cpus.iter().zip(view.cpus()) {
        let is_whole = matches!(cpu.slots[..], [slot] if slot.len_ns() == cpu.length_ns);
        let is_divided = !cpu.slots.is_empty() && !is_whole;
        let expected = is_divided && slots_alone(plan, cpu, costs.switch_ns).is_none();
        prop_assert_eq!(view.record.flags & layout::CPU_WINDOWS != 0, expected, "CPU {}", cpu.cpu);
        if is_divided {
            in_windows.push(expected);
        }
    }
    Ok(in_windows)
}

/// What the planner knows of the format.
#[test]
fn limits_are_the_formats() {
    assert_eq!(SLICES_MAX, layout::SLICES_MAX.into());
    assert_eq!(VCPU_CPUS_MAX, layout::VCPU_CPUS_MAX as usize);
    assert_eq!(WINDOW_VCPUS_MAX, layout::WINDOW_VCPUS_MAX as usize);
    assert_eq!(HYPERPERIOD_NS, layout::HYPERPERIOD_NS.into());
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
    let bytes = encode(&source(&plan, &ids, model.host.costs))
        .map_err(|error| TestCaseError::fail(error.to_string()))?;
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
        interference: rota_model::Interference::Off,
        branch_records: false,
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
            oversubscribe: true,
            team: Team::default(),
            matcher: None,
        };
        let model = Model { host: host.clone(), tenants: (0..=CPUS).map(tenant).collect() };
        let ids: Vec<TenantId> = (0..=CPUS).collect();
        plan(&model, &Options::default()).map(|plan| {
            let bytes = encode(&source(&plan, &ids, model.host.costs)).expect("it can be encoded");
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
        interference: rota_model::Interference::Off,
        branch_records: false,
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
            oversubscribe: true,
            team: Team::default(),
            matcher: None,
        };
        let model = Model { host: host.clone(), tenants: vec![quarter] };
        let plan = plan(&model, &Options::default()).expect("it fits");
        let bytes = encode(&source(&plan, &[0], model.host.costs)).expect("it can be encoded");
        certify(&bytes, &promises(&model, &[0]), model.host.costs).expect("it keeps its promises");
        println!("{latency_ms} ms: {} bytes", bytes.len());
        assert!(bytes.len() < 64 << 10, "{latency_ms} ms: {} bytes", bytes.len());
    }
}

/// A VM that is shown its slots has them when it was told, and its neighbours cannot go first as they wake.
#[test]
fn slots_that_a_guest_is_shown_are_walls() {
    let windows = |timetable: bool| {
        let mut model = two_on_a_cpu();
        model.tenants[0].team.timetable = timetable;
        let plan = plan(&model, &Options::default()).expect("there is room");
        let bytes = encode(&source(&plan, &[0, 1], model.host.costs)).expect("it can be encoded");
        let table =
            certify(bytes, &promises(&model, &[0, 1]), model.host.costs).expect("it keeps its promises");
        let flags: Vec<u32> = table.view().cpus().map(|cpu| cpu.record.flags).collect();
        assert!(!table.view().own_slots(0).is_empty());
        flags.iter().any(|flags| flags & layout::CPU_WINDOWS != 0)
    };
    assert!(windows(false));
    assert!(!windows(true));
}

/// Two tenants on one CPU.
fn two_on_a_cpu() -> Model {
    let text = "[host]\ncpus = \"0-1\"\nhousekeeping = \"0\"\n\
                [[tenant]]\nname = \"t{i}\"\ncount = 2\nclass = \"reserved\"\n\
                share = 0.4\nlatency = \"20ms\"\n";
    let source = rota_model::config::Source { path: "rota.toml".to_owned(), text: text.to_owned() };
    rota_model::config::parse_for(&[source], &rota_model::config::Machine::default()).expect("it is right")
}
