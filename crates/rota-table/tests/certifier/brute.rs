//! An independent judge: runs a table ns by ns the way the header says that the dispatcher does, and looks whether
//! every promise was kept. Slow and naive on purpose; for tables of a few microseconds.

use std::collections::BTreeSet;

use rota_table::Promise;

use crate::parts::checksum;

/// Bytes read at the header's offsets.
struct Raw<'a>(&'a [u8]);

impl Raw<'_> {
    fn u32(&self, at: u64) -> Result<u64, String> {
        let bytes = self.0.get(at as usize..at as usize + 4).ok_or(format!("read beyond the end at {at}"))?;
        Ok(u64::from(u32::from_le_bytes(bytes.try_into().unwrap())))
    }

    fn u64(&self, at: u64) -> Result<u64, String> {
        Ok(self.u32(at)? | self.u32(at + 4)? << 32)
    }

    fn zero(&self, from: u64, to: u64) -> Result<(), String> {
        let all = (from..to).all(|at| self.0.get(at as usize) == Some(&0));
        ensure(all, || format!("reserved bytes at {from}"))
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
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

/// Whether the table, run as it is, keeps exactly these promises and is well-formed; if not, what is wrong.
pub fn judge(bytes: &[u8], promises: &[Promise]) -> Result<(), String> {
    let raw = Raw(bytes);
    ensure(raw.u64(0)? == u64::from_le_bytes(*b"O0TATBT1"), || "magic".into())?;
    ensure(raw.u32(8)? == 1 && raw.u32(12)? == bytes.len() as u64, || "version or size".into())?;
    ensure(raw.u64(16)? == checksum(bytes), || "checksum".into())?;
    raw.zero(76, 128)?;
    judge_padding(&raw)?;
    let (length, nr_cpus, nr_vcpus) = (raw.u32(32)?, raw.u32(36)?, raw.u32(40)?);
    ensure(length > 0 && 102_702_600 % length == 0, || format!("length {length}"))?;
    let (cpus_at, vcpus_at) = (raw.u32(56)?, raw.u32(60)?);
    let (slots_at, slices_at, locals_at) = (raw.u32(64)?, raw.u32(68)?, raw.u32(72)?);
    ensure(nr_vcpus == promises.len() as u64, || "promises and vCPUs differ".into())?;

    // served[vcpu][t]: the CPU it was on.
    let mut served = vec![vec![None; length as usize]; nr_vcpus as usize];
    for cpu in 0..nr_cpus {
        let at = cpus_at + 64 * cpu;
        raw.zero(at + 32, at + 64)?;
        let cpu_length = raw.u32(at)?;
        ensure(cpu_length > 0 && length % cpu_length == 0, || format!("length of CPU {cpu}"))?;
        let mut owners = BTreeSet::new();
        for (offset, owner) in dispatch(&raw, at, slots_at, slices_at)?.into_iter().enumerate() {
            let Some(vcpu) = owner else { continue };
            owners.insert(vcpu);
            let timeline = served.get_mut(vcpu as usize).ok_or(format!("no vCPU {vcpu}"))?;
            for time in (offset..length as usize).step_by(cpu_length as usize) {
                let on = timeline[time].replace(cpu);
                ensure(on.is_none(), || format!("on CPUs {on:?} and {cpu} at once"))?;
            }
        }
        let (first, count) = (raw.u32(at + 24)?, raw.u32(at + 28)?);
        let locals: Result<Vec<u64>, String> =
            (first..first + count).map(|local| raw.u32(locals_at + 4 * local)).collect();
        ensure(locals? == owners.into_iter().collect::<Vec<_>>(), || format!("locals of CPU {cpu}"))?;
    }
    let mut seen = BTreeSet::new();
    for (vcpu, timeline) in (0..).zip(&served) {
        let at = vcpus_at + 64 * vcpu;
        raw.zero(at + 40, at + 64)?;
        let name = (raw.u32(at)?, raw.u32(at + 4)?);
        ensure(seen.insert(name), || format!("{name:?} twice"))?;
        let promise = promises.iter().find(|p| (u64::from(p.tenant), u64::from(p.index)) == name);
        judge_vcpu(&raw, at, timeline, promise.ok_or(format!("{name:?} without promise"))?)
            .map_err(|why| format!("{name:?}: {why}"))?;
    }
    Ok(())
}

/// Whatever is in no section is 0.
fn judge_padding(raw: &Raw) -> Result<(), String> {
    let mut at = 128;
    for (section, size) in [64, 64, 16, 8, 4].into_iter().enumerate() {
        let (count, offset) = (raw.u32(36 + 4 * section as u64)?, raw.u32(56 + 4 * section as u64)?);
        raw.zero(at, offset)?;
        at = offset + count * size;
    }
    raw.zero(at, raw.0.len() as u64)
}

fn judge_vcpu(raw: &Raw, at: u64, timeline: &[Option<u64>], promise: &Promise) -> Result<(), String> {
    let reservation = promise.reservation;
    let ppb = u64::from(reservation.share.ppb());
    ensure(raw.u32(at + 8)? == u64::from(reservation.capped), || "flags".into())?;
    ensure(raw.u32(at + 12)? == ppb, || "share".into())?;
    ensure(raw.u64(at + 16)? == reservation.latency_ns, || "latency".into())?;
    let (budget, period) = (raw.u32(at + 24)?, raw.u32(at + 28)?);
    let length = timeline.len();
    ensure(period > 0 && (length as u64).is_multiple_of(period), || "period".into())?;
    ensure(u128::from(budget) * 1_000_000_000 >= u128::from(ppb) * u128::from(period), || "budget".into())?;
    for window in timeline.chunks(period as usize) {
        let got = window.iter().flatten().count() as u64;
        ensure(got >= budget, || format!("{got} of {budget} in a window"))?;
        // Capped: less than one ns beyond the exact share.
        let above = (u128::from(got) * 1_000_000_000).saturating_sub(u128::from(ppb) * u128::from(period));
        ensure(!reservation.capped || above < 1_000_000_000, || "more than its cap".into())?;
    }
    let mut blackout = 0;
    for time in 0..2 * length {
        blackout = if timeline[time % length].is_some() { 0 } else { blackout + 1 };
        ensure(blackout <= reservation.latency_ns, || format!("blackout at {time}"))?;
    }
    let home = timeline.iter().flatten().next().ok_or("never served")?;
    ensure(raw.u32(at + 32)? == *home, || "home".into())?;
    let cpus: BTreeSet<u64> = timeline.iter().flatten().copied().collect();
    ensure(cpus.iter().all(|&cpu| promise.cpus.contains(cpu as u32)), || "affinity".into())?;
    ensure(raw.u32(at + 36)? == cpus.len() as u64, || "number of CPUs".into())
}
