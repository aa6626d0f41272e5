//! Who goes where and when: every vCPU on one CPU if that can be done, and as few as possible divided if not.

use std::rc::Rc;
use std::slice;

use rota_model::{CpuPlace, Model, Placement, Reservation, Share, TenantId};

use crate::demand::Demand;
use crate::divide::{Division, Group};
use crate::exclusive;
use crate::flow::{Part, assign};
use crate::infeasible::{Figures, Infeasible};
use crate::known::{Known, Work, slot_min_ns};
use crate::partition::{Item, Order, partition};
use crate::period::{CANDIDATES, Choice, HYPERPERIOD_NS, Task, Unkept, task};
use crate::reason::{Journal, Periods};
use crate::settle::Timetable;
use crate::shortage::{check_shares, explain};

const WHOLE: u64 = Share::ONE.ppb() as u64;
/// How often all are placed anew, each on one CPU and then divided, because some CPUs had not enough for what changes
/// of task and rounding took there.
const PLACEMENTS_MAX: u32 = 8;
const DIVISIONS_MAX: u32 = 16;
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
    pub groups: Vec<(Group, Option<Rc<Timetable>>)>,
}

/// Demands, and those for a whole CPU with its place.
type Apart = (Vec<Demand>, Vec<(usize, usize)>);

/// The tasks of all demands, and who goes where.
type Placed = (Vec<Task>, Vec<Group>);

/// Groups that want more than their CPUs have, with the tasks that want it.
type Overloads = Vec<(Group, Rc<[Task]>)>;

impl Wanted<'_> {
    /// Every vCPU on one CPU, or else divided. What changes of task and rounding take of a CPU shows only in its
    /// timetable; if it is more than some CPU has left, all are placed anew with that known.
    pub fn lay_out(&self, placement: Placement, known: &mut Known) -> Result<Layout, Infeasible> {
        let mut loads = vec![0; self.demands.len()];
        for _ in 0..PLACEMENTS_MAX {
            let apart = self.set_apart(&loads)?;
            let wanted = self.with(apart.as_ref());
            let Some((tasks, groups)) = wanted.partition(&loads, placement)? else { break };
            match wanted.timetables(tasks, groups, known) {
                Ok(layout) => return Ok(layout),
                Err(overloads) => raise(&mut loads, &overloads),
            }
        }
        let mut loads = vec![0; self.demands.len()];
        let mut attempts = 1;
        loop {
            let apart = self.set_apart(&loads)?;
            let wanted = self.with(apart.as_ref());
            let (tasks, groups) = wanted.divide(&loads)?;
            match wanted.timetables(tasks, groups, known) {
                Ok(layout) => return Ok(layout),
                Err(overloads) if attempts == DIVISIONS_MAX => return Err(self.crowded(&overloads)),
                Err(overloads) => raise(&mut loads, &overloads),
            }
            attempts += 1;
        }
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
        let wholes = check_shares(self.model, &demands, self.cpus, self.capacity)?;
        Ok(Some((demands, wholes)))
    }

    fn with<'b>(&'b self, apart: Option<&'b Apart>) -> Wanted<'b> {
        apart.map_or(*self, |(demands, wholes)| Wanted { demands, wholes, ..*self })
    }

    /// Each vCPU on one CPU, by the first way that places all of them: as asked for if possible, then with less waste
    /// by rounding, with the choosiest first, and packed tightly.
    fn partition(&self, loads: &[u64], placement: Placement) -> Result<Option<Placed>, Infeasible> {
        let placements = [placement, Placement::BestFit];
        let placements = if placement == Placement::BestFit { &placements[..1] } else { &placements };
        let choosy = self.demands.iter().any(|demand| demand.allowed.is_some());
        let orders = if choosy { &[Order::Size, Order::Choosiest][..] } else { &[Order::Size] };
        for choice in [Choice::Longest, Choice::LeastWaste] {
            let tasks = self.tasks(choice, loads)?;
            let items = self.items(&tasks);
            for &placement in placements {
                for &order in orders {
                    let places =
                        partition(&items, self.cpus.len(), self.capacity, order, placement, self.journal);
                    if let Some(places) = places {
                        let groups = self.single_groups(&tasks, &places);
                        self.note(choice, &tasks);
                        return Ok(Some((tasks, groups)));
                    }
                }
            }
        }
        Ok(None)
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

    /// As many vCPUs as possible on one CPU each, and the others divided.
    ///
    /// # Errors
    ///
    /// The CPUs have not enough for the loads even so.
    fn divide(&self, loads: &[u64]) -> Result<Placed, Infeasible> {
        let longest = self.divide_tasks(Choice::Longest, self.tasks(Choice::Longest, loads)?);
        if longest.is_ok() {
            return longest;
        }
        let frugal = self.divide_tasks(Choice::LeastWaste, self.tasks(Choice::LeastWaste, loads)?);
        if frugal.is_ok() {
            return frugal;
        }
        self.with_common_period(loads)?.map_or(frugal, Ok)
    }

    /// All with one period, for which rounding may take least. What it takes is known then, so that what it has been
    /// found to take otherwise does not count.
    fn with_common_period(&self, loads: &[u64]) -> Result<Option<Placed>, Infeasible> {
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
            .find_map(|period| self.divide_tasks(Periods::Common, equal(period)).ok()))
    }

    fn divide_tasks(&self, periods: impl Into<Periods>, tasks: Vec<Task>) -> Result<Placed, Infeasible> {
        let items = self.items(&tasks);
        let parts = assign(&items, self.cpus.len(), self.capacity)
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
    fn tasks(&self, choice: Choice, loads: &[u64]) -> Result<Vec<Task>, Infeasible> {
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

    fn items<'b>(&'b self, tasks: &[Task]) -> Vec<Item<'b>> {
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
