//! Earliest deadline first on one CPU, simulated. Optimal there: if the tasks' loads fit, every budget is served before
//! its period ends (Liu and Layland 1973; thesis section 5.2).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Slot;
use crate::period::Task;

/// A job that waits for its CPU: ordered by deadline, then by the task's place in the list.
type Job = Reverse<(u64, u32, u64)>;

/// The slots of one round of `length_ns`, which must be a multiple of every period; every task's first period starts
/// at 0. [`Slot::vcpu`] is the task's place in `tasks`. Slots of one owner that touch are one slot.
///
/// A running job is only preempted by an earlier deadline, never by an equal one; among equal ones the first in the
/// list runs first.
pub(crate) fn simulate(tasks: &[Task], length_ns: u64) -> Vec<Slot> {
    let mut releases: BinaryHeap<Reverse<(u64, u32)>> =
        (0..tasks.len() as u32).map(|task| Reverse((0, task))).collect();
    let mut ready: BinaryHeap<Job> = BinaryHeap::with_capacity(tasks.len());
    let mut slots: Vec<Slot> = Vec::new();
    let mut now = 0;
    let mut running: Option<(u64, u32, u64)> = None;
    while now < length_ns {
        while let Some(&Reverse((at, task))) = releases.peek()
            && at <= now
        {
            releases.pop();
            let Task { period, .. } = tasks[task as usize];
            releases.push(Reverse((at + period, task)));
            ready.push(Reverse((at + period, task, tasks[task as usize].budget())));
        }
        let next_release = releases.peek().map_or(length_ns, |&Reverse((at, _))| at.min(length_ns));
        if let Some(Reverse(first)) = ready.peek()
            && running.is_none_or(|job| first.0 < job.0)
        {
            let preempted = running.replace(*first);
            ready.pop();
            ready.extend(preempted.map(Reverse));
        }
        let Some((deadline, task, left)) = running else {
            now = next_release;
            continue;
        };
        let end = next_release.min(now + left);
        serve(&mut slots, Slot { start_ns: now, end_ns: end, vcpu: task });
        running = (end < now + left).then(|| (deadline, task, now + left - end));
        now = end;
    }
    slots
}

fn serve(slots: &mut Vec<Slot>, slot: Slot) {
    match slots.last_mut() {
        Some(last) if last.vcpu == slot.vcpu && last.end_ns == slot.start_ns => last.end_ns = slot.end_ns,
        _ => slots.push(slot),
    }
}
