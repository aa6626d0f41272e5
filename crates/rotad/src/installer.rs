//! The scheduler as the daemon needs it: it also installs tables, and ends. The daemon's tests have a record of what it
//! was asked.

use std::time::Duration;

use anyhow::Result;
use rota_model::TenantId;
use rota_rules::Enactor;
use rota_sched::{Installed, LetGo, MissEvents, Scheduler};
use rota_table::Certified;

/// Installs tables, and says when it has ended.
pub trait Installer: Enactor {
    /// Installs a table, and waits until it holds. All CPUs adopt it at one time, which the answer tells.
    fn install(&mut self, table: Certified) -> Result<Installed>;
    /// Holds shared and background tenants but this one off for so long. Says until when; nothing if it is too early.
    fn hold_off(&self, tenant: TenantId, length: Duration) -> Result<Option<u64>>;
    /// Has it read a CPU's branch records and these events, or neither.
    fn read_branches(&self, cpu: u32, misses: Option<MissEvents<'_>>) -> Result<()>;
    /// Ends the scheduler. One that is dropped instead goes on for the grace time, if it is pinned.
    fn end(self) -> Result<()>;
    /// Why the kernel has thrown the scheduler out, once it has.
    fn exited(&self) -> Option<LetGo>;
}

impl Installer for Scheduler {
    fn install(&mut self, table: Certified) -> Result<Installed> {
        self.install(table)
    }

    fn hold_off(&self, tenant: TenantId, length: Duration) -> Result<Option<u64>> {
        self.hold_off(tenant, length)
    }

    fn read_branches(&self, cpu: u32, misses: Option<MissEvents<'_>>) -> Result<()> {
        self.read_branches(cpu, misses)
    }

    fn end(self) -> Result<()> {
        self.end()
    }

    fn exited(&self) -> Option<LetGo> {
        self.exited()
    }
}
