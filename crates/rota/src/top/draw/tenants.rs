//! The page of all tenants, with the CPUs below.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table, TableState};
use rota_rules::status::TenantStatus;

use super::{Look, cpus};
use crate::commands::status::{lag, ns, state};
use crate::top::view::{View, wait_part};

/// With as many columns there is room for the lag of shared tenants.
const WIDE: u16 = 100;

pub fn draw(frame: &mut Frame, area: Rect, view: &mut View, look: &Look) {
    let cpus = view.status.as_ref().map_or(0, |status| status.cpus.len()) as u16;
    // Tenants are what it is about: CPUs have a third at most.
    let lanes = Constraint::Length(cpus.min(area.height / 3));
    let [upper, lower] = Layout::vertical([Constraint::Min(0), lanes]).areas(area);
    let is_wide = area.width >= WIDE;
    let tenants = view.tenants();
    let rows = tenants.iter().map(|tenant| row(tenant, view, look, is_wide));
    let mut columns = vec![
        ("TENANT", Constraint::Fill(1)),
        ("C", Constraint::Length(1)),
        ("STATE", Constraint::Length(7)),
        ("  PROM", Constraint::Length(6)),
        ("  RECV", Constraint::Length(6)),
        (" WANT", Constraint::Length(5)),
        ("    WAIT", Constraint::Length(8)),
        ("   BOUND", Constraint::Length(8)),
        ("  MISS", Constraint::Length(6)),
        ("    LOST", Constraint::Length(8)),
    ];
    if is_wide {
        columns.push(("         LAG", Constraint::Length(12)));
    }
    let heading = Row::new(columns.iter().map(|(name, _)| *name)).style(look.heading());
    let table = Table::new(rows, columns.iter().map(|(_, width)| *width))
        .header(heading)
        .row_highlight_style(look.chosen());
    let chosen = view.chosen.min(tenants.len().saturating_sub(1));
    let mut place = TableState::default().with_selected((!tenants.is_empty()).then_some(chosen));
    frame.render_stateful_widget(table, upper, &mut place);
    view.chosen = chosen;
    cpus::draw(frame, lower, view, look, 0);
}

fn row(tenant: &TenantStatus, view: &View, look: &Look, is_wide: bool) -> Row<'static> {
    let is_here = tenant.id.is_some();
    let dash = || "-".to_owned();
    let here = |value: String| if is_here { value } else { dash() };
    let right = |text: String| Line::from(text).right_aligned();
    let class = tenant.class.chars().next().unwrap_or('?').to_ascii_uppercase();
    let is_missed = view.history.tenant(&tenant.name).any(|sample| sample.missed > 0);
    let missed = tenant
        .bound_ns
        .map_or_else(dash, |_| format!("{}{}", tenant.missed, if is_missed { "!" } else { "" }));
    let wait = match wait_part(tenant) {
        part if part > 1.0 => look.bad(),
        part if part > 0.8 => look.doubtful(),
        _ => ratatui::style::Style::new(),
    };
    let lost = match (is_here, tenant.bound_ns) {
        (true, Some(_)) => ns(tenant.lost_ns.total()),
        _ => dash(),
    };
    let mut cells = vec![
        Cell::from(tenant.name.clone()),
        Cell::from(class.to_string()),
        Cell::from(Span::styled(state(tenant.state), look.state(tenant.state))),
        Cell::from(right(tenant.promised.map_or_else(dash, |share| format!("{share:.3}")))),
        Cell::from(right(here(format!("{:.3}", tenant.received))).style(received(tenant, look))),
        Cell::from(right(here(format!("{:.0} %", 100.0 * tenant.wanted)))),
        Cell::from(right(here(ns(tenant.blackout_max_ns))).style(wait)),
        Cell::from(right(tenant.bound_ns.map_or_else(dash, ns))),
        Cell::from(right(missed).style(if is_missed { look.bad() } else { ratatui::style::Style::new() })),
        Cell::from(right(lost)),
    ];
    if is_wide {
        cells.push(Cell::from(right(tenant.lag_ns.map_or_else(dash, lag))));
    }
    Row::new(cells)
}

/// Of one vCPU it is certain that it lacks what it is promised: it wanted all of it.
fn received(tenant: &TenantStatus, look: &Look) -> ratatui::style::Style {
    let is_short =
        |promised: f64| tenant.vcpus == 1 && tenant.wanted > 0.99 && tenant.received < 0.98 * promised;
    match tenant.promised {
        Some(promised) if is_short(promised) => look.bad(),
        Some(_) => look.good(),
        None => ratatui::style::Style::new(),
    }
}
