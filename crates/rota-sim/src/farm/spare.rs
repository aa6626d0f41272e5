//! What a CPU's slots leave: two vCPUs that want all they can have of it have the same, but for what one has at a time.
//!
//! From what happens on the machine: who runs outside of its own slots while another one waits. Neither how the
//! scheduler counts nor whose turn it says it is matters.

use std::collections::BTreeMap;

use rota_model::TenantId;

use super::finding::Fault;
use super::threads::{Owner, Thread, Threads};
use super::timetable::Timetable;
use crate::ids::CpuId;

/// By how much one may be ahead of another: each has its part of 20 ms before anyone has another, and the turns of two
/// rounds may follow each other.
const AHEAD_MAX_NS: u64 = 40_000_000;

/// How far one vCPU is ahead of another, at least since both want all they can have.
#[derive(Clone, Copy, Debug, Default)]
struct Lead {
    ns: u64,
    /// Of the two, when one had enough last.
    rested_ns: u64,
}

/// A CPU.
#[derive(Clone, Debug, Default)]
struct Line {
    /// By the places of who is ahead and who is behind in the table's list of those with slots here only.
    leads: BTreeMap<(usize, usize), Lead>,
    /// Since something was counted last, slots have begun and ended that may have taken as much of anyone's time.
    blurred_ns: u64,
}

/// The observer's part for it.
#[derive(Debug)]
pub struct Spare {
    cpus: Vec<Line>,
    /// When a vCPU, or a tenant with one, had nothing to do last.
    rested_ns: BTreeMap<(TenantId, u32), u64>,
}

/// Which vCPU a thread is, if it is one alone.
fn vcpu_of(threads: &Threads, owner: Owner) -> Option<u32> {
    owner.vcpu.or_else(|| (threads.vcpus(owner.tenant) == 1).then_some(0))
}

impl Spare {
    pub fn new(cpus: u32) -> Spare {
        Spare { cpus: vec![Line::default(); cpus as usize], rested_ns: BTreeMap::new() }
    }

    /// Begins anew.
    pub fn forget(&mut self) {
        self.cpus.iter_mut().for_each(|line| line.leads.clear());
    }

    /// Begins anew on a CPU.
    pub fn forget_cpu(&mut self, cpu: usize) {
        self.cpus[cpu].leads.clear();
    }

    /// A slot begins or ends, for which a timer may be late.
    pub fn blurs(&mut self, cpu: usize, late_ns: u64) {
        self.cpus[cpu].blurred_ns += late_ns;
    }

    /// A thread no longer wants to run.
    pub fn rests(&mut self, threads: &Threads, owner: Owner, now_ns: u64) {
        if let Some(vcpu) = vcpu_of(threads, owner) {
            self.rested_ns.insert((owner.tenant, vcpu), now_ns);
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
        let blurred_ns = std::mem::take(&mut line.blurred_ns);
        line.leads.values_mut().for_each(|lead| lead.ns = lead.ns.saturating_sub(blurred_ns));
        let places =
            || (0..).zip(table.locals(cpu)).map(|(place, vcpu)| (place, &table.vcpus[*vcpu as usize]));
        let owner = thread.owner;
        let Some(index) = vcpu_of(threads, owner) else {
            // A monitor's thread has the turn of one of its vCPUs.
            if table.homes(owner.tenant).contains(&(cpu as u32)) {
                line.leads.clear();
            }
            return None;
        };
        let (ahead, _) = places().find(|(_, vcpu)| (vcpu.tenant, vcpu.index) == (owner.tenant, index))?;
        let rested_ns = |vcpu: (TenantId, u32)| self.rested_ns.get(&vcpu).copied().unwrap_or(0);
        for (behind, vcpu) in places().filter(|(place, _)| *place != ahead) {
            if !threads.sole_waits(vcpu.tenant, vcpu.index) {
                line.leads.remove(&(ahead, behind));
                line.leads.remove(&(behind, ahead));
                continue;
            }
            let rested_ns = rested_ns((owner.tenant, index)).max(rested_ns((vcpu.tenant, vcpu.index)));
            for (pair, gains) in [((ahead, behind), true), ((behind, ahead), false)] {
                let lead = line.leads.entry(pair).or_default();
                if lead.rested_ns != rested_ns {
                    *lead = Lead { ns: 0, rested_ns };
                }
                lead.ns = if gains { lead.ns + ns } else { lead.ns.saturating_sub(ns) };
                if lead.ns > AHEAD_MAX_NS {
                    let (cpu, tenant) = (CpuId(cpu as u32), vcpu.tenant);
                    return Some(Fault::Unfair { cpu, tenant, to: owner.tenant, ns: lead.ns });
                }
            }
        }
        None
    }
}
