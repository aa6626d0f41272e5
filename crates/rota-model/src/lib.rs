//! What Rota schedules and where: tenants with their reservations, the host with its topology, and the configuration
//! that describes both.
//!
//! **Invariant:** no I/O and no clock in this crate. Text comes in, values or located errors go out.

mod cause;
pub mod config;
mod counts;
mod cpuset;
pub mod histogram;
mod pod;
mod share;
mod team;
mod tenant;
mod topology;

pub use cause::Cause;
pub use counts::Counts;
pub use cpuset::{CpuSet, CpuSetError};
pub use pod::{Pod, Qos};
pub use share::Share;
pub use team::{Monitor, Team};
pub use tenant::{Cgroup, Class, Match, Reservation, Tenant, TenantId};
pub use topology::{Costs, CpuPlace, Host, Interference, Placement, Spare, Topology};

/// Tenants and the host that carries them: all that the planner is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The machine to plan for, which need not be this one.
    pub host: Host,
    /// Every tenant, templates expanded. A tenant's place in this list is its [`TenantId`].
    pub tenants: Vec<Tenant>,
}

impl Model {
    /// The system's own tenant, if the host keeps no housekeeping CPUs: reserved, uncapped, one vCPU a CPU, pinned to
    /// it. The system's user tasks are served there, since a small host cannot give whole CPUs away.
    pub fn system(&self) -> Option<TenantId> {
        let id = self.tenants.iter().position(|tenant| tenant.name == Tenant::SYSTEM)?;
        TenantId::try_from(id).ok()
    }

    /// The tenant that has the threads of this VM's monitor, if that is another one and not the system's.
    pub fn monitor_of(&self, vm: &Tenant) -> Option<&Tenant> {
        let Monitor::Tenant(name) = &vm.team.monitor else { return None };
        self.tenants.iter().find(|tenant| tenant.name == *name)
    }

    /// How many VMs' monitors have their threads in this tenant.
    pub fn monitors_in(&self, tenant: &Tenant) -> usize {
        self.tenants.iter().filter(|vm| vm.team.monitor.name() == Some(&tenant.name)).count()
    }

    /// The model without these CPUs, some of its host's. A host that loses all of its housekeeping CPUs gets the
    /// system's own tenant, as one without any.
    pub fn without(mut self, gone: &CpuSet) -> Model {
        let host = &mut self.host;
        let kept = host.housekeeping.difference(gone);
        let is_kept = host.housekeeping.is_empty() || !kept.is_empty();
        (host.cpus, host.housekeeping) = (host.cpus.difference(gone), kept);
        host.topology.places.retain(|place| !gone.contains(place.cpu));
        for tenant in &mut self.tenants {
            tenant.affinity = tenant.affinity.take().map(|cpus| cpus.difference(gone));
            if let (true, Some(cpus)) = (tenant.pinned, &tenant.affinity) {
                tenant.vcpus = cpus.len() as u32; // CpuSet::LIMIT at most
            }
        }
        if !is_kept {
            self.tenants.insert(0, Tenant::system(Reservation::SYSTEM, &self.host.cpus));
        }
        self
    }
}

/// A text from outside in quotes, escaped and short enough for an error message.
pub fn quote(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A text for a log or a terminal: what would steer one, or cannot be seen, is written as an escape. Names of cgroups,
/// programs and files are whatever a user likes.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\'' | '"' | '\\' => shown.push(letter),
            _ => shown.extend(letter.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Machine, Source, parse_here};

    #[test]
    fn what_would_steer_a_terminal_is_shown_as_an_escape() {
        assert_eq!(printable("web: 'a\\x2d' \"ü\""), "web: 'a\\x2d' \"ü\"");
        assert_eq!(printable("\u{1b}[31mred\r\n\t\u{202e}\u{9b}"), "\\u{1b}[31mred\\r\\n\\t\\u{202e}\\u{9b}");
    }

    fn here(text: &str, machine: &Machine) -> Result<(Model, CpuSet), String> {
        let source = Source { path: "rota.toml".to_owned(), text: text.to_owned() };
        let here = parse_here(&[source], machine).map_err(|errors| errors.to_string())?;
        Ok((here.model, here.offline))
    }

    /// CPUs 0 to 3 are two cores, of which CPU 3 is offline; 4 and 5 are isolated.
    fn machine() -> Machine {
        let cpus = |list: &str| list.parse::<CpuSet>().unwrap();
        let mut topology = Topology::flat(&cpus("0-2,4-5"));
        topology.places[1].core = 0;
        topology.places[1].node = 1;
        Machine { topology, offline: cpus("3"), isolated: cpus("4-5") }
    }

    #[test]
    fn what_is_offline_is_left_out_of_a_model() {
        let tenants = [("a", "affinity = \"2-3\""), ("b", "affinity = \"3\""), ("c", "node = 1")].map(|(name, at)| {
            format!("[[tenant]]\nname = \"{name}\"\nclass = \"reserved\"\nshare = 0.1\nlatency = \"20ms\"\n{at}\n")
        });
        let text = format!("[host]\ncpus = \"0-3\"\n{}", tenants.concat());
        let (model, offline) = here(&text, &machine()).unwrap();
        assert_eq!((offline.to_string(), model.host.cpus.to_string()), ("3".to_owned(), "0-2".to_owned()));
        assert_eq!(model.host.topology.siblings().len(), 1, "it is this machine");
        let cpus: Vec<(u32, String)> =
            model.tenants.iter().map(|t| (t.vcpus, t.affinity.as_ref().unwrap().to_string())).collect();
        let expected =
            [(3, "0-2"), (1, "2"), (1, ""), (1, "1")].map(|(vcpus, cpus)| (vcpus, cpus.to_owned()));
        assert_eq!(cpus, expected, "the system's, a's, b's, c's");

        let (model, offline) = here("", &machine()).unwrap();
        assert_eq!((offline.len(), model.host.cpus.to_string()), (0, "0-2".to_owned()));
    }

    #[test]
    fn a_host_whose_housekeeping_is_offline_has_the_systems_tenant() {
        let (model, _) = here("[host]\ncpus = \"0-3\"\nhousekeeping = \"3\"\n", &machine()).unwrap();
        assert_eq!((model.system(), model.tenants[0].vcpus), (Some(0), 3));
        assert!(model.host.housekeeping.is_empty());
        let (model, _) = here("[host]\ncpus = \"0-3\"\nhousekeeping = \"2-3\"\n", &machine()).unwrap();
        assert_eq!((model.system(), model.host.housekeeping.to_string()), (None, "2".to_owned()));
    }

    #[test]
    fn cpus_that_cannot_be_used_here_are_refused_with_place_and_mend() {
        for (cpus, error) in [
            ("0-9", "CPUs 6-9 are not on this machine, which has 0-5; leave them out, or"),
            ("0-4", "CPUs 4 are isolated, and no thread comes there by itself; leave them out, or"),
            ("3", "CPUs 3 are offline, which leaves tenants none; bring one online, or write others"),
        ] {
            let said = here(&format!("[host]\ncpus = \"{cpus}\"\n"), &machine()).unwrap_err();
            assert!(said.starts_with(&format!("rota.toml:2:8: host.cpus: {error}")), "{said}");
        }
    }
}
