//! Threads that are bound to a CPU: their turns, and what they leave to others.

use rota_sched::Cause;
use rota_sim::programs::Hog;
use rota_sim::{TaskSpec, UnitId, apart};

use super::{FAIR, MS, S, WEB, appears, bound, start};

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

/// As in a container with a cpuset: each has its turn after the others, however many they are.
#[test]
fn siblings_that_are_bound_to_a_cpu_take_turns() {
    for threads in [5, 10, 14, 20, 25, 28] {
        apart(|| {
            let text = WEB.replace("cpus = \"0\"", "cpus = \"0-1\"\nhousekeeping = \"0\"") + FAIR;
            let (mut run, mut tenants) = start(&text);
            appears(&mut run, &tenants, "fair");
            for unit in 0..threads {
                let hog = bound(&run, tenants.thread("fair", Hog), 1);
                run.spawn(TaskSpec { unit: UnitId(9 + unit), ..hog });
            }
            run.run_until(run.machine.now_ns() + S);
            run.observer.begin(&run.machine);
            run.run_until(run.machine.now_ns() + 8 * S);
            let longest_ns = |unit| run.observer.of(&run.machine, UnitId(9 + unit)).wait_ns;
            let longest_ns = (0..threads).map(longest_ns).max();
            assert!(longest_ns < Some(100 * MS), "{longest_ns:?} ns of {threads} threads");
        });
    }
}
