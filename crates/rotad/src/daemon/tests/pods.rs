//! The daemon beside a container runtime that says what a real one has said, and a kubelet's tree of cgroups.

use std::io::Read;
use std::os::unix::net::UnixListener;

use super::*;

#[path = "../../../../rota-nri/tests/transcripts/mod.rs"]
mod transcripts;

const POD: &str = "0000_4000_8000_0123456789ab.slice";

/// A runtime at a socket, whose part is in one of `rota-nri`'s transcripts.
struct Runtime {
    stream: UnixStream,
    steps: std::vec::IntoIter<transcripts::Step>,
}

impl Runtime {
    /// Waits for the daemon to connect.
    fn accept(listener: &UnixListener, transcript: &str) -> Runtime {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rota-nri/tests/transcripts");
        let steps = transcripts::read(&folder.join(transcript));
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Runtime { stream, steps: steps.into_iter() }
    }

    /// Says and hears so much more of it.
    fn play(&mut self, steps: usize) {
        for (is_runtimes, bytes) in self.steps.by_ref().take(steps) {
            if is_runtimes {
                self.stream.write_all(&bytes).unwrap();
                continue;
            }
            let mut said = vec![0; bytes.len()];
            self.stream.read_exact(&mut said).unwrap();
            assert_eq!(said, bytes);
        }
    }
}

/// How many steps it takes until the runtime has listed its pods, and then for each event.
const LISTED: usize = 5;
const EVENT: usize = 2;

/// A node with so many CPUs, of which the first is for housekeeping, and with pods' cgroups.
fn node(cpus: u32, latency: &str) -> (Running, UnixListener) {
    let mut listener = None;
    let last = cpus - 1;
    let config = |socket: &Path| {
        format!(
            "[host]\ncpus = \"0-{last}\"\nhousekeeping = \"0\"\n\
             [kubernetes]\nsocket = \"{}\"\nlatency = \"{latency}\"\n",
            socket.display()
        )
    };
    let daemon = Running::start_at("", |folder| {
        fs::write(folder.join("system/cpu/online"), format!("0-{last}\n")).unwrap();
        let socket = folder.join("nri.sock");
        for file in ["etc/rota.toml", "etc/good.toml"] {
            fs::write(folder.join(file), config(&socket)).unwrap();
        }
        listener = Some(UnixListener::bind(socket).unwrap());
        let slices = folder.join("cgroup/kubepods.slice");
        for pod in [
            &format!("kubepods-pod0a1b2c3d_{POD}/cri-containerd-0123456789ab.scope"),
            &format!("kubepods-burstable.slice/kubepods-burstable-pod1a1b2c3d_{POD}"),
            "../kubepods/burstable/pod3a1b2c3d-0000-4000-8000-0123456789ab",
        ] {
            fs::create_dir_all(slices.join(pod)).unwrap();
        }
    });
    (daemon, listener.unwrap())
}

/// A tenant's class, state, and CPUs promised; nothing if there is no such tenant.
fn seen<'a>(status: &'a Status, name: &str) -> Option<(&'a str, State, Option<f64>)> {
    let tenant = status.tenants.iter().find(|tenant| tenant.name == name)?;
    Some((tenant.class.as_str(), tenant.state, tenant.promised))
}

fn runtime_of(status: &Status) -> Option<&str> {
    status.kubernetes.as_ref()?.runtime.as_deref()
}

#[test]
fn pods_are_tenants_as_they_come_change_and_go() {
    let (daemon, listener) = node(4, "10ms");
    let mut runtime = Runtime::accept(&listener, "nri-0.12.txt");
    runtime.play(LISTED);
    let db = Some(("reserved", State::Served, Some(1.5)));
    let status = daemon.wait("the listed pods, served", |status| seen(status, "shop.db-0") == db);
    assert_eq!(seen(&status, "shop.web-7d9f"), Some(("shared", State::Served, None)));
    assert_eq!(seen(&status, "shop.long"), Some(("shared", State::Served, None)));
    let cgroup = format!("kubepods.slice/kubepods-pod0a1b2c3d_{POD}");
    assert_eq!(tenant(&status, "shop.db-0").cgroup.as_deref(), Some(cgroup.as_str()));
    let kubernetes = status.kubernetes.as_ref().unwrap();
    assert_eq!((runtime_of(&status), kubernetes.pods), (Some("containerd v2.1.4"), 3));
    assert!(kubernetes.refused.is_empty(), "{kubernetes:?}");

    let slice = "cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod2a1b2c3d_";
    fs::create_dir_all(daemon.path(&format!("{slice}{POD}"))).unwrap();
    runtime.play(EVENT);
    let job = Some(("background", State::Served, None));
    daemon.wait("one that has come", |status| seen(status, "batch.job-1") == job);
    runtime.play(EVENT); // web requests twice as much; what is seen of that is its weight, in `rota-rules`
    runtime.play(EVENT);
    daemon.wait("one that has stopped", |status| seen(status, "shop.db-0").is_none());

    // A configuration that is wrong keeps no pod from coming or going, and the runtime may be another one.
    fs::write(daemon.path("etc/rota.toml"), "x").unwrap();
    daemon.wait("a wrong configuration", |status| status.edit_refused.is_some());
    drop(runtime);
    let status = daemon.wait("a lost runtime", |status| runtime_of(status).is_none());
    assert_eq!(seen(&status, "batch.job-1"), job, "the pods run on without it");
    assert!(status.kubernetes.unwrap().lost.is_some());
    Runtime::accept(&listener, "nri-0.8-refused.txt").play(usize::MAX);
    let mut runtime = Runtime::accept(&listener, "nri-0.8.txt");
    runtime.play(LISTED);
    let status = daemon.wait("the pods of another one", |status| seen(status, "shop.db-0") == db);
    assert_eq!((runtime_of(&status), seen(&status, "batch.job-1")), (Some("containerd v2.0.5"), None));
    assert!(status.edit_refused.is_some());

    // So it is with one that the host cannot take over.
    let config = fs::read_to_string(daemon.path("etc/good.toml")).unwrap();
    let edit = config.replace("housekeeping = \"0\"", "housekeeping = \"0-1\"");
    fs::write(daemon.path("etc/rota.toml"), edit).unwrap();
    let is_refused =
        |status: &Status| status.edit_refused.as_ref().is_some_and(|why| why.contains("the log says"));
    daemon.wait("an edit that needs a restart", is_refused);
    runtime.play(EVENT);
    let status = daemon.wait("a pod beside it", |status| seen(status, "batch.job-1") == job);
    assert!(is_refused(&status));

    fs::write(daemon.path("etc/rota.toml"), "[host]\ncpus = \"0-3\"\nhousekeeping = \"0\"\n").unwrap();
    daemon.wait("no pods", |status| status.kubernetes.is_none() && status.tenants.is_empty());
    daemon.stop().unwrap();
}

/// One CPU is left for tenants: a pod that is promised one and a half has none of it, and is told.
#[test]
fn a_pod_without_room_is_shared_and_told() {
    let (daemon, listener) = node(2, "10ms");
    let mut runtime = Runtime::accept(&listener, "nri-0.12.txt");
    runtime.play(LISTED);
    let refused = |status: &Status| seen(status, "shop.db-0").is_some_and(|db| db.1 == State::Refused);
    let status = daemon.wait("a refusal", refused);
    let db = tenant(&status, "shop.db-0");
    assert!(db.refused.as_ref().is_some_and(|reason| reason.contains("over-utilised")), "{:?}", db.refused);
    assert!(db.lag_ns.is_some(), "the scheduler was told that it is shared");
    daemon.stop().unwrap();
}

/// Its author asks for shorter waits than this node promises.
#[test]
fn a_pod_that_asks_for_too_much_is_served_as_its_class_says_and_told() {
    let (daemon, listener) = node(4, "20ms");
    let mut runtime = Runtime::accept(&listener, "nri-0.12.txt");
    runtime.play(LISTED);
    let db = Some(("reserved", State::Served, Some(2.0)));
    let status = daemon.wait("the pod, served", |status| seen(status, "shop.db-0") == db);
    let refused = &status.kubernetes.unwrap().refused["shop/db-0"];
    assert!(refused.starts_with("asks for waits of 10000 us at most"), "{refused}");
    daemon.stop().unwrap();
}

#[test]
fn a_runtime_that_is_not_there_holds_up_nothing() {
    let kubernetes = "[kubernetes]\nsocket = \"/nonexistent/nri.sock\"\n[[tenant]]";
    let daemon = Running::start(&web(0.2).replace("[[tenant]]", kubernetes));
    fs::create_dir(daemon.path("cgroup/machine.slice/web")).unwrap();
    let status = daemon.wait("the tenant, served", |status| {
        tenant(status, "web").state == State::Served
            && status.kubernetes.as_ref().is_some_and(|kubernetes| kubernetes.lost.is_some())
    });
    assert!(status.kubernetes.unwrap().lost.unwrap().starts_with("connecting to /nonexistent/nri.sock"));
    daemon.stop().unwrap();
}

/// Who looks before the daemon starts asks the runtime, too.
#[test]
fn a_preview_has_the_pods_of_now() {
    for (transcripts, runtime) in [
        (&["nri-0.12.txt"][..], "containerd v2.1.4"),
        (&["nri-0.8-refused.txt", "nri-0.8.txt"], "containerd v2.0.5"),
    ] {
        let (daemon, listener) = node(4, "10ms");
        Runtime::accept(&listener, "nri-0.12.txt").play(LISTED);
        let machine = Machine {
            cgroup_root: daemon.path("cgroup"),
            proc: daemon.path("proc"),
            system: daemon.path("system"),
        };
        let plays = std::thread::spawn(move || {
            for transcript in transcripts {
                let steps = if transcript.contains("refused") { usize::MAX } else { LISTED };
                Runtime::accept(&listener, transcript).play(steps);
            }
        });
        let preview = crate::preview(&machine, &daemon.path("etc/rota.toml"), Vec::new()).unwrap();
        plays.join().unwrap();
        let kubernetes = preview.status.kubernetes.as_ref().unwrap();
        assert_eq!(
            (kubernetes.runtime.as_deref(), kubernetes.pods, kubernetes.matched),
            (Some(runtime), 3, 3)
        );
        assert_eq!(kubernetes.refused_by.values().sum::<u32>(), 0, "{kubernetes:?}");
        assert_eq!(seen(&preview.status, "shop.db-0"), Some(("reserved", State::Served, Some(1.5))));
    }
}
