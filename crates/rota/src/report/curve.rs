//! Distributions as curves: how many values are at least as great as each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use maud::{Markup, html};
use rota_lab::scenario::Histogram;

use super::chart::{Scale, anchor, class, percent};
use super::format;
use super::run::Contestant;

/// What is shorter interests nobody who is promised milliseconds, and would take most of the width.
const SHORTEST_NS: u64 = 100_000;
/// Heights in pixels.
const PLOT: u32 = 220;
const AXIS: u32 = 22;

/// One policy's curve.
pub struct Curve {
    policy: Contestant,
    /// (value in ns, how many values are at least that), ascending by value.
    points: Vec<(u64, u64)>,
}

impl Curve {
    /// All these histograms together.
    pub fn of<'a>(policy: Contestant, histograms: impl Iterator<Item = &'a Histogram>) -> Curve {
        let mut counts = BTreeMap::new();
        for (upper_ns, count) in histograms.flat_map(|histogram| Vec::from(histogram.clone())) {
            *counts.entry(upper_ns).or_insert(0u64) += count;
        }
        let mut points: Vec<(u64, u64)> = counts
            .into_iter()
            .rev()
            .take_while(|(upper_ns, _)| *upper_ns >= SHORTEST_NS)
            .scan(0, |sum, (upper_ns, count)| {
                *sum += count;
                Some((upper_ns, *sum))
            })
            .collect();
        points.reverse();
        Curve { policy, points }
    }

    /// Steps from the left edge to the last value, then down to the bottom. In percent of width and height.
    fn path(&self, across: &Scale, up: &Scale) -> String {
        let mut path = String::new();
        for (index, (ns, count)) in self.points.iter().enumerate() {
            let (x, y) = (across.place(*ns as f64), 100.0 - up.place(*count as f64));
            let start = if index == 0 { format!("M0 {y:.2}") } else { format!("V{y:.2}") };
            write!(path, "{start}H{x:.2}").expect("a string takes all");
        }
        if !path.is_empty() {
            path.push_str("V100");
        }
        path
    }
}

/// The curves with the bounds drawn across, or nothing if no curve has a point.
pub fn draw(curves: &[Curve], bounds: &BTreeSet<u64>) -> Option<Markup> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    points().next()?;
    let across = Scale::log(points().map(|(ns, _)| *ns as f64).chain(bounds.iter().map(|ns| *ns as f64)));
    let up = Scale::log(points().map(|(_, count)| *count as f64).chain([1.0]));
    let drawn = || curves.iter().filter(|curve| !curve.points.is_empty());
    Some(html! {
        (legend(drawn(), !bounds.is_empty()))
        div.curves {
            svg.counts width="100%" height=(PLOT) aria-hidden="true" {
                @for tick in whole_decades(&up) {
                    text x="100%" y=(percent(100.0 - up.place(tick as f64))) dy="4" { (tick) }
                }
            }
            svg.plot width="100%" height=(PLOT) role="img" aria-label="How many blackouts were at least how long" {
                @for tick in across.ticks() {
                    @let x = percent(across.place(tick));
                    line.grid x1=(x) x2=(x) y1="0" y2="100%" {}
                }
                @for tick in whole_decades(&up) {
                    @let y = percent(100.0 - up.place(tick as f64));
                    line.grid x1="0" x2="100%" y1=(y) y2=(y) {}
                }
                @for bound in bounds {
                    @let x = percent(across.place(*bound as f64));
                    line.promise x1=(x) x2=(x) y1="0" y2="100%" {}
                }
                svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="100%" {
                    @for curve in drawn() {
                        path.curve.(class(curve.policy)) d=(curve.path(&across, &up)) {
                            title { (curve.policy.label) }
                        }
                    }
                }
            }
            span {}
            svg.axis width="100%" height=(AXIS) aria-hidden="true" {
                @for tick in across.ticks() {
                    @let x = across.place(tick);
                    text.(anchor(x)) x=(percent(x)) y="14" { (format::round_time(tick.round() as u64)) }
                }
            }
        }
    })
}

/// Which line is what.
fn legend<'a>(drawn: impl Iterator<Item = &'a Curve>, has_bounds: bool) -> Markup {
    html! {
        p.legend {
            @for curve in drawn {
                span.key {
                    svg width="28" height="16" aria-hidden="true" {
                        line.curve.(class(curve.policy)) x1="0" x2="28" y1="8" y2="8" {}
                    }
                    (curve.policy.label)
                }
            }
            @if has_bounds {
                span.key {
                    svg width="16" height="16" aria-hidden="true" { line.promise x1="50%" x2="50%" y1="0" y2="16" {} }
                    "promised bound"
                }
            }
        }
    }
}

/// Counts get a line at each power of ten only.
fn whole_decades(scale: &Scale) -> impl Iterator<Item = u64> + use<> {
    let ticks = scale.ticks();
    ticks.into_iter().map(|tick| tick.round() as u64).filter(|tick| 10u64.pow(tick.max(&1).ilog10()) == *tick)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_lab::scenario::Policy;

    fn histogram(values_ns: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values_ns.iter().for_each(|ns| histogram.add(*ns));
        histogram
    }

    #[test]
    fn counts_what_is_at_least_as_long() {
        let (one, two) = (histogram(&[50, 2_000_000, 30_000_000]), histogram(&[2_000_000]));
        let curve = Curve::of(Policy::Rota.into(), [&one, &two].into_iter());
        assert_eq!(curve.points.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [3, 1]);
        assert!(curve.points[0].0 >= 2_000_000 && curve.points[1].0 >= 30_000_000);
    }

    #[test]
    fn nothing_is_no_picture() {
        let curve = Curve::of(Policy::Rota.into(), [&histogram(&[50])].into_iter());
        assert!(draw(&[curve], &BTreeSet::from([20_000_000])).is_none());
        assert!(draw(&[], &BTreeSet::new()).is_none());
    }
}
