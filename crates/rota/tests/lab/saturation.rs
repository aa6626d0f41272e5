//! A host that is busy with tenants of every class: nobody starves, and it can be worked with.

use crate::guest::{Guest, NEWEST, Results, script, tenant};

const CONFIG: &str = r#"
[[tenant]]
name = "web"
class = "reserved"
vcpus = 2
share = 0.45
latency = "20ms"
match = { cgroup = "web" }

[[tenant]]
name = "db"
class = "reserved"
vcpus = 2
share = 0.45
latency = "20ms"
match = { cgroup = "db" }

[[tenant]]
name = "batch"
class = "shared"
match = { cgroup = "batch" }

[[tenant]]
name = "spare"
class = "background"
match = { cgroup = "spare" }
"#;

/// In 34 seconds the floor of a CPU is 170 ms; a tenth of it may go to waiting for a gap. On a host that never idles
/// background work stays on the CPU that its process numbers give it, so both processes may be on the same one.
const SPARE_NS: u64 = 150_000_000;

#[test]
#[ignore = "boots a guest"]
fn a_saturated_host_stays_usable() {
    let results = Guest::exact_on(NEWEST, 2).halved(3).run(CONFIG, &script!("saturation.sh"));
    let [before, after] = ["before", "after"].map(|when| ran_ns(&results, when));
    let ran_ns: Vec<u64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    let told = || format!("{ran_ns:?}\n{}", results.logs());
    assert!(ran_ns.len() == 8 && ran_ns.iter().all(|&ran_ns| ran_ns > 0), "somebody starves: {}", told());
    assert!(ran_ns[6] + ran_ns[7] >= SPARE_NS, "background has not its floor: {}", told());
    let status = results.status("status");
    for name in ["system", "web", "db"] {
        assert_eq!(tenant(&status, name).missed, 0, "{name}: {}", told());
    }
    assert!(status.cpus.iter().all(|cpu| cpu.idle < 0.01 && cpu.mixed == 0), "{:?}: {}", status.cpus, told());
    assert!(!results.text("dmesg.log").contains("stall"), "{}", told());
}

/// The CPU time of each busy process, two of each tenant in the configuration's order.
fn ran_ns(results: &Results, when: &str) -> Vec<u64> {
    results.text(when).lines().map(|line| line.parse().unwrap()).collect()
}
