//! What the scheduler needs of the kernel. The kernel itself is asked at the start of `rota up`; here is what can be
//! told before.

use rotad::BPF_FS;

use super::{Finding, Root};

/// The oldest kernel that has all that the scheduler uses.
const OLDEST: (u32, u32) = (6, 16);
/// The first one with a deadline server for sched_ext's tasks.
const SERVER: (u32, u32) = (7, 0);
/// Kernels that are known not to do, and why: see docs/KERNELS.md.
const BROKEN: [(&str, &str); 1] = [("7.1.13", "its BTF breaks sched_ext's kernel functions")];

/// The name under which the kernel knows Rota's scheduler.
const OWN_NAME: &str = "rota";

pub fn examine(files: &Root) -> Vec<Finding> {
    let release = files.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let version = version(&release);
    let mut findings = vec![kernel(&release, version), scheduler(files), btf(files)];
    findings.extend(jit(files));
    findings.push(pins(files));
    findings.push(real_time(files, &release, version));
    findings
}

/// The first two numbers of a release as `6.18.44-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn kernel(release: &str, version: Option<(u32, u32)>) -> Finding {
    const ABOUT: &str = "kernel";
    let broken = BROKEN.iter().find(|(broken, _)| release.split('-').next() == Some(*broken));
    match (version, broken) {
        (_, Some((_, why))) => Finding::problem(
            ABOUT,
            format!("Linux {release}: {why}"),
            "boot another kernel; docs/KERNELS.md lists those that were tried",
        ),
        (None, None) => Finding::warning(
            ABOUT,
            format!("Linux {release:?}: its version is not known"),
            "see that it is Linux 6.16 or later",
        ),
        (Some(version), None) if version < OLDEST => {
            Finding::problem(ABOUT, format!("Linux {release} is too old"), "boot Linux 6.16 or later")
        }
        (Some(_), None) => Finding::ok(ABOUT, format!("Linux {release}")),
    }
}

/// Whether sched_ext is there, and who has it.
fn scheduler(files: &Root) -> Finding {
    const ABOUT: &str = "sched_ext";
    if !files.exists("sys/kernel/sched_ext") {
        return Finding::problem(
            ABOUT,
            "this kernel has no sched_ext",
            "boot one with CONFIG_SCHED_CLASS_EXT=y; `rota plan` and `rota sim` need none",
        );
    }
    let state = files.read("sys/kernel/sched_ext/state").unwrap_or_default();
    match (state.as_str(), files.read("sys/kernel/sched_ext/root/ops")) {
        ("disabled" | "", _) => Finding::ok(ABOUT, "no scheduler is loaded"),
        (state, Some(name)) if name == OWN_NAME => Finding::ok(ABOUT, format!("{state}: Rota has it")),
        (state, name) => Finding::problem(
            ABOUT,
            format!("{state}: the scheduler {} has it", name.as_deref().unwrap_or("of another program")),
            "stop it: systemctl stop scx.service scx_loader.service, or end its program",
        ),
    }
}

fn btf(files: &Root) -> Finding {
    match files.exists("sys/kernel/btf/vmlinux") {
        true => Finding::ok("BTF", "/sys/kernel/btf/vmlinux is there"),
        false => Finding::problem(
            "BTF",
            "/sys/kernel/btf/vmlinux is missing",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y",
        ),
    }
}

/// sched_ext's schedulers are compiled by the kernel, or refused.
fn jit(files: &Root) -> Option<Finding> {
    let enabled = files.number("proc/sys/net/core/bpf_jit_enable")?;
    Some(match enabled {
        0 => Finding::problem("BPF JIT", "it is off", "sysctl net.core.bpf_jit_enable=1"),
        _ => Finding::ok("BPF JIT", "it is on"),
    })
}

/// Where the scheduler outlives the daemon.
fn pins(files: &Root) -> Finding {
    const ABOUT: &str = "promises without a daemon";
    let mounts = files.read("proc/self/mounts").unwrap_or_default();
    match mounts.lines().any(|line| line.split(' ').nth(1) == Some(BPF_FS)) {
        true => Finding::ok(ABOUT, format!("{BPF_FS} is mounted: they hold until the next daemon comes")),
        false => Finding::warning(
            ABOUT,
            format!("{BPF_FS} is not mounted: they end with the daemon"),
            format!("mount -t bpf bpf {BPF_FS}"),
        ),
    }
}

/// What real-time tasks leave to sched_ext's.
fn real_time(files: &Root, release: &str, version: Option<(u32, u32)>) -> Finding {
    const ABOUT: &str = "real-time tasks";
    if files.number("proc/sys/kernel/sched_rt_runtime_us") == Some(-1) {
        return Finding::warning(
            ABOUT,
            "kernel.sched_rt_runtime_us is -1: the kernel holds no real-time task back",
            "sysctl kernel.sched_rt_runtime_us=950000",
        );
    }
    match version {
        Some(version) if version >= SERVER => {
            Finding::ok(ABOUT, "a deadline server leaves a twentieth of each CPU to sched_ext's tasks")
        }
        _ => Finding::warning(
            ABOUT,
            format!(
                "Linux {release} has no deadline server for sched_ext: where a real-time task has a CPU for 30 s, the \
                 kernel ends Rota"
            ),
            "boot Linux 7.0 or later, or keep real-time tasks off tenants' CPUs",
        ),
    }
}
