//! A random host with its tenants and what they run, as a scenario's text.

use std::fmt::{self, Write as _};

use rota_sim::Rng;

use super::swarm::{COSTS_STREAM, Swarm, TIMETABLE_STREAM, TOGETHER_STREAM, spread};

/// Shares that do not add up to whole CPUs, in millionths.
const ODD_SHARES: [u64; 6] = [333_300, 940_000, 600_000, 700_000, 123_456, 510_000];
const LATENCIES_MS: [u64; 8] = [2, 5, 10, 10, 20, 20, 50, 100];

/// The text of the host of a swarm.
pub fn text(swarm: &Swarm, rng: &mut Rng) -> String {
    let mut draft = Draft { swarm, rng, text: String::new() };
    let written = draft.host().and_then(|()| draft.tenants());
    written.expect("a string takes all");
    draft.text
}

struct Draft<'s> {
    swarm: &'s Swarm,
    rng: &'s mut Rng,
    text: String,
}

impl Draft<'_> {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.below(of.len() as u64) as usize]
    }

    fn host(&mut self) -> fmt::Result {
        let Swarm { cpus, siblings, housekeeping, .. } = *self.swarm;
        let lists = |size: u32| {
            let list = |first: u32| format!("\"{first}-{}\"", (first + size).min(cpus) - 1);
            (0..cpus).step_by(size as usize).map(list).collect::<Vec<_>>().join(", ")
        };
        writeln!(self.text, "[host]\ncpus = \"0-{}\"", cpus - 1)?;
        if housekeeping > 0 {
            writeln!(self.text, "housekeeping = \"0-{}\"", housekeeping - 1)?;
        }
        let cache = siblings * self.pick(&[2, 4, 8]);
        let socket = 2 * cache;
        if siblings > 1 {
            writeln!(self.text, "siblings = [{}]", lists(siblings))?;
        }
        writeln!(self.text, "caches = [{}]\nsockets = [{}]", lists(cache), lists(socket))?;
        let floor = self.pick(&["0.005", "0.005", "0.02", "0.001"]);
        let placement = self.pick(&["worst-fit", "best-fit"]);
        writeln!(self.text, "floor = {floor}\nplacement = \"{placement}\"")?;
        // As the promises are to be kept net of what changes cost, so much is kept back for it.
        let slack_us = self.pick(&[0, 2, 2, 10, 50, 200]);
        writeln!(
            self.text,
            "switch_cost = \"{}us\"\nmigration_cost = \"{}us\"",
            slack_us + 15,
            slack_us + 5
        )?;
        writeln!(self.text, "\n[costs]\ntimer_slack = \"{slack_us}us\"")?;
        // On half of the hosts a change takes most of that, so that it shows who pays for it.
        if Rng::new(self.swarm.seed, COSTS_STREAM).chance(1, 2) {
            writeln!(self.text, "switch = \"10us\"")?;
        }
        Ok(())
    }

    fn tenants(&mut self) -> fmt::Result {
        let cpus = u64::from(self.swarm.cpus - self.swarm.housekeeping);
        let system = if self.swarm.housekeeping == 0 { 50_000 } else { 0 };
        // In millionths of a CPU.
        let mut left = cpus * (1_000_000 - system) / 100 * self.swarm.load_percent;
        // On one host of eight half of the VMs have their slots at fixed times.
        let mut timetables = Rng::new(self.swarm.seed, TIMETABLE_STREAM);
        let has_timetables = timetables.chance(1, 8);
        for number in 0..self.swarm.tenants {
            writeln!(self.text, "\n[[tenant]]\nname = \"t{number}\"")?;
            let kind = self.rng.below(10);
            let is_reserved = match kind {
                0 | 1 if self.swarm.shared => {
                    let weight = self.pick(&[1, 50, 100, 1000]);
                    writeln!(self.text, "class = \"shared\"\nweight = {weight}")?;
                    false
                }
                2 | 3 if self.swarm.background => {
                    writeln!(self.text, "class = \"background\"")?;
                    false
                }
                _ => true,
            };
            let vcpus = match self.rng.below(4) {
                0 => self.rng.between(1, cpus.min(6)),
                1 => self.rng.between(1, cpus.min(2)),
                _ => 1,
            };
            let is_vm = self.swarm.vms && self.rng.chance(1, 2);
            writeln!(self.text, "vcpus = {vcpus}")?;
            if is_reserved {
                self.reservation(vcpus, cpus, &mut left)?;
                if has_timetables && is_vm && timetables.chance(1, 2) {
                    writeln!(self.text, "timetable = true")?;
                }
            }
            let matcher = if is_vm { "vm = \"qemu:" } else { "cgroup = \"" };
            writeln!(self.text, "match = {{ {matcher}t{number}\" }}")?;
            self.workload(number, vcpus)?;
        }
        Ok(())
    }

    fn reservation(&mut self, vcpus: u64, cpus: u64, left: &mut u64) -> fmt::Result {
        let mean = cpus * self.swarm.load_percent * 10_000 / self.swarm.tenants / vcpus;
        let share = match self.rng.below(4) {
            0 => self.pick(&ODD_SHARES),
            _ => self.rng.between(mean / 2, mean * 3 / 2),
        };
        let share = share.min(*left / vcpus).clamp(10_000, 990_000);
        let share = if self.rng.chance(1, 100) { 1_000_000 } else { share };
        *left = left.saturating_sub(share * vcpus);
        let latency_ms = self.pick(&LATENCIES_MS);
        writeln!(self.text, "class = \"reserved\"\nshare = {}.{:06}", share / 1_000_000, share % 1_000_000)?;
        writeln!(self.text, "latency = \"{latency_ms}ms\"")?;
        let capped = self.swarm.capped && !(self.swarm.uncapped && self.rng.chance(1, 2));
        writeln!(self.text, "capped = {capped}")?;
        if self.swarm.exclusive && self.rng.chance(1, 6) {
            writeln!(self.text, "exclusive_cores = true")?;
        } else if self.swarm.affinities && self.rng.chance(1, 3) {
            let first = u64::from(self.swarm.housekeeping) + self.rng.below(cpus);
            let last = (first + self.rng.below(4)).min(u64::from(self.swarm.cpus) - 1);
            writeln!(self.text, "affinity = \"{first}-{last}\"")?;
        } else if (2..=cpus).contains(&vcpus) && Rng::new(self.swarm.seed, TOGETHER_STREAM).chance(1, 8) {
            writeln!(self.text, "together = true")?;
        }
        Ok(())
    }

    /// A time that is drawn, around `mean_us`.
    fn time(&mut self, mean_us: u64) -> String {
        match self.rng.below(3) {
            0 => format!("\"{mean_us}us\""),
            1 => format!("{{ uniform = [\"{}us\", \"{}us\"] }}", mean_us / 2, mean_us * 3 / 2),
            _ => format!("{{ exponential = \"{mean_us}us\" }}"),
        }
    }

    fn workload(&mut self, number: u64, vcpus: u64) -> fmt::Result {
        let most = if self.rng.chance(1, 20) { 60 } else { 3 * vcpus };
        let threads = self.rng.between(1, most);
        let (short, long) = (spread(self.rng, 5, 5_000), spread(self.rng, 20, 40_000));
        writeln!(self.text, "\n[[workload]]\ntenant = \"t{number}\"")?;
        if self.rng.chance(1, 3) {
            let kib = self.rng.below(64);
            writeln!(self.text, "working_set = {kib}")?;
        }
        let (a, b) = (self.time(short), self.time(long));
        let spin = self.pick(&["0ns", "20us", "forever"]);
        let text = match self.rng.below(14) {
            0..3 => format!("program = \"hog\"\nthreads = {threads}"),
            3 => {
                format!("program = \"periodic\"\nthreads = {threads}\non = \"{short}us\"\noff = \"{long}us\"")
            }
            4 => format!(
                "program = \"intermittent\"\nthreads = {threads}\nleast = \"{}us\"\nmost = \"{}us\"",
                short.min(long),
                short.max(long)
            ),
            5 => format!("program = \"phases\"\nthreads = {threads}\ncompute = {a}\nsleep = {b}"),
            6 => format!("program = \"phases\"\nthreads = {threads}\ncompute = {b}\nsleep = {a}"),
            7 => format!(
                "program = \"mutex\"\nthreads = {threads}\noutside = {b}\ninside = {a}\nspin = \"{spin}\""
            ),
            8 => format!(
                "program = \"spinlock\"\nthreads = {threads}\noutside = {b}\ninside = {a}\nordered = {}",
                self.rng.chance(1, 2)
            ),
            9 => format!("program = \"barrier\"\nthreads = {threads}\ncompute = {a}\nspin = \"{spin}\""),
            10 => format!("program = \"condition\"\nthreads = {}\ncompute = {a}\nbetween = {b}", threads + 1),
            11 => format!("program = \"fork-join\"\nthreads = {threads}\nparallel = {b}\nsequential = {a}"),
            12 => format!(
                "program = \"pipeline\"\nstages = {}\nthreads = {}\ncompute = {a}",
                self.rng.between(2, 4),
                1 + threads / 4
            ),
            _ => format!("program = \"server\"\nthreads = {threads}\nservice = {a}\narrival = {b}"),
        };
        writeln!(self.text, "{text}")
    }
}
