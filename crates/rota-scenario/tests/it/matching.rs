//! A VM whose work falls on one vCPU, with parts of its total share by load and without: the worked example of Shan,
//! Jia and Ding, *Rethinking multicore application scalability on big virtual machines*, section IV.B and figure 6.

#![allow(clippy::unwrap_used)] // as in every test; here also in what the tests share

use rota_model::config::Source;
use rota_scenario::policies::find;
use rota_scenario::{Options, Outcome, Scenario};

/// 2 units of work in a row and 4 that can be divided, of 1 ms each, again and again, in a VM of so many vCPUs. Each
/// has 45 % of a CPU within 12 ms, and the other VM wants all that it can get.
#[derive(Clone, Copy)]
struct Scene {
    vcpus: u32,
    /// What the other VM has.
    other: &'static str,
    /// Whether the guest leaves threads where they are.
    bound: bool,
    matching: bool,
}

impl Scene {
    fn run(self) -> Outcome {
        let Scene { vcpus, other, bound, matching } = self;
        let text = format!(
            "duration = \"20s\"\nwarm_up = \"40s\"\n[host]\ncpus = \"0-4\"\nhousekeeping = \"4\"\n\
             [[tenant]]\nname = \"vm\"\nvcpus = {vcpus}\nclass = \"reserved\"\nshare = 0.45\nlatency = \"12ms\"\n\
             capped = true\nmatching = {matching}\nmatch = {{ vm = \"qemu:vm\" }}\n\
             [[tenant]]\nname = \"other\"\nvcpus = {vcpus}\n{other}\nmatch = {{ vm = \"qemu:other\" }}\n\
             [[workload]]\ntenant = \"vm\"\nprogram = \"fork-join\"\nbound = {bound}\nthreads = {vcpus}\n\
             parallel = \"4ms\"\nsequential = \"2ms\"\n\
             [[workload]]\ntenant = \"other\"\nprogram = \"hog\"\nthreads = {vcpus}\n"
        );
        let scenario = Scenario::parse(&Source { path: "matching.toml".to_owned(), text }).unwrap();
        let outcome = scenario.run(find("rota").unwrap(), Options::default(), &|_| ()).unwrap();
        assert!(outcome.insane.is_empty(), "{:?}", outcome.insane);
        outcome
    }

    /// Over one vCPU, in hundredths; and what the other VM had, in ms.
    fn speedup(self) -> (u64, u64) {
        let one = Scene { vcpus: 1, matching: false, ..self }.run().tenants[0].metrics.work;
        let outcome = self.run();
        let found =
            (outcome.tenants[0].metrics.work * 100 / one, outcome.tenants[1].metrics.received_ns / 1_000_000);
        println!("{:?} bound {} matching {}: {found:?}", self.other, self.bound, self.matching);
        found
    }
}

const SHARED: &str = "class = \"shared\"";
const RESERVED: &str = "class = \"reserved\"\nshare = 0.3\nlatency = \"12ms\"\ncapped = true";
const RESERVED_ALL: &str = "class = \"reserved\"\nshare = 0.45\nlatency = \"12ms\"\ncapped = true";

#[test]
fn matching_doubles_the_speedup_of_the_worked_example() {
    for other in [SHARED, RESERVED] {
        let scene = Scene { vcpus: 4, other, bound: true, matching: false };
        let ((without, _), (with, _)) = (scene.speedup(), Scene { matching: true, ..scene }.speedup());
        assert!((195..=205).contains(&without), "{without}");
        assert!((385..=400).contains(&with), "{with}");
    }
}

/// What the other VM is promised fills the host but for a tenth: one vCPU has to be divided then, and slots are walls.
#[test]
fn matching_costs_others_nothing_they_are_promised() {
    let scene = Scene { vcpus: 4, other: RESERVED_ALL, bound: true, matching: false };
    let ((without, before), (with, after)) = (scene.speedup(), Scene { matching: true, ..scene }.speedup());
    assert!(with >= without * 125 / 100, "{without} {with}");
    assert!(before.abs_diff(after) <= before / 1_000, "{before} {after}");
}

/// A guest that moves threads from a vCPU that waits to one that idles has its work everywhere: parts that made it
/// slower are taken back.
#[test]
fn matching_that_does_not_help_is_taken_back() {
    let scene = Scene { vcpus: 4, other: SHARED, bound: false, matching: false };
    let ((without, _), (with, _)) = (scene.speedup(), Scene { matching: true, ..scene }.speedup());
    assert!(with >= without * 98 / 100, "{without} {with}");
}
