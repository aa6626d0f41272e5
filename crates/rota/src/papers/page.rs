//! A figure as one HTML file: what was published and what came out, drawn side by side.

use maud::{Markup, html};

use super::{Figure, Row, Table, Unit};
use crate::report::chart::{self, Mark, Rows, Scale};
use crate::report::{Contestant, document};

const OURS: Contestant = Contestant { label: "ours", look: 0 };
const PUBLISHED: Contestant = Contestant { label: "published", look: 1 };

/// The figure as a page.
pub fn render(figure: &Figure, tables: &[Table]) -> String {
    let body = html! {
        header {
            p.name { "Rota" span { (figure.name) } }
            h1 { (figure.title) "." }
            p.lead { (figure.source) "." }
        }
        @for words in figure.setting { p.words { (words) } }
        @for table in tables { (section(table)) }
        @if !figure.differs.is_empty() {
            section.reading {
                h2 { "Where ours differ, and why" }
                @for words in figure.differs { p { (words) } }
            }
        }
    };
    document(figure.title, &body)
}

fn section(table: &Table) -> Markup {
    let cells = table.cells();
    let (head, rows) = cells.split_first().expect("a table has a head");
    let is_name = |column: usize| column < table.names();
    html! {
        section {
            h2 { (table.caption) }
            @if !table.by_policy { (chart(table)) }
            div.wide { table {
                thead { tr { @for (column, cell) in head.iter().enumerate() {
                    @if is_name(column) { th { (cell) } } @else { th.n { (cell) } }
                } } }
                tbody { @for row in rows { tr { @for (column, cell) in row.iter().enumerate() {
                    @if column == 0 { th { (cell) } }
                    @else if is_name(column) { td { (cell) } }
                    @else { td.n { (cell) } }
                } } } }
            } }
        }
    }
}

/// The values side by side.
fn chart(table: &Table) -> Markup {
    let rows: Vec<chart::Row> = table.rows.iter().map(|row| drawn(table, row)).collect();
    let values = rows.iter().flat_map(|row| row.marks.iter().map(|mark| mark.value));
    let scale = if table.unit == Unit::Time { Scale::log(values) } else { Scale::linear(values) };
    let tick = |value: f64| table.unit.show(value);
    let rows = Rows { scale, rows, tick: &tick, promise: "", beyond_is_bad: false, lanes: true };
    rows.draw()
}

fn drawn(table: &Table, row: &Row) -> chart::Row {
    let mark = |policy: Contestant, value: f64, said: String| Mark {
        policy,
        value,
        stretch: None,
        title: format!("{} {said}", policy.label),
    };
    let published = row.published.value().map(|value| mark(PUBLISHED, value, row.published.show(table.unit)));
    let ours = mark(OURS, row.ours, table.unit.show(row.ours));
    chart::Row {
        label: format!("{}, {}", row.setting, row.policy),
        marks: published.into_iter().chain([ours]).collect(),
        promise: None,
    }
}
