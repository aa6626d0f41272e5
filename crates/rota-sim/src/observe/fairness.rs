//! Whether tenants are served by weight: the bound of preemptive multi-queue fair queuing, whatever the policy.
//!
//! For any two tenants f and g that are backlogged, over any interval and on D CPUs,
//!
//! |S_f / w_f - S_g / w_g| <= (D + 1) (l / w_f + l / w_g)
//!
//! where S is the service received, w the weight and l the minimum slice (Zhao et al., *Preemptive multi-queue fair
//! queuing*, HPDC 2019, section 3). The largest difference over all intervals is how far it ever rises above where it
//! was lowest before, so that one number a pair and direction is enough.
//!
//! What *backlogged* means for tenants of many threads that wait for each other:
//!
//! - A tenant is backlogged while it has a thread that runs or would run. The interval ends when it has none.
//! - While none of them waits for a CPU, the tenant is limited by its own parallelism: no policy could give it more.
//!   What another one gains on it then is not counted against anybody. It is *owed*, and may be made good later, which
//!   is no unfairness either.
//! - When it falls behind in this way, it is owed what others were ahead of it before, too: it could have made that
//!   good now. Else all the moments that its threads take to be dispatched would add up for a tenant that has not the
//!   threads to use its share. Nobody is owed more than its share of the horizon.
//! - What others gain while it is limited is owed to it even if it was ahead of them, unless they are owed something
//!   themselves. Were it taken for their regaining that, round after round, nobody would know what is owed.
//! - Who goes for a moment is not behind anybody when it comes back, but it is as far ahead as it was: the others are
//!   owed still what they have not had meanwhile.
//! - Who comes begins where the tenant is that is furthest ahead, and others may be as far behind that one as their own
//!   bound has it: they are owed that, beside the newcomer.

use std::collections::BTreeMap;

use crate::ids::{TaskId, UnitId};
use crate::machine::Machine;
use crate::observe::{Event, Observer};

/// How fine normalised service is: in ns of a tenant of weight 100, over this.
const TICKS: u128 = 1 << 20;

/// How far a tenant may get ahead of another one over an interval at most: so often l / w of both together.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The minimum slice l, in ns; what changing tasks costs is to be part of it.
    pub slice_ns: u64,
    /// How often, in parts per mille.
    pub times: u64,
}

impl Bound {
    /// The definition's, on so many CPUs.
    pub fn of_definition(cpus: u32, slice_ns: u64) -> Bound {
        Bound { slice_ns, times: 1_000 * u64::from(cpus + 1) }
    }

    /// The scheduler's, on so many CPUs with so many lines (docs/FAIRNESS.md).
    pub fn of_lines(cpus: u32, lines: u32, slice_ns: u64) -> Bound {
        let (cpus, lines) = (u64::from(cpus), u64::from(lines));
        let slices = if lines == 1 { cpus + 3 } else { (lines + 1) * cpus + 4 };
        Bound { slice_ns, times: 1_000 * slices + 125 * cpus }
    }

    fn of(&self, first: u32, second: u32) -> u128 {
        let [first, second] = [first, second].map(|weight| normalised(self.slice_ns, weight));
        u128::from(self.times) * (first + second) / 1_000
    }
}

/// A tenant that is ahead of another one by more than the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfair {
    /// When that was seen first.
    pub at_ns: u64,
    /// Who is ahead.
    pub ahead: UnitId,
    /// Of whom.
    pub behind: UnitId,
}

/// The largest lead that a tenant had over another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// Who was ahead.
    pub ahead: UnitId,
    /// Of whom.
    pub behind: UnitId,
    /// In ns of CPU time of a tenant of weight 100.
    pub ns: u64,
    /// In parts per mille of the bound.
    pub of_bound: u64,
}

#[derive(Clone, Copy, Debug)]
struct Tenant {
    unit: UnitId,
    weight: u32,
    runnable: u32,
    running: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    runnable: bool,
    ran_since_ns: u64,
    used_ns: u64,
}

/// Two tenants, the earlier one first; normalised service, in [`TICKS`].
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    counted_ns: u64,
    /// How far each is ahead, of where it was least so since both are backlogged.
    lead: [u128; 2],
    /// What each is owed.
    owed: [u128; 2],
    most: [u128; 2],
    unfair: [bool; 2],
}

/// Watches tenants, each of which is a unit.
#[derive(Clone, Debug)]
pub struct Fairness {
    cpus: u32,
    bound: Bound,
    horizon_ns: u64,
    tenants: Vec<Tenant>,
    places: BTreeMap<UnitId, usize>,
    /// Of each two places, the lower first.
    pairs: BTreeMap<(usize, usize), Pair>,
    tasks: Vec<Task>,
    found: Vec<Unfair>,
}

fn normalised(ns: u64, weight: u32) -> u128 {
    u128::from(ns) * 100 * TICKS / u128::from(weight)
}

impl Fairness {
    /// On so many CPUs, where a tenant may be owed its share of `horizon_ns`.
    pub fn new(cpus: u32, bound: Bound, horizon_ns: u64) -> Fairness {
        Fairness {
            cpus,
            bound,
            horizon_ns,
            tenants: Vec::new(),
            places: BTreeMap::new(),
            pairs: BTreeMap::new(),
            tasks: Vec::new(),
            found: Vec::new(),
        }
    }

    /// A unit is a tenant of this weight, before it has a thread. Units that are none are not watched.
    pub fn tenant(&mut self, unit: UnitId, weight: u32) {
        let place = self.tenants.len();
        self.places.insert(unit, place);
        self.tenants.push(Tenant { unit, weight, runnable: 0, running: 0 });
        self.pairs.extend((0..place).map(|other| ((other, place), Pair::default())));
    }

    /// Forgets what was seen so far, but not what anybody is owed.
    pub fn begin(&mut self, machine: &Machine) {
        (0..self.tenants.len()).for_each(|place| self.count(place, machine.now_ns()));
        for pair in self.pairs.values_mut() {
            *pair = Pair { counted_ns: pair.counted_ns, owed: pair.owed, ..Pair::default() };
        }
        self.found.clear();
    }

    /// Every two of whom one was too far ahead, once each.
    pub fn finish(&mut self, machine: &Machine) -> &[Unfair] {
        (0..self.tenants.len()).for_each(|place| self.count(place, machine.now_ns()));
        &self.found
    }

    /// The largest lead so far, by its part of the bound; none while there are no two tenants.
    pub fn worst(&self) -> Option<Lead> {
        let leads = self.pairs.iter().flat_map(|(&(first, second), pair)| {
            let bound = self.bound(first, second);
            [(first, second, pair.most[0], bound), (second, first, pair.most[1], bound)]
        });
        let leads = leads.map(|(ahead, behind, most, bound)| Lead {
            ahead: self.tenants[ahead].unit,
            behind: self.tenants[behind].unit,
            ns: (most / TICKS) as u64,
            of_bound: (most * 1_000 / bound) as u64,
        });
        leads.max_by_key(|lead| lead.of_bound)
    }

    fn bound(&self, first: usize, second: usize) -> u128 {
        self.bound.of(self.tenants[first].weight, self.tenants[second].weight)
    }

    /// A share of the horizon, over its weight, is the same for all.
    fn owed_most(&self) -> u128 {
        let backlogged = self.tenants.iter().filter(|tenant| tenant.runnable > 0);
        let weights = backlogged.map(|tenant| tenant.weight).sum::<u32>().max(1);
        normalised(self.horizon_ns * u64::from(self.cpus), weights)
    }

    /// Counts every pair that a tenant is one of up to now, before anything about it changes.
    fn count(&mut self, place: usize, now_ns: u64) {
        let owed_most = self.owed_most();
        for other in (0..self.tenants.len()).filter(|other| *other != place) {
            let (first, second) = (place.min(other), place.max(other));
            let bound = self.bound(first, second);
            let tenants = [self.tenants[first], self.tenants[second]];
            let Some(pair) = self.pairs.get_mut(&(first, second)) else { continue };
            let ran_ns = now_ns - std::mem::replace(&mut pair.counted_ns, now_ns);
            let served = tenants.map(|of| normalised(ran_ns * u64::from(of.running), of.weight));
            if tenants.iter().any(|tenant| tenant.runnable == 0) {
                pair.lead = [0; 2];
                for side in [0, 1] {
                    let left = pair.owed[side].saturating_sub(served[side]);
                    pair.owed[side] = if tenants[side].runnable > 0 { left } else { 0 };
                }
                continue;
            }
            let ahead = usize::from(served[1] > served[0]);
            pair.gain(ahead, served[ahead] - served[1 - ahead], &tenants[1 - ahead], owed_most);
            for side in [0, 1] {
                pair.most[side] = pair.most[side].max(pair.lead[side]);
                if pair.lead[side] > bound && !std::mem::replace(&mut pair.unfair[side], true) {
                    let (ahead, behind) = (tenants[side].unit, tenants[1 - side].unit);
                    self.found.push(Unfair { at_ns: now_ns, ahead, behind });
                }
            }
        }
    }

    /// A tenant is backlogged from now on: it begins where whoever is furthest ahead is, with what that one has in
    /// service. So everybody is owed beside it what they are behind that one, which is within another bound than
    /// theirs.
    fn comes(&mut self, place: usize) {
        let slice_ns = self.bound.slice_ns;
        let counted = |of: &Tenant| normalised(slice_ns * u64::from(of.running), of.weight);
        for other in (0..self.tenants.len()).filter(|other| *other != place) {
            let behind = |(&(first, second), pair): (&(usize, usize), &Pair)| match other {
                _ if other == first => pair.owed[0] + pair.lead[1] + counted(&self.tenants[second]),
                _ if other == second => pair.owed[1] + pair.lead[0] + counted(&self.tenants[first]),
                _ => 0,
            };
            let owed = self.pairs.iter().map(behind).max().unwrap_or(0);
            if let Some(pair) = self.pairs.get_mut(&(place.min(other), place.max(other))) {
                pair.owed[usize::from(other > place)] = owed;
            }
        }
    }

    /// A thread of a tenant has stopped, of whose time on its CPU interrupts had so much: others are ahead by that.
    fn lost(&mut self, place: usize, ns: u64) {
        let (owed_most, tenant) = (self.owed_most(), self.tenants[place]);
        for (&(first, second), pair) in &mut self.pairs {
            let other = if place == first { second } else { first };
            let concerned = place == first || place == second;
            if concerned && tenant.runnable > 0 && self.tenants[other].runnable > 0 {
                pair.gain(usize::from(other == second), normalised(ns, tenant.weight), &tenant, owed_most);
            }
        }
    }

    fn stops(&mut self, machine: &Machine, id: TaskId, runnable: bool) {
        let used_ns = machine.task(id).used_ns;
        let task = &mut self.tasks[id.index()];
        let lost_ns = (machine.now_ns() - task.ran_since_ns).saturating_sub(used_ns - task.used_ns);
        task.runnable = runnable;
        self.change(machine, id, -i32::from(!runnable), -1);
        if let Some(&place) = self.places.get(&machine.task(id).unit) {
            self.lost(place, lost_ns);
        }
    }

    fn change(&mut self, machine: &Machine, task: TaskId, runnable: i32, running: i32) {
        let Some(&place) = self.places.get(&machine.task(task).unit) else { return };
        self.count(place, machine.now_ns());
        if self.tenants[place].runnable == 0 {
            self.comes(place);
        }
        let tenant = &mut self.tenants[place];
        tenant.runnable = tenant.runnable.checked_add_signed(runnable).expect("as many come as go");
        tenant.running = tenant.running.checked_add_signed(running).expect("as many start as stop");
    }
}

impl Pair {
    /// One has gained so much on the other.
    fn gain(&mut self, ahead: usize, gain: u128, other: &Tenant, owed_most: u128) {
        let behind = 1 - ahead;
        let waits = other.running < other.runnable;
        let regained = if waits || self.owed[ahead] > 0 { gain.min(self.lead[behind]) } else { 0 };
        self.lead[behind] -= regained;
        let made_good = (gain - regained).min(self.owed[ahead]);
        self.owed[ahead] -= made_good;
        if waits {
            self.lead[ahead] += gain - made_good;
            return;
        }
        let excused = gain - regained - made_good;
        let before = excused.min(self.lead[ahead]);
        self.lead[ahead] -= before;
        self.owed[behind] = (self.owed[behind] + excused + before).min(owed_most);
    }
}

impl Observer for Fairness {
    fn observe(&mut self, machine: &Machine, event: Event) {
        match event {
            Event::Born(task) => self.tasks.resize(task.index() + 1, Task::default()),
            Event::Woken(task) => {
                let newly = !std::mem::replace(&mut self.tasks[task.index()].runnable, true);
                self.change(machine, task, i32::from(newly), 0);
            }
            Event::Runs(_, id) => {
                let task = &mut self.tasks[id.index()];
                (task.ran_since_ns, task.used_ns) = (machine.now_ns(), machine.task(id).used_ns);
                self.change(machine, id, 0, 1);
            }
            Event::Stops(_, task, runnable) => self.stops(machine, task, runnable),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(unit: u32, runnable: u32, running: u32) -> Tenant {
        Tenant { unit: UnitId(unit), weight: 100, runnable, running }
    }

    /// Each time round one waits to be dispatched, has all CPUs, and is limited by its own parallelism.
    #[test]
    fn what_is_owed_adds_up_round_by_round() {
        let (waits, limited) = (tenant(0, 2, 1), tenant(0, 1, 1));
        let mut pair = Pair::default();
        pair.gain(0, 5, &waits, 1_000);
        for _ in 0..100 {
            pair.gain(1, 2, &waits, 1_000);
            pair.gain(1, 10, &limited, 1_000);
            pair.gain(0, 11, &waits, 1_000);
        }
        assert!((95..=100).contains(&pair.owed[0]), "it has fallen behind by 100: {pair:?}");
        pair.gain(0, 95, &waits, 1_000);
        assert!(pair.lead[0] <= 10, "which is made good: {pair:?}");
    }

    /// Else a tenant whose threads all sleep for a moment, now and then, would seem to owe nobody anything.
    #[test]
    fn who_goes_for_a_moment_owes_what_it_owed() {
        let mut fairness = Fairness::new(4, Bound::of_definition(4, 1_000), 1_000_000);
        (0..2).for_each(|unit| fairness.tenant(UnitId(unit), 100));
        (fairness.tenants[0].runnable, fairness.tenants[0].running) = (4, 3);
        let owed = |us: u64| normalised(us * 1_000, 100);
        fairness.pairs.insert((0, 1), Pair { owed: [owed(70), owed(5)], ..Pair::default() });
        fairness.count(1, 10_000);
        fairness.comes(1);
        assert_eq!(fairness.pairs[&(0, 1)].owed, [owed(70 - 3 * 10), 0]);
    }

    /// The first is 70 us ahead of the second, and has 3 us in service.
    #[test]
    fn others_are_owed_beside_who_comes_what_they_are_behind() {
        let mut fairness = Fairness::new(4, Bound::of_definition(4, 1_000), 1_000_000);
        (0..3).for_each(|unit| fairness.tenant(UnitId(unit), 100));
        for (place, running) in [(0, 3), (1, 1)] {
            (fairness.tenants[place].runnable, fairness.tenants[place].running) = (4, running);
        }
        fairness.pairs.insert((0, 1), Pair { lead: [normalised(70_000, 100), 0], ..Pair::default() });
        fairness.comes(2);
        assert_eq!(fairness.pairs[&(1, 2)].owed, [normalised(73_000, 100), 0]);
    }
}
