//! Which CPUs can serve their vCPUs in windows.

use crate::layout::{self, Cpu, Slot, Vcpu};

/// What each of a CPU's vCPUs, by their numbers, may claim of a window, in ns; none if the CPU has to go by its slots.
/// It does so where one vCPU has it wholly, where they are too many, or where one's promise is not kept in windows. It
/// also does where there is too little time for the changes of task that windows can make.
pub(super) fn of(
    cpu: &Cpu,
    slots: &[Slot],
    vcpus: &[(u32, Vcpu)],
    length_ns: u32,
    switch_ns: u32,
) -> Option<Vec<u32>> {
    let used: u32 = slots.iter().map(|slot| slot.end_ns - slot.start_ns).sum();
    let is_whole = vcpus.len() == 1 && used == cpu.length_ns;
    if vcpus.is_empty() || vcpus.len() > layout::WINDOW_VCPUS_MAX as usize || is_whole {
        return None;
    }
    let is_kept = |vcpu: &Vcpu| vcpu.nr_cpus == 1 && longest_wait(vcpu) <= vcpu.latency_ns;
    if !vcpus.iter().all(|(_, vcpu)| is_kept(vcpu)) {
        return None;
    }
    let mut left_ns = u64::from(length_ns);
    let window = |(number, vcpu): &(u32, Vcpu)| {
        let own = slots.iter().filter(|slot| slot.vcpu == *number);
        let in_slots_ns = least_in_window(own, cpu.length_ns, vcpu.period_ns);
        let changes_ns = u64::from(switch_ns).saturating_mul(1 + cuts(vcpu, vcpus));
        let window_ns = changes_ns.saturating_add(vcpu.budget_ns.into()).max(in_slots_ns.into());
        let claimed_ns = window_ns.checked_mul(length_ns.checked_div(vcpu.period_ns)?.into())?;
        left_ns = left_ns.checked_sub(claimed_ns)?;
        u32::try_from(window_ns).ok()
    };
    vcpus.iter().map(window).collect()
}

/// How many windows of the others can begin within one of this vCPU and end no later. Periods may be anything.
fn cuts(vcpu: &Vcpu, vcpus: &[(u32, Vcpu)]) -> u64 {
    let period_ns = u64::from(vcpu.period_ns);
    let others = vcpus.iter().map(|(_, other)| u64::from(other.period_ns));
    let shorter = others.filter(|other_ns| (1..period_ns).contains(other_ns));
    shorter.map(|other_ns| (period_ns - gcd(period_ns, other_ns)).div_ceil(other_ns)).sum()
}

/// From a budget at the start of one window to a budget at the end of the next.
fn longest_wait(vcpu: &Vcpu) -> u64 {
    2 * u64::from(vcpu.period_ns.saturating_sub(vcpu.budget_ns))
}

/// The least time in ns that one vCPU's slots on a CPU come to in any window of its period.
fn least_in_window<'a>(slots: impl Iterator<Item = &'a Slot> + Clone, length_ns: u32, period_ns: u32) -> u32 {
    let (length_ns, period_ns) = (u64::from(length_ns), u64::from(period_ns).max(1));
    let rounds = period_ns / gcd(length_ns, period_ns);
    let mut windows = vec![0; (rounds * length_ns / period_ns) as usize];
    for round_ns in (0..rounds).map(|round| round * length_ns) {
        for slot in slots.clone() {
            let (mut from_ns, end_ns) =
                (round_ns + u64::from(slot.start_ns), round_ns + u64::from(slot.end_ns));
            while from_ns < end_ns {
                let window = from_ns / period_ns;
                let until_ns = end_ns.min((window + 1) * period_ns);
                windows[window as usize] += (until_ns - from_ns) as u32;
                from_ns = until_ns;
            }
        }
    }
    windows.into_iter().min().unwrap_or(0)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use rota_model::{Reservation, Share};

    use crate::layout::{CPU_WINDOWS, WINDOW_VCPUS_MAX};
    use crate::{CpuSource, SlotSource, TableSource, TableView, VcpuSource, encode};

    const SWITCH_NS: u32 = 5;

    /// CPUs of 420 ns, and of each vCPU its budget, period and latency.
    fn source(cpus: &[&[(u32, u32, u32)]], vcpus: &[(u32, u32, u64)]) -> TableSource {
        let slot = |&(start_ns, end_ns, vcpu): &(u32, u32, u32)| SlotSource { start_ns, end_ns, vcpu };
        let cpus = (0..).zip(cpus).map(|(cpu, slots)| CpuSource {
            cpu,
            length_ns: 420,
            slots: slots.iter().map(slot).collect(),
            exclusive: false,
        });
        let vcpus = (0..).zip(vcpus).map(|(index, &(budget_ns, period_ns, latency_ns))| VcpuSource {
            tenant: 1,
            index,
            reservation: Reservation { share: Share::ONE, latency_ns, capped: false },
            budget_ns,
            period_ns,
            walls: false,
        });
        TableSource { length_ns: 840, switch_ns: SWITCH_NS, cpus: cpus.collect(), vcpus: vcpus.collect() }
    }

    /// Which CPUs serve in windows, and what each vCPU has in one.
    fn opened(source: &TableSource) -> (Vec<bool>, Vec<u32>) {
        let bytes = encode(source).unwrap();
        let view = TableView::new(&bytes).unwrap();
        let is_open = |flags: u32| flags & CPU_WINDOWS != 0;
        for cpu in view.cpus() {
            let expected = if is_open(cpu.record.flags) { SWITCH_NS } else { 0 };
            assert_eq!(cpu.record.switch_ns, expected);
        }
        (
            view.cpus().map(|cpu| is_open(cpu.record.flags)).collect(),
            view.vcpus().iter().map(|vcpu| vcpu.window_ns).collect(),
        )
    }

    #[test]
    fn each_vcpu_claims_the_least_of_its_windows() {
        // The second slot of vCPU 0 is half in each of its two windows.
        let slots = [(0, 100, 0), (190, 230, 0), (300, 380, 0), (380, 420, 1)];
        assert_eq!(
            opened(&source(&[&slots], &[(50, 210, 840), (30, 420, 840)])),
            (vec![true], vec![100, 40])
        );
        // Windows longer than the CPU's length, and an idle CPU.
        let two = source(&[&[(0, 50, 0)], &[]], &[(95, 840, 1490)]);
        assert_eq!(opened(&two), (vec![true, false], vec![100]));
        // Windows that drift over the slots: three of them, with 220, 220 and 160 ns, take the CPU's length twice.
        let drift = source(&[&[(0, 150, 0), (210, 360, 0)]], &[(100, 280, 840)]);
        assert_eq!(opened(&drift), (vec![true], vec![160]));
    }

    /// One of CPU 0 goes to CPU 1 as well: both go by their slots, whoever else is there.
    #[test]
    fn no_vcpu_may_migrate() {
        let cpus: [&[_]; 3] = [&[(0, 100, 0), (100, 200, 1)], &[(210, 310, 0)], &[(0, 100, 2)]];
        let vcpus = [(150, 420, 840), (50, 420, 840), (50, 420, 840)];
        assert_eq!(opened(&source(&cpus, &vcpus)), (vec![false, false, true], vec![0, 0, 100]));
    }

    /// The slots of one are walls for all on its CPU.
    #[test]
    fn no_slots_may_come_together() {
        let slots = [(0, 100, 0), (100, 200, 1)];
        let mut source = source(&[&slots, &[(0, 100, 2)]], &[(80, 420, 840); 3]);
        source.vcpus[1].walls = true;
        assert_eq!(opened(&source), (vec![false, true], vec![0, 0, 100]));
    }

    #[test]
    fn vcpus_are_few() {
        for count in [WINDOW_VCPUS_MAX, WINDOW_VCPUS_MAX + 1] {
            let slots: Vec<_> = (0..count).map(|vcpu| (20 * vcpu, 20 * vcpu + 20, vcpu)).collect();
            let is_open = count == WINDOW_VCPUS_MAX;
            let window_ns = if is_open { 20 } else { 0 };
            let opened = opened(&source(&[&slots], &vec![(15, 420, 840); count as usize]));
            assert_eq!(opened, (vec![is_open], vec![window_ns; count as usize]));
        }
    }

    #[test]
    fn no_vcpu_may_have_it_all() {
        let budget = [(400, 420, 840)];
        assert_eq!(opened(&source(&[&[(0, 100, 0), (100, 420, 0)]], &budget)), (vec![false], vec![0]));
        assert_eq!(opened(&source(&[&[(0, 100, 0), (101, 420, 0)]], &budget)), (vec![true], vec![419]));
    }

    #[test]
    fn a_claim_has_all_changes_beside_the_budget() {
        let slots = [(0, 100, 0), (100, 200, 1)];
        let with = |budget_ns| opened(&source(&[&slots], &[(50, 420, 840), (budget_ns, 420, 840)]));
        assert_eq!(with(95), (vec![true], vec![100, 100]));
        assert_eq!(with(96), (vec![true], vec![100, 101]));
        // Windows of 420 ns are cut once by such of 210 ns, and such of 840 ns three times and once by others.
        let vcpus = [(50, 210, 840), (190, 420, 840), (90, 840, 1500)];
        let slots = [(0, 40, 0), (40, 120, 1), (120, 160, 2)];
        assert_eq!(opened(&source(&[&slots], &vcpus)), (vec![true], vec![55, 200, 115]));
        // Twice, if they need not begin together.
        let vcpus = [(50, 210, 840), (50, 280, 840), (30, 120, 840)];
        assert_eq!(opened(&source(&[&slots], &vcpus)), (vec![true], vec![65, 70, 35]));
    }

    #[test]
    fn claims_fit_into_the_table() {
        let slots = [(0, 100, 0), (100, 200, 1)];
        let with = |budget_ns| opened(&source(&[&slots], &[(50, 420, 840), (budget_ns, 420, 840)]));
        assert_eq!(with(315), (vec![true], vec![100, 320]));
        assert_eq!(with(316), (vec![false], vec![0, 0]));
        // Periods that no table has are for the certifier.
        let long = [(50, 420, 840), (50, u32::MAX, u64::MAX)];
        assert_eq!(opened(&source(&[&slots], &long)).0, [true]);
        let none = [(50, 420, 840), (0, 0, 840)];
        assert_eq!(opened(&source(&[&slots], &none)).0, [false]);
    }

    /// Slots may lie so that nobody waits for long, where windows promise less.
    #[test]
    fn the_latency_has_room_for_a_wait_from_window_to_window() {
        let slots = [(0, 50, 0), (210, 260, 0), (300, 400, 1)];
        let with = |latency_ns| opened(&source(&[&slots], &[(80, 420, latency_ns), (90, 420, 840)]));
        assert_eq!(with(680), (vec![true], vec![100, 100]));
        assert_eq!(with(679), (vec![false], vec![0, 0]));
    }
}
