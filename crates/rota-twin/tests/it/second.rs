//! What slots leave, for reserved tenants that are not capped: by what they reserved, over all CPUs together, and at
//! once for who seldom wants any of it.

use rota_rules::life::Event;
use rota_sim::programs::{Hog, Periodic};
use rota_sim::{CpuId, TaskSpec, UnitId};
use rota_twin::apart;

use crate::host::{after, model, settle, start};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A tenant of the configuration.
fn tenant(name: &str, vcpus: u32, share: f64, cpus: &str) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\nclass = \"reserved\"\nvcpus = {vcpus}\nshare = {share}\nlatency = \"20ms\"\n\
         affinity = \"{cpus}\"\nmatch = {{ cgroup = \"{name}\" }}\n"
    )
}

/// Two CPUs for tenants.
const HOST: &str = "[host]\ncpus = \"0-2\"\nhousekeeping = \"0\"\n";

/// Hogs, as many as each tenant has vCPUs, for a second: what part of a CPU each received.
fn hogs(config: &[String], threads: &[(&str, u32)]) -> Vec<f64> {
    let text = config.iter().fold(HOST.to_owned(), |text, tenant| text + tenant);
    let (mut run, mut tenants) = start(&text);
    for &(name, count) in threads {
        for _ in 0..count {
            run.spawn(tenants.thread(name, Hog));
        }
    }
    settle(&mut run, &tenants);
    let received = after(&mut run, SECOND);
    let of = |name: &str| received[tenants.home(name).first_unit.index()].received_ns as f64 / SECOND as f64;
    threads.iter().map(|(name, _)| of(name)).collect()
}

#[test]
fn what_slots_leave_goes_by_reservation() {
    apart(|| {
        let config = [tenant("large", 1, 0.3, "1"), tenant("small", 1, 0.1, "1")];
        let received = hogs(&config, &[("large", 1), ("small", 1)]);
        // 0.6 is left, of which three parts in four go to one.
        assert!((received[0] - 0.75).abs() < 0.02 && (received[1] - 0.25).abs() < 0.02, "{received:?}");
    });
}

#[test]
fn equal_vcpus_of_a_tenant_have_equal_parts() {
    apart(|| {
        let config = [tenant("one", 2, 0.1, "1"), tenant("other", 2, 0.1, "1")];
        let received = hogs(&config, &[("one", 2), ("other", 2)]);
        assert!((received[0] - 0.5).abs() < 0.01 && (received[1] - 0.5).abs() < 0.01, "{received:?}");
    });
}

/// One after the other, whoever else has turns between them.
#[test]
fn vcpus_of_a_vm_have_equal_parts() {
    apart(|| {
        let vm = tenant("vm", 2, 0.1, "1").replace("cgroup = \"vm\"", "vm = \"qemu:vm\"");
        let text =
            [vm, tenant("other", 1, 0.3, "1")].iter().fold(HOST.to_owned(), |text, tenant| text + tenant);
        let (mut run, mut tenants) = start(&text);
        let vcpus = [0, 1].map(|index| tenants.vcpu("vm", index, Hog));
        let threads = (0..).zip(&vcpus).map(|(index, vcpu)| (index, vcpu.pid)).collect();
        for spec in vcpus.into_iter().chain([tenants.thread("other", Hog)]) {
            run.spawn(spec);
        }
        settle(&mut run, &tenants);
        run.act(|run| run.policy.vcpu_threads(&mut run.machine, "vm", threads));
        run.run_until(run.machine.now_ns() + SECOND / 2);
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, SECOND);
        let vm = tenants.home("vm");
        let parts = [0, 1].map(|vcpu| received[vm.unit(vcpu).index()].received_ns as f64 / SECOND as f64);
        assert!((parts[0] - parts[1]).abs() < 0.01, "{parts:?}");
    });
}

/// A tenant that has another CPU's spare time to itself leaves this one's to who has nothing else.
#[test]
fn what_slots_leave_is_shared_over_all_cpus() {
    apart(|| {
        let config = [tenant("wide", 2, 0.2, "1-2"), tenant("narrow", 1, 0.2, "1")];
        let received = hogs(&config, &[("wide", 2), ("narrow", 1)]);
        // Of 0.6 that are left on CPU 1 and 0.8 on CPU 2, by weights 2 : 1.
        let left = 2.0 - 3.0 * 0.2;
        let (wide, narrow) = (0.4 + left * 2.0 / 3.0, 0.2 + left / 3.0);
        assert!(
            (received[0] - wide).abs() < 0.02 && (received[1] - narrow).abs() < 0.02,
            "{received:?}, {wide} and {narrow}"
        );
    });
}

/// A tenant that is far behind a neighbour on one CPU, where it seldom wants anything, has its part on another CPU.
#[test]
fn who_is_forgiven_on_one_cpu_is_owed_as_much_on_another() {
    apart(|| {
        let config =
            [tenant("both", 2, 0.2, "1-2"), tenant("beside", 1, 0.2, "1"), tenant("light", 1, 0.05, "2")];
        let text = config.iter().fold(HOST.to_owned(), |text, tenant| text + tenant);
        let (mut run, mut tenants) = start(&text);
        let only = |cpu| Some(run.machine.mask([CpuId(cpu)]));
        let hog = TaskSpec { affinity: only(1), ..tenants.thread("both", Hog) };
        let seldom = TaskSpec {
            affinity: only(2),
            unit: UnitId(9),
            ..tenants.thread("both", Periodic::new(50 * US, 5 * MS))
        };
        for spec in [hog, seldom, tenants.thread("beside", Hog), tenants.thread("light", Hog)] {
            run.spawn(spec);
        }
        settle(&mut run, &tenants);
        let received = after(&mut run, SECOND);
        let beside = received[tenants.home("beside").first_unit.index()].received_ns as f64 / SECOND as f64;
        // Of 0.6 that are left on CPU 1, by weights 1 : 2.
        assert!((beside - 0.4).abs() < 0.02, "{beside}");
    });
}

/// It waits for nobody but the owners of slots: it is always further behind than who computes all the time.
#[test]
fn who_seldom_wants_any_has_it_at_once() {
    apart(|| {
        let config = [tenant("hog", 1, 0.1, "1"), tenant("server", 1, 0.1, "1")];
        let text = config.iter().fold(HOST.to_owned(), |text, tenant| text + tenant);
        let (mut run, mut tenants) = start(&text);
        run.spawn(tenants.thread("hog", Hog));
        run.spawn(tenants.thread("server", Periodic::new(50 * US, 2 * MS)));
        settle(&mut run, &tenants);
        let received = after(&mut run, SECOND);
        let longest_ns = received[tenants.home("server").first_unit.index()].blackout_max_ns;
        // The hog's slot: C = U T, with 2 (T - C) <= L.
        let slot_ns = 1_111 * US;
        assert!(longest_ns < slot_ns + 100 * US, "{longest_ns}");
    });
}

/// What a tenant had beyond its slots is no debt once it has none: its clock counted by another weight.
#[test]
fn who_gives_its_reservation_up_owes_nobody_for_it() {
    apart(|| {
        let text = |class: &str| {
            format!(
                "{HOST}[[tenant]]\nname = \"web\"\n{class}\nmatch = {{ cgroup = \"web\" }}\n\
                 [[tenant]]\nname = \"batch\"\nclass = \"shared\"\nmatch = {{ cgroup = \"batch\" }}\n"
            )
        };
        let (mut run, mut tenants) =
            start(&text("class = \"reserved\"\nvcpus = 2\nshare = 0.02\nlatency = \"100ms\""));
        for name in ["web", "web", "batch", "batch"] {
            run.spawn(tenants.thread(name, Hog));
        }
        settle(&mut run, &tenants);
        run.run_until(run.machine.now_ns() + 2 * SECOND);
        let shared = model(&text("class = \"shared\""));
        run.act(|run| run.policy.tell(&mut run.machine, Event::Configured(shared)));
        run.run_until(run.machine.now_ns() + SECOND / 2);
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, SECOND);
        let web = received[tenants.home("web").first_unit.index()].received_ns as f64 / SECOND as f64;
        assert!((web - 1.0).abs() < 0.02, "{web}");
    });
}
