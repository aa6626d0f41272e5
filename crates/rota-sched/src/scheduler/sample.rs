//! A tenant is sampled: shared and background tenants beside it are held off for a moment.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use rota_model::{Class, TenantId};

use super::{SYSTEM, Scheduler};
use crate::kernel::Kernel;
use crate::shared::Sample;

/// What the program `hold_off` returns when the last sample is not long enough ago: `-EAGAIN`.
const TOO_EARLY: i32 = -11;

impl<K: Kernel> Scheduler<K> {
    /// Holds shared and background tenants off for so long, but for this one. Whoever is reserved is served as ever.
    /// Says until when, on CLOCK_MONOTONIC in ns: the scheduler ends it then by itself, with or without a loader.
    /// Nothing if the last time is not long enough ago.
    ///
    /// # Errors
    ///
    /// The tenant is not here, or is a background one; or that is longer than a sample may be.
    pub fn hold_off(&self, tenant: TenantId, length: Duration) -> Result<Option<u64>> {
        let class = self.tenants.borrow().get(&tenant).map(|known| known.spec.class);
        ensure!(tenant != SYSTEM && class.is_some(), "there is no tenant {tenant}");
        ensure!(class != Some(Class::Background), "a background tenant has what others leave, and no sample");
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let mut sample = Sample { tenant, reserved: 0, length_ns, until_ns: 0 };
        match self.kernel.run("hold_off", bytemuck::bytes_of_mut(&mut sample))? {
            0 => Ok(Some(sample.until_ns)),
            TOO_EARLY => Ok(None),
            error => bail!("a sample of {length:?} is not taken: error {error}"),
        }
    }
}
