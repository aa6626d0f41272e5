//! Timetables that have been made, so that equal CPUs are planned once.

use std::collections::HashMap;
use std::rc::Rc;

use rota_model::Host;

use crate::joint::Joint;
use crate::period::{HYPERPERIOD_NS, Task};
use crate::settle::{Terms, Timetable};
use crate::single;
use crate::timetable::SLOT_MIN_NS;

/// So many are remembered that no CPU may have any more.
const UNUSED_MAX: usize = 4_096;

/// What is to be done, by one CPU if it is not divided.
type Work = (Vec<Task>, Option<Joint>);

/// The timetables of groups that have equal tasks and are divided equally. What comes out is the same as without it.
#[derive(Debug)]
pub(crate) struct Known {
    terms: Terms,
    made: HashMap<Work, Result<Rc<Timetable>, Rc<[Task]>>>,
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

    /// The timetable for tasks, divided as `joint` says or else on one CPU.
    ///
    /// # Errors
    ///
    /// The tasks with the budgets that they would need, if the CPUs have not that much to give.
    pub fn timetable(&mut self, tasks: Vec<Task>, joint: Option<Joint>) -> Result<Rc<Timetable>, Rc<[Task]>> {
        if self.made.len() >= self.full {
            self.made.retain(|_, made| made.as_ref().is_ok_and(|timetable| Rc::strong_count(timetable) > 1));
            self.full = self.made.len() + UNUSED_MAX;
        }
        let make = |(tasks, joint): &Work| {
            let made = match joint {
                Some(joint) => joint.timetable(tasks, &self.terms),
                None => single::timetable(tasks, &self.terms),
            };
            made.map(Rc::new).map_err(Rc::from)
        };
        self.made.entry((tasks, joint)).or_insert_with_key(make).clone()
    }
}

/// The shortest slot that is worth a change of tasks, in ns.
pub(crate) fn slot_min_ns(host: &Host) -> u64 {
    host.slot_min_ns.max(SLOT_MIN_NS).max(host.costs.switch_ns)
}
