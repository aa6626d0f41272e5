//! The policies by name. Each is compared with the others on the same scenario, and told of the same tenants.

use anyhow::Result;
use rota_model::Model;
use rota_peers::{Cfs, Credit, Credit2, Deadline, Eevdf, Fair, Gleaner, Irs, Mqfq, Pinned, RelaxedCo, Rtds};
use rota_sim::Contender;
use rota_twin::Rota;

/// A policy's name, what it is, and how one is made for a host and its tenants, in a thread of its own.
#[derive(Clone, Copy)]
pub struct Entry {
    /// As on a command line.
    pub name: &'static str,
    /// For people, in a heading.
    pub label: &'static str,
    /// In a few words.
    pub about: &'static str,
    /// Makes one.
    pub make: fn(&Model) -> Result<Box<dyn Contender>>,
}

/// All of them, in the order in which they are shown.
pub const POLICIES: &[Entry] = &[
    Entry {
        name: "rota",
        label: "Rota",
        about: "the scheduler's own source, with its planner and its daemon's rules",
        make: |model| Ok(Box::new(Rota::new(model)?)),
    },
    Entry {
        name: "eevdf",
        label: "EEVDF",
        about: "Linux' own since 6.6, with cpu.weight: equal for reserved tenants, the least for background ones",
        make: |_| Ok(Box::new(Fair::<Eevdf>::default())),
    },
    Entry {
        name: "eevdf-max",
        label: "EEVDF, cpu.max",
        about: "the same, and each reserved tenant's share as its quota",
        make: |_| Ok(Box::new(Fair::<Eevdf>::with_quotas())),
    },
    Entry {
        name: "cfs",
        label: "CFS",
        about: "Linux' own up to 6.5, with cpu.weight",
        make: |_| Ok(Box::new(Fair::<Cfs>::default())),
    },
    Entry {
        name: "cfs-max",
        label: "CFS, cpu.max",
        about: "the same, and each reserved tenant's share as its quota",
        make: |_| Ok(Box::new(Fair::<Cfs>::with_quotas())),
    },
    Entry {
        name: "credit",
        label: "Xen Credit",
        about: "Xen's Credit: weights, caps for capped tenants, who wakes is boosted",
        make: |_| Ok(Box::new(Credit::default())),
    },
    Entry {
        name: "credit2",
        label: "Xen Credit2",
        about: "Xen's Credit2: weights, a queue for each socket, no boost and no caps",
        make: |_| Ok(Box::new(Credit2::default())),
    },
    Entry {
        name: "rtds",
        label: "Xen RTDS",
        about: "Xen's RTDS: a budget in each period for each vCPU, earliest deadline first, nothing beyond",
        make: |_| Ok(Box::new(Rtds::default())),
    },
    Entry {
        name: "deadline",
        label: "SCHED_DEADLINE",
        about: "Linux' reservations for the threads of reserved tenants, EEVDF for all others",
        make: |_| Ok(Box::new(Deadline::default())),
    },
    Entry {
        name: "mqfq",
        label: "P-MQFQ",
        about: "fair queuing over all CPUs, centralised: what is fair between tenants, by weight alone",
        make: |_| Ok(Box::new(Mqfq::default())),
    },
    Entry {
        name: "pin-cfs",
        label: "Pinned, CFS",
        about: "each thread bound to a CPU, CFS on each",
        make: |_| Ok(Box::new(Pinned::<Fair<Cfs>>::default())),
    },
    Entry {
        name: "pin-credit",
        label: "Pinned, Xen Credit",
        about: "each thread bound to a CPU, Xen's Credit over all",
        make: |_| Ok(Box::new(Pinned::<Credit>::default())),
    },
    Entry {
        name: "relaxed-co",
        label: "Relaxed co-scheduling",
        about: "CFS, and of a tenant's threads the one ahead gives way to the one behind",
        make: |_| Ok(Box::new(RelaxedCo::<Fair<Cfs>>::default())),
    },
    Entry {
        name: "pin-relaxed-co",
        label: "Pinned, Xen Credit, relaxed co-scheduling",
        about: "pinned Xen Credit, and of a tenant's threads the one ahead gives way to the one behind",
        make: |_| Ok(Box::new(RelaxedCo::<Pinned<Credit>>::default())),
    },
    Entry {
        name: "irs",
        label: "Pinned, Xen Credit, IRS",
        about: "pinned Xen Credit, and guests that take upcalls move threads before a vCPU is stopped",
        make: |_| Ok(Box::new(Irs::<Pinned<Credit>>::default())),
    },
    Entry {
        name: "irs-cfs",
        label: "Pinned, CFS, IRS",
        about: "the same over pinned CFS, which boosts nobody",
        make: |_| Ok(Box::new(Irs::<Pinned<Fair<Cfs>>>::default())),
    },
    Entry {
        name: "gleaner",
        label: "Gleaner",
        about: "CFS, and each tenant gathered on a few CPUs of its own",
        make: |_| Ok(Box::new(Gleaner::default())),
    },
];

/// The policy of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    POLICIES.iter().find(|entry| entry.name == name)
}
