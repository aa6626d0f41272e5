//! What each vCPU's slots give it, around the ring after which they repeat.

use super::Promise;
use super::cpus::{CpuSlot, SlotsByVcpu};
use super::format::Table;
use super::records::{name, share_of_period};
use super::violation::{VcpuName, Violation};
use crate::layout::Vcpu;

/// One vCPU's slots are written out at most so many times in all: no more than a table has room for.
const PIECES_MAX: u64 = 1 << 22;
/// Slots and windows that are looked at in all. A host of 10,240 vCPUs with the shortest period, 100 us, has a third.
const STEPS_MAX: u64 = 1 << 26;

/// Checks affinity, home, overlap, windows, gaps and caps of every vCPU. Slots and records must have been found sound.
pub(super) fn check(table: &Table, slots: &SlotsByVcpu, promise_of: &[&Promise]) -> Result<(), Violation> {
    let mut ring = Ring::default();
    let mut steps_left = STEPS_MAX;
    for (place, (record, promise)) in table.vcpus.iter().zip(promise_of).enumerate() {
        let slots = slots.of(place);
        check_cpus(&record, promise, slots)?;
        ring.write_out(table, &record, slots, &mut steps_left)?;
        ring.check_overlap(name(&record))?;
        ring.check_windows(&record)?;
        ring.check_gaps(&record)?;
        ring.check_cap(&record, table.length_ns)?;
    }
    Ok(())
}

/// The slots come CPU by CPU.
fn check_cpus(record: &Vcpu, promise: &Promise, slots: &[CpuSlot]) -> Result<(), Violation> {
    let vcpu = name(record);
    let mut nr_cpus = 0;
    for on_cpu in slots.chunk_by(|a, b| a.cpu == b.cpu) {
        let CpuSlot { cpu, start_ns, .. } = on_cpu[0];
        if !promise.cpus.contains(cpu) {
            return Err(Violation::Affinity { vcpu, cpu, start_ns, allowed: promise.cpus.clone() });
        }
        nr_cpus += 1;
    }
    let first = slots.iter().min_by_key(|slot| (slot.start_ns, slot.cpu));
    let home_cpu = first.ok_or(Violation::NoSlot { vcpu })?.cpu;
    if record.home_cpu != home_cpu {
        return Err(Violation::HomeCpu { vcpu, found: record.home_cpu, expected: home_cpu });
    }
    if record.nr_cpus != nr_cpus {
        return Err(Violation::CpuCount { vcpu, found: record.nr_cpus, expected: nr_cpus });
    }
    Ok(())
}

/// A slot on the ring, and how much service the vCPU has had on the ring before it.
struct Piece {
    start_ns: u32,
    end_ns: u32,
    cpu: u32,
    before_ns: u32,
}

/// One vCPU's slots over the least common multiple of its CPUs' lengths, ascending. Times fit in u32 as the ring is no
/// longer than the table.
#[derive(Default)]
struct Ring {
    length_ns: u64,
    served_ns: u64,
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
                    end_ns: round_ns + slot.end_ns,
                    cpu: slot.cpu,
                    before_ns: 0,
                }));
            }
        }
        self.pieces.sort_by_key(|piece| piece.start_ns);
        Ok(())
    }

    /// Also sums up the service, which is at most the ring's length once nothing overlaps.
    fn check_overlap(&mut self, vcpu: VcpuName) -> Result<(), Violation> {
        let mut served_ns = 0;
        let mut last: Option<&Piece> = None;
        for piece in &mut self.pieces {
            if let Some(last) = last.filter(|last| last.end_ns > piece.start_ns) {
                return Err(Violation::TwoCpus {
                    vcpu,
                    first: last.cpu,
                    second: piece.cpu,
                    from_ns: u64::from(piece.start_ns),
                    until_ns: u64::from(last.end_ns.min(piece.end_ns)),
                });
            }
            piece.before_ns = served_ns;
            served_ns += piece.end_ns - piece.start_ns;
            last = Some(piece);
        }
        self.served_ns = u64::from(served_ns);
        Ok(())
    }

    /// How many windows there are before they and the slots repeat together.
    fn windows(&self, record: &Vcpu) -> u64 {
        self.length_ns / gcd(self.length_ns, u64::from(record.period_ns))
    }

    fn check_windows(&self, record: &Vcpu) -> Result<(), Violation> {
        let period_ns = u64::from(record.period_ns);
        let mut served_ns = 0;
        for window in 0..self.windows(record) {
            let (from_ns, until_ns) = (window * period_ns, (window + 1) * period_ns);
            let before_ns = std::mem::replace(&mut served_ns, self.served_until(until_ns));
            let got_ns = served_ns - before_ns;
            if got_ns < u64::from(record.budget_ns) {
                let (vcpu, budget_ns) = (name(record), record.budget_ns);
                return Err(Violation::Window { vcpu, from_ns, until_ns, got_ns, budget_ns });
            }
        }
        Ok(())
    }

    /// Service in [0, time), in ns.
    fn served_until(&self, time_ns: u64) -> u64 {
        let within_ns = (time_ns % self.length_ns) as u32;
        let begun = self.pieces.partition_point(|piece| piece.start_ns < within_ns);
        let in_round = self.pieces[..begun]
            .last()
            .map_or(0, |piece| piece.before_ns + within_ns.min(piece.end_ns) - piece.start_ns);
        time_ns / self.length_ns * self.served_ns + u64::from(in_round)
    }

    /// The gap after each piece, up to the next one, which for the last is the first of the next round.
    fn check_gaps(&self, record: &Vcpu) -> Result<(), Violation> {
        let starts = self.pieces.iter().map(|piece| u64::from(piece.start_ns));
        let next_round = self.pieces.first().map(|piece| u64::from(piece.start_ns) + self.length_ns);
        for (piece, until_ns) in self.pieces.iter().zip(starts.skip(1).chain(next_round)) {
            let from_ns = u64::from(piece.end_ns);
            if until_ns - from_ns > record.latency_ns {
                let (vcpu, latency_ns) = (name(record), record.latency_ns);
                return Err(Violation::Blackout { vcpu, from_ns, until_ns, latency_ns });
            }
        }
        Ok(())
    }

    fn check_cap(&self, record: &Vcpu, table_ns: u32) -> Result<(), Violation> {
        let table_ns = u64::from(table_ns);
        let got_ns = self.served_ns * (table_ns / self.length_ns);
        let most_ns = share_of_period(record) * (table_ns / u64::from(record.period_ns));
        if record.flags & crate::layout::VCPU_CAPPED != 0 && got_ns > most_ns {
            return Err(Violation::Cap { vcpu: name(record), got_ns, most_ns });
        }
        Ok(())
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn lcm(a: u64, b: u64) -> u64 {
    a / gcd(a, b) * b
}
