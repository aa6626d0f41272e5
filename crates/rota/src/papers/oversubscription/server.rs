//! A server with more workers than CPUs: figure 12.

use anyhow::Result;
use rota_scenario::Outcome;

use super::super::{Figure, Published, Row, Study, Table, Unit};
use super::{Setting, run, ways};
use Published::{About, Nothing};

/// A request's mean service, and how much of its CPUs the server uses.
const SERVICE_US: u32 = 20;
const LOAD_PERCENT: u32 = 70;

/// So many workers on so many CPUs.
const SETTINGS: [(u32, u32); 4] = [(4, 4), (16, 4), (16, 8), (16, 16)];

fn setting(&(threads, cpus): &(u32, u32)) -> Setting {
    let arrival_ns = SERVICE_US * 1_000 * 100 / (LOAD_PERCENT * cpus);
    let keys = format!(
        "program = \"server\"\nservice = {{ exponential = \"{SERVICE_US}us\" }}\n\
         arrival = {{ exponential = \"{arrival_ns}ns\" }}\nworking_set = {}",
        1024 / threads
    );
    Setting { threads, cpus, keys }
}

fn served(study: &Study) -> Result<Vec<Table>> {
    let outcomes = run(study, &SETTINGS.iter().map(setting).collect::<Vec<_>>())?;
    let latency = |outcome: &Outcome, part| {
        outcome.tenants[0].metrics.latencies.quantile(part).unwrap_or_default() as f64
    };
    let of = |caption: &str, value: &dyn Fn(&Outcome) -> f64, unit| {
        let rows = SETTINGS.iter().zip(&outcomes).flat_map(|((threads, cpus), runs)| {
            ways().into_iter().zip(runs).map(move |(way, outcome)| Row {
                setting: format!("{threads} workers, {cpus} CPUs"),
                policy: way.policy.label,
                published: Nothing,
                ours: value(outcome),
            })
        });
        Table::by_policy(caption, unit, rows.collect())
    };
    let ratio = |setting: &str, policy, published, ours| Row {
        setting: setting.to_owned(),
        policy,
        published: About(published),
        ours,
    };
    let [few, many] = [&outcomes[0], &outcomes[1]];
    let against = vec![
        ratio(
            "16 workers over 4, 95th percentile",
            "CFS",
            8.0,
            latency(&many[0], 0.95) / latency(&few[0], 0.95),
        ),
        ratio(
            "16 workers over 4, 99th percentile",
            "CFS",
            8.0,
            latency(&many[0], 0.99) / latency(&few[0], 0.99),
        ),
        ratio(
            "16 workers, 95th percentile, over CFS'",
            "Rota",
            0.08,
            latency(&many[3], 0.95) / latency(&many[0], 0.95),
        ),
        ratio(
            "16 workers, 99th percentile, over CFS'",
            "Rota",
            0.40,
            latency(&many[3], 0.99) / latency(&many[0], 0.99),
        ),
    ];
    Ok(vec![
        Table::new("Latency on 4 CPUs", Unit::Times, against),
        of("95th percentile", &|outcome| latency(outcome, 0.95), Unit::Time),
        of("99th percentile", &|outcome| latency(outcome, 0.99), Unit::Time),
        of(
            "Answers",
            &|outcome| outcome.tenants[0].metrics.latencies.total() as f64 * 1e9 / outcome.window_ns as f64,
            Unit::Rate,
        ),
    ])
}

pub const SERVED: Figure = Figure {
    name: "002-fig12",
    title: "a server like memcached with more workers than CPUs",
    source: "Huang et al., HPDC 2021, figure 12 and section 4.2; the text gives 8 times the 95th and 99th \
        percentile in Linux with 16 workers on 4 cores, and 92 % and 60 % less with virtual blocking",
    setting: &[
        "There: memcached with 4 or 16 workers on 4, 8 and 16 cores, under mutilate. Here: requests of 20 us on \
         average that come whatever the server does, on connections of any worker, and use 70 % of its CPUs.",
    ],
    differs: &[
        "No scheduler has a longer tail with more workers here, on the contrary: each worker has connections of \
         its own, and with four workers a request waits for its own one while other CPUs idle. What made the \
         tail long there, locks of the kernel at many wake-ups and memcached's own lock, is not modelled. So \
         there is nothing to win back.",
    ],
    study: served,
};
