//! Timetables that have been made, so that equal CPUs are planned once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;
use rota_model::Host;

use crate::joint::Joint;
use crate::period::{HYPERPERIOD_NS, Task};
use crate::settle::{Terms, Timetable};
use crate::single;
use crate::timetable::SLOT_MIN_NS;

/// So many are remembered that no CPU may have any more.
const UNUSED_MAX: usize = 4_096;
/// No thread makes fewer timetables at a time: to wake one takes as long as to make one or two.
const THREAD_LEAST: usize = 16;

/// What is to be done, by one CPU if it is not divided.
pub(crate) type Work = (Vec<Task>, Option<Joint>);

/// The timetables of groups that have equal tasks and are divided equally. What comes out is the same as without it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    terms: Terms,
    made: HashMap<Work, Result<Arc<Timetable>, Arc<[Task]>>>,
    /// When so many are known, those that are not in use are forgotten.
    full: usize,
}

impl Known {
    /// On a host whose CPUs have `capacity` to give, in ns of a hyperperiod.
    pub fn new(host: &Host, capacity: u64) -> Known {
        let terms = Terms {
            // Placed tasks leave the floor free; periods and costs changed afterwards may take a tenth of it.
            load_max: capacity + (HYPERPERIOD_NS - capacity) / 10,
            slot_min_ns: slot_min_ns(host),
            costs: host.costs,
        };
        Known { terms, made: HashMap::new(), full: UNUSED_MAX }
    }

    /// Makes those timetables that are not known in threads, if they are many: large hosts are planned sooner so. Who
    /// then asks for one gets what it would get without, however many threads there were.
    pub fn prepare(&mut self, all: &[Work]) {
        if all.len() < 2 * THREAD_LEAST {
            return;
        }
        self.forget();
        let mut seen = HashSet::new();
        let unknown = all.iter().filter(|&work| !self.made.contains_key(work) && seen.insert(work));
        let unknown: Vec<&Work> = unknown.collect();
        if unknown.len() < 2 * THREAD_LEAST {
            return;
        }
        let terms = &self.terms;
        let made = unknown.par_iter().with_min_len(THREAD_LEAST).map(|work| make(work, terms));
        let made: Vec<Result<Timetable, Vec<Task>>> = made.collect();
        self.made.extend(unknown.into_iter().cloned().zip(made.into_iter().map(shared)));
        // None of them is in use yet, and none may be forgotten before it is.
        self.full = self.full.max(self.made.len() + 1);
    }

    /// The timetable for tasks, divided as the second says or else on one CPU.
    ///
    /// # Errors
    ///
    /// The tasks with the budgets that they would need, if the CPUs have not that much to give.
    pub fn timetable(&mut self, work: Work) -> Result<Arc<Timetable>, Arc<[Task]>> {
        self.forget();
        self.made.entry(work).or_insert_with_key(|work| shared(make(work, &self.terms))).clone()
    }

    /// Forgets what is not in use, if too much is known.
    fn forget(&mut self) {
        if self.made.len() >= self.full {
            self.made.retain(|_, made| made.as_ref().is_ok_and(|timetable| Arc::strong_count(timetable) > 1));
            self.full = self.made.len() + UNUSED_MAX;
        }
    }
}

fn make((tasks, joint): &Work, terms: &Terms) -> Result<Timetable, Vec<Task>> {
    match joint {
        Some(joint) => joint.timetable(tasks, terms),
        None => single::timetable(tasks, terms),
    }
}

fn shared(made: Result<Timetable, Vec<Task>>) -> Result<Arc<Timetable>, Arc<[Task]>> {
    made.map(Arc::new).map_err(Arc::from)
}

/// The shortest slot that is worth a change of tasks, in ns.
pub(crate) fn slot_min_ns(host: &Host) -> u64 {
    host.slot_min_ns.max(SLOT_MIN_NS).max(host.costs.switch_ns)
}

#[cfg(test)]
mod tests {
    use rota_model::{Costs, Share};

    use super::*;

    /// CPUs with two tasks of their own each, and some of them twice.
    fn works() -> Vec<Work> {
        let task = |period, ppb| Task { period, share: Share::from_ppb(ppb).unwrap(), cost: 0 };
        let work = |cpu: u32| {
            let ppb = 300_000_000 + 1_000_000 * (cpu % 64);
            (vec![task(HYPERPERIOD_NS / 156, ppb), task(HYPERPERIOD_NS / 100, ppb)], None)
        };
        (0..4 * THREAD_LEAST as u32 + 40).map(work).collect()
    }

    #[test]
    fn what_is_made_in_threads_is_the_same() {
        let terms = Terms { load_max: HYPERPERIOD_NS, slot_min_ns: SLOT_MIN_NS, costs: Costs::default() };
        let [mut one, mut many] = [1, 0].map(|full| Known { terms, made: HashMap::new(), full });
        let works = works();
        many.prepare(&works);
        assert_eq!(many.made.len(), 64, "each is made once");
        for work in works {
            let prepared = many.made.get(&work).cloned();
            let made = many.timetable(work.clone());
            let is_same =
                |prepared: &Arc<Timetable>| made.as_ref().is_ok_and(|made| Arc::ptr_eq(made, prepared));
            assert!(
                prepared.is_some_and(|prepared| prepared.as_ref().is_ok_and(is_same)),
                "it is not forgotten"
            );
            assert_eq!(made, one.timetable(work));
        }
    }
}
