//! Why a host has no plan, in words for its operator.

use rota_model::{CpuSet, Share};

/// What is needed of some CPUs and what they have, in parts per billion of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The sum of the shares.
    pub needed_ppb: u64,
    /// What changes of task take beyond that; 0 if the shares alone are too much.
    pub costs_ppb: u64,
    /// What the CPUs have without their floor.
    pub available_ppb: u64,
}

impl Figures {
    fn over(&self) -> String {
        decimal(self.needed_ppb + self.costs_ppb - self.available_ppb)
    }
}

/// A refusal. It names the tenant and says what would mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Infeasible {
    /// More is reserved than the CPUs have.
    #[error(
        "over-utilised: the reservations need {needed} CPUs{costs} and the {cpus} CPUs that may carry them have \
         {available} to give, {over} too few; lower shares, remove tenants or add CPUs",
        needed = decimal(figures.needed_ppb),
        costs = and_costs(figures.costs_ppb),
        available = decimal(figures.available_ppb),
        over = figures.over()
    )]
    OverUtilised {
        /// What all need and what there is.
        figures: Figures,
        /// How many CPUs may carry reservations.
        cpus: usize,
    },
    /// No candidate period is short enough.
    #[error(
        "tenant `{tenant}`: share {share} cannot have a latency of {latency}; the smallest it can have{costs} is \
         {smallest}",
        latency = duration(*latency_ns),
        costs = where_a_change_takes(*switch_ns),
        smallest = duration(*smallest_ns)
    )]
    Latency {
        /// The tenant's name.
        tenant: String,
        /// Its share.
        share: Share,
        /// What was asked for.
        latency_ns: u64,
        /// What could be had.
        smallest_ns: u64,
        /// What a change of tasks takes, which has to fit into a period beside the share.
        switch_ns: u64,
    },
    /// No period has room for the share and a change of tasks.
    #[error(
        "tenant `{tenant}`: share {share} leaves no time to change tasks, which takes {switch} (host.switch_cost) of a \
         period of {} at most; write a share of 1, which has a CPU to itself, or a lower one",
        duration(crate::HYPERPERIOD_NS),
        switch = duration(*switch_ns)
    )]
    Share {
        /// The tenant's name.
        tenant: String,
        /// Its share.
        share: Share,
        /// What a change of tasks takes.
        switch_ns: u64,
    },
    /// The tenant's affinity leaves it nothing.
    #[error(
        "tenant `{tenant}`: none of the CPUs {affinity} may carry reservations (those are {usable}); change its \
         affinity or the housekeeping CPUs"
    )]
    NoCpu {
        /// The tenant's name.
        tenant: String,
        /// Where it may be planned.
        affinity: CpuSet,
        /// Where anything may be planned.
        usable: CpuSet,
    },
    /// Some tenants may only use some CPUs, and want more than these have.
    #[error(
        "bottleneck: {vcpus} vCPU{s} of {tenants} may only use {cpus}; {needed} CPUs are needed there{costs} and \
         {available} can be had, {over} too few; lower a share, widen an affinity or remove a tenant",
        s = if *vcpus == 1 { "" } else { "s" },
        tenants = some(tenants),
        cpus = cpu_list(cpus),
        needed = decimal(figures.needed_ppb),
        costs = and_costs(figures.costs_ppb),
        available = decimal(figures.available_ppb),
        over = figures.over()
    )]
    Bottleneck {
        /// Their names, in the configuration's order.
        tenants: Vec<String>,
        /// How many of their vCPUs may use no other CPUs.
        vcpus: usize,
        /// All the CPUs that these may use.
        cpus: CpuSet,
        /// What they need and what there is.
        figures: Figures,
    },
    /// No CPU was found that a vCPU of share 1 could have without taking from the others what they need.
    #[error(
        "tenant `{tenant}`: vCPU {index} wants a CPU to itself, and of {cpus} none was found that the others can do \
         without; lower a share, widen an affinity or add a CPU",
        cpus = cpu_list(cpus)
    )]
    Dedicated {
        /// The tenant's name.
        tenant: String,
        /// Which of its vCPUs.
        index: u32,
        /// The CPUs that it may use.
        cpus: CpuSet,
    },
    /// No cores were found that a tenant which shares none could have without taking from the others what they need.
    #[error(
        "tenant `{tenant}`: wants cores to itself, and of those with {cpus} not enough were found that the others can \
         do without; lower a share, widen an affinity or add cores",
        cpus = cpu_list(cpus)
    )]
    Cores {
        /// The tenant's name.
        tenant: String,
        /// The CPUs that it may use.
        cpus: CpuSet,
    },
    /// vCPUs whose slots are to come together have no such slots.
    #[error(
        "tenant `{tenant}`: the slots of its {vcpus} vCPUs cannot come together: {reason}; write a lower share or \
         fewer vCPUs, give it more CPUs, or leave `together` out",
        reason = why_apart(*vcpus, *share, *with_room, *most)
    )]
    Together {
        /// The tenant's name.
        tenant: String,
        /// How many there are.
        vcpus: usize,
        /// What each takes of a CPU, changes of task included.
        share: Share,
        /// How many of its CPUs have that much beside the other tenants.
        with_room: usize,
        /// What as many of its CPUs as it has vCPUs have beside the other tenants, if any.
        most: Option<Share>,
    },
    /// However the vCPUs are placed and divided, rounding and changes of task take more of some CPUs than is left.
    #[error(
        "no timetable was found for {cpus}: the vCPUs there need {needed} CPUs{costs}, of {available} to give; give \
         these tenants longer or equal latencies, or lower shares: {tenants}",
        cpus = cpu_list(cpus),
        needed = decimal(figures.needed_ppb),
        costs = and_costs(figures.costs_ppb),
        available = decimal(figures.available_ppb),
    )]
    Crowded {
        /// The CPUs.
        cpus: CpuSet,
        /// What the vCPUs need, rounding included, and what there is.
        figures: Figures,
        /// Who is planned there, separated by commas.
        tenants: String,
    },
    /// What is left for a vCPU lies on too many CPUs, whose other vCPUs may not go elsewhere.
    #[error(
        "tenant `{tenant}`: vCPU {index} would need slots on more than {max} CPUs, because too little is free on each \
         and their other vCPUs may use no others; lower its share or widen their affinities",
        max = crate::VCPU_CPUS_MAX
    )]
    Scattered {
        /// The tenant's name.
        tenant: String,
        /// Which of its vCPUs.
        index: u32,
    },
    /// A CPU's shortest slot is so short that its part of the table would not fit the table's format.
    #[error(
        "CPU {cpu}: its shortest slot would be {slot} in a length of {length}, more than {limit} slices; \
         give its tenants equal latencies or larger shares: {tenants}",
        slot = duration(*slot_ns),
        length = duration(*length_ns),
        limit = crate::SLICES_MAX
    )]
    Slices {
        /// The CPU.
        cpu: u32,
        /// Its shortest slot.
        slot_ns: u64,
        /// Its length.
        length_ns: u64,
        /// Who is planned there, separated by commas.
        tenants: String,
    },
}

fn why_apart(vcpus: usize, share: Share, with_room: usize, most: Option<Share>) -> String {
    if with_room >= vcpus {
        return format!(
            "{with_room} of its CPUs have the {share} of a CPU that each takes, but then others find no room, or other \
             slots that come together are in the way"
        );
    }
    let all = match most {
        Some(most) => format!("{vcpus} of them have {most} each"),
        None => format!("{vcpus} of them have nothing left"),
    };
    format!(
        "each takes {share} of a CPU, which {with_room} of its CPUs have beside the other tenants, and {all}"
    )
}

/// After what the reservations need.
fn and_costs(costs_ppb: u64) -> String {
    match costs_ppb {
        0 => String::new(),
        _ => format!(" and changes of task {} (host.switch_cost)", decimal(costs_ppb)),
    }
}

/// After what could not be had.
fn where_a_change_takes(switch_ns: u64) -> String {
    match switch_ns {
        0 => String::new(),
        _ => format!(", where a change of tasks takes {} (host.switch_cost),", duration(switch_ns)),
    }
}

/// The first few names, and how many more there are.
fn some(tenants: &[String]) -> String {
    const SHOWN: usize = 6;
    let names: Vec<String> = tenants.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = tenants.len().saturating_sub(SHOWN);
    let names = if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") };
    format!("tenant{} {names}", if tenants.len() == 1 { "" } else { "s" })
}

fn cpu_list(cpus: &CpuSet) -> String {
    format!("CPU{} {cpus}", if cpus.len() == 1 { "" } else { "s" })
}

/// Parts per billion as a decimal fraction, exactly.
fn decimal(ppb: u64) -> String {
    let text = format!("{}.{:09}", ppb / 1_000_000_000, ppb % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A duration as the configuration takes it, exactly.
fn duration(ns: u64) -> String {
    let (unit, digits, name) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (1_000, 3, "us"),
        _ => (1_000_000, 6, "ms"),
    };
    let text = format!("{}.{:0digits$}", ns / unit, ns % unit);
    format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for (ppb, text) in [
            (0, "0"),
            (2, "0.000000002"),
            (250_000_000, "0.25"),
            (44_000_000_000, "44"),
            (10_500_000_000, "10.5"),
        ] {
            assert_eq!(decimal(ppb), text);
        }
    }

    #[test]
    fn durations_are_exact() {
        for (ns, text) in [
            (1, "1ns"),
            (150_150, "150.15us"),
            (100_000, "100us"),
            (20_000_000, "20ms"),
            (12_837_825, "12.837825ms"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
