//! A figure as Markdown: for a terminal, and for a document.

use std::fmt::Write;

use super::{Figure, Table};

/// The figure with its tables.
pub fn text(figure: &Figure, tables: &[Table]) -> String {
    let mut out = format!("## {}: {}\n\n", figure.name, figure.title);
    out += &paragraph(&format!("Source: {}.", figure.source));
    figure.setting.iter().for_each(|words| out += &paragraph(words));
    for table in tables {
        write!(out, "{}:\n\n{}\n", table.caption, lines(table)).expect("a string takes all");
    }
    if !figure.differs.is_empty() {
        out += "Where ours differ, and why:\n\n";
        figure.differs.iter().for_each(|words| out += &wrapped("- ", "  ", words));
        out.push('\n');
    }
    out
}

fn paragraph(words: &str) -> String {
    wrapped("", "", words) + "\n"
}

/// The width of a line of text.
const WIDTH: usize = 118;

fn wrapped(first: &str, others: &str, words: &str) -> String {
    let (mut out, mut line) = (String::new(), first.to_owned());
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out += &format!("{line}\n");
            (line, is_empty) = (others.to_owned(), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    out + &line + "\n"
}

/// A table whose columns are aligned.
fn lines(table: &Table) -> String {
    let (grid, names) = (table.cells(), table.names());
    let width = |column: usize| grid.iter().map(|row| row[column].chars().count()).max().unwrap_or(3).max(3);
    let widths: Vec<usize> = (0..grid[0].len()).map(width).collect();
    let mut out = String::new();
    for (number, row) in grid.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            match column < names {
                true => write!(out, "| {cell:<width$} "),
                false => write!(out, "| {cell:>width$} "),
            }
            .expect("a string takes all");
        }
        out += "|\n";
        if number == 0 {
            let dashes = |(column, width): (usize, &usize)| match column < names {
                true => format!("| {} ", "-".repeat(*width)),
                false => format!("| {}: ", "-".repeat(*width - 1)),
            };
            out += &(widths.iter().enumerate().map(dashes).collect::<String>() + "|\n");
        }
    }
    out
}
