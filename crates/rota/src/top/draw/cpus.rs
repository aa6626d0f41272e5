//! CPUs, one line each: how busy they were over the last minutes, and what they do now.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use rota_rules::status::{ByCause, CpuStatus};

use super::{Look, below, sparkline};
use crate::commands::status::ns;
use crate::top::history::CpuSample;
use crate::top::view::View;

/// What stands beside the timeline, on both sides.
const BESIDE: usize = 51;

/// As many CPUs as there are lines, from the `first` on.
pub fn draw(frame: &mut Frame, area: Rect, view: &View, look: &Look, first: usize) {
    let Some(status) = &view.status else { return };
    let width = usize::from(area.width).saturating_sub(BESIDE);
    let shown = status.cpus.iter().skip(first).take(area.height.into());
    let lines: Vec<Line> = shown.map(|cpu| line(cpu, view, look, width)).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn line(cpu: &CpuStatus, view: &View, look: &Look, width: usize) -> Line<'static> {
    let busy = sparkline(view.history.cpu(cpu.cpu).map(CpuSample::busy), 1.0, width);
    let now = format!(
        " idle {:3.0} %  backgr. {:3.0} %  2nd level {:3.0} %",
        100.0 * cpu.idle,
        100.0 * cpu.background,
        100.0 * cpu.second_level
    );
    Line::from(vec![
        Span::styled(format!("CPU{:>4} ", cpu.cpu), look.heading()),
        Span::styled(busy, look.good()),
        Span::raw(now),
    ])
}

/// The page of all CPUs, with what was taken from tenants on the first one that is shown.
pub fn draw_all(frame: &mut Frame, area: Rect, view: &View, look: &Look) {
    let Some(status) = &view.status else { return };
    let mut lines = vec![Line::styled("Busy, the newest to the right", look.heading())];
    if let Some(cpu) = status.cpus.get(view.first_cpu) {
        let taken = ByCause::NAMES.iter().zip(cpu.lost_ns.values()).filter(|(_, lost_ns)| *lost_ns > 0);
        let taken: Vec<String> = taken.map(|(cause, lost_ns)| format!("{cause} {}", ns(lost_ns))).collect();
        let taken = if taken.is_empty() { "nothing".to_owned() } else { taken.join(", ") };
        lines.push(Line::raw(format!(
            "CPU {}: table {}, taken from tenants so far: {taken}",
            cpu.cpu, cpu.generation
        )));
    }
    let rows = lines.len() as u16;
    frame.render_widget(Paragraph::new(lines), area);
    draw(frame, below(area, rows), view, look, view.first_cpu);
}
