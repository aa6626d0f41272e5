//! What the policies make of a tenant: the nearest that each has to its class.

use super::credit::Credit;
use super::fair::{Fair, Rule};
use crate::machine::Machine;
use crate::policies::Contender;
use crate::tenants::Home;
use rota_model::Class;

/// The period of `cpu.max`, in ns: what the kernel takes if none is written.
const QUOTA_PERIOD_NS: u64 = 100_000_000;
/// The least quota that the kernel takes, in ns.
const QUOTA_MIN_NS: u64 = 1_000_000;

/// The `cpu.weight` that comes nearest to a class.
fn weight(class: Class) -> u32 {
    match class {
        Class::Reserved(_) => 100,
        Class::Shared { weight } => weight,
        Class::Background => 1,
    }
}

/// `cpu.max` that gives a tenant its reservations, in whole us.
fn quota(home: &Home) -> Option<(u64, u64)> {
    let quota_ns = home.tenant.reservation()?.share.of(QUOTA_PERIOD_NS) * u64::from(home.tenant.vcpus);
    Some(((quota_ns.div_ceil(1_000) * 1_000).max(QUOTA_MIN_NS), QUOTA_PERIOD_NS))
}

impl<R: Rule> Contender for Fair<R> {
    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        let max = quota(home).filter(|_| self.has_quotas());
        machine.cgroup_limits(home.cgroup, weight(home.tenant.class), max);
    }
}

/// A capped tenant has a cap, any other may have what is left.
impl Contender for Credit {
    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        let capped = home.tenant.reservation().is_some_and(|reservation| reservation.capped);
        machine.cgroup_limits(home.cgroup, weight(home.tenant.class), quota(home).filter(|_| capped));
    }
}
