//! What the scheduler has counted, read from its maps.

use std::collections::BTreeMap;

use anyhow::Result;
use bytemuck::Pod;
use rota_model::TenantId;

use super::{Known, Scheduler, queues_counted};
use crate::account::{CpuAccount, QueueAccount};
use crate::kernel::Kernel;
use crate::lag::{self, Clock};
use crate::shared::{self, FairClock, FairTimes};

/// How often the clocks are read at the most, to have them together.
const LAG_READINGS: u32 = 8;

impl<K: Kernel> Scheduler<K> {
    pub(super) fn queue_head(&self, queue: u32) -> Result<shared::QueueHead> {
        self.head("queues", queue)
    }

    /// What an array's entry begins with.
    fn head<T: Pod>(&self, map: &str, index: u32) -> Result<T> {
        let entry = self.kernel.entry(map, index)?;
        Ok(bytemuck::pod_read_unaligned(&entry[..size_of::<T>()]))
    }

    /// What each queue has counted.
    pub fn queues(&self) -> Result<Vec<QueueAccount>> {
        let mut accounts = Vec::new();
        for (&id, known) in self.tenants.borrow().iter() {
            for offset in 0..queues_counted(&known.spec) {
                let queue = known.record.first_queue + offset;
                let entry = self.kernel.entry("queues", queue)?;
                let profile = self.kernel.entry("profiles", queue)?;
                let vcpu = offset.checked_sub(1);
                accounts.push(QueueAccount::decode(
                    id,
                    vcpu,
                    (&entry, &profile),
                    (self.kernel.now_ns(), known.record.promised_from),
                ));
            }
        }
        Ok(accounts)
    }

    /// What each CPU has counted.
    pub fn cpus(&self) -> Result<Vec<CpuAccount>> {
        (0..self.settings.nr_cpus)
            .map(|cpu| Ok(CpuAccount::decode(cpu, &self.kernel.entry("cpus", cpu)?)))
            .collect()
    }

    /// How far each shared tenant is behind what is fair now, in ns of CPU time (docs/FAIRNESS.md).
    pub fn lags(&self) -> Result<BTreeMap<TenantId, i64>> {
        let mut best: Option<(u64, BTreeMap<TenantId, i64>)> = None;
        // While this program is held up between two clocks, the later one goes on; what is read in a grain is together.
        for _ in 0..LAG_READINGS {
            let (took_ns, lags) = self.read_lags()?;
            if best.as_ref().is_none_or(|(least_ns, _)| took_ns < *least_ns) {
                best = Some((took_ns, lags));
            }
            if took_ns < shared::FAIR_GRAIN_NS {
                break;
            }
        }
        Ok(best.map_or_else(BTreeMap::new, |(_, lags)| lags))
    }

    /// The lags, and how long it took to read the clocks.
    fn read_lags(&self) -> Result<(u64, BTreeMap<TenantId, i64>)> {
        let tenants = self.tenants.borrow();
        let mut clocks = Vec::new();
        // First who is backlogged: who comes back after that counts as idle, and not with its clock of long ago.
        for (&tenant, known) in
            tenants.iter().filter(|(_, known)| known.record.class == shared::class::SHARED)
        {
            let backlogged = self.is_backlogged(known)?;
            clocks.push(Clock { tenant, weight: known.record.weight, backlogged, at: 0 });
        }
        let mut oldest: Option<u64> = None;
        for domain in 0..self.settings.nr_domains {
            let before = self.head::<FairTimes>("domains", domain)?.v_before;
            oldest = oldest.filter(|seen| before.wrapping_sub(*seen) as i64 <= 0).or(Some(before));
        }
        let began_ns = self.kernel.now_ns();
        for clock in &mut clocks {
            clock.at = self.head::<FairClock>("fair", clock.tenant)?.clock;
        }
        let took_ns = self.kernel.now_ns() - began_ns;
        Ok((took_ns, lag::lags(&clocks, oldest.unwrap_or(0))))
    }

    /// Whether one of a tenant's threads runs or would run.
    fn is_backlogged(&self, known: &Known) -> Result<bool> {
        let first = known.record.first_queue;
        for queue in first..first + queues_counted(&known.spec) {
            if self.queue_head(queue)?.nr_runnable > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
