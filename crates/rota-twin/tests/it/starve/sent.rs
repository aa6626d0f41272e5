//! Who is sent from CPU to CPU as it waits takes along how long it has waited. The farm's seed 1121466.

use rota_sim::CpuId;
use rota_sim::programs::Hog;
use rota_twin::apart;

use super::{MS, S, appears, bound, start};

/// CPU 0 is the system's. `web` has half of CPUs 1 and 2, and uses all that it gets.
fn used() -> String {
    let reserved = |vcpus, cpus| {
        format!("\"reserved\"\nvcpus = {vcpus}\naffinity = \"{cpus}\"\nshare = 0.5\nlatency = \"20ms\"")
    };
    let tenants = [
        ("web", reserved(2, "1-2")),
        ("elsewhere", reserved(1, "3")),
        ("batch", "\"background\"".to_owned()),
        ("fair", "\"shared\"".to_owned()),
    ];
    let tenants = tenants.map(|(name, class)| {
        format!("[[tenant]]\nname = \"{name}\"\nclass = {class}\nmatch = {{ cgroup = \"{name}\" }}\n")
    });
    "[host]\ncpus = \"0-3\"\nhousekeeping = \"0\"\n".to_owned() + &tenants.concat()
}

/// The longest wait of a tenant's only thread, or one of the system's, which is bound to CPU 1 and to CPU 2 by turns,
/// for so long each.
fn longest_ns(name: &str, each_ns: u64) -> u64 {
    let (mut run, mut tenants) = start(&used());
    for name in ["web", name].iter().filter(|name| **name != "system") {
        appears(&mut run, &tenants, name);
    }
    for _ in 0..2 {
        run.spawn(tenants.thread("web", Hog));
    }
    let sent = if name == "system" { tenants.system(Hog) } else { tenants.thread(name, Hog) };
    let sent = bound(&run, sent, 1);
    let unit = sent.unit;
    let sent = run.spawn(sent);
    let end_ns = run.machine.now_ns() + 60 * S;
    for cpu in [2, 1].into_iter().cycle() {
        run.run_until(run.machine.now_ns() + each_ns);
        if run.machine.now_ns() > end_ns {
            break;
        }
        let mask = run.machine.mask([CpuId(cpu)]);
        run.act(|run| run.set_affinity(sent, mask));
    }
    run.observer.of(&run.machine, unit).wait_ns
}

/// Reserved tenants use all that slots leave, but for the floor.
#[test]
fn who_is_sent_about_has_its_part_of_the_floor() {
    for (name, each_ns, most_ns) in [
        ("batch", 300 * MS, 2 * S),
        ("fair", 300 * MS, 2 * S),
        ("elsewhere", 300 * MS, 2 * S),
        ("system", 7 * MS, 60 * MS),
    ] {
        apart(|| {
            let longest_ns = longest_ns(name, each_ns);
            assert!(longest_ns < most_ns, "{name}: {longest_ns} ns");
        });
    }
}
