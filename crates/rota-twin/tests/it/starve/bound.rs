//! Threads that are bound to a CPU: their turns, and what they leave to others.

use rota_sched::Cause;
use rota_sim::programs::Hog;
use rota_sim::{CpuId, TaskSpec, UnitId};
use rota_twin::apart;

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

/// A capped tenant's thread binds itself to a CPU where the tenant has no slot: it has there what others leave, and
/// these are not kept waiting for it.
#[test]
fn one_that_is_bound_where_its_tenant_has_no_slot_has_what_others_leave() {
    apart(|| {
        let text = WEB
            .replace("cpus = \"0\"", "cpus = \"0-2\"\nhousekeeping = \"0\"")
            .replace("share = 0.5", "share = 0.2\ncapped = true\naffinity = \"1\"")
            + FAIR;
        let (mut run, mut tenants) = start(&text);
        for name in ["web", "fair"] {
            appears(&mut run, &tenants, name);
        }
        let [stray, other] = ["web", "fair"].map(|name| {
            let hog = bound(&run, tenants.thread(name, Hog), 2);
            run.spawn(hog)
        });
        run.run_until(run.machine.now_ns() + 10 * S);
        let used_ns = [stray, other].map(|task| run.machine.task(task).used_ns);
        assert!(used_ns[0] < 100 * MS && used_ns[1] > 9_800 * MS, "{used_ns:?} ns of 10 s");
        let elsewhere = run.machine.mask([CpuId(1)]);
        run.act(|run| run.set_affinity(other, elsewhere));
        let before_ns = used_ns[0];
        run.run_until(run.machine.now_ns() + S);
        let used_ns = run.machine.task(stray).used_ns - before_ns;
        assert!(used_ns > 990 * MS, "{used_ns} ns of a CPU that idles");
    });
}
