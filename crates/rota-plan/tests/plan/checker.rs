//! What a plan has promised, checked from the definitions alone: unrolled over the whole table, window by window.
//! Shares no code with the planner.

use rota_model::{Model, Share};
use rota_plan::{CpuPlan, Method, Plan, PlannedVcpu};

/// The first thing that is wrong.
pub fn check(model: &Model, plan: &Plan) -> Result<(), String> {
    vcpus_are_all(model, plan)?;
    if !plan.cpus.iter().map(|cpu| cpu.cpu).eq(model.host.cpus.iter()) {
        return Err("the plan has not the host's CPUs".into());
    }
    let mut owned: Vec<Vec<(u64, u64)>> = vec![Vec::new(); plan.vcpus.len()];
    let mut on: Vec<Vec<u32>> = vec![Vec::new(); plan.vcpus.len()];
    for cpu in &plan.cpus {
        check_cpu(model, plan, cpu).map_err(|error| format!("CPU {}: {error}", cpu.cpu))?;
        for slot in &cpu.slots {
            on[slot.vcpu as usize].push(cpu.cpu);
            for round in 0..plan.table_length_ns / cpu.length_ns {
                let start = round * cpu.length_ns;
                owned[slot.vcpu as usize].push((start + slot.start_ns, start + slot.end_ns));
            }
        }
    }
    let slot_min = model.host.slot_min_ns.max(1_568); // a 65,536th of the longest table
    let short = |slot: &&rota_plan::Slot| slot.end_ns - slot.start_ns < slot_min;
    let counted = plan.cpus.iter().flat_map(|cpu| &cpu.slots).filter(short).count();
    if counted != plan.short_slots {
        return Err(format!("{counted} short slots, the plan says {}", plan.short_slots));
    }
    for ((vcpu, mut owned), mut on) in plan.vcpus.iter().zip(owned).zip(on) {
        owned.sort_unstable();
        on.dedup();
        let name = format!("vCPU {}/{}", vcpu.tenant, vcpu.index);
        if vcpu.cpus != on {
            return Err(format!("{name}: on {on:?}, the plan says {:?}", vcpu.cpus));
        }
        check_vcpu(vcpu, plan.table_length_ns, &owned).map_err(|error| format!("{name}: {error}"))?;
        let allowed = model.tenants[vcpu.tenant as usize].vcpu_cpus(vcpu.index, &model.host.tenant_cpus());
        if on.iter().any(|&cpu| !allowed.contains(cpu)) {
            return Err(format!("{name}: on {on:?}, but only {allowed} is allowed"));
        }
    }
    Ok(())
}

fn vcpus_are_all(model: &Model, plan: &Plan) -> Result<(), String> {
    let mut planned = plan.vcpus.iter();
    for (tenant, entry) in (0..).zip(&model.tenants) {
        let Some(reservation) = entry.reservation() else { continue };
        for index in 0..entry.vcpus {
            let vcpu = planned.next().ok_or("a vCPU is missing")?;
            let promise = (vcpu.tenant, vcpu.index, vcpu.share, vcpu.latency_ns, vcpu.capped);
            let asked = (tenant, index, reservation.share, reservation.latency_ns, reservation.capped);
            if promise != asked {
                return Err(format!("planned {promise:?}, asked for {asked:?}"));
            }
        }
    }
    if planned.next().is_some() { Err("a vCPU too many".into()) } else { Ok(()) }
}

fn check_cpu(model: &Model, plan: &Plan, cpu: &CpuPlan) -> Result<(), String> {
    if !plan.table_length_ns.is_multiple_of(cpu.length_ns) {
        return Err(format!("length {} does not divide the table's", cpu.length_ns));
    }
    let mut now = 0;
    let mut last = None;
    let mut used = 0;
    for slot in &cpu.slots {
        if slot.start_ns < now || slot.end_ns <= slot.start_ns || slot.end_ns > cpu.length_ns {
            return Err(format!("{slot:?} overlaps, is empty or ends too late"));
        }
        if slot.start_ns == now && last == Some(slot.vcpu) {
            return Err(format!("{slot:?} and the one before it are one"));
        }
        (now, last) = (slot.end_ns, Some(slot.vcpu));
        used += slot.end_ns - slot.start_ns;
    }
    let dedicated = cpu.slots.iter().any(|slot| plan.vcpus[slot.vcpu as usize].method == Method::Dedicated);
    // Rounding to whole ns may take a tenth of the floor.
    let floor = if dedicated { 0 } else { u128::from(model.host.floor_ppb / 10 * 9) };
    if u128::from(cpu.length_ns - used) * 1_000_000_000 < floor * u128::from(cpu.length_ns) {
        return Err(format!("{used} of {} ns are taken, the floor is gone", cpu.length_ns));
    }
    match cpu.slots.iter().map(|slot| slot.end_ns - slot.start_ns).min() {
        Some(shortest) if cpu.length_ns.div_ceil(shortest) > 65_536 => {
            Err(format!("slices of {shortest} ns"))
        }
        None if cpu.length_ns != plan.table_length_ns => Err("idle, but not as long as the table".into()),
        _ => Ok(()),
    }
}

/// `owned` is in order.
fn check_vcpu(vcpu: &PlannedVcpu, length: u64, owned: &[(u64, u64)]) -> Result<(), String> {
    let PlannedVcpu { budget_ns: budget, period_ns: period, .. } = *vcpu;
    if u128::from(budget) * u128::from(Share::ONE.ppb()) < u128::from(vcpu.share.ppb()) * u128::from(period) {
        return Err(format!("{budget} in {period} is less than its share"));
    }
    if !length.is_multiple_of(period) {
        return Err(format!("the period {period} does not divide the table"));
    }
    let (Some(first), Some(last)) = (owned.first(), owned.last()) else { return Err("no slot".into()) };
    let mut blackout = length - last.1 + first.0;
    for pair in owned.windows(2) {
        let gap = pair[1].0.checked_sub(pair[0].1).ok_or("on two CPUs at once")?;
        blackout = blackout.max(gap);
    }
    if blackout != vcpu.blackout_ns || blackout > vcpu.latency_ns {
        return Err(format!(
            "{blackout} ns without a slot; planned {}, promised {}",
            vcpu.blackout_ns, vcpu.latency_ns
        ));
    }
    for start in (0..length).step_by(period as usize) {
        let end = start + period;
        let from = owned.partition_point(|slot| slot.1 <= start);
        let within = owned[from..].iter().take_while(|slot| slot.0 < end);
        let served: u64 = within.map(|slot| slot.1.min(end) - slot.0.max(start)).sum();
        if served != budget {
            return Err(format!("{served} of {budget} ns in the window from {start}"));
        }
    }
    Ok(())
}
