//! `monitor`: whose slots the threads of a VM have that are no vCPUs.

use toml::de::DeValue;

use super::value;
use crate::{Match, Monitor, Tenant, quote};

/// The VM's own, the system's, or a tenant's by name.
pub(super) fn read(value: &DeValue, indexed: bool, matcher: Option<&Match>) -> Result<Monitor, String> {
    let name = value::text(value, "\"own\", \"system\" or a tenant's name")?;
    let monitor = match name {
        "own" => return Ok(Monitor::Own),
        Tenant::SYSTEM => Monitor::System,
        // One tenant may have the threads of all VMs of a template: {i} is not required then.
        _ if indexed => Monitor::Tenant(name.to_owned()),
        _ => {
            super::tenant::matches_count(name, false)?;
            Monitor::Tenant(name.to_owned())
        }
    };
    if !matches!(matcher, Some(Match::Vm { .. })) {
        return Err(
            "is for VMs: a container has no monitor beside its threads; remove it, or write match.vm"
                .to_owned(),
        );
    }
    Ok(monitor)
}

/// Whether a tenant of this name can have the threads: it is found by its VMs alone.
pub(super) fn check(name: &str, tenants: &[Tenant]) -> Result<(), String> {
    let shown = quote(name);
    match tenants.iter().find(|tenant| tenant.name == name) {
        None => Err(format!("there is no tenant {shown}; add a [[tenant]] with this name and without match")),
        Some(Tenant { matcher: Some(matcher), .. }) => Err(format!(
            "{shown} is found by {matcher}, and has threads of its own; name a tenant without match, or write \"own\""
        )),
        Some(Tenant { matcher: None, .. }) => Ok(()),
    }
}
