//! Whether promises are kept: the longest blackout, and the share in every window of time (docs/PROMISES.md).

use crate::ids::UnitId;
use crate::machine::Machine;
use crate::observe::{Event, Observer};
use rota_model::Reservation;

/// A promise to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// To each of its vCPUs.
    pub reservation: Reservation,
    /// How many vCPUs it has: 1 for a VM's vCPU, all of a container's.
    pub vcpus: u32,
    /// Since when it holds.
    pub from_ns: u64,
}

/// A promise that was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// To whom.
    pub unit: UnitId,
    /// When that was seen.
    pub at_ns: u64,
    /// What was promised.
    pub how: How,
}

/// How a promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It waited for so long.
    Blackout {
        /// How long.
        ns: u64,
    },
    /// In some window up to then, it got so much less than its share of the window without the latency.
    Share {
        /// How much is missing.
        ns: u64,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    promise: Option<Promise>,
    runnable: u32,
    running: u32,
    blackout_since_ns: Option<u64>,
    /// Service since it wants all of its vCPUs: up to `counted_ns`.
    served_ns: u64,
    counted_ns: u64,
    wants_since_ns: Option<u64>,
    /// The least of (share x time - service) since then, in ns and parts per billion.
    least_debt: i128,
}

/// Watches promises. What changing tasks costs comes on top of a bound, as the promise says.
#[derive(Clone, Debug)]
pub struct Promises {
    units: Vec<Unit>,
    tasks: Vec<bool>,
    slack_ns: u64,
    broken: Vec<Broken>,
}

/// So many are kept; a promise that is broken once is broken often.
const BROKEN_MAX: usize = 100;
const PPB: i128 = 1_000_000_000;

impl Promises {
    /// Nothing is promised yet; a bound may be passed by `slack_ns`.
    pub fn new(slack_ns: u64) -> Promises {
        Promises { units: Vec::new(), tasks: Vec::new(), slack_ns, broken: Vec::new() }
    }

    /// A unit is promised something from now on, or nothing.
    pub fn promise(&mut self, machine: &Machine, unit: UnitId, promise: Option<Promise>) {
        let now_ns = machine.now_ns();
        let unit = self.unit(unit);
        unit.promise = promise;
        unit.blackout_since_ns = unit.blackout_since_ns.map(|_| now_ns);
        unit.served_ns = 0;
        unit.counted_ns = now_ns;
        unit.least_debt = 0;
        unit.wants_since_ns = unit.wants_all().then_some(now_ns);
    }

    /// What was broken so far, blackouts that go on included.
    pub fn finish(&mut self, machine: &Machine) -> &[Broken] {
        for index in 0..self.units.len() {
            self.check(machine.now_ns(), UnitId(index as u32));
        }
        &self.broken
    }

    /// What was seen to be broken so far.
    pub fn broken(&self) -> &[Broken] {
        &self.broken
    }

    fn unit(&mut self, unit: UnitId) -> &mut Unit {
        if self.units.len() <= unit.index() {
            self.units.resize(unit.index() + 1, Unit::default());
        }
        &mut self.units[unit.index()]
    }

    /// Looks at a unit before anything about it changes: what it misses is largest then.
    fn check(&mut self, now_ns: u64, id: UnitId) {
        let slack_ns = self.slack_ns;
        let unit = self.unit(id);
        let Some(promise) = unit.promise else { return };
        let latency_ns = promise.reservation.latency_ns;
        let mut found = [None; 2];
        let blackout_ns = unit.blackout_since_ns.map_or(0, |since_ns| now_ns - since_ns.max(promise.from_ns));
        if blackout_ns > latency_ns + slack_ns {
            found[0] = Some(How::Blackout { ns: blackout_ns });
        }
        if let Some(debt) = unit.debt(now_ns) {
            let share = i128::from(promise.reservation.share.ppb()) * i128::from(promise.vcpus);
            let allowed = share * i128::from(latency_ns) + PPB * i128::from(slack_ns);
            let missing = debt - unit.least_debt - allowed;
            if missing > 0 {
                found[1] = Some(How::Share { ns: (missing / PPB) as u64 });
                unit.least_debt = debt; // said once
            }
            unit.least_debt = unit.least_debt.min(debt);
        }
        for how in found.into_iter().flatten() {
            if self.broken.len() < BROKEN_MAX {
                self.broken.push(Broken { unit: id, at_ns: now_ns, how });
            }
        }
    }

    fn change(&mut self, machine: &Machine, id: UnitId, runnable: i32, running: i32) {
        let now_ns = machine.now_ns();
        self.check(now_ns, id);
        let unit = self.unit(id);
        unit.count(now_ns);
        unit.runnable = unit.runnable.checked_add_signed(runnable).expect("as many come as go");
        unit.running = unit.running.checked_add_signed(running).expect("as many start as stop");
        match unit.runnable > 0 && unit.running == 0 {
            true => _ = unit.blackout_since_ns.get_or_insert(now_ns),
            false => unit.blackout_since_ns = None,
        }
        match unit.wants_all() {
            true if unit.wants_since_ns.is_none() => {
                unit.wants_since_ns = Some(now_ns);
                unit.served_ns = 0;
                unit.least_debt = 0;
            }
            true => {}
            false => unit.wants_since_ns = None,
        }
    }
}

impl Unit {
    /// Whether it has a task for each of its vCPUs.
    fn wants_all(&self) -> bool {
        self.promise.is_some_and(|promise| self.runnable >= promise.vcpus)
    }

    fn count(&mut self, now_ns: u64) {
        self.served_ns += (now_ns - self.counted_ns) * u64::from(self.running);
        self.counted_ns = now_ns;
    }

    /// Its share of the time since it wants all, less what it got; in ns and parts per billion.
    fn debt(&mut self, now_ns: u64) -> Option<i128> {
        self.count(now_ns);
        let (promise, since_ns) = (self.promise?, self.wants_since_ns?);
        let share = i128::from(promise.reservation.share.ppb()) * i128::from(promise.vcpus);
        Some(share * i128::from(now_ns - since_ns) - PPB * i128::from(self.served_ns))
    }
}

impl Observer for Promises {
    fn observe(&mut self, machine: &Machine, event: Event) {
        match event {
            Event::Born(task) => self.tasks.resize(task.index() + 1, false),
            Event::Woken(task) => {
                let newly = !std::mem::replace(&mut self.tasks[task.index()], true);
                self.change(machine, machine.task(task).unit, i32::from(newly), 0);
            }
            Event::Runs(_, task) => self.change(machine, machine.task(task).unit, 0, 1),
            Event::Stops(_, task, runnable) => {
                self.tasks[task.index()] = runnable;
                self.change(machine, machine.task(task).unit, -i32::from(!runnable), -1);
            }
            _ => {}
        }
    }
}
