//! Boots kernels and runs trivial commands: what every other use of the lab stands on.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use rota_lab::{Clock, Image, Kernel, Outcome, Vm, tell_wait};
use std::time::Duration;

/// Long enough for a loaded machine; a boot takes three seconds, or ten in instruction-counted time.
const TIMEOUT: Duration = Duration::from_secs(240);

fn kernel(request: &str) -> Kernel {
    Kernel::fetch(request, &mut |message| println!("{message}")).unwrap()
}

fn image(kernel: &Kernel, command: &str) -> Image {
    let mut image = Image::new(kernel).unwrap();
    image.command(command);
    image
}

/// A machine beside which another guest may run.
fn machine(kernel: &Kernel, cpus: u32) -> Vm {
    Vm { alone: false, ..Vm::new(kernel.clone(), cpus) }
}

fn run(vm: &Vm, image: &Image) -> Outcome {
    vm.run(image, TIMEOUT, &mut tell_wait).unwrap()
}

fn text(outcome: &Outcome, name: &str) -> String {
    let content =
        outcome.results.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", outcome.results.keys()));
    String::from_utf8(content.clone()).unwrap()
}

/// The command runs on the kernel that was asked for, with what a scheduler needs, and its results come back.
fn boots(request: &str, cpus: u32) {
    let kernel = kernel(request);
    let command = "uname -r >/results/release; mkdir /results/deep
        nproc >/results/deep/cpus; cat /sys/kernel/sched_ext/state >/results/state
        cat /sys/fs/cgroup/cgroup.subtree_control >/results/controllers; ip -o addr show lo >/results/lo
        cat /sys/devices/system/clocksource/clocksource0/current_clocksource >/results/clock; exit 7";
    let outcome = run(&machine(&kernel, cpus), &image(&kernel, command));
    assert_eq!(outcome.status, 7, "{}", outcome.console);
    assert_eq!(text(&outcome, "release").trim(), kernel.version);
    assert_eq!(text(&outcome, "deep/cpus").trim(), cpus.to_string());
    assert_eq!(text(&outcome, "state").trim(), "disabled");
    for controller in ["cpu", "cpuset", "memory", "pids"] {
        assert!(
            text(&outcome, "controllers").split_whitespace().any(|word| word == controller),
            "no {controller}"
        );
    }
    assert!(text(&outcome, "lo").contains("127.0.0.1"));
    // Called tsc-early until the kernel, in its own time, has measured its rate.
    let clock = text(&outcome, "clock");
    assert!(["tsc", "tsc-early"].contains(&clock.trim()), "the clock is {clock}");
}

#[test]
#[ignore = "boots a kernel"]
fn boots_6_18() {
    boots("6.18", 2);
}

#[test]
#[ignore = "boots a kernel"]
fn boots_7() {
    boots("7", 2);
}

#[test]
#[ignore = "boots a kernel"]
fn boots_with_one_cpu_and_with_four() {
    boots("7", 1);
    boots("7", 4);
}

#[test]
#[ignore = "boots a kernel"]
fn programs_bring_their_libraries() {
    let kernel = kernel("7");
    let mut image = image(&kernel, "redis-server --version >/results/version");
    image.program_on_path("redis-server").unwrap();
    let outcome = run(&machine(&kernel, 2), &image).ok().unwrap();
    assert!(text(&outcome, "version").starts_with("Redis server"));
}

#[test]
#[ignore = "boots a kernel"]
fn instruction_counted_runs_repeat_byte_for_byte() {
    let kernel = kernel("7");
    let command =
        "dmesg; cat /proc/interrupts /proc/uptime /proc/schedstat /proc/stat; date +%s.%N >/results/time
        i=0; while [ $i -lt 50 ]; do i=$((i+1)); (echo $i >/dev/null) & done; wait
        cat /proc/loadavg /proc/uptime /proc/schedstat >/results/after";
    let image = image(&kernel, command);
    let mut vm = machine(&kernel, 2);
    vm.clock = Clock::Instructions;
    let [first, second] = [run(&vm, &image), run(&vm, &image)];
    assert_eq!(first.status, 0, "{}", first.console);
    assert_eq!(first.console, second.console);
    assert_eq!(first.results, second.results);
}

#[test]
#[ignore = "boots a kernel"]
fn a_guest_that_dies_is_an_error_that_shows_its_console() {
    let kernel = kernel("7");
    // A second for the console to write it: a panic does not wait for that.
    let command = "echo before the end; sleep 1; echo c >/proc/sysrq-trigger; sleep 60";
    let error = machine(&kernel, 2).run(&image(&kernel, command), TIMEOUT, &mut tell_wait).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("ended before its command did"), "{message}");
    assert!(message.contains("Kernel panic"), "{message}");
    let log = message.split_whitespace().find(|word| word.contains("console.log")).unwrap();
    let log = std::fs::read_to_string(log.trim_end_matches(',')).unwrap();
    assert!(log.contains("before the end"));
}

#[test]
#[ignore = "boots a kernel"]
fn a_guest_that_does_not_end_is_ended() {
    let kernel = kernel("7");
    let vm = machine(&kernel, 1);
    let error = vm.run(&image(&kernel, "sleep 3600"), Duration::from_secs(5), &mut tell_wait).unwrap_err();
    assert!(error.to_string().starts_with("the guest was still running after 5 s; console in "), "{error}");
}

/// A virtual machine inside the guest needs the module, and the module those it depends on.
#[test]
#[ignore = "boots a kernel"]
fn nested_guests_have_kvm() {
    let kernel = kernel("7.3");
    let mut image = image(&kernel, "test -c /dev/kvm && cat /proc/modules >/results/modules");
    image.module("kvm-amd").unwrap();
    let mut vm = machine(&kernel, 2);
    vm.nested = true;
    let outcome = run(&vm, &image).ok().unwrap();
    assert!(text(&outcome, "modules").contains("kvm_amd"));
}

/// The kernel patches its scheduler while both CPUs run through it; see `resync.c` for what happens otherwise.
#[test]
#[ignore = "boots a kernel"]
fn guests_survive_patching_their_own_code() {
    let kernel = kernel("7");
    let command = "for i in 1 2 3; do (while :; do echo; done | cat >/dev/null) & done
        i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $((i % 2)) >/proc/sys/kernel/sched_schedstats; usleep 2000; done";
    run(&machine(&kernel, 2), &image(&kernel, command)).ok().unwrap();
}
