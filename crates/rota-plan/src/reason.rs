//! Why each vCPU is planned as it is: what the planner knew when it decided.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rota_model::{Model, Placement};

use crate::period::{Choice, Task, task};
use crate::piece::Piece;
use crate::plan::{Options, decide};
use crate::timetable::WINDOW_VCPUS_MAX;
use crate::windows::claims_fit;
use crate::{CpuPlan, Infeasible, Method, Plan, PlannedVcpu, Slot};

/// Why one vCPU is where it is, with the period that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Where it was put.
    pub place: Place,
    /// Why it shares a CPU with other vCPUs of its tenant, if it does.
    pub together: Option<Together>,
    /// Why its period is what it is.
    pub period: Period,
    /// How often all vCPUs had been placed before, until a CPU turned out to have too little for what changes of task
    /// and rounding take.
    pub placed_before: u32,
}

/// Where a vCPU was put, and why there. Parts of a CPU are in ns of [`crate::HYPERPERIOD_NS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A share of 1 has a CPU to itself: one of so many that it may use, which the others can do without.
    Whole {
        /// How many CPUs it may use.
        of: usize,
    },
    /// The whole of it is on one CPU that had room.
    Fit {
        /// How many of the CPUs had room.
        with_room: usize,
        /// How many CPUs it may use.
        of: usize,
        /// Which of them was taken: the one with most room, or with least.
        placement: Placement,
        /// What was free there before.
        free: u64,
        /// What it takes.
        needed: u64,
    },
    /// The whole of it is on one CPU that had room, and not the one that [`Place::Fit`] would have taken. So no CPU has
    /// more vCPUs of one tenant than need be.
    Apart {
        /// How many of the CPUs had room.
        with_room: usize,
        /// How many CPUs it may use.
        of: usize,
        /// What was free there before.
        free: u64,
        /// What it takes.
        needed: u64,
    },
    /// The whole of it is on one CPU, and has its slots at the same times as the tenant's other vCPUs.
    Together {
        /// How many others.
        with: usize,
        /// How many CPUs it may use.
        of: usize,
    },
    /// Not all vCPUs fit on one CPU each. All loads were divided at once, and this one went to one CPU whole.
    Flow,
    /// No CPU had enough left, so it was cut into pieces that run one after another.
    Split {
        /// What it takes.
        needed: u64,
        /// The most that was free on one of the CPUs that it may use.
        most: u64,
        /// CPU and length of each piece in ns, in the order in which they run.
        pieces: Vec<(u32, u64)>,
    },
    /// No CPU had enough left and no cut was found, so CPUs that have room between them became a cluster.
    Cluster {
        /// What it takes.
        needed: u64,
        /// The most that was free on one of the CPUs that it may use.
        most: u64,
        /// The CPUs that it was divided over at first; which of a cluster's vCPUs migrate is chosen last.
        cpus: Vec<u32>,
    },
    /// No CPU had enough left, nor had several without others going elsewhere: it is divided as the flow of all loads
    /// has it.
    Divided,
}

/// Why vCPUs of one tenant share a CPU. Parts of a CPU are in ns of [`crate::HYPERPERIOD_NS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// The tenant has more vCPUs than CPUs that it may use and that no other vCPU has to itself.
    Many {
        /// How many vCPUs.
        vcpus: usize,
        /// How many CPUs.
        cpus: usize,
    },
    /// No CPU with fewer of them has room, and no exchange was found that makes room.
    NoRoom {
        /// What is free on one of those CPUs at most.
        most: u64,
        /// What it takes.
        needed: u64,
    },
    /// The placement asked for is the one that fills CPUs.
    Packed,
    /// In the placements that keep them apart some CPU had too little for what changes of task and rounding take.
    Costs,
    /// No placement was found that gives each vCPU one CPU.
    Divided,
}

/// Why a period is what it is. Shorter periods keep every promise as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A CPU to itself has none.
    None,
    /// The longest candidate that keeps the latency.
    Longest,
    /// A shorter one than the longest, in ns, since with it less is lost by rounding budgets to whole ns.
    LeastWaste(u64),
    /// A shorter one than the longest, in ns: all vCPUs have one in common, since rounding takes least so.
    Common(u64),
    /// Shorter than so many ns, as it was placed with, so that the slots of its CPU are not too short.
    LongerSlots(u64),
    /// Shorter than so many ns, as it was placed with, so that its pieces fit beside the others on their CPUs.
    Pieces(u64),
    /// Shorter than so many ns, as it was placed with: a multiple of the block of its cluster.
    Block(u64),
    /// Shorter than so many ns, as it was placed with, so that slots that come together fit beside the others' on their
    /// CPUs.
    Together(u64),
}

/// Why a CPU's vCPUs wait for their slots when they wake, if nobody leaves them time before. Elsewhere one that has
/// some of its budget left is served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsAlone {
    /// This one, by its place in [`Plan::vcpus`], has slots on other CPUs, too, which must not overlap.
    Migrates(u32),
    /// It has so many vCPUs, more than [`WINDOW_VCPUS_MAX`].
    Many(usize),
    /// This one has its slots at the same times as others of its tenant, and would not elsewhere in its windows.
    Together(u32),
    /// This one's guest is shown its slots.
    Shown(u32),
    /// It has time for the changes of task that its slots make. It has too little for all that its vCPUs could make if
    /// they were served as they wake.
    Changes,
}

/// Why one of the plan's CPUs goes by its slots alone, where a change of tasks takes `switch_ns`. None if it does not,
/// or nobody waits for a slot there: it has no slots, or one vCPU has all of its time.
pub fn slots_alone(plan: &Plan, cpu: &CpuPlan, switch_ns: u64) -> Option<SlotsAlone> {
    let mut owners: Vec<u32> = cpu.slots.iter().map(|slot| slot.vcpu).collect();
    owners.sort_unstable();
    owners.dedup();
    let used: u64 = cpu.slots.iter().map(|slot| slot.len_ns()).sum();
    if owners.len() == 1 && used == cpu.length_ns {
        return None;
    }
    let count = owners.len();
    let together = owners.iter().find(|&&vcpu| plan.vcpus[vcpu as usize].method == Method::Together);
    if let Some(&vcpu) = together {
        return Some(SlotsAlone::Together(vcpu));
    }
    if let Some(&vcpu) = owners.iter().find(|&&vcpu| plan.vcpus[vcpu as usize].is_shown) {
        return Some(SlotsAlone::Shown(vcpu));
    }
    let migrates = owners.iter().find(|&&vcpu| plan.vcpus[vcpu as usize].cpus.len() > 1);
    match migrates {
        Some(&vcpu) => Some(SlotsAlone::Migrates(vcpu)),
        None if count > WINDOW_VCPUS_MAX => Some(SlotsAlone::Many(count)),
        None => (!claims_fit(plan, cpu, &owners, switch_ns)).then_some(SlotsAlone::Changes),
    }
}

/// How the periods of a placement were chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Periods {
    #[default]
    Longest,
    LeastWaste,
    Common,
}

impl From<Choice> for Periods {
    fn from(choice: Choice) -> Periods {
        match choice {
            Choice::Longest => Periods::Longest,
            Choice::LeastWaste => Periods::LeastWaste,
        }
    }
}

/// Where the planner notes what it decides, if anybody wants to know. What is decided anew is noted anew, so the last
/// note counts.
#[derive(Debug, Default)]
pub(crate) struct Journal(RefCell<Notes>);

/// What is noted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    placements: u32,
    periods: Periods,
    /// As placed, by demand.
    tasks: Vec<Task>,
    /// By demand, CPUs by place in the list of those that may carry reservations.
    places: Vec<Option<Place>>,
    /// By demand.
    together: BTreeMap<usize, Together>,
}

impl Journal {
    /// What is noted so far.
    pub fn notes(&self) -> Notes {
        self.0.borrow().clone()
    }

    /// As it was then.
    pub fn set(&self, notes: Notes) {
        *self.0.borrow_mut() = notes;
    }

    /// All are placed once more, with these tasks.
    pub fn placed(&self, periods: impl Into<Periods>, tasks: &[Task]) {
        let mut notes = self.0.borrow_mut();
        notes.placements += 1;
        notes.periods = periods.into();
        notes.tasks = tasks.to_vec();
    }

    /// Why a vCPU, by demand, is with others of its tenant.
    pub fn together(&self, vcpu: usize, together: Option<Together>) {
        let noted = &mut self.0.borrow_mut().together;
        noted.remove(&vcpu);
        noted.extend(together.map(|together| (vcpu, together)));
    }

    /// A vCPU, by demand, goes there. CPUs are by place.
    pub fn put(&self, vcpu: usize, place: Place) {
        let places = &mut self.0.borrow_mut().places;
        if places.len() <= vcpu {
            places.resize(vcpu + 1, None);
        }
        places[vcpu] = Some(place);
    }
}

impl Place {
    pub(crate) fn split(needed: u64, most: u64, cuts: &[(usize, Piece)]) -> Place {
        Place::Split {
            needed,
            most,
            pieces: cuts.iter().map(|(cpu, piece)| (*cpu as u32, piece.budget)).collect(),
        }
    }

    /// Whether each vCPU had one CPU where it was decided.
    fn is_of_one(&self) -> bool {
        matches!(self, Place::Fit { .. } | Place::Apart { .. } | Place::Together { .. })
    }

    /// With numbers for places.
    fn named(self, number: &[u32]) -> Place {
        let name = |place: u32| number[place as usize];
        match self {
            Place::Split { needed, most, pieces } => {
                let pieces = pieces.into_iter().map(|(place, budget)| (name(place), budget)).collect();
                Place::Split { needed, most, pieces }
            }
            Place::Cluster { needed, most, cpus } => {
                Place::Cluster { needed, most, cpus: cpus.into_iter().map(name).collect() }
            }
            other => other,
        }
    }
}

/// As [`crate::plan`], with the reason of each of [`Plan::vcpus`].
///
/// # Errors
///
/// [`Infeasible`], if not every promise can be kept.
pub fn explain(model: &Model, options: &Options) -> Result<(Plan, Vec<Reason>), Infeasible> {
    let journal = Journal::default();
    let plan = decide(model, options, Some(&journal))?;
    let Notes { placements, periods, tasks, places, together } = journal.0.into_inner();
    let number: Vec<u32> = model.host.tenant_cpus().iter().collect();
    let divided = places.iter().flatten().any(|place| !place.is_of_one());
    let reason = |(at, ((vcpu, task), place)): (usize, ((&PlannedVcpu, &Task), Option<Place>))| {
        let together = if divided {
            shares_a_cpu(&plan, vcpu).then_some(Together::Divided)
        } else {
            together.get(&at).copied()
        };
        let place = match (vcpu.method, place) {
            (Method::Dedicated, _) | (_, None) => Place::Whole { of: may_use(model, vcpu) },
            (_, Some(place)) => place.named(&number),
        };
        let is_beside = |cpu: &CpuPlan| {
            let is_together = |slot: &Slot| plan.vcpus[slot.vcpu as usize].method == Method::Together;
            vcpu.cpus.contains(&cpu.cpu) && cpu.slots.iter().any(is_together)
        };
        let period = match period(vcpu, periods, task.period, &place, model) {
            Period::LongerSlots(placed_ns) if plan.cpus.iter().any(is_beside) => Period::Together(placed_ns),
            period => period,
        };
        Reason { place, together, period, placed_before: placements - 1 }
    };
    let places = places.into_iter().chain(std::iter::repeat(None));
    let reasons = plan.vcpus.iter().zip(&tasks).zip(places).enumerate().map(reason).collect();
    Ok((plan, reasons))
}

/// Whether another vCPU of its tenant has slots on one of its CPUs.
fn shares_a_cpu(plan: &Plan, vcpu: &PlannedVcpu) -> bool {
    let is_other = |other: &&PlannedVcpu| other.tenant == vcpu.tenant && other.index != vcpu.index;
    plan.vcpus.iter().filter(is_other).any(|other| other.cpus.iter().any(|cpu| vcpu.cpus.contains(cpu)))
}

fn may_use(model: &Model, vcpu: &PlannedVcpu) -> usize {
    let tenant = &model.tenants[vcpu.tenant as usize];
    let host = &model.host;
    let cpus = if tenant.exclusive_cores { host.exclusive_cpus() } else { host.tenant_cpus() };
    tenant.vcpu_cpus(vcpu.index, &cpus).len()
}

fn period(vcpu: &PlannedVcpu, periods: Periods, placed_ns: u64, place: &Place, model: &Model) -> Period {
    let longest_ns = || {
        let reservation = model.tenants[vcpu.tenant as usize].vcpu_reservation(vcpu.index)?;
        let task = task(&reservation, Choice::Longest, model.host.costs.switch_ns).ok()?;
        Some(task.period)
    };
    match (vcpu.method, place) {
        (Method::Dedicated, _) => Period::None,
        (Method::Clustered, _) if vcpu.period_ns < placed_ns => Period::Block(placed_ns),
        (_, Place::Split { .. }) if vcpu.period_ns < placed_ns => Period::Pieces(placed_ns),
        _ if vcpu.period_ns < placed_ns => Period::LongerSlots(placed_ns),
        _ => match (longest_ns().filter(|&longest| longest > placed_ns), periods) {
            (Some(longest), Periods::LeastWaste) => Period::LeastWaste(longest),
            (Some(longest), Periods::Common) => Period::Common(longest),
            _ => Period::Longest,
        },
    }
}
