//! What each vCPU's slots give it net of costs, around the ring after which they repeat.

use super::Promise;
use super::changes::Taken;
use super::cpus::{CpuSlot, SlotsByVcpu};
use super::format::Table;
use super::records::{name, share_of_period};
use super::violation::{VcpuName, Violation};
use crate::layout::Vcpu;

/// One vCPU's slots are written out at most so many times in all: no more than a table has room for.
const PIECES_MAX: u64 = 1 << 22;
/// Slots and windows that are looked at in all. A host of 10,240 vCPUs with the shortest period, 100 us, has a third.
const STEPS_MAX: u64 = 1 << 26;

/// Checks affinity, overlap, windows, gaps and caps of every vCPU; migration takes `migration_ns`. Slots and records
/// must have been found sound. Returns what the slots of each vCPU come to in the window with the least of them.
pub(super) fn check(
    table: &Table,
    slots: &SlotsByVcpu,
    promise_of: &[&Promise],
    migration_ns: u64,
) -> Result<Vec<u64>, Violation> {
    let mut ring = Ring::default();
    let mut steps_left = STEPS_MAX;
    let mut least_ns = Vec::with_capacity(promise_of.len());
    for (place, (record, promise)) in table.vcpus.iter().zip(promise_of).enumerate() {
        let slots = slots.of(place);
        check_affinity(&record, promise, slots)?;
        ring.write_out(table, &record, slots, &mut steps_left)?;
        ring.check_overlap(name(&record))?;
        ring.serve(migration_ns);
        let windows = ring.check_windows(&record)?;
        ring.check_gaps(&record)?;
        ring.check_edges(&record)?;
        ring.check_cap(&record, table.length_ns, windows.most_lost_ns)?;
        least_ns.push(windows.least_ns);
    }
    Ok(least_ns)
}

/// The slots come CPU by CPU.
fn check_affinity(record: &Vcpu, promise: &Promise, slots: &[CpuSlot]) -> Result<(), Violation> {
    for on_cpu in slots.chunk_by(|a, b| a.cpu == b.cpu) {
        let CpuSlot { cpu, start_ns, .. } = on_cpu[0];
        if !promise.cpus.contains(cpu) {
            let (vcpu, allowed) = (name(record), promise.cpus.clone());
            return Err(Violation::Affinity { vcpu, cpu, start_ns, allowed });
        }
    }
    Ok(())
}

/// A slot on the ring, and what the vCPU has had on the ring before it.
struct Piece {
    start_ns: u32,
    /// From when on it is served: no later than the end, and all that comes before is lost.
    from_ns: u32,
    end_ns: u32,
    cpu: u32,
    taken: Taken,
    before: Served,
}

/// Time in slots, in ns.
#[derive(Clone, Copy, Default)]
struct Served {
    net_ns: u64,
    /// What costs take.
    lost_ns: u64,
}

/// Of all of a vCPU's windows.
struct Extremes {
    /// The least that slots come to, costs included.
    least_ns: u64,
    /// The most that costs take.
    most_lost_ns: u64,
}

/// One vCPU's slots over the least common multiple of its CPUs' lengths, ascending. Times fit in u32 as the ring is no
/// longer than the table.
#[derive(Default)]
struct Ring {
    length_ns: u64,
    served: Served,
    pieces: Vec<Piece>,
}

impl Ring {
    fn write_out(
        &mut self,
        table: &Table,
        record: &Vcpu,
        slots: &[CpuSlot],
        steps_left: &mut u64,
    ) -> Result<(), Violation> {
        let cpu_length = |cpu: u32| table.cpus.get(cpu as usize).map_or(1, |cpu| u64::from(cpu.length_ns));
        let by_cpu =
            || slots.chunk_by(|a, b| a.cpu == b.cpu).map(|on_cpu| (cpu_length(on_cpu[0].cpu), on_cpu));
        self.length_ns = by_cpu().fold(1, |ring, (length, _)| lcm(ring, length));
        let pieces =
            by_cpu().map(|(length, on_cpu)| self.length_ns / length * on_cpu.len() as u64).sum::<u64>();
        let windows = self.windows(record);
        if pieces > PIECES_MAX || pieces + windows > *steps_left {
            return Err(Violation::Unwieldy { vcpu: name(record), pieces, windows });
        }
        *steps_left -= pieces + windows;
        self.pieces.clear();
        for (length, on_cpu) in by_cpu() {
            for round_ns in (0..self.length_ns).step_by(length as usize).map(|start| start as u32) {
                self.pieces.extend(on_cpu.iter().map(|slot| Piece {
                    start_ns: round_ns + slot.start_ns,
                    from_ns: round_ns + slot.start_ns,
                    end_ns: round_ns + slot.end_ns,
                    cpu: slot.cpu,
                    taken: Taken { from_ns: u64::from(round_ns) + slot.taken.from_ns, ..slot.taken },
                    before: Served::default(),
                }));
            }
        }
        self.pieces.sort_by_key(|piece| piece.start_ns);
        Ok(())
    }

    fn check_overlap(&self, vcpu: VcpuName) -> Result<(), Violation> {
        let overlap = self.pieces.windows(2).find(|pair| pair[0].end_ns > pair[1].start_ns);
        let Some([first, second]) = overlap else { return Ok(()) };
        Err(Violation::TwoCpus {
            vcpu,
            first: first.cpu,
            second: second.cpu,
            from_ns: u64::from(second.start_ns),
            until_ns: u64::from(first.end_ns.min(second.end_ns)),
        })
    }

    /// Finds from when on each piece is served, and sums up. Nothing may overlap.
    fn serve(&mut self, migration_ns: u64) {
        let mut cpu = self.pieces.last().map(|last| last.cpu);
        let mut from_ns = 0;
        self.served = Served::default();
        for piece in &mut self.pieces {
            let moved = cpu.replace(piece.cpu) != Some(piece.cpu);
            from_ns = match (piece.taken.changes, moved) {
                (true, true) => piece.taken.from_ns.saturating_add(migration_ns),
                (true, false) => piece.taken.from_ns,
                // The slot before touches this one; what it was too short for goes on here.
                (false, _) => piece.taken.from_ns.max(from_ns),
            };
            piece.from_ns = from_ns.min(piece.end_ns.into()) as u32;
            piece.before = self.served;
            self.served.net_ns += u64::from(piece.end_ns - piece.from_ns);
            self.served.lost_ns += u64::from(piece.from_ns - piece.start_ns);
        }
    }

    /// How many windows there are before they and the slots repeat together.
    fn windows(&self, record: &Vcpu) -> u64 {
        self.length_ns / gcd(self.length_ns, u64::from(record.period_ns))
    }

    fn check_windows(&self, record: &Vcpu) -> Result<Extremes, Violation> {
        let period_ns = u64::from(record.period_ns);
        let mut served = Served::default();
        let mut extremes = Extremes { least_ns: u64::MAX, most_lost_ns: 0 };
        for window in 0..self.windows(record) {
            let (from_ns, until_ns) = (window * period_ns, (window + 1) * period_ns);
            let before = std::mem::replace(&mut served, self.served_until(until_ns));
            let (got_ns, lost_ns) = (served.net_ns - before.net_ns, served.lost_ns - before.lost_ns);
            if got_ns < u64::from(record.budget_ns) {
                let (vcpu, budget_ns) = (name(record), record.budget_ns);
                return Err(Violation::Window { vcpu, from_ns, until_ns, got_ns, lost_ns, budget_ns });
            }
            extremes.least_ns = extremes.least_ns.min(got_ns + lost_ns);
            extremes.most_lost_ns = extremes.most_lost_ns.max(lost_ns);
        }
        Ok(extremes)
    }

    /// In [0, time).
    fn served_until(&self, time_ns: u64) -> Served {
        let within_ns = (time_ns % self.length_ns) as u32;
        let begun = self.pieces.partition_point(|piece| piece.start_ns < within_ns);
        let in_round = self.pieces[..begun].last().map_or(Served::default(), |piece| Served {
            net_ns: piece.before.net_ns
                + u64::from(within_ns.min(piece.end_ns).saturating_sub(piece.from_ns)),
            lost_ns: piece.before.lost_ns + u64::from(within_ns.min(piece.from_ns) - piece.start_ns),
        });
        let rounds = time_ns / self.length_ns;
        Served {
            net_ns: rounds * self.served.net_ns + in_round.net_ns,
            lost_ns: rounds * self.served.lost_ns + in_round.lost_ns,
        }
    }

    /// When the vCPU is served, in order.
    fn spans(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let spans = self.pieces.iter().map(|piece| (u64::from(piece.from_ns), u64::from(piece.end_ns)));
        spans.filter(|(from_ns, end_ns)| from_ns < end_ns)
    }

    /// The gap after each span, up to the next one, which for the last is the first of the next round.
    fn check_gaps(&self, record: &Vcpu) -> Result<(), Violation> {
        let starts = self.spans().map(|(start_ns, _)| start_ns);
        let next_round = self.spans().next().map(|(start_ns, _)| start_ns + self.length_ns);
        for ((_, from_ns), until_ns) in self.spans().zip(starts.skip(1).chain(next_round)) {
            if until_ns - from_ns > record.latency_ns {
                let (vcpu, latency_ns) = (name(record), record.latency_ns);
                return Err(Violation::Blackout { vcpu, from_ns, until_ns, latency_ns });
            }
        }
        Ok(())
    }

    /// Where another table may end or begin: half of the latency for each of the two.
    fn check_edges(&self, record: &Vcpu) -> Result<(), Violation> {
        let before_ns = self.spans().next().map_or(0, |(start_ns, _)| start_ns);
        let after_ns = self.spans().next_back().map_or(0, |(_, end_ns)| self.length_ns - end_ns);
        if before_ns.max(after_ns) > record.latency_ns / 2 {
            let (vcpu, latency_ns) = (name(record), record.latency_ns);
            return Err(Violation::Edges { vcpu, before_ns, after_ns, latency_ns });
        }
        Ok(())
    }

    fn check_cap(&self, record: &Vcpu, table_ns: u32, most_lost_ns: u64) -> Result<(), Violation> {
        let table_ns = u64::from(table_ns);
        let got_ns = self.served.net_ns * (table_ns / self.length_ns);
        let most_ns = (share_of_period(record) + most_lost_ns) * (table_ns / u64::from(record.period_ns));
        if record.flags & crate::layout::VCPU_CAPPED != 0 && got_ns > most_ns {
            return Err(Violation::Cap { vcpu: name(record), got_ns, most_ns });
        }
        Ok(())
    }
}

pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub(super) fn lcm(a: u64, b: u64) -> u64 {
    a / gcd(a, b) * b
}
