//! A timetable as a table, which the look-up in the kernel takes: each of the guest's CPUs has one vCPU's slots.

use anyhow::{Context, Result, ensure};
use rota_model::{Reservation, Share};
use rota_sched::{CpuView, cpu_view};
use rota_table::{CpuSource, SlotSource, TableSource, TableView, Timetable, VcpuSource, encode};

/// The most bytes of a table.
pub const BYTES_MAX: u32 = 4 << 20;
/// No timetable's text is longer, in bytes.
pub const TEXT_MAX: u64 = 4 << 20;

/// A table's bytes, and each CPU's part of it.
#[derive(Debug)]
pub struct Table {
    /// What lies in a buffer.
    pub bytes: Vec<u8>,
    /// By CPU number.
    pub views: Vec<CpuView>,
}

impl Table {
    /// The table of a guest with so many CPU numbers.
    ///
    /// # Errors
    ///
    /// The timetable is another machine's, or has too many slots.
    pub fn new(timetable: &Timetable, nr_cpus: u32) -> Result<Table> {
        let last = timetable.vcpus.last().map_or(0, |vcpu| vcpu.index);
        ensure!(
            last < nr_cpus,
            "it lists vcpu {last}, and this machine's CPUs are 0 to {}; name the timetable of this machine",
            nr_cpus - 1
        );
        // The bytes say of each vCPU what it is promised, which nobody reads here.
        let reservation = Reservation { share: Share::ONE, latency_ns: 1, capped: false };
        let vcpu =
            |index| VcpuSource { tenant: 0, index, reservation, budget_ns: 1, period_ns: 1, walls: true };
        let mut source = TableSource { length_ns: 1, switch_ns: 0, cpus: Vec::new(), vcpus: Vec::new() };
        for (place, own) in (0..).zip(&timetable.vcpus) {
            let ns = |time_ns: u64| u32::try_from(time_ns).context("a time is beyond 2^32 ns");
            let slot = |&(start_ns, end_ns): &(u64, u64)| {
                Ok(SlotSource { start_ns: ns(start_ns)?, end_ns: ns(end_ns)?, vcpu: place })
            };
            let slots = own.slots.iter().map(slot).collect::<Result<_>>()?;
            let length_ns = ns(own.length_ns)?;
            source.cpus.push(CpuSource { cpu: own.index, length_ns, slots, exclusive: false });
            source.vcpus.push(vcpu(own.index));
        }
        let bytes = encode(&source).context("its slots do not make a table")?;
        ensure!(
            bytes.len() <= BYTES_MAX as usize,
            "it takes {} bytes, more than {BYTES_MAX}; have the host plan longer slots",
            bytes.len()
        );
        let view = TableView::new(&bytes)?;
        let header = view.header();
        let mut views: Vec<CpuView> = view.cpus().map(|cpu| cpu_view(&header, &cpu.record)).collect();
        views.resize(nr_cpus as usize, bytemuck::Zeroable::zeroed());
        Ok(Table { bytes, views })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timetable(lines: &str) -> Timetable {
        format!("rota-timetable 1\ngeneration 1\nfrom 0\nclock own\n{lines}end\n").parse().unwrap()
    }

    #[test]
    fn each_cpu_has_its_own_slots() {
        let timetable = timetable("vcpu 0 of 1000: 0-400 500-900\nvcpu 2 of 700: 100-700\n");
        let table = Table::new(&timetable, 4).unwrap();
        assert_eq!(table.views.len(), 4);
        let view = TableView::new(&table.bytes).unwrap();
        let owner = |cpu, now_ns| view.lookup(cpu, now_ns).and_then(|owner| owner.vcpu);
        assert_eq!((owner(0, 1_399), owner(0, 1_450), owner(0, 1_500)), (Some(0), None, Some(0)));
        assert_eq!((owner(2, 750), owner(2, 850), owner(1, 5)), (None, Some(1), None));
    }

    #[test]
    fn another_machines_timetable_is_refused() {
        let error = Table::new(&timetable("vcpu 4 of 700: 100-700\n"), 4).unwrap_err().to_string();
        assert_eq!(
            error,
            "it lists vcpu 4, and this machine's CPUs are 0 to 3; name the timetable of this machine"
        );
    }
}
