//! Threads that are bound to a CPU on which they have no slot, and what they leave to others.

use rota_sched::Cause;
use rota_sim::apart;
use rota_sim::programs::Hog;

use super::{MS, S, WEB, appears, bound, start};

const BATCH: &str = "[[tenant]]\nname = \"batch\"\nclass = \"background\"\nmatch = { cgroup = \"batch\" }\n";

/// A CPU that is reserved but for the floor's half percent, and a thread that could use that alone.
#[test]
fn one_that_is_bound_leaves_others_their_part_of_a_full_cpus_floor() {
    apart(|| {
        let text = WEB
            .replace("cpus = \"0\"", "cpus = \"0-1\"\nhousekeeping = \"0\"")
            .replace("share = 0.5", "share = 0.993\ncapped = true")
            + BATCH;
        let (mut run, mut tenants) = start(&text);
        run.spawn(tenants.thread("web", Hog));
        let stray = bound(&run, tenants.system(Hog), 1);
        run.spawn(stray);
        for name in ["web", "batch"] {
            appears(&mut run, &tenants, name);
        }
        for _ in 0..100 {
            run.spawn(tenants.thread("batch", Hog));
        }
        run.run_until(run.machine.now_ns() + 60 * S);
        let taken_ns = run.policy.cpus(&mut run.machine)[1].lost_ns[Cause::Floor as usize];
        assert!(taken_ns < MS, "{taken_ns} ns from slots, though the CPU has unreserved time");
    });
}
