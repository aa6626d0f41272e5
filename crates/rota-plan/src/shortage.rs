//! Whether the host has enough for what is reserved, and in its operator's words where it has not.

use rota_model::{CpuSet, Model, Share};

use crate::demand::Demand;
use crate::flow::{Shortage, whole_cpus};
use crate::infeasible::{Figures, Infeasible};
use crate::partition::Item;
use crate::period::HYPERPERIOD_NS;

const WHOLE: u64 = Share::ONE.ppb() as u64;

/// The place of the CPU of every vCPU with a share of 1, by the demand's place in the list.
///
/// # Errors
///
/// If no plan whatever could serve the demands: not even the bare shares, divided among CPUs at will. Or if no CPUs for
/// the shares of 1 were found.
pub(crate) fn check_shares(
    model: &Model,
    demands: &[Demand],
    cpus: &[u32],
    capacity: u64,
) -> Result<Vec<(usize, usize)>, Infeasible> {
    let items: Vec<Item> = demands
        .iter()
        .map(|demand| Item {
            load: demand.reservation.share.of(HYPERPERIOD_NS),
            allowed: demand.allowed.as_deref(),
        })
        .collect();
    whole_cpus(&items, cpus.len(), capacity)
        .map_err(|shortage| explain(&shortage, model, demands, &items, cpus, capacity))
}

/// `items` are the demands with their loads, on CPUs that give `capacity` ns each.
pub(crate) fn explain(
    shortage: &Shortage,
    model: &Model,
    demands: &[Demand],
    items: &[Item],
    cpus: &[u32],
    capacity: u64,
) -> Infeasible {
    let name = |item: usize| model.tenants[demands[item].tenant as usize].name.clone();
    match shortage {
        Shortage::Bottleneck { cpus: short, .. } if short.len() == cpus.len() => {
            let everyone: Vec<usize> = (0..items.len()).collect();
            let figures = figures(model, demands, items, &everyone, cpus.len(), capacity);
            Infeasible::OverUtilised { figures, cpus: cpus.len() }
        }
        Shortage::Bottleneck { items: wanting, cpus: short } => {
            let figures = figures(model, demands, items, wanting, short.len(), capacity);
            let mut tenants: Vec<String> = wanting.iter().map(|&item| name(item)).collect();
            tenants.dedup();
            let cpus: CpuSet = short.iter().map(|&place| cpus[place]).collect();
            Infeasible::Bottleneck { tenants, vcpus: wanting.len(), cpus, figures }
        }
        &Shortage::Whole { item } => {
            let allowed = demands[item].allowed.as_deref();
            let cpus: CpuSet = match allowed {
                Some(places) => places.iter().map(|&place| cpus[place]).collect(),
                None => cpus.iter().copied().collect(),
            };
            Infeasible::Dedicated { tenant: name(item), index: demands[item].index, cpus }
        }
    }
}

/// What `wanting` need and what so many CPUs give: by the shares as they are written if these are too much already,
/// else with the rounding of budgets to whole ns, else with what changes of task take.
fn figures(
    model: &Model,
    demands: &[Demand],
    items: &[Item],
    wanting: &[usize],
    cpus: usize,
    capacity: u64,
) -> Figures {
    let wholes = wanting.iter().filter(|&&item| items[item].is_whole()).count().min(cpus) as u64;
    let others = cpus as u64 - wholes;
    let shares = || wanting.iter().map(|&item| demands[item].reservation.share);
    let needed_ppb = shares().map(|share| u64::from(share.ppb())).sum();
    let available_ppb = cpus as u64 * WHOLE - others * u64::from(model.host.floor_ppb);
    if needed_ppb > available_ppb {
        return Figures { needed_ppb, costs_ppb: 0, available_ppb };
    }
    let needed: u64 = shares().map(|share| share.of(HYPERPERIOD_NS)).sum();
    let loads: u64 = wanting.iter().map(|&item| items[item].load).sum();
    let available = wholes * HYPERPERIOD_NS + others * capacity;
    let ppb = |ns: u64| u128::from(ns) * u128::from(WHOLE);
    let hyperperiod = u128::from(HYPERPERIOD_NS);
    Figures {
        needed_ppb: ppb(needed).div_ceil(hyperperiod) as u64,
        costs_ppb: ppb(loads - needed).div_ceil(hyperperiod) as u64,
        available_ppb: (ppb(available) / hyperperiod) as u64,
    }
}
