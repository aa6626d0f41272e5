//! `rota up --dry-run`: the daemon's own discovery and rules, and nothing that carries them out.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::anyhow;
use rota_model::Tenant;
use rota_rules::status::{State, TenantStatus};
use rotad::{Machine, Preview, preview};

use super::super::status::{columns, ns, pods, state};
use super::super::{Failure, print};

/// Says who would be matched, planned and refused. Fails if a tenant is not found, or has no room.
pub fn run(config: &Path, vm_users: Vec<RangeInclusive<u32>>) -> Result<(), Failure> {
    let machine = Machine::under(Path::new("/"))?;
    let preview = preview(&machine, config, vm_users).map_err(super::failure)?;
    print(text(&preview).as_bytes())?;
    verdict(&preview)
}

const HEADINGS: [&str; 6] = ["TENANT", "CLASS", "STATE", "CGROUP", "PROMISED", "BOUND"];

fn text(preview: &Preview) -> String {
    let rows: Vec<_> = preview.status.tenants.iter().map(row).collect();
    let mut text = format!("{}\n", columns(HEADINGS, 4, &rows));
    if let Some(kubernetes) = &preview.status.kubernetes {
        pods(kubernetes, &mut text);
        text.push('\n');
    }
    text += "`rota up` would log:\n";
    for line in preview.remarks.iter().chain(&preview.log) {
        text += &format!("  {line}\n");
    }
    text += "Nothing was started or changed.\n";
    text
}

fn row(tenant: &TenantStatus) -> [String; 6] {
    let dash = || "-".to_owned();
    [
        tenant.name.clone(),
        tenant.class.clone(),
        state(tenant.state).to_owned(),
        tenant.cgroup.clone().unwrap_or_else(dash),
        tenant.promised.map_or_else(dash, |share| format!("{share:.3}")),
        tenant.bound_ns.map_or_else(dash, ns),
    ]
}

fn verdict(preview: &Preview) -> Result<(), Failure> {
    let names = |is: &dyn Fn(&&TenantStatus) -> bool| -> Vec<&str> {
        preview.status.tenants.iter().filter(is).map(|tenant| tenant.name.as_str()).collect()
    };
    let refused = names(&|tenant| tenant.refused.is_some());
    if !refused.is_empty() {
        return Err(Failure::Infeasible(anyhow!("no room for {}", refused.join(", "))));
    }
    let kubernetes = preview.status.kubernetes.as_ref();
    if let Some(lost) = kubernetes.and_then(|kubernetes| kubernetes.lost.as_ref()) {
        return Err(Failure::Failed(anyhow!("pods are not heard of: {lost}")));
    }
    let matched = |name: &str| {
        let tenant = preview.model.tenants.iter().find(|tenant: &&Tenant| tenant.name == name);
        tenant.is_some_and(|tenant| tenant.matcher.is_some())
    };
    let missing = names(&|tenant| tenant.state == State::Absent && matched(&tenant.name));
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(anyhow!(
            "not found: {}; `rota doctor` says where to look",
            missing.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const CONFIG: &str = "\
[host]
cpus = \"0-1\"
interference = \"random\"
housekeeping = \"0\"

[[tenant]]
name = \"web-{i}\"
count = 3
class = \"reserved\"
share = 0.4
latency = \"20ms\"
match = { cgroup = \"web-{i}\" }

[[tenant]]
name = \"make\"
class = \"shared\"
match = { unit = \"make.service\" }
";

    /// What would be on a machine of two CPUs that has these cgroups.
    fn of(cgroups: &[&str]) -> Preview {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for cgroup in cgroups {
            fs::create_dir_all(path("cgroup").join(cgroup)).unwrap();
        }
        fs::create_dir_all(path("system/cpu")).unwrap();
        fs::write(path("system/cpu/online"), "0-1\n").unwrap();
        fs::write(path("rota.toml"), CONFIG).unwrap();
        let machine = Machine { cgroup_root: path("cgroup"), proc: path("proc"), system: path("system") };
        preview(&machine, &path("rota.toml"), Vec::new()).unwrap()
    }

    #[test]
    fn who_would_be_matched_planned_and_refused_is_shown() {
        let shown = text(&of(&["web-0", "web-1", "web-2"]));
        let expected = "\
TENANT  CLASS     STATE    CGROUP  PROMISED     BOUND
web-0   reserved  served   web-0      0.400  20.00 ms
web-1   reserved  served   web-1      0.400  20.00 ms
web-2   reserved  refused  web-2          -         -
make    shared    absent   -              -         -

`rota up` would log:
";
        assert!(shown.starts_with(expected), "{shown}");
        for line in [
            "web-2: does not fit, served as background: ",
            "table 1 in force: 2 vCPUs of 2 tenants on 1 CPUs",
        ] {
            assert!(shown.contains(&format!("\n  {line}")), "{shown}");
        }
    }

    #[test]
    fn the_exit_code_says_whether_all_are_found_and_have_room() {
        let code = |cgroups: &[&str]| match verdict(&of(cgroups)) {
            Ok(()) => 0,
            Err(Failure::Failed(_)) => 1,
            Err(Failure::Usage(_)) => 2,
            Err(Failure::Infeasible(_)) => 3,
        };
        assert_eq!(code(&["web-0", "web-1", "web-2", "system.slice/make.service"]), 3);
        assert_eq!(code(&["web-0", "web-1", "system.slice/make.service"]), 1);
    }
}
