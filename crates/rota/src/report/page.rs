//! The page: headline, conditions, charts, table.

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use rota_lab::scenario::Policy;
use rota_lab::scenario::result::{Clock, Control, PolicyResult, TenantResult};

use super::chart::{self, Mark, Part, Row, Rows, Scale};
use super::curve::{self, Curve};
use super::finding::{self, Summary, Verdict, label};
use super::format;
use super::measure::{CpuTime, Table, by_tenant, is_reserved, tables};

/// The report of one scenario: its results under each policy that it was run with, in the order in which they are to
/// be shown. `timetable` is the timetable's picture, an SVG document.
pub fn render(results: &[PolicyResult], timetable: Option<&str>) -> String {
    let summaries: Vec<Summary> = results.iter().map(Summary::of).collect();
    let headline = finding::headline(&summaries);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Rota: " (headline) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                main {
                    header {
                        p.name { "Rota" @if let Some(first) = results.first() { span { (first.scenario) } } }
                        h1 { (headline) "." }
                        p.lead { (finding::comparison(&summaries)) }
                    }
                    (verdicts(&summaries))
                    (conditions(results))
                    (blackouts(results))
                    (distribution(results))
                    (shares(results))
                    (requests(results))
                    (cpu_time(results))
                    @if let Some(svg) = timetable { (timetable_section(svg)) }
                    (tables_section(results))
                    (reading())
                }
            }
        }
    };
    page.into_string()
}

fn verdicts(summaries: &[Summary]) -> Markup {
    let words = |verdict: Verdict| match verdict {
        Verdict::Kept => "all promises kept",
        Verdict::KeptButForTheMachine => "kept, but for what the machine took",
        Verdict::Broken => "promises broken",
        Verdict::NothingPromised => "nothing promised",
    };
    html! {
        section.tiles aria-label="Longest blackout under each policy" {
            @for summary in summaries {
                div class=(format!("tile {}", chart::class(summary.policy))) {
                    h2 { (label(summary.policy)) }
                    @if let Some((tenant, longest_ns, bound_ns)) = summary.worst {
                        p.figure { (format::time(longest_ns)) }
                        p { "longest blackout, " (tenant) }
                        p { @if let Some(times) = summary.times_bound() {
                            (format::ratio(times)) " \u{d7} the bound of " (format::round_time(bound_ns)) } }
                        p { (summary.reserved - summary.late.len()) " of " (summary.reserved) " tenants within theirs" }
                    }
                    p.verdict { (words(summary.verdict())) }
                }
            }
        }
    }
}

fn conditions(results: &[PolicyResult]) -> Markup {
    let Some(first) = results.first() else {
        return html! { p { "There are no results." } };
    };
    let control = results.iter().flat_map(|result| &result.control).map(Control::longest_ns).max();
    html! {
        dl.conditions {
            div { dt { "Kernel" } dd { (first.kernel) } }
            div { dt { "CPUs" } dd { (first.cpus) } }
            div { dt { "Clock" } dd { @match first.clock {
                Clock::Real => "real time",
                Clock::Instructions => "instructions counted",
            } } }
            div { dt { "Measured" } dd { (format::round_time(first.window_ns)) " each" } }
            div { dt { "After" } dd { (format::round_time(first.warm_up_ns)) " of warm-up" } }
            div { dt { "Control" } dd { @match control {
                Some(longest_ns) => { (format::time(longest_ns)) " taken by the machine" },
                None => "not measured",
            } } }
        }
    }
}

/// Rows with one mark a policy and the tenant's promise.
fn tenant_rows(
    results: &[PolicyResult],
    value: impl Fn(&TenantResult) -> f64,
    promise: impl Fn(&TenantResult) -> Option<f64>,
    text: impl Fn(f64) -> String,
) -> Vec<Row> {
    let mark = |(policy, tenant): &(Policy, &TenantResult)| {
        let value = value(tenant);
        Mark { policy: *policy, value, stretch: None, title: format!("{} {}", label(*policy), text(value)) }
    };
    by_tenant(results, is_reserved)
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

fn blackouts(results: &[PolicyResult]) -> Markup {
    let rows = tenant_rows(
        results,
        |tenant| tenant.blackouts.longest_ns as f64,
        |tenant| tenant.latency_bound_ns.map(|ns| ns as f64),
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
fn distribution(results: &[PolicyResult]) -> Markup {
    let curves = results.iter().map(|result| {
        let reserved = result.tenants.iter().filter(|tenant| is_reserved(tenant));
        Curve::of(result.policy, reserved.map(|tenant| &tenant.blackouts.histogram))
    });
    let bounds: BTreeSet<u64> = results
        .iter()
        .flat_map(|result| &result.tenants)
        .filter_map(|tenant| tenant.latency_bound_ns)
        .collect();
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

fn shares(results: &[PolicyResult]) -> Markup {
    let rows = tenant_rows(results, |t| t.received_share, |t| t.promised_share, format::share);
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

fn requests(results: &[PolicyResult]) -> Markup {
    let mark = |(policy, tenant): &(Policy, &TenantResult)| {
        let requests = tenant.requests.as_ref().filter(|requests| requests.answered > 0)?;
        Some(Mark {
            policy: *policy,
            value: requests.p50_ns as f64,
            stretch: Some(requests.p99_ns as f64),
            title: format!(
                "{} p50 {}, p99 {}",
                label(*policy),
                format::time(requests.p50_ns),
                format::time(requests.p99_ns)
            ),
        })
    };
    let rows: Vec<Row> = by_tenant(results, |tenant| tenant.requests.is_some())
        .into_iter()
        .map(|(name, cells)| Row {
            label: name.to_owned(),
            marks: cells.iter().filter_map(mark).collect(),
            promise: None,
        })
        .collect();
    let scale = Scale::log(values(&rows));
    let rows = Rows { scale, rows, tick: &time_tick, promise: "", beyond_is_bad: false, lanes: true };
    section(
        "Answers",
        "From the moment at which a request was due to its answer: the mark is the median, the line ends at the 99th \
         percentile.",
        &rows,
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

fn cpu_time(results: &[PolicyResult]) -> Markup {
    let Some(first) = results.first() else {
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
            div.chart { @for result in results {
                @let time = CpuTime::of(result);
                @let note = format!("{} harvested", format::percent(time.harvest));
                (chart::bar(label(result.policy), &note, &parts(&time)))
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

fn tables_section(results: &[PolicyResult]) -> Markup {
    html! {
        section {
            h2 { "Every figure" }
            p.words { "An exclamation mark stands where a promise was broken." }
            @for table in tables(results) { (table_of(&table, results)) }
        }
    }
}

fn table_of(table: &Table, results: &[PolicyResult]) -> Markup {
    html! {
        div.wide { table {
            caption { (table.caption) }
            thead {
                tr {
                    th rowspan="2" { "Tenant" }
                    th.n colspan="2" { "Promised" }
                    @for name in &table.measures { th.n colspan=(results.len()) { (name) } }
                }
                tr {
                    th.n.first { "share" } th.n { "bound" }
                    @for _ in &table.measures { @for (index, result) in results.iter().enumerate() {
                        th class=(class_of(result, index)) { (label(result.policy)) }
                    } }
                }
            }
            tbody { @for row in &table.rows {
                tr {
                    th { (row.tenant) span.class { (row.class) } }
                    td.n.first { (row.share) }
                    td.n { (row.bound) }
                    @for figures in &row.figures { @for (index, figure) in figures.iter().enumerate() {
                        td class=(class_of(&results[index], index)) {
                            (figure.text) @if figure.is_broken { span.broken { "!" } }
                        }
                    } }
                }
            } }
        } }
    }
}

/// Rota's columns stand out, and each group of columns begins with a rule.
fn class_of(result: &PolicyResult, index: usize) -> String {
    let first = if index == 0 { " first" } else { "" };
    format!("n {}{first}", chart::class(result.policy))
}

fn reading() -> Markup {
    html! {
        section.reading {
            h2 { "How it was measured" }
            p { "The same programs ran in the same tenants on one kernel, once under each policy: the kernel's own \
                scheduler with equal cpu.weight, the same with each tenant's share as its cpu.max, and Rota." }
            p { "A blackout is an interval in which at least one thread of a tenant was runnable and none ran, seen \
                from outside by a program at the kernel's scheduling events, which is the same under every policy." }
            p { "The control is the longest time that the machine below the kernel took by itself, which no scheduler \
                can give back: from a real-time probe alone on each CPU before the run, kept from reading the clock, \
                and from alarms for a real-time task on each CPU during it, rung late." }
        }
    }
}
