//! `rota profile --predict`: by how much the neighbours slow a tenant down, foretold on the host.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use rota_model::Counts;
use rota_rules::counters::Counted;
use rota_rules::sampling::{Answer, Request, Sample};
use rota_rules::slowdown::{Prediction, Refusal, predict};
use rotad::counters::Counters;
use rotad::sampler::ask;
use rotad::server;
use serde::Serialize;

use super::profile::{counters, find};
use crate::report::profile::{self as report, foretold_page};

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
    /// Useful work in each part of both samples: beside others, and with these held off.
    parts: Vec<[f64; 2]>,
    /// What counts as useful work.
    method: String,
}

/// Takes both samples of a tenant, part by part, and foretells.
pub(super) fn foretell(socket: &Path, tenant: &str) -> Result<Foretold> {
    let status = server::ask(socket)?;
    let counters = counters(find(&status, tenant)?, &status);
    let mut stalls = Stalls { counters, begun: Counted::default() };
    let [mut dedicated, mut beside] = [const { Vec::new() }; 2];
    for _ in 0..PARTS {
        stalls.begin();
        let before = so_far(socket, tenant)?;
        sleep(BESIDE);
        let after = so_far(socket, tenant)?;
        let part = after.since(&before).ok_or_else(|| went(tenant))?;
        beside.push(stalls.end(part.counts()));
        dedicated.push(held_off(socket, tenant, &mut stalls)?);
        sleep(MADE_GOOD);
    }
    Ok(foretold(tenant, &dedicated, &beside, stalls.unseen()))
}

/// Waits for memory, where the processor counts them.
struct Stalls {
    counters: Result<Counters, String>,
    begun: Counted,
}

impl Stalls {
    /// A part of a sample begins.
    fn begin(&mut self) {
        self.begun = self.counters.as_ref().map(Counters::read).unwrap_or_default();
    }

    /// And ends: what of its work was waiting for memory is none. Of a moment in which others were held off the
    /// counters see some ms more than the daemon, at both ends.
    fn end(&self, counts: Counts) -> Counts {
        let counted = self.counters.as_ref().map(|counters| counters.read().since(&self.begun));
        without_stalls(counts, counted.ok().and_then(|counted| counted.stalled_part()))
    }

    /// Why they are not told apart, if they are not.
    fn unseen(&self) -> Option<String> {
        match &self.counters {
            Ok(counters) if counters.read().stalled.is_some() => None,
            Ok(_) => Some("this processor does not count them".to_owned()),
            Err(why) => Some(why.clone()),
        }
    }
}

/// Of what ran and did not spin, the part that was counted as waiting for memory.
fn without_stalls(counts: Counts, stalled: Option<f64>) -> Counts {
    let memory_ns = (counts.useful_ns() as f64 * stalled.unwrap_or(0.0)) as u64;
    Counts { memory_ns, ..counts }
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

fn held_off(socket: &Path, tenant: &str, stalls: &mut Stalls) -> Result<Counts> {
    for _ in 0..TRIES {
        stalls.begin();
        match ask(socket, &Request { tenant: tenant.to_owned(), hold_off_ms: HOLD_OFF_MS })? {
            Answer::Dedicated(sample) => return Ok(stalls.end(sample.counts())),
            Answer::Refused(why) => bail!("{why}"),
            Answer::SoFar(_) => bail!("the daemon answers something else"),
            Answer::NotNow => sleep(AGAIN),
        }
    }
    bail!(
        "others could not be held off: somebody else samples this host, or the daemon is held up; ask again"
    )
}

/// From both samples; and why waits for memory are not told apart.
fn foretold(tenant: &str, dedicated: &[Counts], beside: &[Counts], unseen: Option<String>) -> Foretold {
    let of = |counts: &Counts| counts.useful_ns() as f64 / counts.total_ns.max(1) as f64;
    let useful = |parts: &[Counts]| of(&Counts::sum(parts));
    let outcome: Result<Prediction, Refusal> = predict(dedicated, beside);
    Foretold {
        tenant: tenant.to_owned(),
        useful_beside: useful(beside),
        useful_dedicated: useful(dedicated),
        slowdown: outcome.ok().map(|prediction| prediction.slowdown),
        uncertainty: outcome.ok().map(|prediction| prediction.uncertainty),
        refused: outcome.err().map(|why| why.to_string()),
        held_off_ms: PARTS as u64 * HOLD_OFF_MS,
        parts: beside.iter().zip(dedicated).map(|(beside, dedicated)| [of(beside), of(dedicated)]).collect(),
        method: method(unseen),
    }
}

/// What counts as useful work.
fn method(unseen: Option<String>) -> String {
    let memory = match unseen {
        Some(why) => format!("changes of task count as work, and so do waits for memory: {why}"),
        None => "changes of task count as work, waits for memory do not".to_owned(),
    };
    format!("useful work; {memory}; of time in loops, what was seen does not count")
}

/// The answer for people.
pub(super) fn text(foretold: &Foretold) -> String {
    let Foretold { tenant, useful_beside, useful_dedicated, held_off_ms, method, .. } = foretold;
    let text = format!(
        "{tenant}, sampled {PARTS} times beside others and with these held off, for {held_off_ms} ms together\n\n  \
         useful work  {:5.1} % of its threads' time beside others\n  \
         useful work  {:5.1} % with others held off, but for who is reserved\n\n",
        100.0 * useful_beside,
        100.0 * useful_dedicated
    );
    text + &format!("{}\nmethod: {method}\n", outcome(foretold))
}

/// What is foretold, or why nothing is.
fn outcome(foretold: &Foretold) -> String {
    match (foretold.slowdown, foretold.uncertainty, &foretold.refused) {
        (Some(slowdown), Some(uncertainty), _) => {
            format!("slower by {slowdown:.2}x beside others, within {:.1} %", 100.0 * uncertainty)
        }
        (_, _, Some(why)) => format!("no slowdown is foretold: {why}"),
        _ => String::new(),
    }
}

/// The same as a page.
pub(super) fn page(foretold: &Foretold) -> String {
    foretold_page(&report::Foretold {
        tenant: &foretold.tenant,
        headline: format!("{}.", outcome(foretold)),
        useful: [foretold.useful_beside, foretold.useful_dedicated],
        parts: &foretold.parts,
        method: &foretold.method,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_memory_are_no_work() {
        let counts = Counts { total_ns: 100, steal_ns: 20, sync_ns: 40, ..Counts::default() };
        assert_eq!(without_stalls(counts, Some(0.25)).useful_ns(), 30);
        assert_eq!(without_stalls(counts, None), counts);
    }

    fn parts(useful: u64, waiting: u64) -> Vec<Counts> {
        vec![Counts { total_ns: useful + waiting, steal_ns: waiting, ..Counts::default() }; PARTS]
    }

    #[test]
    fn a_slowdown_is_told_with_what_it_is_from() {
        let foretold = foretold("web", &parts(80, 20), &parts(40, 60), Some("no PMU".to_owned()));
        let expected = "\
web, sampled 10 times beside others and with these held off, for 400 ms together

  useful work   40.0 % of its threads' time beside others
  useful work   80.0 % with others held off, but for who is reserved

slower by 2.00x beside others, within 0.0 %
";
        assert!(text(&foretold).starts_with(expected), "{}", text(&foretold));
        let page = page(&foretold);
        assert!(page.contains("slower by 2.00x beside others, within 0.0 %."), "{page}");
        assert!(
            page.contains("aria-label=\"with others held off: useful work 80.0 %, the rest 20.0 %\""),
            "{page}"
        );
        assert!(page.contains("so do waits for memory: no PMU"), "{page}");
        let json = serde_json::to_value(&foretold).unwrap();
        assert_eq!((json["slowdown"].as_f64(), json["refused"].as_str()), (Some(2.0), None));
    }

    #[test]
    fn samples_that_differ_are_refused_in_words() {
        let mut uneven = parts(40, 60);
        uneven[..5].copy_from_slice(&parts(80, 20)[..5]);
        let refused = foretold("web", &parts(80, 20), &uneven, None);
        assert!(text(&refused).contains("no slowdown is foretold: the samples are not representative"));
        assert!(serde_json::to_value(&refused).unwrap()["slowdown"].is_null());
    }
}
