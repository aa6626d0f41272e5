//! The report for a terminal: finding, tables, harvest.

use std::fmt::Write;

use super::finding::{Summary, comparison, headline};
use super::format;
use super::measure::{CpuTime, Table, TableRow, tables};
use super::run::{Comparison, Report, Run};

/// The report for a terminal.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for table in tables(&report.runs) {
        out += &format!("{}\n\n", table.caption);
        for part in narrow(table, report.runs.len()) {
            out += &format!("{}\n", lines(&part, &report.runs));
        }
    }
    out += &report.comparison.as_ref().map_or_else(String::new, compared);
    for run in &report.runs {
        let time = CpuTime::of(run);
        let (harvest, idle) = (format::percent(time.harvest), format::percent(time.idle));
        let policy = run.policy.label;
        out += &format!(
            "Under {policy:<10} background tenants harvested {harvest:>6} of all CPU time, {idle:>6} was idle.\n"
        );
    }
    let summaries: Vec<Summary> = report.runs.iter().map(Summary::of).collect();
    report.notes.iter().for_each(|note| out += &format!("{note}\n"));
    out += &format!("\n{}.\n{}\n", headline(&summaries), comparison(&summaries));
    out
}

/// How a run of Rota's kept what is promised, in one sentence.
pub fn verdict(run: &Run) -> String {
    headline(&[Summary::of(run)])
}

/// The comparison: names to the left, figures to the right.
pub fn compared(comparison: &Comparison) -> String {
    let heads = comparison.heads.map(str::to_owned);
    let rows: Vec<&[String; 5]> = std::iter::once(&heads).chain(&comparison.rows).collect();
    let widths: Vec<usize> = (0..heads.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = format!("{}\n\n", comparison.title);
    for [tenant, measure, figures @ ..] in rows {
        let mut line = format!("{tenant:<0$}  {measure:<1$}", widths[0], widths[1]);
        for (figure, width) in figures.iter().zip(&widths[2..]) {
            write!(line, "  {figure:>width$}").expect("a string takes all");
        }
        out += &format!("{}\n", line.trim_end());
    }
    out + "\n"
}

/// So many policies are shown side by side for each measure; where there are more, measures stand below each other.
const SIDE_BY_SIDE: usize = 4;
/// And so do measures whose columns would be more than this together.
const COLUMNS: usize = 12;

/// The table, or one for each of its measures.
fn narrow(table: Table, runs: usize) -> Vec<Table> {
    if runs <= SIDE_BY_SIDE && runs * table.measures.len() <= COLUMNS {
        return vec![table];
    }
    let only = |(place, name): (usize, &&'static str)| {
        let row = |row: &TableRow| TableRow { figures: vec![row.figures[place].clone()], ..row.clone() };
        Table { caption: table.caption, measures: vec![*name], rows: table.rows.iter().map(row).collect() }
    };
    table.measures.iter().enumerate().map(only).collect()
}

/// A table, its columns aligned to the right but for the names. An exclamation mark stands at each broken promise.
fn lines(table: &Table, runs: &[Run]) -> String {
    let mut grid = vec![heads(table, runs)];
    for row in &table.rows {
        let figures = row.figures.iter().flatten();
        let figures =
            figures.map(|figure| format!("{}{}", figure.text, if figure.is_broken { "!" } else { " " }));
        grid.push([&row.tenant, &row.share, &row.bound].into_iter().cloned().chain(figures).collect());
    }
    let columns = grid[0].len();
    let mut widths: Vec<usize> = (0..columns)
        .map(|column| grid.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    // Where one column stands alone, its measure's name may be the widest of it.
    for (name, group) in table.measures.iter().zip(widths[3..].chunks_mut(runs.len())) {
        let wide: usize = group.iter().map(|width| width + 2).sum();
        group[0] += (name.chars().count() + 2).saturating_sub(wide);
    }
    let mut out = groups(table, runs, &widths);
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

fn heads(table: &Table, runs: &[Run]) -> Vec<String> {
    let policies =
        table.measures.iter().flat_map(|_| runs.iter().map(|run| format!("{} ", run.policy.label)));
    ["tenant", "share", "bound"].into_iter().map(str::to_owned).chain(policies).collect()
}

/// The line above the heads: what each group of columns shows, from the group's left end.
fn groups(table: &Table, runs: &[Run], widths: &[usize]) -> String {
    let wide = |columns: &[usize]| columns.iter().map(|width| width + 2).sum::<usize>();
    let mut line = format!("{:<width$}", "", width = widths[0] + 2);
    write!(line, "{:<width$}", "promised", width = wide(&widths[1..3])).expect("a string takes all");
    for (name, columns) in table.measures.iter().zip(widths[3..].chunks(runs.len())) {
        write!(line, "{:<width$}", name.to_lowercase(), width = wide(columns)).expect("a string takes all");
    }
    format!("{}\n", line.trim_end())
}
