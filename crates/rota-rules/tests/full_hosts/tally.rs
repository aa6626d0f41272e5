//! What became of many hosts.

use std::collections::BTreeMap;
use std::fmt;

use rota_model::{CpuSet, Model};
use rota_plan::{Infeasible, Method, Plan};

use crate::oracle::Verdict;
use crate::stretches::{Pace, dp_fair, planned};

#[derive(Debug, Default)]
pub struct Tally {
    pub hosts: u64,
    /// By the oracle's verdict: planned, and refused.
    pub planned: BTreeMap<Verdict, u64>,
    pub refused: BTreeMap<Verdict, u64>,
    /// The refused ones that the oracle leaves open, by the planner's reason.
    pub open: BTreeMap<&'static str, u64>,
    /// Planned hosts by what they needed most, and by what was asked of them.
    pub by_method: BTreeMap<&'static str, u64>,
    pub by_constraint: BTreeMap<&'static str, u64>,
    /// vCPUs with several CPUs, by method and number of CPUs.
    pub vcpus: BTreeMap<(&'static str, usize), u64>,
    /// CPUs that divided vCPUs join, by method and how many are joined together.
    pub groups: BTreeMap<(&'static str, usize), u64>,
    /// Of the hosts with divided vCPUs.
    pub ours: Pace,
    pub dp_fair: Pace,
    pub dp_fair_mirrored: Pace,
}

impl Tally {
    pub fn refused(&mut self, verdict: Verdict, error: &Infeasible) {
        self.hosts += 1;
        *self.refused.entry(verdict).or_default() += 1;
        if verdict == Verdict::Open {
            *self.open.entry(kind(error)).or_default() += 1;
        }
    }

    pub fn planned(&mut self, verdict: Verdict, model: &Model, plan: &Plan) {
        self.hosts += 1;
        *self.planned.entry(verdict).or_default() += 1;
        for (constraint, is_so) in constraints(model) {
            *self.by_constraint.entry(constraint).or_default() += u64::from(is_so);
        }
        let has = |method| plan.vcpus.iter().any(|vcpu| vcpu.method == method);
        let method = match (has(Method::Clustered), has(Method::Split)) {
            (true, true) => "split and clustered",
            (true, false) => "clustered",
            (false, true) => "split",
            (false, false) => "partitioned",
        };
        *self.by_method.entry(method).or_default() += 1;
        if method == "partitioned" {
            return;
        }
        for vcpu in plan.vcpus.iter().filter(|vcpu| vcpu.cpus.len() > 1) {
            *self.vcpus.entry((name(vcpu.method), vcpu.cpus.len())).or_default() += 1;
        }
        for (method, cpus) in groups(plan) {
            *self.groups.entry((name(method), cpus.len())).or_default() += 1;
        }
        self.ours.add(Pace::of(planned(plan), plan.table_length_ns, &plan.vcpus));
        for (is_mirrored, sum) in [(false, &mut self.dp_fair), (true, &mut self.dp_fair_mirrored)] {
            let (stretches, length_ns) = dp_fair(plan, is_mirrored);
            sum.add(Pace::of(stretches, length_ns, &plan.vcpus));
        }
    }

    /// How many planned hosts had divided vCPUs.
    pub fn divided(&self) -> u64 {
        self.by_method.iter().filter(|(method, _)| **method != "partitioned").map(|(_, count)| count).sum()
    }
}

fn kind(error: &Infeasible) -> &'static str {
    match error {
        Infeasible::OverUtilised { .. } => "over-utilised",
        Infeasible::Bottleneck { .. } => "bottleneck",
        Infeasible::Crowded { .. } => "crowded",
        Infeasible::Cores { .. } => "cores",
        Infeasible::Dedicated { .. } => "dedicated",
        Infeasible::Latency { .. } => "latency",
        Infeasible::Share { .. } => "share",
        Infeasible::Slices { .. } => "slices",
        Infeasible::NoCpu { .. } => "no CPU",
        Infeasible::Scattered { .. } => "scattered",
        Infeasible::Together { .. } => "together",
    }
}

fn name(method: Method) -> &'static str {
    if method == Method::Split { "split" } else { "clustered" }
}

fn constraints(model: &Model) -> [(&'static str, bool); 9] {
    let any = |of: fn(&rota_model::Tenant) -> bool| model.tenants.iter().any(of);
    let host = &model.host;
    [
        ("affinities", any(|tenant| tenant.affinity.is_some())),
        ("cores of one's own", any(|tenant| tenant.exclusive_cores)),
        (
            "dedicated CPUs",
            any(|tenant| tenant.reservation().is_some_and(|of| of.share.ppb() == 1_000_000_000)),
        ),
        ("capped", any(|tenant| tenant.reservation().is_some_and(|of| of.capped))),
        ("housekeeping", !host.housekeeping.is_empty()),
        ("a floor", host.floor_ppb > 0),
        ("siblings", !host.topology.siblings().is_empty()),
        ("changes of task cost", host.costs.switch_ns > 0),
        ("migrations cost", host.costs.migration_ns > 0),
    ]
}

/// The sets of CPUs that divided vCPUs join.
fn groups(plan: &Plan) -> Vec<(Method, CpuSet)> {
    let mut groups: Vec<(Method, CpuSet)> = Vec::new();
    for vcpu in plan.vcpus.iter().filter(|vcpu| vcpu.cpus.len() > 1) {
        let mut set: CpuSet = vcpu.cpus.iter().copied().collect();
        groups.retain(|(_, other)| {
            let is_apart = other.intersection(&set).is_empty();
            if !is_apart {
                set = other.iter().chain(set.iter()).collect();
            }
            is_apart
        });
        groups.push((vcpu.method, set));
    }
    groups
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} hosts", self.hosts)?;
        writeln!(f, "planned, by the oracle's verdict: {:?}", self.planned)?;
        writeln!(f, "refused, by the oracle's verdict: {:?}", self.refused)?;
        writeln!(f, "refused and open, by the planner's reason: {:?}", self.open)?;
        writeln!(f, "planned, by constraint: {:?}", self.by_constraint)?;
        writeln!(f, "planned, by method: {:?}", self.by_method)?;
        writeln!(f, "divided vCPUs, by method and CPUs: {:?}", self.vcpus)?;
        writeln!(f, "joined CPUs, by method and number: {:?}", self.groups)?;
        let paces =
            [("ours", self.ours), ("DP-Fair", self.dp_fair), ("DP-Fair mirrored", self.dp_fair_mirrored)];
        let hosts = self.divided().max(1) as f64;
        for (name, pace) in paces {
            let [stretches, preemptions, migrations] =
                [pace.stretches, pace.preemptions, pace.migrations].map(|sum| sum / hosts);
            writeln!(
                f,
                "{name}, mean of the {hosts} hosts with divided vCPUs, a second: {stretches:.0} stretches, \
                 {preemptions:.0} preemptions, {migrations:.0} migrations"
            )?;
        }
        Ok(())
    }
}
