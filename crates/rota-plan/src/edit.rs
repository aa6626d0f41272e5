//! A change to a roster that plans only the CPUs concerned.
//!
//! Who goes leaves room behind, and who comes is put on one CPU that has room, the largest first. Then each CPU that
//! has got or lost someone gets a new timetable; CPUs with divided vCPUs are laid out anew together. Whatever fails,
//! the roster is as it was.

use std::collections::{BTreeMap, BTreeSet};

use rota_model::Model;

use crate::demand::Demand;
use crate::lay_out::Wanted;
use crate::partition::Item;
use crate::period::Task;
use crate::plan::Ground;
use crate::roster::{Carried, Member, Owner, Roster};
use crate::settle::Timetable;
use crate::shortage::check_shares;

/// So many CPUs may turn out not to have the time for who was put there before the edit is given up.
const FAILURES_MAX: u32 = 4;

/// A vCPU that comes.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub demand: Demand,
    /// What it is placed as, and what it is placed as where there is no room for that.
    pub tasks: [Task; 2],
    /// The CPU that it had until now.
    pub before: Option<usize>,
}

/// An edit in progress.
pub(crate) struct Edit<'a> {
    model: &'a Model,
    ground: &'a mut Ground,
    roster: &'a mut Roster,
    /// Every group that differs, as it was.
    before: BTreeMap<usize, Carried>,
    /// Groups that need another timetable.
    stale: BTreeSet<usize>,
    /// CPUs that turned out not to have the time for those who come.
    closed: BTreeSet<usize>,
}

/// What an edit did.
#[derive(Debug)]
pub(crate) struct Done {
    /// The numbers of those who came, in their order.
    pub vcpus: Vec<u32>,
    /// The CPUs whose slots differ, by place.
    pub cpus: BTreeSet<usize>,
}

impl<'a> Edit<'a> {
    /// `model` is as it was before the edit.
    pub fn new(model: &'a Model, ground: &'a mut Ground, roster: &'a mut Roster) -> Edit<'a> {
        let [stale, closed] = [BTreeSet::new(), BTreeSet::new()];
        Edit { model, ground, roster, before: BTreeMap::new(), stale, closed }
    }

    /// Takes out vCPUs and puts others in. None if those who come do not fit so, and always something if nobody comes.
    pub fn run(mut self, gone: &[u32], newcomers: Vec<Newcomer>) -> Option<Done> {
        for &vcpu in gone {
            self.take_out(vcpu);
        }
        self.part();
        let numbers: Vec<u32> =
            newcomers.iter().map(|newcomer| self.roster.insert(newcomer.demand.clone())).collect();
        if self.put_in(&newcomers, &numbers).is_none() {
            self.undo(&numbers);
            return None;
        }
        let cpus = self.changed();
        gone.iter().for_each(|&vcpu| self.roster.forget(vcpu));
        self.refresh();
        Some(Done { vcpus: numbers, cpus })
    }

    /// Remembers a group before it is changed.
    fn save(&mut self, group: usize) {
        self.before.entry(group).or_insert_with(|| self.roster.groups[group].clone());
    }

    fn take_out(&mut self, vcpu: u32) {
        let group = self.roster.vcpu(vcpu).group;
        self.save(group);
        self.stale.insert(group);
        let carried = &mut self.roster.groups[group];
        for member in carried.members.iter_mut().filter(|member| member.owner == Owner::Vcpu(vcpu)) {
            member.owner = Owner::Nobody;
        }
        if carried.timetable.is_none() {
            carried.members.clear();
        }
        self.refresh_group(group);
    }

    /// Lays out anew what is left of CPUs that had vCPUs in common with one that goes. Where that cannot be done, its
    /// slots are idle from now on, which costs the others nothing.
    fn part(&mut self) {
        let is_joint = |group: &usize| self.roster.groups[*group].single().is_none();
        let joint: Vec<usize> = self.stale.iter().copied().filter(is_joint).collect();
        for group in joint {
            self.stale.remove(&group);
            let Some(parts) = self.laid_out(group) else { continue };
            for cpu in self.roster.groups[group].cpus.clone() {
                self.save(cpu);
            }
            parts.into_iter().for_each(|part| self.roster.put(part));
            self.refresh_group(group);
        }
    }

    /// A group's CPUs and vCPUs by themselves.
    fn laid_out(&mut self, group: usize) -> Option<Vec<Carried>> {
        let carried = &self.roster.groups[group];
        // Who may use which core depends on more than these CPUs.
        if self.roster.exclusive > 0 {
            return None;
        }
        let vcpus: Vec<u32> = carried.members.iter().filter_map(Member::vcpu).collect();
        let demand = |&vcpu: &u32| {
            let demand = self.roster.vcpu(vcpu).demand.clone();
            let within = |allowed: &[usize]| {
                let has = |cpu: &usize| allowed.binary_search(cpu).is_ok();
                (0..).zip(&carried.cpus).filter(|(_, cpu)| has(cpu)).map(|(place, _)| place).collect()
            };
            let allowed = demand.allowed.as_deref().map(within);
            Demand { allowed, ..demand }
        };
        let demands: Vec<Demand> = vcpus.iter().map(demand).collect();
        let cpus: Vec<u32> = carried.cpus.iter().map(|&cpu| self.ground.places.cpus[cpu]).collect();
        let capacity = self.ground.capacity;
        let wholes = check_shares(self.model, &demands, &cpus, capacity).ok()?;
        let wanted = Wanted {
            model: self.model,
            demands: &demands,
            wholes: &wholes,
            cpus: &cpus,
            capacity,
            journal: None,
        };
        let layout = wanted.lay_out(self.ground.placement, &mut self.ground.known).ok()?;
        let storable =
            layout.groups.iter().all(|(_, made)| made.as_deref().is_none_or(Timetable::has_few_slices));
        let member = |&vcpu: &u32| Member {
            task: layout.tasks[vcpu as usize],
            owner: Owner::Vcpu(vcpus[vcpu as usize]),
        };
        let parts = layout.groups.into_iter().map(|(group, timetable)| Carried {
            cpus: group.cpus.iter().map(|&place| carried.cpus[place]).collect(),
            members: group.vcpus.iter().map(member).collect(),
            timetable,
        });
        storable.then(|| parts.collect())
    }

    /// Puts everybody somewhere and plans there; whoever finds no time where it is is put elsewhere.
    fn put_in(&mut self, newcomers: &[Newcomer], numbers: &[u32]) -> Option<()> {
        let mut waiting: Vec<usize> = (0..newcomers.len()).collect();
        waiting.sort_by_key(|&place| std::cmp::Reverse(newcomers[place].tasks[0].load()));
        for _ in 0..FAILURES_MAX {
            for &place in &waiting {
                self.put(&newcomers[place], numbers[place])?;
            }
            let Err(crowded) = self.settle(numbers) else { return Some(()) };
            waiting.retain(|&place| self.roster.vcpu(numbers[place]).group == crowded);
            let carried = &mut self.roster.groups[crowded];
            carried.members.retain(|member| member.vcpu().is_none_or(|vcpu| !numbers.contains(&vcpu)));
            self.closed.extend(carried.single());
            self.refresh_group(crowded);
        }
        None
    }

    /// Where it was if it can be, or else where there is room.
    fn put(&mut self, newcomer: &Newcomer, number: u32) -> Option<()> {
        let Newcomer { demand, tasks, before } = newcomer;
        let allowed = demand.allowed.as_deref();
        let stay = before.filter(|cpu| allowed.is_none_or(|allowed| allowed.binary_search(cpu).is_ok()));
        let (task, cpu) = tasks.iter().find_map(|&task| {
            let stay = stay.and_then(|cpu| self.find(demand, &Item::new(task, Some(&[cpu]))));
            let cpu = stay.or_else(|| self.find(demand, &Item::new(task, allowed)));
            cpu.map(|cpu| (task, cpu))
        })?;
        let group = self.roster.group_of[cpu];
        self.save(group);
        self.stale.insert(group);
        self.roster.join(group, number, task);
        self.refresh_group(group);
        Some(())
    }

    fn find(&self, demand: &Demand, item: &Item) -> Option<usize> {
        if demand.is_exclusive {
            return self.roster.find_exclusive(demand.tenant, item, &self.ground.cores, &self.closed);
        }
        self.roster.room.find(item, self.ground.placement)
    }

    /// Plans each stale CPU. The first that has not the time for who came is the error.
    fn settle(&mut self, newcomers: &[u32]) -> Result<(), usize> {
        while let Some(&group) = self.stale.first() {
            let carried = &self.roster.groups[group];
            let mut members = carried.members.clone();
            members.retain(|member| member.owner != Owner::Nobody);
            members.sort_unstable();
            let mut carried = Carried { cpus: carried.cpus.clone(), members, timetable: None };
            if !carried.members.is_empty() && !carried.is_whole() {
                let tasks = carried.members.iter().map(|member| member.task).collect();
                let made = self.ground.known.timetable(tasks, None).ok();
                carried.timetable = made.filter(|timetable| timetable.has_few_slices());
                if carried.timetable.is_none() {
                    let is_new = |vcpu: u32| newcomers.contains(&vcpu);
                    if carried.members.iter().filter_map(Member::vcpu).any(is_new) {
                        return Err(group);
                    }
                    // Those who are left keep the slots that they have.
                    self.stale.remove(&group);
                    continue;
                }
            }
            self.roster.groups[group] = carried;
            self.stale.remove(&group);
        }
        Ok(())
    }

    /// The CPUs whose slots differ, and those with them on cores that share or do not share.
    fn changed(&self) -> BTreeSet<usize> {
        let mut changed = BTreeSet::new();
        for (&number, before) in &self.before {
            let now = &self.roster.groups[number];
            if !now.is_equal(before) {
                changed.extend(before.cpus.iter().chain(&now.cpus));
            }
        }
        let siblings: Vec<usize> =
            changed.iter().flat_map(|&cpu| self.ground.cores.of(cpu)).copied().collect();
        changed.extend(siblings.into_iter().filter(|_| self.roster.exclusive > 0));
        changed
    }

    fn undo(mut self, numbers: &[u32]) {
        for group in self.before.values().filter(|group| !group.cpus.is_empty()) {
            self.roster.put(group.clone());
        }
        numbers.iter().for_each(|&vcpu| self.roster.forget(vcpu));
        self.closed.clear();
        self.refresh();
    }

    /// What room there is on the CPUs that were touched.
    fn refresh(&mut self) {
        self.closed.clear();
        let cpus: BTreeSet<usize> =
            self.before.values().flat_map(|group| group.cpus.iter().copied()).collect();
        cpus.into_iter().for_each(|cpu| self.refresh_cpu(cpu));
    }

    fn refresh_group(&mut self, group: usize) {
        for cpu in self.roster.groups[group].cpus.clone() {
            self.refresh_cpu(cpu);
        }
    }

    /// And on those of its core.
    fn refresh_cpu(&mut self, cpu: usize) {
        let core = self.ground.cores.of(cpu);
        let alone = core.is_empty().then_some(cpu);
        for cpu in core.iter().copied().chain(alone) {
            if self.closed.contains(&cpu) {
                self.roster.room.set(cpu, None);
            } else {
                self.roster.refresh(cpu, &self.ground.cores);
            }
        }
    }
}
