//! The results of one scenario under several policies, side by side, as text.

use std::fmt::Write;

use super::result::{PolicyResult, TenantResult};

/// Behind what breaks a promise.
const BROKEN: char = '!';
/// Where there is nothing to say.
const NOTHING: &str = "-";

/// A line for each tenant and, in each group of columns, a column for each result. Results are of one scenario, so they
/// have the same tenants; a tenant that a result lacks is left empty there.
pub fn render(results: &[PolicyResult]) -> String {
    let Some(first) = results.first() else {
        return "no results\n".to_owned();
    };
    let mut rows = vec![header(results)];
    rows.extend((0..first.tenants.len()).map(|index| row(results, index)));
    let mut text = String::new();
    let window_s = first.window_ns as f64 / 1e9;
    // Writing into a String cannot fail.
    let plural = if first.cpus == 1 { "" } else { "s" };
    let _ =
        writeln!(text, "{}: {} CPU{plural}, {window_s} s, {}\n", first.scenario, first.cpus, first.kernel);
    let _ = writeln!(text, "{}", groups(&rows, results.len()));
    for row in &rows {
        let _ = writeln!(text, "{}", line(row, &widths(&rows)));
    }
    text.push('\n');
    for result in results {
        let _ = writeln!(text, "{}", summary(result));
    }
    let _ = writeln!(
        text,
        "{BROKEN} breaks the promise: less than the share, though wanted, or a wait longer than the bound"
    );
    text
}

fn header(results: &[PolicyResult]) -> Vec<String> {
    let policies = || results.iter().map(|result| result.policy.to_string());
    let mut cells = vec!["tenant".to_owned(), "promised".to_owned()];
    cells.extend(policies());
    cells.push("bound".to_owned());
    cells.extend(policies().chain(policies()));
    cells
}

fn row(results: &[PolicyResult], index: usize) -> Vec<String> {
    let tenant = &results[0].tenants[index];
    let column = |cell: fn(&TenantResult, u64) -> String| {
        let nothing = || NOTHING.to_owned();
        results.iter().map(move |result| {
            let same = result.tenants.iter().find(|other| other.name == tenant.name);
            same.map_or_else(nothing, |tenant| cell(tenant, result.window_ns))
        })
    };
    let mut cells = vec![tenant.name.clone()];
    cells.push(tenant.promised_share.map_or(NOTHING.to_owned(), |share| format!("{share:.3}")));
    cells.extend(column(|tenant, window_ns| {
        mark(format!("{:.3}", tenant.received_share), tenant.is_short(window_ns))
    }));
    cells.push(tenant.latency_bound_ns.map_or(NOTHING.to_owned(), milliseconds));
    cells.extend(column(|tenant, _| mark(milliseconds(tenant.blackouts.longest_ns), tenant.is_late())));
    cells.extend(column(|tenant, _| match &tenant.requests {
        Some(requests) => format!("{}/{}", milliseconds(requests.p50_ns), milliseconds(requests.p99_ns)),
        None => NOTHING.to_owned(),
    }));
    cells
}

/// Good and bad cells have the same width, so that columns of digits stay straight.
fn mark(cell: String, broken: bool) -> String {
    format!("{cell}{}", if broken { BROKEN } else { ' ' })
}

fn milliseconds(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e6)
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    (0..columns).map(|column| width(column).unwrap_or(0)).collect()
}

fn line(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).enumerate();
    let aligned = cells.map(|(column, (cell, width))| match column {
        0 => format!("{cell:<width$}"),
        _ => format!("{cell:>width$}"),
    });
    aligned.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// The line above the header: what each group of columns shows.
fn groups(rows: &[Vec<String>], policies: usize) -> String {
    let widths = widths(rows);
    let until = |column: usize| widths[..column].iter().map(|width| width + 2).sum::<usize>();
    let mut text = String::new();
    for (column, title) in [
        (1, "share of a CPU"),
        (2 + policies, "longest blackout, ms"),
        (3 + 2 * policies, "request p50/p99, ms"),
    ] {
        let start = until(column);
        let room = start.saturating_sub(text.chars().count());
        let _ = write!(text, "{:room$}{title}", "");
    }
    text
}

/// What became of the CPUs' time, and what the control saw.
fn summary(result: &PolicyResult) -> String {
    let whole_ns = result.window_ns as f64 * f64::from(result.cpus);
    let background = result.tenants.iter().filter(|tenant| tenant.class == "background");
    let harvest_ns: u64 = background.map(|tenant| tenant.cpu_ns).sum();
    let percent = |ns: u64| ns as f64 / whole_ns * 100.0;
    let control_ns = result.control.iter().map(|control| control.gaps.longest_ns).max().unwrap_or(0);
    format!(
        "{:<6}  CPU time: background {:.1} %, system {:.1} %, idle {:.1} %; longest gap of the machine's own: {} ms",
        result.policy,
        percent(harvest_ns),
        percent(result.system_ns),
        100.0 - percent(result.busy_ns),
        milliseconds(control_ns),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Policy;
    use crate::scenario::result::{Blackouts, Clock, Control, Gaps, Requests};

    fn tenant(name: &str, share: f64, longest_ms: u64) -> TenantResult {
        let longest_ns = longest_ms * 1_000_000;
        TenantResult {
            name: name.to_owned(),
            class: "reserved".to_owned(),
            vcpus: 1,
            promised_share: Some(0.2),
            latency_bound_ns: Some(20_000_000),
            capped: false,
            cpu_ns: (share * 10e9) as u64,
            received_share: share,
            blackouts: Blackouts { longest_ns, wanted_ns: 10_000_000_000, ..Blackouts::default() },
            throttled: None,
            probe: None,
            requests: None,
        }
    }

    fn result(policy: Policy, tenants: Vec<TenantResult>) -> PolicyResult {
        PolicyResult {
            scenario: "demo".to_owned(),
            policy,
            kernel: "7.3.4".to_owned(),
            cpus: 2,
            clock: Clock::Real,
            warm_up_ns: 0,
            window_ns: 10_000_000_000,
            control: vec![Control { cpu: 0, gaps: Gaps { longest_ns: 1_250_000, ..Gaps::default() } }],
            busy_ns: 18_000_000_000,
            system_ns: 1_000_000_000,
            tenants,
            status: None,
        }
    }

    #[test]
    fn policies_stand_side_by_side_and_broken_promises_are_marked() {
        let mut redis = tenant("redis", 0.21, 12);
        redis.requests = Some(Requests { p50_ns: 1_000_000, p99_ns: 9_500_000, ..Requests::default() });
        let mut batch = tenant("batch", 0.1, 3000);
        (batch.class, batch.promised_share, batch.latency_bound_ns) = ("background".to_owned(), None, None);
        let max = result(Policy::Max, vec![tenant("redis", 0.15, 80), batch.clone()]);
        let rota = result(Policy::Rota, vec![redis, batch]);
        let expected = "\
demo: 2 CPUs, 10 s, 7.3.4

        share of a CPU            longest blackout, ms     request p50/p99, ms
tenant  promised     max    rota  bound      max     rota  max     rota
redis      0.200  0.150!  0.210    20.0    80.0!    12.0     -  1.0/9.5
batch          -  0.100   0.100       -  3000.0   3000.0     -        -

max     CPU time: background 5.0 %, system 5.0 %, idle 10.0 %; longest gap of the machine's own: 1.2 ms
rota    CPU time: background 5.0 %, system 5.0 %, idle 10.0 %; longest gap of the machine's own: 1.2 ms
! breaks the promise: less than the share, though wanted, or a wait longer than the bound
";
        assert_eq!(render(&[max, rota]), expected);
    }

    #[test]
    fn a_tenant_that_did_not_want_its_share_did_not_miss_it() {
        let mut idle = tenant("idle", 0.01, 5);
        assert!(idle.is_short(10_000_000_000));
        idle.blackouts.wanted_ns /= 2;
        assert!(!idle.is_short(10_000_000_000));
    }

    #[test]
    fn without_results_it_says_so() {
        assert_eq!(render(&[]), "no results\n");
    }
}
