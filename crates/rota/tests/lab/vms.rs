//! VMs under KVM: their vCPUs have their slots at the same times; and give way, if KVM says that they wait busily.

use serde_json::Value;

use crate::guest::{Guest, NEWEST, Results, script, tenant};

/// Two VMs that differ in `together` alone. What is on CPU 0 alone is served before either.
const CONFIG: &str = r#"
[[tenant]]
name = "gang"
class = "reserved"
vcpus = 2
share = 0.20
latency = "20ms"
capped = true
together = true
match = { cgroup = "gang" }

[[tenant]]
name = "apart"
class = "reserved"
vcpus = 2
share = 0.20
latency = "20ms"
capped = true
match = { cgroup = "apart" }

[[tenant]]
name = "left"
class = "reserved"
share = 0.40
latency = "10ms"
capped = true
affinity = "0"
match = { cgroup = "left" }

[[tenant]]
name = "spare"
class = "background"
match = { cgroup = "spare" }

[[tenant]]
name = "gives"
class = "shared"
vcpus = 4
match = { cgroup = "gives" }

[[tenant]]
name = "keeps"
class = "shared"
vcpus = 4
oversubscribe = "off"
match = { cgroup = "keeps" }
"#;

/// The part of each vCPU's time in which the other one ran as well.
fn beside(results: &Results, vm: &str) -> Vec<f64> {
    let vcpus: Vec<Value> = results.json(vm);
    vcpus.iter().map(|vcpu| vcpu["together"].as_f64().unwrap()).collect()
}

/// How often a turn of a VM's was taken.
fn turns(results: &Results, vm: &str) -> u64 {
    let vcpus: Vec<Value> = results.json(vm);
    vcpus.iter().map(|vcpu| vcpu["exits"].as_u64().unwrap()).sum()
}

#[test]
#[ignore = "boots a guest"]
fn vcpus_of_a_real_vm_run_at_the_same_times_and_give_way() {
    let guest = Guest::exact_on(NEWEST, 2).nested().own("rota-vm");
    let results = guest.run(CONFIG, &script!("vms.sh"));
    let [gang, apart] = ["gang", "apart"].map(|vm| beside(&results, vm));
    println!("beside each other: {gang:?} of the time together, {apart:?} apart");
    let status = results.status("status");
    for vm in ["gang", "apart"] {
        assert_eq!(tenant(&status, vm).kind, "vm");
    }
    for name in ["gang", "apart", "left"] {
        assert_eq!(tenant(&status, name).missed_by_cause.rota, 0, "{:?}", tenant(&status, name));
    }
    // But for the ends of slots, within a millisecond of which a vCPU says that it has run.
    assert!(gang.iter().all(|part| *part >= 0.75), "{gang:?}");
    assert!(apart.iter().all(|part| *part <= 0.6), "{apart:?}");
    let [gives, keeps] = ["gives", "keeps"].map(|vm| {
        let spins = tenant(&results.status(&format!("after-{vm}")), vm).spins;
        println!("{vm}: {} turns, gave way {spins} times", turns(&results, vm));
        (turns(&results, vm), spins)
    });
    // On two CPUs some turns go to a vCPU that runs, and nobody gives way for those.
    assert!(gives.0 > 3 * keeps.0 && gives.1 > keeps.0, "{gives:?} {keeps:?}");
    assert_eq!(keeps.1, 0);
}
