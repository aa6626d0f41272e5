//! The figures of a report: each is computed here and nowhere else, whoever shows it.

use rota_lab::scenario::Policy;
use rota_lab::scenario::result::{PolicyResult, TenantResult};

use super::format;

/// One tenant under each policy that has it.
pub type Cells<'a> = Vec<(Policy, &'a TenantResult)>;

/// Tenants' names in the order of the results, with each policy's result for them.
pub fn by_tenant(results: &[PolicyResult], wanted: impl Fn(&TenantResult) -> bool) -> Vec<(&str, Cells<'_>)> {
    let mut rows: Vec<(&str, Cells)> = vec![];
    for result in results {
        for tenant in result.tenants.iter().filter(|tenant| wanted(tenant)) {
            let cell = (result.policy, tenant);
            match rows.iter_mut().find(|(name, _)| *name == tenant.name) {
                Some((_, cells)) => cells.push(cell),
                None => rows.push((&tenant.name, vec![cell])),
            }
        }
    }
    rows
}

/// Whether it has a promise that can be broken.
pub fn is_reserved(tenant: &TenantResult) -> bool {
    tenant.latency_bound_ns.is_some()
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
pub struct TableRow {
    /// Whose.
    pub tenant: String,
    /// How it is served.
    pub class: String,
    /// The promised share.
    pub share: String,
    /// The promised bound.
    pub bound: String,
    /// For each measure one for each policy, in the order of the results.
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

type Measure = (&'static str, fn(&TenantResult, u64) -> Option<Figure>);

/// The tables, each with its measures. The second argument of a measure is the window in ns.
const TABLES: &[(&str, &[Measure])] = &[
    (
        "Share and blackout",
        &[
            ("Share received", |tenant, window_ns| {
                Some(Figure {
                    text: format::share(tenant.received_share),
                    is_broken: tenant.is_short(window_ns),
                })
            }),
            ("Longest blackout", |tenant, _| {
                Some(Figure { text: format::time(tenant.blackouts.longest_ns), is_broken: tenant.is_late() })
            }),
        ],
    ),
    (
        "Answers of the servers",
        &[
            ("Median", |tenant, _| time(tenant.requests.as_ref()?.p50_ns)),
            ("99th percentile", |tenant, _| time(tenant.requests.as_ref()?.p99_ns)),
        ],
    ),
    (
        "Gaps seen by the tenant itself, reading the clock in a loop",
        &[
            ("Longest gap", |tenant, _| time(tenant.probe.as_ref()?.longest_ns)),
            ("Time lost to gaps", |tenant, _| time(tenant.probe.as_ref()?.lost_ns)),
        ],
    ),
];

fn time(ns: u64) -> Option<Figure> {
    Some(Figure { text: format::time(ns), is_broken: false })
}

/// The tables for which there is anything to show.
pub fn tables(results: &[PolicyResult]) -> Vec<Table> {
    TABLES.iter().filter_map(|(caption, measures)| table(results, caption, measures)).collect()
}

fn table(results: &[PolicyResult], caption: &'static str, measures: &[Measure]) -> Option<Table> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| DASH.to_owned());
    let has_any = |tenant: &TenantResult| measures.iter().any(|(_, measure)| measure(tenant, 1).is_some());
    let figure = |cells: &Cells, result: &PolicyResult, measure: &Measure| {
        let tenant = cells.iter().find(|(policy, _)| *policy == result.policy);
        tenant
            .and_then(|(_, tenant)| measure.1(tenant, result.window_ns))
            .unwrap_or_else(|| Figure { text: DASH.to_owned(), is_broken: false })
    };
    let row = |(name, cells): (&str, Cells)| TableRow {
        tenant: name.to_owned(),
        class: cells.first().map_or(String::new(), |(_, tenant)| tenant.class.clone()),
        share: or_dash(cells.iter().find_map(|(_, tenant)| tenant.promised_share).map(format::share)),
        bound: or_dash(cells.iter().find_map(|(_, tenant)| tenant.latency_bound_ns).map(format::round_time)),
        figures: measures
            .iter()
            .map(|measure| results.iter().map(|result| figure(&cells, result, measure)).collect())
            .collect(),
    };
    let rows: Vec<TableRow> = by_tenant(results, has_any).into_iter().map(row).collect();
    let measures = measures.iter().map(|(name, _)| *name).collect();
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
    /// What a result says of it.
    pub fn of(result: &PolicyResult) -> CpuTime {
        let whole = (u64::from(result.cpus) * result.window_ns).max(1) as f64;
        let used = |background: bool| {
            let of_class = |tenant: &&TenantResult| (tenant.class == "background") == background;
            let cpus = |tenant: &TenantResult| tenant.received_share * f64::from(tenant.vcpus);
            result.tenants.iter().filter(of_class).map(cpus).sum::<f64>() / f64::from(result.cpus.max(1))
        };
        CpuTime {
            promised: used(false),
            harvest: used(true),
            system: result.system_ns as f64 / whole,
            idle: (1.0 - result.busy_ns as f64 / whole).max(0.0),
        }
    }
}
