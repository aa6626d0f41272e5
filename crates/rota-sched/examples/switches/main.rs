//! Switches from one table to the next thousands of times, under load and with tenants that come and go, and fails if a
//! promise was missed or a CPU saw two tables in one round.
//!
//! `switches COUNT [SEED]`, as root on a machine that may lose its scheduler: a lab guest (`tests/lab/switches.rs`).
//! With instruction-counted time and one CPU no promise may be missed but for a kernel thread's or an interrupt's
//! sake. On several CPUs the emulator's own turn-taking stops each of them: there missed promises and shares are told,
//! beside the pauses of a control, and not judged.

mod load;
mod tenants;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rota_model::{CpuSet, Topology};
use rota_sched::{Cause, LetGo, Options, QueueAccount, Scheduler};

use tenants::{Guest, Tenants};

/// Queues for the system, the constant tenants and those that come and go, twice: a number rests before its next use.
const QUEUES: u32 = 128;
/// What changing from one task to the next costs at most in the guest: some 10 us were seen.
const SWITCH_NS: u64 = 20_000;
/// Less than what real-time tasks are granted of each second.
const CONTROL_NS: u64 = 500_000_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().context("how many switches?")?.parse()?;
    let seed: u64 = arguments.next().map_or(Ok(1), |seed| seed.parse())?;
    let nr_cpus = std::thread::available_parallelism()?.get() as u32;
    println!("{count} switches on {nr_cpus} CPUs, seed {seed}");
    println!(
        "control: the longest pause of a real-time probe alone on its CPU was {} us",
        control_us(nr_cpus)?
    );

    let cpus: CpuSet = (0..nr_cpus).collect();
    let options = Options {
        nr_cpus,
        topology: Topology::flat(&cpus),
        housekeeping: CpuSet::default(),
        queues: QUEUES,
        table_bytes: Options::TABLE_BYTES,
    };
    let mut scheduler = Scheduler::start(&options)?;
    let mut tenants = Tenants::new(&scheduler, cpus, seed)?;
    let mut exact = Exact { judged: nr_cpus == 1, missed: 0 };
    let mut waits = Waits::default();
    for number in 1..=count {
        tenants.change(&mut scheduler)?;
        let start = Instant::now();
        let installed = scheduler.install(tenants.plan()?)?;
        waits.add(start.elapsed());
        ensure!(installed.generation == number, "switch {number} made generation {}", installed.generation);
        if number == 1 {
            tenants.promises_begin(&scheduler)?;
        }
        exact.check(&scheduler, &tenants, number)?;
        if number.is_multiple_of(100) {
            println!("{number} switches, {} ms each", waits.mean_ms());
        }
    }
    // The last table has come into force; a CPU says so when it next decides.
    std::thread::sleep(Duration::from_millis(100));
    exact.check(&scheduler, &tenants, count)?;
    report(&scheduler, &tenants, count, nr_cpus == 1)?;
    println!("installing took {} ms on average, {} ms at most", waits.mean_ms(), waits.longest.as_millis());
    println!("missed promises: {}", exact.missed);
    Ok(())
}

/// How long real-time probes, one a CPU, are stopped at most by something that no scheduler can know, in us.
fn control_us(nr_cpus: u32) -> Result<u64> {
    let until_ns = load::now_ns() + CONTROL_NS;
    let probes: Vec<_> =
        (0..nr_cpus).map(|cpu| load::Busy::real_time(cpu, until_ns)).collect::<Result<_>>()?;
    probes.iter().try_for_each(load::Busy::wait)?;
    Ok(probes.iter().map(|probe| probe.longest_gap_ns() / 1000).max().unwrap_or(0))
}

/// How long installing took.
#[derive(Default)]
struct Waits {
    total: Duration,
    longest: Duration,
    count: u32,
}

impl Waits {
    fn add(&mut self, wait: Duration) {
        self.total += wait;
        self.longest = self.longest.max(wait);
        self.count += 1;
    }

    fn mean_ms(&self) -> f64 {
        self.total.as_secs_f64() * 1000.0 / f64::from(self.count.max(1))
    }
}

/// What is checked after every switch.
struct Exact {
    /// Whether a missed promise is a failure.
    judged: bool,
    missed: u64,
}

impl Exact {
    fn check(&mut self, scheduler: &Scheduler, tenants: &Tenants, switches: u64) -> Result<()> {
        if let Some(LetGo { reason, .. }) = scheduler.exited() {
            anyhow::bail!("the scheduler is gone after {switches} switches: {reason}");
        }
        for cpu in scheduler.cpus()? {
            ensure!(cpu.mixed == 0, "CPU {} mixed tables at switch {switches}: {cpu:?}", cpu.cpu);
            ensure!(cpu.generation <= switches, "CPU {} is ahead of switch {switches}: {cpu:?}", cpu.cpu);
        }
        self.missed = 0;
        for (queue, guest) in accounts(scheduler, tenants)? {
            ensure!(
                missed_by_rota(&queue) == 0 || is_a_switch_late(&queue, guest) || !self.judged,
                "{} missed its bound of {} us at switch {switches}: {queue:?}",
                guest.name(),
                guest.latency_ns() / 1000
            );
            self.missed += queue.missed;
        }
        Ok(())
    }
}

/// The promised queues with their tenants.
fn accounts<'a>(scheduler: &Scheduler, tenants: &'a Tenants) -> Result<Vec<(QueueAccount, &'a Guest)>> {
    let queues = scheduler.queues()?.into_iter();
    Ok(queues
        .filter_map(|queue| Some((tenants.promised(queue.tenant)?, queue)))
        .map(|(g, q)| (q, g))
        .collect())
}

/// Every CPU has to be at the last table. Each constant tenant has to have had its share, if no emulator takes from it.
fn report(scheduler: &Scheduler, tenants: &Tenants, count: u64, is_exact: bool) -> Result<()> {
    for cpu in scheduler.cpus()? {
        ensure!(cpu.generation == count, "CPU {} stopped at table {} of {count}", cpu.cpu, cpu.generation);
        println!("CPU {}: generation {}, mixed {}", cpu.cpu, cpu.generation, cpu.mixed);
    }
    let elapsed_ns = tenants.elapsed_ns();
    for (queue, guest) in accounts(scheduler, tenants)? {
        let Some(probe) = guest.probe().filter(|_| guest.is_constant()) else { continue };
        let received = (queue.used_ns - guest.used_before_ns()) as f64 / elapsed_ns as f64;
        println!(
            "{}: promised {:.3}, received {received:.4}; bound {} us, longest blackout {} us, pause as its probe \
             saw it {} us; missed {} ({})",
            guest.name(),
            guest.share(),
            guest.latency_ns() / 1000,
            queue.blackout_max_ns / 1000,
            probe.longest_gap_ns() / 1000,
            queue.missed,
            causes(&queue)
        );
        ensure!(received >= guest.share() || !is_exact, "{} received less than promised", guest.name());
    }
    println!("came {}, left {}, over {:.1} s", tenants.came(), tenants.left(), elapsed_ns as f64 / 1e9);
    Ok(())
}

/// Whether the longest wait is over the bound by no more than what changing tasks costs. The planner does not keep that
/// much back yet, so a wait that is as long as it may be, from one table to the next, can be longer by so much.
fn is_a_switch_late(queue: &QueueAccount, guest: &Guest) -> bool {
    queue.blackout_max_ns <= guest.latency_ns() + SWITCH_NS
}

/// Missed promises that nobody else is to blame for: a kernel thread may take a CPU for as long as it likes.
fn missed_by_rota(queue: &QueueAccount) -> u64 {
    let caused = Cause::ALL.iter().zip(queue.missed_by_cause);
    caused.filter(|(cause, _)| matches!(cause, Cause::Rota | Cause::Floor)).map(|(_, missed)| missed).sum()
}

fn causes(queue: &QueueAccount) -> String {
    let named = Cause::ALL.iter().zip(queue.missed_by_cause).filter(|(_, missed)| *missed > 0);
    named.map(|(cause, missed)| format!("{cause:?} {missed}")).collect::<Vec<_>>().join(", ")
}
