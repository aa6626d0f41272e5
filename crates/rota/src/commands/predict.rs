//! `rota profile --predict`: by how much the neighbours slow a tenant down, foretold on the host.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use rota_model::Counts;
use rota_rules::sampling::{Answer, Request, Sample};
use rota_rules::slowdown::{Prediction, Refusal, predict};
use rotad::sampler::ask;
use serde::Serialize;

/// Each sample has so many parts.
const PARTS: usize = 10;
/// Others are held off for so long in each part of the dedicated sample.
const HOLD_OFF_MS: u64 = 40;
/// How long a part of the other sample is.
const BESIDE: Duration = Duration::from_millis(900);
/// How long nobody looks after others were held off: they get what they missed.
const MADE_GOOD: Duration = Duration::from_millis(1_000);
/// When others cannot be held off now, it is tried again after this, and so often.
const AGAIN: Duration = Duration::from_millis(250);
const TRIES: usize = 20;

/// What is foretold, and from what.
#[derive(Debug, Serialize)]
pub(super) struct Foretold {
    tenant: String,
    /// Useful work of each thread on average, as a part of its time, beside others.
    useful_beside: f64,
    /// And with others held off.
    useful_dedicated: f64,
    /// How many times longer the tenant takes beside others; nothing if that is refused.
    slowdown: Option<f64>,
    /// So much of it, up or down, it may be off by what is seen of the samples.
    uncertainty: Option<f64>,
    /// Why nothing is foretold.
    refused: Option<String>,
    /// For how long others were held off, in ms.
    held_off_ms: u64,
    method: &'static str,
}

/// Takes both samples of a tenant, part by part, and foretells.
pub(super) fn foretell(socket: &Path, tenant: &str) -> Result<Foretold> {
    let [mut dedicated, mut beside] = [const { Vec::new() }; 2];
    for _ in 0..PARTS {
        let before = so_far(socket, tenant)?;
        sleep(BESIDE);
        let after = so_far(socket, tenant)?;
        let part = after.since(&before).ok_or_else(|| went(tenant))?;
        beside.push(part.counts());
        dedicated.push(held_off(socket, tenant)?.counts());
        sleep(MADE_GOOD);
    }
    Ok(foretold(tenant, &dedicated, &beside))
}

fn went(tenant: &str) -> anyhow::Error {
    anyhow!("tenant {tenant:?} went and came back meanwhile; ask again")
}

fn so_far(socket: &Path, tenant: &str) -> Result<Sample> {
    match ask(socket, &Request { tenant: tenant.to_owned(), hold_off_ms: 0 })? {
        Answer::SoFar(sample) => Ok(sample),
        Answer::Refused(why) => bail!("{why}"),
        Answer::Dedicated(_) | Answer::NotNow => bail!("the daemon answers something else"),
    }
}

fn held_off(socket: &Path, tenant: &str) -> Result<Sample> {
    for _ in 0..TRIES {
        match ask(socket, &Request { tenant: tenant.to_owned(), hold_off_ms: HOLD_OFF_MS })? {
            Answer::Dedicated(sample) => return Ok(sample),
            Answer::Refused(why) => bail!("{why}"),
            Answer::SoFar(_) => bail!("the daemon answers something else"),
            Answer::NotNow => sleep(AGAIN),
        }
    }
    bail!(
        "others could not be held off: somebody else samples this host, or the daemon is held up; ask again"
    )
}

fn foretold(tenant: &str, dedicated: &[Counts], beside: &[Counts]) -> Foretold {
    let useful = |parts: &[Counts]| {
        let sum = Counts::sum(parts);
        sum.useful_ns() as f64 / sum.total_ns.max(1) as f64
    };
    let outcome: Result<Prediction, Refusal> = predict(dedicated, beside);
    Foretold {
        tenant: tenant.to_owned(),
        useful_beside: useful(beside),
        useful_dedicated: useful(dedicated),
        slowdown: outcome.ok().map(|prediction| prediction.slowdown),
        uncertainty: outcome.ok().map(|prediction| prediction.uncertainty),
        refused: outcome.err().map(|why| why.to_string()),
        held_off_ms: PARTS as u64 * HOLD_OFF_MS,
        method: METHOD,
    }
}

/// What the figures know nothing of.
const METHOD: &str = "useful work without stalls: waits for memory and changes of task count as work; of time in \
                      loops, what was seen does not";

/// The answer for people.
pub(super) fn text(foretold: &Foretold) -> String {
    let Foretold { tenant, useful_beside, useful_dedicated, held_off_ms, method, .. } = foretold;
    let mut text = format!(
        "{tenant}, sampled {PARTS} times beside others and with these held off, for {held_off_ms} ms together\n\n  \
         useful work  {:5.1} % of its threads' time beside others\n  \
         useful work  {:5.1} % with others held off, but for who is reserved\n\n",
        100.0 * useful_beside,
        100.0 * useful_dedicated
    );
    text += &match (foretold.slowdown, foretold.uncertainty, &foretold.refused) {
        (Some(slowdown), Some(uncertainty), _) => {
            format!("slower by {slowdown:.2}x beside others, within {:.1} %\n", 100.0 * uncertainty)
        }
        (_, _, Some(why)) => format!("no slowdown is foretold: {why}\n"),
        _ => String::new(),
    };
    text + &format!("method: {method}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(useful: u64, waiting: u64) -> Vec<Counts> {
        vec![Counts { total_ns: useful + waiting, steal_ns: waiting, ..Counts::default() }; PARTS]
    }

    #[test]
    fn a_slowdown_is_told_with_what_it_is_from() {
        let foretold = foretold("web", &parts(80, 20), &parts(40, 60));
        let expected = "\
web, sampled 10 times beside others and with these held off, for 400 ms together

  useful work   40.0 % of its threads' time beside others
  useful work   80.0 % with others held off, but for who is reserved

slower by 2.00x beside others, within 0.0 %
";
        assert!(text(&foretold).starts_with(expected), "{}", text(&foretold));
        let json = serde_json::to_value(&foretold).unwrap();
        assert_eq!((json["slowdown"].as_f64(), json["refused"].as_str()), (Some(2.0), None));
    }

    #[test]
    fn samples_that_differ_are_refused_in_words() {
        let mut uneven = parts(40, 60);
        uneven[..5].copy_from_slice(&parts(80, 20)[..5]);
        let refused = foretold("web", &parts(80, 20), &uneven);
        assert!(text(&refused).contains("no slowdown is foretold: the samples are not representative"));
        assert!(serde_json::to_value(&refused).unwrap()["slowdown"].is_null());
    }
}
