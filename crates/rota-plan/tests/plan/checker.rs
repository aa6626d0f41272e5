//! What a plan has promised, checked from the definitions alone: unrolled over the whole table, window by window.
//! Shares no code with the planner.

use rota_model::{Model, Share};
use rota_plan::{CpuPlan, Method, Plan, PlannedVcpu};

/// Time that a vCPU has on a CPU, and from when on it is its own: the change of tasks is over then.
#[derive(Clone, Copy)]
struct Owned {
    start: u64,
    net_start: u64,
    end: u64,
    cpu: u32,
}

/// The first thing that is wrong.
pub fn check(model: &Model, plan: &Plan) -> Result<(), String> {
    vcpus_are_all(model, plan)?;
    if !plan.cpus.iter().map(|cpu| cpu.cpu).eq(model.host.cpus.iter()) {
        return Err("the plan has not the host's CPUs".into());
    }
    let mut owned: Vec<Vec<Owned>> = vec![Vec::new(); plan.vcpus.len()];
    let mut on: Vec<Vec<u32>> = vec![Vec::new(); plan.vcpus.len()];
    for cpu in &plan.cpus {
        check_cpu(model, plan, cpu).map_err(|error| format!("CPU {}: {error}", cpu.cpu))?;
        cpu.slots.iter().for_each(|slot| on[slot.vcpu as usize].push(cpu.cpu));
        unroll(cpu, plan.table_length_ns, model.host.costs.switch_ns, &mut owned);
    }
    cores_are_kept(model, plan, &on)?;
    slots_come_together(model, plan, &owned)?;
    // A 65,536th of the longest table.
    let slot_min = model.host.slot_min_ns.max(1_568).max(model.host.costs.switch_ns);
    let short = |slot: &&rota_plan::Slot| slot.end_ns - slot.start_ns < slot_min;
    let counted = plan.cpus.iter().flat_map(|cpu| &cpu.slots).filter(short).count();
    if counted != plan.short_slots {
        return Err(format!("{counted} short slots, the plan says {}", plan.short_slots));
    }
    for ((vcpu, mut owned), mut on) in plan.vcpus.iter().zip(owned).zip(on) {
        owned.sort_unstable_by_key(|owned| owned.start);
        for place in 0..owned.len() {
            let before = owned[place.checked_sub(1).unwrap_or(owned.len() - 1)].cpu;
            let moved = owned[place].cpu != before;
            owned[place].net_start += if moved { model.host.costs.migration_ns } else { 0 };
        }
        on.dedup();
        let name = format!("vCPU {}/{}", vcpu.tenant, vcpu.index);
        if vcpu.cpus != on {
            return Err(format!("{name}: on {on:?}, the plan says {:?}", vcpu.cpus));
        }
        check_vcpu(vcpu, plan.table_length_ns, &owned).map_err(|error| format!("{name}: {error}"))?;
        let entry = &model.tenants[vcpu.tenant as usize];
        let allowed = entry.vcpu_cpus(vcpu.index, &model.host.tenant_cpus());
        if on.iter().any(|&cpu| !allowed.contains(cpu)) {
            return Err(format!("{name}: on {on:?}, but only {allowed} is allowed"));
        }
    }
    Ok(())
}

/// The CPU's slots over the second of two tables, so that a change that was not finished at the end of the first is
/// heeded.
fn unroll(cpu: &CpuPlan, table_length: u64, switch: u64, owned: &mut [Vec<Owned>]) {
    // Nobody else ever runs there.
    let is_whole = cpu.slots.len() == 1 && cpu.slots[0].len_ns() == cpu.length_ns;
    let mut busy_until = 0;
    for round in 0..2 * table_length / cpu.length_ns {
        for slot in &cpu.slots {
            let (start, end) = (round * cpu.length_ns + slot.start_ns, round * cpu.length_ns + slot.end_ns);
            busy_until = if is_whole { start } else { start.max(busy_until) + switch };
            if let Some(start) = start.checked_sub(table_length) {
                let (net_start, end) = (busy_until - table_length, end - table_length);
                owned[slot.vcpu as usize].push(Owned { start, net_start, end, cpu: cpu.cpu });
            }
        }
    }
}

fn vcpus_are_all(model: &Model, plan: &Plan) -> Result<(), String> {
    let mut planned = plan.vcpus.iter();
    for (tenant, entry) in (0..).zip(&model.tenants) {
        for index in 0..entry.vcpus {
            let Some(reservation) = entry.vcpu_reservation(index) else { continue };
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

/// Where a tenant wants it, each of its vCPUs has a slot whenever one has.
fn slots_come_together(model: &Model, plan: &Plan, owned: &[Vec<Owned>]) -> Result<(), String> {
    let times = |owned: &Vec<Owned>| {
        let mut edges: Vec<(u64, i32)> =
            owned.iter().flat_map(|one| [(one.start, 1), (one.end, -1)]).collect();
        edges.sort_unstable();
        // Slots that touch are one.
        let mut merged: Vec<(u64, i32)> = Vec::new();
        for edge in edges {
            match merged.last() {
                Some(last) if last.0 == edge.0 => drop(merged.pop()),
                _ => merged.push(edge),
            }
        }
        merged
    };
    for (tenant, entry) in (0..).zip(&model.tenants).filter(|(_, entry)| entry.team.together) {
        let own = plan.vcpus.iter().zip(owned).filter(|(vcpu, _)| vcpu.tenant == tenant);
        let own: Vec<_> = own.map(|(_, owned)| times(owned)).collect();
        if own.windows(2).any(|two| two[0] != two[1]) {
            return Err(format!("{}: its slots do not come together", entry.name));
        }
    }
    Ok(())
}

/// Whoever wants cores to itself has no neighbour on a sibling, and the plan says where that is so.
fn cores_are_kept(model: &Model, plan: &Plan, on: &[Vec<u32>]) -> Result<(), String> {
    let core = |cpu: u32| model.host.topology.place(cpu).map(|place| place.core);
    let siblings =
        |cpu: u32| model.host.topology.places.iter().filter(|place| Some(place.core) == core(cpu)).count();
    let mut expected: Vec<Option<u32>> = vec![None; plan.cpus.len()];
    for (vcpu, on) in plan.vcpus.iter().zip(on) {
        let wants = model.tenants[vcpu.tenant as usize].exclusive_cores;
        for &cpu in on.iter().filter(|&&cpu| wants && siblings(cpu) > 1) {
            for (place, other) in
                plan.cpus.iter().enumerate().filter(|(_, other)| core(other.cpu) == core(cpu))
            {
                let stranger =
                    other.slots.iter().find(|slot| plan.vcpus[slot.vcpu as usize].tenant != vcpu.tenant);
                if stranger.is_some() || model.host.housekeeping.contains(other.cpu) {
                    return Err(format!(
                        "tenant {} on CPU {cpu}: not alone on CPU {}",
                        vcpu.tenant, other.cpu
                    ));
                }
                expected[place] = Some(vcpu.tenant);
            }
        }
    }
    match plan.cpus.iter().zip(expected).find(|(cpu, expected)| cpu.exclusive_to != *expected) {
        Some((cpu, expected)) => Err(format!("CPU {}: {:?}, not {expected:?}", cpu.cpu, cpu.exclusive_to)),
        None => Ok(()),
    }
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
fn check_vcpu(vcpu: &PlannedVcpu, length: u64, owned: &[Owned]) -> Result<(), String> {
    let PlannedVcpu { budget_ns: budget, period_ns: period, .. } = *vcpu;
    if u128::from(budget) * u128::from(Share::ONE.ppb()) < u128::from(vcpu.share.ppb()) * u128::from(period) {
        return Err(format!("{budget} in {period} is less than its share"));
    }
    if !length.is_multiple_of(period) {
        return Err(format!("the period {period} does not divide the table"));
    }
    if owned.is_empty() {
        return Err("no slot".into());
    }
    if owned.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err("on two CPUs at once".into());
    }
    let net: Vec<(u64, u64)> =
        owned.iter().map(|o| (o.net_start, o.end)).filter(|(start, end)| start < end).collect();
    let costs = owned.iter().any(|owned| owned.net_start > owned.start);
    let blackout = blackout(&net, length);
    if blackout != vcpu.blackout_ns || blackout > vcpu.latency_ns {
        return Err(format!(
            "{blackout} ns without service; planned {}, promised {}",
            vcpu.blackout_ns, vcpu.latency_ns
        ));
    }
    for start in (0..length).step_by(period as usize) {
        let served = served(&net, start, start + period);
        if served < budget || served > budget && !costs {
            return Err(format!("{served} of {budget} ns in the window from {start}"));
        }
    }
    Ok(())
}

/// Around the end of the table.
fn blackout(spans: &[(u64, u64)], length: u64) -> u64 {
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return length };
    let wrap = length - last.1 + first.0;
    spans.windows(2).map(|pair| pair[1].0 - pair[0].1).fold(wrap, u64::max)
}

fn served(spans: &[(u64, u64)], from: u64, until: u64) -> u64 {
    let first = spans.partition_point(|span| span.1 <= from);
    let within = spans[first..].iter().take_while(|span| span.0 < until);
    within.map(|span| span.1.min(until) - span.0.max(from)).sum()
}
