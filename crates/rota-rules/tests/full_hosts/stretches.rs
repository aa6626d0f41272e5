//! What happens in a table: who runs where, how often that changes, and plain DP-Fair's table beside it.

use std::collections::BTreeSet;

use rota_model::Share;
use rota_plan::{Method, Plan, PlannedVcpu};

use crate::oracle::PERIODS;

const ONE: u64 = Share::ONE.ppb() as u64;
const SECOND: f64 = 1e9;

/// One vCPU on one CPU in [start, end) of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stretch {
    pub vcpu: usize,
    pub start: u64,
    pub end: u64,
    pub cpu: u32,
}

/// What happens in a second of a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Stretches of time in which one vCPU has one CPU.
    pub stretches: f64,
    /// Of these, those beyond one in each of the longest periods that its vCPU could have: the others are preemptions'
    /// doing.
    pub preemptions: f64,
    /// Stretches whose vCPU had another CPU before.
    pub migrations: f64,
}

impl Pace {
    /// Of stretches of `vcpus` in a table that repeats after `length_ns`.
    pub fn of(mut stretches: Vec<Stretch>, length_ns: u64, vcpus: &[PlannedVcpu]) -> Pace {
        stretches.sort_unstable();
        let mut pace = Pace::default();
        for of in stretches.chunk_by(|one, next| one.vcpu == next.vcpu) {
            let befores = of.iter().cycle().skip(of.len() - 1);
            let (mut starts, mut moves) = (0_u64, 0_u64);
            for (before, stretch) in befores.zip(of) {
                let is_same_cpu = before.cpu == stretch.cpu;
                moves += u64::from(!is_same_cpu);
                starts += u64::from(!is_same_cpu || before.end % length_ns != stretch.start);
            }
            let windows = period(&vcpus[of[0].vcpu]).map_or(0, |period| length_ns / period);
            pace.stretches += starts as f64;
            pace.preemptions += starts.saturating_sub(windows) as f64;
            pace.migrations += moves as f64;
        }
        let rounds = SECOND / length_ns as f64;
        pace.stretches *= rounds;
        pace.preemptions *= rounds;
        pace.migrations *= rounds;
        pace
    }

    pub fn add(&mut self, other: Pace) {
        self.stretches += other.stretches;
        self.preemptions += other.preemptions;
        self.migrations += other.migrations;
    }
}

/// A plan's stretches in its whole table, those of vCPUs with a CPU to themselves left out.
pub fn planned(plan: &Plan) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    for cpu in &plan.cpus {
        for round in (0..plan.table_length_ns).step_by(cpu.length_ns as usize) {
            let of = cpu.slots.iter().map(|slot| Stretch {
                vcpu: slot.vcpu as usize,
                start: round + slot.start_ns,
                end: round + slot.end_ns,
                cpu: cpu.cpu,
            });
            stretches.extend(of);
        }
    }
    stretches.retain(|stretch| plan.vcpus[stretch.vcpu].method != Method::Dedicated);
    stretches
}

/// The longest period that a vCPU of this reservation may have.
fn period(vcpu: &PlannedVcpu) -> Option<u64> {
    let wait = |period: u64| 2 * (period - vcpu.share.of(period));
    PERIODS.iter().copied().find(|&period| wait(period) <= vcpu.latency_ns)
}

/// Plain DP-Fair (Levin, Funk, Sadowski, Pye and Brandt 2010), its DP-Wrap, for the same vCPUs in the longest table:
/// time is cut wherever a period of any of them ends, and in each of these slices each vCPU has its share of it, CPU
/// after CPU by McNaughton's rule. Costs and affinities are not heeded, and times are rounded to whole ns.
///
/// `is_mirrored`: every second slice is laid out backwards, as its authors propose to save migrations.
pub fn dp_fair(plan: &Plan, is_mirrored: bool) -> (Vec<Stretch>, u64) {
    let length_ns = PERIODS[0];
    let divisible: Vec<usize> =
        (0..plan.vcpus.len()).filter(|&at| plan.vcpus[at].method != Method::Dedicated).collect();
    let mut deadlines: BTreeSet<u64> = BTreeSet::from([length_ns]);
    for period in divisible.iter().filter_map(|&at| period(&plan.vcpus[at])).collect::<BTreeSet<u64>>() {
        deadlines.extend((period..=length_ns).step_by(period as usize));
    }
    // Where each vCPU's parts of every slice begin and end, in parts per billion of it.
    let mut parts: Vec<(usize, u32, u64, u64)> = Vec::new();
    let mut filled = 0;
    for &at in &divisible {
        let end = filled + u64::from(plan.vcpus[at].share.ppb());
        while filled < end {
            let (cpu, from) = (filled / ONE, filled % ONE);
            let to = ONE.min(from + end - filled);
            parts.push((at, cpu as u32, from, to));
            filled += to - from;
        }
    }
    let mut stretches = Vec::with_capacity(parts.len() * deadlines.len());
    let mut begin = 0;
    for (number, end) in deadlines.into_iter().enumerate() {
        let at = |part: u64| part * (end - begin) / ONE;
        for &(vcpu, cpu, from, to) in &parts {
            let (start, end) = match is_mirrored && number % 2 == 1 {
                true => (end - at(to), end - at(from)),
                false => (begin + at(from), begin + at(to)),
            };
            if start < end {
                stretches.push(Stretch { vcpu, start, end, cpu });
            }
        }
        begin = end;
    }
    (stretches, length_ns)
}
