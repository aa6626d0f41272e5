//! A tenant with more threads than anybody should have.

use crate::guest::{Guest, NEWEST, script, tenant};

const CONFIG: &str = r#"
[[tenant]]
name = "web"
class = "reserved"
share = 0.30
latency = "20ms"
match = { cgroup = "web" }

[[tenant]]
name = "crowd"
class = "reserved"
share = 0.20
latency = "20ms"
match = { cgroup = "crowd" }
"#;

#[test]
#[ignore = "boots a guest"]
fn a_crowd_disturbs_nobody_else() {
    let results = Guest::exact(NEWEST).run(CONFIG, &script!("crowd.sh"));
    let [bomb, before, thousand, after] =
        ["bomb", "before", "thousand", "after"].map(|name| results.status(name));
    let peak: u32 = results.text("bomb.peak").trim().parse().unwrap();
    assert!(peak >= 100, "the bomb had only {peak} processes");
    assert!(tenant(&thousand, "crowd").runnable >= 1000, "{:?}", tenant(&thousand, "crowd"));
    assert_eq!(tenant(&after, "crowd").runnable, 0);
    for name in ["web", "system"] {
        assert_eq!(tenant(&bomb, name).missed, 0, "{bomb:?}");
        assert_eq!(tenant(&before, name).missed, tenant(&thousand, name).missed, "{thousand:?}");
    }
    for name in ["bomb_probe", "thousand_probe"] {
        let gaps = results.gaps(name);
        assert!(gaps.longest_ns <= 20_000_000, "{name}: {}", gaps.longest_ns);
        let received = 1.0 - gaps.lost_ns as f64 / gaps.window_ns as f64;
        assert!(received >= 0.30, "{name}: {received}");
    }
}
