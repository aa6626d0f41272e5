//! The driver with tenants that disturb each other in caches: what it asks for, and what becomes of it.

use std::collections::BTreeMap;

use rota_model::Topology;
use rota_model::config::{Source, parse};
use rota_sched::Installed;

use super::*;
use crate::life::{Action, Event};
use crate::{Chore, Command, Driver};

const MS: u64 = 1_000_000;

/// Eight tenants on four CPUs of two cache domains, in a table that holds.
struct Host {
    driver: Driver,
    now_ns: u64,
    said: Vec<String>,
    tables: u64,
}

impl Host {
    fn new(strategy: &str) -> Host {
        let text = format!(
            "[host]\ncpus = \"0-3\"\nhousekeeping = \"\"\nsystem = {{ share = 0.01, latency = \"50ms\" }}\n\
             caches = [\"0-1\", \"2-3\"]\ninterference = \"{strategy}\"\n[[tenant]]\nname = \"vm-{{i}}\"\ncount = 8\n\
             class = \"reserved\"\nshare = 0.4\nlatency = \"20ms\"\nmatch = {{ cgroup = \"vm-{{i}}\" }}\n"
        )
        .replace("housekeeping = \"\"\n", "");
        let sources = [Source { path: "rota.toml".to_owned(), text }];
        let model = parse(&sources, &Topology::default()).unwrap_or_else(|errors| panic!("{errors}"));
        let mut host = Host { driver: Driver::new(0, model, &[]), now_ns: 0, said: Vec::new(), tables: 0 };
        for vm in 0..8 {
            let cgroup = rota_model::Cgroup { path: format!("vm-{vm}").into(), id: 100 + vm };
            host.driver.tell(Event::Appeared { tenant: format!("vm-{vm}"), cgroup });
        }
        host.run(200 * MS, |_, _| panic!("nothing is counted yet"), true);
        host
    }

    /// Carries out what is asked for. `misses` answers what is to be counted, up to now.
    fn run(&mut self, ns: u64, mut misses: impl FnMut(u64, u64) -> Result<u64, String>, is_quiet: bool) {
        let end_ns = self.now_ns + ns;
        while self.now_ns < end_ns {
            self.now_ns += 5 * MS;
            while let Some(command) = self.driver.next(self.now_ns) {
                match command {
                    Command::Act(Action::Say(line)) => self.said.push(line),
                    Command::Act(Action::Install(_)) => {
                        self.tables += 1;
                        let installed = Installed { generation: self.tables, adopted_at_ns: self.now_ns };
                        self.driver.installed(self.now_ns, Ok(installed));
                    }
                    Command::Do(Chore::CountMisses) if is_quiet => {
                        self.driver.misses_counted(self.now_ns, Ok(Vec::new()));
                    }
                    Command::Do(Chore::CountMisses) => {
                        let of = |vm: u64| {
                            let ran_ns = self.now_ns * 2 / 5;
                            let counted = Counted { ran_ns, references: 0, misses: misses(vm, ran_ns)? };
                            Ok(ThreadCount { cgroup: 100 + vm, tid: 0, counted })
                        };
                        let counted: Result<Vec<ThreadCount>, String> = (0..8).map(of).collect();
                        self.driver.misses_counted(self.now_ns, counted);
                    }
                    _ => {}
                }
            }
        }
    }

    fn status(&self) -> InterferenceStatus {
        self.driver.status(self.now_ns, 1, None).interference.expect("something is to be done")
    }

    /// Lines fetched in each cache domain.
    fn by_domain(&self) -> BTreeMap<u32, u64> {
        let mut sums = BTreeMap::new();
        for cpu in self.status().cpus {
            *sums.entry(cpu.domain).or_insert(0) += cpu.lines_per_ms;
        }
        sums
    }
}

#[test]
fn without_a_strategy_nothing_is_done_or_shown() {
    let mut host = Host::new("off");
    let tables = host.tables;
    host.run(2_000 * MS, |_, _| panic!("nothing is counted"), false);
    assert_eq!((host.tables, host.driver.status(host.now_ns, 1, None).interference), (tables, None));
    assert_eq!(host.driver.due_ns(), u64::MAX);
}

#[test]
fn at_random_places_change_four_times_a_second_and_seldom_a_word_is_said() {
    let mut host = Host::new("random");
    let tables = host.tables;
    host.run(8_000 * MS, |_, _| panic!("nothing is counted"), false);
    let status = host.status();
    assert!((30..=34).contains(&(host.tables - tables)), "{}", host.tables);
    assert!(status.exchanges >= 30 && status.moves > status.exchanges, "{status:?}");
    let said = host.said.iter().filter(|line| line.starts_with("interference: ")).count();
    assert_eq!((status.strategy.as_str(), said), ("random", 1), "{:?}", host.said);
    assert!(host.driver.is_settled());
}

#[test]
fn without_counters_it_is_said_once_and_places_change_at_random() {
    let mut host = Host::new("measured");
    host.run(3_000 * MS, |_, _| Err("no PMU".to_owned()), false);
    let status = host.status();
    assert_eq!((status.strategy.as_str(), status.no_counters.as_deref()), ("random", Some("no PMU")));
    assert!(status.exchanges > 8, "{status:?}");
    let lines = host.said.iter().filter(|line| line.contains("no PMU"));
    assert_eq!(lines.count(), 1, "{:?}", host.said);
    host.run(61_000 * MS, |_, ran_ns| Ok(ran_ns / MS), false);
    let status = host.status();
    assert_eq!((status.strategy.as_str(), status.no_counters), ("measured", None), "they are tried again");
}

/// Whoever is in the first domain fills its cache; then others do.
#[test]
fn those_that_fill_caches_are_spread_and_then_stay() {
    let mut host = Host::new("measured");
    host.run(500 * MS, |_, ran_ns| Ok(ran_ns / MS * 20), false);
    assert_eq!((host.status().exchanges, host.status().alarms), (0, 0), "nobody does");
    let in_first: Vec<u64> = {
        let seats = host.driver.seats();
        let first = seats.iter().filter(|seat| seat.cpus[0] < 2 && seat.vcpu.0 > 0);
        first.map(|seat| u64::from(seat.vcpu.0) - 1).collect()
    };
    assert_eq!(in_first.len(), 4);
    let from_ns = host.now_ns * 2 / 5;
    let hungry = |vm: u64, ran_ns: u64| {
        let grown = if in_first.contains(&vm) { (ran_ns - from_ns) / MS * 20_000 } else { 0 };
        Ok(ran_ns / MS * 20 + grown)
    };
    host.run(300 * MS, hungry, false);
    let status = host.status();
    assert_eq!((status.hungry, status.alarms), (4, 4), "{status:?}");
    let sums = host.by_domain();
    assert!(sums[&0].abs_diff(sums[&1]) < sums[&0] / 4, "{sums:?}");
    assert!(status.last.as_ref().is_some_and(|line| line.contains("cache domain")), "{status:?}");
    let moves = status.moves;
    host.run(5_000 * MS, hungry, false);
    assert_eq!(host.status().moves, moves, "spread as they are, they stay");
}

/// Nobody who only computes, idles, or fetches in bursts is taken for one that fills caches, in a minute.
#[test]
fn nobody_is_taken_for_hungry_who_is_not() {
    let mut host = Host::new("measured");
    let (mut noise, mut sums, mut before) = (1u64, [0u64; 8], 0);
    host.run(
        60_000 * MS,
        |vm, ran_ns| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ms = (ran_ns - before.min(ran_ns)) / MS;
            let per_ms = match vm {
                0..4 => 10 + (noise >> 40) % 200,
                4 | 5 if (noise >> 40) % 40 == 0 => 40_000,
                _ => 0,
            };
            if vm == 7 {
                before = ran_ns;
            }
            sums[vm as usize] += ms * per_ms;
            Ok(sums[vm as usize])
        },
        false,
    );
    let status = host.status();
    assert_eq!((status.exchanges, status.hungry), (0, 0), "{status:?}");
    assert!(status.alarms < 1, "{status:?}");
}

#[test]
fn a_table_that_is_refused_is_tried_again() {
    let mut host = Host::new("random");
    let mut refused = 0;
    for _ in 0..400 {
        host.now_ns += 5 * MS;
        while let Some(command) = host.driver.next(host.now_ns) {
            if let Command::Act(Action::Install(_)) = command {
                refused += 1;
                host.driver.installed(host.now_ns, Err(anyhow::anyhow!("busy")));
            }
        }
    }
    assert!((1..=4).contains(&refused), "once, and again after a second each: {refused}");
    host.run(1_500 * MS, |_, _| unreachable!(), false);
    assert!(host.driver.is_settled() && host.status().exchanges > 0);
}
