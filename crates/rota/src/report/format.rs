//! Numbers as people read them: three digits that matter, and a unit.

/// A time, e.g. `850 us` or `12.4 ms`.
pub fn time(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", digits(ns as f64 / unit_ns))
}

/// A time that somebody chose, without the zeros that would only feign precision, e.g. `20 ms`.
pub fn round_time(ns: u64) -> String {
    let text = time(ns);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// A time that may be negative, which somebody chose, e.g. `+20 ms`.
pub fn signed_time(ns: f64) -> String {
    let sign = match ns.round() {
        ..0.0 => "\u{2212}",
        0.0 => return "0".to_owned(),
        _ => "+",
    };
    format!("{sign}{}", round_time(ns.abs().round() as u64))
}

/// A share of one CPU, e.g. `0.201`.
pub fn share(fraction: f64) -> String {
    format!("{fraction:.3}")
}

/// A part of a whole, e.g. `12.3 %`.
pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// How often in a second, e.g. `12.3/s`.
pub fn rate(each_second: f64) -> String {
    match each_second {
        ..1e4 => format!("{}/s", digits(each_second)),
        ..1e7 => format!("{}k/s", digits(each_second / 1e3)),
        _ => format!("{}M/s", digits(each_second / 1e6)),
    }
}

/// How many times one thing is the other, e.g. `4.8`.
pub fn ratio(value: f64) -> String {
    digits(value)
}

/// Three significant digits, never fewer than those before the point.
fn digits(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_their_unit() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_500, "1.50 us"),
            (850_000, "850 us"),
            (12_440_000, "12.4 ms"),
            (3_000_000_000, "3.00 s"),
            (120_000_000_000, "120 s"),
        ];
        for (ns, text) in cases {
            assert_eq!(time(ns), text);
        }
        assert_eq!([20_000_000, 250_000, 1_500_000].map(round_time), ["20 ms", "250 us", "1.5 ms"]);
        assert_eq!([2e7, -1.5e6, 0.2].map(signed_time), ["+20 ms", "\u{2212}1.5 ms", "0"]);
    }
}
