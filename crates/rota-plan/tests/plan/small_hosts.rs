//! All small hosts: up to 3 CPUs and 5 vCPUs with shares of twelfths and one of three latencies, against what a fluid
//! could do.

use rota_model::{Model, Share, Tenant};
use rota_plan::{Infeasible, Options, Placement, plan};

use crate::checker::check;
use crate::fluid::{Verdict, verdict};
use crate::models::{MS, host, model, reserved};

const LATENCIES: [u64; 3] = [3 * MS, 20 * MS, 50 * MS];
const KINDS: usize = 12 * LATENCIES.len();

/// Calls `visit` with every multiset of up to `left` kinds of vCPU, added to `kinds`.
fn each_host(kinds: &mut Vec<usize>, left: usize, visit: &mut impl FnMut(&[usize])) {
    visit(kinds);
    if left == 0 {
        return;
    }
    for kind in kinds.last().copied().unwrap_or(0)..KINDS {
        kinds.push(kind);
        each_host(kinds, left - 1, visit);
        kinds.pop();
    }
}

fn to_model(cpus: u32, kinds: &[usize]) -> Model {
    let tenant = |(name, kind): (usize, &usize)| {
        // Rounded down, so that twelve twelfths are not more than one.
        let twelfths = 1_000_000_000 * (kind / LATENCIES.len() as u32 as usize + 1) / 12;
        let share = Share::from_ppb(twelfths as u32).unwrap();
        reserved(&format!("t{name}"), 1, share.fraction(), LATENCIES[kind % LATENCIES.len()])
    };
    let tenants: Vec<Tenant> = kinds.iter().enumerate().map(tenant).collect();
    model(host(&format!("0-{}", cpus - 1), ""), tenants)
}

/// Every `step`th host.
fn check_hosts(step: usize) {
    let (mut seen, mut planned, mut refused, mut open) = (0_usize, 0, 0, 0);
    for cpus in 1..=3 {
        each_host(&mut Vec::new(), 5, &mut |kinds| {
            seen += 1;
            if !seen.is_multiple_of(step) {
                return;
            }
            let model = to_model(cpus, kinds);
            let placement = if seen % 2 == 0 { Placement::WorstFit } else { Placement::BestFit };
            match (plan(&model, &Options { placement }), verdict(&model)) {
                (Ok(_), Verdict::Infeasible) => panic!("{model:#?}: planned what cannot be served"),
                (Ok(plan), _) => {
                    planned += 1;
                    check(&model, &plan).unwrap_or_else(|error| panic!("{model:#?}: {error}"));
                }
                (Err(error), Verdict::Feasible) => panic!("{model:#?}: {error}"),
                (Err(error), verdict) => {
                    refused += 1;
                    open += usize::from(verdict == Verdict::Open);
                    let is_over =
                        matches!(error, Infeasible::OverUtilised { .. } | Infeasible::Bottleneck { .. });
                    assert!(is_over, "{model:#?}: {error}");
                }
            }
        });
    }
    assert!(planned > seen / step / 4 && refused > seen / step / 4, "{planned} planned, {refused} refused");
    println!("{planned} hosts planned, {refused} refused, {open} of them with less than a ns too little");
}

/// Every host of so many; `ROTA_STEP=1` has all two million taken.
#[test]
fn what_fits_is_planned_and_nothing_else() {
    let step = std::env::var("ROTA_STEP").unwrap_or("997".into());
    check_hosts(step.parse().expect("ROTA_STEP=NUMBER"));
}
