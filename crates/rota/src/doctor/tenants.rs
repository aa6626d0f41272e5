//! What each tenant's `match` finds, and whether it can have what it is promised there.

use rota_model::{CpuSet, Match, Tenant};
use rota_rules::status::TenantStatus;
use rotad::{Machine, Preview};

use super::Finding;

pub fn examine(machine: &Machine, preview: &Preview) -> Vec<Finding> {
    // The system's own tenant is every task that is in no other.
    let tenants = preview.model.tenants.iter().filter(|tenant| tenant.name != Tenant::SYSTEM);
    tenants.flat_map(|tenant| tenant_findings(machine, preview, tenant)).collect()
}

fn tenant_findings(machine: &Machine, preview: &Preview, tenant: &Tenant) -> Vec<Finding> {
    let name = &tenant.name;
    let vms = preview.model.monitors_in(tenant);
    if vms > 0 {
        let s = if vms == 1 { "" } else { "s" };
        return vec![Finding::ok(name, format!("has the threads of {vms} VM monitor{s}"))];
    }
    let Some(matcher) = &tenant.matcher else {
        let (found, mend) =
            ("has no `match`, so it is only planned for", "write e.g. match = { unit = \"web.service\" }");
        return vec![Finding::warning(name, found, mend)];
    };
    let status = preview.status.tenants.iter().find(|status| status.name == *name);
    let Some(cgroup) = status.and_then(|status| status.cgroup.as_deref()) else {
        return vec![missing(preview, name, matcher)];
    };
    let threads = preview.threads.get(name).copied().unwrap_or(0);
    let mut findings = vec![found(tenant, matcher, cgroup, threads)];
    findings.extend(status.and_then(refused));
    findings.extend(cpuset(machine, preview, tenant, cgroup));
    findings
}

/// A match that finds nothing: with what the discovery has to say about it, or else with where to look.
fn missing(preview: &Preview, name: &str, matcher: &Match) -> Finding {
    let remark = preview.remarks.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    if let Some((found, mend)) = remark.and_then(|remark| remark.split_once("; ")) {
        return Finding::problem(name, format!("{matcher}: {found}"), mend);
    }
    let mend = match matcher {
        Match::Cgroup(_) => "start it, or write a path that `systemd-cgls` shows".to_owned(),
        Match::Unit(unit) => {
            format!("see `systemctl status '{unit}'`; one of a user's is matched by its cgroup")
        }
        Match::Container(_) => {
            "start it, or write an id that `docker ps --no-trunc` or `crictl ps` shows".to_owned()
        }
        Match::Pod(_) => {
            "start it, or write the uid that `kubectl get pod NAME -o jsonpath={.metadata.uid}` shows"
                .to_owned()
        }
        Match::Vm { vmm, name } if vmm == "qemu" => {
            format!(
                "start it, or write the name that is in `virsh list` or behind QEMU's -name; it is {name:?} here"
            )
        }
        Match::Vm { .. } => "start it, or write the name that is on its monitor's command line".to_owned(),
    };
    Finding::problem(name, format!("{matcher} finds nothing"), mend)
}

fn found(tenant: &Tenant, matcher: &Match, cgroup: &str, threads: usize) -> Finding {
    let name = &tenant.name;
    let Match::Vm { vmm, .. } = matcher else { return Finding::ok(name, format!("in cgroup {cgroup}")) };
    let vcpus = tenant.vcpus as usize;
    let found = format!("in cgroup {cgroup}, {threads} vCPU threads of {vcpus}");
    match threads {
        0 if vmm == "qemu" => Finding::warning(
            name,
            found,
            "start QEMU with -name guest=...,debug-threads=on; libvirt does so by itself",
        ),
        threads if threads != vcpus => {
            Finding::warning(name, found, format!("write vcpus = {}, as the VM has", threads.max(1)))
        }
        _ => Finding::ok(name, found),
    }
}

/// It is here, and there is no room for what it is promised.
fn refused(status: &TenantStatus) -> Option<Finding> {
    let reason = status.refused.as_ref()?;
    let mend = "promise less, or give it a host with more room; `rota plan` shows who has what";
    Some(Finding::warning(&status.name, format!("no room for its reservation: {reason}"), mend))
}

/// Slots on CPUs that a cpuset keeps from the tenant are lost.
fn cpuset(machine: &Machine, preview: &Preview, tenant: &Tenant, cgroup: &str) -> Option<Finding> {
    tenant.reservation()?;
    let path = machine.cgroup_root.join(cgroup).join("cpuset.cpus.effective");
    let allowed: CpuSet = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    let planned = tenant.vcpu_cpus(0, &preview.model.host.tenant_cpus());
    let lost = planned.difference(&allowed);
    (!lost.is_empty() && !allowed.is_empty()).then(|| {
        let both = planned.intersection(&allowed);
        let mend = match both.is_empty() {
            true => format!("write {planned} to its cgroup's cpuset.cpus"),
            false => format!("write affinity = \"{both}\", or {planned} to its cgroup's cpuset.cpus"),
        };
        let found = format!("its cpuset keeps it from CPUs {lost}, on which it may have slots");
        Finding::warning(&tenant.name, found, mend)
    })
}
