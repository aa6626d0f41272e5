//! Where CPUs are somebody's whole: there is nothing that slots leave, and no floor.

use rota_sim::programs::{Hog, Periodic};
use rota_sim::{CpuId, TaskSpec, Tenants};
use rota_twin::apart;

use super::{MS, Run, S, appears, bound, longest_ns, start};

/// CPU 1 is reserved and used whole.
const WHOLE: &str = r#"
[host]
cpus = "0-1"
housekeeping = "0"
[[tenant]]
name = "web"
class = "reserved"
share = 1.0
latency = "20ms"
capped = true
match = { cgroup = "web" }
[[tenant]]
name = "batch"
class = "background"
match = { cgroup = "batch" }
[[tenant]]
name = "other"
class = "background"
match = { cgroup = "other" }
[[tenant]]
name = "fair"
class = "shared"
match = { cgroup = "fair" }
"#;

fn whole() -> (Run, Tenants) {
    let (mut run, mut tenants) = start(WHOLE);
    run.spawn(tenants.thread("web", Hog));
    for name in ["web", "batch", "other", "fair"] {
        appears(&mut run, &tenants, name);
    }
    (run, tenants)
}

/// Many have their turns of the ms that those who starve take from slots together, whether they sleep or not, and
/// wherever they wait.
#[test]
fn many_threads_share_what_the_starving_take_from_slots() {
    for (name, computes_ns) in [("batch", 10 * S), ("batch", MS / 50), ("fair", 10 * S)] {
        apart(|| {
            let (mut run, mut tenants) = whole();
            for _ in 0..200 {
                let thread = bound(&run, tenants.thread(name, Periodic::new(computes_ns, MS)), 1);
                run.spawn(thread);
            }
            let unit = tenants.home(name).first_unit;
            let longest_ns = longest_ns(&mut run, unit, 60 * S);
            assert!(longest_ns < 21 * S, "{name}: {longest_ns} ns");
        });
    }
}

/// A tenant that has just come, and is behind the others by its clock, has not all turns for that.
#[test]
fn who_starves_longest_has_its_turn_first() {
    apart(|| {
        let (mut run, mut tenants) = whole();
        for name in ["batch", "other"] {
            run.run_until(run.machine.now_ns() + 20 * S);
            for _ in 0..10 {
                let hog = bound(&run, tenants.thread(name, Hog), 1);
                run.spawn(hog);
            }
        }
        let unit = tenants.home("batch").first_unit;
        let longest_ns = longest_ns(&mut run, unit, 60 * S);
        assert!(longest_ns < 16 * S, "{longest_ns} ns");
    });
}

/// A shared thread that may run on a housekeeping CPU only takes turns with the system there.
#[test]
fn a_shared_thread_bound_to_a_housekeeping_cpu_has_turns() {
    for busy in [false, true] {
        apart(|| {
            let (mut run, mut tenants) = whole();
            if busy {
                let hog = bound(&run, tenants.system(Hog), 0);
                run.spawn(hog);
            }
            let hog = bound(&run, tenants.thread("fair", Periodic::new(MS, MS)), 0);
            run.spawn(hog);
            let unit = tenants.home("fair").first_unit;
            let longest_ns = longest_ns(&mut run, unit, 60 * S);
            assert!(longest_ns < 100 * MS, "{busy}: {longest_ns} ns");
        });
    }
}

/// Nobody but housekeeping CPUs serves shared tenants where all others are somebody's own.
#[test]
fn shared_tenants_have_turns_where_all_cores_are_somebodys_own() {
    for busy in [false, true] {
        apart(|| {
            let text = WHOLE
                .replace("cpus = \"0-1\"", "cpus = \"0-3\"\nsiblings = [\"0-1\", \"2-3\"]")
                .replace("housekeeping = \"0\"", "housekeeping = \"0-1\"")
                .replace("share = 1.0", "share = 0.5\nvcpus = 2\nexclusive_cores = true");
            let (mut run, mut tenants) = start(&text);
            for name in ["web", "fair"] {
                appears(&mut run, &tenants, name);
            }
            if busy {
                for cpu in 0..2 {
                    let hog = bound(&run, tenants.system(Hog), cpu);
                    run.spawn(hog);
                }
            }
            run.spawn(tenants.thread("fair", Periodic::new(MS, MS)));
            let unit = tenants.home("fair").first_unit;
            let longest_ns = longest_ns(&mut run, unit, 60 * S);
            assert!(longest_ns < 100 * MS, "{busy}: {longest_ns} ns");
        });
    }
}

/// A shared thread that waits for one of its CPUs goes to the other when that one becomes somebody's own.
#[test]
fn who_is_bound_leaves_a_core_that_becomes_somebodys_own() {
    apart(|| {
        let text = WHOLE
            .replace("cpus = \"0-1\"", "cpus = \"0-5\"\nsiblings = [\"0-1\", \"2-3\", \"4-5\"]")
            .replace("housekeeping = \"0\"", "housekeeping = \"0-1\"")
            .replace("share = 1.0", "share = 0.5\nvcpus = 2\nexclusive_cores = true");
        let (mut run, mut tenants) = start(&text);
        appears(&mut run, &tenants, "fair");
        for _ in 0..8 {
            let either = run.machine.mask([CpuId(2), CpuId(4)]);
            run.spawn(TaskSpec { affinity: Some(either), ..tenants.thread("fair", Hog) });
        }
        run.run_until(run.machine.now_ns() + 100 * MS);
        appears(&mut run, &tenants, "web");
        let unit = tenants.home("fair").first_unit;
        let longest_ns = longest_ns(&mut run, unit, 40 * S);
        assert!(longest_ns < S, "{longest_ns} ns");
    });
}

/// Shared threads wait in the line of a core that becomes somebody's own, and those of another line starve as well.
#[test]
fn who_is_in_the_line_of_cores_that_become_somebodys_own_is_not_forgotten() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-5"
            housekeeping = "0-1"
            siblings = ["0-1", "2-3", "4-5"]
            caches = ["0-1", "2-3", "4-5"]
            [[tenant]]
            name = "web"
            class = "reserved"
            vcpus = 2
            share = 0.94
            latency = "20ms"
            capped = true
            affinity = "4-5"
            match = { cgroup = "web" }
            [[tenant]]
            name = "bank"
            class = "reserved"
            vcpus = 2
            share = 0.5
            latency = "20ms"
            exclusive_cores = true
            match = { cgroup = "bank" }
            [[tenant]]
            name = "heavy"
            class = "shared"
            weight = 1000
            match = { cgroup = "heavy" }
            [[tenant]]
            name = "light"
            class = "shared"
            weight = 1
            match = { cgroup = "light" }
            "#,
        );
        for (name, threads) in [("web", 2), ("heavy", 8), ("light", 20)] {
            appears(&mut run, &tenants, name);
            for _ in 0..threads {
                run.spawn(tenants.thread(name, Hog));
            }
        }
        run.run_until(run.machine.now_ns() + 2 * S);
        appears(&mut run, &tenants, "bank");
        let unit = tenants.home("light").first_unit;
        let longest_ns = longest_ns(&mut run, unit, 60 * S);
        assert!(longest_ns < 15 * S, "{longest_ns} ns");
    });
}
