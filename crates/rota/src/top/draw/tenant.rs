//! The page of one tenant: its promise against what it received, its waits, what it lost to whom, and the last minutes.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use rota_rules::status::{ByCause, TenantStatus};

use super::{Look, bar, sparkline, time};
use crate::commands::status::{lag, ns, state};
use crate::top::view::{View, wait_part};

/// The width of a bar.
const BAR: usize = 30;
/// What stands before each line's figures.
const LABEL: usize = 11;

pub fn draw(frame: &mut Frame, area: Rect, view: &View, look: &Look, name: &str) {
    let tenant = view.status.iter().flat_map(|status| &status.tenants).find(|tenant| tenant.name == name);
    let lines = match tenant {
        Some(tenant) => lines(tenant, view, look, usize::from(area.width)),
        None => vec![Line::raw(format!("{name} is not configured any more"))],
    };
    frame.render_widget(Paragraph::new(lines), area);
}

fn lines(tenant: &TenantStatus, view: &View, look: &Look, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::from(vec![
            Span::styled(tenant.name.clone(), look.heading()),
            Span::raw(format!(": {} {}, {} vCPUs, ", tenant.class, tenant.kind, tenant.vcpus)),
            Span::styled(state(tenant.state), look.state(tenant.state)),
        ]),
        labelled("cgroup", tenant.cgroup.clone().unwrap_or_else(|| "none".to_owned())),
    ];
    lines
        .extend(tenant.refused.as_ref().map(|reason| Line::styled(format!("no room: {reason}"), look.bad())));
    lines.push(Line::default());
    lines.extend(now(tenant, look));
    lines.extend(causes("missed by", &tenant.missed_by_cause, |count| count.to_string(), look));
    lines.extend(causes("lost to", &tenant.lost_ns, ns, look));
    lines.push(Line::default());
    lines.extend(minutes(tenant, view, look, width));
    lines
}

fn labelled(label: &str, text: impl Into<String>) -> Line<'static> {
    Line::raw(format!("{label:<LABEL$}{}", text.into()))
}

/// What it has now.
fn now(tenant: &TenantStatus, look: &Look) -> Vec<Line<'static>> {
    let figure = |label: &str, part: f64, style: Style, text: String| {
        Line::from(vec![
            Span::raw(format!("{label:<LABEL$}")),
            Span::styled(bar(part, BAR), style),
            Span::raw(format!("  {text}")),
        ])
    };
    let mut lines = Vec::new();
    let received = tenant.received;
    lines.push(match tenant.promised {
        Some(promised) => {
            let text = format!("{received:.3} of {promised:.3} CPUs promised");
            figure("received", received / promised, look.good(), text)
        }
        None => {
            figure("received", received / f64::from(tenant.vcpus), look.good(), format!("{received:.3} CPUs"))
        }
    });
    lines.push(figure(
        "wanted",
        tenant.wanted,
        Style::new(),
        format!("{:.0} % of the time", 100.0 * tenant.wanted),
    ));
    let wait = ns(tenant.blackout_max_ns);
    lines.push(match tenant.bound_ns {
        Some(bound_ns) => {
            let style = if wait_part(tenant) > 1.0 { look.bad() } else { look.good() };
            figure(
                "wait",
                wait_part(tenant),
                style,
                format!("{wait} of {} at most, {} missed", ns(bound_ns), tenant.missed),
            )
        }
        None => labelled("wait", format!("{wait} at most so far; no bound is promised")),
    });
    lines.extend(tenant.lag_ns.map(|lag_ns| labelled("lag", lag(lag_ns))));
    lines.push(labelled(
        "so far",
        format!(
            "{} of CPU time, {} dispatches, {} migrations; {} threads runnable",
            ns(tenant.used_ns),
            tenant.dispatches,
            tenant.migrations,
            tenant.runnable
        ),
    ));
    if tenant.spins > 0 {
        let (spins, time) = (tenant.spins, ns(tenant.spins_ns));
        lines.push(labelled("spinning", format!("{time}, cut short {spins} times")));
    }
    lines
}

/// A line for each cause that is not zero, the largest first.
fn causes(
    label: &'static str,
    by_cause: &ByCause,
    show: fn(u64) -> String,
    look: &Look,
) -> Vec<Line<'static>> {
    let mut named: Vec<(&str, u64)> =
        ByCause::NAMES.into_iter().zip(by_cause.values()).filter(|(_, value)| *value > 0).collect();
    named.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
    let total = by_cause.total().max(1) as f64;
    let line = |(place, (cause, value)): (usize, (&str, u64))| {
        let label = if place == 0 { label } else { "" };
        Line::from(vec![
            Span::raw(format!("{label:<LABEL$}")),
            Span::styled(bar(value as f64 / total, BAR), look.doubtful()),
            Span::raw(format!("  {} {cause}", show(value))),
        ])
    };
    named.into_iter().enumerate().map(line).collect()
}

/// The last minutes, each line as high as the most that was in them.
fn minutes(tenant: &TenantStatus, view: &View, look: &Look, width: usize) -> Vec<Line<'static>> {
    let samples = || view.history.tenant(&tenant.name);
    let width = width.saturating_sub(LABEL);
    let most = |values: &mut dyn Iterator<Item = f64>| values.take(width).fold(0.0, f64::max);
    let received = most(&mut samples().map(|sample| sample.received)).max(tenant.promised.unwrap_or(0.0));
    let lost = most(&mut samples().map(|sample| sample.lost_ns as f64));
    let missed = most(&mut samples().map(|sample| sample.missed as f64));
    let spark = |label: &str, style: Style, text: String| {
        Line::from(vec![Span::raw(format!("{label:<LABEL$}")), Span::styled(text, style)])
    };
    let seconds = samples().take(width).count();
    vec![
        Line::styled(
            format!(
                "the last {}, newest right; highest: {received:.3} CPUs, {} lost, {missed:.0} missed",
                time(seconds as f64),
                ns(lost as u64)
            ),
            look.heading(),
        ),
        spark("received", look.good(), sparkline(samples().map(|sample| sample.received), received, width)),
        spark("lost", look.doubtful(), sparkline(samples().map(|sample| sample.lost_ns as f64), lost, width)),
        spark("missed", look.bad(), sparkline(samples().map(|sample| sample.missed as f64), missed, width)),
    ]
}
