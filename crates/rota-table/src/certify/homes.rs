//! Where each vCPU's record says that its slots are.

use super::cpus::SlotsByVcpu;
use super::format::Table;
use super::records::name;
use super::violation::Violation;
use crate::layout;

/// Checks that the vCPUs' runs of homes make up their section in vCPU order, and that each is the CPUs with slots of
/// its vCPU, in the order of the first slot on each and then of their numbers. The slots must have been found sound.
pub(super) fn check(table: &Table, slots: &SlotsByVcpu) -> Result<(), Violation> {
    let mut next = 0;
    let mut expected: Vec<(u32, u32)> = Vec::new();
    for (place, record) in table.vcpus.iter().enumerate() {
        let vcpu = name(&record);
        expected.clear();
        let by_cpu = slots.of(place).chunk_by(|a, b| a.cpu == b.cpu);
        expected.extend(by_cpu.map(|on_cpu| (on_cpu[0].start_ns, on_cpu[0].cpu)));
        expected.sort_unstable();
        let &(_, home_cpu) = expected.first().ok_or(Violation::NoSlot { vcpu })?;
        if record.home_cpu != home_cpu {
            return Err(Violation::HomeCpu { vcpu, found: record.home_cpu, expected: home_cpu });
        }
        let count = expected.len() as u32;
        if record.nr_cpus != count {
            return Err(Violation::CpuCount { vcpu, found: record.nr_cpus, expected: count });
        }
        if count > layout::VCPU_CPUS_MAX {
            return Err(Violation::Scattered { vcpu, cpus: count });
        }
        if record.first_home != next {
            return Err(Violation::HomeRun { vcpu, found: record.first_home, expected: next });
        }
        let total = table.homes.len() as u32;
        let homes = table.homes.run(next, count).ok_or(Violation::HomesBeyond { vcpu, count, total })?;
        let differs = homes.iter().zip(&expected).find(|(found, (_, cpu))| found != cpu);
        if let Some((found, &(_, expected))) = differs {
            return Err(Violation::Homes { vcpu, found, expected });
        }
        next += count;
    }
    let (claimed, total) = (next, table.homes.len() as u32);
    if claimed == total {
        Ok(())
    } else {
        Err(Violation::RunTotal { whose: "vCPUs", what: "homes", claimed, total })
    }
}
