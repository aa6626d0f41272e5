//! However deep a tenant nests cgroups of its own, what runs there is the tenant's.

use rota_sim::programs::Hog;
use rota_sim::{Cgroup, TaskSpec};
use rota_twin::apart;

use crate::host::{after, settle, start};

const SECOND: u64 = 1_000_000_000;

const HOST: &str = r#"
[host]
cpus = "0-1"
housekeeping = "0"
[[tenant]]
name = "capped"
class = "reserved"
share = 0.2
latency = "20ms"
capped = true
match = { cgroup = "capped" }
"#;

/// What a hog so many levels below the tenant's cgroup receives of a CPU.
fn received(levels: u32) -> f64 {
    apart(|| {
        let (mut run, mut tenants) = start(HOST);
        let mut cgroup = tenants.home("capped").cgroup;
        for _ in 0..levels {
            let new = Cgroup { parent: Some(cgroup), ..*run.machine.cgroup(cgroup) };
            cgroup = run.machine.cgroup_new(new);
        }
        let spec = TaskSpec { cgroup, ..tenants.thread("capped", Hog) };
        run.spawn(spec);
        settle(&mut run, &tenants);
        let received = after(&mut run, SECOND);
        received[tenants.home("capped").first_unit.index()].received_ns as f64 / SECOND as f64
    })
}

#[test]
fn no_depth_leads_out_of_a_tenant() {
    for levels in [0, 1, 29, 30, 31, 32, 33, 64, 1_000] {
        let received = received(levels);
        assert!((0.19..0.21).contains(&received), "{levels} levels: {received}");
    }
}
