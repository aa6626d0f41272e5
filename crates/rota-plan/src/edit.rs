//! A change to a roster that plans only the CPUs concerned.
//!
//! Who goes leaves room behind. Who comes, the largest first, takes a spare that is enough for it, which needs no plan,
//! or else is put on one CPU that has room, for which spares give way. A CPU with fewest vCPUs of its tenant comes
//! first. Then each CPU that has got or lost someone gets a new timetable; CPUs with divided vCPUs are laid out anew
//! together. Whatever fails, the roster is as it was.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rota_model::{Model, Placement, Reservation, Share, Spare};

use crate::apart::Own;
use crate::demand::Demand;
use crate::lay_out::{Wanted, Way};
use crate::partition::Item;
use crate::period::{Choice, Task, task};
use crate::plan::Ground;
use crate::roster::{Carried, Member, Owner, Roster};
use crate::settle::Timetable;
use crate::shortage::check_shares;

/// So many CPUs may turn out not to have the time for who was put there before the edit is given up.
const FAILURES_MAX: u32 = 4;

/// As many spares as the host is to have, as far as there is room. The CPUs whose slots differ then, by place.
pub(crate) fn restock(model: &Model, ground: &mut Ground, roster: &mut Roster) -> BTreeSet<usize> {
    let mut cpus = BTreeSet::new();
    for ((kind, spare), ready) in (0..).zip(&model.host.spares).zip(roster.ready()) {
        let Spare { share, latency_ns, count } = *spare;
        let reservation = Reservation { share, latency_ns, capped: false };
        let one = |choice| task(&reservation, choice, model.host.costs.switch_ns).ok();
        let (Some(longest), Some(frugal)) = (one(Choice::Longest), one(Choice::LeastWaste)) else { continue };
        for _ in ready..count {
            let edit = Edit::new(model, ground, roster);
            let Some(changed) = edit.add_spare(kind, &[longest, frugal]) else { break };
            cpus.extend(changed);
        }
    }
    cpus
}

/// A vCPU that comes.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub demand: Demand,
    /// What it is placed as, and what it is placed as where there is no room for that.
    pub tasks: [Task; 2],
    /// The CPU that it had until now.
    pub before: Option<usize>,
}

/// What a vCPU that comes gets on its CPU.
#[derive(Clone, Copy, Debug)]
enum Seat {
    /// What is free.
    Free(Task),
    /// A spare of this kind.
    Spare(usize),
    /// What is free once the spares there are given up.
    Yielded(Task),
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
    /// Who goes.
    gone: BTreeSet<u32>,
    /// Where the tenants of those who come have vCPUs.
    own: BTreeMap<u32, Own>,
    /// How many spares were taken.
    spares: u32,
}

/// What an edit did.
#[derive(Debug)]
pub(crate) struct Done {
    /// The numbers of those who came, in their order.
    pub vcpus: Vec<u32>,
    /// The CPUs whose slots differ, by place.
    pub cpus: BTreeSet<usize>,
    /// How many of those who came took a spare.
    pub spares: u32,
}

impl<'a> Edit<'a> {
    /// `model` is as it was before the edit.
    pub fn new(model: &'a Model, ground: &'a mut Ground, roster: &'a mut Roster) -> Edit<'a> {
        Edit {
            model,
            ground,
            roster,
            before: BTreeMap::new(),
            stale: BTreeSet::new(),
            closed: BTreeSet::new(),
            gone: BTreeSet::new(),
            own: BTreeMap::new(),
            spares: 0,
        }
    }

    /// Takes out vCPUs and puts others in. None if those who come do not fit so, and always something if nobody comes.
    pub fn run(mut self, gone: &[u32], newcomers: Vec<Newcomer>) -> Option<Done> {
        for &vcpu in gone {
            self.take_out(vcpu);
        }
        self.gone.extend(gone);
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
        Some(Done { vcpus: numbers, cpus, spares: self.spares })
    }

    /// Puts others in and takes them out again, so that the roster is as it was. `judge` sees it with them. None if
    /// they do not fit so.
    pub fn try_out<T>(
        mut self,
        newcomers: Vec<Newcomer>,
        judge: impl FnOnce(&mut Roster, &[u32]) -> T,
    ) -> Option<(Done, T)> {
        let vcpus: Vec<u32> =
            newcomers.iter().map(|newcomer| self.roster.insert(newcomer.demand.clone())).collect();
        let is_put = self.put_in(&newcomers, &vcpus).is_some();
        let judged = is_put.then(|| judge(self.roster, &vcpus));
        let (cpus, spares) = (self.changed(), self.spares);
        self.undo(&vcpus);
        Some((Done { vcpus, cpus, spares }, judged?))
    }

    /// Adds a spare; none if there is no room for it on the CPU that has most.
    pub fn add_spare(mut self, kind: u32, tasks: &[Task; 2]) -> Option<BTreeSet<usize>> {
        let find = |&task: &Task| {
            let room = &self.roster.room;
            Some((task, room.find(&Item::new(task, None), self.ground.placement, &Own::default(), 0)?))
        };
        let (task, cpu) = tasks.iter().find_map(find)?;
        let group = self.roster.group_of[cpu];
        self.save(group);
        self.stale.insert(group);
        let spare = Member { task, owner: Owner::Spare(kind) };
        self.roster.groups[group].members.push(spare);
        if self.settle(&[spare.owner]).is_err() {
            self.undo(&[]);
            return None;
        }
        let cpus = self.changed();
        self.refresh();
        Some(cpus)
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
        let layout = wanted.lay_out(self.ground.placement, Way::Anyhow, &mut self.ground.known).ok()?;
        let storable =
            layout.groups.iter().all(|(_, made)| made.as_deref().is_none_or(Timetable::is_storable));
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
        waiting.sort_by_key(|&place| Reverse(newcomers[place].tasks[0].load()));
        for _ in 0..FAILURES_MAX {
            for &place in &waiting {
                self.put(&newcomers[place], numbers[place])?;
            }
            let owners: Vec<Owner> = numbers.iter().map(|&number| Owner::Vcpu(number)).collect();
            let Err(crowded) = self.settle(&owners) else { return Some(()) };
            waiting = (0..newcomers.len())
                .filter(|&place| self.roster.vcpu(numbers[place]).group == crowded)
                .collect();
            let carried = &mut self.roster.groups[crowded];
            carried.members.truncate(carried.timetable.as_ref().map_or(0, |timetable| timetable.tasks.len()));
            let taken = carried.members.iter_mut().filter(|member| owners.contains(&member.owner));
            taken.for_each(|member| member.owner = Owner::Nobody);
            self.closed.extend(carried.single());
            self.refresh_group(crowded);
        }
        None
    }

    /// On a CPU with fewest vCPUs of its tenant.
    fn put(&mut self, newcomer: &Newcomer, number: u32) -> Option<()> {
        let demand = &newcomer.demand;
        let is_kept_apart = self.ground.placement == Placement::WorstFit && !demand.is_exclusive;
        let mut own = Own::default();
        if is_kept_apart {
            own = self.own.remove(&demand.tenant).unwrap_or_else(|| self.own_of(demand.tenant));
        }
        let cpus = demand.allowed.as_ref().map_or(self.roster.groups.len(), |allowed| allowed.len());
        let (cpu, seat) = own.levels(cpus).find_map(|most| self.seat(newcomer, &own, most))?;
        if is_kept_apart {
            own.add(cpu);
            self.own.insert(demand.tenant, own);
        }
        let group = self.roster.group_of[cpu];
        self.save(group);
        match seat {
            Seat::Spare(kind) => {
                self.roster.take_spare(group, kind, number, newcomer.tasks[0]);
                self.spares += 1;
            }
            Seat::Free(task) | Seat::Yielded(task) => {
                self.stale.insert(group);
                if matches!(seat, Seat::Yielded(_)) {
                    self.roster.drop_spares(group);
                }
                self.roster.join(group, number, task);
            }
        }
        self.refresh_group(group);
        Some(())
    }

    /// Where the vCPUs of a tenant are that stay.
    fn own_of(&self, tenant: u32) -> Own {
        let mut own = Own::default();
        let staying = self.roster.of_tenant(tenant).iter().filter(|vcpu| !self.gone.contains(vcpu));
        staying.for_each(|&vcpu| self.roster.cpus_of(vcpu).into_iter().for_each(|cpu| own.add(cpu)));
        own
    }

    /// Where it was if it can be, or else where there is room: on a CPU that has no more than so many of its tenant.
    fn seat(&self, newcomer: &Newcomer, own: &Own, most: usize) -> Option<(usize, Seat)> {
        let Newcomer { demand, tasks, before } = newcomer;
        let allowed = demand.allowed.as_deref();
        let may_stay = |cpu: &usize| allowed.is_none_or(|allowed| allowed.binary_search(cpu).is_ok());
        let stay = before.filter(may_stay);
        let stay = tasks.iter().find_map(|&task| {
            let cpu = self.find(demand, &Item::new(task, Some(&[stay?])), own, most)?;
            Some((cpu, Seat::Free(task)))
        });
        let spare = || self.spare(demand, own, most).map(|(cpu, kind)| (cpu, Seat::Spare(kind)));
        let find =
            |&task: &Task| Some((self.find(demand, &Item::new(task, allowed), own, most)?, Seat::Free(task)));
        let yielded = |&task: &Task| {
            Some((self.find_yielded(demand, &Item::new(task, allowed), own, most)?, Seat::Yielded(task)))
        };
        let found = stay.or_else(spare).or_else(|| tasks.iter().find_map(find));
        found.or_else(|| tasks.iter().find_map(yielded))
    }

    fn find(&self, demand: &Demand, item: &Item, own: &Own, most: usize) -> Option<usize> {
        if demand.is_exclusive {
            return self.roster.find_exclusive(demand.tenant, item, &self.ground.cores, &self.closed);
        }
        self.roster.room.find(item, self.ground.placement, own, most)
    }

    /// The spare that is enough for a demand and least above it: its CPU and kind. A capped vCPU may have no more than
    /// its share, and a whole CPU is for who wants all of it.
    fn spare(&self, demand: &Demand, own: &Own, most: usize) -> Option<(usize, usize)> {
        let wanted = demand.reservation;
        let is_enough = |spare: &Spare| {
            if demand.is_exclusive || spare.share == Share::ONE || wanted.share == Share::ONE {
                return !demand.is_exclusive && spare.share == wanted.share;
            }
            let has_share = spare.share == wanted.share || spare.share > wanted.share && !wanted.capped;
            has_share && spare.latency_ns <= wanted.latency_ns
        };
        let allowed = demand.allowed.as_deref();
        let may_use = |cpu: &usize| {
            own.on(*cpu) <= most && allowed.is_none_or(|allowed| allowed.binary_search(cpu).is_ok())
        };
        let kinds = self.model.host.spares.iter().enumerate().filter(|(_, spare)| is_enough(spare));
        let found = kinds.filter_map(|(kind, spare)| {
            let cpu = self.roster.with_spare(kind).find(may_use)?;
            Some((spare.share, Reverse(spare.latency_ns), cpu, kind))
        });
        found.min().map(|(.., cpu, kind)| (cpu, kind))
    }

    /// The CPU with most room of those that have enough if their spares are given up.
    fn find_yielded(&self, demand: &Demand, item: &Item, own: &Own, most: usize) -> Option<usize> {
        let needed = if item.is_whole() { self.ground.capacity } else { item.load };
        let with_spares = (0..self.model.host.spares.len()).flat_map(|kind| self.roster.with_spare(kind));
        let room = |cpu: usize| {
            let may_use = item.allowed.is_none_or(|allowed| allowed.binary_search(&cpu).is_ok());
            let free = self.roster.free_without_spares(cpu).filter(|&free| free >= needed)?;
            (may_use && own.on(cpu) <= most && !self.closed.contains(&cpu)).then_some((free, Reverse(cpu)))
        };
        if demand.is_exclusive {
            return None;
        }
        with_spares.filter_map(room).max().map(|(_, cpu)| cpu.0)
    }

    /// Plans each stale CPU. The first that has not the time for who came is the error.
    fn settle(&mut self, newcomers: &[Owner]) -> Result<(), usize> {
        while let Some(&group) = self.stale.first() {
            let carried = &self.roster.groups[group];
            let mut members = carried.members.clone();
            members.retain(|member| member.owner != Owner::Nobody);
            members.sort_unstable();
            let mut carried = Carried { cpus: carried.cpus.clone(), members, timetable: None };
            if !carried.members.is_empty() && !carried.is_whole() {
                let tasks = carried.members.iter().map(|member| member.task).collect();
                let made = self.ground.known.timetable((tasks, None)).ok();
                carried.timetable = made.filter(|timetable| timetable.is_storable());
                if carried.timetable.is_none() {
                    if carried.members.iter().any(|member| newcomers.contains(&member.owner)) {
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
        // The next ones that come get the same numbers.
        numbers.iter().rev().for_each(|&vcpu| self.roster.forget(vcpu));
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
