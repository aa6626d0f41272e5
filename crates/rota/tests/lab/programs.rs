//! The profile of real programs, held against what the kernel itself counts of their threads and what they get done.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use rota_lab::scenario::result::Work;
use rota_model::Counts;
use rota_rules::profile::Spending;
use rota_rules::slowdown::Method;
use serde::Deserialize;

use crate::guest::{Guest, NEWEST, OLDER, Results, script};

const CONFIG: &str = r#"
[host]
system = { share = 0.4, latency = "20ms" } # what is measured with shall not wait long

[[tenant]]
name = "program"
class = "shared"
match = { cgroup = "program" }

[[tenant]]
name = "neighbour"
class = "shared"
match = { cgroup = "neighbour" }

[[tenant]]
name = "spare"
class = "background"
match = { cgroup = "spare" }
"#;

/// The lab's own, which say what they have done in so many seconds. Others are told by what they read and write.
const PARALLEL: [&str; 2] = ["barrier", "pipeline"];
/// See [`PARALLEL`].
const PARALLEL_S: f64 = 3.3;

/// What `ROTA_PROGRAMS="barrier pipeline openmp openmp-passive xz zstd redis"` says, or one that is soon measured.
fn programs() -> String {
    std::env::var("ROTA_PROGRAMS").unwrap_or_else(|_| "redis".to_owned())
}

/// So far the kernel's figures may be from the profile's, in % of the threads' time. Counting takes CPU time itself,
/// more of it in the profile's time than in the kernel's; and only the kernel counts changes of task as running.
const MEASURING: f64 = 3.0;

/// What `rota profile --json` has and is looked at.
#[derive(Deserialize)]
struct Profile {
    for_s: f64,
    #[serde(flatten)]
    spending: Spending,
    turns: Turns,
}

#[derive(Deserialize)]
struct Turns {
    dispatches: u64,
}

/// What `rota profile --predict --json` has and is shown.
#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "it is shown as it is")]
struct Foretold {
    useful_beside: f64,
    useful_dedicated: f64,
    slowdown: Option<f64>,
    uncertainty: Option<f64>,
    refused: Option<String>,
}

/// What the kernel has counted of a program so far.
#[derive(Deserialize)]
struct Kept {
    /// In s, and what is more than that in us.
    time: (u64, u64),
    /// Read and written by its main process.
    bytes: u64,
    /// Of each thread its number, its CPU time and its waits for a CPU, in ns.
    threads: Vec<(u32, u64, u64)>,
}

impl Kept {
    fn time_s(&self) -> f64 {
        self.time.0 as f64 + self.time.1 as f64 / 1e6
    }

    fn ids(&self) -> BTreeSet<u32> {
        self.threads.iter().map(|thread| thread.0).collect()
    }
}

/// One program, alone or beside the neighbour.
struct Seen {
    threads: f64,
    /// All were there before and after.
    same: bool,
    /// The threads' time by the profile, over the time by the clock; for each thread.
    sum: f64,
    /// By what the threads' time was spent on, for each thread and second.
    parts: [f64; 7],
    /// CPU time and waits as the kernel counts them, for each thread and second.
    kernel: [f64; 2],
    /// What the profile knows of useful work. An emulated CPU never waits for memory.
    counts: Counts,
    /// What the program got done in a second, in its own unit.
    work: f64,
    /// How often a thread was put on a CPU, in a second.
    turns: f64,
}

impl Seen {
    fn new(results: &Results, name: &str, case: &str) -> Seen {
        let text = |kind: &str| results.text(&format!("{name}-{case}.{kind}"));
        let profile: Profile = serde_json::from_str(&text("profile")).unwrap();
        let [before, after]: [Kept; 2] =
            ["before", "after"].map(|kind| serde_json::from_str(&text(kind)).unwrap());
        let threads = before.threads.len() as f64;
        let time_s = after.time_s() - before.time_s();
        let grown = |of: fn(&(u32, u64, u64)) -> u64| {
            let sum = |kept: &Kept| kept.threads.iter().map(of).sum::<u64>();
            (sum(&after) - sum(&before)) as f64 / 1e9 / threads / time_s
        };
        let spent = profile.spending.spent_ns;
        let work = if PARALLEL.contains(&name) {
            results.json::<Work>(&format!("{name}-{case}")).rounds as f64 / PARALLEL_S
        } else {
            (after.bytes - before.bytes) as f64 / time_s
        };
        Seen {
            threads,
            same: before.ids() == after.ids(),
            sum: spent.total() as f64 / 1e9 / profile.for_s / threads,
            parts: spent.values().map(|ns| ns as f64 / 1e9 / profile.for_s / threads),
            kernel: [grown(|thread| thread.1), grown(|thread| thread.2)],
            counts: Counts {
                total_ns: spent.total(),
                steal_ns: spent.waiting,
                sync_ns: spent.total() - spent.waiting - spent.running,
                ..Counts::default()
            },
            work,
            turns: profile.turns.dispatches as f64 / profile.for_s,
        }
    }

    /// Shows it, and says what does not agree.
    fn disagrees(&self, what: &str) -> Vec<String> {
        let [running, waiting, others, devices, sleep, _, unknown] = self.parts.map(|part| 100.0 * part);
        let kernel = self.kernel.map(|part| 100.0 * part);
        println!(
            "{what:21} {:2} threads, sum {:7.3} %: running {running:5.1} ({:5.1}), waiting {waiting:5.1} ({:5.1}), \
             synchronisation {others:5.1}, devices {devices:5.1}, sleep {sleep:4.1}, unknown {unknown:4.1}",
            self.threads,
            100.0 * self.sum,
            kernel[0],
            kernel[1]
        );
        let mut wrong = Vec::new();
        let mut hold = |name: &str, should: f64, is: f64, most: f64| {
            if (should - is).abs() >= most {
                wrong.push(format!("{what}: {name} is {is:.2} % and not {should:.2} %"));
            }
        };
        hold("sum", 100.0, 100.0 * self.sum, 1.0);
        hold("running", kernel[0], running, MEASURING);
        hold("waiting", kernel[1], waiting, MEASURING);
        if !self.same {
            wrong.push(format!("{what}: threads came or went"));
        }
        wrong
    }
}

/// The program of OpenMP, built.
fn openmp() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("openmp");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/guest/openmp.c");
    let built =
        Command::new("cc").args(["-O1", "-fopenmp", "-o"]).arg(&program).arg(source).status().unwrap();
    assert!(built.success(), "cc -fopenmp failed");
    program
}

fn profile_adds_up(kernel: &'static str, cpus: u32) {
    let programs = programs();
    let on_path = ["redis-server", "redis-cli", "redis-benchmark", "xz", "zstd"];
    let foretells = std::env::var_os("ROTA_PROGRAMS").is_some();
    let guest = Guest::exact_on(kernel, cpus)
        .own("rota-parallel")
        .built("openmp", openmp())
        .file("/lab/programs", &programs)
        .file("/lab/foretold", if foretells { &programs } else { "" });
    let results = on_path.into_iter().fold(guest, Guest::program).run(CONFIG, &script!("programs.sh"));
    let mut wrong = Vec::new();
    println!(
        "in % of each thread's time; kernel's in brackets. Then: slower, as the profile says, foretold, measured"
    );
    for name in programs.split_whitespace() {
        let [alone, beside] = ["alone", "beside"].map(|case| Seen::new(&results, name, case));
        wrong.extend(alone.disagrees(&format!("{name} alone")));
        wrong.extend(beside.disagrees(&format!("{name} beside")));
        let [running, waiting, ..] = beside.parts;
        let foretold = Method::UsefulWork.slowdown(&[alone.counts], &[beside.counts]).unwrap();
        println!(
            "{name:14} {:.0} and {:.0} a second in {:.0} and {:.0} turns; says {:.2}, foretold {foretold:.2}, \
             measured {:.2}",
            alone.work,
            beside.work,
            alone.turns,
            beside.turns,
            (running + waiting) / running,
            alone.work / beside.work
        );
        if foretells {
            let foretold: Foretold = results.json(&format!("{name}.foretold"));
            println!("{name:14} rota profile --predict: {foretold:?}");
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// On the newest kernel. If programs are named, on an older one too; and on one CPU, whose speed does not depend on
/// what another CPU does.
#[test]
#[ignore = "boots a guest"]
fn the_profile_of_real_programs_adds_up() {
    profile_adds_up(NEWEST, 2);
    if std::env::var_os("ROTA_PROGRAMS").is_some() {
        profile_adds_up(OLDER, 2);
        profile_adds_up(NEWEST, 1);
    }
}
