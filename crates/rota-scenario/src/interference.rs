//! Tenants that begin and cease to thrash caches while a scenario runs: the two patterns of Vanga's thesis (7.1).

use std::cell::RefCell;
use std::rc::Rc;

use rota_model::TenantId;
use rota_sim::{CpuId, Machine, Memory, Rng, TaskId};

use crate::run::Run;

/// Who thrashes when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// CI-1: tenants that are drawn, again and again.
    Random,
    /// CI-2: those on the target's CPU, then those in its cache domain, then others; looked at again and again.
    Targeted,
}

/// Some tenants thrash caches; the others do what their workloads say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interference {
    /// Which.
    pub pattern: Pattern,
    /// So many at a time.
    pub tenants: u32,
    /// Who never does, and whom CI-2 is after.
    pub target: TenantId,
    /// How often they are chosen anew, in ns.
    pub every_ns: u64,
    /// What their threads ask of memory meanwhile.
    pub memory: Memory,
}

/// Asks nothing of memory.
const NOTHING: Memory = Memory { working_set_kib: 1, references_per_us: 0, overlap: 1 };

/// Streams of chance from here on are for interference; below are guests', tasks' and devices'.
const STREAM: u64 = 1 << 34;

/// A tenant's threads.
struct Tenant {
    tasks: Vec<TaskId>,
    /// What they ask of memory otherwise.
    own: Memory,
    thrashes: bool,
}

struct Choice {
    what: Interference,
    target: Vec<TaskId>,
    others: Vec<Tenant>,
    rng: Rng,
}

impl Interference {
    /// Has it begin at `from_ns`. `threads` are those of each tenant, with what they ask of memory by themselves.
    pub(crate) fn begin(
        &self,
        run: &mut Run,
        threads: Vec<(TenantId, Vec<TaskId>, Option<Memory>)>,
        from_ns: u64,
    ) {
        let (target, others): (Vec<_>, Vec<_>) = threads.into_iter().partition(|(id, ..)| *id == self.target);
        let tenant = |(_, tasks, own): (TenantId, Vec<TaskId>, Option<Memory>)| Tenant {
            tasks,
            own: own.unwrap_or(NOTHING),
            thrashes: false,
        };
        let choice = Choice {
            what: self.clone(),
            target: target.into_iter().flat_map(|(_, tasks, _)| tasks).collect(),
            others: others.into_iter().map(tenant).collect(),
            rng: Rng::new(run.machine.seed(), STREAM),
        };
        again(run, &Rc::new(RefCell::new(choice)), from_ns);
    }
}

/// Chooses at `at_ns`, and from then on again and again.
fn again(run: &mut Run, choice: &Rc<RefCell<Choice>>, at_ns: u64) {
    let choice = choice.clone();
    run.at(at_ns, move |run| {
        let every_ns = {
            let mut choice = choice.borrow_mut();
            choice.choose(&mut run.machine);
            choice.what.every_ns
        };
        again(run, &choice, at_ns + every_ns);
    });
}

impl Choice {
    fn choose(&mut self, machine: &mut Machine) {
        let mut order: Vec<usize> = (0..self.others.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.rng.between(0, last as u64) as usize);
        }
        let target = self.target.first().map(|&task| machine.task(task).cpu);
        if let (Pattern::Targeted, Some(target)) = (self.what.pattern, target) {
            order.sort_by_key(|&place| distance(machine, target, &self.others[place].tasks));
        }
        for (rank, place) in order.into_iter().enumerate() {
            let tenant = &mut self.others[place];
            let thrashes = rank < self.what.tenants as usize;
            if std::mem::replace(&mut tenant.thrashes, thrashes) != thrashes {
                let memory = if thrashes { self.what.memory } else { tenant.own };
                tenant.tasks.iter().for_each(|&task| machine.set_memory(task, memory));
            }
        }
    }
}

/// 0 on the same CPU, 1 in the same cache domain, 2 beyond.
fn distance(machine: &Machine, target: CpuId, tasks: &[TaskId]) -> u32 {
    let cache = |cpu: CpuId| machine.topology().place(cpu.0).map(|place| place.cache);
    let of = |task: &TaskId| match machine.task(*task).cpu {
        cpu if cpu == target => 0,
        cpu if cache(cpu) == cache(target) => 1,
        _ => 2,
    };
    tasks.iter().map(of).min().unwrap_or(2)
}
