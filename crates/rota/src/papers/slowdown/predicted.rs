//! Figure 3.8.

use anyhow::Result;
use rota_rules::slowdown::{Method, Prediction, Refusal, predict};
use rota_scenario::{Plan, Sampled};

use super::{Beside, PERSISTENT, PROGRAM, PROGRAMS, STREAMCLUSTER, Setting, Workload, policies};
use crate::papers::{Figure, Published, Row, Study, Table, Unit};
use crate::parallel;

/// What runs beside a program, by the figure's names.
const BESIDE: [(&str, Workload, u32); 4] = [
    ("1-persistent", PERSISTENT, 1),
    ("4-persistent", PERSISTENT, 4),
    ("1-stcluster", STREAMCLUSTER, 1),
    ("4-stcluster", STREAMCLUSTER, 4),
];

/// How long each sample is, and how long nobody looks before and after, in ns.
const SAMPLE_NS: u64 = 6_000_000_000;
const SETTLE_NS: u64 = 200_000_000;
/// When the first one begins, in ms.
const WARM_UP_MS: u64 = 1_000;

const METHODS: [(Method, &str); 3] =
    [(Method::UsefulWork, "by useful work"), (Method::Cpi, "by CPI"), (Method::Mpki, "by MPKI")];

/// A program beside others: how much longer it took, and what was foretold.
struct Trial {
    setting: Setting,
    beside: &'static str,
    slowdown: f64,
    sampled: Sampled,
}

impl Trial {
    fn new(study: &Study, setting: Setting, beside: &'static str) -> Result<Trial> {
        let plan =
            Plan { tenant: PROGRAM, sample_ns: SAMPLE_NS / study.hurry, settle_ns: SETTLE_NS / study.hurry };
        let scenario = setting.scenario(setting.beside, 1_000, WARM_UP_MS)?;
        let sampled = scenario.sample(&setting.policy, study.seed, plan)?;
        let slowdown = setting.slowdown(study)?;
        Ok(Trial { setting, beside, slowdown, sampled })
    }

    /// How far a method is off, as a part of the slowdown. A method that has nothing to go by foretells none.
    fn error(&self, method: Method) -> f64 {
        (self.foretold(method) - self.slowdown).abs() / self.slowdown
    }

    fn foretold(&self, method: Method) -> f64 {
        method.slowdown(&self.sampled.dedicated, &self.sampled.beside).unwrap_or(1.0)
    }

    fn judged(&self) -> Result<Prediction, Refusal> {
        predict(&self.sampled.dedicated, &self.sampled.beside)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / f64::max(count, 1.0)
}

pub const PREDICTED: Figure = Figure {
    name: "000-fig3.8",
    title: "how well short samples foretell how many times longer a program takes beside others",
    source: "Zhao, dissertation, figure 3.8 and section 3.4; the text gives mean errors over all programs, and cg's",
    setting: &[
        "There: PARSEC, which blocks, and the NAS parallel benchmarks, which spin, in a Xen VM of four vCPUs, each \
         pinned to a CPU, beside a VM of the same weight in which 1 or 4 threads compute (persistent) or are \
         streamcluster's. The VM is sampled for 30 s beside the other one and for 30 s with that one held off. Here: \
         the simulator's stand-ins with 6 s each, of which half of the former is before and half after the latter, \
         under pinned Credit, CFS and Rota. What a program does alone in 30 s is run to its end beside the others, and \
         how much longer that took is what was to be foretold.",
        "Useful work is a thread's time less what it waited for a CPU, for others, asleep or in a loop, for memory, \
         and for changes of task. Its speed in one sample over that in the other is the slowdown. Nothing is foretold \
         where the parts of the samples differ so much that the slowdown may be off by more than 5 % (95 % \
         confidence): `refused`. The figures of all programs have these, too.",
    ],
    differs: &[
        "By useful work a slowdown that is not refused is foretold to 0.6 % on average, and better. The simulator \
         knows what its threads wait for; there that is estimated, memory by counters of the processor.",
        "A program that spins beside 4 persistent threads is refused under Credit. All CPUs' slices are in step after \
         the others were held off, and the program's threads run together. Left alone the slices drift apart, and it \
         takes 16 to 25 times longer. A sample that holds others off can change what it measures.",
        "cg goes through stages of seconds with memory of its own each, and is refused everywhere. By the samples \
         alone it would be off by 38 to 52 %, there by 32 %.",
        "For cycles per instruction all of the time counts as cycles, also what others have: else no method that goes \
         by them sees a CPU that is taken away. A loop that waits executes as many instructions as a computation that \
         finds all in its own cache. So they are right for programs that block, and wrong for those that spin.",
        "Misses per instruction say nothing of CPU time, and nothing at all where a program has hardly any; then no \
         slowdown is foretold. The text does not say more of how they were used, and ours are wrong by more.",
        "What changes of task cost is taken as it is, not inferred from differences between threads. Threads share no \
         lines in the simulator, so that memory does not become cheaper as threads get out of step.",
    ],
    study: |study| {
        let settings: Vec<(&'static str, Setting)> = policies()
            .into_iter()
            .flat_map(|policy| PROGRAMS.map(|program| (policy, program)))
            .flat_map(|(policy, program)| {
                BESIDE.map(|(name, other, threads)| {
                    let beside: Beside = Some((other, threads));
                    (name, Setting { policy, program, beside })
                })
            })
            .collect();
        let trials = parallel::map(&settings, |(beside, setting)| {
            let trial = Trial::new(study, *setting, beside);
            (study.progress)(setting.policy.label);
            trial
        });
        let trials = trials.into_iter().collect::<Result<Vec<Trial>>>()?;
        let mut tables = vec![errors(&trials)];
        for policy in policies() {
            tables.push(each(&trials, policy.label));
        }
        Ok(tables)
    },
};

fn errors(trials: &[Trial]) -> Table {
    let mut rows = Vec::new();
    for policy in policies() {
        let of_policy = || trials.iter().filter(move |trial| trial.setting.policy.label == policy.label);
        let is_there = policy.label == "Credit, pinned";
        let mut row = |setting: &str, published: f64, ours: f64| {
            let published =
                if is_there && published > 0.0 { Published::About(published) } else { Published::Nothing };
            rows.push(Row { setting: setting.to_owned(), policy: policy.label, published, ours });
        };
        let all = |method| mean(of_policy().map(|trial| trial.error(method)));
        row("by MPKI, all programs", 0.203, all(Method::Mpki));
        row("by CPI, all programs", 0.152, all(Method::Cpi));
        row("by useful work, all programs", 0.045, all(Method::UsefulWork));
        let accepted = of_policy().filter(|trial| trial.judged().is_ok());
        row(
            "by useful work, where not refused",
            0.0,
            mean(accepted.map(|trial| trial.error(Method::UsefulWork))),
        );
        let refused = of_policy().filter(|trial| trial.judged().is_err()).count();
        row("refused, part of all", 0.0, refused as f64 / of_policy().count().max(1) as f64);
        let cg =
            of_policy().find(|trial| trial.setting.program.name == "cg" && trial.beside == "4-stcluster");
        row("by useful work, cg beside 4-stcluster", 0.32, cg.map_or(0.0, |cg| cg.error(Method::UsefulWork)));
    }
    Table::new("Mean error of the slowdown that is foretold, as a part of it", Unit::Part, rows)
}

/// Each program under one policy.
fn each(trials: &[Trial], policy: &str) -> Table {
    let mut rows = Vec::new();
    for trial in trials.iter().filter(|trial| trial.setting.policy.label == policy) {
        let refused = if trial.judged().is_err() { " (refused)" } else { "" };
        let setting = format!("{}, {}{refused}", trial.setting.program.name, trial.beside);
        let foretold = METHODS.map(|(method, name)| (name, trial.foretold(method)));
        for (policy, ours) in [("in fact", trial.slowdown)].into_iter().chain(foretold) {
            rows.push(Row { setting: setting.clone(), policy, published: Published::Nothing, ours });
        }
    }
    Table::by_policy(
        format!("Times longer than alone, in fact and as foretold, under {policy}"),
        Unit::Times,
        rows,
    )
}
