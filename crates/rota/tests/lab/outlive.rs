//! However `rota up` ends, no tenant stops. Promises outlive the daemon that made them until the next one comes. If
//! none comes, the kernel has the machine back.

use std::time::Duration;

use crate::guest::{Guest, NEWEST, OLDER, script, tenant};
use rota_rules::status::State;

const CONFIG: &str = r#"
[[tenant]]
name = "web"
class = "reserved"
share = 0.3
latency = "20ms"
match = { cgroup = "web" }

[[tenant]]
name = "batch"
class = "shared"
match = { cgroup = "batch" }
"#;

/// How often the daemon is killed: 5 times, or as the environment has it. Each time has its own moment; `"251 500"` are
/// 250 others, as a guest must end in time.
fn kills() -> String {
    std::env::var("ROTA_KILLS").unwrap_or_else(|_| "5".to_owned())
}

/// How many that are.
fn count(kills: &str) -> u64 {
    let numbers: Vec<u64> = kills.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.last().unwrap() + 1 - if numbers.len() > 1 { numbers[0] } else { 1 }
}

/// The newest kernel, or with `ROTA_KILLS_OLDER` an older one. One kill on that is in `promises`.
fn kernel() -> &'static str {
    if std::env::var_os("ROTA_KILLS_OLDER").is_some() { OLDER } else { NEWEST }
}

#[test]
#[ignore = "boots a guest"]
fn promises_outlive_the_daemon() {
    let results = Guest::exact(kernel())
        .longer(Duration::from_secs(8) * count(&kills()) as u32)
        .own("rota-hold")
        .file("/lab/kills", &kills())
        .run(CONFIG, &script!("outlive.sh"));
    let [before, after] = ["before", "after"].map(|name| results.status(name));
    for name in ["web", "batch"] {
        let [before, after] = [&before, &after].map(|status| tenant(status, name));
        assert_eq!((before.id, before.state), (after.id, after.state));
        assert_eq!(after.state, State::Served);
        assert!(
            after.used_ns > before.used_ns && after.dispatches > before.dispatches,
            "{before:?} {after:?}"
        );
    }
    assert!(after.generation >= before.generation + count(&kills()));
    let web = tenant(&after, "web");
    assert_eq!(web.missed_by_cause.rota, tenant(&before, "web").missed_by_cause.rota, "{web:?}");
    // By the kernel's own account: promised 0.3 and 0.4 by turns, all through.
    let number = |name: &str| results.text(name).trim().parse::<f64>().unwrap();
    let used_s = (number("used_after") - number("used_before")) / 1e6;
    let uptimes = results.text("uptimes");
    let uptimes: Vec<f64> = uptimes.split_whitespace().map(|uptime| uptime.parse().unwrap()).collect();
    let wall_s = uptimes[1] - uptimes[0];
    let share = used_s / wall_s;
    println!(
        "killed {} times: web received {share:.3} in {wall_s:.0} s, missed {}",
        count(&kills()),
        web.missed
    );
    assert!(share >= 0.3, "web received {share}");
    let second = results.text("second.log");
    assert!(second.contains("another `rota up` runs already") && second.lines().count() == 1, "{second}");
    assert_eq!(results.status("after_second").pid, before.pid);
    assert!(results.text("last.log").ends_with("stopped; the kernel's own scheduler runs every task\n"));
    let down = results.text("down.log");
    assert!(down.contains("the daemon has ended") && down.contains("had left behind has ended"), "{down}");
}
