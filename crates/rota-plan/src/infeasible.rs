//! Why a host has no plan, in words for its operator.

use rota_model::{CpuSet, Share};

/// A refusal. It names the tenant and says what would mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Infeasible {
    /// More is reserved than the CPUs have.
    #[error(
        "over-utilised: the reservations need {needed} CPUs and the {cpus} CPUs that may carry them have {available} \
         to give, {over} too few; lower shares, remove tenants or add CPUs",
        needed = decimal(*needed_ppb),
        available = decimal(*available_ppb),
        over = decimal(needed_ppb - available_ppb)
    )]
    OverUtilised {
        /// Sum of all shares, in parts per billion of a CPU.
        needed_ppb: u64,
        /// What the CPUs have without their floor.
        available_ppb: u64,
        /// How many CPUs may carry reservations.
        cpus: usize,
    },
    /// No candidate period is short enough.
    #[error(
        "tenant `{tenant}`: share {share} cannot have a latency of {latency}; the smallest it can have is {smallest}",
        latency = duration(*latency_ns),
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
    /// Some CPU has time left, but no single one has enough.
    #[error(
        "tenant `{tenant}`: vCPU {index} with share {share} fits on none of its {allowed} CPUs, where {free} is the \
         most that is free on one; it needs splitting over CPUs, which this version does not do; lower a share, \
         widen its affinity or add a CPU",
        free = decimal(*free_ppb)
    )]
    Fragmented {
        /// The tenant's name.
        tenant: String,
        /// Which of its vCPUs.
        index: u32,
        /// Its share.
        share: Share,
        /// How many CPUs it may use.
        allowed: usize,
        /// The largest share that is free on one of them; 0 where a whole CPU is wanted and none is empty.
        free_ppb: u64,
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
