//! CPUs that serve their vCPUs in windows, in an order that is decided as they wake.
//!
//! There is time for all that these vCPUs may claim, window by window. All claims over the table's length, changes of
//! task included, come to no more than that length. So the lines of all vCPUs are together no steeper than the CPU. All
//! windows are aligned to the table's start. The earliest deadline first serves all of such a load (Liu and Layland
//! 1973), and slots are not needed to show it.
//!
//! Each claim has room for the budget and all changes to its vCPU, if all vCPUs always want to run. The CPU changes to
//! a vCPU once in its window, and again after each cut. Only a window that begins within its own, and ends first, cuts
//! it. Only vCPUs with shorter periods have such windows. Of windows that end together the one that is served goes on.
//! A vCPU that sleeps, wakes and interrupts makes more changes. The scheduler charges these to that vCPU.

use super::changes::is_whole;
use super::format::Table;
use super::records::name;
use super::service::gcd;
use super::violation::Violation;
use crate::layout::{self, Cpu, Vcpu};

/// Checks these CPUs, and that they and their vCPUs alone are told what a change takes and what to claim of a window.
/// Slots, locals and records must have been found sound. `least_ns` is what the slots of each vCPU come to in a window.
pub(super) fn check(table: &Table, switch_ns: u64, least_ns: &[u64]) -> Result<(), Violation> {
    let mut in_windows = vec![false; table.vcpus.len()];
    for (cpu, record) in (0..).zip(table.cpus.iter()) {
        let has_windows = record.flags & layout::CPU_WINDOWS != 0;
        let expected = if has_windows { switch_ns } else { 0 };
        if u64::from(record.switch_ns) != expected {
            return Err(Violation::SwitchTime { cpu, found: record.switch_ns, expected });
        }
        if has_windows {
            let vcpus = check_cpu(table, cpu, &record)?;
            check_claims(table, cpu, &vcpus, switch_ns, least_ns)?;
            vcpus.iter().for_each(|&(place, _)| in_windows[place] = true);
        }
    }
    let mut others = table.vcpus.iter().zip(in_windows).filter(|&(_, in_windows)| !in_windows);
    let Some((told, _)) = others.find(|(vcpu, _)| vcpu.window_ns != 0) else { return Ok(()) };
    Err(Violation::WindowTime { vcpu: name(&told), found_ns: told.window_ns, least_ns: 0 })
}

/// Returns its vCPUs with their places in the table. They are few, none has all of the CPU, and each keeps its promise
/// wherever it is served in its windows.
fn check_cpu(table: &Table, cpu: u32, record: &Cpu) -> Result<Vec<(usize, Vcpu)>, Violation> {
    let count = record.nr_locals;
    if count == 0 || count > layout::WINDOW_VCPUS_MAX {
        return Err(Violation::WindowVcpus { cpu, count });
    }
    let slots = table.slots.run(record.first_slot, record.nr_slots);
    if slots.is_some_and(|slots| is_whole(record, slots)) {
        return Err(Violation::WindowWhole { cpu });
    }
    let locals = table.locals.run(record.first_local, count);
    let places = locals.iter().flat_map(|locals| locals.iter()).map(|local| local as usize);
    let vcpus: Vec<_> = places.filter_map(|place| Some((place, table.vcpus.get(place)?))).collect();
    for (_, vcpu) in &vcpus {
        if vcpu.nr_cpus != 1 {
            return Err(Violation::WindowMigrates { cpu, vcpu: name(vcpu) });
        }
        let (wait_ns, latency_ns) = (wait(vcpu), vcpu.latency_ns);
        if wait_ns > latency_ns {
            return Err(Violation::WindowWait { vcpu: name(vcpu), wait_ns, latency_ns });
        }
    }
    Ok(vcpus)
}

/// The longest wait in windows: from a budget at one window's start to a budget at the next one's end. Half of it can
/// be at a table's start or end.
fn wait(vcpu: &Vcpu) -> u64 {
    2 * u64::from(vcpu.period_ns.saturating_sub(vcpu.budget_ns))
}

/// Each claim is enough and none too much, and there is time for all.
fn check_claims(
    table: &Table,
    cpu: u32,
    vcpus: &[(usize, Vcpu)],
    switch_ns: u64,
    least_ns: &[u64],
) -> Result<(), Violation> {
    let mut claimed_ns = 0;
    for (place, vcpu) in vcpus {
        let found_ns = vcpu.window_ns;
        let due_ns = due(vcpu, vcpus, switch_ns);
        if u64::from(found_ns) < due_ns {
            return Err(Violation::WindowTime { vcpu: name(vcpu), found_ns, least_ns: due_ns });
        }
        let most_ns = due_ns.max(least_ns[*place]);
        if vcpu.flags & layout::VCPU_CAPPED != 0 && u64::from(found_ns) > most_ns {
            return Err(Violation::WindowBeyond { vcpu: name(vcpu), found_ns, most_ns });
        }
        claimed_ns += u64::from(found_ns) * u64::from(table.length_ns / vcpu.period_ns);
    }
    let length_ns = u64::from(table.length_ns);
    if claimed_ns > length_ns {
        return Err(Violation::WindowClaims { cpu, claimed_ns, length_ns });
    }
    Ok(())
}

/// What one of these vCPUs is due of each window: its budget and all changes to it.
fn due(vcpu: &Vcpu, vcpus: &[(usize, Vcpu)], switch_ns: u64) -> u64 {
    let cuts: u64 = vcpus.iter().map(|(_, other)| cuts(vcpu.period_ns.into(), other.period_ns.into())).sum();
    u64::from(vcpu.budget_ns).saturating_add(switch_ns.saturating_mul(1 + cuts))
}

/// How many windows of another vCPU begin within one of this vCPU, at most. Those that are no shorter do not count.
///
/// The first of them can begin any multiple of the greatest common divisor after the longer window. Most of them begin
/// within it where that is the divisor itself.
fn cuts(period_ns: u64, other_ns: u64) -> u64 {
    if other_ns < period_ns { (period_ns - gcd(period_ns, other_ns)).div_ceil(other_ns) } else { 0 }
}
