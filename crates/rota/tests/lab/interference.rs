//! Tables that promise the same, exchanged again and again: nobody misses what it is promised by Rota's doing.

use rota_rules::status::Status;

use crate::guest::{Guest, NEWEST, script, tenant};

/// Six tenants on two CPUs. No emulator counts cache misses, so at last the time that a tenant runs stands in for them.
const CONFIG: &str = r#"
[host]
cpus = "0-1"
switch_cost = "20us" # in an emulated guest
interference = "measured"

[[tenant]]
name = "t{i}"
count = 6
class = "reserved"
share = 0.28
latency = "20ms"
match = { cgroup = "t{i}" }
"#;

/// What `ROTA_INTERFERENCE=SECONDS` says, or as much as is soon seen.
fn seconds() -> u64 {
    std::env::var("ROTA_INTERFERENCE").map_or(10, |seconds| seconds.parse().unwrap())
}

#[test]
#[ignore = "boots a guest"]
fn nobody_misses_a_promise_while_places_change() {
    let guest = Guest::exact_on(NEWEST, 2).halved(2).file("/lab/seconds", &seconds().to_string());
    let results = guest.run(CONFIG, &script!("interference.sh"));
    let [before, after] = ["before", "after"].map(|name| results.status(name));
    let shown = after.interference.clone().expect("it is wanted");
    assert_eq!(shown.strategy, "random");
    assert!(shown.no_counters.is_some_and(|reason| reason.contains("no cache misses")), "{after:?}");
    assert_eq!(results.logged("vCPUs change places at random instead").len(), 1, "{}", results.logs());
    let [exchanges_before, moves_before] =
        before.interference.map_or([0; 2], |before| [before.exchanges, before.moves]);
    let (exchanges, moves) = (shown.exchanges - exchanges_before, shown.moves - moves_before);
    println!("{exchanges} tables and {moves} moves in {} s", seconds());
    assert!(exchanges * 2 >= seconds() * 5 && moves > exchanges, "{exchanges} tables, {moves} moves");
    assert!(after.generation >= exchanges && after.cpus.iter().all(|cpu| cpu.mixed == 0), "{after:?}");
    for number in 0..6 {
        let name = format!("t{number}");
        let status = tenant(&after, &name);
        assert_eq!(status.missed_by_cause.rota, 0, "{status:?}");
        assert!(status.received > 0.27, "{status:?}");
    }
    is_spread(&results.status("counted"));
}

/// Three tenants of six compute, which were all on one CPU: they are on both.
fn is_spread(counted: &Status) {
    let shown = counted.interference.as_ref().expect("it is wanted");
    assert_eq!((shown.strategy.as_str(), shown.hungry), ("measured", 3), "{shown:?}");
    assert!(shown.counted_by.as_ref().is_some_and(|who| who.contains("the kernel")), "{shown:?}");
    assert!(shown.moves >= 2 && shown.cpus.iter().all(|cpu| cpu.lines_per_ms > 0), "{shown:?}");
    assert!(counted.tenants.iter().all(|tenant| tenant.missed_by_cause.rota == 0), "{counted:?}");
}
