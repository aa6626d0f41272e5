//! An independent judge: runs a table ns by ns the way the header says that the dispatcher does, and looks whether
//! every promise was kept. Slow and naive on purpose; for tables of a few microseconds.

use std::collections::BTreeSet;

use rota_model::Costs;
use rota_table::Promise;

use crate::lost::{self, VcpuTime};
use crate::parts::checksum;
use crate::windowed;

/// Each ns of a table, for one vCPU; none where it owns no CPU.
pub type Timeline = Vec<Option<VcpuTime>>;

/// Bytes read at the header's offsets.
pub struct Raw<'a>(&'a [u8]);

impl Raw<'_> {
    pub fn u32(&self, at: u64) -> Result<u64, String> {
        let bytes = self.0.get(at as usize..at as usize + 4).ok_or(format!("read beyond the end at {at}"))?;
        Ok(u64::from(u32::from_le_bytes(bytes.try_into().unwrap())))
    }

    pub fn u64(&self, at: u64) -> Result<u64, String> {
        Ok(self.u32(at)? | self.u32(at + 4)? << 32)
    }

    fn zero(&self, from: u64, to: u64) -> Result<(), String> {
        let all = (from..to).all(|at| self.0.get(at as usize) == Some(&0));
        ensure(all, || format!("reserved bytes at {from}"))
    }
}

pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Who owns a CPU in each ns of its length, by the look-up of the header's comment.
fn dispatch(raw: &Raw, cpu_at: u64, slots_at: u64, slices_at: u64) -> Result<Vec<Option<u64>>, String> {
    let (length, slice_ns) = (raw.u32(cpu_at)?, raw.u32(cpu_at + 4)?);
    let (first_slot, nr_slots, first_slice) =
        (raw.u32(cpu_at + 8)?, raw.u32(cpu_at + 12)?, raw.u32(cpu_at + 16)?);
    if nr_slots == 0 {
        return Ok(vec![None; length as usize]);
    }
    let look_up = |offset| {
        let slice_at = slices_at + 8 * (first_slice + offset / slice_ns);
        let slot = raw.u32(slice_at)? + u64::from(offset >= raw.u32(slice_at + 4)?);
        ensure(first_slot <= slot && slot <= first_slot + nr_slots, || "slice outside of the CPU".into())?;
        if slot == first_slot + nr_slots {
            return Ok(None);
        }
        let slot_at = slots_at + 16 * slot;
        let owns = raw.u32(slot_at)? <= offset && offset < raw.u32(slot_at + 4)?;
        Ok(if owns { Some(raw.u32(slot_at + 8)?) } else { None })
    };
    (0..length).map(look_up).collect()
}

/// Every vCPU's time, as it is after many tables.
pub fn run(bytes: &[u8], costs: Costs) -> Result<Vec<Timeline>, String> {
    let raw = Raw(bytes);
    let (length, nr_cpus, nr_vcpus) = (raw.u32(32)?, raw.u32(36)?, raw.u32(40)?);
    ensure(length > 0 && 102_702_600 % length == 0, || format!("length {length}"))?;
    let (cpus_at, slots_at) = (raw.u32(60)?, raw.u32(68)?);
    let (slices_at, locals_at) = (raw.u32(72)?, raw.u32(76)?);
    let mut vcpus: Vec<Timeline> = vec![vec![None; length as usize]; nr_vcpus as usize];
    for cpu in 0..nr_cpus {
        let at = cpus_at + 64 * cpu;
        raw.zero(at + 40, at + 64)?;
        let cpu_length = raw.u32(at)?;
        ensure(cpu_length > 0 && length % cpu_length == 0, || format!("length of CPU {cpu}"))?;
        let mut owners = BTreeSet::new();
        let round = lost::round(&dispatch(&raw, at, slots_at, slices_at)?, costs.switch_ns);
        for (offset, time) in round.ok_or(format!("CPU {cpu} changes too often"))?.into_iter().enumerate() {
            let Some(vcpu) = time.owner else { continue };
            owners.insert(vcpu);
            let timeline = vcpus.get_mut(vcpu as usize).ok_or(format!("no vCPU {vcpu}"))?;
            for at in (offset..length as usize).step_by(cpu_length as usize) {
                let now = VcpuTime { cpu, goes_on: time.goes_on, is_lost: time.is_lost };
                let before = timeline[at].replace(now);
                ensure(before.is_none(), || format!("on CPU {cpu} and another at once"))?;
            }
        }
        let (first, count) = (raw.u32(at + 24)?, raw.u32(at + 28)?);
        let locals: Result<Vec<u64>, String> =
            (first..first + count).map(|local| raw.u32(locals_at + 4 * local)).collect();
        ensure(locals? == owners.into_iter().collect::<Vec<_>>(), || format!("locals of CPU {cpu}"))?;
    }
    vcpus.iter_mut().for_each(|timeline| lost::migrate(timeline, costs));
    Ok(vcpus)
}

/// Whether the table, run as it is, keeps exactly these promises and is well-formed; if not, what is wrong.
pub fn judge(bytes: &[u8], promises: &[Promise], costs: Costs) -> Result<(), String> {
    let raw = Raw(bytes);
    ensure(raw.u64(0)? == u64::from_le_bytes(*b"O0TATBT1"), || "magic".into())?;
    ensure(raw.u32(8)? == 4 && raw.u32(12)? == bytes.len() as u64, || "version or size".into())?;
    ensure(raw.u64(16)? == checksum(bytes), || "checksum".into())?;
    raw.zero(84, 128)?;
    judge_padding(&raw)?;
    let served = run(bytes, costs)?;
    ensure(served.len() == promises.len(), || "promises and vCPUs differ".into())?;
    judge_cores(&raw, promises, &served)?;
    judge_together(&raw, promises, &served)?;
    let vcpus_at = raw.u32(64)?;
    let homes_at = raw.u32(80)?;
    let (mut seen, mut homes) = (BTreeSet::new(), Vec::new());
    for (vcpu, timeline) in (0..).zip(&served) {
        let at = vcpus_at + 64 * vcpu;
        raw.zero(at + 48, at + 64)?;
        let name = (raw.u32(at)?, raw.u32(at + 4)?);
        ensure(seen.insert(name), || format!("{name:?} twice"))?;
        let promise = promises.iter().find(|p| (u64::from(p.tenant), u64::from(p.index)) == name);
        judge_vcpu(&raw, at, timeline, promise.ok_or(format!("{name:?} without promise"))?)
            .map_err(|why| format!("{name:?}: {why}"))?;
        ensure(raw.u32(at + 40)? == homes.len() as u64, || format!("first home of {name:?}"))?;
        homes.extend(in_order_of_first_slot(timeline));
    }
    ensure(raw.u32(56)? == homes.len() as u64, || "number of homes".into())?;
    let found: Result<Vec<u64>, String> =
        (0..homes.len() as u64).map(|home| raw.u32(homes_at + 4 * home)).collect();
    ensure(found? == homes, || "homes".into())?;
    windowed::judge(&raw, &served, costs)
}

/// Nobody runs on a core that another tenant shares with nobody, and flags say which these are.
fn judge_cores(raw: &Raw, promises: &[Promise], served: &[Timeline]) -> Result<(), String> {
    let (cpus_at, vcpus_at) = (raw.u32(60)?, raw.u32(64)?);
    let mut tenants_on = vec![BTreeSet::new(); raw.u32(36)? as usize];
    for (vcpu, timeline) in (0..).zip(served) {
        for time in timeline.iter().flatten() {
            tenants_on[time.cpu as usize].insert(raw.u32(vcpus_at + 64 * vcpu)?);
        }
    }
    let mut kept = vec![false; tenants_on.len()];
    for promise in promises {
        let mine = (0..).zip(served).filter(|(vcpu, _)| {
            raw.u32(vcpus_at + 64 * vcpu) == Ok(promise.tenant.into())
                && raw.u32(vcpus_at + 64 * vcpu + 4) == Ok(promise.index.into())
        });
        let mine: BTreeSet<u64> =
            mine.flat_map(|(_, timeline)| timeline.iter().flatten().map(|time| time.cpu)).collect();
        for core in promise.unshared.iter().filter(|core| mine.iter().any(|&cpu| core.contains(cpu as u32))) {
            for cpu in core.iter() {
                let here = tenants_on.get(cpu as usize).ok_or(format!("no CPU {cpu}"))?;
                ensure(here.iter().all(|&tenant| tenant == promise.tenant.into()), || {
                    format!("a core of {here:?}")
                })?;
                kept[cpu as usize] = true;
            }
        }
    }
    (0..).zip(kept).try_for_each(|(cpu, kept)| {
        let flags = raw.u32(cpus_at + 64 * cpu + 32)? & !windowed::FLAG;
        ensure(flags == u64::from(kept), || format!("flags of CPU {cpu}"))
    })
}

/// Whoever is promised it has slots whenever the others of its tenant have that are promised it, and on CPUs where
/// slots are walls.
fn judge_together(raw: &Raw, promises: &[Promise], served: &[Timeline]) -> Result<(), String> {
    let (cpus_at, vcpus_at) = (raw.u32(60)?, raw.u32(64)?);
    let mut times_of: Vec<(u64, Vec<bool>)> = Vec::new();
    for (vcpu, timeline) in (0..).zip(served) {
        let name = (raw.u32(vcpus_at + 64 * vcpu)?, raw.u32(vcpus_at + 64 * vcpu + 4)?);
        let is_its = |p: &&Promise| (u64::from(p.tenant), u64::from(p.index)) == name;
        if !promises.iter().find(is_its).is_some_and(|promise| promise.together) {
            continue;
        }
        for time in timeline.iter().flatten() {
            let flags = raw.u32(cpus_at + 64 * time.cpu + 32)?;
            ensure(flags & windowed::FLAG == 0, || format!("{name:?} in windows"))?;
        }
        times_of.push((name.0, timeline.iter().map(Option::is_some).collect()));
    }
    let differ = |one: &(u64, Vec<bool>), other: &(u64, Vec<bool>)| one.0 == other.0 && one.1 != other.1;
    let is_apart = times_of.iter().any(|one| times_of.iter().any(|other| differ(one, other)));
    ensure(!is_apart, || "not together".into())
}

/// The CPUs on which a vCPU runs. It is never on two at once, so that no two are the first.
fn in_order_of_first_slot(timeline: &Timeline) -> Vec<u64> {
    let mut cpus = Vec::new();
    for time in timeline.iter().flatten() {
        if !cpus.contains(&time.cpu) {
            cpus.push(time.cpu);
        }
    }
    cpus
}

/// Whatever is in no section is 0.
fn judge_padding(raw: &Raw) -> Result<(), String> {
    let mut at = 128;
    for (section, size) in [64, 64, 16, 8, 4, 4].into_iter().enumerate() {
        let (count, offset) = (raw.u32(36 + 4 * section as u64)?, raw.u32(60 + 4 * section as u64)?);
        raw.zero(at, offset)?;
        at = offset + count * size;
    }
    raw.zero(at, raw.0.len() as u64)
}

fn judge_vcpu(raw: &Raw, at: u64, timeline: &Timeline, promise: &Promise) -> Result<(), String> {
    let reservation = promise.reservation;
    let ppb = u64::from(reservation.share.ppb());
    ensure(raw.u32(at + 8)? == u64::from(reservation.capped), || "flags".into())?;
    ensure(raw.u32(at + 12)? == ppb, || "share".into())?;
    ensure(raw.u64(at + 16)? == reservation.latency_ns, || "latency".into())?;
    let (budget, period) = (raw.u32(at + 24)?, raw.u32(at + 28)?);
    let length = timeline.len();
    ensure(period > 0 && (length as u64).is_multiple_of(period), || "period".into())?;
    ensure(u128::from(budget) * 1_000_000_000 >= u128::from(ppb) * u128::from(period), || "budget".into())?;
    let (mut all, mut most_lost) = (0, 0);
    for window in timeline.chunks(period as usize) {
        let (got, lost) = net_and_lost(window);
        ensure(got >= budget, || format!("{got} of {budget} in a window"))?;
        (all, most_lost) = (all + got, lost.max(most_lost));
    }
    // Capped: less than one ns a window beyond the exact share and what it may lose.
    let most = (length as u64 / period) * ((ppb * period).div_ceil(1_000_000_000) + most_lost);
    ensure(!reservation.capped || all <= most, || "more than its cap".into())?;
    ensure(longest_gap(timeline) <= reservation.latency_ns, || "blackout".into())?;
    ensure(longest_edge(timeline) <= reservation.latency_ns / 2, || "blackout between tables".into())?;
    let home = timeline.iter().flatten().next().ok_or("never served")?;
    ensure(raw.u32(at + 32)? == home.cpu, || "home".into())?;
    let cpus: BTreeSet<u64> = timeline.iter().flatten().map(|time| time.cpu).collect();
    ensure(cpus.iter().all(|&cpu| promise.cpus.contains(cpu as u32)), || "affinity".into())?;
    ensure(raw.u32(at + 36)? == cpus.len() as u64, || "number of CPUs".into())
}

/// How much the vCPU is served in a window, and how much of its slots costs take.
pub fn net_and_lost(window: &[Option<VcpuTime>]) -> (u64, u64) {
    let lost = window.iter().flatten().filter(|time| time.is_lost).count();
    ((window.iter().flatten().count() - lost) as u64, lost as u64)
}

/// The longest time without service over two tables end to end.
pub fn longest_gap(timeline: &Timeline) -> u64 {
    let (mut gap, mut longest) = (0, 0);
    for time in timeline.iter().chain(timeline) {
        gap = if is_served(time) { 0 } else { gap + 1 };
        longest = gap.max(longest);
    }
    longest
}

/// The longer of the times without service at the start and at the end.
pub fn longest_edge(timeline: &Timeline) -> u64 {
    let before = timeline.iter().take_while(|time| !is_served(time)).count();
    let after = timeline.iter().rev().take_while(|time| !is_served(time)).count();
    before.max(after) as u64
}

fn is_served(time: &Option<VcpuTime>) -> bool {
    time.is_some_and(|time| !time.is_lost)
}
