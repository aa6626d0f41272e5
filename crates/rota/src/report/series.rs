//! Values over time as lines, one a policy.

use std::fmt::Write;

use maud::{Markup, html};

use super::chart::{self, Scale, anchor, class, percent};
use super::format;
use super::run::Contestant;

/// Height in pixels of the times below a picture.
const AXIS: u32 = 22;

/// A line: a value for each part of the time, or none.
pub type Line = (Contestant, Vec<Option<f64>>);

/// What values there are, from the bottom of a picture to its top.
pub struct Range {
    low: f64,
    high: f64,
    step: f64,
}

impl Range {
    /// From 0 to 1.
    pub const PARTS: Range = Range { low: 0.0, high: 1.0, step: 0.25 };

    /// Round numbers around all values and 0.
    pub fn around(values: impl Iterator<Item = f64>) -> Range {
        let (least, most) =
            values.fold((0.0f64, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
        let step = chart::step(most.max(-least));
        let (low, high) = ((least / step).floor() * step, (most / step).ceil() * step);
        Range { low, high: if high > low { high } else { low + step }, step }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = ((self.high - self.low) / self.step).round() as u32;
        (0..=count).map(|number| self.low + f64::from(number) * self.step)
    }

    /// Where a value stands, in percent from the top; lines at both ends are whole.
    fn height(&self, value: f64) -> f64 {
        3.0 + (self.high - value) / (self.high - self.low) * 94.0
    }
}

/// A picture of lines over one time.
pub struct Picture<'a> {
    /// At least one has a value; a gap is left where a line has none.
    pub lines: &'a [Line],
    /// Of the values.
    pub range: &'a Range,
    /// The text of a value.
    pub tick: &'a dyn Fn(f64) -> String,
    /// How long the time is.
    pub length_ns: u64,
    /// What it shows, for those who do not see it.
    pub about: &'a str,
    /// In pixels, without the times.
    pub height: u32,
}

/// Lines that have a value.
fn drawn(lines: &[Line]) -> impl Iterator<Item = &Line> {
    lines.iter().filter(|(_, values)| values.iter().any(Option::is_some))
}

/// Which line is which policy's; nothing if no line has a value.
pub fn legend(lines: &[Line]) -> Option<Markup> {
    drawn(lines).next()?;
    Some(html! {
        p.legend {
            @for (policy, _) in drawn(lines) {
                span.key {
                    svg width="28" height="16" aria-hidden="true" {
                        line.curve.(class(*policy)) x1="0" x2="28" y1="8" y2="8" {}
                    }
                    (policy.label)
                }
            }
        }
    })
}

impl Picture<'_> {
    /// The lines with both axes.
    pub fn draw(&self) -> Markup {
        let across = Scale::linear([self.length_ns as f64].into_iter());
        let height = |value| percent(self.range.height(value));
        html! {
            div.curves {
                svg.counts width="100%" height=(self.height) aria-hidden="true" {
                    @for tick in self.range.ticks() { text x="100%" y=(height(tick)) dy="4" { ((self.tick)(tick)) } }
                }
                svg.plot width="100%" height=(self.height) role="img" aria-label=(self.about) {
                    @for tick in self.range.ticks() {
                        @let y = height(tick);
                        line.grid.zero[tick == 0.0 && self.range.low < 0.0] x1="0" x2="100%" y1=(y) y2=(y) {}
                    }
                    @for tick in across.ticks() {
                        @let x = percent(across.place(tick));
                        line.grid x1=(x) x2=(x) y1="0" y2="100%" {}
                    }
                    svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="100%" {
                        @for (policy, values) in drawn(self.lines) {
                            path.curve.(class(*policy)) d=(self.path(values, &across)) { title { (policy.label) } }
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
        }
    }

    /// Through the middle of each part.
    fn path(&self, values: &[Option<f64>], across: &Scale) -> String {
        let (mut path, mut follows) = (String::new(), false);
        for (index, value) in values.iter().enumerate() {
            if let Some(value) = value {
                let x = across.place((index as f64 + 0.5) / values.len() as f64 * self.length_ns as f64);
                let command = if follows { 'L' } else { 'M' };
                write!(path, "{command}{x:.2} {:.2}", self.range.height(*value)).expect("a string takes all");
            }
            follows = value.is_some();
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROTA: Contestant = Contestant { label: "Rota", look: 0 };

    fn picture<'a>(lines: &'a [Line], range: &'a Range, length_ns: u64) -> Picture<'a> {
        Picture { lines, range, tick: &|value| value.to_string(), length_ns, about: "", height: 100 }
    }

    #[test]
    fn a_gap_interrupts_a_line() {
        let across = Scale::Linear { max: 100.0 };
        let path = picture(&[], &Range::PARTS, 100).path(&[Some(1.0), Some(0.0), None, Some(0.5)], &across);
        assert_eq!(path, "M14.00 3.00L38.00 97.00M86.00 50.00");
    }

    #[test]
    fn nothing_is_no_picture() {
        assert!(legend(&[(ROTA, vec![None, None])]).is_none());
        assert!(legend(&[]).is_none());
        let lines = [(ROTA, vec![Some(0.9), None])];
        assert!(legend(&lines).is_some());
        let page = picture(&lines, &Range::PARTS, 1_000_000_000).draw().into_string();
        assert!(page.contains("1 s") && !page.contains("NaN"), "{page}");
    }

    #[test]
    fn a_range_is_round_and_has_0_in_it() {
        let ticks = |values: &[f64]| Range::around(values.iter().copied()).ticks().collect::<Vec<_>>();
        assert_eq!(ticks(&[-3.0, 7.0]), [-4.0, -2.0, 0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(ticks(&[250.0, 30.0]), [0.0, 100.0, 200.0, 300.0]);
        assert_eq!(ticks(&[-150.0]), [-150.0, -100.0, -50.0, 0.0]);
        assert_eq!(ticks(&[0.0]), [0.0, 1.0]);
        let range = Range::around([-3.0, 7.0].into_iter());
        assert_eq!([8.0, -4.0].map(|value| range.height(value)), [3.0, 97.0]);
    }
}
