//! The rules of the guest's scheduler, compiled for this machine, held against an oracle: both decide the same of
//! guests at random, moment by moment. What becomes of guests in the course of time, the simulator shows
//! (`crates/rota-twin/tests/it/guest.rs`).

mod oracle;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bytemuck::{Pod, Zeroable};
use rota_sim::Rng;
use rota_table::{HostClock, OwnSlots, Timetable};

use crate::tables::Table;
use oracle::{BELIEF_NS, Cpu, Guest, LEAD_NS, STAY_NS};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;

/// `struct guest` of `rules/native.c`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Head {
    now: u64,
    nr_cpus: u32,
    bytes: u32,
    wakes: i32,
    unused: u32,
}

/// `struct seen`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Seen {
    taken: u64,
    distrusted: u64,
    busy: u32,
    queued: u32,
    home: i32,
    recalls: i32,
}

/// `struct decided`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
struct Decided {
    until: u64,
    is_there: u32,
    goes_on_on: i32,
}

/// Where a thread goes that wakes up, and what is decided of each vCPU.
#[derive(Debug, PartialEq, Eq)]
struct Decisions(i32, Vec<Decided>);

/// A guest, and its slots as they are published.
#[derive(Debug)]
struct Case {
    guest: Guest,
    timetable: Option<Timetable>,
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut rng = Rng::new(seed, 0);
        let cpus = rng.between(1, 6) as usize;
        let slots: Vec<OwnSlots> = (0..cpus as u32).filter_map(|index| own_slots(index, &mut rng)).collect();
        let now_ns = moment(&slots, &mut rng);
        let all = (0..cpus).map(|cpu| cpu_at_random(cpu, cpus, now_ns, &mut rng)).collect();
        let is_published = rng.chance(9, 10);
        let clock = HostClock::Own;
        let published = is_published.then_some(slots);
        let vcpus = published.clone();
        let timetable = vcpus.map(|vcpus| Timetable { generation: 1, from_ns: 0, clock, vcpus });
        let wakes = rng.below(cpus as u64) as usize;
        Case { guest: Guest { now_ns, timetable: published, cpus: all, wakes }, timetable }
    }

    /// What the compiled rules are given.
    fn bytes(&self) -> Vec<u8> {
        let Guest { now_ns, cpus, wakes, .. } = &self.guest;
        let table =
            self.timetable.as_ref().map(|timetable| Table::new(timetable, cpus.len() as u32).unwrap());
        let head = Head {
            now: *now_ns,
            nr_cpus: cpus.len() as u32,
            bytes: table.as_ref().map_or(0, |table| table.bytes.len() as u32),
            wakes: *wakes as i32,
            unused: 0,
        };
        let mut bytes = bytemuck::bytes_of(&head).to_vec();
        for of in cpus {
            let home = of.runs.map_or(-1, |home| home as i32);
            bytes.extend(bytemuck::bytes_of(&Seen {
                taken: of.taken_ns.unwrap_or(0),
                distrusted: of.distrusted_ns.unwrap_or(0),
                busy: of.runs.is_some().into(),
                queued: of.waiting as u32,
                home,
                recalls: if of.is_recalled { home } else { -1 },
            }));
        }
        if let Some(table) = table {
            bytes.extend(table.bytes);
            table.views.iter().for_each(|view| bytes.extend(bytemuck::bytes_of(view)));
        }
        bytes
    }

    /// What the oracle decides.
    fn decisions(&self) -> Decisions {
        let of = |cpu| Decided {
            until: self.guest.runs_until_ns(cpu).unwrap_or(0),
            is_there: self.guest.is_there(cpu).into(),
            goes_on_on: self.guest.goes_on_on(cpu).map_or(-1, |to| to as i32),
        };
        Decisions(self.guest.wakes_on() as i32, (0..self.guest.cpus.len()).map(of).collect())
    }
}

/// Slots of a vCPU; none for some.
fn own_slots(index: u32, rng: &mut Rng) -> Option<OwnSlots> {
    let length_ns = rng.between(2, 20) * MS + rng.below(2) * 270_260;
    let mut times: Vec<u64> =
        (0..2 * rng.below(4)).map(|_| rng.below(length_ns / (50 * US)) * 50 * US).collect();
    times.sort_unstable();
    times.dedup();
    times.truncate(times.len() / 2 * 2);
    let mut slots: Vec<(u64, u64)> = times.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    if let Some(last) = slots.last_mut()
        && rng.chance(1, 4)
    {
        last.1 = length_ns;
    }
    (!slots.is_empty()).then_some(OwnSlots { index, length_ns, slots })
}

/// A time, often about where something changes.
fn moment(slots: &[OwnSlots], rng: &mut Rng) -> u64 {
    let any_ns = rng.between(4_000 * MS, 5_000 * MS);
    if slots.is_empty() || rng.chance(1, 4) {
        return any_ns;
    }
    let own = &slots[rng.below(slots.len() as u64) as usize];
    let (start_ns, end_ns) = own.slots[rng.below(own.slots.len() as u64) as usize];
    let change_ns = any_ns / own.length_ns * own.length_ns + if rng.chance(1, 4) { start_ns } else { end_ns };
    let before_ns = [0, LEAD_NS, STAY_NS, LEAD_NS + STAY_NS][rng.below(4) as usize];
    let about_ns = [0, 1, 2, rng.below(40 * US)][rng.below(4) as usize];
    change_ns - before_ns + about_ns - 1
}

fn cpu_at_random(cpu: usize, cpus: usize, now_ns: u64, rng: &mut Rng) -> Cpu {
    let any = |rng: &mut Rng| rng.below(cpus as u64) as usize;
    let runs = rng.chance(1, 2).then(|| if rng.chance(1, 2) { cpu } else { any(rng) });
    let about = |rng: &mut Rng| now_ns - BELIEF_NS + 1 - rng.below(3);
    Cpu {
        is_recalled: runs.is_some_and(|home| home != cpu) && rng.chance(1, 2),
        waiting: runs.map_or(0, |_| rng.below(3) as usize),
        taken_ns: rng.chance(2, 3).then(|| now_ns - rng.below(3_000 * MS)),
        distrusted_ns: rng.chance(1, 6).then(|| if rng.chance(1, 2) { about(rng) } else { now_ns - MS }),
        runs,
    }
}

/// The rules, compiled, with a mistake in one of the files.
struct Rules {
    program: PathBuf,
}

/// A file, what is there once, and what is there instead.
type Mistake = (&'static str, &'static str, &'static str);

/// What the loader sets is a variable here.
const SETTINGS: Mistake =
    ("vcpu.bpf.h", "const volatile struct guest_settings", "volatile struct guest_settings");

impl Rules {
    fn compiled(folder: &Path, mistake: Option<Mistake>) -> Rules {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for file in ["live.h", "place.bpf.h", "vcpu.bpf.h"] {
            let mut text = std::fs::read_to_string(here.join("src/bpf").join(file)).unwrap();
            for (_, right, wrong) in mistake.into_iter().chain([SETTINGS]).filter(|(of, ..)| *of == file) {
                assert_eq!(text.matches(right).count(), 1, "{right}");
                text = text.replace(right, wrong);
            }
            std::fs::write(folder.join(file), text).unwrap();
        }
        let program = folder.join("rules");
        let clang = std::env::var_os("ROTA_CLANG").unwrap_or_else(|| "clang-19".into());
        let compiled = Command::new(clang)
            .current_dir(here)
            .args(["-O1", "-Wall", "-Werror", "-Wno-unused-function", "-fno-strict-aliasing", "-I"])
            .arg(folder)
            .args(["-I../rota-twin/src/native", "-I../rota-sched/src/bpf", "-I../rota-table/include"])
            .args(["src/rules/native.c", "-o"])
            .arg(&program)
            .status();
        assert!(compiled.expect("clang 19").success(), "rules/native.c does not compile");
        Rules { program }
    }

    fn decisions(&self, cases: &[Case]) -> Vec<Decisions> {
        let mut process = Command::new(&self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was just compiled");
        let (mut input, mut said) = (process.stdin.take().unwrap(), Vec::new());
        let bytes: Vec<u8> = cases.iter().flat_map(Case::bytes).collect();
        std::thread::scope(|scope| {
            // A program with a mistake may end before it has read all of it.
            scope.spawn(move || _ = input.write_all(&bytes));
            process.stdout.take().unwrap().read_to_end(&mut said).unwrap();
        });
        process.wait().unwrap();
        let mut rest = said.as_slice();
        let mut take = |size: usize| rest.split_off(..size).expect("an answer for each guest");
        let decided = |case: &Case, take: &mut dyn FnMut(usize) -> Vec<u8>| {
            let woken = bytemuck::pod_read_unaligned(&take(size_of::<i32>()));
            let each = case.guest.cpus.iter();
            Decisions(
                woken,
                each.map(|_| bytemuck::pod_read_unaligned(&take(size_of::<Decided>()))).collect(),
            )
        };
        cases.iter().map(|case| decided(case, &mut |size| take(size).to_vec())).collect()
    }
}

/// So many guests.
const CASES: u64 = 20_000;

/// Guests at random, and what the oracle decides.
fn guests() -> (Vec<Case>, Vec<Decisions>) {
    let cases: Vec<Case> = (0..CASES).map(Case::new).collect();
    let wanted = cases.iter().map(Case::decisions).collect();
    (cases, wanted)
}

/// In how many of them each kind of decision differs, with the first case.
fn differences(
    rules: &Rules,
    (cases, wanted): &(Vec<Case>, Vec<Decisions>),
) -> BTreeMap<&'static str, (u32, String)> {
    let mut found = BTreeMap::new();
    for ((case, wanted), real) in cases.iter().zip(wanted).zip(rules.decisions(cases)) {
        let mut note = |what, is_other: bool| {
            if is_other {
                let first = || (0, format!("{what}: {case:?}\nwanted {wanted:?}\nis     {real:?}"));
                found.entry(what).or_insert_with(first).0 += 1;
            }
        };
        note("wakes on", wanted.0 != real.0);
        for (wanted, real) in wanted.1.iter().zip(&real.1) {
            note("runs until", wanted.until != real.until);
            note("is there", wanted.is_there != real.is_there);
            note("goes on on", wanted.goes_on_on != real.goes_on_on);
        }
    }
    found
}

#[test]
fn a_guests_scheduler_decides_as_its_oracle() {
    let folder = tempfile::tempdir().unwrap();
    let found = differences(&Rules::compiled(folder.path(), None), &guests());
    for (what, (count, first)) in &found {
        println!("{what}: {count} times\n{first}");
    }
    assert!(found.is_empty());
}

/// Each of these is found.
const MISTAKES: [Mistake; 12] = [
    ("vcpu.bpf.h", "#define LEAD_NS\t    30000ULL", "#define LEAD_NS\t    30001ULL"),
    ("vcpu.bpf.h", "#define STAY_NS 200000ULL", "#define STAY_NS 199999ULL"),
    ("vcpu.bpf.h", "now - v->distrusted < BELIEF_NS ? 0", "now - v->distrusted <= BELIEF_NS ? 0"),
    ("vcpu.bpf.h", "for (i = 0; i < 3 && moment; i++)", "for (i = 0; i < 1 && moment; i++)"),
    (
        "vcpu.bpf.h",
        "!(moment & IN_SLOT) || end <= now ? 0 : end",
        "!(moment & IN_SLOT) || end < now ? 0 : end",
    ),
    ("vcpu.bpf.h", "\tif (!v->taken)\n\t\treturn ROTA_NEVER;\n", ""),
    ("place.bpf.h", "load == least && at > longest", "load == least && at < longest"),
    ("place.bpf.h", "at < first_at &&", "first_at && at < ROTA_NEVER &&"),
    ("place.bpf.h", "at + STAY_NS < from_at", "at < from_at"),
    ("place.bpf.h", "return v->busy && v->home != (s32)cpu;", "return v->busy && v->home == (s32)cpu;"),
    ("place.bpf.h", "recalls == t->home && may_run(p, recalls) && is_there(recalls)", "recalls == t->home"),
    ("place.bpf.h", "idles(i) && is_there(i))\n\t\t\treturn i;", "idles(i))\n\t\t\treturn i;"),
];

#[test]
fn a_mistake_in_the_rules_is_found() {
    let guests = guests();
    let is_found = |mistake: Mistake| {
        let folder = tempfile::tempdir().unwrap();
        !differences(&Rules::compiled(folder.path(), Some(mistake)), &guests).is_empty()
    };
    std::thread::scope(|scope| {
        let is_found = &is_found;
        let looks: Vec<_> = MISTAKES.iter().map(|mistake| scope.spawn(move || is_found(*mistake))).collect();
        for (mistake, look) in MISTAKES.iter().zip(looks) {
            assert!(look.join().unwrap(), "{mistake:?}");
        }
    });
}
