//! `rota farm`: random hosts on the simulator, to find mistakes of Rota's own.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use rota_farm::Verdict;
use rota_twin::Code;

use super::{Failure, length, note, print};

/// Look for mistakes of Rota's own: random hosts, tenants, loads and faults on the simulator
///
/// Each seed is a host of its own, and goes the same way everywhere. Nothing of this machine is touched. Exits with 1
/// if anything was found that must not be.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Run this seed only, and show all that was drawn
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "seeds", "slots", "length", "jobs", "keep_going"])]
    seed: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// So many seeds
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,
    /// More seeds, if need be, until so many slots are simulated
    #[arg(long, value_name = "N", default_value_t = 0)]
    slots: u64,
    /// No new seed after this time, whatever is left
    #[arg(long = "for", value_name = "DURATION", value_parser = length)]
    length: Option<Duration>,
    /// So many at once; as many as there are CPUs by default
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Go on when something is found
    #[arg(long)]
    keep_going: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(seed) = arguments.seed {
        let verdict = rota_farm::run(seed, &Code::REAL);
        let last: String = verdict.last.iter().map(|line| format!("{line}\n")).collect();
        print(format!("{}\n{last}{}\n", verdict.shown, summary(&verdict)).as_bytes())?;
        return judge(&[verdict]);
    }
    let total = Total::new(arguments);
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(cpus).max(1);
    thread::scope(|scope| (0..jobs).for_each(|_| _ = scope.spawn(|| total.work(arguments))));
    total.finish()
}

/// One seed in a line.
fn summary(verdict: &Verdict) -> String {
    let Verdict { seed, slots, events, simulated_ns, digest, .. } = verdict;
    let ms = simulated_ns / 1_000_000;
    format!("seed {seed}: {slots} slots, {events} events in {ms} ms of simulated time, digest {digest:016x}")
}

/// What was found, and how to see it again.
fn shown(verdict: &Verdict) -> Option<String> {
    let finding = verdict.finding.as_ref()?;
    let (seed, at_ns) = (verdict.seed, finding.at_ns);
    Some(format!("seed {seed}, at {at_ns} ns: {}\nrepeat it with: rota farm --seed {seed}", finding.fault))
}

fn judge(verdicts: &[Verdict]) -> Result<(), Failure> {
    let found: Vec<String> = verdicts.iter().filter_map(shown).collect();
    match found.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(anyhow!(found.join("\n")))),
    }
}

/// What all threads share.
struct Total {
    next: AtomicU64,
    stopped: AtomicBool,
    seeds: AtomicU64,
    slots: AtomicU64,
    events: AtomicU64,
    found: Mutex<BTreeMap<u64, Verdict>>,
    started: Instant,
    bar: ProgressBar,
}

impl Total {
    fn new(arguments: &Arguments) -> Total {
        let bar = ProgressBar::new(arguments.seeds);
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len} seeds in {elapsed}  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Total {
            next: AtomicU64::new(arguments.from),
            stopped: AtomicBool::new(false),
            seeds: AtomicU64::new(0),
            slots: AtomicU64::new(0),
            events: AtomicU64::new(0),
            found: Mutex::default(),
            started: Instant::now(),
            bar,
        }
    }

    /// Runs seed after seed.
    fn work(&self, arguments: &Arguments) {
        let is_over = || arguments.length.is_some_and(|length| self.started.elapsed() >= length);
        while !self.stopped.load(Ordering::Relaxed) && !is_over() {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            let enough = seed.wrapping_sub(arguments.from) >= arguments.seeds;
            if enough && self.slots.load(Ordering::Relaxed) >= arguments.slots {
                return;
            }
            let verdict = rota_farm::run(seed, &Code::REAL);
            self.seeds.fetch_add(1, Ordering::Relaxed);
            self.slots.fetch_add(verdict.slots, Ordering::Relaxed);
            self.events.fetch_add(verdict.events, Ordering::Relaxed);
            self.bar.inc(1);
            self.bar.set_message(self.speed());
            if let Some(shown) = shown(&verdict) {
                self.bar.suspend(|| shown.lines().for_each(note));
                self.stopped.fetch_or(!arguments.keep_going, Ordering::Relaxed);
                self.found.lock().expect("no thread panics while it holds this").insert(seed, verdict);
            }
        }
    }

    fn speed(&self) -> String {
        let elapsed_ms = self.started.elapsed().as_millis().max(1) as u64;
        let per_s = |count: &AtomicU64| HumanCount(count.load(Ordering::Relaxed) * 1000 / elapsed_ms);
        let slots = HumanCount(self.slots.load(Ordering::Relaxed));
        format!("{} seeds and {} events a second, {slots} slots", per_s(&self.seeds), per_s(&self.events))
    }

    fn finish(self) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        let (seeds, found) =
            (self.seeds.load(Ordering::Relaxed), self.found.lock().map_or(0, |found| found.len()));
        let ms = self.started.elapsed().as_millis();
        print(
            format!(
                "{seeds} seeds in {ms} ms: {}, {} events\n",
                self.speed(),
                HumanCount(self.events.load(Ordering::Relaxed))
            )
            .as_bytes(),
        )?;
        match found {
            0 => Ok(()),
            found => Err(Failure::Failed(anyhow!("{found} seeds have found something, see above"))),
        }
    }
}
