//! A host that is busy with reserved and shared tenants for minutes: nobody starves, and it can be worked with.

use crate::guest::{Guest, NEWEST, script, tenant};

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

/// Of two CPUs in two minutes the floor is 1.2 s; half of it may go to waiting for a gap, and to the machine below.
const SPARE_US: u64 = 600_000;
/// Status was asked once a second, in a guest that may be slow.
const ROUNDS: u32 = 20;

#[test]
#[ignore = "boots a guest"]
fn a_saturated_host_stays_usable() {
    let results = Guest::parallel(NEWEST).run(CONFIG, &script!("saturation.sh"));
    let spare_us: u64 = results.text("spare").trim().parse().unwrap();
    assert!(spare_us >= SPARE_US, "background had {spare_us} us");
    let rounds: u32 = results.text("rounds").trim().parse().unwrap();
    assert!(rounds >= ROUNDS, "{rounds} commands in two minutes");
    assert!(!results.text("dmesg").contains("stall"), "{}", results.text("dmesg"));
    let status = results.status("status");
    assert!(status.cpus.iter().all(|cpu| cpu.idle < 0.01 && cpu.mixed == 0), "{:?}", status.cpus);
    for name in ["web", "db", "batch", "spare"] {
        assert!(tenant(&status, name).received_total > 0.0, "{status:?}");
    }
}
