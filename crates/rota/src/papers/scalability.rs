//! Shan, Jia and Ding, *Rethinking multicore application scalability on big virtual machines*: section IV.

use anyhow::Result;
use rota_scenario::Outcome;
use rota_scenario::policies::Entry;

use super::{Case, Figure, Published, Row, Study, Table, Unit, called};
use Published::{About, Nothing};

/// What a change of task costs in these scenarios, in ns: the simulator's default.
const SWITCH_NS: f64 = 1_500.0;

/// How a program is spread over vCPUs.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    vcpus: u32,
    balanced: bool,
    /// There is a guest, whose scheduler moves threads; else each thread is a vCPU.
    in_vm: bool,
    /// The guest leaves threads where they are.
    bound: bool,
    /// vCPUs have parts by load.
    matching: bool,
}

const ONE: Way =
    Way { name: "(A) one vCPU", vcpus: 1, balanced: false, in_vm: false, bound: false, matching: false };
const FIRST: Way = Way { name: "(B) in a row on the first vCPU", vcpus: 4, ..ONE };
const TURNS: Way = Way { name: "(C) in a row on each in turn", balanced: true, ..FIRST };
/// In a guest that leaves threads where they are.
const BOUND: Way = Way { name: "(B) in a guest that leaves threads", in_vm: true, bound: true, ..FIRST };
const MATCHED: Way = Way { name: "(D) in a guest that leaves threads", matching: true, ..BOUND };

impl Way {
    /// 2 units in a row and 4 that can be divided, of 1 ms each; a vCPU has 6 units in 12.
    fn scenario(self, share: f64, others: bool) -> String {
        let Way { vcpus, balanced, in_vm, bound, matching, .. } = self;
        // Parts change after ten seconds.
        let (warm_up, seconds) = if matching { (30, 30) } else { (1, 12) };
        let mut text = format!(
            "duration = \"{seconds}s\"\nwarm_up = \"{warm_up}s\"\n[host]\ncpus = \"0-4\"\nhousekeeping = \"4\"\n"
        );
        let reserved = |matching: bool| {
            format!(
                "class = \"reserved\"\nshare = {share}\nlatency = \"12ms\"\ncapped = true\nmatching = {matching}\n"
            )
        };
        // Where nobody is divided, slots are no walls.
        let other = if bound { "class = \"shared\"\n".to_owned() } else { reserved(false) };
        for (name, class) in [("program", reserved(matching)), ("other", other)] {
            let matched = if in_vm { format!("match = {{ vm = \"qemu:{name}\" }}\n") } else { String::new() };
            text += &format!("[[tenant]]\nname = \"{name}\"\nvcpus = {vcpus}\n{class}{matched}");
        }
        text += &format!(
            "[[workload]]\ntenant = \"program\"\nprogram = \"fork-join\"\nthreads = {vcpus}\nparallel = \"4ms\"\n\
             sequential = \"2ms\"\nbalanced = {balanced}\nbound = {bound}\n"
        );
        if others {
            text += &format!("[[workload]]\ntenant = \"other\"\nprogram = \"hog\"\nthreads = {vcpus}\n");
        }
        text
    }

    fn in_vm(self) -> Way {
        Way { in_vm: true, ..self }
    }
}

/// How many times a program did what it did with another number of vCPUs, in the same time.
fn speedup(outcome: &Outcome, one: &Outcome) -> f64 {
    let speed = |of: &Outcome| of.tenants[0].metrics.work.max(1) as f64 / of.window_ns as f64;
    speed(outcome) / speed(one)
}

/// Speedup_VM: N less N times what of the time slices is spent on changes of task, and what of them is not used.
fn by_formula(outcome: &Outcome, share: f64) -> f64 {
    let found = &outcome.tenants[0];
    let vcpus = f64::from(found.tenant.vcpus);
    let slices_ns = vcpus * share * outcome.window_ns as f64;
    let switching_ns = found.metrics.dispatches as f64 * SWITCH_NS;
    let unused_ns = (slices_ns - found.metrics.received_ns as f64).max(0.0);
    vcpus - vcpus * (switching_ns / slices_ns + unused_ns / slices_ns)
}

/// A way under a policy, with what is published of it there.
type Entrant = (Entry, Way, f64, Published);

fn entrants() -> Vec<Entrant> {
    let rtds = called("rtds", "periods of 12 ms (RTDS)");
    let pool = called("cfs-max", "one quota for all (cpu.max)");
    let rota = called("rota", "Rota");
    vec![
        (rtds, ONE, 0.5, About(1.0)),
        (rtds, FIRST, 0.5, About(2.0)),
        (rtds, TURNS, 0.5, About(4.0)),
        (rtds, Way { name: "(A) in a guest that moves threads", ..ONE.in_vm() }, 0.5, Nothing),
        (rtds, Way { name: "(B) in a guest that moves threads", ..FIRST.in_vm() }, 0.5, Nothing),
        (pool, ONE, 0.5, Nothing),
        (pool, Way { name: "(D) time goes where the work is", ..FIRST }, 0.5, About(4.0)),
        (pool, TURNS, 0.5, Nothing),
        (rota, ONE.in_vm(), ROTA_SHARE, Nothing),
        (rota, FIRST.in_vm(), ROTA_SHARE, Nothing),
        (rota, TURNS.in_vm(), ROTA_SHARE, Nothing),
        (rota, ONE.in_vm(), MATCHED_SHARE, Nothing),
        (rota, BOUND, MATCHED_SHARE, Nothing),
        (called("rota", "Rota, matching"), MATCHED, MATCHED_SHARE, About(4.0)),
    ]
}

/// Half of a CPU less what changes of task cost.
const ROTA_SHARE: f64 = 0.48;
/// So much that three times the part of the others is less than a CPU.
const MATCHED_SHARE: f64 = 0.45;

pub const WORKED_EXAMPLE: Figure = Figure {
    name: "001-fig6",
    title: "a program whose work falls on one vCPU, and the speedup that its time slices allow",
    source: "Shan, Jia and Ding, section IV.B and figure 6; the formula is Speedup_VM of section II.B",
    setting: &[
        "There: a VM with four vCPUs on four CPUs beside another VM of the same weight; of each 12 units of time a \
         vCPU may run for 6, and what it does not use is lost. A program repeats 2 units in a row and 4 that can be \
         divided. Speedup is over one vCPU.",
        "Here: a unit is 1 ms. RTDS' servers have a budget of 6 ms in 12 ms, which is what an allocation period is \
         there. For (D), vCPUs that get unequal time, Linux' `cpu.max` gives the VM one quota that its vCPUs share. \
         Under Rota each vCPU is promised 48 % within 12 ms and is capped. In the last three rows it is 45 %, of \
         which (D) makes parts by load with `matching = true`, and the other VM of four vCPUs is shared: it has the \
         rest.",
        "The formula is fed with what the simulation has counted: the CPU time that the VM did not use of its \
         slices, and 1.5 us for each time that a vCPU was put on a CPU.",
    ],
    differs: &[
        "The figure counts whole iterations in one period. Here a period may end within an iteration, which then \
         goes on in the next one.",
        "The figure has the other VM out of the way. Beside one that computes all the time, a vCPU with budget left \
         may have to wait until a period has little time left; what it would have used is lost.",
        "A guest that moves threads from a vCPU that waits to one that idles does by itself part of what (C) does by \
         design: vCPUs without budget look busy.",
        "With a quota for all vCPUs together, it does not matter which of them has the work.",
        "Beside a VM that is reserved as much, (D) is 2.65 under Rota: one of the eight vCPUs has to be divided over \
         CPUs then, and on these a vCPU waits for its slots.",
        "A capped vCPU of Rota has its budget of a period when it wants it, so nearly all of what the formula allows.",
    ],
    study: |study| {
        let entrants = entrants();
        let mut cases = Vec::new();
        for others in [false, true] {
            cases.extend(entrants.iter().map(|(policy, way, share, _)| Case {
                policy: *policy,
                scenario: way.scenario(*share, others),
            }));
        }
        let outcomes = study.run(&cases)?;
        let (alone, beside) = outcomes.split_at(entrants.len());
        let rows = |outcomes: &[Outcome], formula: bool| -> Vec<Row> {
            let mut one = &outcomes[0];
            let row = |((policy, way, share, published), outcome): (&Entrant, &_)| Row {
                setting: way.name.to_owned(),
                policy: policy.label,
                published: if formula { About(by_formula(outcome, *share)) } else { *published },
                ours: 0.0,
            };
            let mut rows: Vec<Row> = entrants.iter().zip(outcomes).map(row).collect();
            for ((row, (_, way, ..)), outcome) in rows.iter_mut().zip(&entrants).zip(outcomes) {
                if way.vcpus == 1 {
                    one = outcome;
                }
                row.ours = speedup(outcome, one);
            }
            rows
        };
        let table = |caption: &str, rows| Table::new(caption, Unit::Times, rows);
        let formula = |caption: &str, rows| Table {
            published_head: "formula",
            ..Table::new(caption, Unit::Times, rows)
        };
        Ok(vec![
            table("Speedup, the other VM idle", rows(alone, false)),
            table("Speedup, the other VM computing", rows(beside, false)),
            formula("Speedup by the formula and simulated, the other VM idle", rows(alone, true)),
            formula("Speedup by the formula and simulated, the other VM computing", rows(beside, true)),
        ])
    },
};

/// The synthetic program in a VM beside three that compute, all of so many vCPUs on as many CPUs.
fn fork_join(vcpus: u32, balanced: bool) -> String {
    let mut text = format!("duration = \"20s\"\n[host]\ncpus = \"0-{vcpus}\"\nhousekeeping = \"{vcpus}\"\n");
    for name in ["program", "hogs-0", "hogs-1", "hogs-2"] {
        text += &format!("[[tenant]]\nname = \"{name}\"\nvcpus = {vcpus}\nclass = \"shared\"\n");
    }
    text += &format!(
        "[[workload]]\ntenant = \"program\"\nprogram = \"fork-join\"\nthreads = {vcpus}\nbalanced = {balanced}\n"
    );
    text + &format!("[[workload]]\ntenant = \"hogs-{{i}}\"\nprogram = \"hog\"\nthreads = {vcpus}\n")
}

const LEVELS: [u32; 5] = [1, 2, 4, 8, 16];

pub const FORK_JOIN: Figure = Figure {
    name: "001-fig7",
    title: "a fork-join program on a VM, its sequential part on one vCPU or on each in turn",
    source: "Shan, Jia and Ding, section IV.B and figure 7; the text gives the values for 16 vCPUs",
    setting: &[
        "There: KVM on 16 cores, Linux 3.19; four VMs of as many vCPUs as cores are used, laid out so that no two of \
         one VM share a core; three compute all the time, and in the fourth each iteration has 8 ms that all threads \
         divide and 1 ms that one does alone. Here: a thread for each vCPU, under CFS with threads bound to CPUs and \
         without, and under Rota in the class `shared`. A third value, 6.1 with vCPUs whose CPU time is tuned to \
         their work, has no counterpart here.",
    ],
    differs: &[
        "It makes no difference here who does the sequential part: CFS forfeits what a thread leaves as soon as it \
         sleeps, whichever it is. KVM on 3.19 let a vCPU keep some of it for an allocation period of 24 ms.",
        "Up to 4 CPUs the speedup may be beyond their number: one thread that never sleeps has a quarter of its CPU, \
         several that do get what hogs have to give to who wakes up.",
        "Under Rota a shared tenant has a quarter of all CPUs whenever it can use them. 16 vCPUs so have 4 CPUs for \
         9 ms an iteration, one has a quarter of one: sixteen times.",
    ],
    study: |study| fork_joins(study),
};

fn fork_joins(study: &Study) -> Result<Vec<Table>> {
    let policies = [called("pin-cfs", "CFS (KVM), pinned"), called("cfs", "CFS"), called("rota", "Rota")];
    let mut settings = Vec::new();
    for policy in policies {
        for balanced in [true, false] {
            settings.extend(LEVELS.map(|vcpus| (policy, balanced, vcpus)));
        }
    }
    let case = |&(policy, balanced, vcpus): &(Entry, bool, u32)| Case {
        policy,
        scenario: fork_join(vcpus, balanced),
    };
    let outcomes = study.run(&settings.iter().map(case).collect::<Vec<_>>())?;
    let row = |(place, (policy, balanced, vcpus)): (usize, &(Entry, bool, u32))| Row {
        setting: format!("{vcpus} vCPUs, {}", if *balanced { "balanced" } else { "imbalanced" }),
        policy: policy.label,
        published: match (policy.name, balanced, vcpus) {
            ("pin-cfs", true, 16) => About(5.9),
            ("pin-cfs", false, 16) => About(4.8),
            _ => Nothing,
        },
        ours: speedup(&outcomes[place], &outcomes[place / LEVELS.len() * LEVELS.len()]),
    };
    let rows = settings.iter().enumerate().map(row).filter(|row| !row.setting.starts_with("1 ")).collect();
    Ok(vec![Table::new("Speedup over one vCPU", Unit::Times, rows)])
}
