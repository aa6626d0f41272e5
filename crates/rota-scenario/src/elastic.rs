//! Tenants that may use more CPUs and fewer in turn, as a container whose cpuset is changed while it runs.

use std::rc::Rc;

use rota_sim::{CpuId, CpuMask, State};

use super::Workload;
use super::run::{INTERVALS, Session};

impl Session<'_> {
    /// One of the [`INTERVALS`] parts of the measured time begins: threads whose number of CPUs changes with it have
    /// another affinity from now on.
    pub(super) fn resize(&mut self, part: u64) {
        let host = &self.scenario.model.host;
        let all = host.tenant_cpus();
        let nr_cpus = host.topology.places.last().map_or(0, |place| place.cpu + 1);
        for Workload { tenants, cpus_in_turn, .. } in &self.scenario.workloads {
            let turn = |part: u64| (part * cpus_in_turn.len() as u64 / INTERVALS) as usize;
            let Some(&count) = cpus_in_turn.get(turn(part)) else { continue };
            if part.checked_sub(1).is_some_and(|before| turn(before) == turn(part)) {
                continue;
            }
            for &id in tenants {
                let tenant = &self.scenario.model.tenants[id as usize];
                let cpus = tenant.vcpu_cpus(0, &all);
                let some = cpus.iter().take(count as usize).map(CpuId);
                let mask = Rc::new(CpuMask::of(nr_cpus, some));
                let threads = self.threads.iter().filter(|(name, ..)| *name == tenant.name);
                for &task in threads.flat_map(|(_, tasks, _)| tasks) {
                    if self.run.machine.task(task).state != State::Dead {
                        self.run.set_affinity(task, mask.clone());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rota_model::config::Source;

    use crate::policies::POLICIES;
    use crate::{Options, Scenario};

    fn scenario(cpus_in_turn: &str) -> Result<Scenario, String> {
        let text = format!(
            "duration = \"2s\"\n[host]\ncpus = \"0-4\"\nhousekeeping = \"4\"\n[[tenant]]\nname = \"it\"\n\
             class = \"shared\"\n[[workload]]\ntenant = \"it\"\nprogram = \"hog\"\nthreads = 8\n\
             cpus_in_turn = {cpus_in_turn}\n"
        );
        Scenario::parse(&Source { path: "it.toml".to_owned(), text }).map_err(|errors| errors.to_string())
    }

    #[test]
    fn threads_use_as_many_cpus_as_it_is_their_turn_to() {
        for name in ["rota", "cfs", "eevdf"] {
            let policy = POLICIES.iter().find(|policy| policy.name == name).unwrap();
            let outcome = scenario("[1, 4]").unwrap().run(policy, Options::default(), &|_| ()).unwrap();
            let service = &outcome.tenants[0].service;
            let cpus = |parts: &[crate::Service]| {
                let received_ns: u64 = parts.iter().map(|part| part.received_ns).sum();
                received_ns as f64 / 1e9
            };
            let (few, many) = (cpus(&service[..50]), cpus(&service[50..]));
            assert!((0.95..=1.0).contains(&few) && (3.8..=4.0).contains(&many), "{name}: {few} and {many}");
        }
    }

    #[test]
    fn what_is_no_list_of_cpus_is_refused() {
        for (wrong, said) in [("[]", "is no list"), ("2", "is no list"), ("[0]", "0"), ("[5]", "5")] {
            let error = scenario(wrong).unwrap_err();
            assert!(error.contains("cpus_in_turn") && error.contains(said), "{error}");
        }
    }
}
