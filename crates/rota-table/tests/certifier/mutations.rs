//! Mutation test of tables: whatever is done to a certified one, the certifier rejects it, or the independent judge
//! finds that it still keeps every promise. Where the change is made before encoding, so that only slots, records and
//! promises differ, certifier and judge must agree both ways.

use rota_model::Costs;
use rota_table::{Promise, SlotSource, VcpuSource, encode};

use crate::made::{Made, at_random, by_hand, together};
use crate::parts::{Parts, signed};

const COSTS: Costs = Costs { switch_ns: 3, migration_ns: 2 };

/// Tables to mutate: everything in one, without and with costs, by slots alone and in windows, and some more at random.
fn victims() -> Vec<Made> {
    let by_hand = [by_hand(), by_hand().costing(COSTS).unwrap()];
    let patient = by_hand.clone().map(Made::patient);
    let together = [together(), together().costing(COSTS).unwrap().patient()];
    by_hand.into_iter().chain(patient).chain(together).chain((1..=10).map(at_random)).collect()
}

/// Counts what became of mutants, so that no test passes for want of them.
#[derive(Default)]
struct Toll {
    rejected: u32,
    harmless: u32,
}

impl Toll {
    fn take(&mut self, what: &str, bytes: &[u8], made: &Made) {
        match made.certify(bytes) {
            Err(_) => self.rejected += 1,
            Ok(_) => {
                assert_eq!(made.judge(bytes), Ok(()), "{what}: certified, but harmful");
                self.harmless += 1;
            }
        }
    }

    /// As above, but the judge also says what must pass.
    fn take_source(&mut self, what: &str, mutant: &Made) {
        let Ok(bytes) = encode(&mutant.source) else { return };
        self.agree(what, &bytes, mutant);
    }

    /// Both say the same of it.
    fn agree(&mut self, what: &str, bytes: &[u8], made: &Made) {
        let certified = made.certify(bytes).map(|_| ());
        let judged = made.judge(bytes);
        assert_eq!(certified.is_ok(), judged.is_ok(), "{what}: certifier {certified:?}, judge {judged:?}");
        *(if judged.is_ok() { &mut self.harmless } else { &mut self.rejected }) += 1;
    }
}

#[test]
fn every_bit_and_every_length() {
    for made in victims() {
        let (bytes, mut toll) = (made.bytes(), Toll::default());
        for length in 0..bytes.len() {
            toll.take("cut", &bytes[..length], &made);
            toll.take("cut and signed", &signed(bytes[..length].to_vec()), &made);
        }
        for bit in 0..8 * bytes.len() {
            let mut mutant = bytes.clone();
            mutant[bit / 8] ^= 1 << (bit % 8);
            toll.take("bit", &mutant, &made);
        }
        // The generation's 64 bits are not signed.
        assert_eq!((toll.rejected, toll.harmless), (10 * bytes.len() as u32 - 64, 64));
    }
}

#[test]
fn every_signed_bit() {
    for made in victims() {
        let (bytes, mut toll) = (made.bytes(), Toll::default());
        for bit in 0..8 * bytes.len() {
            let mut mutant = bytes.clone();
            mutant[bit / 8] ^= 1 << (bit % 8);
            toll.take(&format!("bit {bit}"), &signed(mutant), &made);
        }
        assert!(toll.rejected > 10 * toll.harmless, "{} to {}", toll.rejected, toll.harmless);
    }
}

/// Every 32-bit word, whatever field it is or belongs to, off by one, far off, and as any other word of the table.
#[test]
fn every_signed_word() {
    for made in victims().into_iter().take(4) {
        let (bytes, mut toll) = (made.bytes(), Toll::default());
        let word = |place: usize| u32::from_le_bytes(bytes[place..place + 4].try_into().unwrap());
        let mut others: Vec<u32> = (0..bytes.len() - 3).step_by(4).map(word).collect();
        others.sort_unstable();
        others.dedup();
        for place in (0..bytes.len() - 3).step_by(4) {
            let own = word(place);
            let near = [1, 2, 64].into_iter().flat_map(|by| [own.wrapping_add(by), own.wrapping_sub(by)]);
            let far = [0, 1, 1 << 31, u32::MAX, own << 1, own >> 1];
            for value in near.chain(far).chain(others.iter().copied()).filter(|&value| value != own) {
                let mut mutant = bytes.clone();
                mutant[place..place + 4].copy_from_slice(&value.to_le_bytes());
                toll.take(&format!("word at {place} to {value}"), &signed(mutant), &made);
            }
        }
        assert!(toll.rejected > 10 * toll.harmless, "{} to {}", toll.rejected, toll.harmless);
    }
}

/// What can be done to one slot: shifted, grown, shrunk.
fn moved(slot: SlotSource) -> impl Iterator<Item = SlotSource> {
    let SlotSource { start_ns, end_ns, vcpu } = slot;
    [1i64, -1, 7, -7, 60, -60].into_iter().flat_map(move |by| [(by, by), (by, 0), (0, by)]).filter_map(
        move |(start_by, end_by)| {
            let start_ns = u32::try_from(i64::from(start_ns) + start_by).ok()?;
            let end_ns = u32::try_from(i64::from(end_ns) + end_by).ok()?;
            Some(SlotSource { start_ns, end_ns, vcpu })
        },
    )
}

#[test]
fn every_slot() {
    let mut toll = Toll::default();
    for made in victims() {
        for cpu in 0..made.source.cpus.len() {
            for slot in 0..made.source.cpus[cpu].slots.len() {
                let mut mutate = |what: &str, change: &dyn Fn(&mut Vec<SlotSource>)| {
                    let mut mutant = made.clone();
                    change(&mut mutant.source.cpus[cpu].slots);
                    toll.take_source(&format!("{what} slot {slot} of CPU {cpu}"), &mutant);
                };
                mutate("delete", &|slots| slots.retain(|&kept| kept != made.source.cpus[cpu].slots[slot]));
                mutate("split", &|slots| {
                    slots.insert(slot, slots[slot]);
                    slots[slot].end_ns -= 1;
                    slots[slot + 1].start_ns = slots[slot].end_ns;
                });
                for vcpu in 0..made.source.vcpus.len() as u32 {
                    mutate("give away", &|slots| slots[slot].vcpu = vcpu);
                }
                for to in moved(made.source.cpus[cpu].slots[slot]) {
                    mutate("move", &|slots| slots[slot] = to);
                }
                for other in 0..slot {
                    mutate("swap owner of", &|slots| {
                        let vcpu = slots[slot].vcpu;
                        slots[slot].vcpu = std::mem::replace(&mut slots[other].vcpu, vcpu);
                    });
                }
            }
        }
    }
    assert!(toll.rejected > 1000 && toll.harmless > 100, "{} to {}", toll.rejected, toll.harmless);
}

/// Slots moved to another CPU, and CPUs made to repeat sooner or later.
#[test]
fn every_cpu() {
    let mut toll = Toll::default();
    for made in victims() {
        let cpus = made.source.cpus.len();
        for (cpu, other) in (0..cpus).flat_map(|cpu| (0..cpus).map(move |other| (cpu, other))) {
            let mut mutant = made.clone();
            let slots = std::mem::take(&mut mutant.source.cpus[cpu].slots);
            let slots = std::mem::replace(&mut mutant.source.cpus[other].slots, slots);
            mutant.source.cpus[cpu].slots = slots;
            toll.take_source("swap slots", &mutant);
            let length_ns = mutant.source.cpus[cpu].length_ns;
            mutant.source.cpus[cpu].length_ns =
                std::mem::replace(&mut mutant.source.cpus[other].length_ns, length_ns);
            toll.take_source("swap", &mutant);
        }
        for cpu in 0..cpus {
            let own_ns = made.source.cpus[cpu].length_ns;
            for length_ns in
                [own_ns * 2, own_ns * 3, own_ns / 2, own_ns / 3, made.source.length_ns, own_ns + 1]
            {
                let mut mutant = made.clone();
                mutant.source.cpus[cpu].length_ns = length_ns;
                toll.take_source("change the length", &mutant);
            }
        }
    }
    assert!(toll.rejected > 100 && toll.harmless > 10, "{} to {}", toll.rejected, toll.harmless);
}

/// What changes of task and migrations take, on the table's side, on the other or on both.
#[test]
fn every_cost() {
    let mut toll = Toll::default();
    for made in victims() {
        let mut mutate = |what: &str, change: &dyn Fn(&mut Made)| {
            let mut mutant = made.clone();
            change(&mut mutant);
            toll.take_source(what, &mutant);
        };
        mutate("switch cost", &|made| made.costs.switch_ns += 1);
        mutate("switch cost", &|made| made.costs.switch_ns = made.costs.switch_ns.saturating_sub(1));
        mutate("switch cost in the table", &|made| made.source.switch_ns += 1);
        mutate("switch cost on both sides", &|made| {
            made.source.switch_ns += 1;
            made.costs.switch_ns += 1;
        });
        mutate("much switch cost", &|made| made.costs.switch_ns = 97);
        mutate("migration cost", &|made| made.costs.migration_ns += 1);
        mutate("migration cost", &|made| made.costs.migration_ns = made.costs.migration_ns.saturating_sub(1));
    }
    assert!(toll.rejected > 30 && toll.harmless > 30, "{} to {}", toll.rejected, toll.harmless);
}

/// CPUs that serve in windows or by slots, whether they may or not, and what their vCPUs are told of windows.
#[test]
fn every_window() {
    let mut toll = Toll::default();
    for made in victims().into_iter().chain((11..=100).map(|seed| at_random(seed).patient())) {
        let switch_ns = made.costs.switch_ns as u32;
        for cpu in 0..Parts::of(&made.bytes()).cpus.len() {
            for (extra, flag) in
                [0, switch_ns, switch_ns + 1, switch_ns + 30].map(|ns| (ns, 2)).into_iter().chain([(0, 0)])
            {
                let mut parts = Parts::of(&made.bytes());
                let record = &mut parts.cpus[cpu];
                record.flags = record.flags & !2 | flag;
                record.switch_ns = if flag == 0 { 0 } else { switch_ns };
                let locals = record.first_local as usize..(record.first_local + record.nr_locals) as usize;
                for &local in &parts.locals[locals] {
                    let vcpu = &mut parts.vcpus[local as usize];
                    vcpu.window_ns = if flag == 0 { 0 } else { vcpu.budget_ns + extra };
                }
                toll.agree(&format!("windows of CPU {cpu}, {flag}, {extra}"), &parts.bytes(), &made);
            }
        }
    }
    assert!(toll.rejected > 300 && toll.harmless > 100, "{} to {}", toll.rejected, toll.harmless);
}

/// What each vCPU may claim of its windows, a little less and more.
#[test]
fn every_claim() {
    let mut toll = Toll::default();
    for made in victims().into_iter().chain((11..=100).map(|seed| at_random(seed).patient())) {
        let parts = Parts::of(&made.bytes());
        for vcpu in (0..parts.vcpus.len()).filter(|&vcpu| parts.vcpus[vcpu].window_ns > 0) {
            for by in [-10, -1, 1, 10] {
                let mut mutant = parts.clone();
                let claim = &mut mutant.vcpus[vcpu].window_ns;
                *claim = claim.saturating_add_signed(by);
                toll.agree(&format!("claim of vCPU {vcpu} by {by}"), &mutant.bytes(), &made);
            }
        }
    }
    assert!(toll.rejected > 100 && toll.harmless > 50, "{} to {}", toll.rejected, toll.harmless);
}

#[test]
fn every_promise() {
    let mut toll = Toll::default();
    for made in victims() {
        for place in 0..made.source.cpus.len() {
            let mut mutant = made.clone();
            mutant.source.cpus[place].exclusive ^= true;
            toll.take_source("mark of a CPU", &mutant);
        }
        for vcpu in 0..made.promises.len() {
            let mut mutate = |what: &str, change: &dyn Fn(&mut Made)| {
                let mut mutant = made.clone();
                change(&mut mutant);
                toll.take_source(&format!("{what} of vCPU {vcpu}"), &mutant);
            };
            mutate("a promise less", &|made| drop(made.promises.remove(vcpu)));
            mutate("a promise more", &|made| {
                made.promises.push(Promise { tenant: 77, ..made.promises[vcpu].clone() });
            });
            mutate("cap", &|made| made.promise(vcpu, |promised| promised.capped = !promised.capped));
            mutate("promised cap", &|made| made.promises[vcpu].reservation.capped ^= true);
            mutate("promised index", &|made| made.promises[vcpu].index += 1);
            mutate("latency", &|made| made.promise(vcpu, |promised| promised.latency_ns -= 1));
            mutate("wait in windows", &|made| {
                let VcpuSource { budget_ns, period_ns, .. } = made.source.vcpus[vcpu];
                let wait_ns = 2 * u64::from(period_ns - budget_ns);
                made.promise(vcpu, |promised| promised.latency_ns = wait_ns.saturating_sub(1));
            });
            mutate("promised latency", &|made| made.promises[vcpu].reservation.latency_ns += 1);
            mutate("budget", &|made| made.source.vcpus[vcpu].budget_ns += 1);
            mutate("budget", &|made| made.source.vcpus[vcpu].budget_ns -= 1);
            mutate("affinity", &|made| made.promises[vcpu].cpus = "0".parse().unwrap());
            for core in ["0", "0-1", "1,3", "0,4", "2,99"] {
                let cores = [core.parse().unwrap()];
                mutate("a core of its own", &|made| made.promises[vcpu].unshared = cores.clone().into());
            }
            mutate("no core of its own", &|made| made.promises[vcpu].unshared = [].into());
            mutate("affinity", &|made| made.promises[vcpu].cpus = "0-9".parse().unwrap());
            mutate("together", &|made| made.promises[vcpu].together ^= true);
            mutate("walls", &|made| made.source.vcpus[vcpu].walls ^= true);
            mutate("all together", &|made| {
                let tenant = made.promises[vcpu].tenant;
                made.promises.iter_mut().for_each(|promise| promise.together |= promise.tenant == tenant);
            });
            let length_ns = made.source.length_ns;
            let divisors = (1..=length_ns).filter(|&period_ns| length_ns.is_multiple_of(period_ns));
            for period_ns in divisors.chain([0, length_ns + 1, 2 * length_ns]) {
                mutate("period", &|made| {
                    let vcpu = &mut made.source.vcpus[vcpu];
                    vcpu.budget_ns = (u64::from(vcpu.budget_ns) * u64::from(period_ns))
                        .div_ceil(u64::from(vcpu.period_ns)) as u32;
                    vcpu.period_ns = period_ns;
                });
            }
        }
    }
    assert!(toll.rejected > 1000 && toll.harmless > 100, "{} to {}", toll.rejected, toll.harmless);
}
