//! The pages: what they have in common, and which one is drawn.

mod cpus;
mod tenant;
mod tenants;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use rota_rules::status::{State, Status};

use super::view::{Page, View};

/// How things look: in colour, or told apart by weight alone.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    has_color: bool,
}

impl Look {
    pub fn new(has_color: bool) -> Look {
        Look { has_color }
    }

    fn colored(&self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }

    fn heading(&self) -> Style {
        self.colored(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// What breaks a promise.
    fn bad(&self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn doubtful(&self) -> Style {
        self.colored(Color::Yellow)
    }

    fn good(&self) -> Style {
        self.colored(Color::Green)
    }

    fn quiet(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn chosen(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn state(&self, state: State) -> Style {
        match state {
            State::Served => self.good(),
            State::Refused => self.bad(),
            State::Waiting => self.doubtful(),
            State::Absent | State::Leaving => self.quiet(),
        }
    }
}

/// Draws the page that is to be seen.
pub fn draw(frame: &mut Frame, view: &mut View, look: &Look) {
    let remarks = remarks(view, look);
    let rows = [
        Constraint::Length(1),
        Constraint::Length(remarks.len() as u16),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, below, page, foot] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(summary(view, look), head);
    frame.render_widget(Paragraph::new(remarks), below);
    match view.page.clone() {
        Page::Tenants => tenants::draw(frame, page, view, look),
        Page::Tenant(name) => tenant::draw(frame, page, view, look, &name),
        Page::Cpus => cpus::draw_all(frame, page, view, look),
        Page::Help => frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }), page),
    }
    frame.render_widget(keys(view, look), foot);
}

const HELP: &str = "
  up, down, j, k   choose a tenant; on its page, go to the next one
  Enter, Esc       the tenant's page, and back
  s, r             sort by the next column, reverse the order
  /                show only tenants with this in their name, class or state
  c                all CPUs
  q                quit

  C      the class: R reserved, S shared, B background
  PROM   the promised share, in CPUs
  RECV   what it received in the last seconds
  WANT   the part of them in which it had something to run
  WAIT   the longest time that one of its threads would have run and none did
  BOUND  the promised bound of it
  MISS   waits beyond the bound; with ! if one was in these minutes
  LOST   time lost in its slots while it wanted them, by all causes

  A CPU's line says how busy it was, the newest to the right.
";

/// One line about the daemon.
fn summary(view: &View, look: &Look) -> Line<'static> {
    let title = Span::styled("Rota: ", look.heading());
    let Some(status) = &view.status else {
        return Line::from(vec![title, Span::raw("no answer of the daemon yet")]);
    };
    let count = |state: State| status.tenants.iter().filter(|tenant| tenant.state == state).count();
    let table = match status.generation {
        0 => "no table yet".to_owned(),
        generation => format!("table {generation}, {:.3} ms", status.table_length_ns as f64 / 1e6),
    };
    let mut text = format!(
        "{table}; up {}; window {:.1} s; {} served",
        time(status.up_s),
        status.window_s,
        count(State::Served)
    );
    for (state, word) in [(State::Waiting, "waiting"), (State::Refused, "refused"), (State::Absent, "absent")]
    {
        if count(state) > 0 {
            text += &format!(", {} {word}", count(state));
        }
    }
    Line::from(vec![title, Span::raw(text)])
}

/// What is wrong with all of it.
fn remarks(view: &View, look: &Look) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut say = |text: String| lines.push(Line::styled(text, look.bad()));
    if let Some(failed) = &view.failed {
        say(failed.clone());
    }
    if let Some(Status { edit_refused, offline, kubernetes, .. }) = &view.status {
        if let Some(reason) = edit_refused {
            say(format!(
                "the edited configuration is not used: {}",
                reason.lines().next().unwrap_or_default()
            ));
        }
        if !offline.is_empty() {
            say(format!("CPUs {offline} are offline"));
        }
        if let Some(lost) = kubernetes.as_ref().and_then(|kubernetes| kubernetes.lost.as_ref()) {
            say(format!("pods are not heard of: {lost}"));
        }
    }
    lines
}

/// The line of keys, or what is typed.
fn keys(view: &View, look: &Look) -> Line<'static> {
    if view.is_typing {
        return Line::raw(format!("/{}_  Enter: keep, Esc: all tenants", view.filter));
    }
    let order = if view.is_reversed { ", reversed" } else { "" };
    let filter = if view.filter.is_empty() { String::new() } else { format!(": {}", view.filter) };
    let text = match view.page {
        Page::Tenants => {
            format!(
                "q quit  ? keys  Enter tenant  c CPUs  s sort: {}{order}  r reverse  / filter{filter}",
                view.order.name()
            )
        }
        Page::Tenant(_) => "q quit  ? keys  Esc back  up/down other tenants".to_owned(),
        Page::Cpus => "q quit  ? keys  Esc back  up/down other CPUs".to_owned(),
        Page::Help => "q quit  Esc back".to_owned(),
    };
    Line::styled(text, look.quiet())
}

/// A time in seconds for people.
fn time(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Heights of an eighth of a line each, for what is between 0 and 1.
const STEPS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Values from the newest on, as a line that ends with the newest. Each is a part of `whole`.
fn sparkline(newest_first: impl Iterator<Item = f64>, whole: f64, width: usize) -> String {
    let step = |value: f64| {
        let part = if whole > 0.0 { (value / whole).clamp(0.0, 1.0) } else { 0.0 };
        // What is there at all is seen.
        STEPS[((part * 8.0).round() as usize).max(usize::from(part > 0.0))]
    };
    let mut line: Vec<char> = newest_first.take(width).map(step).collect();
    line.resize(width, ' ');
    line.iter().rev().collect()
}

/// A bar of `width` for a part of a whole.
fn bar(part: f64, width: usize) -> String {
    let full = (part.clamp(0.0, 1.0) * width as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "·".repeat(width - full))
}

/// An area without its first `rows`.
fn below(area: Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    Rect { y: area.y + rows, height: area.height - rows, ..area }
}
