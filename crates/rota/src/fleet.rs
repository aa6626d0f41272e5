//! Which hosts of a fleet could take a tenant: the daemon's own admission, asked of each.

pub mod extender;

use std::sync::LazyLock;

use rota_model::config::{ConfigErrors, Source, parse};
use rota_model::{Model, Topology};
use rota_plan::{Edits, Options, Plan, Planner};
use serde::Serialize;

use crate::plan::{Diff, Table, names};

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

/// A host of a fleet with the plan that it has: planned once, however often it is asked.
#[derive(Debug)]
pub struct Host {
    source: Source,
    free_cpus: f64,
    /// Or why its own tenants have no room.
    planned: Result<(Planner, Plan), String>,
}

impl Host {
    /// The host that a file describes.
    ///
    /// # Errors
    /// If the file is wrong.
    pub fn new(source: Source) -> Result<Host, ConfigErrors> {
        let own = parse(std::slice::from_ref(&source), &MACHINE)?;
        let free_cpus = free_cpus(&own);
        let options = Options { placement: own.host.placement };
        let planned = Planner::new(own, &options).map(|mut planner| {
            planner.restock();
            let plan = planner.plan();
            (planner, plan)
        });
        let planned = planned.map_err(|infeasible| format!("its own tenants have no room: {infeasible}"));
        Ok(Host { source, free_cpus, planned })
    }

    /// Asks it whether it could take the tenants of another file beside its own.
    pub fn ask(&self, newcomers: &Source) -> Answer {
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
    fn admit(&self, newcomers: &Source) -> Result<(Vec<String>, Option<String>), String> {
        // What is wrong now is wrong with the newcomers, on this host: a CPU that it lacks, a name that it has.
        let all = parse(&[self.source.clone(), newcomers.clone()], &MACHINE);
        let all = all.map_err(|errors| errors.to_string())?;
        let (planner, before) = self.planned.as_ref().map_err(String::clone)?;
        let mut planner = planner.clone();
        let present = planner.model().tenants.len();
        let edits: Edits =
            (0..).zip(&all.tenants).skip(present).map(|(id, tenant)| (id, Some(tenant.clone()))).collect();
        let change = planner.update(edits).map_err(|infeasible| infeasible.to_string())?;
        Ok((moved(before, &planner.plan(), planner.model()), Some(change.cpus.to_string())))
    }
}

/// The vCPUs that are on other CPUs in the second plan. The model is the second one's, and has all of the first.
fn moved(before: &Plan, after: &Plan, model: &Model) -> Vec<String> {
    let (before_names, after_names) = (names(before, model), names(after, model));
    let diff = Diff::new(&Table::new(before, model, &before_names), &Table::new(after, model, &after_names));
    diff.moved().map(str::to_owned).collect()
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
        Ok(Host::new(host.clone())?.ask(newcomers))
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
