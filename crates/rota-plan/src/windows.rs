//! CPUs whose vCPUs can be served in an order that is decided as they wake, window by window.

use crate::net::least_of_windows;
use crate::period::{gcd, lcm};
use crate::{CpuPlan, Plan};

/// Whether the CPU has time for all that its vCPUs may claim in their windows. They must have slots there alone.
///
/// A claim is what the slots of a window come to at least, or more: the budget with all changes of task to the vCPU.
pub(crate) fn claims_fit(plan: &Plan, cpu: &CpuPlan, vcpus: &[u32], switch_ns: u64) -> bool {
    let claims = vcpus.iter().map(|&vcpu| {
        let planned = &plan.vcpus[vcpu as usize];
        let windows = plan.table_length_ns / planned.period_ns;
        let due_ns = planned.budget_ns + switch_ns * (1 + cuts(plan, vcpus, planned.period_ns));
        due_ns.max(least_in_slots(plan, cpu, vcpu)) * windows
    });
    claims.sum::<u64>() <= plan.table_length_ns
}

/// The least that the vCPU's slots on the CPU come to in any window of its period, costs included.
fn least_in_slots(plan: &Plan, cpu: &CpuPlan, vcpu: u32) -> u64 {
    let period_ns = plan.vcpus[vcpu as usize].period_ns;
    let ring_ns = lcm(cpu.length_ns, period_ns);
    let rounds = (0..ring_ns).step_by(cpu.length_ns as usize);
    let own = || cpu.slots.iter().filter(|slot| slot.vcpu == vcpu);
    let slots = rounds.flat_map(|round| own().map(move |slot| (round + slot.start_ns, round + slot.end_ns)));
    least_of_windows(slots, period_ns, ring_ns)
}

/// How often a window of this period can be cut: by each shorter window of the others that begins within it.
fn cuts(plan: &Plan, vcpus: &[u32], period_ns: u64) -> u64 {
    let periods = vcpus.iter().map(|&vcpu| plan.vcpus[vcpu as usize].period_ns);
    let shorter = periods.filter(|&other_ns| other_ns < period_ns);
    // Most of them begin within it if the first does so as early as it can.
    shorter.map(|other_ns| (period_ns - gcd(period_ns, other_ns)).div_ceil(other_ns)).sum()
}
