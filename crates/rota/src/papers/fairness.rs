//! Zhao et al., *Preemptive multi-queue fair queuing*, HPDC 2019: figures 1 and 3.

use rota_scenario::Outcome;
use rota_scenario::policies::Entry;

use super::{Case, Figure, Published, Row, Table, Unit, called};
use Published::{About, Below, Nothing, Said};

/// A program of so many threads beside as many hogs, on as many CPUs; in VMs or not.
fn beside_hogs(cpus: u32, benchmark: &str, in_vms: bool) -> String {
    let mut text = format!("duration = \"10s\"\n[host]\ncpus = \"0-{cpus}\"\nhousekeeping = \"{cpus}\"\n");
    for name in ["program", "hogs"] {
        let matched = if in_vms { format!("match = {{ vm = \"qemu:{name}\" }}\n") } else { String::new() };
        text += &format!("[[tenant]]\nname = \"{name}\"\nclass = \"shared\"\nvcpus = {cpus}\n{matched}");
    }
    text += &format!(
        "[[workload]]\ntenant = \"program\"\nprogram = \"benchmark\"\nname = \"{benchmark}\"\nthreads = {cpus}\n"
    );
    text + &format!("[[workload]]\ntenant = \"hogs\"\nprogram = \"hog\"\nthreads = {cpus}\n")
}

/// What the program received of half of the CPUs.
fn allocation(outcome: &Outcome) -> f64 {
    let capacity_ns = f64::from(outcome.cpus - 1) * outcome.window_ns as f64;
    outcome.tenants[0].metrics.received_ns as f64 / (capacity_ns / 2.0)
}

/// 1 less the lag of formula (3), for D CPUs, a non-critical section and a time slice, in ms.
fn by_formula(cpus: u32, between_ms: f64, slice_ms: f64) -> f64 {
    let both = slice_ms + between_ms;
    1.0 - ((slice_ms - between_ms) / both - 2.0 * slice_ms / (f64::from(cpus) * both)).abs()
}

/// Between two synchronisations of a thread of streamcluster's stand-in.
const BETWEEN_MS: f64 = 1.0;

const CPUS: [u32; 3] = [12, 24, 48];

pub const BLOCKING: Figure = Figure {
    name: "004-fig1",
    title: "a program that blocks gets less than its half beside one that does not",
    source: "Zhao et al., figure 1 and sections 1 and 2.4; the text gives that all three schedulers give less than \
        the fair share, and less with more CPUs",
    setting: &[
        "There: PARSEC's streamcluster with as many threads as CPUs, beside as many threads that compute, under \
         Linux, KVM and Xen. Here: the simulator's stand-in for it, as a tenant of the same weight; under CFS as \
         threads and as vCPUs of a VM, under Credit as vCPUs; and under Rota in the class `shared`. 1 is the half of \
         all CPUs.",
        "The second table holds the same against the published formula (3), whose lag is taken from 1: with D CPUs, \
         1 ms between synchronisations, and slices of 6 ms (Linux, KVM) and 30 ms (Xen), as section 4.2 has them.",
    ],
    differs: &[
        "The stand-in synchronises each millisecond and uses nine tenths of its CPUs alone, however many they are: \
         more CPUs change little. The real one used 14 of 48 alone; there the fair share is beyond it.",
        "The formula is of the worst case, in which all hogs run for a whole slice at each critical section. Under \
         CFS that is what happens. Credit boosts who wakes up before all hogs, if its threads block as soon as they \
         have to wait; guests there spun and idled first (PEERS.md).",
        "In a VM a guest's balancing fills vCPUs that would idle, so that less is forfeited.",
    ],
    study: |study| {
        let ways = [
            (called("cfs", "CFS (Linux)"), false, Some(6.0)),
            (called("cfs", "CFS (KVM)"), true, Some(6.0)),
            (called("credit", "Credit (Xen)"), true, Some(30.0)),
            (called("rota", "Rota"), false, None),
        ];
        let settings: Vec<_> = ways.iter().flat_map(|way| CPUS.map(|cpus| (way, cpus))).collect();
        let cases: Vec<Case> = settings
            .iter()
            .map(|((policy, in_vms, _), cpus)| Case {
                policy: *policy,
                scenario: beside_hogs(*cpus, "parsec.streamcluster", *in_vms),
            })
            .collect();
        let outcomes = study.run(&cases)?;
        let rows = |published: &dyn Fn(Option<f64>, u32) -> Option<Published>| -> Vec<Row> {
            let rows =
                settings.iter().zip(&outcomes).filter_map(|(((policy, _, slice_ms), cpus), outcome)| {
                    Some(Row {
                        setting: format!("{cpus} CPUs"),
                        policy: policy.label,
                        published: published(*slice_ms, *cpus)?,
                        ours: allocation(outcome),
                    })
                });
            rows.collect()
        };
        let published = |slice_ms: Option<f64>, _| Some(slice_ms.map_or(Nothing, |_| Below(1.0)));
        let formula = |slice_ms: Option<f64>, cpus| Some(About(by_formula(cpus, BETWEEN_MS, slice_ms?)));
        Ok(vec![
            Table::new("CPU time received, of the fair share", Unit::Times, rows(&published)),
            Table {
                published_head: "formula",
                ..Table::new("The same by the formula and simulated", Unit::Times, rows(&formula))
            },
        ])
    },
};

/// From those that synchronise most often to those that seldom do.
const BENCHMARKS: [&str; 6] =
    ["parsec.facesim", "parsec.dedup", "parsec.streamcluster", "parsec.canneal", "npb.cg", "npb.bt"];

/// On so many CPUs.
const STRATEGIES_CPUS: u32 = 24;

pub const STRATEGIES: Figure = Figure {
    name: "004-fig3",
    title: "what strategies against deceptive idleness give a program that blocks",
    source: "Zhao et al., figure 3 and section 4.2; the text gives orders, no numbers",
    setting: &[
        "There: PARSEC and NPB programs with as many threads as CPUs beside as many hogs, on 48 CPUs under Linux. \
         Here: stand-ins for some of them on 24 CPUs, under CFS, pinned threads, relaxed co-scheduling, Gleaner, \
         centralised P-MQFQ, and under Rota in the class `shared`. 1 is the half of all CPUs.",
    ],
    differs: &[
        "Stand-ins know how often a program synchronises and how parallel it is, and nothing else of it; those of \
         one type are alike.",
        "P-MQFQ had the most in all programs but EP, which never blocks, and has here. Ours is the centralised \
         definition, theirs its approximation on distributed queues.",
        "Gleaner's order changes with the program: few CPUs are enough for one that is parallel for a small part of \
         its time only.",
    ],
    study: |study| {
        let policies: [(Entry, Published); 6] = [
            (called("cfs", "CFS"), Below(1.0)),
            (called("pin-cfs", "Pin"), Below(1.0)),
            (called("relaxed-co", "Relaxed-Co"), Below(1.0)),
            (called("gleaner", "Gleaner"), Said("below P-MQFQ")),
            (called("mqfq", "P-MQFQ"), Said("the most")),
            (called("rota", "Rota"), Nothing),
        ];
        let settings: Vec<_> =
            BENCHMARKS.iter().flat_map(|name| policies.map(|policy| (*name, policy))).collect();
        let cases: Vec<Case> = settings
            .iter()
            .map(|(name, (policy, _))| Case {
                policy: *policy,
                scenario: beside_hogs(STRATEGIES_CPUS, name, false),
            })
            .collect();
        let outcomes = study.run(&cases)?;
        let rows = settings.iter().zip(&outcomes).map(|((name, (policy, published)), outcome)| Row {
            setting: (*name).to_owned(),
            policy: policy.label,
            published: *published,
            ours: allocation(outcome),
        });
        Ok(vec![Table::new("CPU time received, of the fair share", Unit::Times, rows.collect())])
    },
};
