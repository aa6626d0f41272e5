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
    let rows: Vec<chart::Row> = table.rows.iter().map(|row| drawn(table, row)).collect();
    let values = rows.iter().flat_map(|row| row.marks.iter().map(|mark| mark.value));
    let scale = if table.unit == Unit::Time { Scale::log(values) } else { Scale::linear(values) };
    let tick = |value: f64| table.unit.show(value);
    let rows = Rows { scale, rows, tick: &tick, promise: "", beyond_is_bad: false, lanes: true };
    html! {
        section {
            h2 { (table.caption) }
            (rows.draw())
            div.wide { table {
                thead { tr {
                    th { "setting" } th { "scheduler" }
                    th.n { (table.published_head) } th.n { "ours" } th.n { (table.third_head()) }
                } }
                tbody { @for row in &table.rows { tr {
                    th { (row.setting) } td { (row.policy) }
                    td.n { (row.published.show(table.unit)) } td.n { (table.unit.show(row.ours)) }
                    td.n { (table.third(row)) }
                } } }
            } }
        }
    }
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
