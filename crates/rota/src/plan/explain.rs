//! Why each vCPU is where it is, in words.

use std::collections::HashMap;

use rota_model::{CpuSet, Model, Placement};
use rota_plan::{
    CpuPlan, HYPERPERIOD_NS, Method, Period, Place, Plan, PlannedVcpu, Reason, SlotsAlone, Together,
    slots_alone,
};

use super::{count, duration, vcpu_name, why_slots_alone};

/// One line a vCPU.
pub fn render_reasons(plan: &Plan, model: &Model, reasons: &[Reason]) -> String {
    let texts = reason_texts(plan, model, reasons);
    let line = |(vcpu, text): (u32, &String)| format!("{}: {text}\n", vcpu_name(plan, model, vcpu));
    (0..).zip(&texts).map(line).collect()
}

/// Why each of the plan's vCPUs is where it is.
pub fn reason_texts(plan: &Plan, model: &Model, reasons: &[Reason]) -> Vec<String> {
    let switch_ns = model.host.costs.switch_ns;
    let alone = |cpu: &CpuPlan| Some((cpu.cpu, slots_alone(plan, cpu, switch_ns)?));
    let alone: Alone = plan.cpus.iter().filter_map(alone).collect();
    let reasons = plan.vcpus.iter().zip(reasons);
    reasons.map(|(vcpu, reason)| reason_text(plan, model, &alone, vcpu, reason)).collect()
}

/// The CPUs that go by their slots alone.
type Alone = HashMap<u32, SlotsAlone>;

fn reason_text(plan: &Plan, model: &Model, alone: &Alone, vcpu: &PlannedVcpu, reason: &Reason) -> String {
    let mut parts = vec![place(vcpu, reason)];
    parts.extend(
        reason.together.map(|together| format!("with another of its tenant: {}", why_together(together))),
    );
    if vcpu.method != Method::Dedicated {
        let (budget, period) = (duration(vcpu.budget_ns), duration(vcpu.period_ns));
        parts.push(format!("budget {budget} every {period}, {}", why_period(reason.period)));
    }
    if vcpu.cpus.len() > 1 {
        parts.push(format!(
            "{} a second, so it waits for its slots when it wakes",
            count(migrations(plan, vcpu), "migration")
        ));
    }
    let core = plan.cpus.iter().filter(|cpu| cpu.exclusive_to == Some(vcpu.tenant));
    let core: CpuSet = core.map(|cpu| cpu.cpu).collect();
    if model.tenants[vcpu.tenant as usize].exclusive_cores && !core.is_empty() {
        parts.push(format!(
            "exclusive_cores: the fewest cores that carry its tenant, {}, are its own",
            cpus(&core)
        ));
    }
    if let [cpu] = vcpu.cpus[..]
        && let Some(&why) = alone.get(&cpu)
    {
        let why = why_slots_alone(plan, model, why);
        parts.push(format!("waits for its slots when it wakes (CPU {cpu}: {why})"));
    }
    if reason.placed_before > 0 && vcpu.method != Method::Dedicated {
        let before = count(reason.placed_before as usize, "placement");
        parts.push(format!("after {before} that left some CPU too little for changes of task and rounding"));
    }
    parts.push(vcpu.method.to_string());
    parts.join("; ")
}

fn place(vcpu: &PlannedVcpu, reason: &Reason) -> String {
    let on: CpuSet = vcpu.cpus.iter().copied().collect();
    let on = cpus(&on);
    match &reason.place {
        Place::Whole { of } => {
            format!("{on} to itself, one of {} that it may use: its share is a whole CPU", count(*of, "CPU"))
        }
        Place::Fit { of: 1, .. } => format!("{on}, the only one that it may use"),
        Place::Fit { with_room: 1, of, .. } => format!("{on}, the only one of {of} with room for it"),
        Place::Fit { with_room, of, placement, free, .. } => {
            let which = match placement {
                Placement::WorstFit => "most",
                Placement::BestFit => "least",
            };
            format!(
                "{on}, of the {with_room} of {of} CPUs with room the one with {which} ({} free)",
                share(*free)
            )
        }
        Place::Apart { with_room: 1, of, .. } => format!("{on}, the only one of {of} with room for it"),
        Place::Apart { with_room, of, free, .. } => format!(
            "{on} ({} free), of the {with_room} of {of} CPUs with room, to keep vCPUs of one tenant apart",
            share(*free)
        ),
        Place::Together { with, of } => format!(
            "{on}, of {} that it may use, with the same slots there as {} of its tenant on theirs",
            count(*of, "CPU"),
            count(*with, "vCPU")
        ),
        Place::Flow => {
            format!("{on}, where it fits whole when all are divided at once: not all fit on one CPU each")
        }
        Place::Split { needed, most, pieces } => {
            let runs: Vec<String> =
                pieces.iter().map(|(cpu, budget)| format!("{} on {cpu}", duration(*budget))).collect();
            let why = too_little(*needed, *most);
            match vcpu.method {
                Method::Split => format!("split over {on}: {why}; runs {}", runs.join(", then ")),
                _ => format!(
                    "{on}: {why}; its pieces ({}) were then planned with a cluster",
                    runs.join(", then ")
                ),
            }
        }
        Place::Cluster { needed, most, cpus: over } => {
            let over: CpuSet = over.iter().copied().collect();
            let why = too_little(*needed, *most);
            format!("{on}: {why} and no cut was found, so {} became a cluster", cpus(&over))
        }
        Place::Divided => format!(
            "{on}, as the flow of all loads divides them: no CPU had enough left, nor had several unless others move"
        ),
    }
}

fn why_together(together: Together) -> String {
    match together {
        Together::Many { vcpus, cpus } => {
            format!("{} for {}", count(vcpus, "vCPU"), count(cpus, "CPU"))
        }
        Together::NoRoom { most, needed } => format!(
            "no CPU with fewer has {} left (most: {}), nor has one if others move",
            share(needed),
            share(most)
        ),
        Together::Packed => "best-fit fills CPUs".to_owned(),
        Together::Costs => "apart they leave some CPU too little for changes of task and rounding".to_owned(),
        Together::Divided => "not all vCPUs fit on one CPU each, so CPUs are filled".to_owned(),
    }
}

fn why_period(period: Period) -> String {
    match period {
        Period::None => "always".to_owned(),
        Period::Longest => "the longest candidate period within its latency".to_owned(),
        Period::LeastWaste(longest) => {
            format!("not {}, for rounding budgets to whole ns takes less so", duration(longest))
        }
        Period::Common(longest) => {
            format!("not {}, for rounding takes least where all have one period", duration(longest))
        }
        Period::LongerSlots(before) => format!("not {}, for slots would be too short", duration(before)),
        Period::Pieces(before) => {
            format!("not {}, for so its pieces fit beside the others", duration(before))
        }
        Period::Together(before) => {
            format!("not {}, to fit beside slots that come together", duration(before))
        }
        Period::Block(before) => format!("not {}, to be a multiple of its cluster's block", duration(before)),
    }
}

fn too_little(needed: u64, most: u64) -> String {
    format!("no CPU had {} left (most: {})", share(needed), share(most))
}

/// A load as a fraction of a CPU.
fn share(load: u64) -> String {
    format!("{:.4}", load as f64 / HYPERPERIOD_NS as f64)
}

fn cpus(cpus: &CpuSet) -> String {
    format!("CPU{} {cpus}", if cpus.len() == 1 { "" } else { "s" })
}

/// How often in a second a vCPU goes on on another CPU.
fn migrations(plan: &Plan, vcpu: &PlannedVcpu) -> usize {
    let is_its = |slot: &&rota_plan::Slot| std::ptr::eq(&plan.vcpus[slot.vcpu as usize], vcpu);
    let mut starts: Vec<(u64, u32)> = Vec::new();
    for cpu in plan.cpus.iter().filter(|cpu| vcpu.cpus.contains(&cpu.cpu)) {
        for round in (0..plan.table_length_ns).step_by(cpu.length_ns as usize) {
            starts.extend(cpu.slots.iter().filter(is_its).map(|slot| (round + slot.start_ns, cpu.cpu)));
        }
    }
    starts.sort_unstable();
    let next = starts.iter().cycle().skip(1);
    let moves = starts.iter().zip(next).filter(|(slot, next)| slot.1 != next.1).count() as u64;
    (moves * 1_000_000_000).div_ceil(plan.table_length_ns) as usize
}
