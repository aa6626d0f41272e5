//! The page: headline, conditions, charts, table.

use std::collections::BTreeSet;

use super::chart::{self, Mark, Part, Row, Rows, Scale};
use super::curve::{self, Curve};
use super::finding::{self, Summary, Verdict};
use super::format;
use super::measure::{CpuTime, Table, by_tenant, fairness, is_reserved, tables};
use super::run::{Comparison, Contestant, Report, Run, Tenant};
use super::series::{self, Line, Picture, Range};
use super::spending;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The report as a page.
pub fn render(report: &Report) -> String {
    let runs = &report.runs[..];
    let summaries: Vec<Summary> = runs.iter().map(Summary::of).collect();
    let headline = finding::headline(&summaries);
    let body = html! {
        header {
            p.name { "Rota" span { (report.scenario) } }
            h1 { (headline) "." }
            p.lead { (finding::comparison(&summaries)) }
        }
        (verdicts(&summaries))
        (conditions(report))
        (blackouts(runs))
        (distribution(runs))
        (shares(runs))
        (fair(runs))
        (lags(runs))
        (requests(runs))
        (wakeups(runs))
        (own_latencies(runs))
        (cpu_time(runs))
        (spending::section(runs))
        @if let Some(svg) = &report.timetable { (timetable_section(svg)) }
        (tables_section(runs))
        @if let Some(comparison) = &report.comparison { (comparison_section(comparison)) }
        (reading(report))
    };
    document(&headline, &body)
}

/// A page of its own: what it is about, and what is on it.
pub fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Rota: " (title) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

fn verdicts(summaries: &[Summary]) -> Markup {
    let words = |verdict: Verdict| match verdict {
        Verdict::Kept => "all promises kept",
        Verdict::KeptButForTheMachine => "kept, but for what the machine took",
        Verdict::Broken => "promises broken",
        Verdict::Void => "did what no scheduler may",
        Verdict::Untested => "no promise tested",
        Verdict::NothingPromised => "nothing promised",
    };
    html! {
        section.tiles aria-label="Longest blackout under each policy" {
            @for summary in summaries {
                div class=(format!("tile {}", chart::class(summary.policy))) {
                    h2 { (summary.policy.label) }
                    @if let Some((tenant, longest_ns, bound_ns)) = summary.worst {
                        p.figure { (format::time(longest_ns)) }
                        p { "longest blackout, " (tenant) }
                        p { @if let Some(times) = summary.times_bound() {
                            (format::ratio(times)) " \u{d7} the bound of " (format::round_time(bound_ns)) } }
                        @let tested = summary.reserved - summary.idle;
                        p { (tested - summary.late.len()) " of " (tested) " tenants within theirs" }
                    }
                    p.verdict { (words(summary.verdict())) }
                }
            }
        }
    }
}

fn conditions(report: &Report) -> Markup {
    if report.runs.is_empty() {
        return html! { p { "There are no results." } };
    }
    html! {
        dl.conditions {
            @for (name, value) in &report.conditions { div { dt { (name) } dd { (value) } } }
        }
    }
}

/// Rows with one mark a policy and the tenant's promise.
fn tenant_rows(
    runs: &[Run],
    value: impl Fn(&Tenant) -> f64,
    promise: impl Fn(&Tenant) -> Option<f64>,
    text: impl Fn(f64) -> String,
) -> Vec<Row> {
    let mark = |(policy, tenant): &(Contestant, &Tenant)| {
        let value = value(tenant);
        Mark { policy: *policy, value, stretch: None, title: format!("{} {}", policy.label, text(value)) }
    };
    by_tenant(runs, is_reserved)
        .into_iter()
        .map(|(name, cells)| Row {
            label: name.to_owned(),
            marks: cells.iter().map(mark).collect(),
            promise: cells.iter().find_map(|(_, tenant)| promise(tenant)),
        })
        .collect()
}

/// Every value that a chart has to show.
fn values(rows: &[Row]) -> impl Iterator<Item = f64> {
    rows.iter().flat_map(|row| {
        row.marks.iter().flat_map(|mark| [Some(mark.value), mark.stretch]).flatten().chain(row.promise)
    })
}

fn time_tick(ns: f64) -> String {
    format::round_time(ns.round() as u64)
}

fn blackouts(runs: &[Run]) -> Markup {
    let rows = tenant_rows(
        runs,
        |tenant| tenant.seen.blackouts.longest_ns as f64,
        |tenant| tenant.seen.latency_bound_ns.map(|ns| ns as f64),
        |ns| format::time(ns as u64),
    );
    let scale = Scale::log(values(&rows));
    let rows =
        Rows { scale, rows, tick: &time_tick, promise: "promised bound", beyond_is_bad: true, lanes: false };
    section(
        "Longest blackout",
        "The longest time for which a tenant had something to run and was given no CPU. \
         Equal distances are equal factors; the tinted side lies beyond the promise.",
        &rows,
    )
}

/// How often whoever has a promise waited how long.
fn distribution(runs: &[Run]) -> Markup {
    let curves = runs.iter().map(|run| {
        let reserved = run.tenants.iter().filter(|tenant| is_reserved(tenant));
        Curve::of(run.policy, reserved.map(|tenant| &tenant.seen.blackouts.histogram))
    });
    let bounds: BTreeSet<u64> =
        runs.iter().flat_map(|run| &run.tenants).filter_map(|tenant| tenant.seen.latency_bound_ns).collect();
    let Some(picture) = curve::draw(&curves.collect::<Vec<_>>(), &bounds) else {
        return html! {};
    };
    html! {
        section {
            h2 { "How often, how long" }
            p.words { "How many blackouts of at least a length all reserved tenants together had. Both scales are \
                logarithmic: equal distances are equal factors." }
            (picture)
        }
    }
}

fn shares(runs: &[Run]) -> Markup {
    let rows = tenant_rows(runs, |t| t.seen.received_share, |t| t.seen.promised_share, format::share);
    let scale = Scale::linear(values(&rows));
    let tick = |share: f64| format!("{:.3}", share).trim_end_matches('0').trim_end_matches('.').to_owned();
    let rows =
        Rows { scale, rows, tick: &tick, promise: "promised share", beyond_is_bad: false, lanes: false };
    section(
        "Share received",
        "CPU time received, as a fraction of one CPU for each vCPU. A tenant that does not always want to run may well \
         take less than it was promised.",
        &rows,
    )
}

/// How fair it was over time, where a simulation has seen that.
fn fair(runs: &[Run]) -> Markup {
    let lines: Vec<Line> = runs.iter().map(|run| (run.policy, fairness(run))).collect();
    let Some(legend) = series::legend(&lines) else {
        return html! {};
    };
    let picture = Picture {
        lines: &lines,
        range: &Range::PARTS,
        tick: &|part| part.to_string(),
        length_ns: length_ns(runs),
        about: "How fair it was at each time",
        height: 180,
    };
    html! {
        section {
            h2 { "Fairness over time" }
            p.words { "Jain's index of what the tenants of one class received for what they are entitled to, among \
                those that wanted to run all the time: 1 where all had the same, 1/n where one of n had everything. \
                Of the class with the smallest, in each hundredth of the time." }
            (legend)
            (picture.draw())
        }
    }
}

/// How long one run was measured.
fn length_ns(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.length_ns).max().unwrap_or(0)
}

/// How far each tenant that shares by weight was behind or ahead, where a simulation has seen that.
fn lags(runs: &[Run]) -> Markup {
    let lag = |tenant: &Tenant| tenant.inside.as_ref()?.lag.as_ref().map(|lag| lag.over_time_ns.clone());
    let line = |(policy, tenant): &(Contestant, &Tenant)| {
        (*policy, lag(tenant).into_iter().flatten().map(|ns| Some(ns as f64)).collect())
    };
    let tenants = by_tenant(runs, |tenant| lag(tenant).is_some());
    let tenants: Vec<(&str, Vec<Line>)> =
        tenants.into_iter().map(|(name, cells)| (name, cells.iter().map(line).collect())).collect();
    let Some(legend) = tenants.first().and_then(|(_, lines)| series::legend(lines)) else {
        return html! {};
    };
    let lines = || tenants.iter().flat_map(|(_, lines)| lines);
    let range = Range::around(lines().flat_map(|(_, values)| values).flatten().copied());
    let picture = |(name, lines): &(&str, Vec<Line>)| {
        let about = &format!("How far {name} was behind at each time");
        let (tick, length_ns) = (&format::signed_time, length_ns(runs));
        Picture { lines, range: &range, tick, length_ns, about, height: 150 }.draw()
    };
    html! {
        section {
            h2 { "Behind and ahead of a fair share" }
            p.words { "For each tenant without a reservation, how much more CPU time it would have had if what these \
                tenants had together had been divided by weight at every moment, between those that had threads to \
                use it. Above 0 it is owed that much, below 0 it is ahead. A tenant with nothing to run is owed \
                nothing." }
            (legend)
            div.panels { @for tenant in &tenants { div { h3 { (tenant.0) } (picture(tenant)) } } }
        }
    }
}

/// Rows with the median and the 99th percentile of some times; `of` takes them from a tenant.
fn time_rows(runs: &[Run], of: impl Fn(&Tenant) -> Option<(u64, u64)>) -> Vec<Row> {
    let mark = |(policy, tenant): &(Contestant, &Tenant)| {
        let (p50_ns, p99_ns) = of(tenant)?;
        let (p50, p99) = (format::time(p50_ns), format::time(p99_ns));
        let title = format!("{} p50 {p50}, p99 {p99}", policy.label);
        Some(Mark { policy: *policy, value: p50_ns as f64, stretch: Some(p99_ns as f64), title })
    };
    by_tenant(runs, |tenant| of(tenant).is_some())
        .into_iter()
        .map(|(name, cells)| Row {
            label: name.to_owned(),
            marks: cells.iter().filter_map(mark).collect(),
            promise: None,
        })
        .collect()
}

fn times_section(title: &str, words: &str, rows: Vec<Row>) -> Markup {
    let scale = Scale::log(values(&rows));
    let rows = Rows { scale, rows, tick: &time_tick, promise: "", beyond_is_bad: false, lanes: true };
    section(title, words, &rows)
}

fn requests(runs: &[Run]) -> Markup {
    let answers = |tenant: &Tenant| {
        let requests = tenant.seen.requests.as_ref().filter(|requests| requests.answered > 0)?;
        Some((requests.p50_ns, requests.p99_ns))
    };
    times_section(
        "Answers",
        "From the moment at which a request was due to its answer: the mark is the median, the line ends at the 99th \
         percentile.",
        time_rows(runs, answers),
    )
}

fn wakeups(runs: &[Run]) -> Markup {
    let wakeups = |tenant: &Tenant| {
        let times = tenant.inside.as_ref().map(|inside| &inside.wakeups).filter(|times| !times.is_empty())?;
        Some((times.p50_ns, times.p99_ns))
    };
    times_section(
        "From waking up to running",
        "For each thread that woke up: the mark is the median, the line ends at the 99th percentile.",
        time_rows(runs, wakeups),
    )
}

fn own_latencies(runs: &[Run]) -> Markup {
    let latencies = |tenant: &Tenant| {
        let times =
            tenant.inside.as_ref().map(|inside| &inside.latencies).filter(|times| !times.is_empty())?;
        Some((times.p50_ns, times.p99_ns))
    };
    times_section(
        "What the programs see",
        "A server's answers, from when the request came; the wait for a lock; a time round of a program that forks and \
         joins; a probe's gaps. The mark is the median, the line ends at the 99th percentile.",
        time_rows(runs, latencies),
    )
}

fn section(title: &str, words: &str, rows: &Rows) -> Markup {
    if rows.rows.is_empty() {
        return html! {};
    }
    html! {
        section { h2 { (title) } p.words { (words) } (rows.draw()) }
    }
}

fn parts(time: &CpuTime) -> [Part; 4] {
    [
        Part { class: "promised", label: "reserved and shared tenants", part: time.promised },
        Part { class: "harvest", label: "background harvest", part: time.harvest },
        Part { class: "system", label: "system", part: time.system },
        Part { class: "idle", label: "idle", part: time.idle },
    ]
}

fn cpu_time(runs: &[Run]) -> Markup {
    let Some(first) = runs.first() else {
        return html! {};
    };
    html! {
        section {
            h2 { "Where the CPU time went" }
            p.words { "Of all CPUs together. What the tenants with a promise leave idle is the background tenants' \
                harvest." }
            p.legend { @for part in parts(&CpuTime::of(first)) {
                span.key { svg width="16" height="16" aria-hidden="true" {
                    rect class=(part.class) width="16" height="16" rx="3" {} } (part.label) }
            } }
            div.chart { @for run in runs {
                @let time = CpuTime::of(run);
                @let note = format!("{} harvested", format::percent(time.harvest));
                (chart::bar(run.policy.label, &note, &parts(&time)))
            } }
        }
    }
}

fn timetable_section(svg: &str) -> Markup {
    html! {
        section {
            h2 { "The timetable" }
            p.words { "What Rota ran: each CPU's slots, which repeat for ever. Idle time and every slot that its owner \
                does not use go to the second level and to the background." }
            // Not inline: the picture's style sheet would be the page's too.
            div.timetable { img src=(data_url(svg)) alt="The timetable: one lane a CPU, time from left to right"; }
        }
    }
}

/// An SVG document as an address that holds it.
fn data_url(svg: &str) -> String {
    let mut url = "data:image/svg+xml,".to_owned();
    for byte in svg.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b' ' | b'.' | b',' | b'-' | b'=' | b'/' => {
                url.push(byte.into())
            }
            _ => url += &format!("%{byte:02X}"),
        }
    }
    url
}

fn tables_section(runs: &[Run]) -> Markup {
    html! {
        section {
            h2 { "Every figure" }
            p.words { "An exclamation mark stands where a promise was broken." }
            @for table in tables(runs) { (table_of(&table, runs)) }
        }
    }
}

fn comparison_section(comparison: &Comparison) -> Markup {
    let [tenant, measure, figures @ ..] = &comparison.heads;
    html! {
        section {
            h2 { "Beside the recording" }
            p.words { (comparison.title) "." }
            div.wide { table {
                thead { tr { th { (tenant) } th { (measure) } @for head in figures { th.n { (head) } } } }
                tbody { @for [tenant, measure, figures @ ..] in &comparison.rows {
                    tr { th { (tenant) } td { (measure) } @for figure in figures { td.n { (figure) } } }
                } }
            } }
        }
    }
}

fn table_of(table: &Table, runs: &[Run]) -> Markup {
    html! {
        div.wide { table {
            caption { (table.caption) }
            thead {
                tr {
                    th rowspan="2" { "Tenant" }
                    th.n colspan="2" { "Promised" }
                    @for name in &table.measures { th.n colspan=(runs.len()) { (name) } }
                }
                tr {
                    th.n.first { "share" } th.n { "bound" }
                    @for _ in &table.measures { @for (index, run) in runs.iter().enumerate() {
                        th class=(class_of(run, index)) { (run.policy.label) }
                    } }
                }
            }
            tbody { @for row in &table.rows {
                tr {
                    th { (row.tenant) span.class { (row.class) } }
                    td.n.first { (row.share) }
                    td.n { (row.bound) }
                    @for figures in &row.figures { @for (index, figure) in figures.iter().enumerate() {
                        td class=(class_of(&runs[index], index)) {
                            (figure.text) @if figure.is_broken { span.broken { "!" } }
                        }
                    } }
                }
            } }
        } }
    }
}

/// Rota's columns stand out, and each group of columns begins with a rule.
fn class_of(run: &Run, index: usize) -> String {
    let first = if index == 0 { " first" } else { "" };
    format!("n {}{first}", chart::class(run.policy))
}

fn reading(report: &Report) -> Markup {
    html! {
        section.reading {
            h2 { "How it was measured" }
            @for paragraph in &report.method { p { (paragraph) } }
        }
    }
}
