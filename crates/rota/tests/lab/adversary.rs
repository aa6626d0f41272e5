//! A tenant that does all it can: others have what they are promised, and the daemon uses little.

use std::time::Duration;

use crate::guest::{Guest, NEWEST, script, tenant};
use rota_lab::guest::adversary::Done;
use rota_rules::status::State;

const CONFIG: &str = r#"
[[tenant]]
name = "t{i}"
count = 8
class = "reserved"
share = 0.15
latency = "40ms"
match = { cgroup = "t{i}" }

[[tenant]]
name = "user"
class = "reserved"
share = 0.4
latency = "40ms"
match = { cgroup = "user" }

[[tenant]]
name = "box"
class = "reserved"
share = 0.05
latency = "40ms"
match = { container = "0123456789ab" }

[[tenant]]
name = "vm"
class = "reserved"
share = 0.05
latency = "40ms"
timetable = true
match = { vm = "qemu:web" }
"#;

/// What starts the daemon.
const UNIT: &str = include_str!("../../../../packaging/rota.service");

/// The capabilities that the unit leaves to the daemon, as the script's `setpriv` takes them; and one for the port that
/// systemd opens for it.
fn capabilities() -> String {
    let lines = UNIT.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = lines.flat_map(|line| line.split(' ')).filter_map(|name| name.strip_prefix("CAP_"));
    let set: Vec<String> = names.map(|name| format!("+{}", name.to_lowercase())).collect();
    format!("-all,{},+net_bind_service", set.join(","))
}

/// How long it goes on in seconds, with how many cgroups and threads: or as the environment has it, as in
/// `ROTA_ADVERSARY="600 --cgroups 20000 --threads 5000"`.
fn plan() -> String {
    std::env::var("ROTA_ADVERSARY").unwrap_or_else(|_| "8 --cgroups 400 --threads 100".to_owned())
}

#[test]
#[ignore = "boots a guest"]
fn a_hostile_tenant_takes_nothing() {
    let plan = plan();
    let seconds: u32 = plan.split(' ').next().unwrap().parse().unwrap();
    let guest = Guest::exact_on(NEWEST, 2)
        .halved(2)
        .longer(Duration::from_secs(8) * seconds)
        // The kernel needs memory for each of thousands of cgroups.
        .memory(if seconds > 60 { 4096 } else { 1024 })
        .own("rota-adversary")
        .module("vsock_loopback")
        .program("setpriv")
        .file("/lab/adversary", &format!("{plan}\n"));
    let results = guest.run(&format!("# {}\n{CONFIG}", capabilities()), &script!("adversary.sh"));
    let [before, after] = ["before", "after"].map(|name| results.status(name));
    let done: Done = results.json("done");
    let number = |name: &str| results.text(name).trim().parse::<f64>().unwrap();
    let seconds = f64::from(seconds);
    let (cpu, mib) =
        ((number("spent_after") - number("spent_before")) / 100.0 / seconds, number("memory_kib") / 1024.0);
    println!("{plan}: {done:?}; the daemon used {:.1} % of a CPU and {mib:.0} MiB", 100.0 * cpu);
    assert_eq!((before.pid, before.generation), (after.pid, after.generation), "{}", results.text("up.log"));
    for index in 0..8 {
        let [before, after] = [&before, &after].map(|status| tenant(status, &format!("t{index}")));
        assert_eq!(after.state, State::Served);
        let received = (after.used_ns - before.used_ns) as f64 / 1e9 / seconds;
        println!(
            "{}: received {received:.3}, waited {} us at most, missed {} ({:?})",
            after.name,
            after.blackout_max_ns / 1000,
            after.missed,
            after.missed_by_cause
        );
        assert!(received >= 0.15, "{after:?}");
        assert_eq!((after.missed_by_cause.rota, after.missed_by_cause.floor), (0, 0), "{after:?}");
    }
    assert!(!results.text("up.log").contains("\u{1b}"), "a name steers the terminal");
    for name in ["box", "vm"] {
        assert_eq!(tenant(&after, name).state, State::Absent, "a name is no tenant");
    }
    assert!(done.asked > 0 && done.told == 0, "the timetable of a VM is nobody else's: {done:?}");
    assert!(
        done.made > 100 && done.removed > 0 && done.moved > 0 && done.forked > 0 && done.threads > 50,
        "{done:?}"
    );
}
