//! Which CPUs have vCPUs in common, where not every vCPU fits on one.
//!
//! `flow` has said how much of each vCPU's load may go to which CPU, and found room for most of them on one CPU. Each
//! of the others is split; where that fails, CPUs that have room for it between them become a cluster. Where they have
//! not, because affinity makes others have to move, all is divided as the flow has it.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::flow::Part;
use crate::gather::gather;
use crate::joint::{Divided, Joint};
use crate::period::{HYPERPERIOD_NS, Task};
use crate::piece::{Load, Piece};
use crate::reason::{Journal, Place};
use crate::split::{Uncut, first, split};

/// The shortest periods of so many CPUs with most room are tried for a vCPU that is split.
const PERIODS_FROM: usize = 8;

/// CPUs and the vCPUs on them, which have no other CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// By place.
    pub cpus: Vec<usize>,
    /// By place in the list of demands.
    pub vcpus: Vec<u32>,
    /// How the vCPUs are divided, by place in the lists above; not at all on a CPU by itself.
    pub joint: Option<Joint>,
}

/// Who has to be divided, and what may be done with it.
pub(crate) struct Division<'a> {
    /// All vCPUs, in the order of demands.
    pub tasks: &'a [Task],
    /// Where `flow` sends their loads, by vCPU; those of vCPUs with a CPU to themselves left out.
    pub parts: &'a [Part],
    /// The CPUs that each vCPU may use, ascending.
    pub allowed: &'a dyn Fn(usize) -> Vec<usize>,
    /// How far apart two CPUs are.
    pub distance: &'a dyn Fn(usize, usize) -> u32,
    pub cpus: usize,
    /// What a CPU has to give, in ns of a hyperperiod.
    pub capacity: u64,
    /// What a change of tasks takes, in ns.
    pub switch_ns: u64,
    /// What a piece takes beyond what it gives, in ns.
    pub piece_cost_ns: u64,
    /// The shortest piece, in ns; longer than that.
    pub least_ns: u64,
    /// Where to note what is decided.
    pub journal: Option<&'a Journal>,
}

/// The pieces of a vCPU and the CPUs that they go to, in the order in which they run.
type Cuts = Vec<(usize, Piece)>;

impl Division<'_> {
    /// Every CPU and every vCPU in one group.
    pub fn groups(&self) -> Vec<Group> {
        let mut draft = Draft::new(self.cpus, self.capacity);
        let mut divided: Vec<&[Part]> = Vec::new();
        for parts in self.parts.chunk_by(|one, next| one.item == next.item) {
            match parts {
                [part] => {
                    self.note(part.item, || Place::Flow);
                    draft.loads[part.cpu].put(part.item, self.whole(part.item));
                }
                _ => divided.push(parts),
            }
        }
        let items = divided.iter().map(|parts| parts[0].item).collect();
        let draft = self.draft(items, draft.clone()).unwrap_or_else(|| self.flow(&divided, draft));
        draft.groups(|vcpu, cpus| {
            let allowed = (self.allowed)(vcpu as usize);
            cpus.iter().all(|cpu| allowed.binary_search(cpu).is_ok())
        })
    }

    fn note(&self, vcpu: usize, place: impl FnOnce() -> Place) {
        if let Some(journal) = self.journal {
            journal.put(vcpu, place());
        }
    }

    fn whole(&self, vcpu: usize) -> Piece {
        let task = &self.tasks[vcpu];
        Piece::whole(task.period, task.budget())
    }

    /// Each of the vCPUs in turn is split, or makes a cluster of CPUs that have room for it. None if one of them finds
    /// none on its CPUs, because others would have to make it by going elsewhere.
    fn draft(&self, mut vcpus: Vec<usize>, mut draft: Draft) -> Option<Draft> {
        // The largest are the hardest to find room for.
        vcpus.sort_by_key(|&vcpu| (Reverse(self.tasks[vcpu].load()), vcpu));
        for vcpu in vcpus {
            let needed = self.tasks[vcpu].load();
            let open = || (self.allowed)(vcpu).into_iter().map(|cpu| draft.loads[cpu].free);
            let most = self.journal.and_then(|_| open().max()).unwrap_or(0);
            if let Some(cuts) = self.split(vcpu, &draft) {
                self.note(vcpu, || Place::split(needed, most, &cuts));
                cuts.into_iter().for_each(|(cpu, piece)| draft.loads[cpu].put(vcpu, piece));
                continue;
            }
            let cpus = self.cluster(vcpu, &mut draft)?;
            cpus.iter().for_each(|&cpu| draft.is_clustered[cpu] = true);
            let places = || cpus.iter().map(|&cpu| cpu as u32).collect();
            self.note(vcpu, || Place::Cluster { needed, most, cpus: places() });
        }
        Some(draft)
    }

    /// With its own period or a shorter one, which short periods on the CPUs leave more room for: whatever migrates
    /// least.
    fn split(&self, vcpu: usize, draft: &Draft) -> Option<Cuts> {
        let open: Vec<usize> =
            (self.allowed)(vcpu).into_iter().filter(|&cpu| !draft.is_clustered[cpu]).collect();
        let task = self.tasks[vcpu];
        let roomiest =
            first(PERIODS_FROM, open.iter().map(|&cpu| (Reverse(draft.loads[cpu].free), cpu)).collect());
        let mut periods: Vec<u64> = roomiest.iter().map(|&(_, cpu)| draft.loads[cpu].shortest()).collect();
        periods.retain(|&period| period < task.period);
        periods.push(task.period);
        periods.sort_unstable();
        periods.dedup();
        let mut best: Option<(u64, Cuts)> = None;
        for period in [periods.pop(), periods.pop(), periods.first().copied()].into_iter().flatten() {
            let uncut = Uncut {
                period,
                // What it is known to need for costs, beyond the change of tasks that each piece begins with.
                net: task.shortened(period, self.switch_ns).budget() - self.switch_ns,
                cost: self.piece_cost_ns,
                least: self.least_ns,
            };
            let Some(cuts) = split(&uncut, &draft.loads, &open, self.distance) else { continue };
            let moves = cuts.len() as u64 * (HYPERPERIOD_NS / period);
            if best.as_ref().is_none_or(|(least, _)| moves < *least) {
                best = Some((moves, cuts));
            }
        }
        best.map(|(_, cuts)| cuts)
    }

    /// CPUs that have room for a vCPU between them: near each other, but first of all with long periods only, since
    /// the block of a cluster is as long as its shortest. Leaves the room filled.
    fn cluster(&self, vcpu: usize, draft: &mut Draft) -> Option<Vec<usize>> {
        let task = &self.tasks[vcpu];
        let rounds = HYPERPERIOD_NS / task.period;
        let has_room = |cpu: &usize| draft.loads[*cpu].free / rounds >= self.least_ns;
        let open: Vec<usize> = (self.allowed)(vcpu).into_iter().filter(has_room).collect();
        let shortest: Vec<u64> = open.iter().map(|&cpu| draft.loads[cpu].shortest()).collect();
        let from = |period: u64| open.iter().zip(&shortest).filter(move |(_, shortest)| **shortest >= period);
        let is_enough = |period: &u64| {
            from(*period).map(|(&cpu, _)| draft.loads[cpu].free / rounds).sum::<u64>() >= task.budget()
        };
        let period = std::iter::successors(Some(task.period), |period| (*period > 0).then_some(period / 2))
            .find(is_enough)?;
        let mut chosen: Vec<usize> = from(period).map(|(&cpu, _)| cpu).collect();
        let &first = chosen.iter().max_by_key(|&&cpu| (draft.loads[cpu].free, Reverse(cpu)))?;
        chosen.sort_by_key(|&cpu| ((self.distance)(first, cpu), Reverse(draft.loads[cpu].free), cpu));
        let mut left = task.budget();
        chosen.retain(|&cpu| {
            let budget = left.min(draft.loads[cpu].free / rounds);
            if budget > 0 {
                draft.loads[cpu].put(vcpu, Piece::whole(task.period, budget));
            }
            left -= budget;
            budget > 0
        });
        Some(chosen)
    }

    /// As the flow has it.
    fn flow(&self, divided: &[&[Part]], mut draft: Draft) -> Draft {
        for part in divided.iter().copied().flatten() {
            self.note(part.item, || Place::Divided);
            // One that needs all of a CPU is a ns less to the flow, which sends that ns to another.
            let load = part.load.min(draft.loads[part.cpu].free);
            if load > 0 {
                // To the ns: where a cycle of CPUs is full, the last one of them has to go elsewhere.
                draft.loads[part.cpu].put(part.item, Piece::whole(HYPERPERIOD_NS, load));
                draft.is_clustered[part.cpu] = true;
            }
        }
        draft
    }
}

/// What each CPU has to do, as far as is known.
#[derive(Clone)]
struct Draft {
    /// [`Load::tasks`] are demands. Of a vCPU that is divided in a cluster, a piece says only how much goes where.
    loads: Vec<Load>,
    /// Whether the CPU is part of a cluster.
    is_clustered: Vec<bool>,
}

impl Draft {
    fn new(cpus: usize, capacity: u64) -> Draft {
        Draft { loads: vec![Load::new(capacity); cpus], is_clustered: vec![false; cpus] }
    }

    /// The CPUs that have pieces of one vCPU together.
    fn groups(self, may_use: impl Fn(u32, &[usize]) -> bool) -> Vec<Group> {
        let mut sets = Sets::new(self.loads.len());
        let mut first: HashMap<u32, usize> = HashMap::new();
        for (cpu, load) in self.loads.iter().enumerate() {
            load.tasks.iter().for_each(|&vcpu| sets.join(*first.entry(vcpu).or_insert(cpu), cpu));
        }
        let group = |cpus: Vec<usize>| {
            let mut vcpus: Vec<u32> =
                cpus.iter().flat_map(|&cpu| self.loads[cpu].tasks.iter().copied()).collect();
            vcpus.sort_unstable();
            vcpus.dedup();
            let place = |vcpu: &u32| vcpus.partition_point(|other| other < vcpu) as u32;
            let local = |&cpu: &usize| {
                let load = &self.loads[cpu];
                Load { tasks: load.tasks.iter().map(place).collect(), ..load.clone() }
            };
            let joint = (cpus.len() > 1).then(|| {
                let loads = cpus.iter().map(local).collect();
                let is_split = cpus.iter().all(|&cpu| !self.is_clustered[cpu]);
                let may_use_one = |vcpu: usize, cpu: usize| may_use(vcpus[vcpu], &[cpus[cpu]]);
                Joint::Divided(Divided {
                    loads: if is_split { loads } else { gather(loads, vcpus.len(), may_use_one) },
                    is_split,
                    is_open: vcpus.iter().all(|&vcpu| may_use(vcpu, &cpus)),
                })
            });
            Group { cpus, vcpus, joint }
        };
        sets.members().into_iter().map(group).collect()
    }
}

/// Disjoint sets of places, each known by its least.
pub(crate) struct Sets(Vec<usize>);

impl Sets {
    pub fn new(count: usize) -> Sets {
        Sets((0..count).collect())
    }

    fn find(&mut self, place: usize) -> usize {
        let mut least = place;
        while self.0[least] != least {
            self.0[least] = self.0[self.0[least]];
            least = self.0[least];
        }
        least
    }

    pub fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.find(one), self.find(other));
        self.0[one.max(other)] = one.min(other);
    }

    /// Ascending.
    pub fn members(mut self) -> Vec<Vec<usize>> {
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); self.0.len()];
        for place in 0..members.len() {
            let set = self.find(place);
            members[set].push(place);
        }
        members.retain(|members| !members.is_empty());
        members
    }
}
