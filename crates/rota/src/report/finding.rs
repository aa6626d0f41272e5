//! What the results show, in a few words, computed from them and from nothing else.

use rota_lab::scenario::result::TenantResult;

use super::format;
use super::run::{Contestant, Run};

/// How one policy treated the tenants that have a promise.
pub struct Summary<'a> {
    /// Which policy.
    pub policy: Contestant,
    /// Tenants with a reservation.
    pub reserved: usize,
    /// How many of them never wanted to run: no promise to them was put to the test.
    pub idle: usize,
    /// Of the others the tenant that waited longest measured by its own bound, its longest blackout and that bound, in
    /// ns.
    pub worst: Option<(&'a str, u64, u64)>,
    /// Tenants with a blackout longer than their bound.
    pub late: Vec<&'a str>,
    /// Tenants that wanted all they could get and got less than their share.
    pub short: Vec<&'a str>,
    /// The longest that the machine itself took, in ns.
    pub taken_ns: u64,
    /// Whether the run shows nothing.
    pub is_void: bool,
}

/// Whether a policy kept what the reservations promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No blackout beyond its bound, no share missed.
    Kept,
    /// Blackouts beyond their bound, none by more than the machine itself takes.
    KeptButForTheMachine,
    /// Beyond that.
    Broken,
    /// What no scheduler may do has happened.
    Void,
    /// No tenant with a reservation wanted to run.
    Untested,
    /// There was no reservation to keep.
    NothingPromised,
}

impl<'a> Summary<'a> {
    /// What a result comes to.
    pub fn of(run: &'a Run) -> Summary<'a> {
        let tenants = run.tenants.iter().map(|tenant| &tenant.seen);
        let reserved: Vec<&TenantResult> =
            tenants.filter(|tenant| tenant.latency_bound_ns.is_some()).collect();
        let bounds = reserved.iter().filter(|tenant| !tenant.is_idle()).filter_map(|tenant| {
            Some((tenant.name.as_str(), tenant.blackouts.longest_ns, tenant.latency_bound_ns?))
        });
        let names = |which: &dyn Fn(&TenantResult) -> bool| {
            reserved.iter().filter(|tenant| which(tenant)).map(|tenant| tenant.name.as_str()).collect()
        };
        Summary {
            policy: run.policy,
            reserved: reserved.len(),
            idle: reserved.iter().filter(|tenant| tenant.is_idle()).count(),
            worst: bounds.max_by(|a, b| times_bound(a.1, a.2).total_cmp(&times_bound(b.1, b.2))),
            late: names(&|tenant| tenant.is_late()),
            short: names(&|tenant| tenant.is_short(run.window_ns, run.length_ns)),
            taken_ns: run.taken_ns,
            is_void: run.is_void,
        }
    }

    /// Whether the policy kept the promises.
    pub fn verdict(&self) -> Verdict {
        if self.is_void {
            return Verdict::Void;
        }
        let Some((_, longest_ns, bound_ns)) = self.worst else {
            return if self.reserved > 0 { Verdict::Untested } else { Verdict::NothingPromised };
        };
        match (self.short.is_empty(), self.late.is_empty()) {
            (true, true) => Verdict::Kept,
            (true, false) if longest_ns <= bound_ns.saturating_add(self.taken_ns) => {
                Verdict::KeptButForTheMachine
            }
            _ => Verdict::Broken,
        }
    }

    /// The longest blackout as a multiple of its bound.
    pub fn times_bound(&self) -> Option<f64> {
        self.worst.map(|(_, longest_ns, bound_ns)| times_bound(longest_ns, bound_ns))
    }
}

fn times_bound(longest_ns: u64, bound_ns: u64) -> f64 {
    longest_ns as f64 / bound_ns.max(1) as f64
}

/// The main finding, in one sentence.
pub fn headline(summaries: &[Summary]) -> String {
    let Some(rota) = summaries.iter().find(|summary| summary.policy.is_rota()) else {
        return "These runs show other schedulers only".to_owned();
    };
    if rota.is_void {
        return "Under Rota something happened that no scheduler may do, so nothing here is a promise kept"
            .to_owned();
    }
    let Some((tenant, longest_ns, bound_ns)) = rota.worst else {
        return match rota.reserved {
            0 => "No tenant of this scenario has a reservation",
            _ => "No tenant with a reservation wanted to run, so no promise was put to the test",
        }
        .to_owned();
    };
    let (longest, bound) = (format::time(longest_ns), format::round_time(bound_ns));
    match rota.verdict() {
        Verdict::Kept => {
            let wait = match longest_ns {
                0 => "no tenant with a reservation waited at all".to_owned(),
                _ => format!("the longest wait was {longest}, the bound is {bound}"),
            };
            let idle = match rota.idle {
                0 => String::new(),
                idle => format!("; {idle} of {} tenants never wanted to run", rota.reserved),
            };
            format!("Rota kept every promise: {wait}{idle}")
        }
        Verdict::KeptButForTheMachine => format!(
            "Under Rota the longest wait was {longest}, against a bound of {bound} and {} taken by the machine itself",
            format::time(rota.taken_ns)
        ),
        Verdict::Broken if rota.late.is_empty() => {
            format!("Under Rota {} of {} tenants missed their share", rota.short.len(), rota.reserved)
        }
        Verdict::Broken => format!(
            "Under Rota {} of {} tenants waited beyond their bound: {tenant} {longest} instead of {bound}",
            rota.late.len(),
            rota.reserved
        ),
        Verdict::Void | Verdict::Untested | Verdict::NothingPromised => String::new(),
    }
}

/// What the other policies did meanwhile, in one sentence; empty without them.
pub fn comparison(summaries: &[Summary]) -> String {
    let others = summaries.iter().filter(|summary| !summary.policy.is_rota());
    let parts: Vec<String> = others
        .filter_map(|summary| {
            let (_, longest_ns, _) = summary.worst?;
            let times = summary.times_bound().filter(|times| *times > 1.0);
            let beside = times.map_or("within the bound".to_owned(), |times| {
                format!("{} times the bound", format::ratio(times))
            });
            Some(format!("up to {} ({beside}) with {}", format::time(longest_ns), summary.policy.label))
        })
        .collect();
    if parts.is_empty() { String::new() } else { format!("The same tenants waited {}.", parts.join(" and ")) }
}
