//! CPUs that serve their vCPUs in windows, ns by ns: for the judge.

use std::collections::BTreeSet;

use rota_model::Costs;

use crate::brute::{Raw, Timeline, ensure, longest_edge, longest_gap};
use crate::lost::VcpuTime;

/// Of a CPU that serves in windows.
pub const FLAG: u64 = 2;

/// One vCPU as a CPU that serves in windows knows it.
struct Local {
    budget: u64,
    period: u64,
    /// What it may claim of each window.
    window: u64,
    is_capped: bool,
    /// What its slots come to in the window with the least of them.
    least: u64,
}

/// Whether all CPUs that serve in windows may do so, and nobody else is told anything of windows. Periods must have
/// been found sound.
pub fn judge(raw: &Raw, served: &[Timeline], costs: Costs) -> Result<(), String> {
    let (cpus_at, vcpus_at) = (raw.u32(60)?, raw.u32(64)?);
    let mut told = BTreeSet::new();
    for cpu in 0..raw.u32(36)? {
        let at = cpus_at + 64 * cpu;
        if raw.u32(at + 32)? & FLAG == 0 {
            ensure(raw.u32(at + 36)? == 0, || {
                format!("change of tasks on CPU {cpu}, which goes by its slots")
            })?;
            continue;
        }
        ensure(raw.u32(at + 36)? == costs.switch_ns, || format!("change of tasks on CPU {cpu}"))?;
        let is_here =
            |(_, timeline): &(u64, &Timeline)| timeline.iter().flatten().any(|time| time.cpu == cpu);
        let here: Vec<(u64, &Timeline)> = (0..).zip(served).filter(is_here).collect();
        ensure((1..=16).contains(&here.len()), || format!("{} vCPUs on CPU {cpu}", here.len()))?;
        let has_all = here[0].1.iter().all(Option::is_some);
        ensure(here.len() > 1 || !has_all, || format!("a vCPU has all of CPU {cpu}"))?;
        let mut locals = Vec::new();
        for (vcpu, timeline) in here {
            let local = judge_local(raw, vcpus_at + 64 * vcpu, timeline);
            locals.push(local.map_err(|why| format!("vCPU number {vcpu} on CPU {cpu}: {why}"))?);
            told.insert(vcpu);
        }
        let length = served[0].len() as u64;
        locals.iter().try_for_each(|local| judge_claim(local, &locals, length, costs.switch_ns))?;
        ensure(first_end_first(&locals, length, costs.switch_ns), || format!("no order on CPU {cpu}"))?;
    }
    (0..).zip(served).filter(|(vcpu, _)| !told.contains(vcpu)).try_for_each(|(vcpu, _)| {
        let window = raw.u32(vcpus_at + 64 * vcpu + 44)?;
        ensure(window == 0, || format!("vCPU number {vcpu} is told of a window"))
    })
}

fn judge_local(raw: &Raw, at: u64, timeline: &Timeline) -> Result<Local, String> {
    let cpus: BTreeSet<u64> = timeline.iter().flatten().map(|time| time.cpu).collect();
    ensure(cpus.len() == 1, || "on other CPUs, too".into())?;
    let (budget, period, window) = (raw.u32(at + 24)?, raw.u32(at + 28)?, raw.u32(at + 44)?);
    let in_slots = timeline.chunks(period as usize).map(|slots| slots.iter().flatten().count() as u64);
    let least = in_slots.min().ok_or("no window")?;
    let latency = raw.u64(at + 16)?;
    let (early, late) = (at_once(budget, period), at_last(budget, period));
    let longest = [[&early, &late], [&early, &early], [&late, &early], [&late, &late]].into_iter();
    let longest = longest.map(|windows| longest_gap(&windows.into_iter().flatten().copied().collect())).max();
    ensure(longest <= Some(latency), || "waits from window to window".into())?;
    let edge = longest_edge(&early).max(longest_edge(&late));
    ensure(edge <= latency / 2, || "waits from table to table".into())?;
    Ok(Local { budget, period, window, is_capped: raw.u32(at + 8)? & 1 != 0, least })
}

/// A claim has room for the budget and all changes. That of a capped vCPU has room for no more, or for its slots.
fn judge_claim(local: &Local, locals: &[Local], length: u64, switch_ns: u64) -> Result<(), String> {
    let &Local { budget, window, least, .. } = local;
    let due = budget + switch_ns * (1 + cuts(local, locals, length));
    ensure(window >= due, || format!("a claim of {window} where {due} are due"))?;
    ensure(!local.is_capped || window <= due.max(least), || {
        format!("a capped claim of {window} where {due} are due, {least} in slots")
    })
}

/// The most windows of each other vCPU with a shorter period that begin after one of this vCPU has, before it ends.
fn cuts(local: &Local, locals: &[Local], length: u64) -> u64 {
    let most = |other: &Local| {
        let starts = |from: u64| (from + 1..from + local.period).filter(|now| now % other.period == 0);
        (0..length).step_by(local.period as usize).map(|from| starts(from).count() as u64).max()
    };
    locals.iter().filter(|other| other.period < local.period).filter_map(most).sum()
}

/// A window with its budget at the start.
fn at_once(budget: u64, period: u64) -> Timeline {
    let served = VcpuTime { cpu: 0, goes_on: true, is_lost: false };
    (0..period).map(|at| (at < budget).then_some(served)).collect()
}

/// A window with its budget at the end.
fn at_last(budget: u64, period: u64) -> Timeline {
    at_once(budget, period).into_iter().rev().collect()
}

/// Whether all have what they claim, and their budgets net, if they always want to run and, ns by ns, the one goes
/// first whose window ends first. Of several, the one that runs goes on, or the first of the list is changed to.
fn first_end_first(locals: &[Local], length: u64, switch_ns: u64) -> bool {
    let mut left = vec![0; locals.len()];
    let mut net: Vec<u64> = locals.iter().map(|local| local.budget).collect();
    let (mut runs, mut change) = (None, 0);
    let is_through =
        |place: usize, left: &[u64], net: &[u64]| left[place] == 0 && net[place] >= locals[place].budget;
    for now in 0..length {
        for (place, local) in (0..).zip(locals).filter(|(_, local)| now % local.period == 0) {
            if !is_through(place, &left, &net) {
                return false;
            }
            (left[place], net[place]) = (local.window, 0);
        }
        let end = |place: usize| now - now % locals[place].period + locals[place].period;
        let waiting = (0..locals.len()).filter(|&place| left[place] > 0);
        let next = waiting.min_by_key(|&place| (end(place), runs != Some(place)));
        if next != runs {
            (runs, change) = (next, switch_ns);
        }
        if let Some(place) = next {
            left[place] -= 1;
            net[place] += u64::from(change == 0);
            change = change.saturating_sub(1);
        }
    }
    (0..locals.len()).all(|place| is_through(place, &left, &net))
}
