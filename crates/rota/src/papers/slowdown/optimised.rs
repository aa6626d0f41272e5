//! Figures 3.9 and 3.10.

use rota_peers::{Credit, Delay, Pinned};
use rota_scenario::policies::Entry;
use rota_scenario::{Outcome, TenantOutcome};

use super::{FLUIDANIMATE, PERSISTENT, PROGRAMS, STREAMCLUSTER, Workload};
use crate::papers::{Case, Figure, Published, Row, Study, Table, Unit, called};

/// How long is measured, in ms.
const LENGTH_MS: u64 = 20_000;
/// What comes before, in which delays are learnt.
const WARM_UP_MS: u64 = 3_000;

/// Computes for 10 ms and sleeps for 10 ms.
const PERIODIC: Workload = Workload { name: "periodic", keys: "program = \"periodic\"" };

/// Credit on pinned vCPUs, changed; Rota stands beside it.
fn delayed() -> [Entry; 5] {
    let credit = called("pin-credit", "Credit");
    [
        credit,
        Entry { label: "DP, 2 ms", make: |_| Ok(Box::new(with(Delay::Fixed(2_000_000)))), ..credit },
        Entry { label: "DP, 8 ms", make: |_| Ok(Box::new(with(Delay::Fixed(8_000_000)))), ..credit },
        Entry { label: "adaptive DP", make: |_| Ok(Box::new(with(Delay::Adaptive))), ..credit },
        called("rota", "Rota"),
    ]
}

fn with(delay: Delay) -> Pinned<Credit> {
    Pinned::new(Credit::default().with_delay(delay))
}

fn differing() -> [Entry; 3] {
    let credit = called("pin-credit", "Credit");
    [
        credit,
        Entry {
            label: "DS",
            make: |_| Ok(Box::new(Pinned::new(Credit::default().with_differing_slices()))),
            ..credit
        },
        called("rota", "Rota"),
    ]
}

/// How fast a tenant got on: what its threads computed, less what they waited for in a loop or for memory.
fn progress(found: &TenantOutcome) -> f64 {
    let spent = &found.spent.spent;
    let stalled_ns = found.caches.map_or(0, |caches| caches.stalled_ns);
    spent.running_ns.saturating_sub(spent.spinning_ns + stalled_ns).max(1) as f64
}

/// How many times longer a program takes beside another one, and that one beside it.
struct Pair {
    program: Workload,
    other: Workload,
    policy: &'static str,
    slowdowns: [f64; 2],
}

impl Pair {
    fn mean(&self) -> f64 {
        (self.slowdowns[0] * self.slowdowns[1]).sqrt()
    }
}

/// Every program beside every other one under every policy.
fn pairs(
    study: &Study,
    programs: &[Workload],
    others: &[Workload],
    policies: &[Entry],
) -> anyhow::Result<Vec<Pair>> {
    let alone: Vec<Workload> = programs.iter().chain(others).copied().collect();
    let case = |program: &Workload, other: Option<Workload>, policy: &Entry| Case {
        policy: *policy,
        scenario: program.beside(other.map(|other| (other, 4)), LENGTH_MS, WARM_UP_MS),
    };
    let mut cases = Vec::new();
    for policy in policies {
        cases.extend(alone.iter().map(|program| case(program, None, policy)));
        for other in others {
            cases.extend(programs.iter().map(|program| case(program, Some(*other), policy)));
        }
    }
    let outcomes = study.run(&cases)?;
    let mut pairs = Vec::new();
    let of_policies = outcomes.chunks(alone.len() + others.len() * programs.len());
    for (policy, of_policy) in policies.iter().zip(of_policies) {
        let (alone, beside) = of_policy.split_at(alone.len());
        let (own, of_others) = alone.split_at(programs.len());
        let settings = others.iter().zip(of_others).zip(beside.chunks(programs.len()));
        for ((other, other_alone), beside) in settings {
            for ((program, own), both) in programs.iter().zip(own).zip(beside) {
                let slower = |alone: &Outcome, place: usize| {
                    progress(&alone.tenants[0]) / progress(&both.tenants[place])
                };
                let slowdowns = [slower(own, 0), slower(other_alone, 1)];
                pairs.push(Pair { program: *program, other: *other, policy: policy.label, slowdowns });
            }
        }
    }
    Ok(pairs)
}

/// A row for each program beside each of the others.
fn each(pairs: &[Pair], caption: &str, of: impl Fn(&Pair) -> f64) -> Table {
    let row = |pair: &Pair| Row {
        setting: format!("{}, beside {}", pair.program.name, pair.other.name),
        policy: pair.policy,
        published: Published::Nothing,
        ours: of(pair),
    };
    Table::by_policy(caption, Unit::Times, pairs.iter().map(row).collect())
}

/// The geometric mean under a policy, of those that are wanted.
fn geometric(pairs: &[Pair], policy: &str, of: impl Fn(&Pair) -> Option<f64>) -> f64 {
    let logs: Vec<f64> =
        pairs.iter().filter(|pair| pair.policy == policy).filter_map(|pair| Some(of(pair)?.ln())).collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

pub const DELAYED: Figure = Figure {
    name: "000-fig3.9",
    title: "what it gives that who wakes preempts after a delay",
    source: "Zhao, dissertation, figure 3.9 and section 3.5.1; the text gives that adaptive delayed preemption is 12 % \
        better than Xen by the geometric mean of all slowdowns, and up to 23 % for a program",
    setting: &[
        "There: PARSEC programs in a Xen VM of four vCPUs, each pinned to a CPU, beside a VM of the same weight with \
         streamcluster or fluidanimate. Who wakes preempts at once (Credit), after 2 or 8 ms (DP), or after a time \
         that each vCPU learns by formulas (3.1) and (3.2) (adaptive DP). Here: the simulator's stand-ins under the \
         same, and under Rota as it is. 20 s are measured.",
        "A slowdown is by useful work (000-fig3.8), of the program and of what is beside it.",
    ],
    differs: &[
        "The stand-ins synchronise every 0.16 to 10 ms. Each time one is woken a delay of 2 or 8 ms is added to its \
         round: fixed delays are worse here nearly everywhere. The programs there differed in which one was best.",
        "Adaptive delays stay at nothing for whoever has less than its part, and so lose nothing. They gain 1 % here, \
         beside others that compute for long.",
        "Rota has no such delay, but protects a minimum slice of 1 ms, and shares by clocks over all CPUs instead of a \
         boost. That gains more than either. Delays were tried in it, too, and gained nothing (TRIED.md).",
    ],
    study: |study| {
        let blocking = &PROGRAMS[..8];
        let others = [STREAMCLUSTER, FLUIDANIMATE];
        let pairs = pairs(study, blocking, &others, &delayed())?;
        let credit = geometric(&pairs, "Credit", |pair| Some(pair.mean()));
        let row = |policy: Entry| Row {
            setting: "all pairs".to_owned(),
            policy: policy.label,
            published: if policy.label == "adaptive DP" {
                Published::About(0.88)
            } else {
                Published::Nothing
            },
            ours: geometric(&pairs, policy.label, |pair| Some(pair.mean())) / credit,
        };
        Ok(vec![
            Table::new(
                "Geometric mean of both sides' slowdowns, over Credit's",
                Unit::Times,
                delayed().map(row).into(),
            ),
            each(&pairs, "Times longer than alone, the program", |pair| pair.slowdowns[0]),
            each(&pairs, "Times longer than alone, geometric mean of the program and the others", Pair::mean),
        ])
    },
};

/// The programs that the text calls bound by memory.
const BOUND: [&str; 3] = ["sp", "lu", "ua"];

pub const DIFFERENT: Figure = Figure {
    name: "000-fig3.10",
    title: "what it gives that slices differ from CPU to CPU",
    source: "Zhao, dissertation, figure 3.10 and section 3.5.2; the text gives that differential scheduling is 32 % \
        better than Xen for sp, lu and ua beside persistent interference, and up to 38 %",
    setting: &[
        "There: NAS parallel benchmarks, which spin, in a Xen VM of four vCPUs, each pinned to a CPU, beside a VM of \
         the same weight with four threads: persistent, periodic (10 ms of every 20), or sp's. Slices are 30 ms \
         (Credit), or 10 to 30 ms, drawn for each CPU each time (DS). Here: the simulator's stand-ins under the same, \
         and under Rota as it is. 20 s are measured.",
        "A slowdown is by useful work (000-fig3.8), of the program and of what is beside it.",
    ],
    differs: &[
        "There memory is what gets cheaper by slices that differ, since threads out of step invalidate each other's \
         lines less often. Here threads share no lines. What slices that differ take away here is that the program's \
         threads run at different times for ever: they meet by chance now and then. So cg gains as well.",
        "Beside periodic interference all CPUs are in step here, as the others wake together, and the program runs at \
         its half with Credit. Slices that differ take that away. There they helped in all but cg.",
        "Rota changes between tenants within milliseconds, and takes a thread that spins for one that can wait. So a \
         program is about twice as slow, which is its fair half. Slices that differ gain nothing in it (TRIED.md).",
    ],
    study: |study| {
        let spinning = &PROGRAMS[8..];
        let others = [PERSISTENT, PERIODIC, spinning[0]];
        let pairs = pairs(study, spinning, &others, &differing())?;
        let bound = |pair: &Pair| {
            let is_bound = BOUND.contains(&pair.program.name) && pair.other == PERSISTENT;
            is_bound.then_some(pair.slowdowns[0])
        };
        let credit = geometric(&pairs, "Credit", bound);
        let row = |policy: Entry| Row {
            setting: "sp, lu and ua beside persistent".to_owned(),
            policy: policy.label,
            published: if policy.label == "DS" { Published::About(0.68) } else { Published::Nothing },
            ours: geometric(&pairs, policy.label, bound) / credit,
        };
        Ok(vec![
            Table::new(
                "Geometric mean of slowdowns, over Credit's",
                Unit::Times,
                differing().map(row).into(),
            ),
            each(&pairs, "Times longer than alone, the program", |pair| pair.slowdowns[0]),
            each(&pairs, "Times longer than alone, geometric mean of the program and the others", Pair::mean),
        ])
    },
};
