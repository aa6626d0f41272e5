//! Charts as inline SVG. Horizontal places are percentages of the drawing's width and nothing is scaled, so a chart
//! fits a phone and a wall, and its text keeps its size.

use maud::{Markup, html};

use super::run::Contestant;

/// Room kept free at both ends, in percent, so that a mark on the edge is whole.
const MARGIN: f64 = 2.0;
/// Heights in pixels.
const LANE: f64 = 16.0;
const AXIS: f64 = 22.0;

/// How a value becomes a place.
pub enum Scale {
    /// From 0 to `max`.
    Linear {
        /// The right end.
        max: f64,
    },
    /// Equal factors are equal distances, from `min` > 0 to `max`; what is smaller stands at the left end.
    Log {
        /// The left end.
        min: f64,
        /// The right end.
        max: f64,
    },
}

impl Scale {
    /// From 0 to a round number that is at least every value.
    pub fn linear(values: impl Iterator<Item = f64>) -> Scale {
        let max = values.fold(0.0, f64::max);
        let step = step(max);
        Scale::Linear { max: ((max / step).ceil() * step).max(step) }
    }

    /// Around the values that are above 0, from one of 1, 2 and 5 in its decade to another.
    pub fn log(values: impl Iterator<Item = f64>) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for value in values.filter(|value| *value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        if high == 0.0 {
            return Scale::Log { min: 1.0, max: 10.0 };
        }
        let below = decades(low, high, &LEADS).take_while(|tick| *tick <= low).last().unwrap_or(low);
        let above = decades(low, high, &LEADS).find(|tick| *tick > high).unwrap_or(high * 2.0);
        Scale::Log { min: below, max: above }
    }

    /// Where `value` stands, in percent of the width.
    pub fn place(&self, value: f64) -> f64 {
        let part = match *self {
            Scale::Linear { max } => value / max,
            Scale::Log { min, max } => (value.max(min) / min).log10() / (max / min).log10(),
        };
        MARGIN + part.clamp(0.0, 1.0) * (100.0 - 2.0 * MARGIN)
    }

    /// Values that get a grid line.
    pub fn ticks(&self) -> Vec<f64> {
        match *self {
            Scale::Linear { max } => {
                let step = step(max);
                (0..=(max / step).round() as u32).map(|n| f64::from(n) * step).collect()
            }
            Scale::Log { min, max } => {
                // Over more than two and a half decades, powers of ten alone; sums of them are off by a hair.
                let leads: &[f64] = if max / min > 300.0 { &[1.0] } else { &LEADS };
                decades(min, max, leads).filter(|tick| (min * 0.999..max * 1.001).contains(tick)).collect()
            }
        }
    }
}

/// The round numbers of a decade.
const LEADS: [f64; 3] = [1.0, 2.0, 5.0];

/// The round numbers from the decade of `low` to the one after `high`'s.
fn decades(low: f64, high: f64, leads: &[f64]) -> impl Iterator<Item = f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().floor() as i32 + 1);
    (first..=last).flat_map(move |decade| leads.iter().map(move |lead| lead * 10f64.powi(decade)))
}

/// A round number of which `max` has between two and five.
pub fn step(max: f64) -> f64 {
    if max <= 0.0 {
        return 1.0;
    }
    let decade = 10f64.powf(max.log10().floor());
    match max / decade {
        ..2.0 => decade / 2.0,
        ..5.0 => decade,
        _ => decade * 2.0,
    }
}

/// One value, or a value and a second one that it stretches to.
pub struct Mark {
    /// Whose it is: gives the colour and the shape.
    pub policy: Contestant,
    /// Where the mark stands.
    pub value: f64,
    /// The far end of a line that starts at the mark.
    pub stretch: Option<f64>,
    /// What is said of it when one points at it, and to those who do not see the picture.
    pub title: String,
}

/// One row: a label, its marks, and the value that was promised.
pub struct Row {
    /// What it is about.
    pub label: String,
    /// In drawing order.
    pub marks: Vec<Mark>,
    /// Drawn as a line across the row.
    pub promise: Option<f64>,
}

/// A chart of rows on one scale.
pub struct Rows<'a> {
    /// Of all rows.
    pub scale: Scale,
    /// From the top.
    pub rows: Vec<Row>,
    /// The text of a grid line.
    pub tick: &'a dyn Fn(f64) -> String,
    /// What the promise's line is, for the legend.
    pub promise: &'a str,
    /// Whether what lies right of the promise breaks it, and is tinted.
    pub beyond_is_bad: bool,
    /// Whether each mark has a lane of its own; otherwise all share one.
    pub lanes: bool,
}

impl Rows<'_> {
    /// The chart with its legend and axis.
    pub fn draw(&self) -> Markup {
        html! {
            (self.legend())
            div.chart {
                @for row in &self.rows { (self.row(row)) }
                div.label {}
                (self.axis())
            }
        }
    }

    fn legend(&self) -> Markup {
        let mut drawn: Vec<Contestant> = Vec::new();
        for policy in self.rows.iter().flat_map(|row| row.marks.iter().map(|mark| mark.policy)) {
            if !drawn.contains(&policy) {
                drawn.push(policy);
            }
        }
        html! {
            p.legend {
                @for policy in drawn {
                    span.key {
                        svg width="16" height="16" aria-hidden="true" { (shape(policy, 50.0, 8.0)) }
                        (policy.label)
                    }
                }
                @if self.rows.iter().any(|row| row.promise.is_some()) {
                    span.key {
                        svg width="16" height="16" aria-hidden="true" {
                            line.promise x1="50%" x2="50%" y1="0" y2="16" {}
                        }
                        (self.promise)
                    }
                }
            }
        }
    }

    fn row(&self, row: &Row) -> Markup {
        let lanes = if self.lanes { row.marks.len().max(1) } else { 1 };
        let height = LANE * lanes as f64 + 12.0;
        let lane = |index: usize| 6.0 + LANE * (if self.lanes { index } else { 0 } as f64 + 0.5);
        html! {
            div.label { (row.label) }
            svg.row width="100%" height=(height) role="img" aria-label=(self.spoken(row)) {
                @if let (Some(promise), true) = (row.promise, self.beyond_is_bad) {
                    @let x = self.scale.place(promise);
                    rect.beyond x=(percent(x)) width=(percent(100.0 - x)) y="0" height=(height) {}
                }
                @for tick in self.scale.ticks() {
                    @let x = percent(self.scale.place(tick));
                    line.grid x1=(x) x2=(x) y1="0" y2=(height) {}
                }
                @if let Some(promise) = row.promise {
                    @let x = percent(self.scale.place(promise));
                    line.promise x1=(x) x2=(x) y1="0" y2=(height) {}
                }
                @for (index, mark) in row.marks.iter().enumerate() {
                    @let (x, y) = (self.scale.place(mark.value), lane(index));
                    g class=(class(mark.policy)) {
                        title { (mark.title) }
                        @if let Some(stretch) = mark.stretch {
                            @let end = percent(self.scale.place(stretch));
                            line.stretch x1=(percent(x)) x2=(end) y1=(y) y2=(y) {}
                            line.stretch x1=(end) x2=(end) y1=(y - 5.0) y2=(y + 5.0) {}
                        }
                        (shape(mark.policy, x, y))
                    }
                }
            }
        }
    }

    fn axis(&self) -> Markup {
        html! {
            svg.axis width="100%" height=(AXIS) aria-hidden="true" {
                @for tick in self.scale.ticks() {
                    @let x = self.scale.place(tick);
                    text.(anchor(x)) x=(percent(x)) y="14" { ((self.tick)(tick)) }
                }
            }
        }
    }

    fn spoken(&self, row: &Row) -> String {
        let marks: Vec<&str> = row.marks.iter().map(|mark| mark.title.as_str()).collect();
        format!("{}: {}", row.label, marks.join("; "))
    }
}

/// One part of a bar.
pub struct Part {
    /// Its CSS class, which gives the colour.
    pub class: &'static str,
    /// What it is.
    pub label: &'static str,
    /// Part of the whole, 0 ..= 1.
    pub part: f64,
}

/// A bar of parts that lie end to end, with a note beside its name. The parts say how long they are where there is
/// room.
pub fn bar(name: &str, note: &str, parts: &[Part]) -> Markup {
    const ROOM: f64 = 0.09;
    let placed: Vec<(f64, &Part)> = parts
        .iter()
        .scan(0.0, |end, part| {
            *end += part.part;
            Some((*end - part.part, part))
        })
        .collect();
    let text = |part: &Part| super::format::percent(part.part);
    let spoken: Vec<String> = parts.iter().map(|part| format!("{} {}", part.label, text(part))).collect();
    html! {
        div.label { (name) span.note { (note) } }
        svg.bar width="100%" height="30" role="img" aria-label=(format!("{name}: {}", spoken.join(", "))) {
            @for (start, part) in &placed {
                @let (x, width) = (percent(start * 100.0), percent(part.part * 100.0));
                rect class=(part.class) x=(x) width=(width) y="2" height="26" {
                    title { (part.label) " " (text(part)) }
                }
            }
            @for (start, part) in placed.iter().filter(|(_, part)| part.part >= ROOM) {
                @let middle = percent((start + part.part / 2.0) * 100.0);
                text class=(format!("on-{}", part.class)) x=(middle) y="19" { (text(part)) }
            }
        }
    }
}

/// Text near an edge runs inwards from its place, or it would be cut off.
pub fn anchor(x: f64) -> &'static str {
    match x {
        ..6.0 => "from",
        94.0.. => "upto",
        _ => "around",
    }
}

/// The CSS classes of the policies, which give their colours; and the outlines of their marks but for the first one's,
/// which is round. The outlines differ, so that nobody has to tell the colours apart.
const LOOKS: [(&str, &str); 13] = [
    ("rota", ""),
    ("p1", "M0 -6.5 L6 5 L-6 5 Z"),
    ("p2", "M-5 -5 H5 V5 H-5 Z"),
    ("p3", "M0 -7 L6 0 L0 7 L-6 0 Z"),
    ("p4", "M0 6.5 L6 -5 L-6 -5 Z"),
    ("p5", "M-2 -6 H2 V-2 H6 V2 H2 V6 H-2 V2 H-6 V-2 H-2 Z"),
    ("p6", "M-6 -3 L-3 -6 L0 -3 L3 -6 L6 -3 L3 0 L6 3 L3 6 L0 3 L-3 6 L-6 3 L-3 0 Z"),
    ("p7", "M-6.5 0 L5 -6 L5 6 Z"),
    ("p8", "M6.5 0 L-5 -6 L-5 6 Z"),
    ("p9", "M-3 -6 H3 V6 H-3 Z"),
    ("p10", "M-6 -3 H6 V3 H-6 Z"),
    ("p11", "M-3 -6 L3 -6 L6 0 L3 6 L-3 6 L-6 0 Z"),
    ("p12", "M-6 5 L-6 -5 L0 0 L6 -5 L6 5 Z"),
];

/// A policy's mark, around a place in percent and pixels.
pub fn shape(policy: Contestant, x: f64, y: f64) -> Markup {
    let (class, outline) = look(policy);
    let x = percent(x);
    html! {
        @if outline.is_empty() {
            circle.mark.(class) cx=(x) cy=(y) r="5.5" {}
        } @else {
            svg.mark.(class) x=(x) y=(y) overflow="visible" { path d=(outline) {} }
        }
    }
}

/// The CSS class of a policy.
pub fn class(policy: Contestant) -> &'static str {
    look(policy).0
}

/// More than there are looks begin again with the second one.
fn look(policy: Contestant) -> (&'static str, &'static str) {
    match policy.look {
        0 => LOOKS[0],
        other => LOOKS[(other - 1) % (LOOKS.len() - 1) + 1],
    }
}

/// As SVG writes a part of the width.
pub fn percent(value: f64) -> String {
    format!("{value:.2}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_values() {
        let linear = Scale::linear([0.2, 0.37].into_iter());
        assert!(matches!(linear, Scale::Linear { max } if (max - 0.4).abs() < 1e-9));
        assert!((linear.place(0.2) - 50.0).abs() < 1e-9);
        let log = Scale::log([2.5e6, 4e8].into_iter());
        assert!(matches!(log, Scale::Log { min, max } if (min - 2e6).abs() < 1.0 && (max - 5e8).abs() < 1.0));
        assert_eq!(log.ticks().len(), 8);
        assert_eq!(Scale::log([1e3, 1e9].into_iter()).ticks().len(), 7);
        assert!((log.place(2e6) - MARGIN).abs() < 1e-9 && (log.place(5e8) - 98.0).abs() < 1e-6);
        assert!((log.place(0.0) - MARGIN).abs() < 1e-9);
    }

    #[test]
    fn scales_of_nothing_have_a_width() {
        assert!(matches!(Scale::linear(std::iter::empty()), Scale::Linear { max } if max > 0.0));
        for values in [vec![], vec![0.0], vec![1e6]] {
            assert!(matches!(Scale::log(values.into_iter()), Scale::Log { min, max } if max > min));
        }
    }
}
