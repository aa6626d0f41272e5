//! CPUs that share migrating vCPUs, planned together in blocks of one length: optimal, where splitting is not.
//!
//! Every vCPU of a cluster has a period that is a multiple of the block. Those that are divided over CPUs get their
//! budget in every block, at the same times of each (`wrap`); those that stay on one CPU fill what is left there, under
//! earliest deadline first. All their deadlines fall on block ends and every block leaves them the same time, so they
//! are served if that time is enough in sum. Hence whatever can be divided at all (`flow`) is planned, but for the
//! rounding of budgets to whole nanoseconds of a block.
//!
//! DP-Fair (Levin, Funk, Sadowski, Pye and Brandt 2010) cuts time at every deadline of every task and lets tasks
//! migrate in each of these slices. Here blocks are as long as the shortest period, and as there are no more migrating
//! vCPUs than CPUs less one, and every second block is laid out backwards so that what was at the end of one is at the
//! start of the next, they migrate and are preempted no more often than under it.

use std::collections::{BTreeMap, VecDeque};

use crate::period::{CANDIDATES, HYPERPERIOD_NS, Task};
use crate::piece::{Load, Piece};
use crate::timetable::SLOT_MIN_NS;
use crate::wrap::{Edge, Stretch, To, lay_out, walk, without_cycles};

/// So many lengths of the block are tried.
const BLOCKS_TRIED: usize = 8;

/// CPUs and the vCPUs on them, all by place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cluster {
    cpus: usize,
    /// By task the CPU that it stays on, if it does.
    homes: Vec<Option<usize>>,
    /// Which CPUs the others are divided over: a forest.
    edges: Vec<Edge>,
    /// Whether every task may use every CPU.
    is_open: bool,
}

/// How the tasks of a cluster are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Those that stay on one CPU have a period as near to theirs as a multiple of the block can be: preempted least.
    Multiples,
    /// All have the block's: longest slots where periods are unlike.
    Equal,
    /// As `Equal`, and who is divided is chosen anew, so that no part is short. Only where every task may use every
    /// CPU.
    Afresh,
}

impl Cluster {
    /// Of CPUs with so much of each of `tasks` tasks to do; when is not looked at.
    pub fn new(loads: &[Load], tasks: usize, is_open: bool) -> Cluster {
        let mut amounts: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (cpu, load) in loads.iter().enumerate() {
            for (piece, &task) in load.pieces.iter().zip(&load.tasks) {
                *amounts.entry((task as usize, cpu)).or_default() += piece.load();
            }
        }
        let edge = |((vcpu, cpu), amount)| Edge { vcpu, cpu, amount };
        let (homes, edges) = homes(amounts.into_iter().map(edge).collect(), tasks);
        Cluster { cpus: loads.len(), homes, edges: without_cycles(edges), is_open }
    }

    /// The lengths in ns that a block may have, the best first: every task has a period at least as long.
    pub fn blocks(tasks: &[Task]) -> impl Iterator<Item = u64> {
        let shortest = tasks.iter().map(|task| task.period).min().unwrap_or(HYPERPERIOD_NS);
        let fitting = move || CANDIDATES.into_iter().filter(move |&block| block <= shortest);
        // Every second block laid out backwards saves a divided vCPU every second migration.
        let best = fitting().find(|&block| is_mirrored(block) && 2 * block > shortest);
        best.into_iter().chain(fitting().filter(move |&block| Some(block) != best)).take(BLOCKS_TRIED)
    }

    /// The tasks with the periods that they have in such a cluster.
    pub fn tasks(&self, tasks: &[Task], block: u64, way: Way, switch_ns: u64) -> Vec<Task> {
        let one = |(task, home): (&Task, &Option<usize>)| match (home, way) {
            (Some(_), Way::Multiples) => task.with_multiple_of(block, switch_ns),
            _ => task.shortened(block, switch_ns),
        };
        tasks.iter().zip(&self.homes).map(one).collect()
    }

    /// What each CPU has to do, `tasks` being as they are in such a cluster, or none if some CPU has not `capacity`,
    /// in ns of a hyperperiod, for it. No part of a divided vCPU is shorter than `least` if there is a way around it.
    pub fn loads(
        &self,
        tasks: &[Task],
        block: u64,
        way: Way,
        capacity: u64,
        least: u64,
    ) -> Option<Vec<Load>> {
        let demands: Vec<u64> = tasks.iter().map(|task| task.budget()).collect();
        if demands.iter().zip(tasks).any(|(&demand, task)| demand > task.period) {
            return None;
        }
        let rounds = HYPERPERIOD_NS / block;
        if way == Way::Afresh {
            if !self.is_open {
                return None;
            }
            let packed = |least| pack(&demands, self.cpus, capacity / rounds, least);
            let parts = packed(least).or_else(|| packed(SLOT_MIN_NS)).or_else(|| packed(1))?;
            let (homes, parts) = homes(parts, tasks.len());
            return with_parts(self.with_homes(tasks, &homes, capacity)?, &parts, block, least);
        }
        let loads = self.with_homes(tasks, &self.homes, capacity)?;
        let room: Vec<u64> = loads.iter().map(|load| load.free / rounds).collect();
        let fits = |least| share_out(&self.edges, &demands, &room, least);
        let parts = fits(least).or_else(|| fits(SLOT_MIN_NS)).or_else(|| fits(1))?;
        with_parts(loads, &parts, block, least)
    }

    /// What each CPU has to do for the tasks that stay on it.
    fn with_homes(&self, tasks: &[Task], homes: &[Option<usize>], capacity: u64) -> Option<Vec<Load>> {
        let mut loads = vec![Load::new(capacity); self.cpus];
        for ((place, task), home) in (0..).zip(tasks).zip(homes) {
            let Some(home) = *home else { continue };
            loads[home].add(place, Piece::whole(task.period, task.budget()))?;
        }
        Some(loads)
    }
}

/// And for those that are divided.
fn with_parts(mut loads: Vec<Load>, parts: &[Edge], block: u64, least: u64) -> Option<Vec<Load>> {
    for (cpu, task, piece) in fixed(&lay_out(parts, block, least), block) {
        loads[cpu].add(task as u32, piece)?;
    }
    Some(loads)
}

/// Who stays on one CPU, by task, and the parts of the others.
fn homes(parts: Vec<Edge>, tasks: usize) -> (Vec<Option<usize>>, Vec<Edge>) {
    let mut degrees = vec![0; tasks];
    parts.iter().for_each(|part| degrees[part.vcpu] += 1);
    let (divided, whole): (Vec<Edge>, Vec<Edge>) = parts.into_iter().partition(|part| degrees[part.vcpu] > 1);
    let mut homes = vec![None; tasks];
    whole.iter().for_each(|part| homes[part.vcpu] = Some(part.cpu));
    (homes, divided)
}

/// McNaughton's rule (1959) with a choice of who is cut: CPU after CPU is filled with the smallest that are left, until
/// the largest can be cut so that no part is shorter than `least`. None if that leaves too little room; where `least`
/// is 1, only if there is too little in sum.
fn pack(demands: &[u64], cpus: usize, room: u64, least: u64) -> Option<Vec<Edge>> {
    let mut waiting: VecDeque<usize> = (0..demands.len()).collect();
    waiting.make_contiguous().sort_by_key(|&vcpu| demands[vcpu]);
    let mut parts = Vec::with_capacity(demands.len() + cpus);
    let mut carried: Option<(usize, u64)> = None;
    for cpu in 0..cpus {
        let mut left = room;
        if let Some((vcpu, amount)) = carried.take() {
            left = left.checked_sub(amount)?;
            parts.push(Edge { vcpu, cpu, amount });
        }
        while let (Some(&smallest), Some(&largest)) = (waiting.front(), waiting.back()) {
            let small = demands[smallest];
            // One that is a little larger than what is left leaves some of that idle: its rest has to be worth a slot.
            let cut = left.min(demands[largest].saturating_sub(least));
            if cut >= least && demands[largest] > left && cpu + 1 < cpus {
                parts.push(Edge { vcpu: largest, cpu, amount: cut });
                carried = Some((largest, demands[largest] - cut));
                waiting.pop_back();
                break;
            }
            if small > left {
                break;
            }
            parts.push(Edge { vcpu: smallest, cpu, amount: small });
            left -= small;
            waiting.pop_front();
        }
    }
    waiting.is_empty().then_some(parts)
}

fn is_mirrored(block: u64) -> bool {
    HYPERPERIOD_NS.is_multiple_of(2 * block)
}

/// Stretches of a block as pieces, by CPU and task: every second block backwards if the hyperperiod is a whole number
/// of pairs.
fn fixed(stretches: &[Stretch], block: u64) -> Vec<(usize, usize, Piece)> {
    let mut pieces = Vec::with_capacity(2 * stretches.len());
    for &Stretch { vcpu, cpu, start, end } in stretches {
        let mut push =
            |period, offset, budget| pieces.push((cpu, vcpu, Piece::fixed(period, offset, budget)));
        if !is_mirrored(block) {
            push(block, start, end - start);
        } else if end == block {
            push(2 * block, start, 2 * (block - start));
        } else {
            push(2 * block, start, end - start);
            push(2 * block, 2 * block - end, end - start);
        }
    }
    pieces
}

/// How much of each vCPU's budget in a block goes to which CPU.
///
/// `edges` are a forest; their amounts are not looked at. `demands` has each vCPU's budget, `room` what each CPU has to
/// give, in ns of a block. CPUs at the forest's rim take as much as they can, so that least is left for the inner ones:
/// if anything fits, this does. But no part is shorter than `least` if there is a way around it, so a CPU may be left
/// with a part that fits nobody.
fn share_out(edges: &[Edge], demands: &[u64], room: &[u64], least: u64) -> Option<Vec<Edge>> {
    let mut left = demands.to_vec();
    let mut room = room.to_vec();
    let mut parts = Vec::with_capacity(edges.len());
    for (Edge { vcpu, cpu, .. }, to) in walk(edges).into_iter().rev() {
        let amount = match to {
            // All of its CPUs but this one have what they can take.
            To::Vcpu => left[vcpu],
            To::Cpu => {
                let most = left[vcpu].min(room[cpu]);
                let rest = left[vcpu] - most;
                let most = if rest > 0 && rest < least { left[vcpu].saturating_sub(least) } else { most };
                if most < least && most < left[vcpu] { 0 } else { most }
            }
        };
        room[cpu] = room[cpu].checked_sub(amount)?;
        left[vcpu] -= amount;
        if amount > 0 {
            parts.push(Edge { vcpu, cpu, amount });
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: u64 = 1_000;

    /// A line of CPUs, each but the last sharing a vCPU with the next.
    fn line(cpus: usize) -> Vec<Edge> {
        let edge = |vcpu, cpu| Edge { vcpu, cpu, amount: 0 };
        (0..cpus - 1).flat_map(|vcpu| [edge(vcpu, vcpu), edge(vcpu, vcpu + 1)]).collect()
    }

    fn amounts(parts: &[Edge]) -> Vec<(usize, usize, u64)> {
        let mut parts: Vec<_> = parts.iter().map(|part| (part.vcpu, part.cpu, part.amount)).collect();
        parts.sort_unstable();
        parts
    }

    #[test]
    fn the_rim_takes_what_it_can() {
        let parts = share_out(&line(3), &[600, 700], &[500, 500, 300], 10).unwrap();
        assert_eq!(amounts(&parts), [(0, 0, 500), (0, 1, 100), (1, 1, 400), (1, 2, 300)]);
        assert_eq!(share_out(&line(3), &[600, 701], &[500, 500, 300], 10), None);
    }

    #[test]
    fn who_is_cut_is_chosen() {
        // In the order given, the second CPU would begin with 5 of the second vCPU.
        let parts = pack(&[600, 405, 700, 295], 2, BLOCK, 100).unwrap();
        assert_eq!(amounts(&parts), [(0, 1, 600), (1, 0, 405), (2, 0, 300), (2, 1, 400), (3, 0, 295)]);
        assert_eq!(pack(&[600, 405, 700, 296], 2, BLOCK, 100), None);
        assert_eq!(pack(&[600, 400], 2, BLOCK, 100).unwrap().len(), 2);
        // Two thirds and a little: the second cut leaves room idle, but not all of it.
        let parts = pack(&[667; 4], 3, BLOCK, 100).unwrap();
        assert_eq!(
            amounts(&parts),
            [(0, 0, 667), (1, 2, 667), (2, 1, 567), (2, 2, 100), (3, 0, 333), (3, 1, 334)]
        );
    }

    #[test]
    fn short_parts_are_avoided() {
        // 5 would be left over for the next CPU: it gets 10.
        let parts = share_out(&line(2), &[505], &[400, 500], 10).unwrap();
        assert_eq!(amounts(&parts), [(0, 0, 10), (0, 1, 495)]);
        // A CPU with room for 5 is left alone.
        let parts = share_out(&line(2), &[500], &[5, 500], 10).unwrap();
        assert_eq!(parts.len(), 1);
    }

    proptest! {
        /// On a line the parts are determined but for what stays free, so whoever can take all takes it.
        #[test]
        fn what_fits_on_a_line_is_found(room in prop::collection::vec(1..BLOCK, 2..6), seed in any::<[u16; 6]>()) {
            let mut left = room.clone();
            let demands: Vec<u64> = (0..room.len() - 1)
                .map(|vcpu| {
                    let [one, two] = [vcpu, vcpu + 1].map(|cpu| {
                        let part = u64::from(seed[cpu]) * (cpu as u64 + 3) % (left[cpu] + 1);
                        left[cpu] -= part;
                        part
                    });
                    one + two
                })
                .collect();
            let parts = share_out(&line(room.len()), &demands, &room, 1).unwrap();
            for (cpu, &room) in room.iter().enumerate() {
                prop_assert!(parts.iter().filter(|part| part.cpu == cpu).map(|part| part.amount).sum::<u64>() <= room);
            }
            for (vcpu, &demand) in demands.iter().enumerate() {
                let of = parts.iter().filter(|part| part.vcpu == vcpu).map(|part| part.amount);
                prop_assert_eq!(of.sum::<u64>(), demand);
            }
        }
    }
}
