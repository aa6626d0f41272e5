//! Slots for what CPUs have to do, with budgets that allow for what the changes of task in these slots take.

use rota_model::Costs;

use crate::dissolve::dissolve;
use crate::edf::simulate;
use crate::net::{Lane, Service, services};
use crate::period::{HYPERPERIOD_NS, Task};
use crate::piece::Load;
use crate::timetable::{SLICES_MAX, SLOT_MIN_NS, VCPU_CPUS_MAX};
use crate::{Method, Slot};

/// Budgets follow what changes of task turn out to take: up and down for the first rounds, after which next to all have
/// settled, and then only up, until there are no more of them than this.
const FOLLOW_ROUNDS: u32 = 4;
const SETTLE_ROUNDS: u32 = 16;

/// What a timetable has to heed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The sum of loads that budgets on one CPU may grow to, by rounding and by costs, in ns of a hyperperiod.
    pub load_max: u64,
    /// The shortest slot that is worth a change of tasks, in ns.
    pub slot_min_ns: u64,
    pub costs: Costs,
}

/// One CPU's slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuSlots {
    /// They repeat after this, in ns.
    pub length_ns: u64,
    /// [`Slot::vcpu`] is the task's place in the timetable.
    pub slots: Vec<Slot>,
}

/// The slots of CPUs that are planned together, whoever owns them: of one, unless tasks are divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timetable {
    /// The tasks as planned, in the order given; their periods may be shorter than asked for, never longer.
    pub tasks: Vec<Task>,
    /// In the order given.
    pub cpus: Vec<CpuSlots>,
    /// The longest time without service, per task, across the wrap and net of costs.
    pub blackouts: Vec<u64>,
    /// How tasks with slots on several CPUs were planned.
    pub method: Method,
}

impl Timetable {
    /// And what the tasks get in it. None if a CPU has too much to do.
    fn new(tasks: Vec<Task>, loads: &[Load], terms: &Terms) -> Option<(Timetable, Vec<Service>)> {
        let cpus: Vec<CpuSlots> =
            loads.iter().map(|load| CpuSlots::new(load, terms)).collect::<Option<_>>()?;
        let lanes: Vec<Lane> =
            cpus.iter().map(|cpu| Lane { length_ns: cpu.length_ns, slots: &cpu.slots }).collect();
        let services = services(&tasks, &lanes, terms.costs);
        let blackouts = services.iter().map(|service| service.blackout_ns).collect();
        Some((Timetable { tasks, cpus, blackouts, method: Method::Partitioned }, services))
    }

    /// Simulates again and again, with the budgets that the changes of task in the last simulation ask for, until every
    /// budget is enough. If `loads` finds no way for the CPUs to give that much, or no end is in sight: the tasks as
    /// they were then.
    pub fn settle(
        mut tasks: Vec<Task>,
        terms: &Terms,
        loads: impl Fn(&[Task]) -> Option<Vec<Load>>,
    ) -> Result<Timetable, Vec<Task>> {
        let mut enough = None;
        for round in 0..SETTLE_ROUNDS {
            let Some(loads) = loads(&tasks) else { break };
            let Some((timetable, services)) = Timetable::new(tasks.clone(), &loads, terms) else { break };
            let served = || timetable.tasks.iter().zip(&services);
            let costs = served().map(|(task, service)| task.budget() - service.least_ns);
            tasks = served().zip(costs).map(|((task, _), cost)| Task { cost, ..*task }).collect();
            let is_enough = served().all(|(task, service)| service.is_enough(task));
            let is_settled = tasks == timetable.tasks;
            if round >= FOLLOW_ROUNDS {
                for (task, before) in tasks.iter_mut().zip(&timetable.tasks) {
                    task.cost = task.cost.max(before.cost);
                }
            }
            if is_enough {
                enough = Some(timetable);
            }
            if is_settled || enough.is_some() && round >= FOLLOW_ROUNDS {
                break;
            }
        }
        enough.ok_or(tasks)
    }

    /// The CPU whose part of a table has the most slices, by place.
    pub fn most_sliced(&self) -> Option<(usize, &CpuSlots)> {
        self.cpus.iter().enumerate().max_by_key(|(_, cpu)| cpu.slices())
    }

    /// Whether the table's format has room for it.
    pub fn is_storable(&self) -> bool {
        self.cpus.iter().all(|cpu| cpu.slices() <= SLICES_MAX) && self.scattered().is_none()
    }

    /// A task with slots on more CPUs than the table's format allows, by place.
    pub fn scattered(&self) -> Option<usize> {
        if self.cpus.len() <= VCPU_CPUS_MAX {
            return None;
        }
        let mut on = vec![(0, usize::MAX); self.tasks.len()];
        for (number, cpu) in self.cpus.iter().enumerate() {
            for slot in &cpu.slots {
                let (count, last) = &mut on[slot.vcpu as usize];
                if std::mem::replace(last, number) != number {
                    *count += 1;
                }
            }
        }
        on.into_iter().position(|(count, _)| count > VCPU_CPUS_MAX)
    }

    /// Whether a slot is short although its owner's budget is not: other periods might give it a longer one. (A budget
    /// that is short itself would be shorter still.)
    pub fn has_cut_budgets(&self, slot_min_ns: u64) -> bool {
        let is_cut = |slot: &Slot| slot.len_ns() < self.tasks[slot.vcpu as usize].budget();
        let is_short = |slot: &&Slot| slot.len_ns() < slot_min_ns;
        self.cpus.iter().flat_map(|cpu| &cpu.slots).filter(is_short).any(is_cut)
    }

    /// Less is better: what cannot be stored, then short slots in a hyperperiod, then slots in it.
    pub fn cost(&self, slot_min_ns: u64) -> (bool, u64, u64) {
        let per_hyperperiod = |count: &dyn Fn(&[Slot]) -> usize| -> u64 {
            self.cpus.iter().map(|cpu| count(&cpu.slots) as u64 * (HYPERPERIOD_NS / cpu.length_ns)).sum()
        };
        let short = |slots: &[Slot]| slots.iter().filter(|slot| slot.len_ns() < slot_min_ns).count();
        (!self.is_storable(), per_hyperperiod(&short), per_hyperperiod(&<[Slot]>::len))
    }
}

impl CpuSlots {
    /// None if the pieces do not all fit into their windows.
    fn new(load: &Load, terms: &Terms) -> Option<CpuSlots> {
        let (switch_ns, length_ns) = (terms.costs.switch_ns, load.length_ns);
        let slots = simulate(&load.pieces, length_ns).ok()?;
        let mut slots = dissolve(&load.pieces, length_ns, slots, terms.slot_min_ns, switch_ns);
        if slots.iter().any(|slot| slot.len_ns() < SLOT_MIN_NS) {
            // What finds nobody to give it 50 us may still find the little that the table's format asks for.
            slots = dissolve(&load.pieces, length_ns, slots, SLOT_MIN_NS, switch_ns);
        }
        for slot in &mut slots {
            slot.vcpu = load.tasks[slot.vcpu as usize];
        }
        // Pieces of one task that touch.
        slots.dedup_by(|next, slot| {
            let is_one = slot.vcpu == next.vcpu && slot.end_ns == next.start_ns;
            if is_one {
                slot.end_ns = next.end_ns;
            }
            is_one
        });
        // These give their owners nothing, and only keep others from beginning.
        slots.retain(|slot| slot.len_ns() > switch_ns);
        Some(CpuSlots { length_ns, slots })
    }

    /// Its shortest slot in ns.
    pub fn slot_min_ns(&self) -> u64 {
        self.slots.iter().map(Slot::len_ns).min().unwrap_or(self.length_ns)
    }

    fn slices(&self) -> u64 {
        self.length_ns.div_ceil(self.slot_min_ns())
    }
}
