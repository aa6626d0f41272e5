//! What a CPU's slots leave: no vCPU that would have of it waits for long while others have it. What parts they have is
//! held against their reservations in `tests/second.rs`.
//!
//! From what happens on the machine: who runs outside of its own slots while another one waits. Neither how the
//! scheduler counts nor whose turn it says it is matters.

use rota_model::TenantId;
use rota_sim::CpuId;

use super::finding::Fault;
use super::threads::{Owner, Thread, Threads, place_of};
use super::timetable::{Timetable, Vcpu};

/// The scheduler has nobody be owed more of what slots leave than what it reserves of so much time.
const CREDIT_NS: u64 = 100_000_000;
/// Nobody's turn is longer; each of the others may be in the middle of one, and then begin another.
const TURN_NS: u64 = 4_000_000;

const HUNDREDTH_PPB: u64 = 10_000_000;

/// A vCPU that waits.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    /// Whose: in another table another one may have the place.
    vcpu: (TenantId, u32),
    /// For which others have run.
    ns: u64,
    /// When it had nothing to do last.
    rested_ns: u64,
    /// What its tenant had had when the wait began, see `Spare::had_ns`.
    had_ns: u64,
}

/// A CPU.
#[derive(Clone, Debug, Default)]
struct Line {
    /// By the places in the table's list of those with slots here only.
    waits: Vec<Option<Wait>>,
    /// Since something was counted last, slots have begun and ended that may have taken as much of anyone's time.
    blurred_ns: u64,
}

/// The observer's part for it.
#[derive(Debug)]
pub struct Spare {
    cpus: Vec<Line>,
    /// A timer may be so late.
    late_ns: u64,
    /// When a vCPU, or a tenant with one, had nothing to do last, by tenant.
    rested_ns: Vec<Vec<u64>>,
    /// What each tenant had on all CPUs beyond its slots: a tenant with several vCPUs gets its part wherever it can.
    had_ns: Vec<u64>,
    /// So much of that as nobody could take the CPU from it.
    kept_ns: Vec<u64>,
}

/// Which vCPU a thread is, if it is one alone.
fn vcpu_of(threads: &Threads, owner: Owner) -> Option<u32> {
    owner.vcpu.or_else(|| (threads.vcpus(owner.tenant) == 1).then_some(0))
}

/// A tenant's part of what is left, in parts per billion of a CPU: whole hundredths, one at least, of the reservation
/// that the scheduler was told last, which no table need have yet, if it was told one.
fn part_ppb(threads: &Threads, vcpu: &Vcpu) -> u64 {
    let reservation = threads.reservation(vcpu.tenant).unwrap_or(vcpu.reservation);
    let ppb = u64::from(reservation.share.ppb()) * u64::from(threads.vcpus(vcpu.tenant).max(1));
    ppb.max(HUNDREDTH_PPB) / HUNDREDTH_PPB * HUNDREDTH_PPB
}

/// How long the others of a CPU may run while one of them waits, whose tenant has had so much elsewhere since: what
/// they are owed, as much as that by their parts, and their turns, each of which may end late.
fn allowed_ns<'a>(
    threads: &Threads,
    waits: &Vcpu,
    had_ns: u64,
    late_ns: u64,
    others: impl Iterator<Item = &'a Vcpu>,
) -> u64 {
    let owed_ns = u128::from(CREDIT_NS) + divided(had_ns.into(), 1_000_000_000, part_ppb(threads, waits));
    let turns_ns = 2 * (TURN_NS + late_ns);
    let part = |vcpu| divided(owed_ns, part_ppb(threads, vcpu), 1_000_000_000) as u64 + turns_ns;
    others.map(part).sum()
}

/// `ns` times the one, over the other: mostly of few enough digits for the processor's own division.
fn divided(ns: u128, times: u64, over: u64) -> u128 {
    let product = ns * u128::from(times);
    u64::try_from(product).map_or_else(|_| product / u128::from(over), |product| (product / over).into())
}

impl Spare {
    pub fn new(cpus: u32, late_ns: u64) -> Spare {
        let cpus = vec![Line::default(); cpus as usize];
        Spare { cpus, late_ns, rested_ns: Vec::new(), had_ns: Vec::new(), kept_ns: Vec::new() }
    }

    /// From here on a timer may be so late.
    pub fn bound(&mut self, late_ns: u64) {
        self.late_ns = late_ns;
    }

    /// Begins anew.
    pub fn forget(&mut self) {
        self.cpus.iter_mut().for_each(|line| line.waits.clear());
    }

    /// Begins anew on a CPU.
    pub fn forget_cpu(&mut self, cpu: usize) {
        self.cpus[cpu].waits.clear();
    }

    /// A thread of the tenant has run for so long, in no slot of its own; whether it kept a CPU that no other
    /// tenant could take.
    pub fn had(&mut self, tenant: TenantId, ns: u64, is_kept: bool) {
        *place_of(&mut self.had_ns, tenant as usize) += ns;
        *place_of(&mut self.kept_ns, tenant as usize) += if is_kept { ns } else { 0 };
    }

    /// What a tenant has had in no slot of its own, in ns.
    pub fn had_ns(&self, tenant: TenantId) -> u64 {
        self.had_ns.get(tenant as usize).copied().unwrap_or(0)
    }

    /// So much of that it had as nobody could take the CPU from it.
    pub fn kept_ns(&self, tenant: TenantId) -> u64 {
        self.kept_ns.get(tenant as usize).copied().unwrap_or(0)
    }

    /// A slot begins or ends, for which a timer may be late.
    pub fn blurs(&mut self, cpu: usize) {
        self.cpus[cpu].blurred_ns += self.late_ns;
    }

    /// A thread no longer wants to run.
    pub fn rests(&mut self, threads: &Threads, owner: Owner, now_ns: u64) {
        if let Some(vcpu) = vcpu_of(threads, owner) {
            *place_of(place_of(&mut self.rested_ns, owner.tenant as usize), vcpu as usize) = now_ns;
        }
    }

    /// A thread runs for so long in time that is nobody's slot, or that of an owner who leaves it.
    pub fn serves(
        &mut self,
        threads: &Threads,
        table: &Timetable,
        cpu: usize,
        thread: &Thread,
        ns: u64,
    ) -> Option<Fault> {
        let line = &mut self.cpus[cpu];
        let ns = ns.saturating_sub(std::mem::take(&mut line.blurred_ns));
        let places =
            || (0..).zip(table.locals(cpu)).map(|(place, vcpu)| (place, &table.vcpus[*vcpu as usize]));
        let owner = thread.owner;
        let Some(index) = vcpu_of(threads, owner) else {
            // A monitor's thread has the turn of one of its vCPUs.
            if table.homes(owner.tenant).contains(&(cpu as u32)) {
                line.waits.clear();
            }
            return None;
        };
        let (runs, _) = places().find(|(_, vcpu)| (vcpu.tenant, vcpu.index) == (owner.tenant, index))?;
        *place_of(&mut line.waits, runs) = None;
        for (place, vcpu) in places().filter(|(place, _)| *place != runs) {
            let wait = place_of(&mut line.waits, place);
            if !threads.sole_waits(vcpu.tenant, vcpu.index) {
                *wait = None;
                continue;
            }
            let (tenant, index) = (vcpu.tenant as usize, vcpu.index as usize);
            let rested_ns =
                self.rested_ns.get(tenant).and_then(|vcpus| vcpus.get(index)).copied().unwrap_or(0);
            let had_ns = self.had_ns.get(tenant).copied().unwrap_or(0);
            let anew = Wait { vcpu: (vcpu.tenant, vcpu.index), ns: 0, rested_ns, had_ns };
            let wait = wait.get_or_insert(anew);
            if (wait.vcpu, wait.rested_ns) != (anew.vcpu, rested_ns) {
                *wait = anew;
            }
            wait.ns += ns;
            let others = places().filter(|(other, _)| *other != place).map(|(_, vcpu)| vcpu);
            if wait.ns > allowed_ns(threads, vcpu, had_ns - wait.had_ns, self.late_ns, others) {
                let (cpu, tenant) = (CpuId(cpu as u32), vcpu.tenant);
                return Some(Fault::Unfair { cpu, tenant, to: owner.tenant, ns: wait.ns });
            }
        }
        None
    }
}
