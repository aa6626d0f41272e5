//! Figure 3.1.

use super::{Beside, FLUIDANIMATE, PERSISTENT, PROGRAMS, STREAMCLUSTER, Setting, Workload, policies};
use crate::papers::{Figure, Published, Row, Table, Unit};
use crate::parallel;

/// What runs beside a program, by the figure's names.
const BESIDE: [(&str, Workload); 3] =
    [("a loop", PERSISTENT), ("fluidanimate", FLUIDANIMATE), ("streamcluster", STREAMCLUSTER)];

/// What the text has of it.
fn published(policy: &str, program: &str, beside: &str) -> Published {
    match (policy, program, beside) {
        ("Credit, pinned", "lu", "a loop") => Published::Said("more than 2"),
        ("Credit, pinned", "sp", "a loop") => Published::About(1.13),
        ("Credit, pinned", "facesim", "streamcluster") => Published::About(2.65),
        ("Credit, pinned", "facesim", "fluidanimate") => Published::About(1.53),
        _ => Published::Nothing,
    }
}

pub const INTERFERED: Figure = Figure {
    name: "000-fig3.1",
    title: "how many times longer parallel programs take beside others of the same weight",
    source: "Zhao, dissertation, figure 3.1 and section 3.1; the text gives four of its values",
    setting: &[
        "There: PARSEC, which blocks, and the NAS parallel benchmarks, which spin, in a Xen VM of four vCPUs, each \
         pinned to a CPU, beside a VM of the same weight with four threads: loops, fluidanimate or streamcluster. \
         Here: the simulator's stand-ins under pinned Credit, CFS and Rota, as tenants of the same weight. What a \
         program does alone in 30 s is run to its end beside the others.",
        "By section 3.5.1 fluidanimate's threads, where they are the others, synchronise every 6 s, and \
         streamcluster's every 20 to 30 ms. lu is a barrier each ms, and cg one whose memory changes from stage to \
         stage. What programs refer to in memory is assumed.",
    ],
    differs: &[
        "Half of each CPU is twice the time. Under Credit programs that spin take far longer: their threads run in \
         slices of 30 ms that are not in step, and each waits for one that has no slice. Under CFS and Rota a thread \
         that spins is preempted within milliseconds.",
        "sp is hardly slower there since out of step its threads invalidate each other's cache lines less often \
         (figure 3.4). Here threads share no lines.",
        "Programs that block often fare better than their half beside loops under Credit, which boosts who wakes, and \
         under Rota, whose shares are of all CPUs' time: what a program leaves while it blocks it may have later. \
         facesim blocks too often for CFS, which lets a loop end its slice at each of its rounds.",
        "Beside streamcluster, whose threads wake as well, Credit's boost is worth less: both sides have it.",
    ],
    study: |study| {
        let beside = BESIDE.map(|(_, workload)| Some((workload, 4)));
        let settings: Vec<(usize, Setting)> = PROGRAMS
            .iter()
            .flat_map(|program| {
                beside.iter().enumerate().map(move |(place, beside)| (place, *program, *beside))
            })
            .flat_map(|(place, program, beside): (usize, Workload, Beside)| {
                policies().map(|policy| (place, Setting { policy, program, beside }))
            })
            .collect();
        let slowdowns = parallel::map(&settings, |(_, setting)| {
            let slowdown = setting.slowdown(study);
            (study.progress)(setting.policy.label);
            slowdown
        });
        let mut rows = Vec::new();
        for ((place, Setting { policy, program, .. }), slowdown) in settings.iter().zip(slowdowns) {
            let (with, _) = BESIDE[*place];
            rows.push(Row {
                setting: format!("{}, beside {with}", program.name),
                policy: policy.label,
                published: published(policy.label, program.name, with),
                ours: slowdown?,
            });
        }
        let of_text = rows.iter().filter(|row| row.published != Published::Nothing).cloned().collect();
        Ok(vec![
            Table::new("What the text gives: times longer than alone", Unit::Times, of_text),
            Table::by_policy("All, times longer than alone", Unit::Times, rows),
        ])
    },
};
