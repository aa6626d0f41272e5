//! Tenants whose vCPUs have their slots at the same times: gangs (Ousterhout 1982: Scheduling techniques for concurrent
//! systems).
//!
//! A gang's task has one stretch in each of its periods, at one offset on all of its CPUs (`slots`). So its slots come
//! together whatever else its CPUs carry, and earliest deadline first serves the others around it. Which CPUs a gang
//! gets is searched for (`seats`), as the rest has to fit beside it.

use crate::demand::Demand;
use crate::divide::{Group, Sets};
use crate::joint::Joint;
use crate::period::Task;

mod seats;
mod slots;
mod wanted;

use seats::{Seats, seats};
pub(crate) use slots::Gangs;

/// The vCPUs of one tenant, by demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gang {
    pub members: Vec<usize>,
}

/// All gangs. Those with whole CPUs are together by themselves.
pub(crate) fn gangs(demands: &[Demand]) -> Vec<Gang> {
    let mut gangs: Vec<Gang> = Vec::new();
    for (place, demand) in demands.iter().enumerate().filter(|(_, demand)| demand.is_in_gang()) {
        let has_begun = |gang: &&mut Gang| demands[gang.members[0]].tenant == demand.tenant;
        match gangs.last_mut().filter(has_begun) {
            Some(gang) => gang.members.push(place),
            None => gangs.push(Gang { members: vec![place] }),
        }
    }
    gangs.retain(|gang| gang.members.len() > 1);
    gangs
}

/// Plans the CPUs of each gang together, and those of gangs that have CPUs in common. No vCPU on them may be divided.
pub(crate) fn join(groups: Vec<Group>, gangs: &[Gang], tasks: &[Task]) -> Vec<Group> {
    let group_of = |vcpu: usize| groups.iter().position(|group| group.vcpus.contains(&(vcpu as u32)));
    let mut sets = Sets::new(groups.len());
    for gang in gangs {
        let on: Vec<usize> = gang.members.iter().filter_map(|&member| group_of(member)).collect();
        on.windows(2).for_each(|two| sets.join(two[0], two[1]));
    }
    let mut parts: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
    let joined = sets.members().into_iter().map(|set| {
        let of_set: Vec<Group> = set.into_iter().filter_map(|place| parts[place].take()).collect();
        join_one(of_set, gangs, tasks)
    });
    joined.collect()
}

fn join_one(parts: Vec<Group>, gangs: &[Gang], tasks: &[Task]) -> Group {
    let mut parts = parts;
    if parts.len() == 1 {
        return parts.remove(0);
    }
    debug_assert!(parts.iter().all(|part| part.joint.is_none()), "who is divided is beside no gang");
    let homes = (0..).zip(&parts).flat_map(|(cpu, part)| part.vcpus.iter().map(move |&vcpu| (vcpu, cpu)));
    let mut homes: Vec<(u32, usize)> = homes.collect();
    homes.sort_by_key(|&(vcpu, _)| (tasks[vcpu as usize], vcpu));
    let gang_of = |vcpu: u32| gangs.iter().position(|gang| gang.members.contains(&(vcpu as usize)));
    let cpus: Vec<usize> = parts.iter().flat_map(|part| part.cpus.iter().copied()).collect();
    let gangs = Gangs::new(
        cpus.len(),
        homes.iter().map(|&(_, cpu)| cpu).collect(),
        homes.iter().map(|&(vcpu, _)| gang_of(vcpu)).collect(),
    );
    Group { cpus, vcpus: homes.into_iter().map(|(vcpu, _)| vcpu).collect(), joint: Some(Joint::Gangs(gangs)) }
}
