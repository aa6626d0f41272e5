//! Nobody starves: on a real kernel no thread of any class waits for longer than docs/PROMISES.md says.

use crate::guest::{Guest, NEWEST, Results, script, tenant};

const CONFIG: &str = r#"
[[tenant]]
name = "web"
class = "reserved"
share = 0.30
latency = "20ms"
capped = true
match = { cgroup = "web" }

[[tenant]]
name = "build"
class = "reserved"
vcpus = 2
share = 0.20
latency = "20ms"
capped = true
match = { cgroup = "build" }

[[tenant]]
name = "light"
class = "shared"
weight = 50
match = { cgroup = "light" }

[[tenant]]
name = "batch"
class = "shared"
match = { cgroup = "batch" }

[[tenant]]
name = "heavy"
class = "shared"
weight = 400
match = { cgroup = "heavy" }

[[tenant]]
name = "spare"
class = "background"
match = { cgroup = "spare" }
"#;

const MS: f64 = 1e6;

/// What each sibling may have before a thread's turn (docs/PROMISES.md): four quanta, each with what ends it, which is
/// a tick of 4 ms where few take turns in slots and a decision each ms where shared tenants do.
const TURNS_RESERVED: f64 = 4.0 * (4.0 + 4.0) * MS;
const TURNS_SHARED: f64 = 4.0 * (4.0 + 1.0) * MS;

/// CPUs that web and the system leave at least to others.
const LEFT: f64 = 2.0 - 0.30 - 0.10;

/// Each shared tenant's name, weight and threads: the weights in hundreds, as in the formula.
const SHARED: [(&str, f64, u32); 3] = [("light", 0.5, 2), ("batch", 1.0, 8), ("heavy", 4.0, 20)];

/// How long a thread of a shared tenant waits at most: all siblings have their turns before it, out of the tenant's
/// part by weight, and as much as the tenant may be behind twice over.
fn shared_bound_ns(of: usize) -> f64 {
    let (_, weight, threads) = SHARED[of];
    let weights: f64 = SHARED.iter().map(|(_, weight, _)| weight).sum();
    let lags = SHARED.iter().enumerate().filter(|(other, _)| *other != of);
    let behind = lags.map(|(_, (_, other, _))| (3.0 / other + 2.0 / weight + 0.25 / other) * MS);
    let lag = weight * (1.0 - weight / weights) * behind.fold(0.0, f64::max);
    (f64::from(threads) * TURNS_SHARED + 2.0 * lag) * weights / weight / LEFT
}

/// The longest of a tenant's threads' longest waits.
fn longest_ns(results: &Results, when: &str, name: &str, threads: u32) -> f64 {
    let gaps = (0..threads).map(|thread| results.gaps(&format!("{when}_{name}_{thread}")).longest_ns);
    let gaps: Vec<u64> = gaps.collect();
    assert!(gaps.iter().all(|&ns| ns > 0), "{when} {name}: somebody was not there: {gaps:?}");
    gaps.into_iter().max().unwrap() as f64
}

#[test]
#[ignore = "boots a guest"]
fn no_thread_of_any_class_waits_longer_than_promised() {
    let results = Guest::exact_on(NEWEST, 2).run(CONFIG, &script!("starve.sh"));
    // One slot's latency, and two siblings' turns out of its share.
    let mut bounds = vec![("busy", "web", 3, 20.0 * MS + 2.0 * TURNS_RESERVED / 0.30)];
    bounds.extend(
        (0..).zip(SHARED).map(|(of, (name, _, threads))| ("busy", name, threads, shared_bound_ns(of))),
    );
    // A grant of 5 ms in each second and a bit, of which the two may have one after the other.
    bounds.push(("busy", "spare", 2, 2.0 * (1_000.0 + 5.0 + 102.7) * MS));
    // What web leaves of its CPU within its latency, and the other one's turn.
    bounds.push(("idle", "spare", 2, 20.0 * MS + 2.0 * TURNS_RESERVED));
    for (when, name, threads, bound_ns) in bounds {
        let longest_ns = longest_ns(&results, when, name, threads);
        println!("{when} {name}: {:.1} ms of {:.1} ms", longest_ns / MS, bound_ns / MS);
        assert!(longest_ns <= bound_ns, "{when} {name}: {longest_ns} ns of {bound_ns} ns");
    }
    let status = results.status("status");
    assert_eq!(tenant(&status, "web").missed, 0, "{status:?}");
    // A container's reservation is a total, and so is its cap, but for a window's budget at each end. The thread moves
    // twice in a window, and an interrupt by which another CPU is told may wait for 0.2 ms: CPUs take turns here.
    let build = results.gaps("build");
    let had = 1.0 - build.lost_ns as f64 / build.window_ns as f64;
    println!("one thread of two vCPUs of 0.2: {had:.3}");
    assert!((0.4 * 0.9 - 0.02..=0.4 + 4.0 * 0.2 * 0.02).contains(&had), "{had}");
}
