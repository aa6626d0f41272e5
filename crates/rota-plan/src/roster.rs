//! Who is on which CPUs, and when.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rota_model::{Model, Share};

use crate::apart::{Own, least_pairs, open_cpus};
use crate::demand::Demand;
use crate::exclusive::{self, Cores};
use crate::known::slot_min_ns;
use crate::lay_out::Layout;
use crate::partition::{Item, Room};
use crate::period::{HYPERPERIOD_NS, Task, lcm};
use crate::settle::Timetable;
use crate::{CpuPlan, Method, Plan, PlannedVcpu, Slot};

/// Whose a task's slots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A vCPU's, by its number in the roster.
    Vcpu(u32),
    /// Nobody's yet: kept ready, of this place in [`rota_model::Host::spares`]. Idle time.
    Spare(u32),
    /// A vCPU's that is gone: idle time.
    Nobody,
}

/// A task of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    /// As placed. The timetable has it as planned.
    pub task: Task,
    pub owner: Owner,
}

impl Member {
    pub fn vcpu(&self) -> Option<u32> {
        match self.owner {
            Owner::Vcpu(vcpu) => Some(vcpu),
            Owner::Spare(_) | Owner::Nobody => None,
        }
    }

    fn spare(&self) -> Option<usize> {
        if let Owner::Spare(kind) = self.owner { Some(kind as usize) } else { None }
    }
}

/// CPUs that have vCPUs in common, and their tasks.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    /// By place, ascending.
    pub cpus: Vec<usize>,
    /// In the order of the timetable's tasks; those that have come since are at the end.
    pub members: Vec<Member>,
    /// None if there are no members, or one that has its CPU to itself.
    pub timetable: Option<Arc<Timetable>>,
}

impl Carried {
    pub fn empty(cpu: usize) -> Carried {
        Carried { cpus: vec![cpu], members: Vec::new(), timetable: None }
    }

    /// A CPU by itself, if it is one.
    pub fn single(&self) -> Option<usize> {
        if let [cpu] = self.cpus[..] { Some(cpu) } else { None }
    }

    /// Whether one vCPU has the CPU to itself.
    pub fn is_whole(&self) -> bool {
        matches!(self.members[..], [Member { task: Task { share: Share::ONE, .. }, .. }])
    }

    /// Whether it has the very slots of another: the same timetable with the same owners.
    pub fn is_equal(&self, other: &Carried) -> bool {
        let is_same = match (&self.timetable, &other.timetable) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let owners = |of: &Carried| of.members.iter().map(|member| member.owner).collect::<Vec<Owner>>();
        is_same && self.cpus == other.cpus && owners(self) == owners(other)
    }

    /// What some members take of their CPUs, in ns of a hyperperiod: as planned if they are, else as placed.
    fn load(&self, counts: impl Fn(&Member) -> bool) -> u64 {
        let planned = self.timetable.as_ref().map_or(&[][..], |timetable| &timetable.tasks);
        let load = |(place, member): (usize, &Member)| planned.get(place).unwrap_or(&member.task).load();
        self.members.iter().enumerate().filter(|(_, member)| counts(member)).map(load).sum()
    }
}

/// A vCPU that is here.
#[derive(Clone, Debug)]
pub(crate) struct Vcpu {
    pub demand: Demand,
    /// Its group's number.
    pub group: usize,
}

/// All CPUs that may carry reservations, and all vCPUs on them.
#[derive(Clone, Debug)]
pub(crate) struct Roster {
    capacity: u64,
    /// A group's number is the place of its first CPU; the numbers of its other CPUs stand for groups without CPUs.
    pub groups: Vec<Carried>,
    /// Each CPU's group.
    pub group_of: Vec<usize>,
    vcpus: Vec<Option<Vcpu>>,
    /// Numbers that no vCPU has.
    unused: Vec<u32>,
    /// Each tenant's vCPUs, by index.
    of_tenant: Vec<Vec<u32>>,
    /// What is free on each CPU that has a timetable by itself.
    pub room: Room,
    /// How many vCPUs are tenants' that share no cores.
    pub exclusive: usize,
    /// How many spares of each kind are ready, by CPU.
    ready: Vec<BTreeMap<usize, u32>>,
}

impl Roster {
    /// CPUs that give `capacity` each, in ns of a hyperperiod, and none of so many kinds of spares yet.
    pub fn new(
        demands: Vec<Demand>,
        layout: Layout,
        cpus: usize,
        capacity: u64,
        cores: &Cores,
        spares: usize,
    ) -> Roster {
        let mut roster = Roster {
            capacity,
            groups: (0..cpus).map(Carried::empty).collect(),
            group_of: (0..cpus).collect(),
            vcpus: Vec::with_capacity(demands.len()),
            unused: Vec::new(),
            of_tenant: Vec::new(),
            room: Room::new(cpus, capacity),
            exclusive: 0,
            ready: vec![BTreeMap::new(); spares],
        };
        for demand in demands {
            let tenant = demand.tenant as usize;
            if roster.of_tenant.len() <= tenant {
                roster.of_tenant.resize(tenant + 1, Vec::new());
            }
            let number = roster.insert(demand);
            roster.of_tenant[tenant].push(number);
        }
        for (group, timetable) in layout.groups {
            let member = |&vcpu: &u32| Member { task: layout.tasks[vcpu as usize], owner: Owner::Vcpu(vcpu) };
            let members = group.vcpus.iter().map(member).collect();
            roster.put(Carried { cpus: group.cpus, members, timetable });
        }
        (0..cpus).for_each(|cpu| roster.refresh(cpu, cores));
        roster
    }

    /// A number for a vCPU, which is in no group yet.
    pub fn insert(&mut self, demand: Demand) -> u32 {
        self.exclusive += usize::from(demand.is_exclusive);
        let vcpu = Some(Vcpu { demand, group: usize::MAX });
        match self.unused.pop() {
            Some(number) => {
                self.vcpus[number as usize] = vcpu;
                number
            }
            None => {
                self.vcpus.push(vcpu);
                self.vcpus.len() as u32 - 1
            }
        }
    }

    /// Forgets a vCPU that is in no group any more.
    pub fn forget(&mut self, number: u32) {
        if let Some(vcpu) = self.vcpus[number as usize].take() {
            self.exclusive -= usize::from(vcpu.demand.is_exclusive);
            self.unused.push(number);
        }
    }

    /// How many vCPUs there are.
    pub fn len(&self) -> usize {
        self.vcpus.len() - self.unused.len()
    }

    /// Whether there are no vCPUs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn vcpu(&self, number: u32) -> &Vcpu {
        self.vcpus[number as usize].as_ref().expect("only vCPUs that are here are asked for")
    }

    /// A tenant's vCPUs, by index.
    pub fn of_tenant(&self, tenant: u32) -> &[u32] {
        self.of_tenant.get(tenant as usize).map_or(&[], Vec::as_slice)
    }

    /// Forgets the vCPUs of tenants from this one on.
    pub fn cut_tenants(&mut self, tenants: u32) {
        self.of_tenant.truncate(tenants as usize);
    }

    /// Numbers of tenants are below this.
    pub fn tenants(&self) -> u32 {
        self.of_tenant.len() as u32
    }

    /// A vCPU is in another group from now on.
    pub fn set_group(&mut self, number: u32, group: usize) {
        if let Some(vcpu) = &mut self.vcpus[number as usize] {
            vcpu.group = group;
        }
    }

    pub fn set_of_tenant(&mut self, tenant: u32, vcpus: Vec<u32>) {
        if self.of_tenant.len() <= tenant as usize {
            self.of_tenant.resize(tenant as usize + 1, Vec::new());
        }
        self.of_tenant[tenant as usize] = vcpus;
    }

    /// The CPUs on which a vCPU has slots, by place.
    pub fn cpus_of(&self, number: u32) -> Vec<usize> {
        let group = &self.groups[self.vcpu(number).group];
        let Some(timetable) = group.timetable.as_deref().filter(|_| group.single().is_none()) else {
            return group.cpus.clone();
        };
        let has_slot = |slots: &[Slot]| slots.iter().any(|slot| group.owner(slot) == Some(number));
        let cpus = group.cpus.iter().zip(&timetable.cpus).filter(|(_, cpu)| has_slot(&cpu.slots));
        cpus.map(|(&place, _)| place).collect()
    }

    /// How many vCPUs have slots on several CPUs, and how many pairs of one tenant's vCPUs share a CPU.
    pub fn burdens(&self) -> (usize, u64) {
        let joint = self.groups.iter().filter(|group| group.cpus.len() > 1);
        let members = joint.flat_map(|group| &group.members).filter_map(Member::vcpu);
        let divided = members.filter(|&vcpu| self.cpus_of(vcpu).len() > 1).count();
        (divided, (0..self.of_tenant.len() as u32).map(|tenant| self.pairs(tenant)).sum())
    }

    /// How many pairs of a tenant's vCPUs share a CPU.
    pub fn pairs(&self, tenant: u32) -> u64 {
        let mut own = Own::default();
        let vcpus = self.of_tenant(tenant);
        if vcpus.len() > 1 {
            vcpus.iter().flat_map(|&vcpu| self.cpus_of(vcpu)).for_each(|cpu| own.add(cpu));
        }
        own.pairs()
    }

    /// Whether more vCPUs of a tenant share a CPU than must, were it alone beside those that have CPUs to themselves.
    pub fn is_crowded(&self, tenant: u32) -> bool {
        let vcpus = self.of_tenant(tenant);
        let pairs = self.pairs(tenant);
        if pairs == 0 || self.vcpu(vcpus[0]).demand.is_exclusive {
            return false;
        }
        let here = self.vcpus.iter().flatten().map(|vcpu| &vcpu.demand);
        let wholes = here.filter(|demand| demand.reservation.share == Share::ONE);
        let wholes: Vec<Option<&[usize]>> = wholes.map(|demand| demand.allowed.as_deref()).collect();
        let lists = vcpus.iter().map(|&vcpu| self.vcpu(vcpu).demand.allowed.as_deref());
        pairs > least_pairs(vcpus.len(), open_cpus(lists, &wholes, self.groups.len()))
    }

    /// Gives a group its place. What its CPUs were in before has to go or be put elsewhere.
    pub fn put(&mut self, group: Carried) {
        let number = group.cpus[0];
        for &cpu in &group.cpus {
            self.group_of[cpu] = number;
            self.groups[cpu] = Carried { cpus: Vec::new(), members: Vec::new(), timetable: None };
        }
        for member in &group.members {
            if let Owner::Vcpu(vcpu) = member.owner
                && let Some(vcpu) = &mut self.vcpus[vcpu as usize]
            {
                vcpu.group = number;
            }
        }
        self.groups[number] = group;
    }

    /// Adds a vCPU to a group, which has to be planned anew.
    pub fn join(&mut self, group: usize, vcpu: u32, task: Task) {
        self.groups[group].members.push(Member { task, owner: Owner::Vcpu(vcpu) });
        self.set_group(vcpu, group);
    }

    /// Gives a spare of this kind in a group to a vCPU, which is planned as this task whenever the group is.
    pub fn take_spare(&mut self, group: usize, kind: usize, vcpu: u32, task: Task) {
        let mut members = self.groups[group].members.iter_mut();
        let spare = members.find(|member| member.spare() == Some(kind));
        *spare.expect("it is ready there") = Member { task, owner: Owner::Vcpu(vcpu) };
        self.set_group(vcpu, group);
    }

    /// Gives the spares in a group up.
    pub fn drop_spares(&mut self, group: usize) {
        let group = &mut self.groups[group];
        let is_spare = |member: &Member| member.spare().is_some();
        if group.timetable.is_none() {
            group.members.retain(|member| !is_spare(member));
        }
        group
            .members
            .iter_mut()
            .filter(|member| is_spare(member))
            .for_each(|member| member.owner = Owner::Nobody);
    }

    /// How many spares of each kind are ready.
    pub fn ready(&self) -> Vec<u32> {
        self.ready.iter().map(|on| on.values().sum()).collect()
    }

    /// The CPUs with a spare of this kind.
    pub fn with_spare(&self, kind: usize) -> impl Iterator<Item = usize> {
        self.ready[kind].keys().copied()
    }

    /// What would be free on a CPU without its spares.
    pub fn free_without_spares(&self, cpu: usize) -> Option<u64> {
        let group = &self.groups[self.group_of[cpu]];
        let is_taken = |member: &Member| member.vcpu().is_some();
        let is_open = group.single().is_some() && !(group.is_whole() && group.members.iter().any(is_taken));
        is_open.then(|| self.capacity.saturating_sub(group.load(is_taken)))
    }

    /// What is free on a CPU, if it carries no whole vCPU and no divided one.
    pub fn free(&self, cpu: usize) -> Option<u64> {
        let group = &self.groups[self.group_of[cpu]];
        let is_open = group.single().is_some() && !group.is_whole();
        let counts = |member: &Member| member.owner != Owner::Nobody;
        is_open.then(|| self.capacity.saturating_sub(group.load(counts)))
    }

    /// Notes what room, and how many spares, there are on a CPU for tenants that may share its core.
    pub fn refresh(&mut self, cpu: usize, cores: &Cores) {
        let is_kept = self.exclusive > 0 && self.keeper(cpu, cores).is_some();
        let free = self.free(cpu).filter(|_| !is_kept);
        self.room.set(cpu, free);
        for (kind, on) in self.ready.iter_mut().enumerate() {
            let members = self.groups[self.group_of[cpu]].members.iter();
            let count = members.filter(|member| member.spare() == Some(kind) && !is_kept).count();
            on.remove(&cpu);
            on.extend((count > 0).then_some((cpu, count as u32)));
        }
    }

    /// Of which tenant this CPU's core of several CPUs is, if it is one's that shares none.
    fn keeper(&self, cpu: usize, cores: &Cores) -> Option<u32> {
        let mut demands = self.on_core(cpu, cores);
        demands.find(|demand| demand.is_exclusive).map(|demand| demand.tenant)
    }

    /// What the vCPUs want that are on this CPU's core; none for a core of one CPU.
    fn on_core<'a>(&'a self, cpu: usize, cores: &'a Cores) -> impl Iterator<Item = &'a Demand> {
        let members = cores.of(cpu).iter().flat_map(|&cpu| &self.groups[self.group_of[cpu]].members);
        members.filter_map(Member::vcpu).map(|vcpu| &self.vcpu(vcpu).demand)
    }

    /// The CPU for a vCPU of a tenant that shares no cores: one of a core that it has, or of one by itself, or else of
    /// a core that nobody is on. Of equals the one with most room. Not one of those that are `closed`.
    pub fn find_exclusive(
        &self,
        tenant: u32,
        item: &Item,
        cores: &Cores,
        closed: &BTreeSet<usize>,
    ) -> Option<usize> {
        let needed = item.load.min(if item.is_whole() { self.capacity } else { u64::MAX });
        let choice = |cpu: usize| {
            let free = self.free(cpu).filter(|&free| free >= needed && !closed.contains(&cpu))?;
            let mut is_new = !cores.of(cpu).is_empty();
            for demand in self.on_core(cpu, cores) {
                is_new = false;
                (demand.tenant == tenant).then_some(())?;
            }
            Some((!is_new, free, Reverse(cpu)))
        };
        let best = match item.allowed {
            Some(allowed) => allowed.iter().filter_map(|&cpu| choice(cpu)).max(),
            None => (0..self.groups.len()).filter_map(choice).max(),
        };
        best.map(|(.., cpu)| cpu.0)
    }

    /// The plan that this is. `cpus` are the numbers of those that may carry reservations.
    pub fn plan(&self, model: &Model, cpus: &[u32]) -> Plan {
        let table_length_ns = self.length_ns();
        let order: Vec<u32> = self.of_tenant.iter().flatten().copied().collect();
        let mut places = vec![0; self.vcpus.len()];
        (0..).zip(&order).for_each(|(place, &vcpu)| places[vcpu as usize] = place);
        // What a vCPU with a CPU to itself has; the others' are filled in below.
        let planned = |&vcpu: &u32| {
            let Demand { tenant, index, reservation, .. } = self.vcpu(vcpu).demand;
            PlannedVcpu {
                tenant,
                index,
                share: reservation.share,
                latency_ns: reservation.latency_ns,
                capped: reservation.capped,
                budget_ns: table_length_ns,
                period_ns: table_length_ns,
                cpus: Vec::new(),
                blackout_ns: 0,
                method: Method::Dedicated,
                is_shown: model.tenants[tenant as usize].team.timetable,
            }
        };
        let mut vcpus: Vec<PlannedVcpu> = order.iter().map(planned).collect();
        let idle = |cpu| CpuPlan { cpu, length_ns: table_length_ns, slots: Vec::new(), exclusive_to: None };
        let mut plans: Vec<CpuPlan> = model.host.cpus.iter().map(idle).collect();
        for group in &self.groups {
            group.write(&places, cpus, &mut plans, &mut vcpus);
        }
        for (planned, &vcpu) in vcpus.iter_mut().zip(&order) {
            if self.vcpu(vcpu).demand.is_in_gang() && planned.method == Method::Partitioned {
                planned.method = Method::Together;
            }
        }
        let slot_min_ns = slot_min_ns(&model.host);
        let is_short = |slot: &&Slot| slot.len_ns() < slot_min_ns;
        let short_slots = plans.iter().flat_map(|cpu| &cpu.slots).filter(is_short).count();
        exclusive::mark(model, &mut plans, &vcpus);
        Plan { table_length_ns, cpus: plans, vcpus, short_slots, spares: self.ready() }
    }

    /// Of the table: a multiple of the length of every CPU that has slots.
    fn length_ns(&self) -> u64 {
        let lengths = self.groups.iter().flat_map(|group| {
            let timetable = group.timetable.as_deref();
            timetable.into_iter().flat_map(|timetable| &timetable.cpus).filter_map(|cpu| {
                let is_used = cpu.slots.iter().any(|slot| group.owner(slot).is_some());
                is_used.then_some(cpu.length_ns)
            })
        });
        lengths.reduce(|a, b| if a == b { a } else { lcm(a, b) }).unwrap_or(HYPERPERIOD_NS)
    }
}

impl Carried {
    /// The vCPU whose slot it is.
    fn owner(&self, slot: &Slot) -> Option<u32> {
        self.members[slot.vcpu as usize].vcpu()
    }

    /// Adds the group to a plan, in which vCPU v is at `places[v]`.
    fn write(&self, places: &[u32], cpus: &[u32], plans: &mut [CpuPlan], vcpus: &mut [PlannedVcpu]) {
        let Some(timetable) = &self.timetable else {
            let ([cpu], [Member { owner: Owner::Vcpu(vcpu), .. }]) = (&self.cpus[..], &self.members[..])
            else {
                return;
            };
            let vcpu = places[*vcpu as usize];
            let plan = plan_of(plans, cpus[*cpu]);
            plan.slots.push(Slot { start_ns: 0, end_ns: plan.length_ns, vcpu });
            vcpus[vcpu as usize].cpus.push(plan.cpu);
            return;
        };
        for (&place, cpu) in self.cpus.iter().zip(&timetable.cpus) {
            let slots: Vec<Slot> = cpu
                .slots
                .iter()
                .filter_map(|slot| Some(Slot { vcpu: places[self.owner(slot)? as usize], ..*slot }))
                .collect();
            if slots.is_empty() {
                continue;
            }
            let plan = plan_of(plans, cpus[place]);
            (plan.length_ns, plan.slots) = (cpu.length_ns, slots);
            for slot in &plan.slots {
                let on = &mut vcpus[slot.vcpu as usize].cpus;
                if on.last() != Some(&plan.cpu) {
                    on.push(plan.cpu);
                }
            }
        }
        let planned = timetable.tasks.iter().zip(&timetable.blackouts);
        for (member, (task, &blackout_ns)) in self.members.iter().zip(planned) {
            let Owner::Vcpu(vcpu) = member.owner else { continue };
            let planned = &mut vcpus[places[vcpu as usize] as usize];
            (planned.budget_ns, planned.period_ns) = (task.net(), task.period);
            planned.blackout_ns = blackout_ns;
            planned.method = if planned.cpus.len() > 1 { timetable.method } else { Method::Partitioned };
        }
    }
}

/// `plans` are in the order of CPUs.
fn plan_of(plans: &mut [CpuPlan], cpu: u32) -> &mut CpuPlan {
    let place = plans.binary_search_by_key(&cpu, |plan| plan.cpu).expect("every CPU of the host has a plan");
    &mut plans[place]
}
