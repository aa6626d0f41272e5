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
    /// The CPUs have room in sum, but this vCPU found none for it.
    #[error(
        "tenant `{tenant}`: vCPU {index} with share {share} fits on none of its {allowed} CPUs{reason}; lower a share, \
         widen its affinity or add a CPU",
        reason = no_room(*share, *largest_ppb, *total_ppb)
    )]
    NoRoom {
        /// The tenant's name.
        tenant: String,
        /// Which of its vCPUs.
        index: u32,
        /// Its share.
        share: Share,
        /// How many CPUs it may use.
        allowed: usize,
        /// The most that was left on one of them when it was its turn, in parts per billion of a CPU.
        largest_ppb: u64,
        /// What was left on all of them.
        total_ppb: u64,
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

fn no_room(share: Share, largest_ppb: u64, total_ppb: u64) -> String {
    if share == Share::ONE {
        return ": it wants one to itself, and none is empty".to_owned();
    }
    if total_ppb < u64::from(share.ppb()) {
        return format!(", which have {} left between them", decimal(total_ppb));
    }
    format!(
        ", of which none has more than {} left; it needs splitting over CPUs, which this version does not do",
        decimal(largest_ppb)
    )
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
