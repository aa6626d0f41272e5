//! The life cycle against a record of what the scheduler was told, which checks the rules at every step.

use std::path::PathBuf;

use proptest::prelude::*;
use rota_model::config::{Source, parse};
use rota_model::{CpuSet, Topology};

use super::*;

mod parts;

const MS: u64 = 1_000_000;

/// What the scheduler knows, and the rules that it relies on.
#[derive(Default)]
struct Record {
    now_ns: u64,
    specs: BTreeMap<TenantId, TenantSpec>,
    cgroups: BTreeMap<u64, TenantId>,
    threads: BTreeMap<i32, (TenantId, u32)>,
    generation: u64,
    in_force: BTreeSet<TenantId>,
    next: Option<(u64, BTreeSet<TenantId>)>,
    installs: usize,
    said: Vec<String>,
}

impl Record {
    fn mentioned(&self, id: TenantId) -> bool {
        self.in_force.contains(&id) || self.next.as_ref().is_some_and(|(_, ids)| ids.contains(&id))
    }

    fn pass_time(&mut self, now_ns: u64) {
        assert!(now_ns >= self.now_ns);
        self.now_ns = now_ns;
        if let Some((_, ids)) = self.next.take_if(|(at_ns, _)| *at_ns <= now_ns) {
            self.in_force = ids;
        }
    }

    /// Carries out a step's actions; an installed table comes into force after 10 ms.
    fn enact(&mut self, actions: Vec<Action>) -> Option<Event> {
        let mut installed = None;
        let mut promoted = Vec::new();
        for action in actions {
            match action {
                Action::Tell(Change::Set(spec)) => {
                    if matches!(spec.class, Class::Reserved(_)) {
                        promoted.push(spec.id);
                    }
                    self.specs.insert(spec.id, spec);
                }
                Action::Tell(Change::Remove(id)) => {
                    assert!(!self.mentioned(id), "tenant {id} is removed while a table has slots for it");
                    assert!(!self.cgroups.values().any(|owner| *owner == id), "its cgroup is still bound");
                    assert!(!self.threads.values().any(|(owner, _)| *owner == id), "its threads are bound");
                    assert!(self.specs.remove(&id).is_some());
                }
                Action::Tell(Change::Bind { cgroup, id }) => {
                    assert!(self.specs.contains_key(&id), "a cgroup is bound to a tenant that is not there");
                    assert_eq!(self.cgroups.insert(cgroup, id), None, "a cgroup is bound twice");
                }
                Action::Tell(Change::Unbind { cgroup }) => assert!(self.cgroups.remove(&cgroup).is_some()),
                Action::Tell(Change::BindThread { tid, id, index }) => {
                    let spec = &self.specs[&id];
                    assert_eq!(spec.kind, TenantKind::Vm);
                    assert!(index < spec.vcpus);
                    assert_eq!(self.threads.insert(tid, (id, index)), None, "a thread is bound twice");
                }
                Action::Tell(Change::UnbindThread { tid }) => assert!(self.threads.remove(&tid).is_some()),
                Action::Install(table) => {
                    assert!(self.next.is_none(), "a table is installed while another is on its way");
                    self.install(&table);
                    installed = Some(());
                }
                Action::Say(line) => self.said.push(line),
            }
        }
        for id in promoted {
            assert!(self.mentioned(id), "tenant {id} is reserved and no table has slots for it");
        }
        installed?;
        Some(Event::Installed { generation: self.generation, adopted_at_ns: self.now_ns + 10 * MS })
    }

    fn install(&mut self, table: &Certified) {
        let view = table.view();
        let ids: BTreeSet<TenantId> = view.vcpus().iter().map(|vcpu| vcpu.tenant).collect();
        for id in &ids {
            let spec = &self.specs[id];
            assert!(matches!(spec.class, Class::Reserved(_)), "tenant {id} has slots and is not reserved");
            let planned = view.vcpus().iter().filter(|vcpu| vcpu.tenant == *id).count();
            assert!(planned >= spec.vcpus as usize, "tenant {id} is told of more vCPUs than have slots");
        }
        self.generation += 1;
        self.installs += 1;
        self.next = Some((self.now_ns + 10 * MS, ids));
    }
}

/// A life and its record.
struct World {
    life: Life,
    record: Record,
}

impl World {
    fn new(model: Model) -> World {
        let mut world = World { life: Life::new(0, model), record: Record::default() };
        world.event(Event::Tick);
        world
    }

    fn event(&mut self, event: Event) {
        let mut event = Some(event);
        while let Some(next) = event.take() {
            let actions = self.life.step(self.record.now_ns, next);
            event = self.record.enact(actions);
        }
        self.check();
    }

    fn pass(&mut self, time_ns: u64) {
        let end_ns = self.record.now_ns + time_ns;
        while let Some(due_ns) = self.life.deadline_ns().filter(|due_ns| *due_ns <= end_ns) {
            self.record.pass_time(due_ns.max(self.record.now_ns));
            self.event(Event::Tick);
        }
        self.record.pass_time(end_ns);
        self.event(Event::Tick);
    }

    /// Nothing happens any more: everyone must be served in the end.
    fn settle(&mut self) {
        self.pass(1000 * MS);
        assert!(self.life.is_settled());
        for tenant in self.life.tenants() {
            assert!(matches!(tenant.state, State::Served | State::Refused), "{tenant:?}");
        }
        assert_eq!(self.record.specs.len(), self.life.tenants().count());
    }

    /// The scheduler's view and the life cycle's are one.
    fn check(&self) {
        for tenant in self.life.tenants() {
            let bound = tenant.cgroup.and_then(|cgroup| self.record.cgroups.get(&cgroup.id));
            match tenant.state {
                State::Leaving => assert_ne!(bound, Some(&tenant.id)),
                _ => assert_eq!(bound.is_some(), tenant.cgroup.is_some()),
            }
            let reserved = matches!(self.record.specs[&tenant.id].class, Class::Reserved(_));
            assert_eq!(reserved, self.record.mentioned(tenant.id), "{tenant:?}");
        }
    }

    fn appear(&mut self, name: &str, cgroup: u64) {
        let cgroup = Cgroup { path: PathBuf::from(name), id: cgroup };
        self.event(Event::Appeared { tenant: name.to_owned(), cgroup });
    }

    fn vanish(&mut self, name: &str) {
        self.event(Event::Vanished { tenant: name.to_owned() });
    }

    fn view(&self, name: &str) -> TenantView<'_> {
        let mut views: Vec<_> = self.life.tenants().filter(|view| view.tenant.name == name).collect();
        views.sort_by_key(|view| view.state == State::Leaving);
        views.into_iter().next().unwrap()
    }

    fn said(&self, part: &str) -> bool {
        self.record.said.iter().any(|line| line.contains(part))
    }
}

/// CPU 0 for the system, 1 and 2 for tenants.
fn model(tenants: &str) -> Model {
    let host = "[host]\ncpus = \"0-2\"\nhousekeeping = \"0\"\n";
    configured(&format!("{host}{tenants}"))
}

fn configured(text: &str) -> Model {
    let source = Source { path: "rota.toml".into(), text: text.into() };
    parse(&[source], &Topology::flat(&"0-2".parse::<CpuSet>().unwrap())).unwrap()
}

fn reserved(name: &str, share: f64, latency_ms: u64) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\nclass = \"reserved\"\nshare = {share}\nlatency = \"{latency_ms}ms\"\n"
    )
}

#[test]
fn a_new_reserved_tenant_is_background_at_once_and_reserved_with_the_next_table() {
    let mut world = World::new(model(&reserved("web", 0.25, 20)));
    assert!(world.life.is_settled(), "no tenant, no table");
    world.appear("web", 7);
    let id = world.view("web").id;
    assert_eq!(world.record.specs[&id].class, Class::Background);
    assert_eq!(world.record.cgroups, BTreeMap::from([(7, id)]));
    assert_eq!(world.view("web").state, State::Waiting);

    world.pass(20 * MS);
    assert!(
        matches!(world.record.specs[&id].class, Class::Reserved(_)),
        "with the table, if not yet in force"
    );
    assert_eq!(world.view("web").state, State::Waiting);
    world.pass(10 * MS);
    assert_eq!(world.view("web").state, State::Served);
    assert!(world.said("web: promised 1 vCPU with share 0.25, latency 20 ms"));
}

#[test]
fn a_hundred_tenants_at_once_make_few_tables() {
    let hundred = reserved("web-{i}", 0.015, 50).replace("class", "count = 100\nclass");
    let mut world = World::new(model(&hundred));
    for index in 0..100 {
        world.appear(&format!("web-{index}"), 1000 + index);
        world.pass(MS / 2);
    }
    world.settle();
    assert!(world.life.tenants().all(|tenant| tenant.state == State::Served));
    assert!(world.record.installs <= 3, "{} tables", world.record.installs);
}

#[test]
fn who_comes_later_has_one_cpu_planned() {
    let mut world = World::new(model(&["a", "b", "c"].map(|name| reserved(name, 0.25, 20)).concat()));
    for (name, cgroup, said) in [
        ("a", 1, "the next table: all CPUs planned anew"),
        ("b", 2, "the next table: CPU 2 changed"),
        ("c", 3, "the next table: CPU 1 changed"),
    ] {
        world.appear(name, cgroup);
        world.settle();
        assert!(world.said(said), "{:?}", world.record.said);
    }
}

#[test]
fn shared_and_background_tenants_need_no_table() {
    let tenants = "[[tenant]]\nname = \"batch\"\nclass = \"shared\"\nweight = 200\n\
                   [[tenant]]\nname = \"idle\"\nclass = \"background\"\n";
    let mut world = World::new(model(tenants));
    world.appear("batch", 1);
    world.appear("idle", 2);
    world.settle();
    assert_eq!(world.record.installs, 0);
    assert_eq!(world.record.specs[&world.view("batch").id].class, Class::Shared { weight: 200 });
    world.vanish("batch");
    assert_eq!(world.record.cgroups.len(), 1);
    world.appear("stranger", 3);
    assert_eq!(world.record.specs.len(), 1, "who is not configured is no tenant");
}

#[test]
fn who_is_gone_loses_its_slots_and_then_its_number() {
    let mut world = World::new(model(&(reserved("a", 0.25, 20) + &reserved("b", 0.25, 20))));
    world.appear("a", 1);
    world.settle();
    let id = world.view("a").id;
    world.vanish("a");
    assert!(world.record.cgroups.is_empty(), "unbound at once");
    assert_eq!(world.view("a").state, State::Leaving);

    world.appear("b", 2);
    world.appear("a", 3);
    assert!(world.view("b").id != id && world.view("a").id != id, "the table still speaks of number {id}");
    world.settle();
    assert_eq!(world.life.tenants().count(), 2);
    world.vanish("a");
    world.vanish("b");
    world.settle();
    assert!(world.record.in_force.is_empty());
}

#[test]
fn first_come_first_served_and_again_when_there_is_room() {
    let mut world = World::new(model(
        &(reserved("a", 0.9, 20)
            + &reserved("b", 0.9, 20)
            + &reserved("c", 0.5, 20)
            + &reserved("d", 0.05, 20)),
    ));
    for (name, cgroup) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        world.appear(name, cgroup);
    }
    world.settle();
    assert_eq!(world.view("c").state, State::Refused);
    assert_eq!(world.record.specs[&world.view("c").id].class, Class::Background);
    assert!(["a", "b", "d"].iter().all(|name| world.view(name).state == State::Served));
    assert!(world.said("c: does not fit, served as background: "));

    world.vanish("b");
    world.settle();
    assert_eq!(world.view("c").state, State::Served);
    let refusals = world.record.said.iter().filter(|line| line.contains("does not fit")).count();
    assert_eq!(refusals, 1, "said once");
}

#[test]
fn an_edit_that_does_not_fit_leaves_the_tenant_as_it_was_and_others_alone() {
    let mut world = World::new(model(&(reserved("a", 0.6, 20) + &reserved("b", 0.993, 20))));
    world.appear("a", 1);
    world.appear("b", 2);
    world.settle();
    world.event(Event::Configured(model(&(reserved("a", 0.999, 20) + &reserved("b", 0.993, 20)))));
    world.settle();
    assert!(world.said("a: does not fit, keeps what it has: "));
    assert_eq!(world.view("a").promised.unwrap().share.fraction(), 0.6);
    assert_eq!(world.record.installs, 1, "the same table goes on");

    world.event(Event::Configured(model(&(reserved("a", 0.7, 30) + &reserved("b", 0.2, 20)))));
    world.settle();
    assert_eq!(world.view("a").promised.unwrap().share.fraction(), 0.7);
    assert_eq!(world.view("b").promised.unwrap().share.fraction(), 0.2);
}

#[test]
fn while_a_promise_changes_the_weaker_one_holds() {
    let mut world = World::new(model(&reserved("a", 0.25, 40)));
    world.appear("a", 1);
    world.settle();
    let id = world.view("a").id;
    world.event(Event::Configured(model(&reserved("a", 0.5, 20))));
    world.pass(20 * MS);
    let Class::Reserved(told) = world.record.specs[&id].class else { panic!("it is reserved") };
    assert_eq!((told.share.fraction(), told.latency_ns), (0.25, 40 * MS));
    world.pass(10 * MS);
    let Class::Reserved(told) = world.record.specs[&id].class else { panic!("it is reserved") };
    assert_eq!((told.share.fraction(), told.latency_ns), (0.5, 20 * MS));
}

#[test]
fn a_demoted_tenant_is_reserved_as_long_as_it_has_slots() {
    let mut world = World::new(model(&reserved("a", 0.25, 20)));
    world.appear("a", 1);
    world.settle();
    let id = world.view("a").id;
    world.event(Event::Configured(model("[[tenant]]\nname = \"a\"\nclass = \"shared\"\n")));
    assert!(matches!(world.record.specs[&id].class, Class::Reserved(_)));
    world.settle();
    assert_eq!(world.record.specs[&id].class, Class::Shared { weight: 100 });
}

#[test]
fn vcpu_threads_make_a_vm() {
    let tenant = reserved("vm", 0.25, 20).replace("class", "vcpus = 2\nclass");
    let mut world = World::new(model(&tenant));
    world.appear("vm", 1);
    let id = world.view("vm").id;
    assert_eq!(world.record.specs[&id].kind, TenantKind::Container);
    let threads = |threads: &[(u32, i32)]| Event::Threads {
        tenant: "vm".into(),
        threads: threads.iter().copied().collect(),
    };
    world.event(threads(&[(0, 50), (1, 51), (2, 52)]));
    assert_eq!(world.record.specs[&id].kind, TenantKind::Vm);
    assert_eq!(world.record.threads, BTreeMap::from([(50, (id, 0)), (51, (id, 1))]));
    assert!(world.said("vcpus = 2: 1 are served as the monitor's own threads"));
    world.event(threads(&[(0, 60), (1, 50)]));
    assert_eq!(world.record.threads, BTreeMap::from([(60, (id, 0)), (50, (id, 1))]));
    world.vanish("vm");
    assert!(world.record.threads.is_empty());
}

/// The tenant that has monitors' threads comes with the first VM that names it, and goes with the last.
#[test]
fn a_tenant_for_monitors_is_here_as_long_as_a_vm_is() {
    let vm = |name: &str, monitor: &str| {
        let tenant = reserved(name, 0.1, 20);
        format!("{tenant}monitor = \"{monitor}\"\nmatch = {{ vm = \"qemu:{name}\" }}\n")
    };
    let io = reserved("io", 0.1, 20);
    let text = |monitor: &str| format!("{}{}{io}", vm("a", monitor), vm("b", monitor));
    let mut world = World::new(model(&text("io")));
    let is_here = |world: &World| world.life.tenants().any(|view| view.tenant.name == "io");
    assert!(!is_here(&world));
    world.appear("a", 1);
    world.settle();
    let (a, io) = (world.view("a").id, world.view("io").id);
    assert!(matches!(world.record.specs[&io].class, Class::Reserved(_)), "it has slots");
    let monitor = |world: &World| world.record.specs[&a].monitor;
    assert_eq!(monitor(&world), None, "any thread may be a vCPU");
    world.event(Event::Threads { tenant: "a".into(), threads: BTreeMap::from([(0, 50)]) });
    assert_eq!(monitor(&world), Some(io));
    world.appear("b", 2);
    world.event(Event::Configured(model(&text("system"))));
    assert_eq!(monitor(&world), Some(rota_sched::SYSTEM));
    world.settle();
    assert!(!is_here(&world), "no VM names it");
    world.event(Event::Configured(model(&text("io"))));
    world.vanish("a");
    world.settle();
    assert!(is_here(&world), "b is left");
    world.vanish("b");
    world.settle();
    assert!(!is_here(&world));
}

/// QEMU without debug-threads=on was served without a word as if it had no vCPU.
#[test]
fn a_vm_without_names_of_vcpus_is_told_once() {
    let told = |vmm: &str| {
        let tenant = reserved("vm", 0.25, 20) + &format!("match = {{ vm = \"{vmm}:vm\" }}\n");
        let mut world = World::new(model(&tenant));
        world.appear("vm", 1);
        let nobody = || Event::Threads { tenant: "vm".into(), threads: BTreeMap::new() };
        world.event(nobody());
        assert!(!world.said("named"), "threads have time to get their names");
        world.pass(NAMED_NS);
        world.event(nobody());
        world.event(nobody());
        world.record.said.iter().filter(|line| line.contains("debug-threads=on")).count()
    };
    assert_eq!(told("qemu"), 1);
    assert_eq!(told("firecracker"), 0, "its vCPUs begin when it is told to");
}

/// A thread that was called now so, now so once had all threads of the host looked at anew each time, with a line.
#[test]
fn who_renames_threads_all_the_time_waits_and_fills_no_log() {
    let mut world = World::new(model(&reserved("vm", 0.25, 20)));
    world.appear("vm", 1);
    world.settle();
    let said = world.record.said.len();
    let found = |tids: &[i32]| Event::Threads {
        tenant: "vm".into(),
        threads: (0..).zip(tids.iter().copied()).collect(),
    };
    for _ in 0..1_000 {
        world.event(found(&[50]));
        world.event(found(&[]));
    }
    assert!(world.record.said.len() - said < 100, "{} lines", world.record.said.len() - said);
    assert!(world.said("change too often"));
    world.event(found(&[50]));
    assert!(world.record.threads.is_empty(), "it waits");
    world.pass(5_000 * MS);
    world.event(found(&[50]));
    assert_eq!(world.record.threads.len(), 1);
}

#[test]
fn a_host_without_housekeeping_serves_the_system_as_a_tenant() {
    let mut world = World::new(configured("[host]\ncpus = \"0-2\"\n"));
    assert!(!world.life.is_settled());
    world.settle();
    assert!(matches!(world.record.specs[&SYSTEM].class, Class::Reserved(_)));
    assert_eq!(world.record.in_force, BTreeSet::from([SYSTEM]));
}

#[test]
fn a_host_edit_that_breaks_promises_is_not_used() {
    let mut world = World::new(model(&(reserved("a", 0.9, 20) + &reserved("b", 0.9, 20))));
    world.appear("a", 1);
    world.appear("b", 2);
    world.settle();
    let smaller = "[host]\ncpus = \"0-1\"\nhousekeeping = \"0\"\n";
    let tenants = reserved("a", 0.9, 20) + &reserved("b", 0.9, 20);
    world.event(Event::Configured(configured(&format!("{smaller}{tenants}"))));
    assert!(world.said("the edit is not used: the edited host cannot keep its promises"));
    world.event(Event::Configured(configured("[host]\ncpus = \"0-2\"\nhousekeeping = \"0-1\"\n")));
    assert!(world.said("which needs a restart"));
    world.settle();
    assert_eq!(world.record.installs, 1);

    // Smaller promises fit the smaller host, and both change with one table.
    let tenants = reserved("a", 0.4, 20) + &reserved("b", 0.4, 20);
    world.event(Event::Configured(configured(&format!("{smaller}{tenants}"))));
    world.settle();
    assert_eq!(world.record.installs, 2);
    assert_eq!(world.view("b").promised.unwrap().share.fraction(), 0.4);
}

#[test]
fn a_table_that_was_not_installed_is_tried_again() {
    let mut world = World::new(model(&reserved("a", 0.25, 20)));
    world.appear("a", 1);
    world.record.pass_time(20 * MS);
    let actions = world.life.step(20 * MS, Event::Tick);
    assert!(matches!(actions.last(), Some(Action::Install(_))));
    // The rest of the actions was carried out, the table was not taken.
    let rest = actions
        .into_iter()
        .filter(|action| !matches!(action, Action::Tell(Change::Set(_)) | Action::Install(_)));
    world.record.enact(rest.collect());
    let event = Event::NotInstalled { reason: "busy".into(), retry_at_ns: 50 * MS };
    world.event(event);
    assert_eq!(world.life.deadline_ns(), Some(50 * MS));
    world.settle();
    assert_eq!(world.view("a").state, State::Served);
}

/// What may happen to a host with tenants t0 ... t5.
#[derive(Clone, Debug)]
enum Step {
    Appear(usize),
    Vanish(usize),
    Threads(usize, u32),
    /// New shares (in twentieths; 0: not configured, 20 and more: background or shared), new latencies.
    Edit(Vec<(u32, u64)>),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6usize).prop_map(Step::Appear),
        3 => (0..6usize).prop_map(Step::Vanish),
        1 => (0..6usize, 0..4u32).prop_map(|(tenant, count)| Step::Threads(tenant, count)),
        2 => prop::collection::vec((0..22u32, 1..60u64), 6).prop_map(Step::Edit),
        4 => (0..40u64).prop_map(Step::Pass),
    ]
}

fn edited(tenants: &[(u32, u64)]) -> Model {
    let tenant = |(index, (share, latency_ms)): (usize, &(u32, u64))| match share {
        0 => String::new(),
        20 => format!("[[tenant]]\nname = \"t{index}\"\nclass = \"background\"\n"),
        21 => format!("[[tenant]]\nname = \"t{index}\"\nclass = \"shared\"\n"),
        _ => {
            let vcpus = format!("vcpus = {}\nclass", 1 + latency_ms % 2);
            let text = reserved(&format!("t{index}"), f64::from(*share) / 20.0, *latency_ms);
            text.replace("class", &vcpus)
        }
    };
    model(&tenants.iter().enumerate().map(tenant).collect::<String>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The record and the world check the rules at every step: one table on its way at most, reserved if and only if a
    /// table has slots for it, no number freed that a table mentions, nothing bound to a tenant that is not there.
    #[test]
    fn whatever_happens_the_rules_hold(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new(edited(&[(4, 20); 6]));
        let mut cgroup = 0;
        let mut owners: BTreeMap<TenantId, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Appear(index) => {
                    cgroup += 1;
                    world.appear(&format!("t{index}"), cgroup);
                }
                Step::Vanish(index) => world.vanish(&format!("t{index}")),
                Step::Threads(index, count) => {
                    let threads = (0..count).map(|vcpu| (vcpu, (10 * index as u32 + vcpu) as i32)).collect();
                    world.event(Event::Threads { tenant: format!("t{index}"), threads });
                }
                Step::Edit(tenants) => {
                    let model = edited(&tenants);
                    // As the daemon does: who is not configured any more is gone.
                    let names: Vec<String> = world.life.tenants().map(|view| view.tenant.name.clone()).collect();
                    let gone: Vec<&String> = names
                        .iter()
                        .filter(|name| !model.tenants.iter().any(|tenant| tenant.name == **name))
                        .collect();
                    world.event(Event::Configured(model.clone()));
                    gone.into_iter().for_each(|name| world.vanish(name));
                }
                Step::Pass(time_ms) => world.pass(time_ms * MS),
            }
            // A number changes hands only when no table mentions it.
            let mut now = BTreeMap::new();
            for view in world.life.tenants() {
                now.insert(view.id, view.cgroup.unwrap().id);
            }
            for (id, cgroup) in &owners {
                if now.get(id) != Some(cgroup) {
                    prop_assert!(now.contains_key(id) || !world.record.mentioned(*id));
                }
            }
            owners = now;
        }
        world.settle();
    }
}
