//! Cores that one tenant has to itself.

use std::ptr;
use std::sync::Arc;

use rota_model::{CpuSet, TenantId};

use super::Promise;
use super::cpus::{CpuSlot, SlotsByVcpu};
use super::format::Table;
use super::records::name;
use super::violation::{VcpuName, Violation};
use crate::layout;

/// Checks that no tenant has slots on a core that another has to itself, and that these cores' CPUs, and no others, are
/// marked. The slots must have been found sound.
pub(super) fn check(table: &Table, slots: &SlotsByVcpu, promise_of: &[&Promise]) -> Result<(), Violation> {
    let kept = check_neighbours(table, slots, promise_of)?;
    for ((cpu, record), expected) in (0..).zip(table.cpus.iter()).zip(kept) {
        if record.flags & !(layout::CPU_EXCLUSIVE | layout::CPU_WINDOWS) != 0 {
            return Err(Violation::CpuFlags { cpu, flags: record.flags });
        }
        let found = record.flags & layout::CPU_EXCLUSIVE != 0;
        if found != expected {
            return Err(Violation::Exclusive { cpu, found, expected });
        }
    }
    Ok(())
}

/// Returns for each CPU whether some tenant has its core to itself.
fn check_neighbours(
    table: &Table,
    slots: &SlotsByVcpu,
    promise_of: &[&Promise],
) -> Result<Vec<bool>, Violation> {
    let residents = residents(table, slots);
    let mut kept = vec![false; table.cpus.len()];
    // Whose core each CPU was last found to be on. Promises of one host have one list of cores, but nothing says so.
    let mut last: Vec<Option<(TenantId, &CpuSet)>> = vec![None; table.cpus.len()];
    let mut cores = Cores::default();
    for (place, promise) in promise_of.iter().enumerate().filter(|(_, promise)| !promise.unshared.is_empty())
    {
        cores.read(&promise.unshared, table.cpus.len());
        let owner = promise.tenant;
        for slot in slots.of(place) {
            let Some(core) = cores.of_cpu[slot.cpu as usize] else { continue };
            if last[slot.cpu as usize].is_some_and(|(tenant, known)| tenant == owner && ptr::eq(core, known))
            {
                continue;
            }
            for cpu in core.iter() {
                let Some(here) = residents.get(cpu as usize) else {
                    return Err(Violation::Core { cpu, core: core.clone() });
                };
                if let Some(&(vcpu, start_ns)) = here.iter().find(|(vcpu, _)| vcpu.tenant != owner) {
                    return Err(Violation::Neighbour { vcpu, cpu, start_ns, owner, core: core.clone() });
                }
                kept[cpu as usize] = true;
                last[cpu as usize] = Some((owner, core));
            }
        }
    }
    Ok(kept)
}

/// The vCPUs with slots on each CPU, and the start of the first slot of each.
fn residents(table: &Table, slots: &SlotsByVcpu) -> Vec<Vec<(VcpuName, u32)>> {
    let mut residents = vec![Vec::new(); table.cpus.len()];
    for (place, record) in table.vcpus.iter().enumerate() {
        for on_cpu in slots.of(place).chunk_by(|a, b| a.cpu == b.cpu) {
            let CpuSlot { cpu, start_ns, .. } = on_cpu[0];
            residents[cpu as usize].push((name(&record), start_ns));
        }
    }
    residents
}

/// A list of cores, by CPU.
#[derive(Default)]
struct Cores<'p> {
    list: Option<&'p Arc<[CpuSet]>>,
    of_cpu: Vec<Option<&'p CpuSet>>,
}

impl<'p> Cores<'p> {
    fn read(&mut self, list: &'p Arc<[CpuSet]>, cpus: usize) {
        if self.list.is_some_and(|known| Arc::ptr_eq(known, list)) {
            return;
        }
        self.list = Some(list);
        self.of_cpu = vec![None; cpus];
        for core in list.iter() {
            for cpu in core.iter().filter(|&cpu| (cpu as usize) < cpus) {
                self.of_cpu[cpu as usize] = Some(core);
            }
        }
    }
}
