//! Which part of a tenant's total share each of its vCPUs is to have: as much as its load is of all loads.
//!
//! A vCPU loses what it leaves of its budget in a period. So a program whose threads wait for one of them uses no more
//! of the others' budgets than that one's budget allows. It does as much as the total allows if each vCPU's part is as
//! large as its load (Shan, Jia and Ding, *Rethinking multicore application scalability on big virtual machines*,
//! section IV.B: matching resource allocation and workload distribution).

use std::collections::BTreeMap;

use rota_model::{Share, TenantId};

use crate::accounts::Accounts;
use crate::life::TenantView;

/// No vCPU has more: a whole CPU would be its own.
pub const PART_MAX: Share = Share::from_ppb(950_000_000).expect("a share");
/// No vCPU has less than this part of what it would have if all had the same.
const PART_MIN: u64 = 8;
/// Who uses so many hundredths of its part uses all of it.
const USED_UP: u64 = 90;
/// Parts that differ by less than so many hundredths are as they should be.
const CLOSE: u64 = 10;

/// What a vCPU did in some time, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// It ran.
    pub running_ns: u64,
    /// It would have run, and waited for a CPU.
    pub waiting_ns: u64,
}

/// The parts of `total_ppb`, in parts per billion of a CPU, in the proportion of what vCPUs ran, within limits. They
/// come to the total, unless no vCPU may have more; all are equal if nothing ran.
pub fn parts(total_ppb: u64, running_ns: &[u64]) -> Vec<Share> {
    let count = running_ns.len() as u64;
    let Some(equal_ppb) = total_ppb.checked_div(count) else { return Vec::new() };
    let most_ppb = u64::from(PART_MAX.ppb()).max(equal_ppb);
    let least_ppb = (equal_ppb / PART_MIN).max(1);
    let mut fixed: Vec<Option<u64>> = vec![None; running_ns.len()];
    loop {
        let given: u64 = fixed.iter().flatten().sum();
        let open: u64 =
            running_ns.iter().zip(&fixed).filter(|(_, fixed)| fixed.is_none()).map(|(ns, _)| ns).sum();
        let left = total_ppb.saturating_sub(given);
        let nr_open = fixed.iter().filter(|fixed| fixed.is_none()).count() as u64;
        let part = |ns: u64| match open {
            0 => left.checked_div(nr_open).unwrap_or(0),
            _ => (u128::from(left) * u128::from(ns) / u128::from(open)) as u64,
        };
        let wanted: Vec<u64> =
            running_ns.iter().zip(&fixed).map(|(&ns, fixed)| fixed.unwrap_or_else(|| part(ns))).collect();
        // One limit at a time: who is cut leaves more for others, who then may need no floor.
        let above = (0..wanted.len()).find(|&at| fixed[at].is_none() && wanted[at] > most_ppb);
        let below = || (0..wanted.len()).find(|&at| fixed[at].is_none() && wanted[at] < least_ppb);
        match (above, below()) {
            (Some(at), _) => fixed[at] = Some(most_ppb),
            (None, Some(at)) => fixed[at] = Some(least_ppb),
            (None, None) => return rounded(wanted, total_ppb, most_ppb),
        }
    }
}

/// What rounding has left goes to the smallest parts.
fn rounded(mut parts: Vec<u64>, total_ppb: u64, most_ppb: u64) -> Vec<Share> {
    let mut left = total_ppb.saturating_sub(parts.iter().sum());
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&at| (parts[at], at));
    for at in order {
        let more = left.min(most_ppb - parts[at]).min(parts[at]);
        parts[at] += more;
        left -= more;
    }
    let share = |ppb: u64| Share::from_ppb(ppb as u32).expect("at least a part of one, and at most one CPU");
    parts.into_iter().map(share).collect()
}

/// Other parts for a tenant's vCPUs, if they would use more of the total with them. `now` are the parts that they have
/// had for `window_ns`, and each used so much of it.
///
/// - As long as nobody has used its part up, nobody needs more.
/// - If some have, and others leave some of theirs, parts follow what each ran.
/// - If all have, and one waits for longer than it runs, all get the same: who needs most cannot be seen.
///
/// What is close to what it should be stays as it is.
pub fn better(now: &[Share], loads: &[Load], window_ns: u64) -> Option<Vec<Share>> {
    let total_ppb: u64 = now.iter().map(|share| u64::from(share.ppb())).sum();
    let has_used_up = |(share, load): (&Share, &Load)| load.running_ns * 100 >= share.of(window_ns) * USED_UP;
    let used_up = now.iter().zip(loads).filter(|&pair| has_used_up(pair)).count();
    let new = if used_up == 0 {
        return None;
    } else if used_up < now.len() {
        let running: Vec<u64> = loads.iter().map(|load| load.running_ns).collect();
        parts(total_ppb, &running)
    } else if loads.iter().any(|load| load.waiting_ns > load.running_ns) {
        parts(total_ppb, &vec![1; now.len()])
    } else {
        return None;
    };
    let is_close = |(now, new): (&Share, &Share)| {
        let (now, new) = (u64::from(now.ppb()), u64::from(new.ppb()));
        now.abs_diff(new) * 100 <= now * CLOSE
    };
    (!now.iter().zip(&new).all(is_close)).then_some(new)
}

/// Parts change no sooner than this after they, or the tenant, have come: they follow a program's phases, not its
/// moments.
const PAUSE_NS: u64 = 10_000_000_000;

/// Parts with which the vCPUs did not run more than before are taken back. For so long no others are tried then, and
/// for twice as long each time that it happens again, up to the second.
const REST_NS: [u64; 2] = [300_000_000_000, 9_600_000_000_000];
/// More is at least so many hundredths of what was.
const MORE: u64 = 105;

/// What is known of a tenant whose parts are by load.
#[derive(Clone, Debug, Default)]
struct Known {
    parts: Vec<Share>,
    /// Since when it has them.
    since_ns: u64,
    /// What it had before, and how much its vCPUs ran of a window with that, in parts per billion; until it is seen
    /// whether they run more now.
    before: Option<(Vec<Share>, u64)>,
    /// No others are tried until then.
    rests_until_ns: u64,
    /// For how long the next time.
    rest_ns: u64,
}

/// Parts by load, for all tenants that ask for it.
#[derive(Clone, Debug, Default)]
pub struct Matching {
    known: BTreeMap<TenantId, Known>,
}

impl Matching {
    /// The tenants that are to have other parts, and which, by the accounts up to now.
    pub fn update<'a>(
        &mut self,
        now_ns: u64,
        accounts: &Accounts,
        tenants: impl Iterator<Item = TenantView<'a>>,
    ) -> Vec<(TenantId, Vec<Share>)> {
        let mut seen = BTreeMap::new();
        let mut found = Vec::new();
        for view in tenants.filter(|view| view.tenant.team.matching) {
            let Some(promised) = view.promised else { continue };
            let parts = match view.parts {
                [] => vec![promised.share; view.tenant.vcpus as usize],
                parts => parts.to_vec(),
            };
            let mut known = self.known.remove(&view.id).unwrap_or_default();
            if known.parts != parts {
                (known.parts, known.since_ns) = (parts, now_ns);
            }
            let is_seen = now_ns >= known.since_ns + PAUSE_NS && accounts.since_ns() >= known.since_ns;
            // Others are on their way, if what it wishes for is not what it has.
            if is_seen && view.tenant.team.parts == view.parts {
                let loads = accounts.loads(view.id, view.tenant.vcpus);
                let next = loads.and_then(|loads| known.next(now_ns, &loads, accounts.window_ns()));
                found.extend(next.map(|parts| (view.id, parts)));
            }
            seen.insert(view.id, known);
        }
        self.known = seen;
        found
    }
}

impl Known {
    /// Other parts, or those from before.
    fn next(&mut self, now_ns: u64, loads: &[Load], window_ns: u64) -> Option<Vec<Share>> {
        let ran_ns: u64 = loads.iter().map(|load| load.running_ns).sum();
        let ran_ppb = (u128::from(ran_ns) * 1_000_000_000 / u128::from(window_ns.max(1))) as u64;
        if let Some((parts, before_ppb)) = self.before.take() {
            if u128::from(ran_ppb) * 100 < u128::from(before_ppb) * u128::from(MORE) {
                self.rest_ns = (2 * self.rest_ns).clamp(REST_NS[0], REST_NS[1]);
                self.rests_until_ns = now_ns + self.rest_ns;
                return Some(parts);
            }
            self.rest_ns = 0;
        }
        let better = better(&self.parts, loads, window_ns).filter(|_| now_ns >= self.rests_until_ns)?;
        self.before = Some((self.parts.clone(), ran_ppb));
        Some(better)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_NS: u64 = 12_000_000;

    fn shares(parts: &[f64]) -> Vec<Share> {
        parts.iter().map(|&part| Share::from_fraction(part).unwrap()).collect()
    }

    fn loads(running_and_waiting: &[(u64, u64)]) -> Vec<Load> {
        let load =
            |&(running, waiting)| Load { running_ns: running * 1_000_000, waiting_ns: waiting * 1_000_000 };
        running_and_waiting.iter().map(load).collect()
    }

    /// Figure 6 (B): of 6 units each, one vCPU uses 6 and the others 2. It is to have 12, the others 4.
    #[test]
    fn the_papers_example() {
        let found = parts(1_800_000_000, &[6, 2, 2, 2]);
        assert_eq!(found, shares(&[0.9, 0.3, 0.3, 0.3]));
        let six_of_twelve = shares(&[0.5; 4]);
        let uneven = loads(&[(6, 6), (2, 0), (2, 0), (2, 0)]);
        let found = better(&six_of_twelve, &uneven, WINDOW_NS).unwrap();
        assert_eq!(found[0], PART_MAX, "a whole CPU would be its own");
        assert_eq!(found.iter().map(|share| share.ppb()).sum::<u32>(), 2_000_000_000);
        let matched = loads(&[(11, 0), (4, 0), (4, 0), (4, 0)]);
        assert_eq!(better(&found, &matched, WINDOW_NS), None);
    }

    /// What did not help is taken back, and is not tried again soon.
    #[test]
    fn parts_that_do_not_help_are_taken_back() {
        let equal = shares(&[0.45; 4]);
        let uneven = loads(&[(6, 6), (2, 0), (2, 0), (2, 0)]);
        let mut known = Known { parts: equal.clone(), ..Known::default() };
        let found = known.next(0, &uneven, WINDOW_NS).unwrap();
        assert_eq!(found, shares(&[0.9, 0.3, 0.3, 0.3]));
        known.parts = found;
        assert_eq!(known.next(1, &loads(&[(3, 0), (3, 0), (3, 0), (3, 0)]), WINDOW_NS), Some(equal.clone()));
        known.parts = equal;
        assert_eq!(known.next(REST_NS[0], &uneven, WINDOW_NS), None);
        let found = known.next(REST_NS[0] + 1, &uneven, WINDOW_NS).unwrap();
        known.parts = found;
        let more = loads(&[(10, 1), (3, 0), (3, 0), (3, 0)]);
        assert_eq!(known.next(REST_NS[0] + 2, &more, WINDOW_NS), None, "they are kept");
        assert_eq!((known.before, known.rest_ns), (None, 0));
    }

    #[test]
    fn nobody_is_left_without() {
        let found = parts(2_000_000_000, &[100, 0, 0, 0]);
        assert_eq!(found, shares(&[0.95, 0.35, 0.35, 0.35]));
        let found = parts(400_000_000, &[100, 0, 0, 0]);
        assert_eq!(found, shares(&[0.3625, 0.0125, 0.0125, 0.0125]));
        assert_eq!(parts(300_000_000, &[0; 3]), shares(&[0.1; 3]));
        assert!(parts(100, &[]).is_empty());
        for total in [7, 999_999_999, 3_800_000_000, 1_234_567_891] {
            let sum: u64 = parts(total, &[7, 3, 5, 1]).iter().map(|share| u64::from(share.ppb())).sum();
            assert_eq!(sum, total);
        }
        // More than the limit allows is not given away: each has what it had.
        assert_eq!(parts(3_960_000_000, &[7, 3, 5, 1]), shares(&[0.99; 4]));
    }

    #[test]
    fn parts_stay_while_nobody_needs_more() {
        let now = shares(&[0.5; 2]);
        assert_eq!(better(&now, &loads(&[(5, 0), (1, 0)]), WINDOW_NS), None);
        assert_eq!(better(&now, &loads(&[(6, 6), (6, 6)]), WINDOW_NS), None, "they are equal");
        assert_eq!(better(&now, &loads(&[(6, 1), (5, 1)]), WINDOW_NS), None, "they are close");
        assert!(better(&now, &loads(&[(6, 1), (3, 1)]), WINDOW_NS).is_some());
    }

    /// Four that compute, after one of them had most of the work.
    #[test]
    fn parts_become_equal_again_if_all_want_more() {
        let now = shares(&[0.9, 0.3, 0.3, 0.3]);
        let found = better(&now, &loads(&[(11, 1), (4, 8), (4, 8), (4, 8)]), WINDOW_NS);
        assert_eq!(found, Some(shares(&[0.45; 4])));
    }
}
