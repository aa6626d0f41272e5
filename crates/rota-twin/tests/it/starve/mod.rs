//! Nobody starves: loads under which a thread that would run was passed over for ever, each as small as can be.

mod bound;
mod changed;
mod crowd;
mod sent;
mod vm;
mod whole;

use rota_model::config::{Source, parse};
use rota_model::{Model, Topology};
use rota_sched::Cause;
use rota_sim::observe::Waits;
use rota_sim::programs::{Hog, Periodic};
use rota_sim::{
    CgroupId, Costs, CpuId, Program, Resumed, Script, Simulation, State, Step, TaskId, TaskSpec, Tenants,
    UnitId, Why, World,
};
use rota_twin::{Rota, apart};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// One tenant on one CPU.
const WEB: &str = r#"
[host]
cpus = "0"
[[tenant]]
name = "web"
class = "reserved"
share = 0.5
latency = "20ms"
match = { cgroup = "web" }
"#;

/// A tenant without a reservation.
const FAIR: &str = "[[tenant]]\nname = \"fair\"\nclass = \"shared\"\nmatch = { cgroup = \"fair\" }\n";

type Run = Simulation<Rota, Waits>;

fn model(text: &str) -> Model {
    let source = Source { path: "rota.toml".into(), text: text.to_owned() };
    parse(&[source], &Topology::default()).unwrap_or_else(|errors| panic!("{errors}"))
}

fn start(text: &str) -> (Run, Tenants) {
    let model = model(text);
    let policy = Rota::new(&model).expect("a host");
    let topology = model.host.topology.clone();
    let mut run = Run::new(topology, Costs::default(), 1, S, policy, Waits::default());
    let tenants = Tenants::new(&mut run.machine, &model);
    (run, tenants)
}

fn appears(run: &mut Run, tenants: &Tenants, name: &str) {
    let home = tenants.home(name);
    run.act(|run| run.policy.appears(&mut run.machine, name, home.cgroup));
    while !run.policy.is_settled() {
        run.run_until(run.machine.now_ns() + 10 * MS);
    }
}

fn bound(run: &Run, spec: TaskSpec, cpu: u32) -> TaskSpec {
    TaskSpec { affinity: Some(run.machine.mask([CpuId(cpu)])), ..spec }
}

/// The longest wait of a unit's threads within the next so many ns.
fn longest_ns(run: &mut Run, unit: UnitId, ns: u64) -> u64 {
    run.observer.begin(&run.machine);
    run.run_until(run.machine.now_ns() + ns);
    assert!(run.policy.exited().is_none(), "{:?}", run.policy.exited());
    run.observer.of(&run.machine, unit).wait_ns
}

/// Computes for a ms, starts the next one of its kind, and is over.
struct Chain {
    pid: i32,
    unit: UnitId,
    cgroup: CgroupId,
}

impl Program for Chain {
    fn next(&mut self, resumed: Resumed, world: &mut World<'_>) -> Step {
        if resumed.why == Why::Started {
            return Step::Compute(MS);
        }
        let (pid, unit, cgroup) = (self.pid + 1, self.unit, self.cgroup);
        world.spawn(TaskSpec::new(pid, unit, cgroup, Chain { pid, unit, cgroup }));
        Step::Exit
    }
}

/// A script runs one command after the other, each a new process, beside one that computes: of the same tenant.
fn beside_a_chain(class: &str) -> u64 {
    apart(|| {
        let tenant = format!("[[tenant]]\nname = \"web\"\n{class}\nmatch = {{ cgroup = \"web\" }}\n");
        let (mut run, mut tenants) = start(&format!("[host]\ncpus = \"0\"\n{tenant}"));
        appears(&mut run, &tenants, "web");
        let home = tenants.home("web");
        let (unit, cgroup) = (home.first_unit, home.cgroup);
        let hog = TaskSpec { unit: UnitId(9), ..tenants.thread("web", Hog) };
        run.spawn(hog);
        run.run_until(run.machine.now_ns() + 100 * MS);
        let chain = |pid| TaskSpec::new(pid, unit, cgroup, Chain { pid, unit, cgroup });
        run.spawn(chain(1_000_000));
        run.spawn(chain(2_000_000));
        longest_ns(&mut run, UnitId(9), 10 * S)
    })
}

#[test]
fn new_threads_do_not_overtake_for_ever() {
    for class in [
        "class = \"reserved\"\nshare = 0.5\nlatency = \"20ms\"",
        "class = \"shared\"",
        "class = \"background\"",
    ] {
        let longest_ns = beside_a_chain(class);
        assert!(longest_ns < 100 * MS, "{class}: {longest_ns} ns");
    }
}

/// Threads of two tenants are bound to a CPU on which neither has a slot; one tenant has been here for long.
#[test]
fn who_is_bound_elsewhere_takes_turns_with_those_of_younger_tenants() {
    apart(|| {
        let tenant = |name: &str| {
            format!(
                "[[tenant]]\nname = \"{name}\"\nclass = \"reserved\"\nshare = 0.3\nlatency = \"20ms\"\n\
                 affinity = \"0\"\nmatch = {{ cgroup = \"{name}\" }}\n"
            )
        };
        let (mut run, mut tenants) =
            start(&format!("[host]\ncpus = \"0-1\"\n{}{}", tenant("old"), tenant("new")));
        appears(&mut run, &tenants, "old");
        for _ in 0..2 {
            run.spawn(tenants.thread("old", Hog));
        }
        run.run_until(run.machine.now_ns() + 50 * S);
        appears(&mut run, &tenants, "new");
        for (name, unit) in [("old", 8), ("new", 9), ("new", 9)] {
            let stray = TaskSpec { unit: UnitId(unit), ..tenants.thread(name, Hog) };
            let stray = bound(&run, stray, 1);
            run.spawn(stray);
            run.run_until(run.machine.now_ns() + 100 * MS);
        }
        let longest_ns = longest_ns(&mut run, UnitId(8), 10 * S);
        assert!(longest_ns < 100 * MS, "{longest_ns} ns");
    });
}

/// Others want the CPU all the time, and a background tenant comes when another has been here for long.
#[test]
fn an_old_background_tenant_has_its_part_of_the_floor() {
    apart(|| {
        let background = |name: &str| {
            format!(
                "[[tenant]]\nname = \"{name}\"\nclass = \"background\"\nmatch = {{ cgroup = \"{name}\" }}\n"
            )
        };
        let (mut run, mut tenants) = start(&format!(
            "[host]\ncpus = \"0\"\n[[tenant]]\nname = \"hogs\"\nclass = \"shared\"\n\
             match = {{ cgroup = \"hogs\" }}\n{}{}",
            background("old"),
            background("new")
        ));
        for name in ["hogs", "old"] {
            appears(&mut run, &tenants, name);
            run.spawn(tenants.thread(name, Hog));
        }
        run.run_until(run.machine.now_ns() + 60 * S);
        appears(&mut run, &tenants, "new");
        for _ in 0..2 {
            run.spawn(tenants.thread("new", Hog));
        }
        run.run_until(run.machine.now_ns() + S);
        let unit = tenants.home("old").first_unit;
        let longest_ns = longest_ns(&mut run, unit, 25 * S);
        assert!(longest_ns < 5 * S, "{longest_ns} ns");
    });
}

/// More shared threads than there are turns of a ms in the grants of the floor.
#[test]
fn many_shared_threads_share_the_grants_of_the_floor() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            share = 0.5
            latency = "20ms"
            match = { cgroup = "web" }
            [[tenant]]
            name = "batch"
            class = "shared"
            match = { cgroup = "batch" }
            "#,
        );
        for (name, threads) in [("web", 1), ("batch", 300)] {
            appears(&mut run, &tenants, name);
            for _ in 0..threads {
                run.spawn(tenants.thread(name, Hog));
            }
        }
        let unit = tenants.home("batch").first_unit;
        let longest_ns = longest_ns(&mut run, unit, 60 * S);
        assert!(longest_ns < 22 * S, "{longest_ns} ns");
    });
}

/// `docker exec` into a busy container: what comes from the system, which has been served for longer.
#[test]
fn who_moves_into_a_tenant_waits_for_no_more_than_its_turn() {
    apart(|| {
        let (mut run, mut tenants) = start(WEB);
        run.spawn(tenants.system(Hog));
        let shell = TaskSpec { unit: UnitId(9), ..tenants.system(Periodic::new(10 * MS, 10 * MS)) };
        let shell = run.spawn(shell);
        run.run_until(run.machine.now_ns() + 50 * S);
        appears(&mut run, &tenants, "web");
        for _ in 0..2 {
            run.spawn(tenants.thread("web", Hog));
        }
        run.run_until(run.machine.now_ns() + 100 * MS);
        while run.machine.task(shell).state != State::Blocked {
            run.run_until(run.machine.now_ns() + MS);
        }
        let cgroup = tenants.home("web").cgroup;
        run.act(|run| run.set_cgroup(shell, cgroup));
        let longest_ns = longest_ns(&mut run, UnitId(9), 10 * S);
        assert!(longest_ns < 100 * MS, "{longest_ns} ns");
    });
}

/// Where reserved tenants use all that slots leave, a tenant of little weight lives on a part of the floor.
#[test]
fn who_has_little_weight_on_the_floor_is_not_forgotten() {
    apart(|| {
        let mut text = WEB.to_owned();
        for (name, weight) in [("heavy", 1000), ("light", 1)] {
            let shared = format!("class = \"shared\"\nweight = {weight}");
            text += &format!("[[tenant]]\nname = \"{name}\"\n{shared}\nmatch = {{ cgroup = \"{name}\" }}\n");
        }
        let (mut run, mut tenants) = start(&text);
        for (name, threads) in [("web", 1), ("heavy", 1), ("light", 3)] {
            appears(&mut run, &tenants, name);
            for _ in 0..threads {
                run.spawn(tenants.thread(name, Hog));
            }
        }
        let light = tenants.home("light").first_unit;
        let longest_ns = longest_ns(&mut run, light, 60 * S);
        assert!(longest_ns < 10 * S, "{longest_ns} ns");
    });
}

/// A thread that leaves its tenant while it runs in a slot of that one's does not take the rest of its turn with it.
#[test]
fn who_moves_out_of_a_tenant_leaves_its_slot() {
    apart(|| {
        let batch = "[[tenant]]\nname = \"batch\"\nclass = \"background\"\nmatch = { cgroup = \"batch\" }\n";
        let (mut run, mut tenants) = start(&format!("{WEB}{batch}"));
        appears(&mut run, &tenants, "web");
        appears(&mut run, &tenants, "batch");
        let hogs = [0, 1].map(|_| run.spawn(tenants.thread("web", Hog)));
        let [web, batch] = ["web", "batch"].map(|name| tenants.home(name).cgroup);
        let mut taken_ns = 0;
        for _ in 0..20 {
            run.run_until(run.machine.now_ns() + 107 * MS);
            let runs = |id: &&_| matches!(run.machine.task(**id).state, State::Running);
            let Some(&moved) = hogs.iter().find(runs) else { continue };
            run.act(|run| run.set_cgroup(moved, batch));
            let before_ns = run.machine.task(moved).used_ns;
            run.run_until(run.machine.now_ns() + MS);
            taken_ns += run.machine.task(moved).used_ns - before_ns;
            run.act(|run| run.set_cgroup(moved, web));
        }
        assert!(taken_ns < 10 * MS, "{taken_ns} ns of 20 ms");
    });
}

/// A thread that was alone for long, without ever leaving its CPU, has siblings now.
#[test]
fn who_was_alone_has_its_turn_among_siblings() {
    apart(|| {
        let (mut run, mut tenants) = start(WEB);
        appears(&mut run, &tenants, "web");
        let alone = TaskSpec { unit: UnitId(9), ..tenants.thread("web", Hog) };
        run.spawn(alone);
        run.run_until(run.machine.now_ns() + 50 * S);
        for _ in 0..2 {
            run.spawn(tenants.thread("web", Hog));
        }
        let longest_ns = longest_ns(&mut run, UnitId(9), 10 * S);
        assert!(longest_ns < 100 * MS, "{longest_ns} ns");
    });
}

/// More background threads than the floor has grants for until the kernel's watchdog looks: each has its turn in time.
#[test]
fn many_threads_share_the_grants_of_the_floor() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-1"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            share = 0.5
            latency = "20ms"
            match = { cgroup = "web" }
            [[tenant]]
            name = "batch"
            class = "background"
            match = { cgroup = "batch" }
            "#,
        );
        run.spawn(tenants.thread("web", Hog));
        for _ in 0..200 {
            run.spawn(tenants.thread("batch", Hog));
        }
        appears(&mut run, &tenants, "web");
        appears(&mut run, &tenants, "batch");
        let unit = tenants.home("batch").first_unit;
        let longest_ns = longest_ns(&mut run, unit, 60 * S);
        assert!(longest_ns < 25 * S, "{longest_ns} ns");
        let taken_ns = run.policy.cpus(&mut run.machine)[1].lost_ns[Cause::Floor as usize];
        assert!(taken_ns < MS, "{taken_ns} ns from slots, though half of the CPU is not reserved");
    });
}

/// A host that is reserved and used but for the floor, which many background threads share until the watchdog looks.
#[test]
fn many_background_threads_share_the_grants_of_a_full_host() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            share = 0.944
            latency = "20ms"
            match = { cgroup = "web" }
            [[tenant]]
            name = "batch"
            class = "background"
            match = { cgroup = "batch" }
            "#,
        );
        run.spawn(tenants.system(Hog));
        for (name, threads) in [("web", 1), ("batch", 100)] {
            appears(&mut run, &tenants, name);
            for _ in 0..threads {
                run.spawn(tenants.thread(name, Hog));
            }
        }
        let unit = tenants.home("batch").first_unit;
        let longest_ns = longest_ns(&mut run, unit, 60 * S);
        assert!(longest_ns < 25 * S, "{longest_ns} ns");
    });
}

/// A thread bound to a CPU has all of it that no slot takes, but for the floor, which shared tenants have there, too.
#[test]
fn a_bound_thread_leaves_shared_tenants_the_floor() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-1"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "shared"
            match = { cgroup = "web" }
            "#,
        );
        let system = tenants.system(Hog);
        let system = bound(&run, system, 1);
        run.spawn(system);
        run.spawn(tenants.thread("web", Hog));
        appears(&mut run, &tenants, "web");
        let web = tenants.home("web").unit(0);
        let longest_ns = longest_ns(&mut run, web, 10 * S);
        assert!(longest_ns < 2 * S, "{longest_ns} ns");
    });
}

/// A hundredth of one CPU, and no more.
fn small() -> (Run, Tenants) {
    let (mut run, tenants) = start(&WEB.replace("share = 0.5", "share = 0.01\ncapped = true"));
    appears(&mut run, &tenants, "web");
    (run, tenants)
}

/// Hundreds of threads have slept for long and wake together: each is before one that has not by what they have used,
/// for a quantum each.
#[test]
fn many_threads_share_the_slots_of_a_small_tenant() {
    apart(|| {
        let (mut run, mut tenants) = small();
        let sleeper = || {
            Script::new(async move |thread| {
                thread.compute(MS / 100).await;
                thread.sleep(20 * S).await;
                thread.compute(100 * S).await;
            })
        };
        for _ in 0..300 {
            run.spawn(tenants.thread("web", sleeper()));
        }
        let awake = TaskSpec { unit: UnitId(9), ..tenants.thread("web", Hog) };
        run.spawn(awake);
        let longest_ns = longest_ns(&mut run, UnitId(9), 60 * S);
        assert!(longest_ns < 12 * S, "{longest_ns} ns");
    });
}

/// A thread that has not run yet does not go back to the end each time that its affinity changes.
#[test]
fn who_is_new_keeps_its_place_when_its_affinity_changes() {
    apart(|| {
        let (mut run, mut tenants) = small();
        for _ in 0..20 {
            run.spawn(tenants.thread("web", Hog));
        }
        run.run_until(run.machine.now_ns() + S);
        let new = TaskSpec { unit: UnitId(9), ..tenants.thread("web", Hog) };
        let new = run.spawn(new);
        let spawned_ns = run.machine.now_ns();
        while run.machine.task(new).used_ns == 0 {
            run.run_until(run.machine.now_ns() + 10 * MS);
            let everywhere = run.machine.mask([CpuId(0)]);
            run.act(|run| run.set_affinity(new, everywhere));
            assert!(run.machine.now_ns() < spawned_ns + 4 * S, "it waits behind all others");
        }
    });
}

/// What a thread has in two seconds in which a program sets its affinity again and again as it waits.
fn changed_as_it_waits(run: &mut Run, task: TaskId, cpu: u32) -> u64 {
    let before_ns = run.machine.task(task).used_ns;
    for _ in 0..200 {
        run.run_until(run.machine.now_ns() + 10 * MS);
        let mask = run.machine.mask([CpuId(cpu)]);
        if run.machine.task(task).state == State::Queued {
            run.act(|run| run.set_affinity(task, mask));
        }
    }
    run.machine.task(task).used_ns - before_ns
}

/// In the line of those bound to a CPU without a slot for them, and in the background's.
#[test]
fn who_waits_in_a_line_keeps_its_place_when_its_affinity_changes() {
    let batch = "[[tenant]]\nname = \"batch\"\nclass = \"background\"\nmatch = { cgroup = \"batch\" }\n";
    let text = WEB.replace("cpus = \"0\"", "cpus = \"0-1\"").replace("class", "affinity = \"0\"\nclass")
        + batch
        + FAIR;
    for name in ["fair", "web", "batch"] {
        apart(|| {
            let (mut run, mut tenants) = start(&text);
            appears(&mut run, &tenants, name);
            for _ in 0..20 {
                let hog = bound(&run, tenants.thread(name, Hog), 1);
                run.spawn(hog);
            }
            let changed = bound(&run, tenants.thread(name, Hog), 1);
            let changed = run.spawn(changed);
            let used_ns = changed_as_it_waits(&mut run, changed, 1);
            assert!(used_ns > 50 * MS, "{name}: it had {used_ns} ns");
        });
    }
}

/// A thread that has waited for long enough to come before all others, where next to nothing is left, comes to another
/// tenant before anybody has seen that.
#[test]
fn who_is_overdue_and_changes_tenants_is_not_forgotten() {
    apart(|| {
        let mut text = WEB.to_owned();
        for name in ["crowd", "other"] {
            text += &format!(
                "[[tenant]]\nname = \"{name}\"\nclass = \"shared\"\nmatch = {{ cgroup = \"{name}\" }}\n"
            );
        }
        let (mut run, mut tenants) = start(&text);
        for (name, threads) in [("web", 1), ("crowd", 400), ("other", 100)] {
            appears(&mut run, &tenants, name);
            for _ in 0..threads {
                run.spawn(tenants.thread(name, Hog));
            }
        }
        let late = TaskSpec { unit: UnitId(9), ..tenants.thread("crowd", Hog) };
        let late = run.spawn(late);
        run.run_until(run.machine.now_ns() + 5_050 * MS);
        assert_eq!(run.machine.task(late).used_ns, 0, "it does not wait");
        let other = tenants.home("other").cgroup;
        run.act(|run| run.set_cgroup(late, other));
        let longest_ns = longest_ns(&mut run, UnitId(9), 40 * S);
        assert!(longest_ns < 15 * S, "{longest_ns} ns");
    });
}

/// A CPU without unreserved time: a thread that comes to be bound to it takes a turn from its slot once it has waited
/// for 5 s itself, however long nobody else has had one. The farm's seed 71403.
#[test]
fn who_has_come_just_now_has_not_starved() {
    apart(|| {
        let (mut run, mut tenants) = start(
            "[host]\ncpus = \"0-1\"\nhousekeeping = \"0\"\n\
             [[tenant]]\nname = \"web\"\nclass = \"reserved\"\nshare = 1.0\nlatency = \"20ms\"\n\
             match = { cgroup = \"web\" }\n\
             [[tenant]]\nname = \"batch\"\nclass = \"background\"\nmatch = { cgroup = \"batch\" }\n",
        );
        appears(&mut run, &tenants, "web");
        appears(&mut run, &tenants, "batch");
        let owner = tenants.home("web").first_unit;
        run.spawn(tenants.thread("web", Hog));
        run.run_until(run.machine.now_ns() + 10 * S);
        let batch = tenants.thread("batch", Hog);
        let batch = bound(&run, batch, 1);
        run.spawn(batch);
        let early_ns = longest_ns(&mut run, owner, 4_900 * MS);
        let later_ns = longest_ns(&mut run, owner, 200 * MS);
        assert!(
            early_ns < MS / 2 && later_ns > MS / 2,
            "the owner waited for {early_ns} ns, then {later_ns} ns"
        );
    });
}
