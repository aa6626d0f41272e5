//! The layout read back as its description says, and asked as the prototype asks it: whose is this CPU now?

use rota_model::{Class, Costs, CpuSet, Host, Model, Placement, Reservation, Share, Team, Tenant, Topology};
use rota_plan::{Options, Plan, plan};

use super::super::tests::small;
use super::render_tableau;

const MS: u64 = 1_000_000;

/// The bytes, with everything at the offsets that they give themselves.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.0[at as usize..at as usize + 8].try_into().unwrap())
    }

    fn half(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.0[at as usize..at as usize + 4].try_into().unwrap())
    }

    fn part(&self, cpu: u64) -> u64 {
        assert!(cpu < self.word(16));
        self.word(24 + 8 * cpu)
    }

    /// Domain, vCPU, CPUs and flags.
    fn vcpu(&self, at: u64) -> (u32, u32, u64, u64) {
        assert_eq!(self.word(at + 24), 0, "the hypervisor's to write");
        (self.half(at), self.half(at + 4), self.word(at + 8), self.word(at + 16))
    }

    /// The place in the list of vCPUs of who owns `cpu` at `now`, by way of the slice table.
    fn owner(&self, cpu: u64, now: u64) -> Option<u64> {
        let part = self.part(cpu);
        let slice = part + self.word(part + 24) + 64 * (now / self.word(part + 32));
        assert!(self.word(slice) <= now && now < self.word(slice + 8), "the slice of {now}");
        // Numbers beyond the last slot stand for no slot; so does 0 for any but the first.
        let slot = |number: u64| (number < self.word(part)).then(|| part + self.word(part + 8) + 64 * number);
        let optional = |at: u64| slot(self.word(at)).filter(|_| self.word(at) > 0);
        let first = slot(self.word(slice + 16)).expect("every slice has a first slot");
        let (start, end) = (|slot: u64| self.word(slot + 24), |slot: u64| self.word(slot + 32));
        let found = if now < end(first) {
            first
        } else {
            let middle = optional(slice + 24).filter(|&slot| start(slot) <= now && now < end(slot));
            middle
                .or_else(|| optional(slice + 32).filter(|&slot| start(slot) <= now))
                .expect("no time is uncovered")
        };
        assert!(start(found) <= now && now < end(found), "the slot of {now}");
        assert_eq!((self.word(found), self.word(found + 16)), (start(found), end(found) - start(found)));
        Some(self.word(found + 8)).filter(|&vcpu| vcpu < self.word(0))
    }
}

/// Every CPU has the owner that the plan says, around every slot's bounds in the whole table.
fn says_the_same(plan: &Plan, bytes: &[u8]) {
    let reader = Reader(bytes);
    assert_eq!(reader.word(0), plan.vcpus.len() as u64);
    for (place, vcpu) in (0..).zip(&plan.vcpus) {
        let mask = vcpu.cpus.iter().fold(0, |mask, cpu| mask | 1 << cpu);
        let flags = u64::from(vcpu.cpus.len() > 1 || vcpu.capped);
        assert_eq!(reader.vcpu(reader.word(8) + 64 * place), (vcpu.tenant + 1, vcpu.index, mask, flags));
    }
    for cpu in &plan.cpus {
        let number = u64::from(cpu.cpu);
        let part = reader.part(number);
        assert_eq!((part % 4096, reader.word(part + 40)), (0, plan.table_length_ns));
        let locals = plan.vcpus.iter().filter(|vcpu| vcpu.cpus.contains(&cpu.cpu));
        assert_eq!(reader.word(part + 48), locals.clone().count() as u64);
        for (place, vcpu) in (0..).zip(locals) {
            let (domain, index, ..) = reader.vcpu(part + reader.word(part + 56) + 64 * place);
            assert_eq!((domain, index), (vcpu.tenant + 1, vcpu.index));
        }
        let bounds = cpu.slots.iter().flat_map(|slot| [slot.start_ns, slot.end_ns]).chain([0, cpu.length_ns]);
        for offset in bounds.flat_map(|at| [at.saturating_sub(1), at]).filter(|&at| at < cpu.length_ns) {
            let slot = cpu.slots.iter().find(|slot| slot.start_ns <= offset && offset < slot.end_ns);
            for round in (0..plan.table_length_ns).step_by(cpu.length_ns as usize) {
                let owner = slot.map(|slot| u64::from(slot.vcpu));
                assert_eq!(reader.owner(number, round + offset), owner, "CPU {number} at {}", round + offset);
            }
        }
    }
}

fn check(model: &Model) {
    let plan = plan(model, &Options::default()).unwrap();
    says_the_same(&plan, &render_tableau(&plan).unwrap());
}

fn tenant(name: &str, share: f64, latency_ns: u64, capped: bool) -> Tenant {
    let share = Share::from_fraction(share).unwrap();
    Tenant {
        name: name.to_owned(),
        class: Class::Reserved(Reservation { share, latency_ns, capped }),
        vcpus: 1,
        affinity: None,
        pinned: false,
        exclusive_cores: false,
        oversubscribe: true,
        team: Team::default(),
        matcher: None,
    }
}

fn host(cpus: &str) -> Host {
    let cpus: CpuSet = cpus.parse().unwrap();
    Host {
        topology: Topology::flat(&cpus),
        cpus,
        housekeeping: CpuSet::default(),
        floor_ppb: 0,
        slot_min_ns: Host::SLOT_MIN_NS,
        placement: Placement::WorstFit,
        costs: Costs::default(),
        spares: Vec::new(),
        interference: rota_model::Interference::Off,
        branch_records: false,
    }
}

#[test]
fn a_dedicated_cpu_a_shared_one_and_an_idle_one() {
    let (plan, _) = small();
    says_the_same(&plan, &render_tableau(&plan).unwrap());
}

/// CPUs of different lengths, slots that touch and slots that do not, and a CPU number left out.
#[test]
fn lengths_of_their_own_are_written_out() {
    let tenants = [(0.3, 5), (0.2, 20), (0.1, 7), (0.6, 50), (0.25, 30), (0.05, 100)];
    let tenants = tenants.iter().enumerate();
    let tenants =
        tenants.map(|(name, &(share, ms))| tenant(&format!("t{name}"), share, ms * MS, name % 2 == 0));
    check(&Model { host: host("0,2-3"), tenants: tenants.collect() });
}

#[test]
fn what_there_is_no_room_for_is_refused() {
    let model = Model { host: host("64"), tenants: vec![tenant("a", 0.5, 20 * MS, false)] };
    let plan = plan(&model, &Options::default()).unwrap();
    assert_eq!(
        render_tableau(&plan).unwrap_err().to_string(),
        "CPU 64: a table of Tableau has room for CPUs below 64"
    );
}
