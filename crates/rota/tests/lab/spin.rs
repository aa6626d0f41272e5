//! Threads that wait busily give way to their siblings, and threads that compute do not.

use rota_lab::scenario::result::Work;

use crate::guest::{Guest, NEWEST, script, tenant};

const CONFIG: &str = r#"
[[tenant]]
name = "on"
class = "shared"
match = { cgroup = "on" }

[[tenant]]
name = "off"
class = "shared"
oversubscribe = "off"
match = { cgroup = "off" }

[[tenant]]
name = "reserved"
class = "reserved"
share = 0.5
latency = "20ms"
match = { cgroup = "reserved" }
"#;

/// Locks whose waits are seen, as of those of table 2 in Huang et al., HPDC 2021; and one whose threads yield.
const SEEN: [&str; 11] =
    ["tas", "ttas", "cas", "ticket", "partitioned", "array", "mcs", "clh", "pthread", "flag", "yielding"];
/// What computes, and is not taken for waiting.
const COMPUTES: [&str; 7] = ["sum", "copy", "crc", "matrix", "chase", "sort", "delay"];

#[test]
#[ignore = "boots a guest"]
fn busy_waits_are_cut_short_on_the_newest_kernel() {
    let results = Guest::exact(NEWEST).halved(2).own("rota-spin").run(CONFIG, &script!("spin.sh"));
    let rounds = |name: &str| -> f64 { results.json::<Work>(name).rounds as f64 };
    let alone = rounds("alone");
    let mut before = 0;
    println!("kind            turns  of one thread's  cut short");
    for kind in SEEN.into_iter().chain(["counting"]).chain(COMPUTES).chain(["float"]) {
        let after = tenant(&results.status(&format!("after-{kind}")), "on").spins;
        let (part, spins) = (rounds(kind) / alone, after - before);
        println!("{kind:12} {:8} {part:16.2} {spins:10}", rounds(kind));
        before = after;
        if SEEN.contains(&kind) {
            assert!(part > 0.5, "{kind}: {part}");
        } else if COMPUTES.contains(&kind) {
            assert_eq!(spins, 0, "{kind} only computes");
        }
    }
    for kind in ["ticket", "flag"] {
        let [off, reserved] = ["off", "reserved"].map(|tenant| rounds(&format!("{tenant}-{kind}")) / alone);
        println!("{kind:12} off {off:.2}, reserved {reserved:.2}");
        // With tickets it depends on who came first: threads that have come one after the other wait for nobody.
        assert!((off < 0.3 || kind == "ticket") && reserved > 0.5, "{kind}: {off} {reserved}");
    }
}
