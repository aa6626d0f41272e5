//! The doctor on machines made of files.

use std::fs;

use rota_model::config::Kubernetes;
use rota_rules::status::KubernetesStatus;

use super::*;

/// A machine of four CPUs on which Rota could run, with a container, a unit and a VM of two vCPUs.
const SOUND: &str = "\
proc/self/mounts: cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0|bpf /sys/fs/bpf bpf rw 0 0
proc/sys/kernel/osrelease: 7.3.4-amd64
proc/sys/kernel/sched_rt_runtime_us: 950000
proc/sys/net/core/bpf_jit_enable: 1
proc/sys/fs/inotify/max_user_watches: 65536
proc/irq/9/effective_affinity_list: 0
proc/40/comm: qemu-system-x86
proc/40/cgroup: 0::/machine.slice/vm.scope
proc/40/cmdline: qemu-system-x86_64|-name|db
proc/40/status: Uid: 0 0 0 0
proc/40/exe -> /usr/bin/qemu-system-x86_64
proc/41/comm: CPU 0/KVM
proc/42/comm: CPU 1/KVM
sys/kernel/sched_ext/state: disabled
sys/kernel/btf/vmlinux: BTF
sys/bus/event_source/devices/cpu/type: 4
sys/devices/system/cpu/online: 0-3
sys/devices/system/cpu/present: 0-3
sys/devices/system/cpu/possible: 0-3
sys/devices/system/cpu/isolated:
sys/fs/cgroup/web.slice/cpuset.cpus.effective: 0-3
sys/fs/cgroup/system.slice/make.service/cgroup.procs:
sys/fs/cgroup/machine.slice/vm.scope/cgroup.threads: 40|41|42
dev/kvm:
etc/rota/rota.toml: [host]|cpus = \"0-3\"|housekeeping = \"0\"|[[tenant]]|name = \"web\"|class = \"reserved\"|\
share = 0.2|latency = \"20ms\"|match = { cgroup = \"web.slice\" }|[[tenant]]|name = \"make\"|class = \"shared\"|\
match = { unit = \"make.service\" }|[[tenant]]|name = \"db\"|class = \"reserved\"|vcpus = 2|share = 0.5|\
latency = \"20ms\"|match = { vm = \"qemu:db\" }
";

/// What is found on the sound machine after these lines have replaced its own. A line `PATH -` takes a path away, and
/// `PATH -> TO` makes a link.
fn examined(changes: &[&str]) -> Vec<Finding> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for line in SOUND.lines().chain(changes.iter().copied()) {
        if let Some(gone) = line.strip_suffix(" -") {
            let gone = root.join(gone);
            if gone.is_dir() {
                fs::remove_dir_all(gone).unwrap()
            } else {
                fs::remove_file(gone).unwrap()
            }
            continue;
        }
        if let Some((link, to)) = line.split_once(" -> ") {
            std::os::unix::fs::symlink(to, root.join(link)).unwrap();
            continue;
        }
        let (path, text) = line.split_once(':').unwrap();
        let separator = if path.ends_with("cmdline") { "\0" } else { "\n" };
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), text.trim_start().replace('|', separator) + separator).unwrap();
    }
    examine(root, &root.join("etc/rota/rota.toml"), Vec::new())
}

/// The level, the text and the mend of what is said about one thing.
#[track_caller]
fn said(changes: &[&str], about: &str) -> (Level, String) {
    let findings = examined(changes);
    let of = findings.iter().rfind(|finding| finding.about == about);
    let finding = of.unwrap_or_else(|| panic!("nothing about {about} in {findings:#?}"));
    (finding.level, format!("{} -> {}", finding.found, finding.mend.as_deref().unwrap_or("")))
}

#[test]
fn a_sound_machine_has_no_problem() {
    let findings = examined(&[]);
    let bad: Vec<_> = findings.iter().filter(|finding| finding.level != Level::Ok).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let about = |name: &str| &findings.iter().find(|finding| finding.about == name).unwrap().found;
    assert_eq!(about("web"), "in cgroup web.slice");
    assert_eq!(about("make"), "in cgroup system.slice/make.service");
    assert_eq!(about("db"), "in cgroup machine.slice/vm.scope, 2 vCPU threads of 2");
}

#[test]
fn what_keeps_the_scheduler_from_running_is_a_problem_with_its_mend() {
    for (change, about, words) in [
        ("proc/sys/kernel/osrelease: 6.12.9-amd64", "kernel", "too old -> boot Linux 6.16"),
        ("proc/sys/kernel/osrelease: 7.1.13", "kernel", "its BTF breaks"),
        ("sys/kernel/sched_ext -", "sched_ext", "no sched_ext -> boot one with CONFIG_SCHED_CLASS_EXT=y"),
        ("sys/kernel/btf -", "BTF", "missing -> boot a kernel with CONFIG_DEBUG_INFO_BTF=y"),
        ("proc/sys/net/core/bpf_jit_enable: 0", "BPF JIT", "off -> sysctl net.core.bpf_jit_enable=1"),
        ("proc/self/mounts: tmpfs / tmpfs rw 0 0", "cgroup v2", "no cgroup2 file system is mounted"),
        ("proc/sys/fs/inotify/max_user_watches: 6", "inotify", "-> sysctl fs.inotify.max_user_watches=65536"),
        ("etc/rota/rota.toml: [host]|cpu = \"0\"", "configuration", "rota.toml:2:1: host.cpu: unknown key"),
        ("etc/rota/rota.toml -", "configuration", "rota.toml: No such file"),
    ] {
        let (level, text) = said(&[change], about);
        assert_eq!(level, Level::Problem, "{change}: {text}");
        assert!(text.contains(words), "{change}: {text}");
    }
}

#[test]
fn another_scheduler_is_named() {
    let enabled = "sys/kernel/sched_ext/state: enabled";
    let (level, text) = said(&[enabled, "sys/kernel/sched_ext/root/ops: lavd_1.0.2"], "sched_ext");
    assert_eq!(level, Level::Problem);
    assert!(text.contains("the scheduler lavd_1.0.2 has it -> stop it"), "{text}");
    let (level, text) = said(&[enabled, "sys/kernel/sched_ext/root/ops: rota"], "sched_ext");
    assert_eq!((level, text.as_str()), (Level::Ok, "enabled: Rota has it -> "));
}

#[test]
fn what_rota_can_run_beside_is_a_warning() {
    for (change, about, words) in [
        ("proc/sys/kernel/osrelease: 6.18.4", "real-time tasks", "no deadline server for sched_ext"),
        (
            "proc/sys/kernel/sched_rt_runtime_us: -1",
            "real-time tasks",
            "-> sysctl kernel.sched_rt_runtime_us=950000",
        ),
        ("proc/sys/fs/inotify/max_user_watches: 8", "inotify", "6 cgroups are to be watched"),
        (
            "proc/self/mounts: cgroup2 /sys/fs/cgroup cgroup2 rw 0 0",
            "promises without a daemon",
            "-> mount -t bpf bpf /sys/fs/bpf",
        ),
        ("proc/irq/9/effective_affinity_list: 2", "interrupts", "1 come to tenants' CPUs (1-3)"),
        ("sys/fs/cgroup/cpuset.cpus.isolated: 3", "isolated CPUs", "isolated partition of a cpuset"),
        ("sys/fs/cgroup/web.slice/cpuset.cpus.effective: 0-1", "web", "CPUs 2-3, on which it may have slots"),
        ("dev/kvm -", "KVM", "VMs are emulated here -> modprobe"),
        ("proc/42/comm: worker", "db", "1 vCPU threads of 2 -> write vcpus = 1"),
    ] {
        let (level, text) = said(&[change], about);
        assert_eq!(level, Level::Warning, "{change}: {text}");
        assert!(text.contains(words), "{change}: {text}");
    }
    let isolated =
        ["sys/devices/system/cpu/isolated: 2-3", "etc/rota/rota.toml: [host]|housekeeping = \"0\""];
    let (level, text) = said(&isolated, "isolated CPUs");
    assert!(level == Level::Warning && text.contains("CPUs 2-3 are isolated"), "{text}");
}

#[test]
fn who_wants_interference_measured_is_told_what_counts() {
    let measured = "etc/rota/rota.toml: [host]|housekeeping = \"0\"|interference = \"measured\"";
    let no_pmu = "sys/bus/event_source/devices/cpu -";
    let features = "sys/fs/resctrl/info/L3_MON/mon_features: llc_occupancy|mbm_total_bytes";
    for (changes, level, words) in [
        (&[measured][..], Level::Ok, "hardware counters are there"),
        (&[no_pmu], Level::Ok, "none is needed"),
        (&[no_pmu, measured, features], Level::Ok, "resctrl counts memory bandwidth"),
        (&[no_pmu, measured], Level::Warning, "at random -> mount -t resctrl"),
    ] {
        let (found, text) = said(changes, "PMU");
        assert!(found == level && text.contains(words), "{changes:?}: {text}");
    }
}

#[test]
fn a_match_that_finds_nothing_is_a_problem() {
    for (gone, about, words) in [
        (
            "sys/fs/cgroup/web.slice -",
            "web",
            "cgroup = \"web.slice\" finds nothing -> start it, or write a path",
        ),
        ("sys/fs/cgroup/system.slice -", "make", "see `systemctl status 'make.service'`"),
        (
            "proc/40 -",
            "db",
            "vm = \"qemu:db\" finds nothing -> start it, or write the name that is in `virsh list`",
        ),
    ] {
        let (level, text) = said(&[gone], about);
        assert_eq!(level, Level::Problem, "{gone}: {text}");
        assert!(text.contains(words), "{gone}: {text}");
    }
    // What the daemon would log about it is said here, too.
    let users = "sys/fs/cgroup/user.slice/user-1.slice/user@1.service/make.service/cgroup.procs:";
    let (level, text) = said(&["sys/fs/cgroup/system.slice -", users], "make");
    assert_eq!(level, Level::Problem);
    assert!(text.contains("a user has such a unit -> if it is meant, write match"), "{text}");
}

#[test]
fn a_tenant_without_room_is_told_why() {
    let config = "etc/rota/rota.toml: [host]|cpus = \"0-1\"|housekeeping = \"0\"|[[tenant]]|name = \"web\"|\
                  class = \"reserved\"|vcpus = 2|share = 0.8|latency = \"20ms\"|match = { cgroup = \"web.slice\" }";
    let (level, text) = said(&[config], "web");
    assert_eq!(level, Level::Warning);
    assert!(text.starts_with("no room for its reservation: "), "{text}");
}

#[test]
fn a_tenant_for_monitors_wants_no_match() {
    let tenants = "[[tenant]]|name = \"io\"|class = \"reserved\"|share = 0.1|latency = \"20ms\"|[[tenant]]|\
                   name = \"db\"|class = \"reserved\"|vcpus = 2|share = 0.5|latency = \"20ms\"|monitor = \"io\"|\
                   match = { vm = \"qemu:db\" }";
    let config = format!("etc/rota/rota.toml: [host]|cpus = \"0-3\"|housekeeping = \"0\"|{tenants}");
    let (level, text) = said(&[&config], "io");
    assert_eq!((level, &text[..]), (Level::Ok, "has the threads of 1 VM monitor -> "));
}

#[test]
fn pods_need_a_runtime_that_tells_of_them() {
    let socket = "/nowhere/nri.sock";
    let host = "[host]|cpus = \"0-3\"|housekeeping = \"0\"|";
    let config = format!("etc/rota/rota.toml: {host}[kubernetes]|socket = \"{socket}\"");
    let (level, text) = said(&[&config], "Kubernetes");
    assert_eq!(level, Level::Problem);
    assert!(
        text.starts_with("no pod is a tenant: ")
            && text.contains(socket)
            && text.contains("enable_nri = true"),
        "{text}"
    );

    let kubernetes = Kubernetes { socket: socket.into(), latency_ns: 20_000_000 };
    let refused = [("shop/db-0".to_owned(), "asks for 9 vCPUs".to_owned())].into();
    let runtime = Some("containerd v2.1.4".to_owned());
    let told = KubernetesStatus { runtime, pods: 3, matched: 2, refused, ..KubernetesStatus::default() };
    let findings = machine::pods(&kubernetes, &told);
    let shown = findings.iter().map(|finding| (finding.level, &finding.about[..], &finding.found[..]));
    let heard = "containerd v2.1.4 tells of 3 pods at /nowhere/nri.sock, and 2 have their cgroup here";
    let expected = [(Level::Ok, "Kubernetes", heard), (Level::Warning, "shop/db-0", "asks for 9 vCPUs")];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}
