//! What everybody else leaves, for background tenants.

use rota_sim::programs::{Hog, Periodic};
use rota_twin::apart;

use crate::host::{after, settle, start};

const US: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;

/// Threads are given to CPUs by their numbers, every other one to the same: then one that waits takes an idle CPU.
#[test]
fn no_cpu_idles_while_background_work_waits() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-2"
            housekeeping = "0"
            [[tenant]]
            name = "batch"
            class = "background"
            match = { cgroup = "batch" }
            [[tenant]]
            name = "light"
            class = "background"
            match = { cgroup = "light" }
            "#,
        );
        for _ in 0..2 {
            run.spawn(tenants.thread("batch", Hog));
            run.spawn(tenants.thread("light", Periodic::new(10 * US, SECOND)));
        }
        settle(&mut run, &tenants);
        let received = after(&mut run, SECOND);
        let received_ns = received[tenants.home("batch").first_unit.index()].received_ns;
        assert!(received_ns > 2 * SECOND * 99 / 100, "{received_ns} ns of two CPUs");
    });
}
