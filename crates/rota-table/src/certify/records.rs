//! The vCPU records against the promises.

use super::Promise;
use super::format::Table;
use super::violation::{VcpuName, Violation};
use crate::layout::{self, Vcpu};

/// Checks that records and promises are one to one and say the same. Returns each vCPU's promise, in table order.
pub(super) fn check<'p>(table: &Table, promises: &'p [Promise]) -> Result<Vec<&'p Promise>, Violation> {
    let mut promised: Vec<(VcpuName, &Promise)> =
        promises.iter().map(|promise| (promise_name(promise), promise)).collect();
    promised.sort_unstable_by_key(|&(vcpu, _)| vcpu);
    if let Some(pair) = promised.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Violation::PromisedTwice { vcpu: pair[0].0 });
    }
    let mut recorded = vec![false; promised.len()];
    let mut promise_of = Vec::with_capacity(table.vcpus.len());
    for record in table.vcpus.iter() {
        let vcpu = name(&record);
        let place = promised
            .binary_search_by_key(&vcpu, |&(vcpu, _)| vcpu)
            .map_err(|_| Violation::NotPromised { vcpu })?;
        if std::mem::replace(&mut recorded[place], true) {
            return Err(Violation::RecordedTwice { vcpu });
        }
        check_record(table, &record, promised[place].1)?;
        promise_of.push(promised[place].1);
    }
    match recorded.iter().position(|&recorded| !recorded) {
        Some(place) => Err(Violation::Missing { vcpu: promised[place].0 }),
        None => Ok(promise_of),
    }
}

/// What a record's vCPU is called.
pub(super) fn name(record: &Vcpu) -> VcpuName {
    VcpuName { tenant: record.tenant, index: record.index }
}

fn promise_name(promise: &Promise) -> VcpuName {
    VcpuName { tenant: promise.tenant, index: promise.index }
}

/// C = ceil(U * T) of a record, in ns: the least that its share comes to in each period.
pub(super) fn share_of_period(record: &Vcpu) -> u64 {
    (u64::from(record.share_ppb) * u64::from(record.period_ns)).div_ceil(1_000_000_000)
}

fn check_record(table: &Table, record: &Vcpu, promise: &Promise) -> Result<(), Violation> {
    let vcpu = name(record);
    let reservation = promise.reservation;
    let found = record.flags & layout::VCPU_CAPPED != 0;
    if record.flags & !layout::VCPU_CAPPED != 0 {
        return Err(Violation::Flags { vcpu, flags: record.flags });
    }
    if found != reservation.capped {
        return Err(Violation::Capped { vcpu, promised: reservation.capped, found });
    }
    if record.share_ppb != reservation.share.ppb() {
        let (promised, found_ppb) = (reservation.share, record.share_ppb);
        return Err(Violation::Share { vcpu, promised, found_ppb });
    }
    if record.latency_ns != reservation.latency_ns {
        let (promised_ns, found_ns) = (reservation.latency_ns, record.latency_ns);
        return Err(Violation::Latency { vcpu, promised_ns, found_ns });
    }
    let (period_ns, table_ns) = (record.period_ns, table.length_ns);
    if period_ns == 0 || table_ns % period_ns != 0 {
        return Err(Violation::Period { vcpu, period_ns, table_ns });
    }
    let (budget_ns, least_ns) = (record.budget_ns, share_of_period(record));
    if u64::from(budget_ns) < least_ns {
        return Err(Violation::Budget { vcpu, budget_ns, least_ns });
    }
    Ok(())
}
