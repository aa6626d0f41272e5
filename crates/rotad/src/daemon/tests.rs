//! The whole daemon on a machine made of files, with a scheduler that records.

mod pods;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use rota_model::{Class, TenantId};
use rota_sched::{CpuAccount, Installed, LetGo, Profile, QueueAccount, TenantSpec};
use rota_table::Certified;

use super::*;
use crate::server::ask;
use rota_rules::sampling::{Answer, Request};
use rota_rules::status::{State, Status};

/// What the scheduler was told. A table comes into force at once.
#[derive(Default)]
struct Told {
    specs: BTreeMap<TenantId, TenantSpec>,
    cgroups: BTreeMap<u64, TenantId>,
    threads: BTreeMap<i32, (TenantId, u32)>,
    generation: u64,
    looks: u64,
}

struct Recorder {
    told: RefCell<Told>,
    host: CpuSet,
    /// Tells when the kernel lets go of it, and why.
    exits: Rc<mpsc::Receiver<LetGo>>,
}

impl rota_rules::Enactor for Recorder {
    fn tenant_set(&self, spec: &TenantSpec) -> Result<()> {
        self.told.borrow_mut().specs.insert(spec.id, spec.clone());
        Ok(())
    }

    fn tenant_remove(&self, id: TenantId) -> Result<()> {
        self.told.borrow_mut().specs.remove(&id);
        Ok(())
    }

    fn cgroup_bind(&self, cgroup: u64, id: TenantId) -> Result<()> {
        self.told.borrow_mut().cgroups.insert(cgroup, id);
        Ok(())
    }

    fn cgroup_unbind(&self, cgroup: u64) -> Result<()> {
        self.told.borrow_mut().cgroups.remove(&cgroup);
        Ok(())
    }

    fn vcpu_thread_bind(&self, tid: i32, id: TenantId, index: u32) -> Result<()> {
        self.told.borrow_mut().threads.insert(tid, (id, index));
        Ok(())
    }

    fn vcpu_thread_unbind(&self, tid: i32) -> Result<()> {
        self.told.borrow_mut().threads.remove(&tid);
        Ok(())
    }

    fn look_again(&self) -> Result<()> {
        self.told.borrow_mut().looks += 1;
        Ok(())
    }

    fn spread_background(&self, _: &[u32]) -> Result<()> {
        Ok(())
    }

    /// One queue a tenant. Its counters show what was told: 1 dispatch if it is reserved, a migration for each cgroup,
    /// a runnable thread for each vCPU thread.
    fn queues(&self) -> Result<Vec<QueueAccount>> {
        let told = self.told.borrow();
        let account = |spec: &TenantSpec| QueueAccount {
            tenant: spec.id,
            vcpu: None,
            used_ns: 0,
            used_in_slots_ns: 0,
            wanted_ns: 0,
            blackout_max_ns: 0,
            missed: 0,
            missed_by_cause: [0; 6],
            lost_ns: [0; 6],
            dispatches: u64::from(matches!(spec.class, Class::Reserved(_))),
            migrations: told.cgroups.values().filter(|id| **id == spec.id).count() as u64,
            spins: 0,
            spins_ns: 0,
            runnable: told.threads.values().filter(|(id, _)| *id == spec.id).count() as u32,
            profile: Profile::default(),
        };
        Ok(told.specs.values().map(account).collect())
    }

    /// What each idles is how often threads were looked at again, in ns.
    fn cpus(&self) -> Result<Vec<CpuAccount>> {
        let account = |cpu| CpuAccount {
            cpu,
            generation: self.told.borrow().generation,
            mixed: 0,
            idle_ns: self.told.borrow().looks,
            background_ns: 0,
            second_level_ns: 0,
            lost_ns: [0; 6],
        };
        Ok(self.host.iter().map(account).collect())
    }

    /// Each shared tenant lags by its number.
    fn lags(&self) -> Result<BTreeMap<TenantId, i64>> {
        let told = self.told.borrow();
        let shared = told.specs.values().filter(|spec| matches!(spec.class, Class::Shared { .. }));
        Ok(shared.map(|spec| (spec.id, i64::from(spec.id))).collect())
    }
}

impl Installer for Recorder {
    fn install(&mut self, _: Certified) -> Result<Installed> {
        self.told.borrow_mut().generation += 1;
        Ok(Installed { generation: self.told.borrow().generation, adopted_at_ns: now_ns() })
    }

    fn hold_off(&self, _: TenantId, length: Duration) -> Result<Option<u64>> {
        Ok(Some(now_ns() + length.as_nanos() as u64))
    }

    fn read_branches(&self, _: u32, _: Option<rota_sched::MissEvents<'_>>) -> Result<()> {
        Ok(())
    }

    fn end(self) -> Result<()> {
        Ok(())
    }

    fn exited(&self) -> Option<LetGo> {
        self.exits.try_recv().ok()
    }
}

/// A daemon that runs on a folder.
struct Running {
    folder: tempfile::TempDir,
    stop: UnixStream,
    _leave: UnixStream,
    reload: UnixStream,
    daemon: JoinHandle<Result<(), Failure>>,
    /// Sends why the scheduler exits.
    exit: mpsc::Sender<LetGo>,
}

fn let_go(reason: &str, is_error: bool) -> LetGo {
    LetGo { reason: reason.to_owned(), is_error }
}

const HOST: &str = "[host]\ncpus = \"0-1\"\nhousekeeping = \"0\"\n";

fn web(share: f64) -> String {
    format!(
        "{HOST}[[tenant]]\nname = \"web\"\nclass = \"reserved\"\nvcpus = 2\nshare = {share}\nlatency = \"20ms\"\n\
         match = {{ cgroup = \"machine.slice/web\" }}\n"
    )
}

impl Running {
    fn start(config: &str) -> Running {
        Running::start_at(config, |_| {})
    }

    /// With what `prepare` does in its folder.
    fn start_at(config: &str, prepare: impl FnOnce(&Path)) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for path in ["cgroup/machine.slice", "proc", "system/cpu", "etc"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        fs::write(at("system/cpu/online"), "0-1\n").unwrap();
        fs::write(at("system/cpu/present"), "0-2\n").unwrap();
        fs::write(at("etc/rota.toml"), config).unwrap();
        prepare(folder.path());
        let machine = Machine { cgroup_root: at("cgroup"), proc: at("proc"), system: at("system") };
        let options = Options {
            config: at("etc/rota.toml"),
            socket: at("rota.sock"),
            group: None,
            metrics: None,
            vm_users: Vec::new(),
            grace: Duration::ZERO,
        };
        let (stop, stopped) = UnixStream::pair().unwrap();
        let (leave, leaves) = UnixStream::pair().unwrap();
        let (reload, reloads) = UnixStream::pair().unwrap();
        let (exit, exits) = mpsc::channel();
        let daemon = std::thread::spawn(move || {
            let exits = Rc::new(exits);
            let signals = Signals { stop: stopped.as_fd(), leave: leaves.as_fd(), reload: reloads.as_fd() };
            run_on(&machine, &options, signals, |model| {
                let (told, host) = (RefCell::default(), model.host.cpus.clone());
                Ok((Recorder { told, host, exits: exits.clone() }, Start::Anew { instead: None }))
            })
        });
        Running { folder, stop, _leave: leave, reload, daemon, exit }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Waits until the daemon's status is as it should be.
    fn wait(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let status = ask(&self.path("rota.sock"));
            if let Ok(status) = &status
                && is_so(status)
            {
                return status.clone();
            }
            assert!(Instant::now() < end, "not seen: {what}; status: {status:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(self) -> Result<(), Failure> {
        drop(self.stop);
        self.daemon.join().unwrap()
    }
}

fn tenant<'a>(status: &'a Status, name: &str) -> &'a rota_rules::status::TenantStatus {
    status.tenants.iter().find(|tenant| tenant.name == name).unwrap()
}

#[test]
fn who_is_here_is_sampled() {
    let daemon = Running::start(&web(0.2));
    daemon.wait("an empty host", |status| tenant(status, "web").state == State::Absent);
    let ask = |hold_off_ms| {
        let request = Request { tenant: "web".to_owned(), hold_off_ms };
        sampler::ask(&daemon.path("rota.sock"), &request).unwrap()
    };
    assert!(matches!(ask(40), Answer::Refused(why) if why.contains("not on this host")));
    fs::create_dir(daemon.path("cgroup/machine.slice/web")).unwrap();
    daemon.wait("the tenant, served", |status| tenant(status, "web").state == State::Served);
    let Answer::SoFar(sample) = ask(0) else { panic!("nobody is held off") };
    // A daemon that is held up itself says so, and is asked again.
    let end = Instant::now() + Duration::from_secs(60);
    while ask(40) != Answer::Dedicated(sample) {
        assert!(Instant::now() < end, "no sample is taken");
    }
    // Who asks for nothing that is known, is not answered, and holds up nobody for long.
    let mut other = UnixStream::connect(daemon.path("rota.sample")).unwrap();
    other.write_all(b"web\n").unwrap();
    assert_eq!(ask(0), Answer::SoFar(sample));
    daemon.stop().unwrap();
}

/// Where a processor records no branches, an operator who has asked for records is told so.
#[test]
fn records_are_asked_for_by_an_edit() {
    let is_lacking = crate::branches::Recorder::open(1).is_err();
    let daemon = Running::start(&web(0.2));
    let is_told = |status: &Status| status.scheduler.branch_records_off.is_some();
    daemon.wait("no word of records", |status| !is_told(status));
    let recorded = web(0.2).replacen("[host]", "[host]\nbranch_records = true", 1);
    for (config, is_off) in [(recorded, is_lacking), (web(0.2), false)] {
        fs::write(daemon.path("etc/rota.toml"), config).unwrap();
        daemon.wait("the edit, taken", |status| is_told(status) == is_off);
    }
    daemon.stop().unwrap();
}

#[test]
fn tenants_come_change_and_go() {
    let daemon = Running::start(&web(0.2));
    let first = daemon.wait("an empty host", |status| tenant(status, "web").state == State::Absent);
    assert!(first.window_s > 0.0, "the counters were read before anybody asked");

    let cgroup = daemon.path("cgroup/machine.slice/web");
    fs::create_dir(&cgroup).unwrap();
    let status = daemon.wait("the tenant, served", |status| tenant(status, "web").state == State::Served);
    let web_tenant = tenant(&status, "web");
    assert_eq!(web_tenant.promised, Some(0.4));
    assert_eq!(web_tenant.cgroup.as_deref(), Some("machine.slice/web"));
    assert_eq!((web_tenant.dispatches, web_tenant.migrations), (1, 1), "told so");
    assert_eq!(status.generation, 1);
    daemon.wait("a look at who waits", |status| status.cpus.iter().all(|cpu| cpu.idle > 0.0));

    fs::create_dir_all(daemon.path("proc/50")).unwrap();
    fs::write(daemon.path("proc/50/comm"), "CPU 1/KVM\n").unwrap();
    fs::write(cgroup.join("cgroup.threads"), "50\n").unwrap();
    fs::write(cgroup.join("cgroup.procs"), "50\n").unwrap();
    fs::create_dir(daemon.path("proc/50/fd")).unwrap();
    std::os::unix::fs::symlink("anon_inode:kvm-vm", daemon.path("proc/50/fd/9")).unwrap();
    daemon.wait("a VM", |status| tenant(status, "web").kind == "vm" && tenant(status, "web").runnable == 1);

    fs::write(daemon.path("etc/rota.toml"), web(0.3)).unwrap();
    daemon.wait("the new promise", |status| tenant(status, "web").promised == Some(0.6));
    for (edit, part) in [
        ("[host]\ncpus = \"0-9\"\n".to_owned(), "rota.toml:2:8: host.cpus: CPUs 3-9 are not on this machine"),
        (web(0.3).replace("share", "shore"), "shore"),
        (web(0.3).replace("housekeeping = \"0\"", ""), "the log says why"),
    ] {
        fs::write(daemon.path("etc/rota.toml"), edit).unwrap();
        let status = daemon.wait("the edit, refused", |status| {
            status.edit_refused.as_ref().is_some_and(|reason| reason.contains(part))
        });
        assert_eq!(tenant(&status, "web").promised, Some(0.6));
    }
    fs::create_dir(daemon.path("etc/tenants.d")).unwrap();
    fs::write(daemon.path("etc/rota.toml"), web(0.3)).unwrap();
    let more = "[[tenant]]\nname = \"idle\"\nclass = \"background\"\nmatch = { cgroup = \"idle\" }\n";
    fs::write(daemon.path("etc/tenants.d/idle.toml"), more).unwrap();
    let status = daemon.wait("a tenant from its own file", |status| status.tenants.len() == 2);
    assert_eq!(status.edit_refused, None);

    fs::remove_dir_all(&cgroup).unwrap();
    let gone = daemon.wait("it gone", |status| tenant(status, "web").state == State::Absent);
    assert_eq!(gone.generation, 3, "it came, was promised more, and went; the bad edits changed nothing");
    let socket = daemon.path("rota.sock");
    daemon.stop().unwrap();
    assert!(!socket.exists());
}

#[test]
fn a_change_of_cpus_starts_a_new_session_and_another_end_is_a_failure() {
    let config = web(0.2).replace("[host]\ncpus = \"0-1\"\n", "[host]\n");
    let daemon = Running::start(&config);
    fs::create_dir(daemon.path("cgroup/machine.slice/web")).unwrap();
    daemon.wait("the tenant, served", |status| tenant(status, "web").state == State::Served);

    daemon.exit.send(let_go("cpu 2 going online, exiting scheduler", false)).unwrap();
    fs::write(daemon.path("system/cpu/online"), "0-2\n").unwrap();
    daemon.wait("a new session", |status| {
        status.cpus.len() == 3 && tenant(status, "web").state == State::Served
    });

    daemon.exit.send(let_go("disabled by SysRq-S", false)).unwrap();
    let Err(Failure::Failed(error)) = daemon.daemon.join().unwrap() else { panic!("it must fail") };
    assert!(error.to_string().ends_with("disabled by SysRq-S"), "{error}");
}

/// A real-time task that has a CPU for longer than the watchdog allows ends the scheduler, and not the daemon.
#[test]
fn a_scheduler_that_the_kernel_has_ended_comes_back() {
    let daemon = Running::start(&web(0.2));
    fs::create_dir(daemon.path("cgroup/machine.slice/web")).unwrap();
    let served = |lost: u64| {
        move |status: &Status| status.scheduler.lost == lost && tenant(status, "web").state == State::Served
    };
    daemon.wait("the tenant, served", served(0));
    daemon.exit.send(let_go("runnable task stall: sh[7] failed to run for 30.0s", true)).unwrap();
    let status = daemon.wait("the same with another scheduler", served(1));
    assert!(status.scheduler.lost_why.unwrap().contains("sh[7]"));
    // As it waits to start again, it can be stopped.
    daemon.exit.send(let_go("runnable task stall", true)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    daemon.stop().unwrap();
}

/// A CPU that is named and offline once kept Rota down, and its going offline ended it.
#[test]
fn a_host_is_planned_without_its_offline_cpus() {
    let far = "[[tenant]]\nname = \"far\"\nclass = \"reserved\"\nshare = 0.1\nlatency = \"20ms\"\naffinity = \"2\"\n\
               match = { cgroup = \"far\" }\n";
    let daemon = Running::start(&(web(0.2).replace("0-1", "0-2") + far));
    fs::create_dir(daemon.path("cgroup/machine.slice/web")).unwrap();
    fs::create_dir(daemon.path("cgroup/far")).unwrap();
    let status = daemon.wait("one served, one refused", |status| {
        tenant(status, "web").state == State::Served && tenant(status, "far").state == State::Refused
    });
    assert_eq!((status.offline.as_str(), status.cpus.len()), ("2", 2));
    let refused = tenant(&status, "far").refused.as_deref().unwrap();
    assert!(refused.starts_with("every CPU that it may run on is offline; bring one online"), "{refused}");

    daemon.exit.send(let_go("cpu 2 going online, exiting scheduler", false)).unwrap();
    fs::write(daemon.path("system/cpu/online"), "0-2\n").unwrap();
    let status = daemon.wait("both served", |status| {
        status.cpus.len() == 3 && status.tenants.iter().all(|tenant| tenant.state == State::Served)
    });
    assert_eq!(status.offline, "");
}

#[test]
fn a_wrong_configuration_is_refused_before_anything_is_started() {
    for (config, part) in
        [("[host]\nfoo = 1\n", "foo"), ("[host]\ncpus = \"0-3\"\n", "CPUs 3 are not on this machine")]
    {
        let daemon = Running::start(config);
        let Err(Failure::Usage(error)) = daemon.daemon.join().unwrap() else { panic!("{config} was taken") };
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// The folder's removal, and a CPU that went offline while a wrong edit stood there, once ended the daemon.
#[test]
fn a_configuration_that_is_gone_or_wrong_leaves_the_one_in_use() {
    let daemon = Running::start(&web(0.2));
    fs::create_dir(daemon.path("cgroup/machine.slice/web")).unwrap();
    let is_served = |status: &Status| tenant(status, "web").state == State::Served;
    daemon.wait("the tenant, served", is_served);

    fs::remove_dir_all(daemon.path("etc")).unwrap();
    let refused = |part: &'static str| {
        move |status: &Status| {
            is_served(status) && status.edit_refused.as_ref().is_some_and(|reason| reason.contains(part))
        }
    };
    daemon.wait("no configuration", refused("No such file"));
    daemon.exit.send(let_go("cpu 2 going online, exiting scheduler", false)).unwrap();
    fs::write(daemon.path("system/cpu/online"), "0-2\n").unwrap();
    daemon.wait("a new session", |status| {
        refused("No such file")(status) && status.pid > 0 && status.generation == 1
    });

    fs::create_dir(daemon.path("etc")).unwrap();
    fs::write(daemon.path("etc/rota.toml"), web(0.3)).unwrap();
    (&daemon.reload).write_all(b"!").unwrap();
    daemon.wait("the new promise", |status| tenant(status, "web").promised == Some(0.6));
    nix::unistd::mkfifo(&daemon.path("etc/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::rename(daemon.path("etc/fifo"), daemon.path("etc/rota.toml")).unwrap();
    (&daemon.reload).write_all(b"!").unwrap();
    daemon.wait("a FIFO, refused", refused("is no file"));
    daemon.stop().unwrap();
}

/// It once removed the file, and then failed for another reason.
#[test]
fn a_socket_that_is_a_file_is_refused_before_anything_is_started() {
    let daemon = Running::start_at(&web(0.2), |at| {
        fs::write(at.join("rota.sock"), "precious").unwrap();
    });
    let path = daemon.path("rota.sock");
    let Running { folder: kept, daemon, .. } = daemon;
    let Err(Failure::Usage(error)) = daemon.join().unwrap() else { panic!("it was taken") };
    assert!(error.to_string().contains("is no socket"), "{error}");
    assert_eq!(fs::read_to_string(path).unwrap(), "precious");
    drop(kept);
}

/// Whoever made and removed cgroups fast enough, beside many others, once had the loop for itself: no edit, no new
/// tenant, no answer, no end.
#[test]
fn who_makes_and_removes_cgroups_all_the_time_holds_up_nothing() {
    let config = |share: f64| web(share).replace("machine.slice/web", "user/delegated/web");
    let daemon = Running::start_at(&config(0.2), |at| {
        fs::create_dir_all(at.join("cgroup/user/delegated/web")).unwrap();
        for number in 0..2_000 {
            fs::create_dir_all(at.join(format!("cgroup/user/many/{number}"))).unwrap();
        }
    });
    let delegated = daemon.path("cgroup/user/delegated");
    let is_over = Arc::new(AtomicBool::new(false));
    let stranger = std::thread::spawn({
        let (is_over, delegated) = (is_over.clone(), delegated.clone());
        move || {
            let folders = (0..100).cycle().map(|number| delegated.join(number.to_string()));
            let made =
                |folder: &PathBuf| fs::create_dir(folder).and_then(|()| fs::remove_dir(folder)).is_ok();
            folders.take_while(|_| !is_over.load(Ordering::Relaxed)).filter(made).count()
        }
    });
    daemon.wait("the tenant, served", |status| tenant(status, "web").promised == Some(0.4));
    fs::write(daemon.path("etc/rota.toml"), config(0.3)).unwrap();
    daemon.wait("the new promise", |status| tenant(status, "web").promised == Some(0.6));
    daemon.stop().unwrap();
    is_over.store(true, Ordering::Relaxed);
    assert!(stranger.join().unwrap() > 0);
    // What the stranger made as the daemon's folder was removed.
    let _ = fs::remove_dir_all(delegated.ancestors().nth(3).unwrap());
}

/// The folder is no cgroup that a processor could count for.
#[test]
fn without_counters_vcpus_change_places_at_random_and_the_status_says_why() {
    let config = web(0.2).replace("housekeeping", "interference = \"measured\"\nhousekeeping");
    let daemon = Running::start(&config);
    fs::create_dir(daemon.path("cgroup/machine.slice/web")).unwrap();
    let status = daemon.wait("no counters", |status| {
        let interference = status.interference.as_ref();
        interference.is_some_and(|interference| interference.no_counters.is_some())
    });
    let interference = status.interference.unwrap();
    assert_eq!(
        (interference.strategy.as_str(), interference.exchanges),
        ("random", 0),
        "both are on one CPU"
    );
    daemon.wait("the tenant, served", |status| tenant(status, "web").state == State::Served);
    daemon.stop().unwrap();
}

#[test]
fn a_vm_is_shown_its_slots_while_they_hold() {
    let config = |share: &str| {
        web(0.2)
            .replace("share = 0.2", share)
            .replace("{ cgroup = \"machine.slice/web\" }", "{ vm = \"qemu:web\" }\ntimetable = true")
    };
    let daemon = Running::start_at(&config("share = 0.2"), |folder| {
        let process = folder.join("proc/20");
        fs::create_dir_all(&process).unwrap();
        fs::create_dir(folder.join("cgroup/machine.slice/web")).unwrap();
        fs::write(process.join("cmdline"), "qemu-kvm\0-name\0web\0").unwrap();
        fs::write(process.join("cgroup"), "0::/machine.slice/web\n").unwrap();
        fs::write(process.join("status"), "Uid:\t0\t0\t0\t0\nNSpid:\t20\n").unwrap();
        std::os::unix::fs::symlink("/usr/bin/qemu-kvm", process.join("exe")).unwrap();
        // What a daemon has left whose scheduler has ended.
        fs::create_dir_all(folder.join("guests/web")).unwrap();
        fs::write(folder.join("guests/web/timetable"), "old").unwrap();
    });
    let file = daemon.path("guests/web/timetable");
    let shown = || fs::read_to_string(&file).unwrap().parse::<rota_table::Timetable>().unwrap();
    let served = |promised: f64| {
        move |status: &Status| tenant(status, "web").promised.is_some_and(|now| (now - promised).abs() < 1e-6)
    };
    let first = daemon.wait("the VM, served", served(0.4));
    assert_eq!((shown().vcpus.len(), shown().generation), (2, first.generation));
    fs::write(daemon.path("etc/rota.toml"), config("share = 0.3")).unwrap();
    let second = daemon.wait("the new promise", served(0.6));
    assert_eq!(shown().generation, second.generation);
    assert!(second.generation > first.generation);
    let Running { folder: _kept, stop, daemon, .. } = daemon;
    drop(stop);
    daemon.join().unwrap().unwrap();
    assert!(!file.exists() && file.parent().unwrap().is_dir(), "no table is in force any more");
}
