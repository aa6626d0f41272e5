//! What the life cycle is told, and what it asks for.

use std::collections::BTreeMap;

use rota_model::{Cgroup, Model, Share, TenantId};
use rota_sched::TenantSpec;
use rota_table::Certified;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The configuration was read anew, without error.
    Configured(Model),
    /// A tenant's cgroup was found.
    Appeared {
        /// Its name.
        tenant: String,
        /// The cgroup.
        cgroup: Cgroup,
    },
    /// A tenant's cgroup is gone, or the tenant is not configured any more.
    Vanished {
        /// Its name.
        tenant: String,
    },
    /// The vCPU threads in a tenant's cgroup, by vCPU number.
    Threads {
        /// Its name.
        tenant: String,
        /// All of them.
        threads: BTreeMap<u32, i32>,
    },
    /// A tenant's vCPUs would use more of its total share with other parts of it.
    Parted {
        /// Its number.
        tenant: TenantId,
        /// The part for each vCPU.
        parts: Vec<Share>,
    },
    /// The table of the last [`Action::Install`] was published.
    Installed {
        /// Its generation.
        generation: u64,
        /// When all CPUs adopt it.
        adopted_at_ns: u64,
    },
    /// The table of the last [`Action::Install`] was not published.
    NotInstalled {
        /// Why.
        reason: String,
        /// When to try again.
        retry_at_ns: u64,
    },
    /// Time has passed; see [`Life::deadline_ns`].
    Tick,
}

/// Something to do, in this order.
#[derive(Debug)]
pub enum Action {
    /// Tell the scheduler.
    Tell(Change),
    /// Publish a table, then answer with [`Event::Installed`] or [`Event::NotInstalled`].
    Install(Certified),
    /// Tell the operator.
    Say(String),
}

/// What the scheduler is told.
#[derive(Clone, Debug)]
pub enum Change {
    /// A tenant is here, or is another than before.
    Set(TenantSpec),
    /// Forget a tenant.
    Remove(TenantId),
    /// A cgroup is a tenant's.
    Bind {
        /// The kernel's id of it.
        cgroup: u64,
        /// Whose.
        id: TenantId,
    },
    /// A cgroup is nobody's any more.
    Unbind {
        /// The kernel's id of it.
        cgroup: u64,
    },
    /// A thread is a tenant's vCPU.
    BindThread {
        /// The thread.
        tid: i32,
        /// Whose.
        id: TenantId,
        /// Which.
        index: u32,
    },
    /// A thread is no vCPU any more.
    UnbindThread {
        /// The thread.
        tid: i32,
    },
}
