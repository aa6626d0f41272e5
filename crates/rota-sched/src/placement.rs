//! Where a table goes in the kernel: each CPU's part of it, decoded once, and each tenant's first vCPU.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use rota_model::{CpuSet, TenantId};
use rota_table::{Certified, layout};

use crate::shared::CpuView;

/// A certified table, decoded for the kernel's maps. Made before anything is written, so that writing cannot fail.
pub struct Placement {
    /// Of each of the host's CPUs, from CPU 0 on.
    pub views: Vec<CpuView>,
    /// Each tenant's first vCPU record, and how many follow for it.
    pub first_vcpu: BTreeMap<TenantId, (u32, u32)>,
    /// Tenants with a vCPU that has slots on several CPUs.
    pub migrating: BTreeSet<TenantId>,
    /// The table's length in ns.
    pub length_ns: u64,
    /// CPUs of cores that one tenant has to itself.
    pub exclusive: CpuSet,
}

impl Placement {
    /// Decodes `table` for a host of `nr_cpus` CPU numbers.
    ///
    /// # Errors
    ///
    /// The table has more CPUs than the host, or a tenant's vCPUs are not in order.
    pub fn new(table: &Certified, nr_cpus: u32) -> Result<Placement> {
        let view = table.view();
        let header = view.header();
        ensure!(
            header.nr_cpus <= nr_cpus,
            "the table is for {} CPUs, the host has {nr_cpus}; plan for this host",
            header.nr_cpus
        );
        let mut views: Vec<CpuView> = view.cpus().map(|cpu| cpu_view(&header, &cpu.record)).collect();
        views.resize(nr_cpus as usize, cpu_view(&header, &bytemuck::Zeroable::zeroed()));
        let mut first_vcpu: BTreeMap<TenantId, (u32, u32)> = BTreeMap::new();
        for (place, vcpu) in (0..).zip(view.vcpus().iter()) {
            let (first, count) = first_vcpu.entry(vcpu.tenant).or_insert((place, 0));
            ensure!(
                vcpu.index == *count && place == *first + *count,
                "the vCPUs of tenant {} are not in order in the table",
                vcpu.tenant
            );
            *count += 1;
        }
        let marked = |(_, cpu): &(u32, &CpuView)| cpu.flags & layout::CPU_EXCLUSIVE != 0;
        let exclusive = (0..).zip(&views).filter(marked).map(|(cpu, _)| cpu).collect();
        let migrating = view.vcpus().iter().filter(|vcpu| vcpu.nr_cpus > 1).map(|vcpu| vcpu.tenant).collect();
        Ok(Placement { views, first_vcpu, migrating, length_ns: u64::from(header.length_ns), exclusive })
    }
}

/// One CPU's part of a table, as the look-up in the kernel takes it.
pub fn cpu_view(header: &layout::Header, cpu: &layout::Cpu) -> CpuView {
    let place = |section: u32, first: u32, size: usize| section + first * size as u32;
    CpuView {
        slices: place(header.slices_offset, cpu.first_slice, size_of::<layout::Slice>()),
        slots: place(header.slots_offset, cpu.first_slot, size_of::<layout::Slot>()),
        locals: place(header.locals_offset, cpu.first_local, size_of::<u32>()),
        first_slot: cpu.first_slot,
        nr_slots: cpu.nr_slots,
        nr_slices: cpu.nr_slices,
        nr_locals: cpu.nr_locals,
        length_ns: cpu.length_ns,
        slice_ns: cpu.slice_ns,
        vcpus: header.vcpus_offset,
        nr_vcpus: header.nr_vcpus,
        flags: cpu.flags,
        homes: header.homes_offset,
        switch_ns: cpu.switch_ns,
        reserved: [0; 2],
    }
}

/// The shortest time of whose multiples both tables' rounds begin, in ns.
pub fn boundary_ns(a_ns: u64, b_ns: u64) -> u64 {
    let (mut a, mut b) = (a_ns, b_ns);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a_ns / a * b_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_common_multiples() {
        assert_eq!(boundary_ns(12, 18), 36);
        assert_eq!(boundary_ns(5, 5), 5);
        assert_eq!(boundary_ns(102_702_600, 12_837_825), 102_702_600);
    }
}
