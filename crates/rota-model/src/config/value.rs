//! Single values: what each kind of key accepts, and what is said of anything else. The errors here are messages
//! without a place, for [`Table::read`](super::Table::read) to give them one.

use std::ops::RangeInclusive;

use toml::de::DeValue;

use super::duration_ns;
use crate::{CpuSet, Share, quote};

/// A value as an error shows it.
pub fn show(value: &DeValue) -> String {
    let long = |text: String| if text.len() > 60 { quote(&text) } else { text };
    match value {
        DeValue::String(text) => quote(text),
        DeValue::Integer(number) => long(number.to_string()),
        DeValue::Float(number) => long(number.to_string()),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// A string; `mend` says what to write instead of anything else.
pub fn text<'v>(value: &'v DeValue, mend: &str) -> Result<&'v str, String> {
    value.as_str().ok_or_else(|| format!("{} is no string; write {mend}", show(value)))
}

/// A CPU list.
pub fn cpus(value: &DeValue) -> Result<CpuSet, String> {
    let list = text(value, "a CPU list in quotes, e.g. \"0-3,8\"")?;
    list.parse().map_err(|error| format!("{} is no CPU list: {error}; write e.g. \"0-3,8\"", quote(list)))
}

/// A CPU list with at least one CPU.
pub fn some_cpus(value: &DeValue) -> Result<CpuSet, String> {
    match cpus(value)? {
        none if none.is_empty() => Err("names no CPU; write e.g. \"0-3,8\", or leave the key out".to_owned()),
        some => Ok(some),
    }
}

/// A whole number within `range`.
pub fn whole(value: &DeValue, range: RangeInclusive<u32>) -> Result<u32, String> {
    let number = value.as_integer().and_then(|n| u32::from_str_radix(n.as_str(), n.radix()).ok());
    number.filter(|number| range.contains(number)).ok_or_else(|| {
        format!("{} is no whole number from {} to {}; write one", show(value), range.start(), range.end())
    })
}

/// A share of one CPU.
pub(super) fn share(value: &DeValue) -> Result<Share, String> {
    number(value).and_then(Share::from_fraction).ok_or_else(|| {
        format!("{} is no share of one CPU; write a fraction above 0 and up to 1, e.g. 0.25", show(value))
    })
}

/// The host's floor, in parts per billion.
pub(super) fn floor(value: &DeValue) -> Result<u32, String> {
    // NaN is in no range.
    let fraction = number(value).filter(|fraction| (0.0..=0.5).contains(fraction));
    let ppb = fraction.map(|fraction| (fraction * f64::from(Share::ONE.ppb())).round() as u32);
    ppb.ok_or_else(|| format!("{} is no floor; write a fraction from 0 to 0.5, e.g. 0.005", show(value)))
}

/// True or false.
pub fn truth(value: &DeValue) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("{} is neither true nor false; write one of them", show(value)))
}

/// A duration in ns. A bare number is one without a unit.
pub fn duration(value: &DeValue) -> Result<u64, String> {
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(_) | DeValue::Float(_) => show(value),
        other => return Err(format!("{} is no duration; write a string, e.g. \"20ms\"", show(other))),
    };
    duration_ns(&text).map_err(|error| error.to_string())
}

/// A latency bound, at least 1 ns.
pub(super) fn latency(value: &DeValue) -> Result<u64, String> {
    match duration(value)? {
        0 => Err(format!("{} is no bound that can be kept; write more, e.g. \"20ms\"", show(value))),
        ns => Ok(ns),
    }
}

/// A number with or without a fraction.
pub(super) fn number(value: &DeValue) -> Option<f64> {
    match value {
        DeValue::Float(number) => number.as_str().parse().ok(),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n as f64)
        }
        _ => None,
    }
}
