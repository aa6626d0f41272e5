//! What it would gain with a recorded load to move vCPUs for their caches: the same replay with each strategy.

use std::path::Path;

use rota_model::{Interference, Model};
use rota_scenario::Outcome;
use rota_scenario::replay::Memories;
use rota_sim::PRIVATE_KIB;
use serde::Serialize;

use crate::report::{Comparison, format};

/// The strategies, in the order in which they are shown: what is done without any comes first.
pub const STRATEGIES: [(Interference, &str); 3] =
    [(Interference::Off, "off"), (Interference::Random, "random"), (Interference::Measured, "measured")];

/// A figure with each strategy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ByStrategy<T> {
    /// vCPUs stay where they are.
    pub off: T,
    /// They change places at random.
    pub random: T,
    /// Those that fill caches are spread.
    pub measured: T,
}

/// None where nothing ran.
type Figures = ByStrategy<Option<f64>>;

impl<T> ByStrategy<T> {
    fn of([off, random, measured]: [T; 3]) -> ByStrategy<T> {
        ByStrategy { off, random, measured }
    }

    fn all(self) -> [T; 3] {
        [self.off, self.random, self.measured]
    }
}

/// What each tenant whose working set is known would gain.
#[derive(Debug, Serialize)]
pub struct Gain {
    /// In the recording's order.
    pub tenants: Vec<TenantGain>,
    /// All of these together, if they are several.
    pub together: Option<TenantGain>,
    /// vCPUs that changed places in the replay, of all runs together.
    pub moved: ByStrategy<u64>,
    /// Tenants whose working sets nobody has said: in the replay they ask nothing of memory.
    pub not_described: Vec<String>,
    /// The size of each last-level cache, in KiB.
    pub last_level_cache_kib: u64,
}

/// A tenant with each strategy.
#[derive(Debug, Serialize)]
pub struct TenantGain {
    /// Its name.
    pub tenant: String,
    /// By what part its computing takes longer than if nobody disturbed it in the caches; 0.5 is half as long again.
    pub slowdown: Figures,
    /// The part of the CPU time that the same work no longer takes, compared with `off`.
    pub saved: Figures,
    /// Lines of 64 bytes that it fetches from memory in a millisecond in which it runs.
    pub lines_per_ms: Figures,
}

/// What a tenant's computing took with one strategy.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    received_ns: u64,
    /// So long would the same have taken undisturbed.
    undisturbed_ns: u64,
    misses: u64,
}

impl Taken {
    /// `ns_per_us`: what a microsecond of its computing takes undisturbed.
    fn of(name: &str, ns_per_us: u64, runs: &[Outcome]) -> Taken {
        let tenants = runs.iter().flat_map(|run| &run.tenants).filter(|found| found.tenant.name == name);
        let taken = tenants.filter_map(|found| {
            let (counted, received_ns) = (found.caches?, found.metrics.received_ns);
            let computed_ns = received_ns.saturating_sub(counted.stalled_ns);
            let undisturbed_ns = u128::from(computed_ns) * u128::from(ns_per_us) / 1_000;
            Some(Taken { received_ns, undisturbed_ns: undisturbed_ns as u64, misses: counted.misses })
        });
        taken.fold(Taken::default(), Taken::plus)
    }

    fn plus(self, other: Taken) -> Taken {
        Taken {
            received_ns: self.received_ns + other.received_ns,
            undisturbed_ns: self.undisturbed_ns + other.undisturbed_ns,
            misses: self.misses + other.misses,
        }
    }

    /// Of the time that it would take undisturbed.
    fn times(self) -> Option<f64> {
        (self.undisturbed_ns > 0).then(|| self.received_ns as f64 / self.undisturbed_ns as f64)
    }

    fn lines_per_ms(self) -> Option<f64> {
        (self.received_ns > 0).then(|| self.misses as f64 * 1e6 / self.received_ns as f64)
    }
}

impl TenantGain {
    fn new(tenant: String, taken: [Taken; 3]) -> TenantGain {
        let times = taken.map(Taken::times);
        let off = times[0];
        let saved = |times: Option<f64>| Some(1.0 - times? / off?);
        TenantGain {
            tenant,
            slowdown: ByStrategy::of(times.map(|times| Some(times? - 1.0))),
            saved: ByStrategy::of([None, saved(times[1]), saved(times[2])]),
            lines_per_ms: ByStrategy::of(taken.map(Taken::lines_per_ms)),
        }
    }
}

impl Gain {
    /// Of runs with each strategy, one a seed.
    pub fn new(model: &Model, memories: &Memories, runs: [&[Outcome]; 3]) -> Gain {
        let name = |id: &u32| model.tenants[*id as usize].name.clone();
        let taken: Vec<(String, [Taken; 3])> = memories
            .tenants
            .iter()
            .map(|(id, memory)| {
                let ns_per_us = memory.undisturbed_ns_per_us(memories.shared_kib);
                (name(id), runs.map(|runs| Taken::of(&name(id), ns_per_us, runs)))
            })
            .collect();
        let sum =
            |place: usize| taken.iter().map(|(_, taken)| taken[place]).fold(Taken::default(), Taken::plus);
        let together = || TenantGain::new("all of these".to_owned(), [0, 1, 2].map(sum));
        let together = (taken.len() > 1).then(together);
        let moved = |runs: &[Outcome]| runs.iter().map(|run| run.moved).sum();
        let ids = (0..model.tenants.len() as u32).filter(|id| Some(*id) != model.system());
        Gain {
            moved: ByStrategy::of(runs.map(moved)),
            not_described: ids.filter(|id| !memories.tenants.contains_key(id)).map(|id| name(&id)).collect(),
            tenants: taken.into_iter().map(|(tenant, taken)| TenantGain::new(tenant, taken)).collect(),
            together,
            last_level_cache_kib: memories.shared_kib,
        }
    }

    /// For people: three lines a tenant.
    pub fn comparison(&self, recording: &str) -> Comparison {
        type Measure = (&'static str, fn(&TenantGain) -> Figures, fn(f64) -> String);
        const MEASURES: [Measure; 3] = [
            ("Slower than undisturbed", |tenant| tenant.slowdown, percent),
            ("CPU time saved for the same work", |tenant| tenant.saved, percent),
            (
                "Lines fetched from memory in a ms",
                |tenant| tenant.lines_per_ms,
                |lines| format!("{lines:.0}"),
            ),
        ];
        let mut rows = Vec::new();
        for tenant in self.tenants.iter().chain(&self.together) {
            for (place, (measure, of, text)) in MEASURES.into_iter().enumerate() {
                let [off, random, measured] =
                    of(tenant).all().map(|figure| figure.map_or("\u{2013}".to_owned(), text));
                let name = if place == 0 { tenant.tenant.clone() } else { String::new() };
                rows.push([name, measure.to_owned(), off, random, measured]);
            }
        }
        let title = format!("What moving vCPUs for their caches would gain with the load of {recording}");
        let [(_, off), (_, random), (_, measured)] = STRATEGIES;
        Comparison { title, heads: ["tenant", "[host] interference", off, random, measured], rows }
    }

    /// What is to be known of the figures, a sentence or two each.
    pub fn notes(&self, file: &Path) -> Vec<String> {
        let [off, random, measured] = self.moved.all();
        let mut notes =
            vec![format!("vCPUs moved: {off} with off, {random} with random, {measured} with measured.")];
        if random + measured == 0 {
            notes.push(
                "No vCPU could change places: only reserved ones that are promised the same do, on different CPUs. \
                 `rota record --config` writes down what tenants are promised."
                    .to_owned(),
            );
        }
        notes.push(format!(
            "A recording says nothing of caches. What threads work on is taken from {}.",
            file.display()
        ));
        if !self.not_described.is_empty() {
            notes.push(format!(
                "Not described there, and taken to ask nothing of memory: {}.",
                listed(&self.not_described)
            ));
        }
        notes.push(format!(
            "What was recorded is taken for computing that nobody disturbed. Caches: {PRIVATE_KIB} KiB for a core, \
             as in the model, and {} KiB for a domain.",
            self.last_level_cache_kib
        ));
        notes
    }
}

/// Names for people: the first of many.
pub fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// To a tenth, and never less than nothing by less than that.
fn percent(part: f64) -> String {
    format::percent((part * 1e3).round() / 1e3 + 0.0)
}
