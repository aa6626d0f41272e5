//! A tenant is sampled with others held off. They get what they missed afterwards, and no promise is touched.

use std::time::Duration;

use rota_rules::Enactor;
use rota_rules::sampling::Sample;
use rota_rules::slowdown::{Prediction, Refusal, predict};
use rota_sim::programs::sync::Patience;
use rota_sim::programs::{Hog, Locking, Periodic, Rounds, Waiting};
use rota_sim::{Distribution, Script};
use rota_twin::apart;

use crate::host::{Run, after, settle, start};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const LENGTH: Duration = Duration::from_millis(40);

/// Two CPUs for tenants, with slots of one that is reserved on both.
const HOST: &str = "\
    [host]\ncpus = \"0-2\"\nhousekeeping = \"0\"\n\
    [[tenant]]\nname = \"web\"\nclass = \"reserved\"\nvcpus = 2\nshare = 0.2\nlatency = \"10ms\"\n\
    capped = true\nmatch = { cgroup = \"web\" }\n\
    [[tenant]]\nname = \"sampled\"\nclass = \"shared\"\nmatch = { cgroup = \"sampled\" }\n\
    [[tenant]]\nname = \"one\"\nclass = \"shared\"\nmatch = { cgroup = \"one\" }\n\
    [[tenant]]\nname = \"heavy\"\nclass = \"shared\"\nweight = 200\nmatch = { cgroup = \"heavy\" }\n\
    [[tenant]]\nname = \"batch\"\nclass = \"background\"\nmatch = { cgroup = \"batch\" }\n";

/// What everyone on such a host receives from `from_ns` on for `for_ns`, in ms, in the order of [`NAMES`], and how long
/// the reserved one had to wait.
fn received(sampled_at: Option<u64>, from_ns: u64, for_ns: u64) -> (Vec<f64>, u64) {
    apart(move || {
        let (mut run, mut tenants) = start(HOST);
        for name in NAMES {
            for _ in 0..2 {
                run.spawn(tenants.thread(name, Hog));
            }
        }
        settle(&mut run, &tenants);
        run.run_until(run.machine.now_ns() + 500 * MS);
        if let Some(at_ns) = sampled_at {
            run.run_until(run.machine.now_ns() + at_ns);
            assert!(hold_off(&mut run, "sampled", LENGTH).is_some());
        }
        run.run_until(run.machine.now_ns() + from_ns);
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, for_ns);
        let of = |name: &str| &received[tenants.home(name).first_unit.index()];
        let web = run.policy.queues(&mut run.machine).iter().map(|queue| queue.missed).sum::<u64>();
        (NAMES.map(|name| of(name).received_ns as f64 / MS as f64).to_vec(), web)
    })
}

const NAMES: [&str; 5] = ["web", "sampled", "one", "heavy", "batch"];

/// Until when.
fn hold_off(run: &mut Run, name: &str, length: Duration) -> Option<u64> {
    let status = run.act(|run| run.policy.status(&run.machine));
    let tenant = status.tenants.iter().find(|tenant| tenant.name == name).and_then(|tenant| tenant.id);
    let tenant = tenant.expect("it is here");
    let hold = |run: &mut Run| run.policy.ask(&mut run.machine, |loader| loader.hold_off(tenant, length));
    run.act(hold).expect("it can be sampled")
}

#[test]
fn others_are_held_off_and_who_is_reserved_is_not() {
    // The first 2 ms are not looked at: whoever runs gives way, and is charged.
    let (received, missed) = received(Some(0), 2 * MS, 36 * MS);
    let [web, sampled, rest @ ..] = &received[..] else { panic!("{received:?}") };
    assert!(rest.iter().all(|&ms| ms == 0.0), "{received:?}");
    // Of two CPUs for 36 ms a fifth is promised, and the rest is one tenant's, but for changes of task.
    assert!((web - 14.4).abs() < 4.0 && web + sampled > 71.5, "{received:?}");
    assert_eq!(missed, 0);
}

/// From the beginning of a sample on, over two seconds.
#[test]
fn what_others_miss_is_made_good() {
    let [(without, _), (with, missed)] = [None, Some(0)].map(|at_ns| received(at_ns, 0, 2 * SECOND));
    for (name, (without, with)) in NAMES.iter().zip(without.iter().zip(&with)) {
        println!("{name}: {without:.2} ms without a sample, {with:.2} ms");
        assert!((without - with).abs() < 4.0, "{name}: {without} ms without a sample, and {with} ms");
    }
    assert_eq!(missed, 0);
}

/// Nobody ends it, and the next one waits for its time.
#[test]
fn samples_are_short_and_rare() {
    apart(|| {
        let (mut run, mut tenants) = start(HOST);
        run.spawn(tenants.thread("batch", Hog));
        run.spawn(tenants.thread("sampled", Periodic::new(MS, 20 * MS)));
        settle(&mut run, &tenants);
        let batch = tenants.home("batch").first_unit.index();
        let mut held_off = Vec::new();
        for _ in 0..40 {
            held_off.push(hold_off(&mut run, "sampled", LENGTH).is_some());
            assert_eq!(hold_off(&mut run, "sampled", LENGTH), None, "there is one already");
            run.observer.begin(&mut run.machine);
            let ms = after(&mut run, 100 * MS)[batch].received_ns / MS;
            let expected = if held_off.ends_with(&[true]) { 58..=60 } else { 98..=100 };
            assert!(expected.contains(&ms), "{ms} ms, {held_off:?}");
        }
        assert_eq!(held_off.iter().filter(|is| **is).count(), 2, "{held_off:?}");
    });
}

/// One busy thread on two CPUs: the other CPU idles in the sample, but for who is reserved. That time is lost to all,
/// and afterwards the others have both CPUs until they are even.
#[test]
fn who_leaves_a_cpu_idle_pays_for_what_it_had_alone() {
    let shared = |sampled: bool| {
        apart(move || {
            let (mut run, mut tenants) = start(HOST);
            for name in ["sampled", "one", "one", "heavy", "heavy"] {
                run.spawn(tenants.thread(name, Hog));
            }
            settle(&mut run, &tenants);
            run.run_until(run.machine.now_ns() + 500 * MS);
            run.observer.begin(&mut run.machine);
            assert!(!sampled || hold_off(&mut run, "sampled", LENGTH).is_some());
            let received = after(&mut run, SECOND);
            ["sampled", "one", "heavy"]
                .map(|name| received[tenants.home(name).first_unit.index()].received_ns as f64 / MS as f64)
        })
    };
    // All CPU time of two CPUs by weight, 1 : 1 : 2; in the sample 40 ms of one of them are lost to everybody.
    for (sampled, all) in [(false, 2000.0), (true, 1960.0)] {
        let received = shared(sampled);
        println!("{sampled}: {received:.2?}");
        for (ms, part) in received.into_iter().zip([0.25, 0.25, 0.5]) {
            assert!((ms - all * part).abs() < 8.0, "sampled: {sampled}, {received:?}");
        }
    }
}

/// One that has a reservation is sampled like any other; a background one is refused.
#[test]
fn who_is_reserved_can_be_sampled_and_who_is_in_the_background_cannot() {
    apart(|| {
        let (mut run, mut tenants) = start(&HOST.replace("capped = true\n", ""));
        for name in ["web", "web", "web", "one", "one", "batch"] {
            run.spawn(tenants.thread(name, Hog));
        }
        settle(&mut run, &tenants);
        let number = run.act(|run| run.policy.status(&run.machine)).tenants;
        let number = |name: &str| number.iter().find(|tenant| tenant.name == name).unwrap().id.unwrap();
        let hold = |run: &mut Run, id, length| {
            run.act(|run| run.policy.ask(&mut run.machine, |loader| loader.hold_off(id, length)))
        };
        assert!(hold(&mut run, number("batch"), LENGTH).is_err());
        assert!(hold(&mut run, number("one"), 2 * LENGTH).is_err(), "too long");
        assert!(hold(&mut run, 77, LENGTH).is_err());
        assert!(hold(&mut run, number("web"), LENGTH).unwrap().is_some());
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 38 * MS);
        let of = |name: &str| received[tenants.home(name).first_unit.index()].received_ns;
        assert!(of("web") > 74 * MS && of("one") < MS && of("batch") < MS, "{}, {}", of("web"), of("one"));
    });
}

type Programs = fn() -> Vec<Script>;

/// What is done in four seconds, alone or beside others, and what is foretold beside them.
fn work(programs: Programs, others: u32) -> (u64, Option<Result<Prediction, Refusal>>) {
    apart(move || {
        let (mut run, mut tenants) = start(HOST);
        for program in programs() {
            run.spawn(tenants.thread("sampled", program));
        }
        for _ in 0..others {
            run.spawn(tenants.thread("one", Hog));
        }
        settle(&mut run, &tenants);
        let unit = tenants.home("sampled").first_unit.index();
        run.run_until(run.machine.now_ns() + 500 * MS);
        run.observer.begin(&mut run.machine);
        let done = after(&mut run, 4 * SECOND)[unit].work;
        (done, (others > 0).then(|| foretold(&mut run)))
    })
}

/// As `rota profile --predict` samples.
fn foretold(run: &mut Run) -> Result<Prediction, Refusal> {
    let status = run.act(|run| run.policy.status(&run.machine));
    let id = status.tenants.iter().find(|tenant| tenant.name == "sampled").and_then(|tenant| tenant.id);
    let id = id.expect("it is here");
    let so_far = |run: &mut Run| {
        let now_ns = run.machine.now_ns();
        let read = |run: &mut Run| run.policy.ask(&mut run.machine, |loader| Enactor::read(loader, now_ns));
        Sample::of(id, &run.act(read).expect("it is read"))
    };
    let part = |run: &mut Run, ns: u64| {
        let before = so_far(run);
        run.run_until(run.machine.now_ns() + ns);
        so_far(run).since(&before).expect("it is the same tenant").counts()
    };
    let [mut dedicated, mut beside] = [const { Vec::new() }; 2];
    for _ in 0..10 {
        beside.push(part(run, 900 * MS));
        assert!(hold_off(run, "sampled", LENGTH).is_some());
        run.run_until(run.machine.now_ns() + 3 * MS);
        dedicated.push(part(run, 35 * MS));
        run.run_until(run.machine.now_ns() + SECOND + 2 * MS);
    }
    predict(&dedicated, &beside)
}

#[test]
fn what_a_sample_foretells_comes_true() {
    let rounds = || {
        let compute = Distribution::Uniform(200_000, 300_000);
        Rounds { threads: 2, compute, patience: Patience::NONE }.programs()
    };
    let locking = || {
        let [outside, inside] =
            [Distribution::Uniform(100_000, 200_000), Distribution::Uniform(50_000, 100_000)];
        Locking { threads: 3, outside, inside, waiting: Waiting::Unordered(Patience::NONE) }.programs()
    };
    for (name, programs) in [("rounds", rounds as Programs), ("locking", locking)] {
        let [(alone, _), (beside, foretold)] = [0, 2].map(|others| work(programs, others));
        let slowdown = alone as f64 / beside as f64;
        println!("{name}: {slowdown:.3} times slower, foretold {foretold:.3?}");
        let foretold = foretold.expect("it has neighbours").expect("it goes on evenly").slowdown;
        assert!(slowdown > 1.2 && (foretold / slowdown - 1.0).abs() < 0.03, "{name}: {foretold}, {slowdown}");
    }
}
