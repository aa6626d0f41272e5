//! How long it takes to ask the hosts of a fleet whether they could take a tenant:
//! `cargo bench -p rota-rules --bench fleet [HOSTS]`, 10,000 hosts of 64 to 256 CPUs unless told otherwise.
//!
//! The hosts are drawn from a seed, and are the same each time. `copied` asks every tenth of them as one would without
//! [`Planner::consider`]: the host's file is read with the newcomer, the planner is copied and changed, and the plans
//! are compared. `asked` is [`Host::ask`], which tries the edit out and undoes it; the newcomer's file is read once.

use std::time::{Duration, Instant};

use rota_model::config::{Source, parse};
use rota_model::{Topology, quote};
use rota_plan::{Edits, Options, Plan, Planner};
use rota_rules::fleet::{Answer, Host, Newcomers};

const HOSTS: usize = 10_000;
/// So many hosts are in memory at a time.
const BATCH: usize = 500;
/// Every so many hosts are asked by copying, too.
const COPIED: usize = 10;

/// Knuth's linear congruential generator (MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

fn source(path: &str, text: String) -> Source {
    Source { path: path.to_owned(), text }
}

fn tenant(name: &str, vcpus: u64, percent: u64, latency_ms: u64) -> String {
    format!(
        "[[tenant]]\nname = {}\nclass = \"reserved\"\nvcpus = {vcpus}\nshare = 0.{percent:02}\nlatency = \
         \"{latency_ms}ms\"\nmatch = {{ vm = \"qemu:{name}\" }}\n",
        quote(name)
    )
}

/// A host of 64 to 256 CPUs, of which tenants have reserved 40 to 95 percent.
fn host(number: usize, random: &mut Random) -> Source {
    let cpus = random.of(&[64, 96, 128, 192, 256]);
    let mut text = format!("[host]\ncpus = \"0-{}\"\nhousekeeping = \"0-1\"\n", cpus - 1);
    let wanted = (cpus - 2) * (40 + random.below(56));
    let mut reserved = 0;
    for tenant_number in 0.. {
        let vcpus = random.of(&[1, 1, 2, 2, 4, 8]);
        let percent = random.of(&[5, 10, 20, 25, 30, 50, 75]);
        if reserved + vcpus * percent > wanted {
            break;
        }
        reserved += vcpus * percent;
        let latency_ms = random.of(&[5, 10, 20, 20, 50, 100]);
        text += &tenant(&format!("vm-{tenant_number}"), vcpus, percent, latency_ms);
    }
    source(&format!("host-{number}.toml"), text)
}

fn newcomers() -> [Source; 3] {
    [(1, 25, 20), (4, 50, 20), (16, 90, 10)].map(|(vcpus, percent, latency_ms)| {
        source("newcomer.toml", tenant("newcomer", vcpus, percent, latency_ms))
    })
}

/// A host's planner and plan, to be copied.
struct Copied {
    source: Source,
    planner: Planner,
    before: Plan,
}

impl Copied {
    fn new(source: &Source) -> Option<Copied> {
        let own = parse(std::slice::from_ref(source), &Topology::default()).expect("it is right");
        let mut planner = Planner::new(own, &Options::default()).ok()?;
        planner.restock();
        let before = planner.plan();
        Some(Copied { source: source.clone(), planner, before })
    }

    /// Whether the newcomer fits, and how many vCPUs move.
    fn ask(&self, newcomer: &Source) -> Option<usize> {
        let all = parse(&[self.source.clone(), newcomer.clone()], &Topology::default()).expect("it is right");
        let mut planner = self.planner.clone();
        let present = planner.model().tenants.len();
        let edits: Edits =
            (0..).zip(&all.tenants).skip(present).map(|(id, tenant)| (id, Some(tenant.clone()))).collect();
        planner.update(edits).ok()?;
        let after = planner.plan();
        Some(self.before.vcpus.iter().zip(&after.vcpus).filter(|(old, new)| old.cpus != new.cpus).count())
    }
}

/// How long questions took, by what became of them.
#[derive(Default)]
struct Times {
    free: Vec<Duration>,
    anew: Vec<Duration>,
    refused: Vec<Duration>,
}

impl Times {
    fn add(&mut self, answer: &Answer, time: Duration) {
        match (answer.fits, answer.moved.is_empty()) {
            (true, true) => self.free.push(time),
            (true, false) => self.anew.push(time),
            (false, _) => self.refused.push(time),
        }
    }

    fn print(self, way: &str) {
        line(&format!("{way}, fits beside all"), self.free);
        line(&format!("{way}, fits if others move"), self.anew);
        line(&format!("{way}, does not fit"), self.refused);
    }
}

fn line(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let Some(last) = times.len().checked_sub(1) else { return };
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let mean = us(times.iter().sum()) / times.len() as f64;
    let [half, most] = [0.5, 0.99].map(|part| us(times[(last as f64 * part) as usize]));
    println!(
        "{what:<28} {:>6} questions  mean {mean:>8.1} us  p50 {half:>8.1} us  p99 {most:>9.1} us",
        times.len()
    );
}

fn main() {
    let count = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(HOSTS);
    let (mut random, newcomers) = (Random(1), newcomers());
    let (mut planned, mut asked, mut copied) = (Duration::ZERO, Times::default(), Times::default());
    for first in (0..count).step_by(BATCH) {
        let numbers = first..count.min(first + BATCH);
        let sources: Vec<Source> = numbers.map(|number| host(number, &mut random)).collect();
        let began = Instant::now();
        let hosts: Vec<Host> =
            sources.iter().map(|source| Host::new(source.clone()).expect("it is right")).collect();
        planned += began.elapsed();
        let others: Vec<Option<Copied>> = sources.iter().step_by(COPIED).map(Copied::new).collect();
        for newcomer in &newcomers {
            let prepared = Newcomers::new(newcomer.clone());
            let answers: Vec<Answer> = hosts
                .iter()
                .map(|host| {
                    let began = Instant::now();
                    let answer = host.ask(&prepared);
                    asked.add(&answer, began.elapsed());
                    answer
                })
                .collect();
            for (other, answer) in others.iter().zip(answers.iter().step_by(COPIED)) {
                let Some(other) = other else { continue };
                let began = Instant::now();
                let moved = other.ask(newcomer);
                copied.add(answer, began.elapsed());
                assert_eq!(moved, answer.fits.then_some(answer.moved.len()), "both ways have one answer");
            }
        }
    }
    println!("{count} hosts planned in {:.1} s, one after the other", planned.as_secs_f64());
    copied.print("copied");
    asked.print("asked");
}
