//! Those who have no slots, looked at from time to time: whether anybody waits for whom a CPU is free, and whether
//! anybody waits for longer than the floor allows.

use std::collections::BTreeMap;

use rota_sched::SYSTEM;
use rota_sim::{CpuId, Machine, TaskId};

use super::finding::{Fault, Finding};
use super::service::Service;
use super::swarm::S;
use super::threads::Thread;
use super::timetable::Timetable;

/// What has waited for a second has a turn of what is not reserved, one after the other.
const FLOOR_WAIT_NS: u64 = S;

/// A shared tenant's thread comes before those of more weight when it has waited for so long.
const OVERDUE_NS: u64 = 5 * S;

/// On a CPU without unreserved time one waits for 5 s, and for a grant that up to ten share for as long again: who is
/// bound there, or waited in its line before a table reserved it all.
const FULL_NS: u64 = 10 * S;

/// Everybody is looked at so often.
const LOOK_NS: u64 = 5_000_000;

/// A CPU that is told of a thread may serve the floor first, for so long.
const GRANT_NS: u64 = 5_000_000;

/// Who looks.
pub struct Lines {
    late_ns: u64,
    looked_ns: u64,
    patience: BTreeMap<TaskId, Patience>,
}

/// Of one that waits.
#[derive(Default)]
struct Patience {
    since_ns: u64,
    /// So long of that no CPU was taken by what no scheduler can stop.
    ns: u64,
    /// So many have waited at once meanwhile.
    waiting: u64,
}

impl Lines {
    pub fn new(late_ns: u64) -> Lines {
        Lines { late_ns, looked_ns: 0, patience: BTreeMap::new() }
    }

    /// From here on what the scheduler decides takes effect within so many ns.
    pub fn bound(&mut self, late_ns: u64) {
        self.late_ns = late_ns;
    }

    /// Looks at everybody.
    pub fn look(&mut self, machine: &Machine, service: &Service) -> Result<(), Finding> {
        let now_ns = machine.now_ns();
        if now_ns < self.looked_ns + LOOK_NS {
            return Ok(());
        }
        let looked_ns = std::mem::replace(&mut self.looked_ns, now_ns);
        let Some(table) = service.table(now_ns) else { return Ok(()) };
        if now_ns < service.changed_ns().max(table.from_ns) + self.late_ns || service.is_daemon_held(now_ns) {
            return Ok(());
        }
        let waiting = service.threads().all().filter_map(|(task, thread)| {
            let homes = table.homes(thread.owner.tenant);
            let is_here = match thread.only {
                Some(cpu) => !homes.contains(&cpu.0),
                None => thread.free && homes.is_empty(),
            };
            Some((task, thread, now_ns - thread.waits_since_ns.filter(|_| is_here)?))
        });
        let waiting: Vec<(TaskId, &Thread, u64)> = waiting.collect();
        let is_any_full = table.is_any_full();
        let passed_ns = if service.is_any_taken(now_ns) { 0 } else { now_ns - looked_ns };
        for &(task, thread, ns) in &waiting {
            let tenant = thread.owner.tenant;
            let patience = self.patience.entry(task).or_default();
            if patience.since_ns != now_ns - ns {
                *patience = Patience { since_ns: now_ns - ns, ns: 0, waiting: 0 };
            }
            patience.ns += passed_ns.min(ns);
            patience.waiting = patience.waiting.max(waiting.len() as u64);
            let bound_ns = FLOOR_WAIT_NS * (2 + patience.waiting);
            let overdue_ns = match (thread.free, service.threads().is_shared(tenant)) {
                (true, true) => OVERDUE_NS,
                (true, false) if tenant == SYSTEM || !is_any_full => 0,
                _ => FULL_NS,
            };
            if patience.ns > bound_ns + overdue_ns {
                return Err(Finding { at_ns: now_ns, fault: Fault::Starved { task, tenant, ns } });
            }
            if thread.free
                && let Some((cpu, idle_ns)) = self.idle_for(now_ns, service, table, thread)
            {
                let fault = Fault::Idle { cpu, tenant, ns: idle_ns.min(ns) };
                return Err(Finding { at_ns: now_ns, fault });
            }
        }
        self.idle_beside(now_ns, service, table).map_or(Ok(()), Err)
    }

    /// A CPU that idles beside a thread which may run there only.
    fn idle_beside(&self, now_ns: u64, service: &Service, table: &Timetable) -> Option<Finding> {
        let told_ns = now_ns.saturating_sub(self.late_ns);
        let bound = service.threads().all().filter_map(|(_, thread)| Some((thread, thread.only?)));
        let mut bound = bound.filter(|(thread, cpu)| is_served_there(table, thread, *cpu));
        bound.find_map(|(thread, cpu)| {
            let since_ns = thread.waits_since_ns?.max(service.changed_ns()).max(table.from_ns);
            let idle_ns = service.idle_since_ns(cpu).filter(|_| !service.is_taken_since(cpu, told_ns))?;
            let ns = now_ns - since_ns.max(idle_ns).min(now_ns);
            let fault = Fault::Idle { cpu, tenant: thread.owner.tenant, ns };
            (ns > self.late_ns).then_some(Finding { at_ns: now_ns, fault })
        })
    }

    /// A CPU that has idled for too long and could have run the thread; and for how long. The system's CPUs serve one
    /// line, and the others any shared tenant's thread. Whoever else has no slots waits for one CPU whatever the others
    /// do, which is no promise broken; but somebody's is lost if all of them idle.
    fn idle_for(
        &self,
        now_ns: u64,
        service: &Service,
        table: &Timetable,
        thread: &Thread,
    ) -> Option<(CpuId, u64)> {
        let tenant = thread.owner.tenant;
        let is_system = tenant == SYSTEM;
        let allowed_ns = self.late_ns + if is_system { GRANT_NS } else { 0 };
        // With a change it may have come from another line.
        let since_ns = thread.waits_since_ns?.max(service.changed_ns()).max(table.from_ns);
        let told_ns = now_ns.saturating_sub(allowed_ns);
        if since_ns >= told_ns {
            return None;
        }
        let housekeeping = service.housekeeping();
        let serves = |cpu: usize| housekeeping[cpu] == is_system && !table.is_exclusive(cpu);
        let cpus = || (0..housekeeping.len()).filter(|cpu| serves(*cpu)).map(|cpu| CpuId(cpu as u32));
        // The one that was told may be held up by what no scheduler sees.
        if cpus().any(|cpu| service.is_taken_since(cpu, told_ns)) {
            return None;
        }
        let idles = |cpu| service.idle_since_ns(cpu).filter(|idle_ns| *idle_ns < told_ns);
        let may_wait = !is_system && !service.threads().is_shared(tenant);
        if may_wait && !cpus().all(|cpu| idles(cpu).is_some()) {
            return None;
        }
        cpus().find_map(|cpu| Some((cpu, now_ns - idles(cpu)?)))
    }
}

/// Whether a CPU that idles is to serve a thread that may run there only. If its tenant has slots there and nothing
/// beyond, it waits for these; and what a vCPU with slots on several CPUs has beyond is on one of them.
fn is_served_there(table: &Timetable, thread: &Thread, cpu: CpuId) -> bool {
    let vcpus = table.vcpus_of(thread.owner.tenant).iter().map(|vcpu| (vcpu, &table.vcpus[*vcpu as usize]));
    let mut here =
        vcpus.filter(|(_, vcpu)| thread.owner.may_use(vcpu.tenant, vcpu.index) && vcpu.cpus.contains(&cpu.0));
    here.all(|(vcpu, _)| table.locals(cpu.index()).contains(vcpu))
}
