//! What no plan could serve and what every planner worth its name must, from the definitions alone: if vCPUs could be
//! divided among their CPUs like a fluid, they fit if and only if no set of CPUs is too small for those that may use no
//! others (Hall 1935). Shares no code with the planner.

use rota_model::{CpuSet, Model, Share};

use crate::models::PERIODS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With budgets in whole ns of some common period that keeps every latency, all fits.
    Feasible,
    /// Not even with budgets in fractions of a ns.
    Infeasible,
    /// A matter of less than a ns for every vCPU and period, of budgets too short for any table, or of vCPUs that want
    /// some CPUs only to themselves.
    Open,
}

struct Vcpu {
    share_ppb: u128,
    latency_ns: u64,
    /// Bits.
    allowed: u32,
}

/// At most 16 CPUs. Costs are not counted.
pub fn verdict(model: &Model) -> Verdict {
    const ONE: u128 = Share::ONE.ppb() as u128;
    let usable = model.host.tenant_cpus();
    let mut vcpus = Vec::new();
    for tenant in &model.tenants {
        let Some(reservation) = tenant.reservation() else { continue };
        vcpus.extend((0..tenant.vcpus).map(|index| Vcpu {
            share_ppb: reservation.share.ppb().into(),
            latency_ns: reservation.latency_ns,
            allowed: bits(&tenant.vcpu_cpus(index, &usable)),
        }));
    }
    let all = bits(&usable);
    // Also a share that is a whole CPU in whole ns.
    let longest: u128 = PERIODS[0].into();
    let is_whole = |vcpu: &Vcpu| (vcpu.share_ppb * longest).div_ceil(ONE) == longest;
    let (whole, divisible): (Vec<Vcpu>, Vec<Vcpu>) = vcpus.into_iter().partition(is_whole);
    if whole.iter().any(|vcpu| vcpu.allowed != all)
        || !whole.is_empty() && divisible.iter().any(|vcpu| vcpu.allowed != all)
    {
        return Verdict::Open;
    }
    let Some(left) = all.count_ones().checked_sub(whole.len() as u32) else { return Verdict::Infeasible };
    let floor_ppb: u128 = model.host.floor_ppb.into();
    // Each CPU gives `capacity`, which is `given` of `ONE`.
    let fits = |needed: &dyn Fn(&Vcpu) -> u128, capacity: u128| {
        let is_set = |set: &u32| set & all == *set;
        (1..=all).filter(is_set).all(|set| {
            let inside = divisible.iter().filter(|vcpu| vcpu.allowed & set == vcpu.allowed);
            inside.map(needed).sum::<u128>() <= u128::from(set.count_ones().min(left)) * capacity
        })
    };
    if !fits(&|vcpu| vcpu.share_ppb, ONE - floor_ppb) {
        return Verdict::Infeasible;
    }
    let budget = |vcpu: &Vcpu, period: u64| (vcpu.share_ppb * u128::from(period)).div_ceil(ONE);
    let keeps = |period: u64| {
        let wait = |vcpu: &Vcpu| 2 * (u128::from(period) - budget(vcpu, period));
        divisible.iter().all(|vcpu| wait(vcpu) <= u128::from(vcpu.latency_ns))
    };
    // The longest that do; and where budgets are shorter than a slice may be, no table has room for them.
    let is_feasible = PERIODS.iter().filter(|&&period| keeps(period)).take(8).any(|&period| {
        let capacity = u128::from(period) * (ONE - floor_ppb) / ONE;
        let is_short = |vcpu: &Vcpu| budget(vcpu, period) < 4 * 1_568;
        !divisible.iter().any(is_short) && fits(&|vcpu| budget(vcpu, period), capacity)
    });
    if is_feasible { Verdict::Feasible } else { Verdict::Open }
}

fn bits(cpus: &CpuSet) -> u32 {
    cpus.iter().fold(0, |bits, cpu| bits | 1 << cpu)
}
