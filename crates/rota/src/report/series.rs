//! Values from 0 to 1 over time as lines, one a policy.

use std::fmt::Write;

use maud::{Markup, html};

use super::chart::{Scale, anchor, class, percent};
use super::format;
use super::run::Contestant;

/// Heights in pixels.
const PLOT: u32 = 180;
const AXIS: u32 = 22;

/// The lines over a time, or nothing if no line has a value. A gap is left where a line has none.
pub fn draw(lines: &[(Contestant, Vec<Option<f64>>)], window_ns: u64) -> Option<Markup> {
    let drawn = || lines.iter().filter(|(_, values)| values.iter().any(Option::is_some));
    drawn().next()?;
    let across = Scale::linear([window_ns as f64].into_iter());
    Some(html! {
        p.legend {
            @for (policy, _) in drawn() {
                span.key {
                    svg width="28" height="16" aria-hidden="true" {
                        line.curve.(class(*policy)) x1="0" x2="28" y1="8" y2="8" {}
                    }
                    (policy.label)
                }
            }
        }
        div.curves {
            svg.counts width="100%" height=(PLOT) aria-hidden="true" {
                @for quarter in 0..=4u32 {
                    text x="100%" y=(percent(height(f64::from(quarter) / 4.0))) dy="4" { (f64::from(quarter) / 4.0) }
                }
            }
            svg.plot width="100%" height=(PLOT) role="img" aria-label="How fair it was at each time" {
                @for quarter in 0..=4u32 {
                    @let y = percent(height(f64::from(quarter) / 4.0));
                    line.grid x1="0" x2="100%" y1=(y) y2=(y) {}
                }
                @for tick in across.ticks() {
                    @let x = percent(across.place(tick));
                    line.grid x1=(x) x2=(x) y1="0" y2="100%" {}
                }
                svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="100%" {
                    @for (policy, values) in drawn() {
                        path.curve.(class(*policy)) d=(path(values, window_ns, &across)) { title { (policy.label) } }
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

/// Where a value stands, in percent from the top; lines at both ends are whole.
fn height(value: f64) -> f64 {
    3.0 + (1.0 - value) * 94.0
}

/// Through the middle of each part.
fn path(values: &[Option<f64>], window_ns: u64, across: &Scale) -> String {
    let (mut path, mut follows) = (String::new(), false);
    for (index, value) in values.iter().enumerate() {
        if let Some(value) = value {
            let x = across.place((index as f64 + 0.5) / values.len() as f64 * window_ns as f64);
            let command = if follows { 'L' } else { 'M' };
            write!(path, "{command}{x:.2} {:.2}", height(*value)).expect("a string takes all");
        }
        follows = value.is_some();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROTA: Contestant = Contestant { label: "Rota", look: 0 };

    #[test]
    fn a_gap_interrupts_a_line() {
        let across = Scale::Linear { max: 100.0 };
        let path = path(&[Some(1.0), Some(0.0), None, Some(0.5)], 100, &across);
        assert_eq!(path, "M14.00 3.00L38.00 97.00M86.00 50.00");
    }

    #[test]
    fn nothing_is_no_picture() {
        assert!(draw(&[(ROTA, vec![None, None])], 100).is_none());
        assert!(draw(&[], 100).is_none());
        let page = draw(&[(ROTA, vec![Some(0.9), None])], 1_000_000_000).expect("a value").into_string();
        assert!(page.contains("1 s") && !page.contains("NaN"), "{page}");
    }
}
