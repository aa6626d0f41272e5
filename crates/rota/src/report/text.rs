//! The report for a terminal: finding, tables, harvest.

use std::fmt::Write;

use rota_lab::scenario::result::PolicyResult;

use super::finding::{Summary, comparison, headline, label};
use super::format;
use super::measure::{CpuTime, Table, tables};

/// The report of one scenario: its results under each policy, in the order in which they are to be shown.
pub fn text(results: &[PolicyResult]) -> String {
    let mut out = String::new();
    for table in tables(results) {
        out += &format!("{}\n\n{}\n", table.caption, lines(&table, results));
    }
    for result in results {
        let time = CpuTime::of(result);
        let (harvest, idle) = (format::percent(time.harvest), format::percent(time.idle));
        let policy = label(result.policy);
        out += &format!(
            "Under {policy:<10} background tenants harvested {harvest:>6} of all CPU time, {idle:>6} was idle.\n"
        );
    }
    let summaries: Vec<Summary> = results.iter().map(Summary::of).collect();
    let taken: Vec<String> = summaries
        .iter()
        .map(|summary| format!("{} with {}", format::time(summary.control_ns), label(summary.policy)))
        .collect();
    out += &format!("By its controls, the machine itself took up to {} at a time.\n", taken.join(", "));
    out += &format!("\n{}.\n{}\n", headline(&summaries), comparison(&summaries));
    out
}

/// A table, its columns aligned to the right but for the names. An exclamation mark stands at each broken promise.
fn lines(table: &Table, results: &[PolicyResult]) -> String {
    let mut grid = vec![heads(table, results)];
    for row in &table.rows {
        let figures = row.figures.iter().flatten();
        let figures =
            figures.map(|figure| format!("{}{}", figure.text, if figure.is_broken { "!" } else { " " }));
        grid.push([&row.tenant, &row.share, &row.bound].into_iter().cloned().chain(figures).collect());
    }
    let columns = grid[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| grid.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = groups(table, results, &widths);
    for row in grid {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            write!(line, "  {cell:>width$}").expect("a string takes all");
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

fn heads(table: &Table, results: &[PolicyResult]) -> Vec<String> {
    let policies =
        table.measures.iter().flat_map(|_| results.iter().map(|result| format!("{} ", label(result.policy))));
    ["tenant", "share", "bound"].into_iter().map(str::to_owned).chain(policies).collect()
}

/// The line above the heads: what each group of columns shows, from the group's left end.
fn groups(table: &Table, results: &[PolicyResult], widths: &[usize]) -> String {
    let wide = |columns: &[usize]| columns.iter().map(|width| width + 2).sum::<usize>();
    let mut line = format!("{:<width$}", "", width = widths[0] + 2);
    write!(line, "{:<width$}", "promised", width = wide(&widths[1..3])).expect("a string takes all");
    for (name, columns) in table.measures.iter().zip(widths[3..].chunks(results.len())) {
        write!(line, "{:<width$}", name.to_lowercase(), width = wide(columns)).expect("a string takes all");
    }
    format!("{}\n", line.trim_end())
}
