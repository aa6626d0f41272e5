//! CPUs that have vCPUs in common, and their timetable.

use crate::Method;
use crate::cluster::{Cluster, Way};
use crate::gang::Gangs;
use crate::period::Task;
use crate::piece::{Load, Piece};
use crate::settle::{Terms, Timetable};

/// Why CPUs are planned together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Joint {
    /// Tasks are divided over them.
    Divided(Divided),
    /// Tasks on them have their slots at the same times.
    Gangs(Gangs),
}

impl Joint {
    /// The best timetable for the tasks, or the tasks with the budgets that they would need, if the CPUs have not that
    /// much to give.
    pub fn timetable(&self, tasks: &[Task], terms: &Terms) -> Result<Timetable, Vec<Task>> {
        match self {
            Joint::Divided(divided) => divided.timetable(tasks, terms),
            Joint::Gangs(gangs) => gangs.timetable(tasks, terms),
        }
    }
}

/// Tasks that are divided over CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Divided {
    /// What each CPU has to do.
    pub loads: Vec<Load>,
    /// Whether pieces of one task come one after another, so that it can be done as it is. Otherwise the loads only say
    /// how much goes where.
    pub is_split: bool,
    /// Whether every task may use every CPU.
    pub is_open: bool,
}

impl Divided {
    fn timetable(&self, tasks: &[Task], terms: &Terms) -> Result<Timetable, Vec<Task>> {
        if self.is_split {
            let grown = |tasks: &[Task]| grow(&self.loads, tasks, terms.load_max);
            let split = Timetable::settle(as_split(&self.loads, tasks), terms, grown);
            if let Some(split) = split.ok().filter(Timetable::is_storable) {
                return Ok(Timetable { method: Method::Split, ..split });
            }
        }
        // Blocks have room for costs that the pieces have not.
        clustered(&Cluster::new(&self.loads, tasks.len(), self.is_open), tasks, terms)
    }
}

/// The tasks with the budgets and periods that their pieces have.
fn as_split(loads: &[Load], tasks: &[Task]) -> Vec<Task> {
    let mut split: Vec<Task> = tasks.iter().map(|task| Task { cost: 0, ..*task }).collect();
    for (piece, &task) in loads.iter().flat_map(|load| load.pieces.iter().zip(&load.tasks)) {
        let task = &mut split[task as usize];
        task.period = piece.period;
        task.cost += piece.budget;
    }
    // So far it is all of the budget.
    split.iter_mut().for_each(|task| task.cost -= task.net());
    split
}

/// The loads with the budgets that their tasks have now: what has been added to a task since it was split goes to its
/// last piece, which alone has time to spare.
fn grow(loads: &[Load], tasks: &[Task], capacity: u64) -> Option<Vec<Load>> {
    let mut missing: Vec<u64> = tasks.iter().map(|task| task.budget()).collect();
    let mut last: Vec<u64> = vec![0; tasks.len()];
    for (piece, &task) in loads.iter().flat_map(|load| load.pieces.iter().zip(&load.tasks)) {
        last[task as usize] = last[task as usize].max(piece.offset);
    }
    let is_last = |piece: &Piece, task: u32| last[task as usize] == piece.offset;
    for (piece, &task) in loads.iter().flat_map(|load| load.pieces.iter().zip(&load.tasks)) {
        if !is_last(piece, task) {
            missing[task as usize] = missing[task as usize].checked_sub(piece.budget)?;
        }
    }
    let grow = |load: &Load| {
        let mut grown = Load::new(capacity);
        for (&piece, &task) in load.pieces.iter().zip(&load.tasks) {
            let budget = if is_last(&piece, task) { missing[task as usize] } else { piece.budget };
            (0 < budget && budget <= piece.deadline).then_some(())?;
            grown.add(task, Piece { budget, ..piece })?;
        }
        Some(grown)
    };
    loads.iter().map(grow).collect()
}

/// The longest blocks first, and each with the periods that cut least; the first timetable with no slot that is short
/// for no reason, or else the best.
fn clustered(cluster: &Cluster, tasks: &[Task], terms: &Terms) -> Result<Timetable, Vec<Task>> {
    let mut best: Option<Timetable> = None;
    let mut wanted: Option<Vec<Task>> = None;
    for block in Cluster::blocks(tasks) {
        for way in [Way::Multiples, Way::Equal, Way::Afresh] {
            let loads = |tasks: &[Task]| cluster.loads(tasks, block, way, terms.load_max, terms.slot_min_ns);
            match Timetable::settle(cluster.tasks(tasks, block, way, terms.costs.switch_ns), terms, loads) {
                Ok(timetable) if timetable.is_storable() && !timetable.has_cut_budgets(terms.slot_min_ns) => {
                    return Ok(Timetable { method: Method::Clustered, ..timetable });
                }
                Ok(timetable) => {
                    let cost = |timetable: &Timetable| timetable.cost(terms.slot_min_ns);
                    if best.as_ref().is_none_or(|best| cost(&timetable) < cost(best)) {
                        best = Some(timetable);
                    }
                }
                Err(tasks) => wanted = wanted.or(Some(tasks)),
            }
        }
        if best.as_ref().is_some_and(Timetable::is_storable) {
            break;
        }
    }
    match best {
        // What is scattered will be so however much more everybody needs.
        Some(best) if best.is_storable() || wanted.is_none() || best.scattered().is_some() => {
            Ok(Timetable { method: Method::Clustered, ..best })
        }
        _ => Err(wanted.unwrap_or_else(|| tasks.to_vec())),
    }
}
