//! Durations as people write them: a number and a unit.

use crate::quote;

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A number alone.
    #[error("{} has no unit; write {} (ns, us, ms, s)", quote(.0), quote(&format!("{}ms", .0)))]
    NoUnit(String),
    /// A number with something else behind it.
    #[error("{} has no unit that is known; write ns, us, ms or s, e.g. \"20ms\"", quote(.0))]
    Unit(String),
    /// No number.
    #[error("{} is no duration; write a number and a unit, e.g. \"20ms\"", quote(.0))]
    Number(String),
    /// Parts of a nanosecond.
    #[error("{} is no whole number of nanoseconds; leave out the digits below one", quote(.0))]
    Fraction(String),
    /// More than an hour.
    #[error("{} is longer than an hour; write a shorter one", quote(.0))]
    TooLong(String),
}

const HOUR_NS: u64 = 3_600_000_000_000;

/// Reads `"20ms"`, `"250us"`, `"1.5s"` or `"100ns"` as nanoseconds, 0 to an hour, exactly.
///
/// # Errors
///
/// If the text is anything else.
pub fn duration_ns(text: &str) -> Result<u64, DurationError> {
    let fail = |error: fn(String) -> DurationError| Err(error(text.to_owned()));
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return fail(DurationError::Number);
    }
    let digits = match unit {
        "ns" => 0,
        "us" => 3,
        "ms" => 6,
        "s" => 9,
        "" => return fail(DurationError::NoUnit),
        _ => return fail(DurationError::Unit),
    };
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > digits {
        return fail(DurationError::Fraction);
    }
    // The fraction has at most nine digits; a whole part that does not parse is too large, for it is all digits.
    let fraction_ns = format!("{fraction:0<digits$}").parse().unwrap_or(0);
    let whole_ns = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(10u64.pow(digits as u32)));
    match whole_ns.and_then(|whole_ns| whole_ns.checked_add(fraction_ns)) {
        Some(ns) if ns <= HOUR_NS => Ok(ns),
        _ => fail(DurationError::TooLong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact() {
        for (text, ns) in [
            ("20ms", 20_000_000),
            ("250us", 250_000),
            ("1.5s", 1_500_000_000),
            ("100ns", 100),
            ("0.000000001s", 1),
            ("1.000ns", 1),
            ("0.3us", 300),
            ("007ms", 7_000_000),
            ("0ns", 0),
            ("3600s", HOUR_NS),
        ] {
            assert_eq!(duration_ns(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn all_else_is_refused() {
        use DurationError::*;
        let refused = |text: &str, error: fn(String) -> DurationError| {
            assert_eq!(duration_ns(text), Err(error(text.to_owned())), "{text}");
        };
        for text in ["20", "1.5"] {
            refused(text, NoUnit);
        }
        for text in ["20m", "20 ms", "20MS", "1e3ms"] {
            refused(text, Unit);
        }
        for text in ["", "ms", "-1ms", ".5ms", "5.ms", "1.2.3ms"] {
            refused(text, Number);
        }
        for text in ["1.5ns", "0.1234567ms"] {
            refused(text, Fraction);
        }
        for text in ["3600.000000001s", "18446744073709551616ns", "18446744073709551615s"] {
            refused(text, TooLong);
        }
    }
}
