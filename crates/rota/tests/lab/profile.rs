//! What threads wait for, as a real kernel shows it.

use crate::guest::{Guest, NEWEST, OLDER, script, tenant};

const CONFIG: &str = r#"
[[tenant]]
name = "web"
class = "shared"
match = { cgroup = "web" }

[[tenant]]
name = "batch"
class = "shared"
match = { cgroup = "batch" }

[[tenant]]
name = "others"
class = "shared"
match = { cgroup = "others" }

[[tenant]]
name = "devices"
class = "shared"
match = { cgroup = "devices" }

[[tenant]]
name = "time"
class = "shared"
match = { cgroup = "time" }

[[tenant]]
name = "unknown"
class = "shared"
match = { cgroup = "unknown" }
"#;

/// The tenants whose threads are blocked, what that is called, and how many threads they have.
const BLOCKED: [(&str, &str, f64); 4] = [
    ("others", "synchronisation", 7.0),
    ("devices", "devices", 11.0),
    ("time", "sleep", 2.0),
    ("unknown", "unknown", 2.0),
];

/// The part of a profile's time that a thread spent so, and whether it spent its time on nothing else. A profile takes
/// its own time as the daemon is asked, and looks at threads a few hundredths of a second later.
fn told(thread: &serde_json::Value, for_s: f64, kind: &str) -> (f64, bool) {
    let spent = thread["spent_ns"].as_object().unwrap();
    let is_alone = spent.iter().all(|(other, ns)| other == kind || ns.as_u64() == Some(0));
    (spent[kind].as_f64().unwrap() / 1e9 / for_s, is_alone)
}

fn what_threads_wait_for_is_told(kernel: &'static str) {
    let results = Guest::exact(kernel).program("perl").run(CONFIG, &script!("profile.sh"));
    let profile = |name: &str| -> serde_json::Value {
        serde_json::from_str(&results.text(&format!("{name}.json"))).unwrap()
    };
    for (name, kind, threads) in BLOCKED {
        let profile = profile(name);
        let (spent, for_s) = (profile["spent_ns"].as_object().unwrap(), profile["for_s"].as_f64().unwrap());
        for (other, ns) in spent {
            let were = ns.as_f64().unwrap() / 1e9 / for_s;
            let are = if other == kind { threads } else { 0.0 };
            assert!((were - are).abs() < 0.01 * threads, "{name}: {were} threads and not {are}: {profile}");
        }
        let one_by_one = profile["threads"].as_array().unwrap();
        assert_eq!(one_by_one.len() as f64, threads, "{profile}");
        for thread in one_by_one {
            let (part, is_alone) = told(thread, for_s, kind);
            assert!((part - 1.0).abs() < 0.1 && is_alone, "{name}: {part} of {thread}");
            assert_eq!(thread["name"], "perl");
        }
    }
    let shown = results.text("web.txt");
    println!("{shown}");
    assert!(shown.contains("not known: cycles, instructions and cache misses: no PMU"), "{shown}");
    let (page, columns) = (results.text("web.html"), r#"y="0."#); // of times that add up to all but a hundredth
    assert!(page.contains("threads over time") && page.matches(columns).count() > 10, "{page}");
    let web = profile("web");
    let [cycles, ran_ns] =
        [&web["counted"]["cycles"], &web["spent_ns"]["running"]].map(|count| count.as_f64().unwrap());
    assert!((cycles / ran_ns - 1.0).abs() < 0.03, "{cycles} ns by the kernel's counters: {web}");
    let (thread_waits, _) = told(&web["threads"][0], web["for_s"].as_f64().unwrap(), "waiting");
    let time =
        |key: &str, kind: &str| web[key][kind].as_f64().unwrap() / 1e9 / web["for_s"].as_f64().unwrap();
    let (running, waiting) = (time("spent_ns", "running"), time("spent_ns", "waiting"));
    assert!((running + waiting - 1.0).abs() < 0.01 && (0.4..0.6).contains(&waiting), "{web}");
    assert!(time("waited_for_ns", "batch") > 0.9 * waiting, "{web}");
    assert!((thread_waits - waiting).abs() < 0.05, "{web}");
    let status = results.status("after");
    assert_eq!(tenant(&status, "web").waits_for.as_deref(), Some("batch"));
}

#[test]
#[ignore = "boots a guest"]
fn what_threads_wait_for_is_told_on_the_newest_kernel() {
    what_threads_wait_for_is_told(NEWEST);
}

#[test]
#[ignore = "boots a guest"]
fn what_threads_wait_for_is_told_on_an_older_kernel() {
    what_threads_wait_for_is_told(OLDER);
}
