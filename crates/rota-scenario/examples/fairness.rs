//! What parallel programs get of their fair share: `cargo run -p rota-scenario --example fairness`.
//!
//! A program of as many threads as CPUs that synchronises by a barrier, a mutex, a condition variable or a pipeline,
//! beside as many hogs as CPUs, or beside another such program, under each policy. The experiment is that of Zhao et
//! al., *Preemptive multi-queue fair queuing*, HPDC 2019, sections 4.2 to 4.5.
//!
//! With the argument `all` every program, interval, number of CPUs and weight is combined with every other.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rota_model::config::Source;
use rota_scenario::policies::{Entry, find};
use rota_scenario::{Options, Scenario};

const POLICIES: [&str; 8] = ["rota", "mqfq", "eevdf", "cfs", "pin-cfs", "relaxed-co", "gleaner", "credit"];
const PROGRAMS: [&str; 4] = ["barrier", "mutex", "condition", "pipeline"];
const INTERVALS_US: [u64; 5] = [50, 500, 5_000, 50_000, 500_000];
const CPUS: [u32; 4] = [4, 12, 24, 48];
const WEIGHTS: [u32; 3] = [1, 2, 4];

/// Who is beside the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Beside {
    Nobody,
    Hogs,
    Program(&'static str),
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    policy: &'static str,
    program: &'static str,
    interval_us: u64,
    cpus: u32,
    /// The program's, beside 1.
    weight: u32,
    beside: Beside,
}

/// What a program did in a run.
#[derive(Clone, Copy, Debug)]
struct Got {
    /// Of the time of all CPUs, in parts per million.
    share: u64,
    work: u64,
}

/// Of each case, what the program did, and who was beside it.
type Results = BTreeMap<Case, [Got; 2]>;

/// A workload's keys: a program of so many threads that synchronises about this often.
fn keys(program: &str, cpus: u32, interval_us: u64) -> String {
    let drawn = format!("{{ uniform = [\"{}us\", \"{}us\"] }}", interval_us * 4 / 5, interval_us * 6 / 5);
    let of_interval = |part: u64| format!("\"{}ns\"", interval_us * 1_000 / part);
    match program {
        "barrier" => format!("program = \"barrier\"\nthreads = {cpus}\ncompute = {drawn}"),
        "mutex" => {
            let inside = of_interval(2 * u64::from(cpus));
            format!("program = \"mutex\"\nthreads = {cpus}\noutside = {drawn}\ninside = {inside}")
        }
        "condition" => {
            let between = of_interval(20);
            format!("program = \"condition\"\nthreads = {cpus}\ncompute = {drawn}\nbetween = {between}")
        }
        "pipeline" => {
            let threads = cpus / 4;
            format!("program = \"pipeline\"\nthreads = {threads}\nstages = 4\nroom = 4\ncompute = {drawn}")
        }
        _ => format!("program = \"hog\"\nthreads = {cpus}"),
    }
}

impl Case {
    fn scenario(&self) -> Scenario {
        let Case { program, interval_us, cpus, weight, beside, .. } = *self;
        let window_ms = (interval_us * 20 / 1_000).clamp(500, 5_000);
        let warm_up_ms = window_ms / 2;
        let mut text = format!("duration = \"{window_ms}ms\"\nwarm_up = \"{warm_up_ms}ms\"\n");
        text += &format!("[host]\ncpus = \"0-{}\"\n", cpus - 1);
        let other = match beside {
            Beside::Nobody => None,
            Beside::Hogs => Some("hog"),
            Beside::Program(other) => Some(other),
        };
        let tenants = [("first", weight, Some(program)), ("second", 1, other)];
        for (name, weight, program) in tenants {
            let Some(program) = program else { continue };
            let keys = keys(program, cpus, interval_us);
            text +=
                &format!("[[tenant]]\nname = \"{name}\"\nclass = \"shared\"\nweight = {}\n", weight * 100);
            text += &format!("[[workload]]\ntenant = \"{name}\"\n{keys}\n");
        }
        let source = Source { path: "fairness.toml".to_owned(), text };
        Scenario::parse(&source).unwrap_or_else(|errors| panic!("{errors}\n{}", source.text))
    }

    fn run(&self) -> [Got; 2] {
        let entry: &Entry = find(self.policy).expect("it is one of the simulator's");
        let outcome = self.scenario().run(entry, Options::default(), &|_| {});
        let outcome = outcome.unwrap_or_else(|error| panic!("{self:?}: {error:#}"));
        assert!(outcome.insane.is_empty(), "{self:?}: {:?}", outcome.insane);
        let all_ns = outcome.window_ns * u64::from(outcome.cpus);
        let mut got = [Got { share: 0, work: 0 }; 2];
        for (got, tenant) in got.iter_mut().zip(&outcome.tenants) {
            let part = u128::from(tenant.metrics.received_ns) * 1_000_000 / u128::from(all_ns);
            *got = Got { share: part as u64, work: tenant.metrics.work };
        }
        got
    }

    /// The same program alone.
    fn alone(self) -> Case {
        Case { beside: Beside::Nobody, weight: 1, ..self }
    }

    /// Its share by weight, or what it uses alone if that is less; in parts per million.
    fn fair(&self, results: &Results) -> u64 {
        let by_weight = u64::from(self.weight) * 1_000_000 / u64::from(self.weight + 1);
        by_weight.min(results[&self.alone()][0].share)
    }
}

/// Runs all, as many at once as there are CPUs here.
fn run_all(cases: impl IntoIterator<Item = Case>) -> Results {
    let wanted: std::collections::BTreeSet<Case> =
        cases.into_iter().flat_map(|case| [case.alone(), case]).collect();
    let (left, results) = (Mutex::new(wanted), Mutex::new(Results::new()));
    let worker = || {
        while let Some(case) = left.lock().map(|mut left| left.pop_last()).ok().flatten() {
            let got = case.run();
            results.lock().expect("no worker panics while it has it").insert(case, got);
        }
    };
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("every case runs"));
    });
    results.into_inner().expect("no worker panics while it has it")
}

/// A table of percentages of fair, and of how many times as long as alone the work takes.
fn print(title: &str, rows: &[Case], results: &Results) {
    println!("\n{title}\n\n| program, every, CPUs, weights | {} |", POLICIES.join(" | "));
    println!("| --- |{}", " --- |".repeat(POLICIES.len()));
    for row in rows {
        let Case { program, interval_us, cpus, weight, .. } = row;
        let every = match interval_us {
            1_000.. => format!("{} ms", interval_us / 1_000),
            us => format!("{us} us"),
        };
        print!("| {program}, {every}, {cpus}, {weight}:1 |");
        for policy in POLICIES {
            let case = Case { policy, ..*row };
            let ([got, _], [alone, _]) = (results[&case], results[&case.alone()]);
            let per_mille = got.share * 1_000 / case.fair(results).max(1);
            let times = alone.work * 10 / got.work.max(1);
            print!(" {}.{} %, {}.{} |", per_mille / 10, per_mille % 10, times / 10, times % 10);
        }
        println!();
    }
}

/// Of two programs beside each other the geometric mean of how much faster they are than under CFS.
fn print_speedups(rows: &[Case], results: &Results) {
    println!("\nTwo programs at once: geometric mean of their speed-ups over CFS\n");
    println!("| programs, every, CPUs | {} |", POLICIES.join(" | "));
    println!("| --- |{}", " --- |".repeat(POLICIES.len()));
    for row in rows {
        let cfs = results[&Case { policy: "cfs", ..*row }];
        let Beside::Program(other) = row.beside else { continue };
        print!("| {} and {other}, {} us, {} |", row.program, row.interval_us, row.cpus);
        for policy in POLICIES {
            let got = results[&Case { policy, ..*row }];
            // The square root of the product, in hundredths.
            let ratio =
                |place: usize| u128::from(got[place].work) * 10_000 / u128::from(cfs[place].work.max(1));
            let mean = (ratio(0) * ratio(1)).isqrt() / 100;
            print!(" {}.{:02} |", mean / 100, mean % 100);
        }
        println!();
    }
}

fn beside_hogs(program: &'static str, interval_us: u64, cpus: u32, weight: u32) -> Case {
    Case { policy: POLICIES[0], program, interval_us, cpus, weight, beside: Beside::Hogs }
}

fn main() {
    let all = std::env::args().nth(1).is_some_and(|argument| argument == "all");
    let mut beside: Vec<Case> = Vec::new();
    for program in PROGRAMS {
        for interval_us in INTERVALS_US {
            for cpus in CPUS {
                for weight in WEIGHTS {
                    let usual = [cpus == 12 && weight == 1, program == "barrier" && interval_us == 500];
                    if all || usual.contains(&true) {
                        beside.push(beside_hogs(program, interval_us, cpus, weight));
                    }
                }
            }
        }
    }
    let pairs =
        PROGRAMS.map(|other| Case { beside: Beside::Program(other), ..beside_hogs("barrier", 500, 12, 1) });
    let under_each = |row: Case| POLICIES.map(|policy| Case { policy, ..row });
    let results = run_all(beside.iter().chain(&pairs).copied().flat_map(under_each));
    print("Beside as many hogs as CPUs: of fair, and times as long as alone", &beside, &results);
    print_speedups(&pairs, &results);
}
