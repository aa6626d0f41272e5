//! Why each vCPU is planned as it is: what the planner knew when it decided.

use std::cell::RefCell;

use rota_model::{Model, Placement};

use crate::period::{Choice, Task, task};
use crate::piece::Piece;
use crate::plan::{Options, decide};
use crate::{Infeasible, Method, Plan};

/// Why one vCPU is where it is, with the period that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Where it was put.
    pub place: Place,
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

#[derive(Debug, Default)]
struct Notes {
    placements: u32,
    periods: Periods,
    /// As placed, by demand.
    tasks: Vec<Task>,
    /// By demand, CPUs by place in the list of those that may carry reservations.
    places: Vec<Option<Place>>,
}

impl Journal {
    /// All are placed once more, with these tasks.
    pub fn placed(&self, periods: impl Into<Periods>, tasks: &[Task]) {
        let mut notes = self.0.borrow_mut();
        notes.placements += 1;
        notes.periods = periods.into();
        notes.tasks = tasks.to_vec();
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
    let Notes { placements, periods, tasks, places } = journal.0.into_inner();
    let number: Vec<u32> = model.host.tenant_cpus().iter().collect();
    let reason = |((vcpu, task), place): ((&crate::PlannedVcpu, &Task), Option<Place>)| {
        let place = match (vcpu.method, place) {
            (Method::Dedicated, _) | (_, None) => Place::Whole { of: may_use(model, vcpu) },
            (_, Some(place)) => place.named(&number),
        };
        let period = period(vcpu, periods, task.period, &place, model);
        Reason { place, period, placed_before: placements - 1 }
    };
    let places = places.into_iter().chain(std::iter::repeat(None));
    let reasons = plan.vcpus.iter().zip(&tasks).zip(places).map(reason).collect();
    Ok((plan, reasons))
}

fn may_use(model: &Model, vcpu: &crate::PlannedVcpu) -> usize {
    let tenant = &model.tenants[vcpu.tenant as usize];
    let host = &model.host;
    let cpus = if tenant.exclusive_cores { host.exclusive_cpus() } else { host.tenant_cpus() };
    tenant.vcpu_cpus(vcpu.index, &cpus).len()
}

fn period(
    vcpu: &crate::PlannedVcpu,
    periods: Periods,
    placed_ns: u64,
    place: &Place,
    model: &Model,
) -> Period {
    let longest_ns = || {
        let reservation = model.tenants[vcpu.tenant as usize].reservation()?;
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
