//! Table switches under load on a real kernel: `examples/switches` in a guest.
//!
//! Ten thousand of them take about an hour of instruction-counted time:
//! `ROTA_SWITCHES=10000 cargo test -p rota-sched --test lab -- --ignored one_cpu`.

use std::time::Duration;

use rota_lab::{Clock, Image, Kernel, Vm};

use crate::{program, tell};

/// Few enough for a loaded machine, which needs about half a second for each.
const SWITCHES: u32 = 100;
/// For one switch, and for the boot.
const PATIENCE: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(240)];

fn switches(kernel: &str, cpus: u32, clock: Clock, count: u32) {
    let kernel = Kernel::fetch(kernel, &mut |message| println!("{message}")).unwrap();
    let mut image = Image::new(&kernel).unwrap();
    image.own_program(&program("examples/switches"), "/usr/bin/switches").unwrap();
    image.command(&format!("switches {count}"));
    let mut vm = Vm::new(kernel, cpus);
    vm.clock = clock;
    vm.alone = false;
    let timeout = PATIENCE[0] * count + PATIENCE[1];
    vm.run(&image, timeout, &mut tell).unwrap().ok().unwrap();
}

/// No promise is missed for a reason of Rota's own, no CPU sees two tables in a round, and all end at the last one.
#[test]
#[ignore = "boots a kernel"]
fn one_cpu_misses_nothing() {
    let count = std::env::var("ROTA_SWITCHES").map_or(SWITCHES, |count| count.parse().unwrap());
    switches("7", 1, Clock::Instructions, count);
}

/// The CPUs change over together, on the older kernel too. What the emulator takes from each is not judged.
#[test]
#[ignore = "boots a kernel"]
fn two_cpus_change_over_together() {
    switches("6.18", 2, Clock::Real, 20);
}
