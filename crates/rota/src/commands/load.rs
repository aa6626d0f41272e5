//! `rota load`: threads that take CPU time from others, for a while.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, Subcommand, value_parser};
use nix::sched::{CpuSet as Affinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use rota_model::CpuSet;
use rota_sim::Rng;
use rota_sim::programs::Intermittent;

use super::{Failure, length, print};

/// Take CPU time as a neighbour would: to see how a tenant fares beside one
///
/// Runs wherever it is started: as its own cgroup says, which can be a tenant. Says at the end what its threads were
/// given. Ends by itself, after an hour at most.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    pattern: Pattern,
    #[command(flatten)]
    common: Common,
}

/// How it takes time, after Zhao, *Understanding and optimizing parallel performance in multi-tenant cloud*, 3.2.4.
#[derive(Clone, Copy, Debug, Subcommand)]
enum Pattern {
    /// Computes all the time
    Persistent,
    /// Computes for a while and sleeps for a while, in turn
    Periodic {
        /// How much CPU time it takes each time
        #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = length)]
        on: Duration,
        /// How long it sleeps
        #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = length)]
        off: Duration,
    },
    /// Computes for a time that is drawn each time, and sleeps in proportion to it
    Intermittent {
        /// The least CPU time it takes each time
        #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = length)]
        least: Duration,
        /// The most
        #[arg(long, value_name = "DURATION", default_value = "40ms", value_parser = length)]
        most: Duration,
        /// How much of a CPU each thread wants, in percent
        #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = value_parser!(u32).range(1..=99))]
        demand: u32,
        /// Of all chance
        #[arg(long, value_name = "N", default_value = "1")]
        seed: u64,
    },
}

/// What every pattern has.
#[derive(Debug, Args)]
struct Common {
    /// For how long, an hour at most
    #[arg(long = "for", value_name = "DURATION", default_value = "30s", value_parser = length, global = true)]
    length: Duration,
    /// How many threads
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = value_parser!(u32).range(1..=1024),
        global = true
    )]
    threads: u32,
    /// Bind the threads to these CPUs, one after the other
    #[arg(long, value_name = "CPUS", global = true)]
    cpus: Option<CpuSet>,
}

pub fn run(Arguments { pattern, common }: &Arguments) -> Result<(), Failure> {
    check(pattern, common).map_err(Failure::Usage)?;
    let until = Instant::now() + common.length;
    let cpus: Vec<u32> = common.cpus.iter().flat_map(CpuSet::iter).collect();
    let pattern = *pattern;
    let threads: Vec<_> = (0..common.threads as usize)
        .map(|number| {
            let cpu = (!cpus.is_empty()).then(|| cpus[number % cpus.len()]);
            thread::spawn(move || work(pattern, number as u64, cpu, until))
        })
        .collect();
    let mut used = Duration::ZERO;
    for thread in threads {
        used += thread.join().map_err(|_| anyhow!("a thread has failed"))??;
    }
    print(summary(pattern, common, used).as_bytes())
}

fn check(pattern: &Pattern, common: &Common) -> Result<()> {
    if let Pattern::Intermittent { least, most, .. } = pattern {
        ensure!(least <= most, "--least is more than --most; exchange the two");
    }
    let Some(cpus) = &common.cpus else { return Ok(()) };
    ensure!(!cpus.is_empty(), "--cpus names no CPU; write e.g. 0-3, or leave it out");
    for cpu in cpus.iter() {
        bind(cpu).with_context(|| format!("CPU {cpu} of --cpus cannot be used; leave it out"))?;
    }
    Ok(())
}

/// Has the calling thread run on one CPU alone from now on.
fn bind(cpu: u32) -> Result<()> {
    let mut cpus = Affinity::new();
    cpus.set(cpu as usize)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &cpus)?)
}

/// One thread's life. Returns the CPU time that it was given.
fn work(pattern: Pattern, number: u64, cpu: Option<u32>, until: Instant) -> Result<Duration> {
    if let Some(cpu) = cpu {
        bind(cpu)?;
    }
    let began = cpu_time()?;
    match pattern {
        Pattern::Persistent => compute(Duration::MAX, until)?,
        Pattern::Periodic { on, off } => in_turn(until, || (on, off))?,
        Pattern::Intermittent { least, most, demand, seed } => {
            let ns = |time: Duration| time.as_nanos() as u64;
            let (mut rng, draws) =
                (Rng::new(seed, number), Intermittent::new(ns(least), ns(most)).with_demand(demand));
            in_turn(until, || {
                let (on_ns, off_ns) = draws.draw(&mut rng);
                (Duration::from_nanos(on_ns), Duration::from_nanos(off_ns))
            })?;
        }
    }
    Ok(cpu_time()? - began)
}

/// Computes and sleeps for these times, again and again.
fn in_turn(until: Instant, mut times: impl FnMut() -> (Duration, Duration)) -> Result<()> {
    while Instant::now() < until {
        let (on, off) = times();
        compute(on, until)?;
        thread::sleep(off.min(until.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// So much is computed between two looks at the clock: some ten microseconds.
const ROUNDS: u64 = 20_000;

/// Takes so much CPU time, unless the end comes first.
fn compute(time: Duration, until: Instant) -> Result<()> {
    let end = cpu_time()?.saturating_add(time);
    let mut sum = 0_u64;
    while Instant::now() < until && cpu_time()? < end {
        for round in 0..ROUNDS {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(round));
        }
    }
    Ok(())
}

/// The calling thread's, so far.
fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("reading a thread's CPU time")?.into())
}

/// What came of it.
fn summary(pattern: Pattern, Common { length, threads, .. }: &Common, used: Duration) -> String {
    let (name, demand) = match pattern {
        Pattern::Persistent => ("persistent", 1.0),
        Pattern::Periodic { on, off } => ("periodic", on.as_secs_f64() / (on + off).as_secs_f64()),
        Pattern::Intermittent { demand, .. } => ("intermittent", f64::from(demand) / 100.0),
    };
    let (seconds, wanted) = (length.as_secs_f64(), demand * f64::from(*threads));
    let given = used.as_secs_f64() / seconds;
    let plural = if *threads == 1 { "" } else { "s" };
    format!(
        "{name} interference, {threads} thread{plural}, {seconds:.1} s: wanted {wanted:.2} CPUs, was given {given:.2}\n"
    )
}
