//! In which order a real kernel calls a scheduler: as the simulator's model does, or could.

use std::collections::BTreeSet;

use rota_twin::ext::{Order, PAIRS, PAIRS_ON_CPUS, Pair};

use crate::guest::{Guest, NEWEST, OLDER, script};

const CONFIG: &str = r#"
[[tenant]]
name = "web"
class = "reserved"
share = 0.30
latency = "20ms"
match = { cgroup = "web" }

[[tenant]]
name = "batch"
class = "shared"
match = { cgroup = "batch" }

[[tenant]]
name = "other"
class = "shared"
match = { cgroup = "other" }

[[tenant]]
name = "spare"
class = "background"
match = { cgroup = "spare" }
"#;

/// What Rota seldom or never lets come to pass: who is interrupted by another class would go on without a word if some
/// of the slice was left, and a CPU whose last thread is queued anew would idle until it is told of it.
const SELDOM: [Pair; 2] = [("stopping", "idles"), ("stopping", "running")];

/// Each call of each task and CPU comes after one that it may come after, and whatever the model makes of two that
/// follow each other the kernel makes, too.
fn the_model_calls_as_the_kernel_does(kernel: &'static str) {
    let guest = Guest::exact_on(kernel, 2).own("rota-calls").own("rota-realtime").program("taskset");
    let results = guest.run(CONFIG, &script!("calls.sh"));
    let mut order = Order::default();
    let calls = results.text("calls.txt");
    for (number, line) in (1..).zip(calls.lines()) {
        order.see(line).unwrap_or_else(|why| panic!("call {number}: {why}"));
    }
    println!("{} calls on {kernel}", calls.lines().count());
    assert_eq!(missing(PAIRS, &order.pairs().collect()), []);
    assert_eq!(missing(PAIRS_ON_CPUS, &order.pairs_on_cpus().collect()), []);
}

/// Pairs that the model makes and that were not seen, but should have been.
fn missing(made: &[Pair], seen: &BTreeSet<Pair>) -> Vec<Pair> {
    println!(
        "{} of {} pairs that the model makes",
        seen.iter().filter(|pair| made.contains(pair)).count(),
        made.len()
    );
    println!("others: {:?}", seen.iter().filter(|pair| !made.contains(pair)).collect::<Vec<_>>());
    made.iter().filter(|pair| !seen.contains(pair) && !SELDOM.contains(pair)).copied().collect()
}

#[test]
#[ignore = "boots a guest"]
fn the_model_calls_as_the_newest_kernel_does() {
    the_model_calls_as_the_kernel_does(NEWEST);
}

#[test]
#[ignore = "boots a guest"]
fn the_model_calls_as_an_older_kernel_does() {
    the_model_calls_as_the_kernel_does(OLDER);
}
