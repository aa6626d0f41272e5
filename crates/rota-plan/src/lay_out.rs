//! Who goes where and when: every vCPU on one CPU if that can be done, and as few as possible divided if not.

use std::borrow::Cow;
use std::slice;
use std::sync::Arc;

use rota_model::{CpuPlace, Model, Placement, Reservation, Share, TenantId};

use crate::apart::{Teams, improve, search};
use crate::demand::Demand;
use crate::divide::{Division, Group};
use crate::exclusive;
use crate::flow::{Part, assign};
use crate::gang::{Gang, gangs, join};
use crate::infeasible::{Figures, Infeasible};
use crate::known::{Known, Work, slot_min_ns};
use crate::partition::{Fit, Item, Order, note, partition};
use crate::period::{CANDIDATES, Choice, HYPERPERIOD_NS, Task, Unkept, task};
use crate::reason::{Journal, Periods, Together};
use crate::settle::Timetable;
use crate::shortage::{check_shares, explain};

const WHOLE: u64 = Share::ONE.ppb() as u64;
/// How often all are placed anew, each on one CPU and then divided, because some CPUs had not enough for what changes
/// of task and rounding took there.
const PLACEMENTS_MAX: u32 = 8;
const DIVISIONS_MAX: u32 = 16;
/// Of so many vCPUs all ways to place them are tried until those of one tenant are apart. Of more the first is taken.
pub(crate) const FEW: usize = 64;
/// So many periods are tried that all vCPUs have in common.
const COMMON_TRIED: usize = 8;

/// What is to be laid out.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub model: &'a Model,
    pub demands: &'a [Demand],
    /// Demands for a whole CPU, and the place of the CPU that each has.
    pub wholes: &'a [(usize, usize)],
    /// The CPUs that may carry reservations.
    pub cpus: &'a [u32],
    /// What each of them has to give if it is not one vCPU's, in ns of a hyperperiod.
    pub capacity: u64,
    /// Where to note what is decided.
    pub journal: Option<&'a Journal>,
}

/// Who goes where and when.
pub(crate) struct Layout {
    /// As placed, by demand. What changes of task take of them is for the timetables to say.
    pub tasks: Vec<Task>,
    /// CPUs and vCPUs by groups that have nothing to do with each other, and the timetable of each group: none for a
    /// CPU that carries nothing or one whole vCPU.
    pub groups: Vec<(Group, Option<Arc<Timetable>>)>,
}

impl Layout {
    /// Whether the table's format has room for it.
    fn is_storable(&self) -> bool {
        self.groups.iter().all(|(_, timetable)| timetable.as_deref().is_none_or(Timetable::is_storable))
    }
}

/// Whether vCPUs of one tenant are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Apart,
    Anyhow,
}

/// A CPU for each item.
pub(crate) struct Found {
    /// How it was found.
    pub fit: Fit,
    pub places: Vec<usize>,
    /// [`Teams::excess`], if they are kept apart.
    pub excess: u64,
}

/// Demands, and those for a whole CPU with its place.
pub(crate) type Apart = (Vec<Demand>, Vec<(usize, usize)>);

/// The tasks of all demands, and who goes where.
type Placed = (Vec<Task>, Vec<Group>);

/// Groups that want more than their CPUs have, with the tasks that want it.
type Overloads = Vec<(Group, Arc<[Task]>)>;

impl Wanted<'_> {
    /// Every vCPU on one CPU, those of one tenant on different ones if that can be, or else divided. Where vCPUs are
    /// divided, `way` says whether the others are kept apart.
    pub fn lay_out(&self, placement: Placement, way: Way, known: &mut Known) -> Result<Layout, Infeasible> {
        // Who asks for full CPUs gets them.
        let ways = if placement == Placement::WorstFit && self.has_teams() {
            &[Way::Apart, Way::Anyhow][..]
        } else {
            &[Way::Anyhow]
        };
        for &way in ways {
            match self.lay_out_whole(placement, way, known) {
                Ok(Some(layout)) => return Ok(layout),
                Err(infeasible) if way == Way::Anyhow => return Err(infeasible),
                Ok(None) | Err(_) => {}
            }
        }
        let mut loads = vec![0; self.demands.len()];
        let mut attempts = 1;
        loop {
            let apart = self.set_apart(&loads)?;
            let wanted = self.with(apart.as_ref());
            let seated = wanted.seat_gangs(&loads)?;
            let (tasks, groups) = wanted.with(seated.as_ref()).divide_beside(&loads, way)?;
            match wanted.timetables(tasks, groups, known) {
                Ok(layout) => return Ok(layout),
                Err(overloads) if attempts == DIVISIONS_MAX => return Err(self.crowded(&overloads)),
                Err(overloads) => raise(&mut loads, &overloads),
            }
            attempts += 1;
        }
    }

    /// Whether a tenant has several vCPUs.
    fn has_teams(&self) -> bool {
        let mut tenants: Vec<TenantId> = self.demands.iter().map(|demand| demand.tenant).collect();
        tenants.sort_unstable();
        tenants.windows(2).any(|two| two[0] == two[1])
    }

    /// Every vCPU on one CPU. What changes of task and rounding take of a CPU shows only in its timetable. If it is
    /// more than some CPU has left, all are placed anew with that known.
    fn lay_out_whole(
        &self,
        placement: Placement,
        way: Way,
        known: &mut Known,
    ) -> Result<Option<Layout>, Infeasible> {
        let mut loads = vec![0; self.demands.len()];
        for _ in 0..PLACEMENTS_MAX {
            let apart = self.set_apart(&loads)?;
            let wanted = self.with(apart.as_ref());
            let Some((tasks, groups)) = wanted.partition(&loads, placement, way)? else { break };
            match wanted.timetables(tasks, groups, known) {
                Ok(layout) if way == Way::Apart && !layout.is_storable() => break,
                Ok(layout) => return Ok(Some(layout)),
                Err(overloads) => raise(&mut loads, &overloads),
            }
        }
        Ok(None)
    }

    /// The demands, and the whole CPUs, with cores for those that share none; none if there are no such.
    fn set_apart(&self, loads: &[u64]) -> Result<Option<Apart>, Infeasible> {
        if self.model.tenants.iter().all(|tenant| !tenant.exclusive_cores) {
            return Ok(None);
        }
        let tasks = self.tasks(Choice::LeastWaste, loads)?;
        let loads: Vec<u64> = tasks.iter().map(|task| task.load()).collect();
        let mut demands = self.demands.to_vec();
        exclusive::set_apart(self.model, &mut demands, &loads, self.cpus, self.capacity)?;
        let mut wholes = check_shares(self.model, &demands, self.cpus, self.capacity)?;
        exclusive::pair(&self.model.host, &demands, self.cpus, &mut wholes, |_, _| true);
        Ok(Some((demands, wholes)))
    }

    /// The same for those that have no CPU to themselves.
    fn pair(&self, tasks: &[Task], places: &mut [usize]) {
        let of_exclusive = (0..places.len()).filter(|&at| self.demands[at].is_exclusive);
        let mut given: Vec<(usize, usize)> = of_exclusive.map(|at| (at, places[at])).collect();
        let is_alike = |one: usize, other: usize| tasks[one] == tasks[other];
        exclusive::pair(&self.model.host, self.demands, self.cpus, &mut given, is_alike);
        given.into_iter().for_each(|(at, cpu)| places[at] = cpu);
    }

    fn with<'b>(&'b self, apart: Option<&'b Apart>) -> Wanted<'b> {
        apart.map_or(*self, |(demands, wholes)| Wanted { demands, wholes, ..*self })
    }

    /// Each vCPU on one CPU, by the first way that places all of them: as asked for if possible, then with less waste
    /// by rounding, with the choosiest first, and packed tightly. Of vCPUs that are to be apart, by the first way that
    /// has all of them so, or else the way that has most.
    fn partition(&self, loads: &[u64], placement: Placement, way: Way) -> Result<Option<Placed>, Infeasible> {
        let mut best: Option<(Choice, Vec<Task>, Found)> = None;
        let gangs = gangs(self.demands);
        for choice in [Choice::Longest, Choice::LeastWaste] {
            let tasks = self.tasks(choice, loads)?;
            let items = self.items(&tasks);
            let loose = self.loose_items(&items);
            let teams = (way == Way::Apart).then(|| self.teams(&loose)).flatten();
            let found = match &teams {
                teams if !gangs.is_empty() => {
                    self.find_beside(&items, &gangs, &self.fits(placement), teams.as_ref())
                }
                Some(teams) => self.find_apart(&items, &loose, &self.fits(placement), teams),
                None => self.find(&items, &self.fits(placement)),
            };
            let excess = best.as_ref().map_or(u64::MAX, |(.., best)| best.excess);
            if let Some(found) = found.filter(|found| found.excess < excess) {
                best = Some((choice, tasks, found));
            }
            if best.as_ref().is_some_and(|(.., best)| best.excess == 0 || items.len() > FEW) {
                break;
            }
        }
        let Some((choice, tasks, mut found)) = best else { return Ok(None) };
        self.pair(&tasks, &mut found.places);
        self.note(choice, &tasks);
        self.note_places(&self.loose_items(&self.items(&tasks)), &found, placement, way);
        self.note_gangs(&gangs);
        let groups = join(self.single_groups(&tasks, &found.places), &gangs, &tasks);
        Ok(Some((tasks, groups)))
    }

    /// The ways to place all, in the order in which they are tried.
    pub fn fits(&self, placement: Placement) -> Vec<Fit> {
        let choosy = self.demands.iter().any(|demand| demand.allowed.is_some());
        let orders = if choosy { &[Order::Size, Order::Choosiest][..] } else { &[Order::Size] };
        let placements = [placement, Placement::BestFit];
        let placements = if placement == Placement::BestFit { &placements[..1] } else { &placements };
        let fits = placements
            .iter()
            .flat_map(|&placement| orders.iter().map(move |&order| Fit { order, placement }));
        fits.collect()
    }

    fn teams(&self, items: &[Item]) -> Option<Teams> {
        Teams::new(items, self.demands.iter().map(|demand| demand.tenant), self.cpus.len())
    }

    /// A CPU for each item, by the first way that places all.
    fn find(&self, items: &[Item], fits: &[Fit]) -> Option<Found> {
        fits.iter().find_map(|&fit| {
            let places = partition(items, self.cpus.len(), self.capacity, fit, None)?;
            Some(Found { fit, places, excess: 0 })
        })
    }

    /// A CPU for each item, by the first way that leaves none of a team with another that need not be; else the
    /// first way that places all, bettered as far as it can be. `loose` are the items as they are before whole CPUs
    /// are chosen.
    pub fn find_apart(&self, items: &[Item], loose: &[Item], fits: &[Fit], teams: &Teams) -> Option<Found> {
        let (cpus, capacity) = (self.cpus.len(), self.capacity);
        let mut best: Option<Found> = None;
        // Where those that are to be apart find no room, they may find it anyhow.
        for (&fit, kept) in fits.iter().flat_map(|fit| [(fit, Some(teams)), (fit, None)]) {
            let Some(mut places) = partition(items, cpus, capacity, fit, kept) else { continue };
            if teams.excess(&places) > 0 {
                improve(items, &mut places, cpus, capacity, teams);
            }
            let excess = teams.excess(&places);
            if best.as_ref().is_none_or(|best| excess < best.excess) {
                best = Some(Found { fit, places, excess });
            }
            if excess == 0 || items.len() > FEW {
                return best;
            }
        }
        let most = best.as_ref().map_or(u64::MAX, |best| best.excess);
        match search(loose, cpus, capacity, teams, most) {
            Some(places) => Some(Found { fit: fits[0], excess: teams.excess(&places), places }),
            None => best,
        }
    }

    /// Why each is on its CPU, and why with others of its tenant.
    fn note_places(&self, items: &[Item], found: &Found, placement: Placement, way: Way) {
        let Some(journal) = self.journal else { return };
        let (cpus, capacity) = (self.cpus.len(), self.capacity);
        note(items, cpus, capacity, found.fit, &found.places, journal);
        let Some(teams) = self.teams(items) else { return };
        for item in 0..items.len() {
            let together = match (teams.together(items, item, &found.places, capacity), way) {
                (Some(Together::NoRoom { .. }), Way::Anyhow) if placement == Placement::BestFit => {
                    Some(Together::Packed)
                }
                (Some(Together::NoRoom { .. }), Way::Anyhow) => Some(Together::Costs),
                (together, _) => together,
            };
            journal.together(item, together);
        }
    }

    /// What each CPU carries by itself, by period.
    fn single_groups(&self, tasks: &[Task], places: &[usize]) -> Vec<Group> {
        let single = |cpu| Group { cpus: vec![cpu], vcpus: Vec::new(), joint: None };
        let mut groups: Vec<Group> = (0..self.cpus.len()).map(single).collect();
        for (vcpu, &place) in (0..).zip(places) {
            groups[place].vcpus.push(vcpu);
        }
        for group in &mut groups {
            group.vcpus.sort_by_key(|&vcpu| (tasks[vcpu as usize], vcpu));
        }
        groups
    }

    /// As [`Wanted::divide`], and CPUs that gangs have in common are planned together.
    ///
    /// # Errors
    ///
    /// If there are gangs: nobody would be short of anything without them.
    fn divide_beside(&self, loads: &[u64], way: Way) -> Result<Placed, Infeasible> {
        let gangs: Vec<Gang> = gangs(self.demands);
        let Some(first) = gangs.first() else { return self.divide(loads, way) };
        let Ok((tasks, groups)) = self.divide(loads, way) else {
            let tasks = self.tasks(Choice::LeastWaste, loads)?;
            return Err(self.apart(&self.items(&tasks), first));
        };
        self.note_gangs(&gangs);
        let groups = join(groups, &gangs, &tasks);
        Ok((tasks, groups))
    }

    /// As many vCPUs as possible on one CPU each, and the others divided.
    ///
    /// # Errors
    ///
    /// The CPUs have not enough for the loads even so.
    fn divide(&self, loads: &[u64], way: Way) -> Result<Placed, Infeasible> {
        let longest = self.divide_tasks(Choice::Longest, self.tasks(Choice::Longest, loads)?, way);
        if longest.is_ok() {
            return longest;
        }
        let frugal = self.divide_tasks(Choice::LeastWaste, self.tasks(Choice::LeastWaste, loads)?, way);
        if frugal.is_ok() {
            return frugal;
        }
        self.with_common_period(loads, way)?.map_or(frugal, Ok)
    }

    /// All with one period, for which rounding may take least. What it takes is known then, so that what it has been
    /// found to take otherwise does not count.
    fn with_common_period(&self, loads: &[u64], way: Way) -> Result<Option<Placed>, Infeasible> {
        let switch_ns = self.model.host.costs.switch_ns;
        let nothing = vec![0; loads.len()];
        let tasks = self.tasks(Choice::Longest, if switch_ns == 0 { &nothing } else { loads })?;
        let is_divisible = |task: &&Task| task.share != Share::ONE;
        let shortest = tasks.iter().filter(is_divisible).map(|task| task.period).min();
        let periods =
            CANDIDATES.into_iter().filter(|&period| shortest.is_some_and(|shortest| period <= shortest));
        let equal =
            |period| tasks.iter().map(|task| task.shortened(period, switch_ns)).collect::<Vec<Task>>();
        Ok(periods
            .take(COMMON_TRIED)
            .find_map(|period| self.divide_tasks(Periods::Common, equal(period), way).ok()))
    }

    fn divide_tasks(
        &self,
        periods: impl Into<Periods>,
        tasks: Vec<Task>,
        way: Way,
    ) -> Result<Placed, Infeasible> {
        let items = self.items(&tasks);
        let teams = (way == Way::Apart).then(|| self.teams(&items)).flatten();
        let parts = assign(&items, self.cpus.len(), self.capacity, teams.as_ref())
            .map_err(|short| explain(&short, self.model, self.demands, &items, self.cpus, self.capacity))?;
        let groups = self.divided_groups(&tasks, parts);
        self.note(periods, &tasks);
        Ok((tasks, groups))
    }

    fn note(&self, periods: impl Into<Periods>, tasks: &[Task]) {
        if let Some(journal) = self.journal {
            journal.placed(periods, tasks);
        }
    }

    fn divided_groups(&self, tasks: &[Task], mut parts: Vec<Part>) -> Vec<Group> {
        let mut is_whole = vec![false; self.cpus.len()];
        self.wholes.iter().for_each(|&(_, cpu)| is_whole[cpu] = true);
        parts.retain(|part| !is_whole[part.cpu]);
        let allowed = |vcpu: usize| -> Vec<usize> {
            let is_open = |cpu: &usize| !is_whole[*cpu];
            match &self.demands[vcpu].allowed {
                Some(allowed) => allowed.iter().copied().filter(is_open).collect(),
                None => (0..self.cpus.len()).filter(is_open).collect(),
            }
        };
        let topology = &self.model.host.topology;
        let places: Vec<Option<CpuPlace>> = self.cpus.iter().map(|&cpu| topology.place(cpu)).collect();
        let distance = |one: usize, other: usize| match (&places[one], &places[other]) {
            (Some(one), Some(other)) => one.distance(other),
            _ => u32::MAX,
        };
        let costs = self.model.host.costs;
        // Whoever it preempts loses time as well.
        let piece_cost_ns = 2 * costs.switch_ns + costs.migration_ns;
        let division = Division {
            tasks,
            parts: &parts,
            allowed: &allowed,
            distance: &distance,
            cpus: self.cpus.len(),
            capacity: self.capacity,
            switch_ns: costs.switch_ns,
            piece_cost_ns,
            least_ns: slot_min_ns(&self.model.host).max(piece_cost_ns + 1),
            journal: self.journal,
        };
        let mut groups = division.groups();
        for group in groups.iter_mut().filter(|group| group.joint.is_none()) {
            let whole = self.wholes.iter().find(|&&(_, cpu)| cpu == group.cpus[0]);
            group.vcpus.extend(whole.map(|&(vcpu, _)| vcpu as u32));
            group.vcpus.sort_by_key(|&vcpu| (tasks[vcpu as usize], vcpu));
        }
        groups
    }

    /// `loads` has what each demand is known to take of a CPU, in ns of a hyperperiod; never less than its share and
    /// one change of tasks is counted.
    pub fn tasks(&self, choice: Choice, loads: &[u64]) -> Result<Vec<Task>, Infeasible> {
        let switch_ns = self.model.host.costs.switch_ns;
        let one = |(demand, &load): (&Demand, &u64)| {
            let task = task(&demand.reservation, choice, switch_ns).map_err(|unkept| {
                let tenant = &self.model.tenants[demand.tenant as usize];
                refused(&tenant.name, &demand.reservation, unkept, switch_ns)
            })?;
            let known =
                load.div_ceil(HYPERPERIOD_NS / task.period).min(task.period).saturating_sub(task.net());
            Ok(Task { cost: task.cost.max(known), ..task })
        };
        self.demands.iter().zip(loads).map(one).collect()
    }

    pub fn items<'b>(&'b self, tasks: &[Task]) -> Vec<Item<'b>> {
        let item = |(task, demand): (&Task, &'b Demand)| Item {
            // As much as a whole CPU would be one that wants a CPU to itself.
            load: task.load().min(HYPERPERIOD_NS - 1),
            allowed: demand.allowed.as_deref(),
        };
        let mut items: Vec<Item> = tasks.iter().zip(self.demands).map(item).collect();
        for (item, cpu) in self.wholes {
            items[*item] = Item { load: HYPERPERIOD_NS, allowed: Some(slice::from_ref(cpu)) };
        }
        items
    }

    /// The items, those that want a CPU to themselves with all CPUs that they may use.
    fn loose_items<'b>(&'b self, items: &'b [Item<'b>]) -> Cow<'b, [Item<'b>]> {
        if self.wholes.is_empty() {
            return Cow::Borrowed(items);
        }
        let mut items = items.to_vec();
        for &(item, _) in self.wholes {
            items[item].allowed = self.demands[item].allowed.as_deref();
        }
        Cow::Owned(items)
    }

    fn timetables(
        &self,
        tasks: Vec<Task>,
        groups: Vec<Group>,
        known: &mut Known,
    ) -> Result<Layout, Overloads> {
        let is_whole =
            |&vcpu: &u32| self.wholes.binary_search_by_key(&(vcpu as usize), |&(whole, _)| whole).is_ok();
        let has_timetable = |group: &Group| group.vcpus.first().is_some_and(|vcpu| !is_whole(vcpu));
        let work = |group: &Group| -> Work {
            let carried = group.vcpus.iter().map(|&vcpu| tasks[vcpu as usize]);
            (carried.collect(), group.joint.clone())
        };
        let works: Vec<Work> = groups.iter().filter(|group| has_timetable(group)).map(work).collect();
        known.prepare(&works);
        let mut made = works.into_iter().map(|work| known.timetable(work));
        let mut layout = Layout { groups: Vec::with_capacity(groups.len()), tasks };
        let mut overloads = Overloads::new();
        for group in groups {
            match has_timetable(&group).then(|| made.next()).flatten().transpose() {
                Ok(timetable) => layout.groups.push((group, timetable)),
                Err(tasks) => overloads.push((group, tasks)),
            }
        }
        if overloads.is_empty() { Ok(layout) } else { Err(overloads) }
    }

    fn crowded(&self, overloads: &Overloads) -> Infeasible {
        let (group, tasks) = &overloads[0];
        let ppb = |of: fn(&Task) -> u64| {
            let sum: u128 =
                tasks.iter().map(|task| u128::from(of(task) * (HYPERPERIOD_NS / task.period))).sum();
            (sum * u128::from(WHOLE)).div_ceil(u128::from(HYPERPERIOD_NS)) as u64
        };
        let available_ppb = WHOLE - u64::from(self.model.host.floor_ppb);
        Infeasible::Crowded {
            cpus: group.cpus.iter().map(|&place| self.cpus[place]).collect(),
            figures: Figures {
                needed_ppb: ppb(|task| task.net()),
                costs_ppb: ppb(|task| task.cost),
                available_ppb: group.cpus.len() as u64 * available_ppb,
            },
            tenants: self.tenant_names(&group.vcpus),
        }
    }

    /// Separated by commas.
    pub fn tenant_names(&self, vcpus: &[u32]) -> String {
        let tenant = |&vcpu: &u32| self.demands[vcpu as usize].tenant;
        let mut tenants: Vec<TenantId> = vcpus.iter().map(tenant).collect();
        tenants.sort_unstable();
        tenants.dedup();
        let names: Vec<&str> =
            tenants.iter().map(|&id| self.model.tenants[id as usize].name.as_str()).collect();
        names.join(", ")
    }
}

/// Why a reservation has no task, where a change of tasks takes `switch_ns`.
pub(crate) fn refused(
    tenant: &str,
    &Reservation { share, latency_ns, .. }: &Reservation,
    unkept: Unkept,
    switch_ns: u64,
) -> Infeasible {
    let tenant = tenant.to_owned();
    match unkept {
        Unkept::Latency(smallest_ns) => {
            Infeasible::Latency { tenant, share, latency_ns, smallest_ns, switch_ns }
        }
        Unkept::Share => Infeasible::Share { tenant, share, switch_ns },
    }
}

/// What the overloads say is needed counts from now on.
fn raise(loads: &mut [u64], overloads: &Overloads) {
    for (group, tasks) in overloads {
        for (&vcpu, task) in group.vcpus.iter().zip(&**tasks) {
            loads[vcpu as usize] = loads[vcpu as usize].max(task.load());
        }
    }
}
