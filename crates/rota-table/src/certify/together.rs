//! Tenants whose vCPUs have all of their slots at the same times.

use std::collections::BTreeMap;

use rota_model::TenantId;

use super::Promise;
use super::cpus::{CpuSlot, SlotsByVcpu};
use super::format::Table;
use super::records::name;
use super::service::lcm;
use super::violation::Violation;
use crate::layout::{self, Vcpu};

/// Stretches of slots that are looked at in all, as often as they repeat.
const STEPS_MAX: u64 = 1 << 26;

/// Checks that where one vCPU that is promised so has a slot, all of its tenant's that are promised so have one. The
/// slots must have been found sound, and none of a vCPU's may overlap. They are no walls on a CPU that serves in
/// windows, so no such vCPU may be on one.
pub(super) fn check(table: &Table, slots: &SlotsByVcpu, promise_of: &[&Promise]) -> Result<(), Violation> {
    let mut first_of: BTreeMap<TenantId, (Vcpu, Times)> = BTreeMap::new();
    let mut steps_left = STEPS_MAX;
    let all = table.vcpus.iter().zip(promise_of).enumerate();
    for (place, (record, _)) in all.filter(|(_, (_, promise))| promise.together) {
        check_walls(table, &record, slots.of(place))?;
        let times = Times::of(table, slots.of(place));
        let Some((first, expected)) = first_of.get(&record.tenant) else {
            first_of.insert(record.tenant, (record, times));
            continue;
        };
        let ring_ns = lcm(expected.length_ns, times.length_ns);
        let steps = expected.steps(ring_ns) + times.steps(ring_ns);
        if steps > steps_left {
            return Err(Violation::Unwieldy { vcpu: name(&record), pieces: steps, windows: 0 });
        }
        steps_left -= steps;
        if let Some(at_ns) = expected.first_difference(&times, ring_ns) {
            return Err(Violation::NotTogether { vcpu: name(&record), with: name(first), at_ns });
        }
    }
    Ok(())
}

fn check_walls(table: &Table, record: &Vcpu, slots: &[CpuSlot]) -> Result<(), Violation> {
    let in_windows =
        |cpu: u32| table.cpus.get(cpu as usize).is_some_and(|record| record.flags & layout::CPU_WINDOWS != 0);
    match slots.iter().find(|slot| in_windows(slot.cpu)) {
        Some(slot) => Err(Violation::TogetherInWindows { vcpu: name(record), cpu: slot.cpu }),
        None => Ok(()),
    }
}

/// When a vCPU has slots, on whichever CPU.
struct Times {
    /// They repeat after this.
    length_ns: u64,
    /// Ascending and disjoint.
    spans: Vec<(u64, u64)>,
}

impl Times {
    fn of(table: &Table, slots: &[CpuSlot]) -> Times {
        let cpu_length = |cpu: u32| table.cpus.get(cpu as usize).map_or(1, |cpu| u64::from(cpu.length_ns));
        let by_cpu = || slots.chunk_by(|a, b| a.cpu == b.cpu).map(|on| (cpu_length(on[0].cpu), on));
        let length_ns = by_cpu().fold(1, |ring, (length, _)| lcm(ring, length));
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for (length, on) in by_cpu() {
            for round in (0..length_ns).step_by(length as usize) {
                spans.extend(
                    on.iter().map(|slot| (round + u64::from(slot.start_ns), round + u64::from(slot.end_ns))),
                );
            }
        }
        spans.sort_unstable();
        Times { length_ns, spans }
    }

    fn steps(&self, ring_ns: u64) -> u64 {
        ring_ns / self.length_ns * self.spans.len() as u64
    }

    /// The stretches without a break within the ring, a multiple of the length.
    fn stretches(&self, ring_ns: u64) -> impl Iterator<Item = (u64, u64)> {
        let rounds = (0..ring_ns).step_by(self.length_ns as usize);
        let all =
            rounds.flat_map(|round| self.spans.iter().map(move |span| (round + span.0, round + span.1)));
        let mut all = all.peekable();
        std::iter::from_fn(move || {
            let (start_ns, mut end_ns) = all.next()?;
            while let Some(next) = all.next_if(|next| next.0 == end_ns) {
                end_ns = next.1;
            }
            Some((start_ns, end_ns))
        })
    }

    /// The first time within the ring at which one has a slot and the other has none.
    fn first_difference(&self, other: &Times, ring_ns: u64) -> Option<u64> {
        let (mut ours, mut theirs) = (self.stretches(ring_ns), other.stretches(ring_ns));
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return None,
                (Some(one), Some(other)) if one == other => {}
                (Some(one), Some(other)) if one.0 == other.0 => return Some(one.1.min(other.1)),
                (Some(one), Some(other)) => return Some(one.0.min(other.0)),
                (Some((start_ns, _)), None) | (None, Some((start_ns, _))) => return Some(start_ns),
            }
        }
    }
}
