//! All stages, for a whole host.

use std::collections::HashMap;
use std::rc::Rc;

use rota_model::{Model, Share};

use crate::demand::{Demand, collect};
use crate::partition::{Item, Order, Placement, Unplaced, partition};
use crate::period::{Choice, HYPERPERIOD_NS, Task, lcm, task};
use crate::single::{Timetable, timetable};
use crate::timetable::SLOT_MIN_NS;
use crate::{CpuPlan, Infeasible, Method, Plan, PlannedVcpu, Slot};

const WHOLE: u64 = Share::ONE.ppb() as u64;

/// How to plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which CPU a vCPU goes to.
    pub placement: Placement,
}

/// Plans every reservation of the model.
///
/// # Errors
///
/// [`Infeasible`], if not every promise can be kept by vCPUs that each stay on one CPU.
pub fn plan(model: &Model, options: &Options) -> Result<Plan, Infeasible> {
    let usable = model.host.tenant_cpus();
    let cpus: Vec<u32> = usable.iter().collect();
    let demands = collect(model, &usable)?;
    check_utilisation(model, &demands, cpus.len())?;
    let (tasks, places) = place(model, &demands, cpus.len(), options.placement)?;
    let mut carried: Vec<Vec<u32>> = vec![Vec::new(); cpus.len()];
    for (vcpu, &place) in (0..).zip(&places) {
        carried[place].push(vcpu);
    }
    let timetables = simulate(model, &tasks, &mut carried);
    for (place, timetable) in timetables.iter().enumerate() {
        if let Some(timetable) = timetable.as_deref().filter(|timetable| !timetable.has_few_slices()) {
            return Err(too_many_slices(model, &demands, cpus[place], &carried[place], timetable));
        }
    }
    Ok(assemble(model, &demands, &cpus, &carried, &timetables))
}

/// Refuses early, and with the one figure that matters, what no placement could carry.
fn check_utilisation(model: &Model, demands: &[Demand], cpus: usize) -> Result<(), Infeasible> {
    let needed_ppb = demands.iter().map(|demand| u64::from(demand.reservation.share.ppb())).sum();
    let whole = demands.iter().filter(|demand| demand.reservation.share == Share::ONE).count().min(cpus);
    let floors = (cpus - whole) as u64 * u64::from(model.host.floor_ppb);
    let available_ppb = cpus as u64 * WHOLE - floors;
    if needed_ppb > available_ppb {
        return Err(Infeasible::OverUtilised { needed_ppb, available_ppb, cpus });
    }
    Ok(())
}

/// Tasks and their CPUs, by the first way that places all of them: as asked for if possible, then with less waste by
/// rounding, with the choosiest first, and packed tightly.
fn place(
    model: &Model,
    demands: &[Demand],
    cpus: usize,
    placement: Placement,
) -> Result<(Vec<Task>, Vec<usize>), Infeasible> {
    let placements = [placement, Placement::BestFit];
    let placements = if placement == Placement::BestFit { &placements[..1] } else { &placements };
    let choosy = demands.iter().any(|demand| demand.allowed.is_some());
    let orders = if choosy { &[Order::Size, Order::Choosiest][..] } else { &[Order::Size] };
    let mut refused = None;
    for choice in [Choice::Longest, Choice::LeastWaste] {
        let tasks = tasks(model, demands, choice)?;
        let items: Vec<Item> = tasks
            .iter()
            .zip(demands)
            .map(|(task, demand)| Item {
                load: if task.share == Share::ONE { HYPERPERIOD_NS } else { task.load() },
                allowed: demand.allowed.as_deref(),
            })
            .collect();
        for &placement in placements {
            for &order in orders {
                match partition(&items, cpus, capacity(model), order, placement) {
                    Ok(places) => return Ok((tasks, places)),
                    Err(unplaced) => refused = refused.or(Some(unplaced)),
                }
            }
        }
    }
    // Every way was refused, the plainest first: that one is the easiest to understand.
    Err(no_room(model, demands, cpus, refused.unwrap_or(Unplaced { item: 0, largest: 0, total: 0 })))
}

fn tasks(model: &Model, demands: &[Demand], choice: Choice) -> Result<Vec<Task>, Infeasible> {
    let one = |demand: &Demand| {
        task(&demand.reservation, choice).map_err(|smallest_ns| Infeasible::Latency {
            tenant: model.tenants[demand.tenant as usize].name.clone(),
            share: demand.reservation.share,
            latency_ns: demand.reservation.latency_ns,
            smallest_ns,
        })
    };
    demands.iter().map(one).collect()
}

/// What a CPU that is not dedicated has to give, in ns of a hyperperiod.
fn capacity(model: &Model) -> u64 {
    let floor = (HYPERPERIOD_NS * u64::from(model.host.floor_ppb)).div_ceil(WHOLE);
    HYPERPERIOD_NS.saturating_sub(floor)
}

/// The timetable of each CPU; none for one that carries nothing or one whole vCPU. CPUs that carry equal tasks are
/// simulated once. Sorts what each carries by period: the timetable's tasks are in that order.
fn simulate(model: &Model, tasks: &[Task], carried: &mut [Vec<u32>]) -> Vec<Option<Rc<Timetable>>> {
    let slot_min_ns = model.host.slot_min_ns.max(SLOT_MIN_NS);
    // Placed tasks leave the floor free; periods changed afterwards may take a tenth of it for their rounding.
    let load_max = capacity(model) + (HYPERPERIOD_NS - capacity(model)) / 10;
    let mut known: HashMap<Vec<Task>, Rc<Timetable>> = HashMap::new();
    let mut one = |vcpus: &mut Vec<u32>| {
        vcpus.sort_by_key(|&vcpu| (tasks[vcpu as usize], vcpu));
        let key: Vec<Task> = vcpus.iter().map(|&vcpu| tasks[vcpu as usize]).collect();
        if key.first()?.share == Share::ONE {
            return None;
        }
        if let Some(timetable) = known.get(&key) {
            return Some(timetable.clone());
        }
        let made = Rc::new(timetable(&key, load_max, slot_min_ns));
        known.insert(key, made.clone());
        Some(made)
    };
    carried.iter_mut().map(&mut one).collect()
}

fn assemble(
    model: &Model,
    demands: &[Demand],
    cpus: &[u32],
    carried: &[Vec<u32>],
    timetables: &[Option<Rc<Timetable>>],
) -> Plan {
    let lengths = timetables.iter().flatten().map(|timetable| timetable.length_ns);
    let table_length_ns = lengths.reduce(lcm).unwrap_or(HYPERPERIOD_NS);
    // What a vCPU with a CPU to itself has; the others' are filled in below.
    let mut vcpus: Vec<PlannedVcpu> = demands
        .iter()
        .map(|demand| PlannedVcpu {
            tenant: demand.tenant,
            index: demand.index,
            share: demand.reservation.share,
            latency_ns: demand.reservation.latency_ns,
            capped: demand.reservation.capped,
            budget_ns: table_length_ns,
            period_ns: table_length_ns,
            cpus: Vec::new(),
            blackout_ns: 0,
            method: Method::Dedicated,
        })
        .collect();
    let idle = |cpu| CpuPlan { cpu, length_ns: table_length_ns, slots: Vec::new() };
    let mut plans: Vec<CpuPlan> = model.host.cpus.iter().map(idle).collect();
    let mut place_of_plan = plans.iter_mut();
    for ((&cpu, carried), timetable) in cpus.iter().zip(carried).zip(timetables) {
        let Some(plan) = place_of_plan.find(|plan| plan.cpu == cpu) else { continue };
        for &vcpu in carried {
            vcpus[vcpu as usize].cpus.push(cpu);
        }
        let Some(timetable) = timetable else {
            let whole = |&vcpu| Slot { start_ns: 0, end_ns: table_length_ns, vcpu };
            plan.slots = carried.iter().map(whole).collect();
            continue;
        };
        plan.length_ns = timetable.length_ns;
        let owned = |slot: &Slot| Slot { vcpu: carried[slot.vcpu as usize], ..*slot };
        plan.slots = timetable.slots.iter().map(owned).collect();
        for ((&vcpu, task), &blackout_ns) in carried.iter().zip(&timetable.tasks).zip(&timetable.blackouts) {
            let planned = &mut vcpus[vcpu as usize];
            (planned.budget_ns, planned.period_ns) = (task.budget(), task.period);
            (planned.blackout_ns, planned.method) = (blackout_ns, Method::Partitioned);
        }
    }
    let short_slots = timetables.iter().flatten().map(|timetable| timetable.short_slots).sum();
    Plan { table_length_ns, cpus: plans, vcpus, short_slots }
}

fn no_room(model: &Model, demands: &[Demand], cpus: usize, unplaced: Unplaced) -> Infeasible {
    let demand = &demands[unplaced.item];
    let ppb = |load: u64| load * WHOLE / HYPERPERIOD_NS;
    Infeasible::NoRoom {
        tenant: model.tenants[demand.tenant as usize].name.clone(),
        index: demand.index,
        share: demand.reservation.share,
        allowed: demand.allowed.as_ref().map_or(cpus, |allowed| allowed.len()),
        largest_ppb: ppb(unplaced.largest),
        total_ppb: ppb(unplaced.total),
    }
}

fn too_many_slices(
    model: &Model,
    demands: &[Demand],
    cpu: u32,
    carried: &[u32],
    timetable: &Timetable,
) -> Infeasible {
    let mut tenants: Vec<&str> = carried
        .iter()
        .map(|&vcpu| model.tenants[demands[vcpu as usize].tenant as usize].name.as_str())
        .collect();
    tenants.dedup();
    Infeasible::Slices {
        cpu,
        slot_ns: timetable.slot_min_ns(),
        length_ns: timetable.length_ns,
        tenants: tenants.join(", "),
    }
}
