//! The daemon is killed between any two changes that it makes, and the next one takes the scheduler over: no promise is
//! missed meanwhile, nobody is lost, and in the end all is as if nothing had happened.

use std::collections::BTreeMap;

use rota_sim::observe::{Metrics, Promise, Promises, Sanity};
use rota_sim::programs::Hog;
use rota_sim::{Costs, Simulation, TaskId, Tenants};
use rota_twin::{Rota, apart};

use crate::host::model;

const MS: u64 = 1_000_000;

type Run = Simulation<Rota, (Metrics, Promises, Sanity)>;

/// Two containers, a VM with a tenant for its monitor, and a shared tenant. `grown` is the edit in whose middle the
/// daemon ends.
fn text(grown: bool) -> String {
    let (vcpus, share) = if grown { (4, 0.3) } else { (2, 0.25) };
    format!(
        r#"
[host]
cpus = "0-4"
housekeeping = "0"

[[tenant]]
name = "a"
class = "reserved"
vcpus = {vcpus}
share = {share}
latency = "15ms"
match = {{ cgroup = "a" }}

[[tenant]]
name = "v"
class = "reserved"
vcpus = 2
share = 0.4
latency = "10ms"
monitor = "io"
match = {{ vm = "qemu:v" }}

[[tenant]]
name = "io"
class = "reserved"
share = 0.1
latency = "20ms"

[[tenant]]
name = "s"
class = "shared"
match = {{ cgroup = "s" }}

[[tenant]]
name = "b"
class = "reserved"
share = 0.2
latency = "20ms"
match = {{ cgroup = "b" }}
"#
    )
}

struct Host {
    run: Run,
    tenants: Tenants,
    /// The VM's vCPU threads.
    vcpus: Vec<TaskId>,
}

impl Host {
    fn start() -> Host {
        let model = model(&text(false));
        let policy = Rota::new(&model).expect("a host");
        let observers = (Metrics::default(), Promises::new(20_000), Sanity::new(30_000 * MS));
        let topology = model.host.topology.clone();
        let mut run = Run::new(topology, Costs::default(), 1, 1_000 * MS, policy, observers);
        let mut tenants = Tenants::new(&mut run.machine, &model);
        for name in ["a", "a", "a", "s", "s", "b", "v"] {
            let spec = tenants.thread(name, Hog);
            run.spawn(spec);
        }
        let vcpus = (0..2).map(|index| run.spawn(tenants.vcpu("v", index, Hog))).collect();
        Host { run, tenants, vcpus }
    }

    fn appears(&mut self, name: &str) {
        let home = self.tenants.homes().iter().find(|home| home.tenant.name == name).expect("a tenant");
        let cgroup = home.cgroup;
        self.run.act(|run| run.policy.appears(&mut run.machine, name, cgroup));
        if name == "v" {
            let tid = |task: &TaskId| self.run.machine.task(*task).pid;
            let threads: BTreeMap<u32, i32> = (0..).zip(self.vcpus.iter().map(tid)).collect();
            self.run.act(|run| run.policy.vcpu_threads(&mut run.machine, name, threads));
        }
    }

    fn settle(&mut self) {
        let end_ns = self.run.machine.now_ns() + 3_000 * MS;
        while !self.run.policy.is_left() && !self.run.policy.is_settled() {
            self.pass(10);
            assert!(self.run.machine.now_ns() < end_ns, "{:?}", self.run.policy.said());
        }
    }

    fn pass(&mut self, ms: u64) {
        self.run.run_until(self.run.machine.now_ns() + ms * MS);
    }

    /// What is promised from now on to those that are here.
    fn watch(&mut self) {
        let from_ns = self.run.machine.now_ns();
        for home in self.tenants.homes().iter().filter(|home| ["a", "v"].contains(&home.tenant.name.as_str()))
        {
            let reservation = home.tenant.reservation().expect("it is reserved");
            for (unit, vcpus) in home.units() {
                let promise = Some(Promise { reservation, vcpus, from_ns });
                self.run.observer.1.promise(&self.run.machine, unit, promise);
            }
        }
    }

    /// Each tenant's queues with the number that it has, and what it has had: by number, and in order.
    fn accounts(&mut self) -> Vec<(u32, Option<u32>, u64)> {
        let queues = self.run.policy.queues(&mut self.run.machine);
        queues.iter().map(|queue| (queue.tenant, queue.vcpu, queue.used_ns)).collect()
    }

    /// How everybody is served.
    fn promised(&mut self) -> Vec<String> {
        let status = self.run.policy.status(&self.run.machine);
        let said = status.tenants.iter().map(|tenant| {
            format!("{} {:?} {} x {:?}", tenant.name, tenant.state, tenant.vcpus, tenant.promised)
        });
        let mut said: Vec<String> = said.collect();
        said.sort();
        said
    }

    fn check(&mut self, what: &str) {
        assert_eq!(self.run.policy.exited().cloned(), None, "{what}: {:?}", self.run.policy.said());
        assert_eq!(self.run.observer.1.finish(&self.run.machine), [], "{what}: promises");
        assert_eq!(self.run.observer.2.finish(&self.run.machine), [], "{what}: what must not happen");
        assert_eq!(self.run.policy.lost(&self.run.machine), None, "{what}: a lost thread");
        for queue in self.run.policy.queues(&mut self.run.machine) {
            assert_eq!(queue.missed, 0, "{what}: the scheduler's own account: {queue:?}");
        }
    }
}

/// A daemon that ends after so many changes in the middle of an edit, if there are so many. Whether it did, and what
/// everybody is promised in the end.
fn ends_after(changes: u64) -> (bool, Vec<String>) {
    let mut host = Host::start();
    ["a", "v", "s"].into_iter().for_each(|name| host.appears(name));
    host.settle();
    host.watch();
    host.pass(100);
    let before = host.accounts();
    host.run.policy.ends_after(changes);
    host.appears("b");
    host.run.act(|run| run.policy.configure(&mut run.machine, model(&text(true))));
    host.settle();
    let ended = host.run.policy.is_left();
    if ended {
        host.pass(200);
        host.run.act(|run| run.policy.comes_back(&mut run.machine)).expect("what it finds is sound");
        // The next daemon finds them in another order.
        ["b", "s", "v", "a"].into_iter().for_each(|name| host.appears(name));
    }
    host.settle();
    host.pass(200);
    host.check(&format!("ended after {changes} changes"));
    let after = host.accounts();
    for (tenant, vcpu, used_ns) in before {
        let now = after.iter().find(|now| (now.0, now.1) == (tenant, vcpu));
        assert!(
            now.is_some_and(|now| now.2 >= used_ns),
            "{changes}: {tenant} {vcpu:?}: {used_ns}, {after:?}"
        );
    }
    (ended, host.promised())
}

#[test]
fn wherever_the_daemon_ends_the_next_one_goes_on() {
    let (_, undisturbed) = apart(|| ends_after(u64::MAX));
    assert!(undisturbed.iter().all(|tenant| tenant.contains("Served")), "{undisturbed:?}");
    for changes in 0.. {
        let (ended, promised) = apart(move || ends_after(changes));
        assert_eq!(promised, undisturbed, "ended after {changes} changes");
        if !ended {
            assert!(changes > 50, "the edit took {changes} changes only");
            return;
        }
    }
}
