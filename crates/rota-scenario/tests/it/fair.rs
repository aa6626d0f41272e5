//! Shared tenants beside each other: each gets its part by weight, whatever its threads wait for, however many they are
//! and wherever they may run.

use std::rc::Rc;

use rota_model::config::{Source, parse};
use rota_model::{CpuSet, Model, Topology};
use rota_rules::life::Event;
use rota_scenario::policies::POLICIES;
use rota_scenario::{Options, Outcome, Scenario};
use rota_sched::Scheduler;
use rota_sim::observe::{Metrics, Sanity};
use rota_sim::programs::{Hog, Periodic};
use rota_sim::{Costs, CpuId, CpuMask, Simulation, TaskSpec, Tenants};
use rota_twin::{Rota, apart};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Two tenants that share a host, on which the system needs next to nothing.
fn host(cpus: u32, weights: (u32, u32)) -> String {
    format!(
        r#"
        [host]
        cpus = "0-{}"
        floor = 0.0
        system = {{ share = 0.0001, latency = "90ms" }}

        [[tenant]]
        name = "one"
        class = "shared"
        weight = {}

        [[tenant]]
        name = "other"
        class = "shared"
        weight = {}
        "#,
        cpus - 1,
        weights.0,
        weights.1,
    )
}

/// The same on a machine with so many caches, and so as many lines, of as many CPUs each.
fn host_with_caches(caches: u32, cpus: u32, weights: (u32, u32)) -> String {
    let sets: Vec<String> =
        (0..caches).map(|cache| format!("\"{}-{}\"", cache * cpus, (cache + 1) * cpus - 1)).collect();
    let key = format!("[host]\ncaches = [{}]", sets.join(", "));
    host(caches * cpus, weights).replace("[host]", &key)
}

fn outcome(text: &str) -> Outcome {
    let source = Source { path: "fair.toml".to_owned(), text: text.to_owned() };
    let scenario = Scenario::parse(&source).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let policy = POLICIES.iter().find(|policy| policy.name == "rota").expect("it is there");
    let outcome = scenario.run(policy, Options::default(), &|_| {}).expect("it runs to its end");
    assert_eq!(outcome.insane, []);
    outcome
}

/// What the first tenant got of what its weight entitles it to: a program of as many threads as CPUs beside as many
/// hogs.
fn part_of_fair(cpus: u32, program: &str, weights: (u32, u32)) -> f64 {
    part_of_fair_on(&host(cpus, weights), cpus, program, weights)
}

fn part_of_fair_on(host: &str, cpus: u32, program: &str, weights: (u32, u32)) -> f64 {
    let outcome = outcome(&format!(
        r#"
        duration = "300ms"
        warm_up = "100ms"
        {host}
        [[workload]]
        tenant = "one"
        threads = {cpus}
        {program}
        [[workload]]
        tenant = "other"
        program = "hog"
        threads = {cpus}
        "#
    ));
    let [one, other] = [0, 1].map(|tenant| outcome.tenants[tenant].metrics.received_ns as f64);
    let fair = f64::from(weights.0) / f64::from(weights.0 + weights.1);
    one / (one + other) / fair
}

/// However often it synchronises: what others have while it waits, it has while it does not.
#[test]
fn a_program_with_barriers_gets_its_part_beside_hogs() {
    let cases = [
        (4, "50us", (100, 100)),
        (4, "1ms", (200, 100)),
        (4, "10ms", (400, 100)),
        (12, "1ms", (100, 100)),
        (12, "10ms", (200, 100)),
        (48, "1ms", (100, 100)),
        (48, "10ms", (400, 100)),
    ];
    for (cpus, compute, weights) in cases {
        let program = format!("program = \"barrier\"\ncompute = \"{compute}\"");
        let part = part_of_fair(cpus, &program, weights);
        println!("{cpus} CPUs, {compute}, {weights:?}: {part:.4}");
        assert!((part - 1.0).abs() < 0.02, "{cpus} CPUs, {compute}, {weights:?}: {part}");
    }
}

#[test]
fn programs_of_other_kinds_get_their_part_beside_hogs() {
    let programs = [
        "program = \"hog\"",
        "program = \"condition\"\ncompute = { uniform = [\"500us\", \"1ms\"] }\nbetween = \"20us\"",
        "program = \"mutex\"\noutside = \"2ms\"\ninside = \"50us\"",
        "program = \"barrier\"\ncompute = { uniform = [\"800us\", \"1200us\"] }",
    ];
    for program in programs {
        let part = part_of_fair(8, program, (100, 100));
        println!("{program}: {part:.4}");
        assert!((part - 1.0).abs() < 0.02, "{program}: {part}");
    }
}

type Run = Simulation<Rota, (Metrics, Sanity)>;

/// Both tenants are there, without a thread.
fn start(cpus: u32, weights: (u32, u32)) -> (Run, Tenants) {
    start_with(host(cpus, weights))
}

fn model(text: String) -> Model {
    let source = Source { path: "rota.toml".into(), text };
    parse(&[source], &Topology::flat(&CpuSet::default())).unwrap_or_else(|errors| panic!("{errors}"))
}

fn start_with(text: String) -> (Run, Tenants) {
    let model = model(text);
    let policy = Rota::new(&model).expect("a host");
    let observers = (Metrics::default(), Sanity::new(30_000 * MS));
    let mut run = Run::new(model.host.topology.clone(), Costs::default(), 1, 1_000 * MS, policy, observers);
    let tenants = Tenants::new(&mut run.machine, &model);
    for home in tenants.homes() {
        run.act(|run| run.policy.appears(&mut run.machine, &home.tenant.name, home.cgroup));
    }
    while !run.policy.is_settled() {
        advance(&mut run, 10 * MS);
    }
    (run, tenants)
}

/// Another configuration, in force when this returns.
fn configure(run: &mut Run, text: String) {
    let model = model(text);
    run.act(|run| run.policy.tell(&mut run.machine, Event::Configured(model)));
    while !run.policy.is_settled() {
        advance(run, MS);
    }
}

fn advance(run: &mut Run, ns: u64) {
    let until_ns = run.machine.now_ns() + ns;
    run.run_until(until_ns);
}

/// What both received from now on for so long.
fn received(run: &mut Run, tenants: &Tenants, ns: u64) -> [u64; 2] {
    let read = |run: &mut Run| {
        let units = run.observer.0.so_far(&mut run.machine);
        ["one", "other"].map(|name| units[tenants.home(name).units()[0].0.index()].0)
    };
    let before = read(run);
    advance(run, ns);
    let after = read(run);
    assert_eq!(run.policy.exited().cloned(), None, "{:?}", run.policy.said());
    assert_eq!(run.observer.1.finish(&run.machine), []);
    [after[0] - before[0], after[1] - before[1]]
}

fn spawn(run: &mut Run, tenants: &mut Tenants, name: &str, count: u32) {
    for _ in 0..count {
        let spec = tenants.thread(name, Hog);
        run.spawn(spec);
    }
}

fn assert_ratio(received: [u64; 2], ratio: f64) {
    let found = received[0] as f64 / received[1] as f64;
    assert!((found / ratio - 1.0).abs() < 0.03, "{received:?}: {found:.3} instead of {ratio}");
}

/// A configuration with other weights, while all run: who had less is owed nothing for it, who had more owes nothing.
#[test]
fn weights_may_change_at_any_time() {
    apart(|| {
        let (mut run, mut tenants) = start(4, (100, 100));
        spawn(&mut run, &mut tenants, "one", 6);
        spawn(&mut run, &mut tenants, "other", 5);
        advance(&mut run, 1_000 * MS);
        for (weights, ratio) in [((400, 100), 4.0), ((50, 100), 0.5), ((10, 1_000), 0.01), ((100, 100), 1.0)]
        {
            let model = model(host(4, weights));
            run.act(|run| run.policy.tell(&mut run.machine, Event::Configured(model)));
            advance(&mut run, 20 * MS);
            assert_ratio(received(&mut run, &tenants, 4_000 * MS), ratio);
        }
    });
}

/// Who has just had a turn by a small weight is not to wait until others have had as much by large ones.
#[test]
fn whose_weight_grows_is_served_at_once() {
    apart(|| {
        let (mut run, mut tenants) = start(1, (1, 1_000));
        spawn(&mut run, &mut tenants, "one", 2);
        spawn(&mut run, &mut tenants, "other", 2);
        for _ in 0..4 {
            advance(&mut run, 1_300 * MS);
            configure(&mut run, host(1, (1_000, 1_000)));
            assert_ratio(received(&mut run, &tenants, 300 * MS), 1.0);
            configure(&mut run, host(1, (1, 1_000)));
        }
    });
}

/// It has a clock that stood while others went on, and starts with theirs.
#[test]
fn who_becomes_a_shared_tenant_takes_nothing_from_others() {
    apart(|| {
        let shared = host(2, (100, 100));
        let reserved = "class = \"reserved\"\nshare = 0.2\nlatency = \"20ms\"";
        let before = shared.replacen("class = \"shared\"\n        weight = 100", reserved, 1);
        let (mut run, mut tenants) = start_with(before);
        spawn(&mut run, &mut tenants, "one", 2);
        spawn(&mut run, &mut tenants, "other", 2);
        advance(&mut run, 2_000 * MS);
        configure(&mut run, shared);
        assert_ratio(received(&mut run, &tenants, 100 * MS), 1.0);
    });
}

/// Threads wait while their tenant leaves and comes back, and another one has got its number: each has its turn by its
/// own tenant's clock, not by the other's.
#[test]
fn who_waits_while_numbers_change_waits_for_its_own_tenants_turn() {
    apart(|| {
        let (mut run, mut tenants) = start(1, (1_000, 100));
        spawn(&mut run, &mut tenants, "other", 2);
        advance(&mut run, 200 * MS);
        for _ in 0..400 {
            let spec = tenants.thread("one", Periodic::new(100 * US, 10_000 * MS));
            run.spawn(spec);
        }
        for name in ["one", "other"] {
            run.act(|run| run.policy.vanishes(&mut run.machine, name));
        }
        for name in ["other", "one"] {
            run.act(|run| run.policy.appears(&mut run.machine, name, tenants.home(name).cgroup));
        }
        let [one, _] = received(&mut run, &tenants, 100 * MS);
        assert!(one > 39 * MS, "of 40 ms that it has to do it has done {one} ns in 100 ms");
    });
}

/// With a CPU for itself it is served by its weight a hundred times as far as a neighbour. The time that it takes the
/// system to is where others begin, and the neighbour is not to have all until it has come there, too.
#[test]
fn a_light_tenant_on_a_cpu_of_its_own_takes_time_from_nobody_else() {
    apart(|| {
        let light = "[[tenant]]\nname = \"light\"\nclass = \"shared\"\nweight = 1\n";
        let (mut run, mut tenants) = start_with(host(2, (100, 100)) + light);
        spawn(&mut run, &mut tenants, "light", 1);
        spawn(&mut run, &mut tenants, "other", 1);
        advance(&mut run, 2_000 * MS);
        spawn(&mut run, &mut tenants, "other", 1);
        spawn(&mut run, &mut tenants, "one", 2);
        advance(&mut run, 250 * MS);
        assert_ratio(received(&mut run, &tenants, 500 * MS), 1.0);
    });
}

#[test]
fn a_thousand_threads_weigh_as_much_as_four() {
    apart(|| {
        let (mut run, mut tenants) = start(4, (100, 100));
        spawn(&mut run, &mut tenants, "one", 1_000);
        spawn(&mut run, &mut tenants, "other", 4);
        advance(&mut run, 200 * MS);
        assert_ratio(received(&mut run, &tenants, 1_000 * MS), 1.0);
        spawn(&mut run, &mut tenants, "other", 2_000);
        advance(&mut run, 100 * MS);
        assert_ratio(received(&mut run, &tenants, 1_000 * MS), 1.0);
        let used = |run: &Run| run.machine.tasks().filter(|(_, task)| task.used_ns > 0).count();
        advance(&mut run, 1_200 * MS);
        assert_eq!(used(&run), 3_004, "each thread has its turn");
    });
}

/// One thread cannot use half of four CPUs. It does not save up what it cannot use.
#[test]
fn who_lacks_threads_saves_nothing_up() {
    apart(|| {
        let (mut run, mut tenants) = start(4, (100, 100));
        spawn(&mut run, &mut tenants, "one", 1);
        spawn(&mut run, &mut tenants, "other", 4);
        advance(&mut run, 2_000 * MS);
        assert_ratio(received(&mut run, &tenants, 1_000 * MS), 1.0 / 3.0);
        spawn(&mut run, &mut tenants, "one", 7);
        let at_once = received(&mut run, &tenants, 400 * MS);
        assert!(at_once[1] > 400 * MS, "the other one has not a quarter of it: {at_once:?}");
        assert_ratio(received(&mut run, &tenants, 1_000 * MS), 1.0);
    });
}

/// In ns, of the two tenants, as `rota status` has them.
fn lags(run: &mut Run) -> [i64; 2] {
    let lags = run.policy.ask(&mut run.machine, Scheduler::lags).expect("the clocks can be read");
    lags.into_values().collect::<Vec<_>>().try_into().expect("two are shared")
}

/// Two clocks are as far apart at the most as docs/FAIRNESS.md says: on four CPUs 3 l/3 + D l + D/8 l/3. The lag is
/// three quarters of it, by the weights.
#[test]
fn the_scheduler_says_who_lags() {
    apart(|| {
        let (mut run, mut tenants) = start(4, (100, 300));
        assert_eq!(lags(&mut run), [0, 0], "nobody wants anything");
        spawn(&mut run, &mut tenants, "other", 5);
        advance(&mut run, 500 * MS);
        assert_eq!(lags(&mut run), [0, 0], "there is nobody to lag behind");
        spawn(&mut run, &mut tenants, "one", 5);
        let mut most = 0;
        for _ in 0..500 {
            advance(&mut run, MS + 7 * US);
            let [one, other] = lags(&mut run);
            assert!((one + other).abs() <= 1, "{one} {other}");
            most = most.max(one.unsigned_abs());
        }
        let bound = (5 * MS + MS / 6) * 3 / 4;
        println!("{most} ns of {bound}");
        assert!(most > 0 && most <= bound, "{most} ns");
    });
}

/// It is owed what it had not the threads to use, until that is forgotten: half of two readings of v, 200 ms apart.
#[test]
fn who_lacks_threads_lags_for_a_while_only() {
    apart(|| {
        let (mut run, mut tenants) = start(4, (100, 100));
        spawn(&mut run, &mut tenants, "one", 1);
        spawn(&mut run, &mut tenants, "other", 4);
        for _ in 0..20 {
            advance(&mut run, 100 * MS);
            let [one, other] = lags(&mut run);
            assert!((one + other).abs() <= 1 && one >= 0, "{one} {other}");
            // v is the other's clock: of three CPUs in 200 ms and what it takes to tell.
            assert!(one <= 310 * MS as i64, "{one} ns");
        }
        assert!(lags(&mut run)[0] > 100 * MS as i64, "{:?}", lags(&mut run));
    });
}

/// Who has slept for long, and who comes new, is in its turn from then on, and has nothing to catch up with.
#[test]
fn sleep_is_no_credit() {
    apart(|| {
        let (mut run, mut tenants) = start(2, (100, 100));
        spawn(&mut run, &mut tenants, "other", 2);
        advance(&mut run, 3_000 * MS);
        for _ in 0..2 {
            let spec = tenants.thread("one", Periodic::new(2_000 * MS, 500 * MS));
            run.spawn(spec);
        }
        let from_the_start = received(&mut run, &tenants, 500 * MS);
        assert_ratio(from_the_start, 1.0);
        advance(&mut run, 5_000 * MS);
    });
}

fn on(cpus: u32, allowed: impl IntoIterator<Item = u32>, spec: TaskSpec) -> TaskSpec {
    TaskSpec { affinity: Some(Rc::new(CpuMask::of(cpus, allowed.into_iter().map(CpuId)))), ..spec }
}

/// Half of the CPUs is as much as the one may use, and as much as it is to have; and then with threads that may run
/// everywhere beside those.
#[test]
fn threads_bound_to_cpus_are_served_there() {
    apart(|| {
        let (mut run, mut tenants) = start(4, (100, 100));
        for number in 0..6 {
            let spec = on(4, [number % 2, 1], tenants.thread("one", Hog));
            run.spawn(spec);
        }
        spawn(&mut run, &mut tenants, "other", 8);
        advance(&mut run, 200 * MS);
        let bound = received(&mut run, &tenants, 1_000 * MS);
        assert!(bound[0] > 1_940 * MS && bound[0] < 2_010 * MS, "{bound:?}");
        for number in 0..40 {
            let spec = on(4, [number % 4], tenants.thread("other", Periodic::new(300 * US, 100 * US)));
            run.spawn(spec);
        }
        spawn(&mut run, &mut tenants, "one", 3);
        advance(&mut run, 100 * MS);
        assert_ratio(received(&mut run, &tenants, 1_000 * MS), 1.0);
    });
}

/// Threads of one tenant that may use the same few CPUs of many have the same time each, wherever they wait.
#[test]
fn threads_with_one_affinity_share_its_cpus() {
    for (threads, cpus) in [(6, 4), (5, 2), (9, 4), (21, 5)] {
        apart(|| {
            let (mut run, mut tenants) = start(8, (100, 100));
            let first = run.machine.tasks().count();
            for _ in 0..threads {
                let spec = on(8, 2..2 + cpus, tenants.thread("one", Hog));
                run.spawn(spec);
            }
            spawn(&mut run, &mut tenants, "other", 3);
            advance(&mut run, 100 * MS);
            let used = |run: &Run| -> Vec<u64> {
                run.machine.tasks().skip(first).take(threads).map(|(_, task)| task.used_ns).collect()
            };
            let before = used(&run);
            advance(&mut run, 600 * MS);
            let received: Vec<u64> =
                used(&run).iter().zip(before).map(|(after, before)| after - before).collect();
            let fair = 600 * MS * u64::from(cpus) / threads as u64;
            println!("{threads} threads on {cpus} CPUs, {fair} each: {received:?}");
            assert!(received.iter().all(|&ns| ns.abs_diff(fair) < fair / 5), "{fair}: {received:?}");
        });
    }
}

/// A program whose threads are kept off some CPUs does as much as on a host without these, also if they wait busily.
#[test]
fn a_program_with_an_affinity_uses_all_of_its_cpus() {
    const SYSTEM: &str = "system = { share = 0.0001, latency = \"90ms\" }";
    const PROGRAMS: [&str; 2] = [
        "program = \"barrier\"\ncompute = { uniform = [\"300us\", \"600us\"] }",
        "program = \"spinlock\"\noutside = \"400us\"\ninside = \"20us\"\nordered = true",
    ];
    let host = |cpus: u32| host(cpus, (100, 100));
    let work = |host: &str, program: &str, cpus: u32| {
        let outcome = outcome(&format!(
            "duration = \"300ms\"\nwarm_up = \"100ms\"\n{host}\n[[workload]]\ntenant = \"one\"\nthreads = 13\n\
             {program}\ncpus_in_turn = [{cpus}]\n"
        ));
        outcome.tenants[0].metrics.work as f64
    };
    for (allowed, with_others) in [(4, host(8)), (7, host(8).replace(SYSTEM, "housekeeping = \"0\""))] {
        for program in PROGRAMS {
            let part = work(&with_others, program, allowed) / work(&host(allowed), program, allowed);
            println!("{allowed} of 8 CPUs: {part:.4}");
            assert!(part > 0.97, "{allowed} of 8 CPUs, {program}: {part}");
        }
    }
}

/// Threads wait in the line of the cache at which they were; the others' CPUs serve them as if all were one.
#[test]
fn several_lines_share_as_one() {
    for (caches, cpus) in [(2, 2), (4, 4), (8, 2)] {
        apart(|| {
            let (mut run, mut tenants) = start_with(host_with_caches(caches, cpus, (200, 100)));
            spawn(&mut run, &mut tenants, "other", caches * cpus);
            advance(&mut run, 50 * MS);
            spawn(&mut run, &mut tenants, "one", caches * cpus);
            advance(&mut run, 100 * MS);
            assert_ratio(received(&mut run, &tenants, 300 * MS), 2.0);
            spawn(&mut run, &mut tenants, "other", 2 * caches * cpus + 1);
            advance(&mut run, 100 * MS);
            assert_ratio(received(&mut run, &tenants, 300 * MS), 2.0);
        });
    }
}

#[test]
fn a_program_on_several_caches_gets_its_part_beside_hogs() {
    for (caches, cpus, compute) in [(4, 3, "500us"), (2, 12, "2ms"), (4, 12, "10ms")] {
        let program = format!("program = \"barrier\"\ncompute = \"{compute}\"");
        let host = host_with_caches(caches, cpus, (100, 100));
        let part = part_of_fair_on(&host, caches * cpus, &program, (100, 100));
        println!("{caches} caches of {cpus} CPUs, {compute}: {part:.4}");
        assert!((part - 1.0).abs() < 0.02, "{caches} caches of {cpus} CPUs, {compute}: {part}");
    }
}

/// A tenant takes the CPUs of a cache for itself. Who waits in its line goes on where there is time.
#[test]
fn who_waits_in_a_line_without_cpus_is_served_elsewhere() {
    apart(|| {
        let owner = "[[tenant]]\nname = \"owner\"\nclass = \"reserved\"\nvcpus = 2\nshare = 0.98\n\
                     latency = \"10ms\"\naffinity = \"0-1\"\n";
        let (mut run, mut tenants) = start_with(host_with_caches(2, 2, (100, 100)) + owner);
        let first = run.machine.tasks().count();
        spawn(&mut run, &mut tenants, "one", 4);
        spawn(&mut run, &mut tenants, "other", 4);
        advance(&mut run, 100 * MS);
        spawn(&mut run, &mut tenants, "owner", 2);
        advance(&mut run, 10 * MS);
        let used = |run: &Run| -> Vec<u64> {
            run.machine.tasks().skip(first).take(8).map(|(_, task)| task.used_ns).collect()
        };
        let before = used(&run);
        advance(&mut run, 400 * MS);
        let received: Vec<u64> =
            used(&run).iter().zip(before).map(|(after, before)| after - before).collect();
        assert!(received.iter().all(|&ns| ns > 60 * MS), "of 800 ms: {received:?}");
    });
}

/// Three threads that compute and sleep on four CPUs: each wakes where its data are, as that CPU idles.
#[test]
fn who_wakes_on_an_idle_host_stays_on_its_cpu() {
    apart(|| {
        let (mut run, mut tenants) = start(4, (100, 100));
        for number in 0..3 {
            let spec = tenants.thread("one", Periodic::new(300 * US, (700 + 10 * number) * US));
            run.spawn(spec);
        }
        advance(&mut run, 100 * MS);
        run.observer.0.begin(&mut run.machine);
        advance(&mut run, 1_000 * MS);
        let units = run.observer.0.finish(&mut run.machine);
        let one = &units[tenants.home("one").first_unit.index()];
        assert!(one.dispatches > 2_500 && one.migrations < 10, "{} of {}", one.migrations, one.dispatches);
    });
}

/// A core that idles is better than the CPU where it was, if that one's sibling computes.
#[test]
fn who_wakes_goes_to_an_idle_core() {
    apart(|| {
        let siblings = "[host]\nsiblings = [\"0-1\", \"2-3\"]";
        let (mut run, mut tenants) = start_with(host(4, (100, 100)).replace("[host]", siblings));
        for (cpu, for_ms) in [(0, 10_000), (2, 50), (3, 50)] {
            let spec = on(4, [cpu], tenants.thread("other", Periodic::new(for_ms * MS, 10_000 * MS)));
            run.spawn(spec);
        }
        let sleeper = tenants.thread("one", Periodic::new(300 * US, 700 * US));
        let sleeper = run.spawn(sleeper);
        advance(&mut run, 40 * MS);
        assert_eq!(run.machine.task(sleeper).cpu, CpuId(1), "no other one idles");
        advance(&mut run, 30 * MS);
        assert!(run.machine.task(sleeper).cpu.0 >= 2, "it is beside a thread that computes");
    });
}
