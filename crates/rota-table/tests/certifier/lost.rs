//! What changes of task take, ns by ns: for the judge.

use rota_model::Costs;

/// One ns of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    pub owner: Option<u64>,
    /// Its owner owned the ns before it, too.
    pub goes_on: bool,
    /// It is spent on a change of tasks, or would be if there was one to finish.
    pub is_lost: bool,
}

/// A CPU that has had its round of owners many times before. None if the changes of one round do not fit into it.
pub fn round(owners: &[Option<u64>], switch_ns: u64) -> Option<Vec<CpuTime>> {
    let is_whole = owners[0].is_some() && owners.iter().all(|owner| *owner == owners[0]);
    let mut left_ns = 0;
    let mut rounds: [(Vec<CpuTime>, u64); 3] = Default::default();
    for (round, left_after) in &mut rounds {
        for (offset, &owner) in owners.iter().enumerate() {
            let goes_on = is_whole || offset > 0 && owners[offset - 1] == owner;
            if owner.is_some() && !goes_on {
                left_ns += switch_ns;
            }
            round.push(CpuTime { owner, goes_on, is_lost: left_ns > 0 });
            left_ns = left_ns.saturating_sub(1);
        }
        *left_after = left_ns;
    }
    let [_, (_, second), (third, last)] = rounds;
    (second == last).then_some(third)
}

/// One ns of a vCPU that owns some CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcpuTime {
    pub cpu: u64,
    pub goes_on: bool,
    pub is_lost: bool,
}

/// Adds what migrations take.
pub fn migrate(timeline: &mut [Option<VcpuTime>], costs: Costs) {
    let mut cpu = timeline.iter().flatten().last().map(|time| time.cpu);
    let mut left_ns = 0;
    for time in timeline.iter_mut().flatten() {
        if !time.goes_on {
            left_ns = if cpu == Some(time.cpu) { 0 } else { costs.migration_ns };
        }
        cpu = Some(time.cpu);
        if !time.is_lost && left_ns > 0 {
            left_ns -= 1;
            time.is_lost = true;
        }
    }
}
