//! Threads that wait busily: figures 13 and 14.

use anyhow::Result;

use super::super::{Figure, Published, Row, Study, Table, Unit};
use super::{Setting, rate, run, ways};
use Published::{Nothing, Said};

/// A program that waits busily, and its keys. A piece of work is the same with any number of threads.
struct Program {
    name: &'static str,
    keys: fn() -> String,
}

/// Time with so many threads, in that of eight under CFS.
fn times(
    study: &Study,
    programs: &[Program],
    threads: &[u32],
    published: fn(&str) -> Published,
) -> Result<Vec<Table>> {
    let counts: Vec<u32> = std::iter::once(8).chain(threads.iter().copied()).collect();
    let settings = programs.iter().flat_map(|program| {
        counts.iter().map(|&threads| Setting { threads, cpus: 8, keys: (program.keys)() })
    });
    let outcomes = run(study, &settings.collect::<Vec<_>>())?;
    let mut rows = Vec::new();
    for (program, runs) in programs.iter().zip(outcomes.chunks(counts.len())) {
        let base = rate(&runs[0][0]);
        for (threads, outcomes) in counts.iter().zip(runs) {
            for (at, way) in ways().iter().enumerate() {
                let policy = way.policy.label;
                rows.push(Row {
                    setting: format!("{}, {threads} threads", program.name),
                    policy,
                    published: if *threads == 8 { Nothing } else { published(policy) },
                    ours: base / rate(&outcomes[at]).max(1e-9),
                });
            }
        }
    }
    let caption = "Time in that of 8 threads under CFS";
    Ok(vec![
        Table::by_policy(caption, Unit::Times, rows.clone()),
        Table::new(
            format!("{caption}, beside the text"),
            Unit::Times,
            rows.into_iter().filter(is_said).collect(),
        ),
    ])
}

fn is_said(row: &Row) -> bool {
    row.published != Nothing
}

/// Each thread computes without the lock, and then with it: as much in all, however many threads there are.
const LOCKS: [Program; 3] = [
    Program { name: "lock, whoever looks first", keys: || locking("spinlock", "") },
    Program { name: "lock, in the order of asking", keys: || locking("spinlock", "\nordered = true") },
    Program { name: "lock, looks for 20 us, then sleeps", keys: || locking("mutex", "\nspin = \"20us\"") },
];

/// A piece of work is as large with any number of threads.
fn locking(program: &str, more: &str) -> String {
    format!("program = \"{program}\"\noutside = \"400us\"\ninside = \"20us\"{more}")
}

pub const LOCKED: Figure = Figure {
    name: "002-fig13",
    title: "spinlocks with four times as many threads as CPUs",
    source: "Huang et al., HPDC 2021, figure 13 and section 4.3; the text has words for it: busy-waiting \
        detection with 32 threads comes close to Linux with 8, and Linux with 32 does not",
    setting: &[
        "There: a pipeline whose stages wait busily for each other, over ten spinlocks, 8 and 32 threads on 8 \
         cores, in containers and VMs. Here: two kinds of lock, for the ten are either for whoever looks first \
         (TTAS, pthread) or go round in an order (ticket, MCS, CLH, array); and one that looks for a while and \
         sleeps.",
        "A piece of work is 400 us without the lock and 20 us with it. Eight CPUs that waste nothing have the \
         lock taken for four tenths of the time.",
    ],
    differs: &[
        "The simulator's detector finds and misses loops as often as the lab's does (docs/OVERSUBSCRIPTION.md). \
         They are found by their registers, where the paper reads branch records.",
        "Locks in order need one certain thread next. Rota looks at each thread before it in line first: twice \
         the time, where the paper has next to none more.",
        "No guests: a VM's own threads are not seen to spin. Pause-loop exits are in 000-fig4.5.",
    ],
    study: |study| {
        times(study, &LOCKS, &[32], |policy| match policy {
            "CFS" => Said("much longer"),
            "Rota" => Said("close to 1"),
            _ => Nothing,
        })
    },
};

/// Loops of the programs' own, at flags.
const FLAGS: [Program; 2] = [
    Program { name: "lu, flags at each step", keys: || flags("800us", "800us") },
    Program { name: "volrend, a flag after each image", keys: || flags("14ms", "18ms") },
];

/// A round of this work is divided among the threads. Each looks until all have done their part.
fn flags(least: &str, most: &str) -> String {
    format!(
        "program = \"fork-join\"\nparallel = {{ uniform = [\"{least}\", \"{most}\"] }}\nsequential = \"2us\"\n\
         spin = \"forever\""
    )
}

pub const LOOKED: Figure = Figure {
    name: "002-fig14",
    title: "programs that wait at flags of their own, with 8 to 32 threads on 8 CPUs",
    source: "Huang et al., HPDC 2021, figure 14 and section 4.3; the text has words for it: with the detection \
        they come close to 8 threads, and less so the more threads there are",
    setting: &[
        "There: lu of NPB and volrend of SPLASH-2, in containers and VMs. Here: threads that divide a round of \
         work and look at a flag until all have done their part: a round of 0.1 ms on eight CPUs, as lu has many \
         small steps, and one of 2 ms.",
    ],
    differs: &["The rounds' lengths are assumed; the text does not give them."],
    study: |study| {
        times(study, &FLAGS, &[16, 32], |policy| match policy {
            "CFS" => Said("much longer"),
            "Rota" => Said("close to 1"),
            _ => Nothing,
        })
    },
};
