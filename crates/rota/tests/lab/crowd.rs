//! A tenant with more threads than anybody should have.

use rota_lab::guest::crowd::Crowd;

use crate::guest::{Guest, NEWEST, script, tenant};

/// What `ROTA_CROWD="threads share seconds"` says, or as much as is soon seen. The kernel's watchdog comes after 30 s.
fn crowd() -> (u32, f64, u64) {
    let said = std::env::var("ROTA_CROWD").unwrap_or_else(|_| "1500 0.2 2".to_owned());
    let said: Vec<&str> = said.split_whitespace().collect();
    (said[0].parse().unwrap(), said[1].parse().unwrap(), said[2].parse().unwrap())
}

fn config(share: f64) -> String {
    format!(
        r#"
[[tenant]]
name = "web"
class = "reserved"
share = 0.30
latency = "20ms"
match = {{ cgroup = "web" }}

[[tenant]]
name = "crowd"
class = "reserved"
share = {share}
latency = "20ms"
match = {{ cgroup = "crowd" }}
"#
    )
}

/// What a change of task takes at the most here, where an instruction takes a ns and a timer ends each turn.
const CHANGE_NS: f64 = 50_000.0;

#[test]
#[ignore = "boots a guest"]
fn a_crowd_disturbs_nobody_else() {
    let (threads, share, seconds) = crowd();
    let results = Guest::exact(NEWEST)
        .halved(0)
        .own("rota-crowd")
        .file("/lab/crowd", &format!("{threads} {seconds}\n"))
        .run(&config(share), &script!("crowd.sh"));
    let [bomb, before, beside, after] =
        ["bomb", "before", "beside", "after"].map(|name| results.status(name));
    let peak: u32 = results.text("bomb.peak").trim().parse().unwrap();
    assert!(peak >= 100, "the bomb had only {peak} processes");
    let runnable = tenant(&beside, "crowd").runnable;
    assert!(runnable >= threads, "{runnable} of {threads} run");
    assert_eq!(tenant(&after, "crowd").runnable, 0);
    for name in ["web", "system"] {
        assert_eq!(tenant(&bomb, name).missed, 0, "{bomb:?}");
        assert_eq!(tenant(&before, name).missed, tenant(&beside, name).missed, "{beside:?}");
    }
    for name in ["bomb_probe", "crowd_probe"] {
        let gaps = results.gaps(name);
        assert!(gaps.longest_ns <= 20_000_000, "{name}: {}", gaps.longest_ns);
        let received = 1.0 - gaps.lost_ns as f64 / gaps.window_ns as f64;
        assert!(received >= 0.30, "{name}: {received}");
    }
    // docs/PROMISES.md, "How long a runnable thread may wait": L + n (20 us + s) / U
    let crowd: Crowd = results.json("crowd");
    let bound_ns = 20e6 + f64::from(threads) * (20_000.0 + CHANGE_NS) / share;
    println!("{threads} threads in {share} of a CPU: {crowd:?}, at most {:.1} s", bound_ns / 1e9);
    assert_eq!(crowd.ran, threads);
    assert!(crowd.longest_ns as f64 <= bound_ns, "{crowd:?} of {bound_ns} ns");
}
