//! What else has CPUs: isolation, the system's tasks, interrupts; and what the daemon and VMs need of a machine.

use std::path::Path;

use rota_host::topology;
use rota_model::config::Kubernetes;
use rota_model::{CpuSet, Interference, Match, Model};
use rota_rules::status::KubernetesStatus;
use rotad::Machine;

use super::{Finding, Root};

/// Whether cgroups are all of version 2. One of version 1 that has the CPU controller hides tenants from Rota.
pub fn cgroups(files: &Root, machine: &Machine) -> Finding {
    const ABOUT: &str = "cgroup v2";
    let mounts = files.read("proc/self/mounts").unwrap_or_default();
    let is_first_version = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        fields.get(2) == Some(&"cgroup")
            && fields.get(3).is_some_and(|with| with.split(',').any(|it| it == "cpu"))
    };
    let root = machine.cgroup_root.strip_prefix(files.0).unwrap_or(&machine.cgroup_root).display();
    match mounts.lines().any(is_first_version) {
        true => Finding::warning(
            ABOUT,
            format!(
                "at /{root}; version 1 has the CPU controller, and tenants that are only there are not found"
            ),
            "boot with systemd.unified_cgroup_hierarchy=1",
        ),
        false => Finding::ok(ABOUT, format!("at /{root}")),
    }
}

/// `model` is the configuration, if it is right.
pub fn examine(files: &Root, machine: &Machine, model: Option<&Model>) -> Vec<Finding> {
    let mut findings = vec![watches(files, &machine.cgroup_root), isolated(machine), counters(files, model)];
    if let Some(model) = model {
        findings.extend([kvm(files, model), housekeeping(model)]);
        findings.extend(interrupts(files, model));
    }
    findings
}

/// The daemon watches every cgroup, and inotify may be limited to fewer.
fn watches(files: &Root, cgroup_root: &Path) -> Finding {
    const ABOUT: &str = "inotify";
    let cgroups = folders(cgroup_root);
    let Some(limit) = files.number("proc/sys/fs/inotify/max_user_watches") else {
        return Finding::warning(
            ABOUT,
            "its limit is not known",
            "see that the kernel has CONFIG_INOTIFY_USER=y",
        );
    };
    let found = format!("{cgroups} cgroups are to be watched, and fs.inotify.max_user_watches is {limit}");
    let more = (2 * cgroups).next_power_of_two().max(65_536);
    let mend = format!("sysctl fs.inotify.max_user_watches={more}");
    match limit {
        limit if limit <= cgroups as i64 => Finding::problem(ABOUT, found, mend),
        limit if limit <= 2 * cgroups as i64 => Finding::warning(ABOUT, found, mend),
        _ => Finding::ok(ABOUT, found),
    }
}

/// How many folders there are at and below this one.
fn folders(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    1 + below.map(|entry| folders(&entry.path())).sum::<usize>()
}

/// CPUs that `isolcpus` or a cpuset keeps to itself. A configuration that names one of the first is refused.
fn isolated(machine: &Machine) -> Finding {
    const ABOUT: &str = "isolated CPUs";
    let isolated = topology::machine(&machine.system).map(|machine| machine.isolated).unwrap_or_default();
    let partition =
        std::fs::read_to_string(machine.cgroup_root.join("cpuset.cpus.isolated")).unwrap_or_default();
    let partition: CpuSet = partition.trim().parse().unwrap_or_default();
    match (isolated.is_empty(), partition.is_empty()) {
        (true, true) => Finding::ok(ABOUT, "none"),
        (false, _) => Finding::warning(
            ABOUT,
            format!(
                "CPUs {isolated} are isolated: no thread comes there by itself, and Rota leaves them out"
            ),
            "boot without them in isolcpus if tenants are to have them",
        ),
        (true, false) => Finding::warning(
            ABOUT,
            format!(
                "CPUs {partition} are in an isolated partition of a cpuset, and other tenants cannot run there"
            ),
            "leave them out of host.cpus, or write member to that cgroup's cpuset.cpus.partition",
        ),
    }
}

fn housekeeping(model: &Model) -> Finding {
    const ABOUT: &str = "housekeeping";
    match &model.host.housekeeping {
        none if none.is_empty() => {
            Finding::ok(ABOUT, "no CPUs are kept for the system; its tasks are a tenant on each CPU")
        }
        cpus => Finding::ok(ABOUT, format!("CPUs {cpus} are kept for the system")),
    }
}

/// Where CPUs are kept for the system, interrupts belong there.
fn interrupts(files: &Root, model: &Model) -> Option<Finding> {
    const ABOUT: &str = "interrupts";
    let (housekeeping, tenants) = (&model.host.housekeeping, model.host.tenant_cpus());
    if housekeeping.is_empty() {
        return None;
    }
    let entries = std::fs::read_dir(files.path("proc/irq")).ok()?.flatten();
    let cpus = entries.filter_map(|entry| {
        let list = std::fs::read_to_string(entry.path().join("effective_affinity_list")).ok()?;
        list.trim().parse::<CpuSet>().ok()
    });
    let away = cpus.filter(|cpus| !cpus.intersection(&tenants).is_empty()).count();
    Some(match away {
        0 => Finding::ok(ABOUT, "none comes to a tenant's CPU"),
        _ => Finding::warning(
            ABOUT,
            format!("{away} come to tenants' CPUs ({tenants}), and their time is lost there"),
            format!(
                "write {housekeeping} to /proc/irq/*/smp_affinity_list, where the kernel lets you, and \
                 IRQBALANCE_BANNED_CPULIST={tenants} for irqbalance"
            ),
        ),
    })
}

/// Hardware counters. Rota runs without; what `perf` says beside it needs them, and so does
/// `interference = "measured"`, unless resctrl counts bandwidth.
fn counters(files: &Root, model: Option<&Model>) -> Finding {
    const ABOUT: &str = "PMU";
    let is_there =
        ["cpu", "cpu_core"].iter().any(|pmu| files.exists(&format!("sys/bus/event_source/devices/{pmu}")));
    let features = files.read("sys/fs/resctrl/info/L3_MON/mon_features").unwrap_or_default();
    let has_bandwidth = features.lines().any(|feature| feature == "mbm_total_bytes");
    let is_measured = model.is_some_and(|model| model.host.interference == Interference::Measured);
    match (is_there, has_bandwidth, is_measured) {
        (true, ..) => Finding::ok(ABOUT, "hardware counters are there"),
        (false, _, false) => Finding::ok(ABOUT, "no hardware counters; none is needed"),
        (false, true, true) => Finding::ok(
            ABOUT,
            "no hardware counters; resctrl counts memory bandwidth instead, which is tested on files only",
        ),
        (false, false, true) => Finding::warning(
            ABOUT,
            "no hardware counters, and no bandwidth in /sys/fs/resctrl: vCPUs change places at random",
            "mount -t resctrl resctrl /sys/fs/resctrl, if /proc/cpuinfo has cqm_mbm_total; or write \
             interference = \"random\"",
        ),
    }
}

fn kvm(files: &Root, model: &Model) -> Finding {
    const ABOUT: &str = "KVM";
    let is_vm = |matcher: &Match| matches!(matcher, Match::Vm { .. });
    let has_vms = model.tenants.iter().filter_map(|tenant| tenant.matcher.as_ref()).any(is_vm);
    match (files.exists("dev/kvm"), has_vms) {
        (true, _) => Finding::ok(ABOUT, "/dev/kvm is there"),
        (false, false) => Finding::ok(ABOUT, "no /dev/kvm; no tenant is matched as a VM"),
        (false, true) => Finding::warning(
            ABOUT,
            "no /dev/kvm: VMs are emulated here",
            "modprobe kvm_intel or kvm_amd, and turn virtualisation on in the firmware",
        ),
    }
}

/// Whether a container runtime tells of its pods, and which of them are not served as they ask.
pub fn pods(kubernetes: &Kubernetes, told: &KubernetesStatus) -> Vec<Finding> {
    const ABOUT: &str = "Kubernetes";
    if let Some(lost) = &told.lost {
        return vec![Finding::problem(
            ABOUT,
            format!("no pod is a tenant: {lost}"),
            "turn NRI on: disable = false under plugins.'io.containerd.nri.v1.nri' in containerd's configuration, or \
             enable_nri = true under crio.nri in CRI-O's; or write kubernetes.socket",
        )];
    }
    let KubernetesStatus { runtime, pods, matched, refused, .. } = told;
    let (runtime, socket) = (runtime.as_deref().unwrap_or_default(), kubernetes.socket.display());
    let heard = format!("{runtime} tells of {pods} pods at {socket}, and {matched} have their cgroup here");
    let refused = refused.iter().map(|(pod, why)| {
        Finding::warning(pod, why.clone(), "correct the pod's annotations; docs/KUBERNETES.md lists them")
    });
    std::iter::once(Finding::ok(ABOUT, heard)).chain(refused).collect()
}
