//! Tables as a list of slots, read without the scheduler's look-up: by search, not by slices.

use rota_model::{Reservation, Share, TenantId};
use rota_table::Certified;
use rota_table::layout::{CPU_EXCLUSIVE, CPU_WINDOWS, VCPU_CAPPED};

/// A slot of a CPU: from, to, whose.
type Slot = (u32, u32, u32);

/// A vCPU of a table.
#[derive(Clone, Debug)]
pub struct Vcpu {
    pub tenant: TenantId,
    pub index: u32,
    pub reservation: Reservation,
    /// The CPUs on which it has slots.
    pub cpus: Vec<u32>,
    pub period_ns: u64,
    /// What it has in slots in each window of its period, and what a change of tasks takes, where it is served in
    /// windows.
    pub window_ns: u64,
    pub switch_ns: u64,
}

/// A CPU of a table.
#[derive(Clone, Debug)]
struct Cpu {
    length_ns: u32,
    slots: Vec<Slot>,
    /// The vCPUs with slots here and nowhere else that may have more than their slots.
    locals: Vec<u32>,
    /// The vCPUs with slots here, if the CPU serves them in windows.
    residents: Vec<u32>,
    /// One tenant has it to itself.
    exclusive: bool,
}

impl Cpu {
    /// Whether it is somebody's slot all the time.
    fn is_full(&self) -> bool {
        self.slots.iter().map(|&(start, end, _)| end - start).sum::<u32>() == self.length_ns
    }
}

/// A table, and when it begins to hold.
#[derive(Clone, Debug)]
pub struct Timetable {
    pub from_ns: u64,
    pub vcpus: Vec<Vcpu>,
    /// By tenant: its vCPUs' numbers here, and the CPUs on which it has slots.
    tenants: Vec<(Vec<u32>, Vec<u32>)>,
    cpus: Vec<Cpu>,
    is_any_full: bool,
}

impl Timetable {
    pub fn new(from_ns: u64, table: &Certified) -> Timetable {
        let view = table.view();
        let last = view.vcpus().iter().map(|vcpu| vcpu.tenant as usize + 1).max();
        let mut tenants: Vec<(Vec<u32>, Vec<u32>)> = vec![Default::default(); last.unwrap_or(0)];
        let mut vcpus: Vec<Vcpu> = Vec::new();
        for (number, vcpu) in (0..).zip(view.vcpus().iter()) {
            tenants[vcpu.tenant as usize].0.push(number);
            vcpus.push(Vcpu {
                tenant: vcpu.tenant,
                index: vcpu.index,
                reservation: Reservation {
                    share: Share::from_ppb(vcpu.share_ppb).expect("the certifier has seen it"),
                    latency_ns: vcpu.latency_ns,
                    capped: vcpu.flags & VCPU_CAPPED != 0,
                },
                cpus: Vec::new(),
                period_ns: u64::from(vcpu.period_ns),
                window_ns: u64::from(vcpu.window_ns),
                switch_ns: 0,
            });
        }
        let mut cpus: Vec<Cpu> = Vec::new();
        for (number, cpu) in (0..).zip(view.cpus()) {
            let slots: Vec<Slot> =
                cpu.slots.iter().map(|slot| (slot.start_ns, slot.end_ns, slot.vcpu)).collect();
            for &(_, _, vcpu) in &slots {
                let homes = &mut vcpus[vcpu as usize].cpus;
                if !homes.contains(&number) {
                    homes.push(number);
                }
            }
            let exclusive = cpu.record.flags & CPU_EXCLUSIVE != 0;
            let in_windows = cpu.record.flags & CPU_WINDOWS != 0;
            let residents: Vec<u32> = cpu.locals.iter().filter(|_| in_windows).collect();
            for &vcpu in &residents {
                vcpus[vcpu as usize].switch_ns = u64::from(cpu.record.switch_ns);
            }
            let (length_ns, locals) = (cpu.record.length_ns, Vec::new());
            cpus.push(Cpu { length_ns, slots, locals, residents, exclusive });
        }
        for (number, vcpu) in (0..).zip(&vcpus) {
            if let (false, &[only]) = (vcpu.reservation.capped, &vcpu.cpus[..]) {
                cpus[only as usize].locals.push(number);
            }
        }
        for vcpu in &vcpus {
            let (_, homes) = &mut tenants[vcpu.tenant as usize];
            homes.extend(&vcpu.cpus);
            homes.sort_unstable();
            homes.dedup();
        }
        let is_any_full = cpus.iter().any(|cpu| !cpu.exclusive && cpu.is_full());
        Timetable { from_ns, vcpus, tenants, cpus, is_any_full }
    }

    /// Who owns a CPU at a time at which the table holds, and until when that is so at least.
    pub fn owner(&self, cpu: usize, now_ns: u64) -> (Option<u32>, u64) {
        let Some(Cpu { length_ns, slots, .. }) = self.cpus.get(cpu) else { return (None, u64::MAX) };
        let offset = (now_ns % u64::from(*length_ns)) as u32;
        let round_ns = now_ns - u64::from(offset);
        let next = slots.partition_point(|&(_, end, _)| end <= offset);
        let (owner, end) = match slots.get(next) {
            Some(&(start, end, vcpu)) if start <= offset => (Some(vcpu), end),
            Some(&(start, ..)) => (None, start),
            None => (None, *length_ns),
        };
        (owner, round_ns + u64::from(end))
    }

    /// The vCPUs that may have this CPU's spare time, and none of another.
    pub fn locals(&self, cpu: usize) -> &[u32] {
        self.cpus.get(cpu).map_or(&[], |cpu| &cpu.locals)
    }

    /// The vCPUs of a CPU that serves them in windows; none if it goes by its slots.
    pub fn residents(&self, cpu: usize) -> &[u32] {
        self.cpus.get(cpu).map_or(&[], |cpu| &cpu.residents)
    }

    /// Whether a CPU that serves its vCPUs in windows has no more than one of a tenant.
    pub fn is_alone(&self, cpu: usize, tenant: TenantId) -> bool {
        self.residents(cpu).iter().filter(|vcpu| self.vcpus[**vcpu as usize].tenant == tenant).count() <= 1
    }

    /// Whether one tenant has a CPU to itself.
    pub fn is_exclusive(&self, cpu: usize) -> bool {
        self.cpus.get(cpu).is_some_and(|cpu| cpu.exclusive)
    }

    /// Whether some CPU has no time that is not reserved, and is not one tenant's own.
    pub fn is_any_full(&self) -> bool {
        self.is_any_full
    }

    /// What each vCPU of a tenant is promised, by its number; nothing if the tenant has none here.
    pub fn promises(&self, tenant: TenantId) -> Vec<(u32, Reservation)> {
        let vcpus = self.vcpus_of(tenant).iter().map(|vcpu| &self.vcpus[*vcpu as usize]);
        vcpus.map(|vcpu| (vcpu.index, vcpu.reservation)).collect()
    }

    /// A tenant's vCPUs, by their numbers here.
    pub fn vcpus_of(&self, tenant: TenantId) -> &[u32] {
        self.tenants.get(tenant as usize).map_or(&[], |(vcpus, _)| vcpus)
    }

    /// The CPUs on which a tenant has slots.
    pub fn homes(&self, tenant: TenantId) -> &[u32] {
        self.tenants.get(tenant as usize).map_or(&[], |(_, homes)| homes)
    }
}
