//! A VM whose vCPUs have their slots together, beside others that compute.

#![allow(clippy::unwrap_used)] // as in every test; here also in what the tests share

use rota_model::config::Source;
use rota_scenario::policies::find;
use rota_scenario::{Options, Outcome, Scenario};
use rota_sim::observe::Event;

/// A VM of four vCPUs with 45 % of a CPU each, in which four threads run a program, beside four tenants that compute.
fn scenario(program: &str, together: bool) -> Scenario {
    let mut text = format!(
        "duration = \"4s\"\nwarm_up = \"200ms\"\n[host]\ncpus = \"0-4\"\nhousekeeping = \"4\"\n\
         [[tenant]]\nname = \"vm\"\nvcpus = 4\nclass = \"reserved\"\nshare = 0.45\nlatency = \"20ms\"\ncapped = true\n\
         together = {together}\nmatch = {{ vm = \"qemu:vm\" }}\n\
         [[workload]]\ntenant = \"vm\"\nthreads = 4\n{program}"
    );
    for (number, latency_ms) in [15, 20, 30, 45].into_iter().enumerate() {
        text += &format!(
            "[[tenant]]\nname = \"hog-{number}\"\nclass = \"reserved\"\nshare = 0.45\nlatency = \"{latency_ms}ms\"\n\
             capped = true\n[[workload]]\ntenant = \"hog-{number}\"\nprogram = \"hog\"\n"
        );
    }
    Scenario::parse(&Source { path: "together.toml".to_owned(), text }).unwrap()
}

fn run(program: &str, together: bool) -> Outcome {
    let options = Options { trace: true, ..Options::default() };
    let outcome = scenario(program, together).run(find("rota").unwrap(), options, &|_| ()).unwrap();
    assert!(outcome.insane.is_empty(), "{:?}", outcome.insane);
    outcome
}

/// For how long so many of the VM's vCPUs ran at once, in ns, from none to all four.
fn at_once(outcome: &Outcome) -> [u64; 5] {
    let mut times_ns = [0; 5];
    let (mut running, mut last_ns) = (0, outcome.began_ns);
    for &(now_ns, event) in outcome.trace.as_ref().unwrap().events() {
        let (task, by) = match event {
            Event::Runs(_, task) => (task, 1),
            Event::Stops(_, task, _) => (task, -1),
            _ => continue,
        };
        if !outcome.names[task.index()].starts_with("vm") {
            continue;
        }
        if now_ns > last_ns {
            times_ns[running as usize] += now_ns - last_ns;
            last_ns = now_ns;
        }
        running += by;
    }
    times_ns
}

/// Slots that come together are walls: whoever could run earlier waits for them.
#[test]
fn vcpus_run_at_the_same_times() {
    let partly = |together| {
        let times_ns = at_once(&run("program = \"hog\"\n", together));
        let all: u64 = times_ns.iter().sum();
        let partly: u64 = times_ns[1..4].iter().sum();
        println!("together {together}: {times_ns:?}");
        partly as f64 / all as f64
    };
    assert!(partly(false) > 0.5);
    assert!(partly(true) < 0.005);
}

/// What a program does if its VM's slots come together, in percent of what it does if not.
fn gain(program: &str) -> u64 {
    let [apart, together] = [false, true].map(|together| run(program, together).tenants[0].metrics.work);
    println!("{apart} and {together} together: {program:?}");
    together * 100 / apart
}

#[test]
fn threads_that_spin_do_more_together() {
    let locking = "program = \"spinlock\"\noutside = \"50us\"\ninside = \"10us\"\n";
    assert!(gain(locking) >= 115);
    assert!(gain(&format!("{locking}ordered = true\n")) >= 130);
    let barrier = "program = \"barrier\"\ncompute = { uniform = [\"200us\", \"300us\"] }\n";
    assert!(gain(&format!("{barrier}spin = \"forever\"\n")) >= 250);
}

/// A vCPU that sleeps in its slot may wait for the next one, where it would else be served as it wakes.
#[test]
fn threads_that_block_lose_little_together() {
    assert!(gain("program = \"mutex\"\noutside = \"50us\"\ninside = \"10us\"\n") >= 100);
    assert!(gain("program = \"barrier\"\ncompute = { uniform = [\"200us\", \"300us\"] }\n") >= 90);
}
