//! Which hosts of a fleet could take a tenant: the daemon's own admission, asked of each.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{LazyLock, Mutex};

use rota_model::config::{ConfigErrors, Source, VCPUS_MAX, parse, parse_tenants, parse_tenants_of_any};
use rota_model::{Match, Model, Tenant, Topology};
use rota_plan::{Options, Planner};
use serde::Serialize;

/// Another machine than this one: what its file does not say is not known.
static MACHINE: LazyLock<Topology> = LazyLock::new(Topology::default);

/// What one host says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Answer {
    /// The file that describes it.
    pub host: String,
    /// Whether it has room.
    pub fits: bool,
    /// The vCPUs of its own tenants that would be on other CPUs.
    pub moved: Vec<String>,
    /// The CPUs whose slots would change, as a CPU list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_cpus: Option<String>,
    /// CPUs that no reservation has, without the newcomers.
    pub free_cpus: f64,
    /// Why it has no room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Tenants that many hosts are asked about: read once, unless what they say depends on the host.
#[derive(Clone, Debug)]
pub struct Newcomers {
    source: Source,
    of_any: Option<Vec<Tenant>>,
}

impl Newcomers {
    /// Those of a file. What is wrong with it each host says for itself.
    pub fn new(source: Source) -> Newcomers {
        let of_any = parse_tenants_of_any(&source).ok().flatten();
        Newcomers { source, of_any }
    }
}

/// A host of a fleet with the plan that it has: planned once, however often it is asked.
#[derive(Debug)]
pub struct Host {
    source: Source,
    host: rota_model::Host,
    /// What newcomers cannot have, since its own tenants have it.
    names: HashSet<String>,
    matches: HashSet<Match>,
    vcpus: u32,
    free_cpus: f64,
    /// Or why its own tenants have no room. A question tries an edit out and undoes it.
    planner: Result<Mutex<Planner>, String>,
}

impl Host {
    /// The host that a file describes.
    ///
    /// # Errors
    /// If the file is wrong.
    pub fn new(source: Source) -> Result<Host, ConfigErrors> {
        let own = parse(std::slice::from_ref(&source), &MACHINE)?;
        let free_cpus = free_cpus(&own);
        let names = own.tenants.iter().map(|tenant| tenant.name.clone()).collect();
        let matches = own.tenants.iter().filter_map(|tenant| tenant.matcher.clone()).collect();
        let vcpus = own.tenants.iter().map(|tenant| tenant.vcpus).sum();
        let options = Options { placement: own.host.placement };
        let host = own.host.clone();
        let planner = Planner::new(own, &options).map(|mut planner| {
            planner.restock();
            Mutex::new(planner)
        });
        let planner = planner.map_err(|infeasible| format!("its own tenants have no room: {infeasible}"));
        Ok(Host { source, host, names, matches, vcpus, free_cpus, planner })
    }

    /// Asks it whether it could take the tenants of another file beside its own.
    pub fn ask(&self, newcomers: &Newcomers) -> Answer {
        match self.admit(newcomers) {
            Ok((moved, changed_cpus)) => {
                Answer { fits: true, moved, changed_cpus, reason: None, ..self.no(None) }
            }
            Err(reason) => self.no(Some(reason)),
        }
    }

    fn no(&self, reason: Option<String>) -> Answer {
        let host = self.source.path.clone();
        Answer { host, free_cpus: self.free_cpus, reason, ..Answer::default() }
    }

    /// What moves, and which CPUs have other slots; or why there is no room.
    fn admit(&self, newcomers: &Newcomers) -> Result<(Vec<String>, Option<String>), String> {
        let newcomers = self.read(newcomers)?;
        let planner = self.planner.as_ref().map_err(String::clone)?;
        // A question that had panicked would have left its edit half undone.
        let mut planner = planner.lock().expect("no question panics");
        let outlook = planner.consider(&newcomers).map_err(|infeasible| infeasible.to_string())?;
        let tenants = &planner.model().tenants;
        let name = |(tenant, index): (u32, u32)| format!("{}/{index}", tenants[tenant as usize].name);
        Ok((outlook.moved.into_iter().map(name).collect(), Some(outlook.change.cpus.to_string())))
    }

    /// The newcomers, if they are right on this host.
    fn read<'a>(&self, newcomers: &'a Newcomers) -> Result<Cow<'a, [Tenant]>, String> {
        let own = || parse_tenants(&newcomers.source, &self.host).ok().map(Cow::Owned);
        let read = newcomers.of_any.as_deref().map(Cow::Borrowed).or_else(own);
        if let Some(tenants) = read.filter(|tenants| !self.has_any(tenants)) {
            return Ok(tenants);
        }
        // What is wrong is told beside the host's own: a name that it has, a CPU that it lacks.
        let all = parse(&[self.source.clone(), newcomers.source.clone()], &MACHINE);
        let all = all.map_err(|errors| errors.to_string())?;
        let is_new = |tenant: &Tenant| !self.names.contains(&tenant.name);
        Ok(all.tenants.into_iter().filter(is_new).collect())
    }

    /// Whether its own tenants have what a newcomer wants to have alone, or all together are more than a table holds.
    fn has_any(&self, newcomers: &[Tenant]) -> bool {
        let vcpus: u32 = newcomers.iter().map(|tenant| tenant.vcpus).sum();
        let has = |tenant: &Tenant| {
            let is_matched = tenant.matcher.as_ref().is_some_and(|matcher| self.matches.contains(matcher));
            is_matched || self.names.contains(&tenant.name)
        };
        self.vcpus + vcpus > VCPUS_MAX || newcomers.iter().any(has)
    }
}

/// What reservations and the floor leave of the CPUs for tenants. For display and for ranking.
fn free_cpus(model: &Model) -> f64 {
    let host = &model.host;
    let unreserved = 1.0 - f64::from(host.floor_ppb) / 1e9;
    let reserved = model
        .tenants
        .iter()
        .filter_map(|tenant| Some(f64::from(tenant.vcpus) * tenant.reservation()?.share.fraction()));
    host.tenant_cpus().len() as f64 * unreserved - reserved.sum::<f64>()
}

/// The best hosts first: those that fit, those that move least, those with most room.
pub fn rank(answers: &mut [Answer]) {
    answers.sort_by(|one, other| {
        let by_fit = other.fits.cmp(&one.fits);
        by_fit.then(one.moved.len().cmp(&other.moved.len())).then(other.free_cpus.total_cmp(&one.free_cpus))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    fn reserved(name: &str, more: &str) -> String {
        format!("[[tenant]]\nname = \"{name}\"\nclass = \"reserved\"\nlatency = \"20ms\"\n{more}\n")
    }

    /// A host of so many CPUs for tenants, with these.
    fn host(path: &str, cpus: u32, tenants: &[String]) -> Source {
        source(path, &format!("[host]\ncpus = \"0-{cpus}\"\nhousekeeping = \"0\"\n{}", tenants.concat()))
    }

    fn ask(host: &Source, newcomers: &Source) -> Result<Answer, ConfigErrors> {
        Ok(Host::new(host.clone())?.ask(&Newcomers::new(newcomers.clone())))
    }

    #[test]
    fn a_host_says_whether_it_has_room_and_what_would_move() {
        let newcomer = source("db.toml", &reserved("db", "share = 0.6"));
        let free = ask(&host("free", 2, &[]), &newcomer).unwrap();
        assert!(free.fits && free.moved.is_empty() && free.reason.is_none(), "{free:?}");
        assert!((free.free_cpus - 1.99).abs() < 1e-9, "{free:?}");

        let full = ask(&host("full", 1, &[reserved("web", "share = 0.5")]), &newcomer).unwrap();
        assert!(!full.fits && full.reason.as_ref().unwrap().starts_with("over-utilised"), "{full:?}");

        // One on each CPU, and both have to be on one for the newcomer to have the other.
        let two = [reserved("web-{i}", "count = 2\nshare = 0.3")];
        let large = source("db.toml", &reserved("db", "share = 0.9"));
        let spread = ask(&host("spread", 2, &two), &large).unwrap();
        assert!(spread.fits && spread.moved.len() == 1 && spread.moved[0].starts_with("web-"), "{spread:?}");
        assert_eq!(spread.changed_cpus.as_deref(), Some("1-2"));

        let mut answers = [full.clone(), spread.clone(), free.clone()];
        rank(&mut answers);
        assert_eq!(answers, [free, spread, full]);
    }

    #[test]
    fn what_a_host_lacks_is_its_reason_and_a_wrong_host_is_an_error() {
        let bound = source("db.toml", &reserved("db", "share = 0.1\naffinity = \"7\""));
        let answer = ask(&host("small", 2, &[]), &bound).unwrap();
        assert!(
            answer.reason.unwrap().starts_with("db.toml:6:12: tenant.affinity: CPUs 7 are not in host.cpus")
        );
        let twice = ask(
            &host("has", 2, &[reserved("db", "share = 0.1")]),
            &source("db.toml", &reserved("db", "share = 0.1")),
        );
        assert!(twice.unwrap().reason.unwrap().contains("is a name at has:"));
        assert!(ask(&source("wrong", "[host]\ncpu = 1"), &bound).is_err());
    }
}
