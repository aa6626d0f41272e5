//! All stages, for a whole host.

use rota_model::{Model, Placement, Share};

use crate::demand::{Demand, collect};
use crate::exclusive;
use crate::lay_out::{Layout, Wanted};
use crate::period::{HYPERPERIOD_NS, lcm};
use crate::settle::CpuSlots;
use crate::shortage;
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
/// [`Infeasible`], if not every promise can be kept.
pub fn plan(model: &Model, options: &Options) -> Result<Plan, Infeasible> {
    let usable = model.host.tenant_cpus();
    let cpus: Vec<u32> = usable.iter().collect();
    let demands = collect(model, &usable)?;
    let capacity = capacity(model);
    let wholes = shortage::check_shares(model, &demands, &cpus, capacity)?;
    let wanted = Wanted { model, demands: &demands, wholes: &wholes, cpus: &cpus, capacity };
    let layout = wanted.lay_out(options.placement)?;
    for (group, timetable) in &layout {
        let sliced = timetable.as_ref().filter(|timetable| !timetable.has_few_slices());
        if let Some((place, sliced)) = sliced.and_then(|timetable| timetable.most_sliced()) {
            return Err(Infeasible::Slices {
                cpu: cpus[group.cpus[place]],
                slot_ns: sliced.slot_min_ns(),
                length_ns: sliced.length_ns,
                tenants: wanted.tenant_names(&group.vcpus),
            });
        }
    }
    Ok(assemble(model, &demands, &cpus, &layout))
}

/// What a CPU that is not dedicated has to give, in ns of a hyperperiod.
fn capacity(model: &Model) -> u64 {
    let floor = (HYPERPERIOD_NS * u64::from(model.host.floor_ppb)).div_ceil(WHOLE);
    HYPERPERIOD_NS.saturating_sub(floor)
}

fn assemble(model: &Model, demands: &[Demand], cpus: &[u32], layout: &Layout) -> Plan {
    let used = |cpu: &&CpuSlots| !cpu.slots.is_empty();
    let timetables = || layout.iter().filter_map(|(_, timetable)| timetable.as_deref());
    let lengths = timetables().flat_map(|timetable| &timetable.cpus).filter(used).map(|cpu| cpu.length_ns);
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
    let idle = |cpu| CpuPlan { cpu, length_ns: table_length_ns, slots: Vec::new(), exclusive_to: None };
    let mut plans: Vec<CpuPlan> = model.host.cpus.iter().map(idle).collect();
    for (group, timetable) in layout {
        let Some(timetable) = timetable else {
            let [place] = group.cpus[..] else { continue };
            for &vcpu in &group.vcpus {
                vcpus[vcpu as usize].cpus.push(cpus[place]);
                plan_of(&mut plans, cpus[place]).slots.push(Slot {
                    start_ns: 0,
                    end_ns: table_length_ns,
                    vcpu,
                });
            }
            continue;
        };
        for (&place, cpu) in group.cpus.iter().zip(&timetable.cpus).filter(|(_, cpu)| used(cpu)) {
            let plan = plan_of(&mut plans, cpus[place]);
            plan.length_ns = cpu.length_ns;
            plan.slots = cpu
                .slots
                .iter()
                .map(|slot| Slot { vcpu: group.vcpus[slot.vcpu as usize], ..*slot })
                .collect();
            for slot in &plan.slots {
                let on = &mut vcpus[slot.vcpu as usize].cpus;
                if on.last() != Some(&plan.cpu) {
                    on.push(plan.cpu);
                }
            }
        }
        for ((&vcpu, task), &blackout_ns) in
            group.vcpus.iter().zip(&timetable.tasks).zip(&timetable.blackouts)
        {
            let planned = &mut vcpus[vcpu as usize];
            (planned.budget_ns, planned.period_ns) = (task.net(), task.period);
            planned.blackout_ns = blackout_ns;
            planned.method = if planned.cpus.len() > 1 { timetable.method } else { Method::Partitioned };
        }
    }
    let short_slots = timetables().map(|timetable| timetable.short_slots).sum();
    exclusive::mark(model, &mut plans, &vcpus);
    Plan { table_length_ns, cpus: plans, vcpus, short_slots }
}

/// `plans` are in the order of CPUs.
fn plan_of(plans: &mut [CpuPlan], cpu: u32) -> &mut CpuPlan {
    let place = plans.binary_search_by_key(&cpu, |plan| plan.cpu).expect("every CPU of the host has a plan");
    &mut plans[place]
}
