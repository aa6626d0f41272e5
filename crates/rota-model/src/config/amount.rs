//! Amounts of CPU: what `cpus` of a tenant says, and what people mean who write one into `share`.

use toml::de::DeValue;

use super::value::{number, show};
use crate::{CpuSet, Share, quote};

/// One CPU, in the unit of amounts: parts per billion.
pub(super) const ONE_PPB: u64 = Share::ONE.ppb() as u64;

/// An amount of CPU in parts per billion of one, at least 1: `2.5`, or as Kubernetes has it, `"2500m"`.
pub(super) fn cpus(value: &DeValue) -> Result<u64, String> {
    let text = value.as_str().unwrap_or_default();
    let shown = show(value);
    let amount = match meant(value) {
        Some(amount) if text.ends_with('%') => {
            return Err(format!("{shown} is no number of CPUs; write {amount}"));
        }
        amount => amount.map(|amount| (amount * ONE_PPB as f64).round() as u64).filter(|ppb| *ppb > 0),
    };
    amount.ok_or_else(|| match text.parse::<CpuSet>() {
        Ok(list) if !list.is_empty() => {
            format!(
                "{shown} is a list of CPUs; write how many, e.g. 2.5, and affinity = {} for which",
                quote(text)
            )
        }
        _ => format!("{shown} is no number of CPUs; write e.g. 2.5 or \"2500m\""),
    })
}

/// The CPUs that somebody means who writes a number, thousandths as `"500m"`, or a part as `"50%"`; nothing if it is
/// none that a host could have.
pub(super) fn meant(value: &DeValue) -> Option<f64> {
    let digits = |text: &str| {
        let is_plain = text.starts_with(|first: char| first.is_ascii_digit() || first == '.');
        text.parse::<f64>().ok().filter(|_| is_plain)
    };
    let amount = match value.as_str() {
        Some(text) => match (text.strip_suffix('m'), text.strip_suffix('%')) {
            (Some(thousandths), _) => digits(thousandths)? / 1000.0,
            (_, Some(hundredths)) => digits(hundredths.trim_end())? / 100.0,
            (None, None) => digits(text)?,
        },
        None => number(value)?,
    };
    (0.0 < amount && amount <= f64::from(CpuSet::LIMIT)).then_some(amount)
}
