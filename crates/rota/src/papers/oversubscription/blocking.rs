//! Threads that sleep as they wait for each other: figures 1, 9 and 11, and table 1.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use rota_sim::programs::Benchmark;

use super::super::{Figure, Published, Row, Study, Table, Unit};
use super::{Setting, rate, run, ways};
use Published::{Nothing, UpTo};

/// The programs of table 1, with what is known of their threads' CPU utilisation.
const PROGRAMS: [&str; 13] = [
    "parsec.fluidanimate",
    "parsec.freqmine",
    "parsec.streamcluster",
    "splash.lu_cb",
    "splash.ocean_cp",
    "splash.radix",
    "npb.is",
    "npb.cg",
    "npb.mg",
    "npb.ft",
    "npb.sp",
    "npb.bt",
    "npb.ua",
];

/// Memory that all threads together use between two switches, in KiB. Assumed.
const MEMORY_KIB: u32 = 4096;

/// The same work by so many threads: a benchmark of eight, whose divisible part is divided among them.
fn program(name: &str, threads: u32, cpus: u32) -> Result<Setting> {
    let of_eight = Benchmark::find(name).context("the suites have it")?.with_threads(8);
    let [parallel, sequential] = [of_eight.parallel, of_eight.sequential].map(|work| work.mean_ns());
    let keys = format!(
        "program = \"fork-join\"\nparallel = \"{parallel}ns\"\nsequential = \"{sequential}ns\"\nbalanced = true\n\
         working_set = {}",
        MEMORY_KIB / threads
    );
    Ok(Setting { threads, cpus, keys })
}

/// The largest and the mean of a column.
fn extremes(values: &[f64]) -> (f64, f64) {
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    (most, values.iter().sum::<f64>() / values.len().max(1) as f64)
}

fn blocked(study: &Study) -> Result<Vec<Table>> {
    let settings = PROGRAMS.iter().flat_map(|name| [8, 32].map(|threads| program(name, threads, 8)));
    let outcomes = run(study, &settings.collect::<Result<Vec<_>>>()?)?;
    let (mut times, mut moves) = (Vec::new(), Vec::new());
    let mut columns: [Vec<f64>; 4] = Default::default();
    for (name, runs) in PROGRAMS.iter().zip(outcomes.chunks(2)) {
        let [eight, many] = runs else { continue };
        let base = rate(&eight[0]);
        for (at, way) in ways().iter().enumerate() {
            let row =
                |setting: String, ours| Row { setting, policy: way.policy.label, published: Nothing, ours };
            let time = base / rate(&many[at]).max(1e-9);
            columns[at].push(time);
            times.push(row((*name).to_owned(), time));
            for (threads, outcome) in [(8, &eight[at]), (32, &many[at])] {
                let migrations =
                    outcome.tenants[0].metrics.migrations as f64 * 1e9 / outcome.window_ns as f64;
                moves.push(row(format!("{name}, {threads} threads"), migrations));
            }
        }
    }
    let published = |label: &str| match label {
        "CFS" => (UpTo(1.567), Nothing),
        "Rota" => (UpTo(1.17), Nothing),
        _ => (Nothing, Nothing),
    };
    let summary =
        ways().into_iter().zip(&columns).flat_map(|(way, column)| {
            let (most, mean) = extremes(column);
            let (worst, average) = published(way.policy.label);
            [("the worst", worst, most), ("on average", average, mean)].map(|(setting, published, ours)| {
                Row { setting: setting.to_owned(), policy: way.policy.label, published, ours }
            })
        });
    Ok(vec![
        Table::new("Time with 32 threads, in that of 8 under CFS", Unit::Times, summary.collect()),
        Table::by_policy("Time with 32 threads, in that of 8 under CFS, by program", Unit::Times, times),
        Table::by_policy("Threads that change CPUs", Unit::Rate, moves),
    ])
}

pub const BLOCKED: Figure = Figure {
    name: "002-fig9",
    title: "programs with four times as many threads as CPUs, which sleep as they wait",
    source: "Huang et al., HPDC 2021, figures 1 and 9, table 1 and section 4.2; the text gives the slowdown of \
        Linux, 5.5 to 56.7 %, and the largest with virtual blocking, 17 %",
    setting: &[
        "There: programs of PARSEC, SPLASH-2 and NPB with 8 and 32 threads on 8 cores, of 27 those that suffer. \
         Here: stand-ins with the utilisation of table 1, whose divisible work is divided among the threads. \
         They have the CPUs to themselves.",
        "CFS is the paper's kernel. Rota has no virtual blocking: threads sleep. With \"off\" no thread that waits \
         busily gives way, which changes nothing here.",
    ],
    differs: &[
        "The simulator charges a change of task, a migration and cold caches, and nothing for locks of run \
         queues and futexes, for which wakers of many threads wait in Linux. So CFS loses less here than was \
         published. What virtual blocking would save on real kernels is in docs/TRIED.md.",
        "Rota loses up to 9 % where a thread is seldom held up and long (lu_cb, radix), and CFS nothing. Under \
         Rota threads change CPUs 1.6 to 4 times as often as under CFS. The cause of either is not known.",
    ],
    study: blocked,
};

/// Programs of figure 11 that have stand-ins here: which do not, or do, or always suffer.
const ELASTICS: [&str; 4] = ["npb.is", "parsec.streamcluster", "npb.cg", "parsec.facesim"];
const CPUS: [u32; 5] = [2, 4, 8, 16, 32];
/// How many there are in turn, for a quarter of a second each.
const IN_TURN: [u32; 8] = [2, 4, 8, 16, 32, 16, 8, 4];

/// The same, as CPUs come and go while it runs.
fn resized(name: &str, threads: u32) -> Result<Setting> {
    let on_all = program(name, threads, 32)?;
    Ok(Setting { keys: format!("{}\ncpus_in_turn = {IN_TURN:?}", on_all.keys), ..on_all })
}

/// What 32 threads do as CPUs come and go, in what 8 do then, and in what as many do as there are CPUs.
fn coming_and_going(study: &Study, same: &BTreeMap<(&str, u32), f64>) -> Result<Table> {
    let settings = ELASTICS.iter().flat_map(|name| [32, 8].map(|threads| resized(name, threads)));
    let outcomes = run(study, &settings.collect::<Result<Vec<_>>>()?)?;
    let mut rows = Vec::new();
    for (name, runs) in ELASTICS.iter().zip(outcomes.chunks(2)) {
        let [many, few] = runs else { continue };
        let exact = IN_TURN.iter().map(|cpus| same[&(*name, *cpus)]).sum::<f64>() / IN_TURN.len() as f64;
        for (at, way) in ways().iter().enumerate() {
            let of = [("8 threads", rate(&few[0])), ("as many as CPUs", exact)];
            rows.extend(of.map(|(what, base)| Row {
                setting: format!("{name}, of {what}"),
                policy: way.policy.label,
                published: Nothing,
                ours: rate(&many[at]) / base.max(1e-9),
            }));
        }
    }
    Ok(Table::by_policy("Speed with 32 threads as CPUs come and go, in that under CFS", Unit::Times, rows))
}

fn elastic(study: &Study) -> Result<Vec<Table>> {
    let settings = ELASTICS.iter().flat_map(|name| {
        CPUS.into_iter().flat_map(move |cpus| [32, cpus, 8].map(|threads| program(name, threads, cpus)))
    });
    let outcomes = run(study, &settings.collect::<Result<Vec<_>>>()?)?;
    let settings = ELASTICS.iter().flat_map(|name| CPUS.map(|cpus| (*name, cpus)));
    let (mut exact, mut eight, mut same_rates) = (Vec::new(), Vec::new(), BTreeMap::new());
    for ((name, cpus), runs) in settings.zip(outcomes.chunks(3)) {
        let [many, same, few] = runs else { continue };
        same_rates.insert((name, cpus), rate(&same[0]));
        for (at, way) in ways().iter().enumerate() {
            let row = |ours| Row {
                setting: format!("{name}, {cpus} CPUs"),
                policy: way.policy.label,
                published: Nothing,
                ours,
            };
            exact.push(row(rate(&many[at]) / rate(&same[0]).max(1e-9)));
            eight.push(row(rate(&many[at]) / rate(&few[0]).max(1e-9)));
        }
    }
    Ok(vec![
        Table::by_policy("Speed with 32 threads, in that of as many as CPUs under CFS", Unit::Times, exact),
        Table::by_policy("Speed with 32 threads, in that of 8 under CFS, by program", Unit::Times, eight),
        coming_and_going(study, &same_rates)?,
    ])
}

pub const ELASTIC: Figure = Figure {
    name: "002-fig11",
    title: "a program of 32 threads on 2 to 32 CPUs",
    source: "Huang et al., HPDC 2021, figure 11 and section 4.2; the text gives that ep with 32 threads gains 51 \
        % over 8 threads, in a container that has 2 to 32 cores while it runs",
    setting: &[
        "There: five programs of 32 and of 8 threads. Here: stand-ins for four programs, each number of CPUs \
         through a whole run, and also as many threads as CPUs. Then the program has 2, 4, 8, 16, 32, 16, 8 and 4 \
         CPUs in turn, for 0.25 s each, by the affinity of its threads, as in a container whose cpuset is changed.",
    ],
    differs: &[
        "ep has no stand-in. How well a stand-in scales is its parallelism, which was measured with 8 threads.",
        "What 32 threads lose where there are fewer CPUs is the changes of task: most for facesim, which \
         synchronises every 0.16 ms. While the program has the host no scheduler loses more than another.",
    ],
    study: elastic,
};
