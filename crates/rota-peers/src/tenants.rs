//! What the policies make of a tenant: the nearest that each has to its class.

use super::credit::Credit;
use super::credit2::Credit2;
use super::deadline::Deadline;
use super::edf::Server;
use super::fair::{Fair, Rule};
use super::mqfq::Mqfq;
use super::over::{Below, Gleaner, Irs, Pinned, RelaxedCo};
use super::rtds::Rtds;
use rota_model::{Class, Reservation, Share};
use rota_sim::{Contender, Home, Machine};

/// The period of `cpu.max`, in ns: what the kernel takes if none is written.
const QUOTA_PERIOD_NS: u64 = 100_000_000;
/// The least quota that the kernel takes, in ns.
const QUOTA_MIN_NS: u64 = 1_000_000;

/// A server's period, in ns, however long the latency may be, and however short.
const PERIOD_MAX_NS: u64 = 100_000_000;
const PERIOD_MIN_NS: u64 = 100_000;
/// The least budget that RTDS takes, in ns.
const BUDGET_MIN_NS: u64 = 10_000;

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

/// The longest period that has no longer blackout than promised: 2(T - C) <= L with C = U T (Vanga, thesis section
/// 5.3).
fn server(reservation: &Reservation) -> Server {
    let free = u128::from(Share::ONE.ppb() - reservation.share.ppb()).max(1);
    let period_ns = u128::from(reservation.latency_ns) * u128::from(Share::ONE.ppb()) / (2 * free);
    let period_ns = period_ns.clamp(u128::from(PERIOD_MIN_NS), u128::from(PERIOD_MAX_NS)) as u64;
    Server { budget_ns: reservation.share.of(period_ns).max(BUDGET_MIN_NS), period_ns }
}

/// What the cgroup said where it was recorded goes before what the class makes of it.
impl<R: Rule> Contender for Fair<R> {
    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        let max = quota(home).filter(|_| self.has_quotas());
        let (weight, max) = match home.limits {
            Some(limits) => (limits.weight, max.or(limits.max)),
            None => (weight(home.tenant.class), max),
        };
        machine.cgroup_limits(home.cgroup, weight, max);
    }
}

/// A capped tenant has a cap, any other may have what is left.
impl Contender for Credit {
    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        let capped = home.tenant.reservation().is_some_and(|reservation| reservation.capped);
        machine.cgroup_limits(home.cgroup, weight(home.tenant.class), quota(home).filter(|_| capped));
    }
}

/// There are no caps.
impl Contender for Credit2 {
    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        machine.cgroup_limits(home.cgroup, weight(home.tenant.class), None);
    }
}

/// Each vCPU of a reserved tenant has its reservation; the others have RTDS' default.
impl Contender for Rtds {
    fn appears(&mut self, _: &mut Machine, home: &Home) {
        if let Some(reservation) = home.tenant.reservation() {
            self.reserve(home.cgroup, server(&reservation));
        }
    }
}

/// As many threads of a reserved tenant as it has vCPUs have a reservation each; the others are ordinary.
impl Contender for Deadline {
    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        machine.cgroup_limits(home.cgroup, weight(home.tenant.class), None);
        if let Some(reservation) = home.tenant.reservation() {
            self.reserve(home.cgroup, server(&reservation), home.tenant.vcpus);
        }
    }
}

/// As the policy below.
impl<P: Contender> Contender for Pinned<P> {
    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        self.below().appears(machine, home);
    }
}

/// As the policy below.
impl<P: Contender> Contender for Irs<P> {
    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        self.below().appears(machine, home);
    }
}

/// A weight, and nothing else: every tenant is a shared one.
impl Contender for Mqfq {
    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        machine.cgroup_limits(home.cgroup, weight(home.tenant.class), None);
    }
}

/// As the policy below.
impl<P: Contender + Below> Contender for RelaxedCo<P> {
    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        self.below().appears(machine, home);
    }
}

/// A weight, as under CFS.
impl Contender for Gleaner {
    fn appears(&mut self, machine: &mut Machine, home: &Home) {
        machine.cgroup_limits(home.cgroup, weight(home.tenant.class), None);
    }
}
