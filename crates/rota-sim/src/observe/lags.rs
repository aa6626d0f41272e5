//! How far tenants that share by weight are behind or ahead of what is fair, whatever the policy.
//!
//! At every moment these tenants have some CPUs together. It is fair to divide them by weight between those that have
//! a thread that runs or would run; but who has fewer such threads than that, or may use fewer CPUs, can have no more,
//! and the others have what it leaves (generalised processor sharing, by filling up). A tenant's *lag* is how much more
//! CPU time it would have had that way than it had: positive if it is owed, negative if it is ahead.
//!
//! All lags together are 0. What a policy leaves idle, or gives to another class, is not counted here: it is as if the
//! host had been smaller. A tenant none of whose threads would run has no lag. What it was owed when it went, or was
//! ahead, is from then on the others', by weight; nobody is left to be paid back.

use std::collections::BTreeMap;

use crate::ids::{TaskId, UnitId};
use crate::machine::Machine;
use crate::observe::{Event, Observer};

/// How fine parts of a CPU and of its time are: what rounding loses in a minute is no nanosecond.
const TICKS: i128 = 1 << 40;

/// How far a tenant was from what is fair, in ns of CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// What it is owed now; negative if it is ahead.
    pub now_ns: i64,
    /// The most that it was owed.
    pub behind_ns: i64,
    /// The most that it was ahead.
    pub ahead_ns: i64,
}

/// CPUs and CPU time are in [`TICKS`] of a CPU and of a ns.
#[derive(Clone, Copy, Debug, Default)]
struct Tenant {
    weight: i128,
    cpus: u32,
    runnable: u32,
    running: u32,
    /// CPUs that it should have now; nothing while that is not known.
    fair: Option<i128>,
    lag: i128,
    behind: i128,
    ahead: i128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    runnable: bool,
    ran_since_ns: u64,
    used_ns: u64,
}

/// Watches tenants that share by weight, each of which is some units.
#[derive(Clone, Debug, Default)]
pub struct Lags {
    tenants: Vec<Tenant>,
    places: BTreeMap<UnitId, usize>,
    tasks: Vec<Task>,
    counted_ns: u64,
}

impl Lags {
    /// These units are a tenant of this weight that may use so many CPUs, before it has a thread.
    pub fn tenant(&mut self, units: impl IntoIterator<Item = UnitId>, weight: u32, cpus: u32) {
        let place = self.tenants.len();
        self.places.extend(units.into_iter().map(|unit| (unit, place)));
        self.tenants.push(Tenant { weight: weight.into(), cpus, ..Tenant::default() });
    }

    /// Forgets what was seen so far: nobody is owed anything.
    pub fn begin(&mut self, machine: &Machine) {
        self.count(machine.now_ns());
        self.tenants.iter_mut().for_each(|tenant| (tenant.lag, tenant.behind, tenant.ahead) = (0, 0, 0));
    }

    /// Each tenant up to now, in the order in which they were named.
    pub fn so_far(&mut self, machine: &Machine) -> Vec<Lag> {
        self.count(machine.now_ns());
        let ns = |ticks: i128| (ticks / TICKS) as i64;
        let lag = |tenant: &Tenant| Lag {
            now_ns: ns(tenant.lag),
            behind_ns: ns(tenant.behind),
            ahead_ns: ns(tenant.ahead),
        };
        self.tenants.iter().map(lag).collect()
    }

    /// Counts up to now, before anything changes.
    fn count(&mut self, now_ns: u64) {
        let ran_ns = i128::from(now_ns - std::mem::replace(&mut self.counted_ns, now_ns));
        if ran_ns == 0 {
            return;
        }
        self.fill_up();
        for tenant in self.tenants.iter_mut().filter(|tenant| tenant.runnable > 0) {
            let fair = tenant.fair.unwrap_or(0);
            tenant.gains((fair - i128::from(tenant.running) * TICKS) * ran_ns);
        }
    }

    /// Divides the CPUs that the tenants have.
    fn fill_up(&mut self) {
        let mut left = 0;
        for tenant in self.tenants.iter_mut().filter(|tenant| tenant.runnable > 0) {
            left += i128::from(tenant.running) * TICKS;
            tenant.fair = None;
        }
        loop {
            let weights: i128 = self.tenants.iter().filter(|of| of.is_open()).map(|of| of.weight).sum();
            let (level, mut filled) = (left, false);
            for tenant in self.tenants.iter_mut().filter(|tenant| tenant.is_open()) {
                if tenant.most() * weights < level * tenant.weight {
                    tenant.fair = Some(tenant.most());
                    left -= tenant.most();
                    filled = true;
                }
            }
            if !filled {
                let rest = self.tenants.iter_mut().filter(|tenant| tenant.is_open());
                rest.for_each(|tenant| tenant.fair = Some(left * tenant.weight / weights));
                return;
            }
        }
    }

    /// Divides CPU time that tenants owe together, or with a minus have left over, between those with something to run.
    fn spread(&mut self, time: i128) {
        let backlogged = || self.tenants.iter().filter(|tenant| tenant.runnable > 0);
        let weights: i128 = backlogged().map(|tenant| tenant.weight).sum();
        for tenant in self.tenants.iter_mut().filter(|tenant| tenant.runnable > 0) {
            tenant.gains(time * tenant.weight / weights);
        }
    }

    fn stops(&mut self, machine: &Machine, id: TaskId, runnable: bool) {
        let used_ns = machine.task(id).used_ns;
        let task = &mut self.tasks[id.index()];
        let lost_ns = (machine.now_ns() - task.ran_since_ns).saturating_sub(used_ns - task.used_ns);
        task.runnable = runnable;
        let Some(&place) = self.places.get(&machine.task(id).unit) else { return };
        self.count(machine.now_ns());
        // What interrupts took of its time on the CPU it has not had, and nor have all of them together.
        let lost = i128::from(lost_ns) * TICKS;
        self.tenants[place].gains(lost);
        self.spread(-lost);
        let tenant = &mut self.tenants[place];
        tenant.running -= 1;
        tenant.runnable -= u32::from(!runnable);
        if tenant.runnable == 0 {
            let left = std::mem::take(&mut tenant.lag);
            self.spread(left);
        }
    }
}

impl Tenant {
    fn is_open(&self) -> bool {
        self.runnable > 0 && self.fair.is_none()
    }

    /// CPUs that it can use.
    fn most(&self) -> i128 {
        i128::from(self.runnable.min(self.cpus)) * TICKS
    }

    /// So much more CPU time is owed to it.
    fn gains(&mut self, time: i128) {
        self.lag += time;
        self.behind = self.behind.max(self.lag);
        self.ahead = self.ahead.max(-self.lag);
    }
}

impl Observer for Lags {
    fn observe(&mut self, machine: &Machine, event: Event) {
        match event {
            Event::Born(task) => self.tasks.resize(self.tasks.len().max(task.index() + 1), Task::default()),
            Event::Woken(id) => {
                let newly = !std::mem::replace(&mut self.tasks[id.index()].runnable, true);
                if let (true, Some(&place)) = (newly, self.places.get(&machine.task(id).unit)) {
                    self.count(machine.now_ns());
                    self.tenants[place].runnable += 1;
                }
            }
            Event::Runs(_, id) => {
                let task = &mut self.tasks[id.index()];
                (task.ran_since_ns, task.used_ns) = (machine.now_ns(), machine.task(id).used_ns);
                if let Some(&place) = self.places.get(&machine.task(id).unit) {
                    self.count(machine.now_ns());
                    self.tenants[place].running += 1;
                }
            }
            Event::Stops(_, id, runnable) => self.stops(machine, id, runnable),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weight, runnable, running, and CPUs that it may use.
    fn filled(tenants: &[(u32, u32, u32, u32)]) -> Vec<i128> {
        let mut lags = Lags::default();
        for (unit, &(weight, runnable, running, cpus)) in (0..).zip(tenants) {
            lags.tenant([UnitId(unit)], weight, cpus);
            let tenant = &mut lags.tenants[unit as usize];
            (tenant.runnable, tenant.running) = (runnable, running);
        }
        lags.fill_up();
        lags.tenants.iter().map(|tenant| tenant.fair.unwrap_or(0) / TICKS).collect()
    }

    #[test]
    fn cpus_are_divided_by_weight() {
        assert_eq!(filled(&[(100, 4, 0, 4), (300, 4, 4, 4)]), [1, 3]);
        assert_eq!(filled(&[(100, 0, 0, 4), (300, 4, 4, 4)]), [0, 4]);
        assert_eq!(filled(&[(100, 0, 0, 4)]), [0]);
    }

    #[test]
    fn who_cannot_use_its_part_leaves_it_to_the_others() {
        // One has one thread, or may use one CPU; and two cannot, of whom the second is seen when the first is full.
        assert_eq!(filled(&[(300, 1, 0, 8), (100, 8, 8, 8)]), [1, 7]);
        assert_eq!(filled(&[(300, 8, 0, 1), (100, 8, 8, 8)]), [1, 7]);
        assert_eq!(filled(&[(600, 1, 1, 8), (300, 2, 2, 8), (100, 8, 5, 8)]), [1, 2, 5]);
    }

    #[test]
    fn lags_add_up_to_nothing_and_go_with_who_goes() {
        let mut lags = Lags::default();
        for (unit, weight) in [(0, 100), (1, 100), (2, 200)] {
            lags.tenant([UnitId(unit)], weight, 4);
        }
        for (place, running) in [(0, 2), (1, 0), (2, 2)] {
            let tenant = &mut lags.tenants[place];
            (tenant.runnable, tenant.running) = (4, running);
        }
        lags.count(1_000);
        let now = |lags: &Lags| lags.tenants.iter().map(|tenant| tenant.lag / TICKS).collect::<Vec<_>>();
        assert_eq!(now(&lags), [-1_000, 1_000, 0]);
        lags.tenants[0].runnable = 0;
        let left = std::mem::take(&mut lags.tenants[0].lag);
        lags.spread(left);
        assert_eq!(now(&lags), [0, 666, -666]);
        assert_eq!((lags.tenants[0].ahead, lags.tenants[1].behind), (1_000 * TICKS, 1_000 * TICKS));
    }
}
