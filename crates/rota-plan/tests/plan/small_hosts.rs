//! All small hosts: up to 3 CPUs and 4 vCPUs with shares of eighths, against a search through every placement.

use rota_model::{Model, Tenant};
use rota_plan::{Infeasible, Options, Placement, plan};

use crate::checker::check;
use crate::models::{MS, host, model, reserved};

const EIGHTHS: [u32; 6] = [1, 2, 3, 5, 6, 8];
const LATENCIES: [u64; 2] = [4 * MS, 20 * MS];

/// Whether some placement puts at most 8 eighths on every CPU.
fn fits(eighths: &[u32], room: &mut [u32]) -> bool {
    let Some((&first, rest)) = eighths.split_first() else { return true };
    (0..room.len()).any(|cpu| {
        room[cpu] >= first && {
            room[cpu] -= first;
            let found = fits(rest, room);
            room[cpu] += first;
            found
        }
    })
}

/// Calls `visit` with every multiset of up to `left` kinds of vCPU, added to `kinds`.
fn each_host(kinds: &mut Vec<usize>, left: usize, visit: &mut impl FnMut(&[usize])) {
    visit(kinds);
    if left == 0 {
        return;
    }
    for kind in kinds.last().copied().unwrap_or(0)..EIGHTHS.len() * LATENCIES.len() {
        kinds.push(kind);
        each_host(kinds, left - 1, visit);
        kinds.pop();
    }
}

fn to_model(cpus: u32, kinds: &[usize]) -> (Model, Vec<u32>) {
    let eighths: Vec<u32> = kinds.iter().map(|kind| EIGHTHS[kind / LATENCIES.len()]).collect();
    let tenants: Vec<Tenant> = kinds
        .iter()
        .zip(&eighths)
        .enumerate()
        .map(|(name, (kind, &eighths))| {
            reserved(&format!("t{name}"), 1, f64::from(eighths) / 8.0, LATENCIES[kind % LATENCIES.len()])
        })
        .collect();
    (model(host(&format!("0-{}", cpus - 1), ""), tenants), eighths)
}

#[test]
fn what_fits_is_planned_and_nothing_else() {
    let (mut planned, mut refused) = (0, 0);
    for cpus in 1..=3 {
        each_host(&mut Vec::new(), 4, &mut |kinds| {
            let (model, eighths) = to_model(cpus, kinds);
            let feasible = fits(&eighths, &mut vec![8; cpus as usize]);
            for placement in [Placement::WorstFit, Placement::BestFit] {
                match plan(&model, &Options { placement }) {
                    Ok(plan) => {
                        planned += 1;
                        assert!(feasible, "{eighths:?} on {cpus}");
                        check(&model, &plan).unwrap_or_else(|error| panic!("{eighths:?} on {cpus}: {error}"));
                    }
                    Err(error) => {
                        refused += 1;
                        let over = eighths.iter().sum::<u32>() > 8 * cpus;
                        assert!(!feasible, "{eighths:?} on {cpus}: {error}");
                        assert_eq!(
                            over,
                            matches!(error, Infeasible::OverUtilised { .. }),
                            "{eighths:?} on {cpus}"
                        );
                    }
                }
            }
        });
    }
    assert!(planned > 2_000 && refused > 1_000, "{planned} planned, {refused} refused");
}
