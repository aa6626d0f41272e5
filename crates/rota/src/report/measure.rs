//! The figures of a report: each is computed here and nowhere else, whoever shows it.

use rota_rules::profile::BySpent;

use super::format;
use super::run::{Contestant, Run, Tenant, Times};

/// One tenant under each policy that has it.
pub type Cells<'a> = Vec<(Contestant, &'a Tenant)>;

/// Tenants' names in the order of the runs, with each policy's result for them.
pub fn by_tenant(runs: &[Run], wanted: impl Fn(&Tenant) -> bool) -> Vec<(&str, Cells<'_>)> {
    let mut rows: Vec<(&str, Cells)> = vec![];
    for run in runs {
        for tenant in run.tenants.iter().filter(|tenant| wanted(tenant)) {
            let cell = (run.policy, tenant);
            match rows.iter_mut().find(|(name, _)| *name == tenant.seen.name) {
                Some((_, cells)) => cells.push(cell),
                None => rows.push((&tenant.seen.name, vec![cell])),
            }
        }
    }
    rows
}

/// Whether it has a promise that can be broken.
pub fn is_reserved(tenant: &Tenant) -> bool {
    tenant.seen.latency_bound_ns.is_some()
}

/// Figures of some tenants, under each policy.
pub struct Table {
    /// What it shows.
    pub caption: &'static str,
    /// Names of its figures.
    pub measures: Vec<&'static str>,
    /// One a tenant; never empty.
    pub rows: Vec<TableRow>,
}

/// One tenant's figures.
#[derive(Clone)]
pub struct TableRow {
    /// Whose.
    pub tenant: String,
    /// How it is served.
    pub class: String,
    /// The promised share.
    pub share: String,
    /// The promised bound.
    pub bound: String,
    /// For each measure one for each policy, in the order of the runs.
    pub figures: Vec<Vec<Figure>>,
}

/// One figure.
#[derive(Clone)]
pub struct Figure {
    /// As people read it.
    pub text: String,
    /// Whether it breaks the promise.
    pub is_broken: bool,
}

/// Nothing to show.
const DASH: &str = "\u{2013}";

type Measure = (&'static str, fn(&Tenant, &Run) -> Option<Figure>);

/// The tables, each with its measures. A measure is told the run, too.
const TABLES: &[(&str, &[Measure])] = &[
    (
        "Share and blackout",
        &[
            ("Share received", |tenant, run| {
                Some(Figure {
                    text: format::share(tenant.seen.received_share),
                    is_broken: tenant.seen.is_short(run.window_ns, run.length_ns),
                })
            }),
            ("Longest blackout", |tenant, _| {
                (!tenant.seen.is_idle()).then(|| Figure {
                    text: format::time(tenant.seen.blackouts.longest_ns),
                    is_broken: tenant.seen.is_late(),
                })
            }),
        ],
    ),
    (
        "CPU time behind and ahead of a fair share",
        &[
            ("Most behind", |tenant, _| time(tenant.inside.as_ref()?.lag.as_ref()?.behind_max_ns)),
            ("Most ahead", |tenant, _| time(tenant.inside.as_ref()?.lag.as_ref()?.ahead_max_ns)),
        ],
    ),
    (
        "Answers of the servers",
        &[
            ("Median", |tenant, _| time(tenant.seen.requests.as_ref()?.p50_ns)),
            ("99th percentile", |tenant, _| time(tenant.seen.requests.as_ref()?.p99_ns)),
        ],
    ),
    (
        "Gaps seen by the tenant itself, reading the clock in a loop",
        &[
            ("Longest gap", |tenant, _| time(tenant.seen.probe.as_ref()?.longest_ns)),
            ("Time lost to gaps", |tenant, _| time(tenant.seen.probe.as_ref()?.lost_ns)),
        ],
    ),
    (
        "From waking up to running",
        &[
            ("Median", |tenant, _| time(some(&tenant.inside.as_ref()?.wakeups)?.p50_ns)),
            ("99th percentile", |tenant, _| time(some(&tenant.inside.as_ref()?.wakeups)?.p99_ns)),
        ],
    ),
    (
        "What the programs themselves count: pieces of work, and times of their own",
        &[
            ("Work", |tenant, run| rate(Some(tenant.inside.as_ref()?.work).filter(|work| *work > 0)?, run)),
            ("Median", |tenant, _| time(some(&tenant.inside.as_ref()?.latencies)?.p50_ns)),
            ("99th percentile", |tenant, _| time(some(&tenant.inside.as_ref()?.latencies)?.p99_ns)),
        ],
    ),
    (
        "Where the time of its threads went, in parts of their lifetime",
        &[
            ("Running", |tenant, _| spent(tenant, |spent| spent.running)),
            ("Waiting busily", |tenant, _| spun(tenant)),
            ("Waiting for a CPU", |tenant, _| spent(tenant, |spent| spent.waiting)),
            ("Synchronisation", |tenant, _| spent(tenant, |spent| spent.synchronisation)),
            ("Devices", |tenant, _| spent(tenant, |spent| spent.devices)),
            ("Sleep", |tenant, _| spent(tenant, |spent| spent.sleep)),
            ("Halted", |tenant, _| spent(tenant, |spent| spent.halted)),
            ("Unknown", |tenant, _| spent(tenant, |spent| spent.unknown)),
        ],
    ),
    (
        "Waits for a CPU: times slower than without, and who ran for most of them",
        &[("Slower", |tenant, _| slower(tenant)), ("While there ran", |tenant, _| waited_for(tenant))],
    ),
    (
        "Changes of task",
        &[
            ("Preemptions", |tenant, run| rate(tenant.inside.as_ref()?.preemptions, run)),
            ("Migrations", |tenant, run| rate(tenant.inside.as_ref()?.migrations, run)),
        ],
    ),
    (
        "References to the last-level cache, and those that went on to memory",
        &[
            ("References", |tenant, run| rate(tenant.inside.as_ref()?.caches?.references, run)),
            ("Misses", |tenant, run| rate(tenant.inside.as_ref()?.caches?.misses, run)),
        ],
    ),
];

fn some(times: &Times) -> Option<&Times> {
    (!times.is_empty()).then_some(times)
}

/// A part of the threads' time; nothing where there is none.
fn spent(tenant: &Tenant, of: impl Fn(&BySpent) -> u64) -> Option<Figure> {
    let all = &tenant.inside.as_ref()?.spending.spent_ns;
    let ns = Some(of(all)).filter(|ns| *ns > 0)?;
    part(ns, all.total())
}

/// The part in which they waited busily, which is counted as running, too.
fn spun(tenant: &Tenant) -> Option<Figure> {
    let inside = tenant.inside.as_ref().filter(|inside| inside.spinning_ns > 0)?;
    part(inside.spinning_ns, inside.spending.spent_ns.total())
}

fn part(ns: u64, all_ns: u64) -> Option<Figure> {
    (all_ns > 0).then(|| Figure { text: format::percent(ns as f64 / all_ns as f64), is_broken: false })
}

/// By how much its threads would have been done earlier with a CPU for each, if nothing else changed.
fn slower(tenant: &Tenant) -> Option<Figure> {
    let spent = &tenant.inside.as_ref()?.spending.spent_ns;
    let slower = (spent.running + spent.waiting) as f64 / spent.running as f64;
    (spent.waiting > 0 && spent.running > 0)
        .then(|| Figure { text: format!("{}x", format::ratio(slower)), is_broken: false })
}

/// Who ran for most of its waits, with that part of them.
fn waited_for(tenant: &Tenant) -> Option<Figure> {
    let waited = tenant.inside.as_ref()?.spending.waited_for();
    let (name, part) = waited.first()?;
    Some(Figure { text: format!("{} {name}", format::percent(*part)), is_broken: false })
}

fn rate(count: u64, run: &Run) -> Option<Figure> {
    let text = format::rate(count as f64 * 1e9 / run.window_ns.max(1) as f64);
    Some(Figure { text, is_broken: false })
}

/// A tenant that wanted to run for this part of a time wanted all of it.
const HUNGRY: f64 = 0.99;

/// How fair each part of the window was, from 0 to 1: Jain's index, (sum x)^2 / (n sum x^2), of what the tenants of one
/// class that wanted all the time received, each measured by what it is entitled to; of the class with the smallest.
/// Nothing where no two tenants of a class wanted all the time.
pub fn fairness(run: &Run) -> Vec<Option<f64>> {
    let inside = || run.tenants.iter().filter_map(|tenant| Some((tenant, tenant.inside.as_ref()?)));
    let parts = inside().map(|(_, inside)| inside.service.len()).max().unwrap_or(0);
    let part_ns = run.window_ns as f64 / parts.max(1) as f64;
    let index = |part: usize, class: &str| {
        let of_class = inside().filter(|(tenant, _)| tenant.seen.class == class);
        let received: Vec<f64> = of_class
            .filter_map(|(_, inside)| {
                let (received_ns, wanted_ns) = *inside.service.get(part)?;
                let hungry = wanted_ns as f64 >= HUNGRY * part_ns * f64::from(inside.units);
                (hungry && inside.entitlement > 0.0).then_some(received_ns as f64 / inside.entitlement)
            })
            .collect();
        let (sum, squares): (f64, f64) =
            received.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        (received.len() > 1 && squares > 0.0).then(|| sum * sum / (received.len() as f64 * squares))
    };
    let least = |part| {
        let indices = ["reserved", "shared", "background"].into_iter().filter_map(|class| index(part, class));
        indices.min_by(f64::total_cmp)
    };
    (0..parts).map(least).collect()
}

fn time(ns: u64) -> Option<Figure> {
    Some(Figure { text: format::time(ns), is_broken: false })
}

/// The tables for which there is anything to show.
pub fn tables(runs: &[Run]) -> Vec<Table> {
    TABLES.iter().filter_map(|(caption, measures)| table(runs, caption, measures)).collect()
}

fn table(runs: &[Run], caption: &'static str, measures: &[Measure]) -> Option<Table> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| DASH.to_owned());
    let first = runs.first()?;
    let found = |measure: &&Measure| {
        runs.iter().any(|run| run.tenants.iter().any(|tenant| measure.1(tenant, run).is_some()))
    };
    let measures: Vec<&Measure> = measures.iter().filter(found).collect();
    let has_any = |tenant: &Tenant| measures.iter().any(|measure| measure.1(tenant, first).is_some());
    let figure = |cells: &Cells, run: &Run, measure: &Measure| {
        let tenant = cells.iter().find(|(policy, _)| *policy == run.policy);
        tenant
            .and_then(|(_, tenant)| measure.1(tenant, run))
            .unwrap_or_else(|| Figure { text: DASH.to_owned(), is_broken: false })
    };
    let row = |(name, cells): (&str, Cells)| TableRow {
        tenant: name.to_owned(),
        class: cells.first().map_or(String::new(), |(_, tenant)| tenant.seen.class.clone()),
        share: or_dash(cells.iter().find_map(|(_, tenant)| tenant.seen.promised_share).map(format::share)),
        bound: or_dash(
            cells.iter().find_map(|(_, tenant)| tenant.seen.latency_bound_ns).map(format::round_time),
        ),
        figures: measures
            .iter()
            .map(|measure| runs.iter().map(|run| figure(&cells, run, measure)).collect())
            .collect(),
    };
    let rows: Vec<TableRow> = by_tenant(runs, has_any).into_iter().map(row).collect();
    let measures = measures.iter().map(|measure| measure.0).collect();
    (!rows.is_empty()).then_some(Table { caption, measures, rows })
}

/// How all CPUs' time was used under one policy, as parts of it.
pub struct CpuTime {
    /// By reserved and shared tenants.
    pub promised: f64,
    /// By background tenants: what they have harvested.
    pub harvest: f64,
    /// By nobody's programs: kernel threads, clients, the measuring itself.
    pub system: f64,
    /// By nothing.
    pub idle: f64,
}

impl CpuTime {
    /// What a run says of it.
    pub fn of(run: &Run) -> CpuTime {
        let whole = (u64::from(run.cpus) * run.window_ns).max(1) as f64;
        let used = |background: bool| {
            let of_class = |tenant: &&Tenant| (tenant.seen.class == "background") == background;
            let cpus = |tenant: &Tenant| tenant.seen.received_share * f64::from(tenant.seen.vcpus);
            run.tenants.iter().filter(of_class).map(cpus).fold(0.0, |sum, part| sum + part)
                / f64::from(run.cpus.max(1))
        };
        CpuTime {
            promised: used(false),
            harvest: used(true),
            system: run.system_ns as f64 / whole,
            idle: (1.0 - run.busy_ns as f64 / whole).max(0.0),
        }
    }
}
