//! What the rules ask of the scheduler.

use std::collections::BTreeMap;

use anyhow::Result;
use rota_model::TenantId;
use rota_sched::{CpuAccount, Kernel, QueueAccount, Scheduler, TenantSpec};

use crate::accounts::Reading;
use crate::life::Change;

/// Is told about tenants, and has counted. On a real host and on a simulated one it is the [`Scheduler`]; the daemon's
/// tests have a record of what was asked.
///
/// # Errors
/// Each method fails if the scheduler refuses.
pub trait Enactor {
    /// Adds a tenant, or changes it.
    fn tenant_set(&self, spec: &TenantSpec) -> Result<()>;
    /// Its tasks become the system's until their cgroup is unbound.
    fn tenant_remove(&self, id: TenantId) -> Result<()>;
    /// A cgroup's tasks, and those of the cgroups below it, become the tenant's.
    fn cgroup_bind(&self, cgroup: u64, id: TenantId) -> Result<()>;
    /// They are what they were before.
    fn cgroup_unbind(&self, cgroup: u64) -> Result<()>;
    /// A thread becomes vCPU `index` of a VM tenant.
    fn vcpu_thread_bind(&self, tid: i32, id: TenantId, index: u32) -> Result<()>;
    /// It is what it was before.
    fn vcpu_thread_unbind(&self, tid: i32) -> Result<()>;
    /// The CPUs over which background threads are spread, each as often as it shall carry one.
    fn spread_background(&self, cpus: &[u32]) -> Result<()>;
    /// Sends threads that were being queued as tenants changed to where they belong.
    fn look_again(&self) -> Result<()>;
    /// What the queues have counted.
    fn queues(&self) -> Result<Vec<QueueAccount>>;
    /// What the CPUs have counted.
    fn cpus(&self) -> Result<Vec<CpuAccount>>;
    /// How far each shared tenant is behind what is fair now, in ns of CPU time.
    fn lags(&self) -> Result<BTreeMap<TenantId, i64>>;

    /// Makes one change.
    fn change(&self, change: &Change) -> Result<()> {
        match *change {
            Change::Set(ref spec) => self.tenant_set(spec),
            Change::Remove(id) => self.tenant_remove(id),
            Change::Bind { cgroup, id } => self.cgroup_bind(cgroup, id),
            Change::Unbind { cgroup } => self.cgroup_unbind(cgroup),
            Change::BindThread { tid, id, index } => self.vcpu_thread_bind(tid, id, index),
            Change::UnbindThread { tid } => self.vcpu_thread_unbind(tid),
        }
    }

    /// All that was counted until `now_ns`, CLOCK_MONOTONIC.
    fn read(&self, now_ns: u64) -> Result<Reading> {
        Ok(Reading { at_ns: now_ns, queues: self.queues()?, cpus: self.cpus()?, lags: self.lags()? })
    }
}

impl<K: Kernel> Enactor for Scheduler<K> {
    fn tenant_set(&self, spec: &TenantSpec) -> Result<()> {
        self.tenant_set(spec)
    }

    fn tenant_remove(&self, id: TenantId) -> Result<()> {
        self.tenant_remove(id)
    }

    fn cgroup_bind(&self, cgroup: u64, id: TenantId) -> Result<()> {
        self.cgroup_bind(cgroup, id)
    }

    fn cgroup_unbind(&self, cgroup: u64) -> Result<()> {
        self.cgroup_unbind(cgroup)
    }

    fn vcpu_thread_bind(&self, tid: i32, id: TenantId, index: u32) -> Result<()> {
        self.vcpu_thread_bind(tid, id, index)
    }

    fn vcpu_thread_unbind(&self, tid: i32) -> Result<()> {
        self.vcpu_thread_unbind(tid)
    }

    fn spread_background(&self, cpus: &[u32]) -> Result<()> {
        self.spread_background(cpus)
    }

    fn look_again(&self) -> Result<()> {
        self.look_again().map(|_| ())
    }

    fn queues(&self) -> Result<Vec<QueueAccount>> {
        self.queues()
    }

    fn cpus(&self) -> Result<Vec<CpuAccount>> {
        self.cpus()
    }

    fn lags(&self) -> Result<BTreeMap<TenantId, i64>> {
        self.lags()
    }
}
