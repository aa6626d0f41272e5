//! Random configurations: valid ones mean what was written, and no text makes the parser panic or point outside of it.
//! The seed is fixed, so that every run is the same.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use proptest::test_runner::RngSeed;
use rota_model::config::{Source, VCPUS_MAX, parse};
use rota_model::{
    Class, Costs, CpuPlace, CpuSet, Host, Match, Model, Placement, Reservation, Share, Spare, Team, Tenant,
    Topology,
};

const EXAMPLE: &str = include_str!("../../../examples/rota.toml");

fn fixed_seed(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A machine like no declared one: what is taken from it shows.
fn machine() -> Topology {
    let place =
        |cpu| CpuPlace { cpu, core: 100 + cpu / 2, cache: 200 + cpu / 4, node: 300 + cpu / 8, socket: 400 };
    Topology { places: (0..16).map(place).collect() }
}

fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

/// A nonempty list of CPUs of a host.
fn some_of(cpus: &CpuSet) -> impl Strategy<Value = CpuSet> + use<> {
    let cpus: Vec<u32> = cpus.iter().collect();
    let size = 1..=cpus.len();
    subsequence(cpus, size).prop_map(|cpus| cpus.into_iter().collect())
}

/// A duration in ns as someone may write it.
fn duration(ns: u64) -> impl Strategy<Value = (String, u64)> {
    select(vec![("ns", 0), ("us", 3), ("ms", 6), ("s", 9)]).prop_map(move |(unit, digits)| {
        let scale = 10u64.pow(digits);
        match (ns / scale, ns % scale) {
            (whole, 0) => (format!("{whole}{unit}"), ns),
            (whole, rest) => (format!("{whole}.{rest:0width$}{unit}", width = digits as usize), ns),
        }
    })
}

/// `[host]` and what it means.
fn host() -> impl Strategy<Value = (String, Host, Option<Reservation>)> {
    let cpus = subsequence((0..20).collect::<Vec<u32>>(), 2..20);
    let system = (1u32..=1_000_000_000, (1u64..3_600_000_000_000).prop_flat_map(duration));
    let times = [10_000_000, 1_000_000, 1_000_000].map(|most| (0u64..=most).prop_flat_map(duration));
    (cpus, any::<Index>(), 0u32..=500_000_000, times, proptest::option::of(system), any::<[bool; 4]>())
        .prop_map(|(cpus, kept, floor_ppb, times, system, [keeps, declared, defaults, packs])| {
            let all: CpuSet = cpus.iter().copied().collect();
            let kept = if keeps { kept.index(cpus.len()) } else { 0 };
            let housekeeping: CpuSet = cpus.iter().copied().take(kept).collect();
            let mut text = format!("[host]\ncpus = \"{all}\"\n");
            if kept > 0 {
                text += &format!("housekeeping = \"{housekeeping}\"\n");
            }
            let mut host = Host {
                cpus: all.clone(),
                housekeeping,
                topology: Topology::flat(&all),
                floor_ppb: Host::FLOOR_PPB,
                slot_min_ns: Host::SLOT_MIN_NS,
                placement: Placement::WorstFit,
                costs: Costs::DEFAULT,
                spares: Vec::new(),
                interference: rota_model::Interference::Off,
                branch_records: false,
            };
            if !defaults {
                let [(slot_min, slot_min_ns), (switch, switch_ns), (migration, migration_ns)] = times;
                text += &format!("floor = {}\nslot_min = \"{slot_min}\"\n", f64::from(floor_ppb) / 1e9);
                text += &format!("switch_cost = \"{switch}\"\nmigration_cost = \"{migration}\"\n");
                (host.floor_ppb, host.slot_min_ns) = (floor_ppb, slot_min_ns);
                host.costs = Costs { switch_ns, migration_ns };
            }
            if packs {
                text += "spares = [{ latency = \"20ms\", share = 0.25, count = 7 }, ";
                text += "{ share = 1, latency = \"1ms\" }]\n";
                let share = |ppb| Share::from_ppb(ppb).expect("in range");
                host.spares = vec![
                    Spare { share: share(250_000_000), latency_ns: 20_000_000, count: 7 },
                    Spare { share: Share::ONE, latency_ns: 1_000_000, count: 1 },
                ];
                text += "placement = \"best-fit\"\n";
                host.placement = Placement::BestFit;
            }
            if declared {
                // The first two CPUs are one core of the first node; the others share one more node.
                text += &format!("siblings = [\"{0},{1}\"]\nnodes = [\"{0},{1}\"]\n", cpus[0], cpus[1]);
                host.topology.places[1].core = cpus[0];
                host.topology.places.iter_mut().skip(2).for_each(|place| place.node = 1);
            } else if cpus.iter().all(|cpu| *cpu < 16) {
                host.topology = machine();
            }
            let mut reservation = Reservation::SYSTEM;
            if let (0, Some((share_ppb, (latency, latency_ns)))) = (kept, system) {
                let share = Share::from_ppb(share_ppb).expect("in range");
                text += &format!("system = {{ latency = \"{latency}\", share = {share} }}\n");
                reservation = Reservation { share, latency_ns, capped: false };
            }
            (text, host, (kept == 0).then_some(reservation))
        })
}

/// The node of a tenant's first CPU, and the tenant's CPUs in it.
fn node_of(host: &Host, affinity: Option<&CpuSet>) -> (u32, CpuSet) {
    let all = host.tenant_cpus();
    let cpus = affinity.unwrap_or(&all);
    let node = |cpu| host.topology.place(cpu).expect("a CPU of the host").node;
    let first = node(cpus.first().expect("an affinity is not empty"));
    (first, cpus.iter().filter(|&cpu| node(cpu) == first).collect())
}

fn may_be_exclusive(host: &Host, class: Class, affinity: Option<&CpuSet>) -> bool {
    let has_core = |cpu: u32| {
        let core = |cpu| host.topology.place(cpu).expect("a CPU of the host").core;
        let siblings = host.topology.cpus();
        siblings
            .iter()
            .filter(|&other| core(other) == core(cpu))
            .all(|other| host.tenant_cpus().contains(other))
    };
    let kept_apart = !host.housekeeping.is_empty() || host.topology.siblings().is_empty();
    let all = host.tenant_cpus();
    matches!(class, Class::Reserved(_)) && kept_apart && affinity.unwrap_or(&all).iter().any(has_core)
}

/// A class as a configuration writes it, and what it is.
fn class() -> impl Strategy<Value = (String, Class)> {
    let class =
        (0..3u32, 1u32..=1_000_000_000, (1u64..3_600_000_000_000).prop_flat_map(duration), any::<bool>());
    (class, 1u32..=10_000).prop_map(|((class, ppb, (latency, latency_ns), capped), weight)| match class {
        0 => {
            let share = Share::from_ppb(ppb).expect("in range");
            let text =
                format!("class = 'reserved'\nshare = {share}\nlatency = \"{latency}\"\ncapped = {capped}\n");
            (text, Class::Reserved(Reservation { share, latency_ns, capped }))
        }
        1 => (format!("class = \"shared\"\nweight = {weight:#x}\n"), Class::Shared { weight }),
        _ => ("class = \"background\"\n".to_owned(), Class::Background),
    })
}

/// Whether a tenant's slots may come together.
fn may_be_together(
    host: &Host,
    class: Class,
    vcpus: u32,
    affinity: Option<&CpuSet>,
    exclusive: bool,
) -> bool {
    let usable = if exclusive { host.exclusive_cpus() } else { host.tenant_cpus() };
    let usable = affinity.map_or(usable.clone(), |affinity| affinity.intersection(&usable));
    matches!(class, Class::Reserved(_)) && (2..=usable.len() as u32).contains(&vcpus)
}

/// A match as it is written; the container's id ends with `id`.
fn match_text(kind: u32, name: &str, id: &str) -> String {
    match kind {
        0 => format!("match = {{ cgroup = \"machine.slice/{name}/x\\\\x2d\" }}\n"),
        1 => format!("match.vm = \"cloud-hypervisor:{name}\"\n"),
        2 => format!("match = {{ unit = \"{name}x.service\" }}\n"),
        3 => format!("[tenant.match]\ncontainer = \"0123456789ab{id}\"\n"),
        _ => String::new(),
    }
}

/// And what it means.
fn match_of(kind: u32, name: &str, id: &str) -> Option<Match> {
    match kind {
        0 => Some(Match::Cgroup(format!("machine.slice/{name}/x\\x2d"))),
        1 => Some(Match::Vm { vmm: "cloud-hypervisor".to_owned(), name: name.to_owned() }),
        2 => Some(Match::Unit(format!("{name}x.service"))),
        3 => Some(Match::Container(format!("0123456789ab{id}"))),
        _ => None,
    }
}

/// Housekeeping CPUs may be named, too.
fn affinity_text(host: &Host, affinity: &CpuSet) -> String {
    let written: CpuSet = affinity.iter().chain(host.housekeeping.iter()).collect();
    format!("affinity = \"{written}\"\n")
}

/// One `[[tenant]]` of a name that begins with `t` and its number, and what it makes.
fn tenant(number: usize, host: &Host) -> impl Strategy<Value = (String, Vec<Tenant>)> + use<> {
    let affinity = proptest::option::of(some_of(&host.tenant_cpus()));
    let (host, match_kind, limits) = (host.clone(), 0..5u32, any::<[bool; 4]>());
    let count = proptest::option::of(1u32..20);
    (class(), 1u32..9, count, affinity, match_kind, limits, "[A-Za-z0-9._@:-]{0,20}").prop_map(
        move |(
            (class_text, class),
            vcpus,
            count,
            mut affinity,
            match_kind,
            [node, exclusive, together, oversubscribe],
            suffix,
        )| {
            let template = if count.is_some() { "{i}" } else { "" };
            let name = format!("t{number}-{template}-{suffix}");
            let mut text = format!("[[tenant]]\nname = \"{name}\"\nvcpus = {vcpus}\n{class_text}");
            if let Some(count) = count {
                text += &format!("count = {count}\n");
            }
            let is_reserved = matches!(class, Class::Reserved(_));
            affinity = affinity.filter(|_| is_reserved);
            text += &affinity.as_ref().map_or_else(String::new, |affinity| affinity_text(&host, affinity));
            if node && is_reserved {
                let (node, cpus) = node_of(&host, affinity.as_ref());
                text += &format!("node = {node}\n");
                affinity = Some(cpus);
            }
            let exclusive_cores = exclusive && may_be_exclusive(&host, class, affinity.as_ref());
            if exclusive_cores {
                text += "exclusive_cores = true\n";
            }
            if !oversubscribe {
                text += "oversubscribe = \"off\"\n";
            }
            let together =
                together && may_be_together(&host, class, vcpus, affinity.as_ref(), exclusive_cores);
            if together {
                text += "together = true\n";
            }
            text += &match_text(match_kind, &name, &format!("{number}f{template}"));
            let made = (0..count.unwrap_or(1)).map(|i| {
                let i = count.map_or(String::new(), |_| i.to_string());
                let name = format!("t{number}-{i}-{suffix}");
                let matcher = match_of(match_kind, &name, &format!("{number}f{i}"));
                Tenant {
                    name,
                    class,
                    vcpus,
                    affinity: affinity.clone(),
                    pinned: false,
                    exclusive_cores,
                    oversubscribe,
                    team: Team { together, ..Team::default() },
                    matcher,
                }
            });
            (text, made.collect())
        },
    )
}

/// The files of a valid configuration, and what they mean.
fn valid() -> impl Strategy<Value = (Vec<Source>, Model)> {
    let with_tenants = host().prop_flat_map(|(text, host, system)| {
        let tenants: Vec<_> = (0..6).map(|number| tenant(number, &host)).collect();
        (Just((text, host, system)), tenants, 0..=6usize, 0..=6usize)
    });
    with_tenants.prop_map(|((text, host, system), tenants, number, in_host_file)| {
        let mut sources = vec![source("rota.toml", &text)];
        let mut model = Model { host, tenants: Vec::new() };
        if let Some(reservation) = system {
            model.tenants.push(Tenant {
                name: "system".to_owned(),
                class: Class::Reserved(reservation),
                vcpus: model.host.cpus.len() as u32,
                affinity: Some(model.host.cpus.clone()),
                pinned: true,
                exclusive_cores: false,
                oversubscribe: false,
                team: Team::default(),
                matcher: None,
            });
        }
        for (index, (text, made)) in tenants.into_iter().take(number).enumerate() {
            match index < in_host_file {
                true => sources[0].text += &text,
                false => sources.push(source(&format!("tenants.d/{index}.toml"), &text)),
            }
            model.tenants.extend(made);
        }
        (sources, model)
    })
}

/// Parses, and checks that a model keeps what it promises and that errors point into the text.
fn survives(sources: &[Source]) {
    match parse(sources, &machine()) {
        Ok(model) => {
            let Model { host, tenants } = &model;
            assert!(!host.tenant_cpus().is_empty());
            assert!(host.housekeeping.difference(&host.cpus).is_empty());
            assert!(host.cpus.difference(&host.topology.cpus()).is_empty());
            assert_eq!(model.system().is_some(), host.housekeeping.is_empty());
            let names: BTreeSet<&str> = tenants.iter().map(|tenant| tenant.name.as_str()).collect();
            assert_eq!(names.len(), tenants.len());
            assert!(tenants.iter().map(|tenant| u64::from(tenant.vcpus)).sum::<u64>() <= VCPUS_MAX.into());
            for tenant in tenants {
                assert!(
                    (0..tenant.vcpus.min(64)).all(|k| !tenant.vcpu_cpus(k, &host.tenant_cpus()).is_empty())
                );
                assert!(tenant.affinity.iter().all(|cpus| cpus.difference(&host.tenant_cpus()).is_empty()));
            }
        }
        Err(errors) => {
            assert!(!errors.0.is_empty());
            for error in &errors.0 {
                let source = sources.iter().find(|source| source.path == error.path).expect("a file");
                let line = source.text.split('\n').nth(error.line - 1).expect("a line");
                assert!((1..=line.chars().count() + 1).contains(&error.column), "{error} in {line:?}");
                assert!(!error.key.is_empty() && error.message.len() < 1000, "{error}");
                assert!(!error.to_string().contains(char::is_control), "{error}");
                assert!(error.message.contains("; "), "no mend: {error}");
            }
        }
    }
}

/// What may stand in a configuration, right or wrong.
const WORDS: &[&str] = &[
    "[host]",
    "[[tenant]]",
    "[tenant]",
    "[[",
    "]",
    "{",
    "}",
    "=",
    ",",
    ".",
    "\"",
    "'",
    "\"\"\"",
    "#",
    "\n",
    "\r\n",
    "name",
    "count",
    "class",
    "vcpus",
    "share",
    "latency",
    "capped",
    "weight",
    "affinity",
    "match",
    "cgroup",
    "vm",
    "host",
    "tenant",
    "cpus",
    "housekeeping",
    "floor",
    "slot_min",
    "switch_cost",
    "migration_cost",
    "system",
    "siblings",
    "nodes",
    "{i}",
    "\"{i}\"",
    "\"reserved\"",
    "\"20ms\"",
    "\"0-3\"",
    "\"qemu:a\"",
    "0",
    "-1",
    "0.5",
    "1e999",
    "inf",
    "nan",
    "true",
    "\\u0000",
    "18446744073709551616",
    "\u{feff}",
    "\u{1f600}",
    "\0",
    "1979-05-27",
    "[\"0\", \"1\"]",
    "name = \"a\"\n",
    " ",
];

/// One of them, or any few characters.
fn token() -> impl Strategy<Value = String> {
    prop_oneof![4 => select(WORDS).prop_map(str::to_owned), 1 => "\\PC{0,3}"]
}

/// One change to a text: a part of it goes, and another text comes in its place.
fn mutation() -> impl Strategy<Value = (Index, usize, String)> {
    (
        any::<Index>(),
        prop_oneof![Just(0usize), 0..3usize, 0..40usize],
        prop_oneof![Just(String::new()), token()],
    )
}

fn mutate(text: &str, (at, length, token): &(Index, usize, String)) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    let start = at.index(characters.len() + 1);
    let end = (start + length).min(characters.len());
    characters.splice(start..end, token.chars());
    characters.into_iter().collect()
}

proptest! {
    #![proptest_config(fixed_seed(256))]

    #[test]
    fn valid_configurations_mean_what_was_written((sources, model) in valid()) {
        survives(&sources);
        match parse(&sources, &machine()) {
            Ok(parsed) => prop_assert_eq!(parsed, model),
            Err(errors) => prop_assert!(false, "{}\n{:?}", errors, sources),
        }
    }

    #[test]
    fn mutated_configurations_are_survived(
        (mut sources, _) in valid(),
        changes in proptest::collection::vec((any::<Index>(), mutation()), 1..4),
    ) {
        for (file, change) in changes {
            let file = file.index(sources.len());
            let text = &mut sources[file].text;
            *text = mutate(text, &change);
        }
        survives(&sources);
    }

    #[test]
    fn mutations_of_the_example_are_survived(changes in proptest::collection::vec(mutation(), 1..3)) {
        let text = changes.iter().fold(EXAMPLE.to_owned(), |text, change| mutate(&text, change));
        survives(&[source("rota.toml", &text)]);
    }
}

proptest! {
    #![proptest_config(fixed_seed(1024))]

    #[test]
    fn any_text_is_survived(text: String, more in "(?s).{0,40}") {
        survives(&[source("rota.toml", &text), source("more.toml", &more)]);
    }

    #[test]
    fn any_tokens_are_survived(tokens in proptest::collection::vec(token(), 0..30)) {
        survives(&[source("rota.toml", &tokens.concat()), source("more.toml", &tokens.join(" "))]);
    }
}

#[test]
fn the_example_is_what_it_says() {
    let model = parse(&[source("rota.toml", EXAMPLE)], &Topology::default()).unwrap();
    assert_eq!((model.host.cpus.len(), model.host.tenant_cpus().len(), model.tenants.len()), (48, 44, 93));
    assert_eq!(model.system(), None);
    assert_eq!(model.tenants[87].matcher, Some(Match::Cgroup("machine.slice/web-87".to_owned())));
    let [a, b] = [0, 24].map(|cpu| model.host.topology.place(cpu).expect("a CPU of the host"));
    assert_eq!((a.core, a.socket), (b.core, b.socket));
    assert_ne!(a.socket, model.host.topology.place(12).unwrap().socket);
}

#[test]
fn no_file_means_this_machine() {
    let model = parse(&[], &machine()).unwrap();
    assert_eq!(model.host.topology, machine());
    assert_eq!(model.system(), Some(0));
    assert_eq!(model.tenants[0].vcpu_cpus(3, &model.host.tenant_cpus()), [3].into_iter().collect());
    assert_eq!(
        parse(&[], &Topology::default()).unwrap_err().to_string(),
        "rota.toml:1:1: host.cpus: the machine's CPUs are not known; write e.g. cpus = \"0-7\""
    );
}

#[test]
fn the_ends_of_every_range_are_in_it() {
    let host = "[host]\nhousekeeping = \"0\"\nfloor = 0.5\nslot_min = \"10ms\"\nswitch_cost = \"1ms\"\n";
    let reserved = "[[tenant]]\nname = \"a\"\nclass = \"reserved\"\nshare = 1\nlatency = \"3600s\"\n";
    let shared = "[[tenant]]\nname = \"b\"\nclass = \"shared\"\nweight = 10000\n";
    // With the one vCPU of `a` and of `b`, as many as a table holds.
    let many = "[[tenant]]\nname = \"c{i}\"\ncount = 2\nclass = \"background\"\nvcpus = 524287\n";
    let model = parse(&[source("rota.toml", &[host, reserved, shared, many].concat())], &machine()).unwrap();
    assert_eq!((model.host.floor_ppb, model.host.slot_min_ns), (500_000_000, 10_000_000));
    assert_eq!(model.host.costs, Costs { switch_ns: 1_000_000, migration_ns: 0 });
    assert_eq!(model.tenants[0].reservation().unwrap().share, Share::ONE);
    assert_eq!(model.tenants[1].class, Class::Shared { weight: 10_000 });
    assert_eq!(model.tenants.iter().map(|tenant| tenant.vcpus).sum::<u32>(), VCPUS_MAX);
    let floor = parse(
        &[source("rota.toml", "[host]\nfloor = 0\nslot_min = \"0ns\"\nswitch_cost = \"0ns\"")],
        &machine(),
    )
    .unwrap();
    assert_eq!((floor.host.floor_ppb, floor.host.slot_min_ns), (0, 0));
    assert_eq!(floor.host.costs, Costs::default());
}

/// What is promised by an amount is all of it, and each vCPU has no more than one CPU.
#[test]
fn an_amount_of_cpu_makes_vcpus_and_a_share() {
    for (text, vcpus, ppb) in [
        ("cpus = 2.5", 3, 833_333_334),
        ("cpus = \"2500m\"", 3, 833_333_334),
        ("cpus = \"500m\"", 1, 500_000_000),
        ("cpus = 0.3", 1, 300_000_000),
        ("cpus = 2", 2, 1_000_000_000),
        ("cpus = \"2\"", 2, 1_000_000_000),
        ("cpus = 2\nvcpus = 4", 4, 500_000_000),
        ("cpus = 2.5\nvcpus = 4\nmatch = { vm = \"qemu:web\" }", 4, 625_000_000),
    ] {
        let tenant = format!("[[tenant]]\nname = \"a\"\nclass = \"reserved\"\nlatency = \"9ms\"\n{text}\n");
        let model = parse(&[source("rota.toml", &tenant)], &machine()).unwrap();
        let tenant = &model.tenants[1];
        assert_eq!((tenant.vcpus, tenant.reservation().unwrap().share.ppb()), (vcpus, ppb), "{text}");
    }
}
