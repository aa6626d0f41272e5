//! The farm: that what it runs goes the same way each time, and a short pass of it.

mod known;

use rota_farm::Verdict;
use rota_twin::Code;

/// `ROTA_SEEDS=1000-1999` runs these instead.
fn seeds() -> std::ops::RangeInclusive<u64> {
    let Ok(text) = std::env::var("ROTA_SEEDS") else { return 0..=29 };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let number = |text: &str| text.parse().expect("ROTA_SEEDS is a number, or two with a dash between");
    number(first)..=number(last)
}

fn shown(verdict: &Verdict) -> String {
    let Verdict { seed, shown, last, finding, .. } = verdict;
    let Some(finding) = finding else { return format!("seed {seed}: nothing") };
    let last = last.join("\n");
    format!(
        "{shown}\n{last}\nseed {seed}, at {} ns: {}\nrepeat it with: rota farm --seed {seed}",
        finding.at_ns, finding.fault
    )
}

#[test]
fn nothing_is_found_in_the_scheduler() {
    let mut slots = 0;
    for seed in seeds() {
        let verdict = rota_farm::run(seed, &Code::REAL);
        assert!(verdict.finding.is_none(), "{}", shown(&verdict));
        slots += verdict.slots;
    }
    assert!(slots > 10_000, "only {slots} slots");
}

#[test]
fn a_seed_goes_the_same_way_again() {
    let runs = [5, 5, 6].map(|seed| rota_farm::run(seed, &Code::REAL));
    let [one, again, other] = runs.each_ref().map(|run| (run.digest, run.slots, run.events));
    assert_eq!(one, again);
    assert_ne!(one, other);
}

/// The seeds of `found.toml` with which a mistake of the scheduler's, or of a check's, was found.
#[test]
fn what_was_found_once_is_not_found_again() {
    for seed in known::seeds() {
        let verdict = rota_farm::run(seed, &Code::REAL);
        assert!(verdict.finding.is_none(), "{}", shown(&verdict));
    }
}
