//! Replay: the load in a recording as a scenario, to be run under any policy and on any number of CPUs.
//!
//! Of each thread is kept what it needs and what it waits for, and nothing of when it was let run:
//!
//! - CPU time between two blocks, less what changes of task cost ([`Costs`]), which the replay pays anew;
//! - at which point of its own computing it wakes whom: the other's wait ends when the replay comes to that point, and
//!   if the other has not come to that wait by then, it does not wait at all;
//! - a sleep that a timer ended, and a wait for a device that the thread had set going: for as long as it took;
//! - a wait that something from outside ended: until the same time after the beginning, or not at all if it comes late.
//!
//! So synchronisation stays a dependency, and time to think stays time. A thread that was runnable from the first to
//! the last moment and never blocked goes on for ever; any other has done its work when it has done what was recorded.
//!
//! **Not modelled**: choices that the load makes by how it is scheduled. Who gets a lock is who got it when it was
//! recorded; work that threads take from a common queue stays with who took it; a spinning wait is computing of the
//! length that it had; a timer that fires at fixed times is a sleep from when the thread blocked. What interrupts take
//! while a thread runs counts as its computing. A cgroup inside another is beside it, with its own weight and quota.
//! Where events were lost, a thread wakes by the clock.
//! What threads work on is in no recording; [`Scenario::remember`] reads it from a text of its own.

mod load;
mod memory;
mod program;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use rota_model::config::{Source, parse};
use rota_model::{
    Class, Costs as Promised, CpuPlace, CpuSet, Match, Model, Reservation, Share, Team, Tenant, TenantId,
    Topology,
};
use rota_record::{Class as Recorded, Policy, Quota, Rank, Recording, Thread};
use rota_sim::{Costs, CpuId, CpuMask, Limits, Machine, Memory, State, Task, TaskId};

use crate::{Member, Scenario, Standing};
use load::Op;
pub use memory::Memories;
use program::{Replayed, Shared};

/// What a replay needs beside a model.
#[derive(Clone, Debug)]
pub struct Load {
    threads: Vec<Recurring>,
    /// By tenant; none for the system's own.
    limits: Vec<Option<Limits>>,
    /// The size of each last-level cache, if it was said.
    pub(crate) shared_kib: Option<u64>,
}

/// A thread that there is again.
#[derive(Clone, Debug)]
struct Recurring {
    ops: Arc<[Op]>,
    first_cpu: Option<CpuId>,
    runs_first: bool,
    name: String,
    tenant: Option<TenantId>,
    vcpu: Option<u32>,
    standing: Standing,
    memory: Option<Memory>,
}

/// Before the threads go on, policies settle.
const WARM_UP_NS: u64 = 1_000_000_000;

/// So long before they go on they are put where they were; in the middle of that those that ran begin to run, so that
/// no other takes their CPU.
pub(crate) const EARLY_NS: u64 = 20_000;

/// The policy under which it was recorded, by the name that it has here; none if the simulator has none like it.
pub fn policy_of(recording: &Recording) -> Option<&'static str> {
    match recording.policy {
        Policy::Rota => Some("rota"),
        Policy::Eevdf => Some("eevdf"),
        Policy::Cfs => Some("cfs"),
        Policy::Other(_) => None,
    }
}

/// The load in a recording, on its own machine or on one with `cpus` CPUs: its first ones, or as many like them as are
/// wanted.
///
/// # Errors
///
/// If nothing can be planned for that machine: `cpus` is no number of CPUs, or leaves none for tenants.
pub fn scenario(recording: &Recording, cpus: Option<u32>) -> Result<Scenario> {
    let costs = Costs::default();
    let model = model(recording, topology(recording, cpus)?)?;
    let first = (model.tenants.len() - recording.tenants.len()) as TenantId;
    let courses = load::courses(recording, &costs);
    let threads = recording.threads.iter().zip(courses).map(|(thread, course)| Recurring {
        ops: course.ops.into(),
        first_cpu: course.first_cpu.map(CpuId),
        runs_first: course.runs_first,
        name: thread.name.clone(),
        tenant: thread.tenant.map(|tenant| first + tenant).or(model.system()),
        vcpu: thread.vcpu,
        standing: standing(thread, &model.host.cpus),
        memory: None,
    });
    let limits = recording.tenants.iter().map(|tenant| {
        let max = tenant.limits.quota.map(|Quota { quota_ns, period_ns }| (quota_ns, period_ns));
        Some(Limits { weight: tenant.limits.weight, max })
    });
    let load = Load {
        threads: threads.collect(),
        limits: std::iter::repeat_n(None, first as usize).chain(limits).collect(),
        shared_kib: None,
    };
    Ok(Scenario {
        model,
        costs,
        duration_ns: recording.duration_ns,
        warm_up_ns: WARM_UP_NS,
        seed: 1,
        workloads: Vec::new(),
        helps: BTreeMap::new(),
        interference: None,
        replay: Some(load),
    })
}

impl Load {
    /// Has threads refer to memory. What they computed when they were recorded is taken for computing that nobody
    /// disturbed: waits for memory are taken out of it as far as they are as long as [`Memory::undisturbed_ns_per_us`],
    /// and come anew in the replay.
    pub(crate) fn remember(&mut self, memories: &Memories) {
        self.shared_kib = Some(memories.shared_kib);
        for thread in &mut self.threads {
            let Some(memory) = thread.tenant.and_then(|tenant| memories.tenants.get(&tenant)) else {
                continue;
            };
            let ns_per_us = memory.undisturbed_ns_per_us(memories.shared_kib);
            let without_waits = |op: &Op| match *op {
                Op::Compute(ns) if ns < u64::MAX => {
                    Op::Compute((u128::from(ns) * 1_000 / u128::from(ns_per_us)).max(1) as u64)
                }
                op => op,
            };
            thread.ops = thread.ops.iter().map(without_waits).collect();
            thread.memory = Some(*memory);
        }
    }

    /// The threads, which go on at `begins_ns`.
    pub(crate) fn members(&self, begins_ns: u64) -> Vec<Member> {
        let shared = Rc::new(Shared::new(self.threads.len()));
        let member = |(number, thread): (usize, &Recurring)| Member {
            tenant: thread.tenant,
            vcpu: thread.vcpu,
            guest: None,
            working_set_kib: 0,
            memory: thread.memory,
            standing: thread.standing.clone(),
            program: Box::new(Replayed::new(
                number,
                thread.ops.clone(),
                begins_ns,
                if thread.runs_first { EARLY_NS / 2 } else { 0 },
                shared.clone(),
            )),
        };
        self.threads.iter().enumerate().map(member).collect()
    }

    /// Puts each thread, all of which still sleep, on the CPU that it was on first, as if it had run there before.
    pub(crate) fn place(&self, machine: &mut Machine) {
        for (number, thread) in (0..).map(TaskId).zip(&self.threads) {
            let Task { state, .. } = *machine.task(number);
            let there = thread.first_cpu.filter(|&cpu| {
                cpu.0 < machine.nr_cpus() && machine.cpu(cpu).online && machine.task(number).may_run_on(cpu)
            });
            if let (State::Blocked, Some(cpu)) = (state, there) {
                machine.set_task_cpu(number, cpu);
            }
        }
    }

    /// What a tenant's cgroup said.
    pub(crate) fn limits(&self, tenant: TenantId) -> Option<Limits> {
        self.limits[tenant as usize]
    }

    /// What a thread called itself.
    pub(crate) fn name(&self, thread: usize) -> &str {
        &self.threads[thread].name
    }
}

fn topology(recording: &Recording, cpus: Option<u32>) -> Result<Topology> {
    let recorded = &recording.host.cpus;
    let count = cpus.map_or(recorded.len(), |cpus| cpus as usize);
    ensure!(count > 0, "a machine has a CPU; ask for 1 at least");
    let beyond = recorded.last().map_or(0, |place| place.cpu + 1);
    let last = u64::from(beyond) * count.div_ceil(recorded.len()) as u64;
    ensure!(last <= CpuSet::LIMIT.into(), "{count} CPUs are too many; the limit is {}", CpuSet::LIMIT);
    let apart = |number: fn(&rota_record::Place) -> u32| recorded.iter().map(number).max().unwrap_or(0) + 1;
    let sizes = [apart(|place| place.core), apart(|place| place.cache), apart(|place| place.node)];
    let sockets = apart(|place| place.socket);
    let place = |number: usize| {
        let (copy, like) = ((number / recorded.len()) as u32, recorded[number % recorded.len()]);
        CpuPlace {
            cpu: like.cpu + copy * beyond,
            core: like.core.wrapping_add(copy.wrapping_mul(sizes[0])),
            cache: like.cache.wrapping_add(copy.wrapping_mul(sizes[1])),
            node: like.node.wrapping_add(copy.wrapping_mul(sizes[2])),
            socket: like.socket.wrapping_add(copy.wrapping_mul(sockets)),
        }
    };
    Ok(Topology { places: (0..count).map(place).collect() })
}

/// The host as the configuration's own rules make it, and the recording's tenants.
fn model(recording: &Recording, topology: Topology) -> Result<Model> {
    let cpus = topology.cpus();
    let recorded = &recording.host;
    let housekeeping = recorded.housekeeping.intersection(&cpus);
    ensure!(
        !cpus.difference(&housekeeping).is_empty(),
        "the housekeeping CPUs ({housekeeping}) leave none for tenants; ask for more CPUs"
    );
    let text = match housekeeping.is_empty() {
        true => String::new(),
        false => format!("[host]\nhousekeeping = \"{housekeeping}\"\n"),
    };
    let source = Source { path: "the recording".to_owned(), text };
    let mut model = parse(&[source], &topology).map_err(|errors| anyhow!(errors))?;
    model.host.floor_ppb = recorded.floor_ppb;
    model.host.slot_min_ns = recorded.slot_min_ns;
    model.host.costs = Promised { switch_ns: recorded.switch_ns, migration_ns: recorded.migration_ns };
    for tenant in &recording.tenants {
        let class = match tenant.class {
            Recorded::Reserved { share_ppb, latency_ns, capped } => {
                let share = Share::from_ppb(share_ppb).context("a recording's shares are checked")?;
                Class::Reserved(Reservation { share, latency_ns, capped })
            }
            Recorded::Shared { weight } => Class::Shared { weight },
            Recorded::Background => Class::Background,
        };
        let affinity = tenant.affinity.as_ref().map(|affinity| affinity.intersection(&cpus));
        let matcher = Match::Vm { vmm: "recorded".to_owned(), name: tenant.name.clone() };
        model.tenants.push(Tenant {
            name: tenant.name.clone(),
            class,
            vcpus: tenant.vcpus,
            affinity: affinity.filter(|affinity| !affinity.is_empty()),
            pinned: false,
            exclusive_cores: tenant.exclusive_cores,
            oversubscribe: true,
            team: Team::default(),
            matcher: tenant.is_vm.then_some(matcher),
        });
    }
    Ok(model)
}

/// Weights of niceness -20 to 19, as of 100: the kernel's `sched_prio_to_weight`, of which 1,024 is the middle.
const WEIGHTS: [u32; 40] = [
    8668, 7007, 5516, 4519, 3544, 2847, 2271, 1827, 1460, 1164, 932, 744, 596, 479, 381, 305, 244, 194, 155,
    125, 100, 80, 64, 51, 41, 33, 27, 21, 17, 13, 11, 8, 7, 5, 4, 4, 3, 2, 2, 1,
];

/// The niceness that comes nearest to a weight, from below.
pub(crate) fn rank(weight: u32) -> Rank {
    let nice = WEIGHTS.iter().zip(-20..).find(|(known, _)| **known <= weight);
    nice.map_or(Rank::Idle, |(_, nice)| Rank::Ordinary(nice))
}

fn standing(thread: &Thread, cpus: &CpuSet) -> Standing {
    let (weight, realtime) = match thread.rank {
        Rank::Ordinary(nice) => (WEIGHTS[(i32::from(nice) + 20) as usize], None),
        Rank::Idle => (1, None),
        Rank::Realtime(priority) => (100, Some(priority)),
    };
    let nr_cpus = cpus.last().map_or(0, |last| last + 1);
    let mask = |cpus: &CpuSet| CpuMask::of(nr_cpus, cpus.iter().map(CpuId));
    let affinity = thread.cpus.as_ref().map(|wanted| {
        let there = wanted.intersection(cpus);
        let first = wanted.first().unwrap_or(0) as usize;
        let instead = || cpus.iter().skip(first % cpus.len()).take(1).collect();
        mask(&if there.is_empty() { instead() } else { there })
    });
    Standing { kernel_thread: thread.is_kernel, realtime, weight, affinity }
}
