//! From a scenario's text to its values.

use std::collections::BTreeMap;
use std::slice;

use rota_model::config::{ConfigErrors, Errors, Source, Table, parse_with, value};
use rota_model::{Match, Model, TenantId, Topology, quote};
use rota_sim::{Costs, Distribution, Help, Memory};
use toml::de::DeValue;

use super::programs::{KINDS, Keys, Kind};
use super::{Interference, Pattern, Scenario, Within, Workload};

/// The keys beside those of a configuration.
const KEYS: [&str; 7] = ["duration", "warm_up", "seed", "costs", "workload", "guest", "interference"];

/// The keys of every workload.
const WORKLOAD_KEYS: [&str; 7] =
    ["tenant", "program", "working_set", "references", "overlap", "bound", "cpus_in_turn"];

/// What a template's name has in the place of a number.
const INDEX: &str = "{i}";

/// All of a scenario but its model.
struct Rest {
    costs: Costs,
    duration_ns: u64,
    warm_up_ns: u64,
    seed: u32,
    workloads: Vec<Workload>,
    helps: BTreeMap<TenantId, Within>,
    interference: Option<Interference>,
}

pub(super) fn scenario(source: &Source) -> Result<Scenario, ConfigErrors> {
    // Which machine reads this has nothing to do with what is simulated.
    let machine = Topology::default();
    let (model, rest) = parse_with(slice::from_ref(source), &machine, &KEYS, read)?;
    let Rest { costs, duration_ns, warm_up_ns, seed, workloads, helps, interference } = rest;
    let seed = seed.into();
    Ok(Scenario { model, costs, duration_ns, warm_up_ns, seed, workloads, helps, interference, replay: None })
}

fn read(root: &Table, model: Option<&Model>, errors: &mut Errors) -> Rest {
    Rest {
        duration_ns: root.read("duration", errors, some_duration).unwrap_or(10_000_000_000),
        warm_up_ns: root.read("warm_up", errors, value::duration).unwrap_or(1_000_000_000),
        seed: root.read("seed", errors, |value| value::whole(value, 0..=u32::MAX)).unwrap_or(1),
        costs: costs(root, errors),
        workloads: root
            .tables("workload", errors)
            .iter()
            .filter_map(|table| workload(table, model, errors))
            .collect(),
        helps: root
            .tables("guest", errors)
            .iter()
            .filter_map(|table| guest(table, model, errors))
            .flatten()
            .collect(),
        interference: interference(root, model, errors),
    }
}

/// What helps the guests of some tenants.
fn guest(table: &Table, model: Option<&Model>, errors: &mut Errors) -> Option<Vec<(TenantId, Within)>> {
    const KNOWN: [&str; 2] = ["tenant", "help"];
    table.refuse_unknown(&KNOWN, errors);
    table.require("tenant", &KNOWN, "a tenant's name, e.g. tenant = \"web\"", errors);
    table.require("help", &KNOWN, HELPS_MEND, errors);
    let tenants = named(table, "tenant", model, errors);
    let help = table.read("help", errors, |value| {
        let help = match value::text(value, "e.g. \"timetable\"")? {
            "none" => Within::Plain(Help::None),
            "pause-exits" => Within::Plain(Help::PauseExits),
            "upcalls" => Within::Plain(Help::Upcalls),
            "timetable" => Within::Agent,
            other => return Err(format!("{} is no help; write one of {HELPS_MEND}", quote(other))),
        };
        let all_are = |model: &Model| tenants.iter().flatten().all(|id| is_vm(model, *id));
        match model.is_none_or(all_are) {
            true => Ok(help),
            false => Err("is for the guest of a VM; remove it, or write match.vm for the tenant".to_owned()),
        }
    });
    let help = help?;
    Some(tenants?.into_iter().map(|id| (id, help)).collect())
}

const HELPS_MEND: &str = "\"none\", \"pause-exits\", \"upcalls\", \"timetable\"";

fn is_vm(model: &Model, id: TenantId) -> bool {
    matches!(model.tenants[id as usize].matcher, Some(Match::Vm { .. }))
}

fn costs(root: &Table, errors: &mut Errors) -> Costs {
    let mut costs = Costs::default();
    let Some(table) = root.table("costs", "[costs], once", errors) else { return costs };
    let fields = [
        ("switch", &mut costs.switch_ns),
        ("migration", &mut costs.migration_ns),
        ("refill_per_kib", &mut costs.refill_ns_per_kib),
        ("kick", &mut costs.kick_ns),
        ("idle_exit", &mut costs.idle_exit_ns),
        ("interrupt", &mut costs.interrupt_ns),
        ("timer_slack", &mut costs.timer_slack_ns),
        ("tick", &mut costs.tick_ns),
        ("vm_exit", &mut costs.vm_exit_ns),
    ];
    table.refuse_unknown(&fields.each_ref().map(|(key, _)| *key), errors);
    for (key, field) in fields {
        // Without these the time would stand still.
        let least_ns = u64::from(matches!(key, "kick" | "tick"));
        let read = |value: &DeValue| match value::duration(value)? {
            ns if ns < least_ns => {
                Err(format!("{} is too little; write \"1ns\" at least", value::show(value)))
            }
            ns => Ok(ns),
        };
        *field = table.read(key, errors, read).unwrap_or(*field);
    }
    costs
}

fn workload(table: &Table, model: Option<&Model>, errors: &mut Errors) -> Option<Workload> {
    let tenants = tenants(table, model, errors);
    table.require("program", &["program"], &format!("one of {}", names()), errors);
    let kind = table.read("program", errors, kind)?;
    let known = [&WORKLOAD_KEYS, kind.keys].concat();
    table.refuse_unknown(&known, errors);
    let working_set_kib = table.read("working_set", errors, |value| value::whole(value, 0..=u32::MAX));
    let working_set_kib = working_set_kib.unwrap_or(0);
    let memory = memory(table, working_set_kib, errors);
    let bound = table.read("bound", errors, |value| bound(value, tenants.as_deref(), model));
    let cpus_in_turn = table.read("cpus_in_turn", errors, |value| counts(value, tenants.as_deref(), model));
    let work = (kind.read)(&Keys { table, known: &known }, errors);
    Some(Workload {
        tenants: tenants?,
        work: work?,
        working_set_kib: working_set_kib.into(),
        memory,
        bound: bound.unwrap_or(false),
        cpus_in_turn: cpus_in_turn.unwrap_or_default(),
    })
}

/// How many CPUs a container's threads may use, in turn. A VM's threads have its vCPUs instead.
fn counts(value: &DeValue, tenants: Option<&[TenantId]>, model: Option<&Model>) -> Result<Vec<u32>, String> {
    let Some(values) = value.as_array().filter(|values| !values.is_empty()) else {
        return Err(format!("{} is no list of numbers; write e.g. [2, 8, 4]", value::show(value)));
    };
    let most = model.map_or(u32::MAX, |model| model.host.tenant_cpus().len() as u32);
    let counts = values.iter().map(|count| value::whole(count.get_ref(), 1..=most)).collect();
    match (tenants, model) {
        (Some(tenants), Some(model)) if tenants.iter().any(|id| is_vm(model, *id)) => {
            Err("is for a container; remove it, or the tenant's match.vm".to_owned())
        }
        _ => counts,
    }
}

/// Whether threads stay on their vCPUs: those of a guest may.
fn bound(value: &DeValue, tenants: Option<&[TenantId]>, model: Option<&Model>) -> Result<bool, String> {
    let wanted = value::truth(value)?;
    let (Some(tenants), Some(model), true) = (tenants, model, wanted) else { return Ok(wanted) };
    match tenants.iter().all(|id| is_vm(model, *id)) {
        true => Ok(true),
        false => Err("is for threads in a VM; remove it, or write match.vm for the tenant".to_owned()),
    }
}

/// How a working set is referred to, if caches are to be simulated.
pub(super) fn memory(table: &Table, working_set_kib: u32, errors: &mut Errors) -> Option<Memory> {
    let references = table.read("references", errors, |value| value::whole(value, 0..=1_000));
    let overlap = table.read("overlap", errors, |value| value::whole(value, 1..=64));
    let references_per_us = references.filter(|references| *references > 0)?;
    if working_set_kib == 0 {
        let message = "refer to nothing; write how many KiB, e.g. working_set = 2048";
        errors.push(table.error("references", message));
        return None;
    }
    Some(Memory { working_set_kib, references_per_us, overlap: overlap.unwrap_or(1) })
}

fn interference(root: &Table, model: Option<&Model>, errors: &mut Errors) -> Option<Interference> {
    const KNOWN: [&str; 7] =
        ["pattern", "tenants", "target", "every", "working_set", "references", "overlap"];
    let table = root.table("interference", "[interference], once", errors)?;
    table.refuse_unknown(&KNOWN, errors);
    for (key, mend) in [
        ("pattern", "\"random\" or \"targeted\""),
        ("tenants", "how many, e.g. tenants = 30"),
        ("target", "a tenant's name, e.g. target = \"web\""),
        ("references", "e.g. references = 50"),
    ] {
        table.require(key, &KNOWN, mend, errors);
    }
    let pattern = table.read("pattern", errors, |value| match value.as_str() {
        Some("random") => Ok(Pattern::Random),
        Some("targeted") => Ok(Pattern::Targeted),
        _ => Err(format!("{} is no pattern; write \"random\" or \"targeted\"", value::show(value))),
    });
    let tenants = table.read("tenants", errors, |value| value::whole(value, 1..=100_000));
    let target = named(&table, "target", model, errors);
    let working_set_kib = table.read("working_set", errors, |value| value::whole(value, 0..=u32::MAX));
    let memory = memory(&table, working_set_kib.unwrap_or(0), errors);
    let every_ns = table.read("every", errors, some_duration);
    let seconds = if pattern? == Pattern::Random { 10 } else { 1 };
    let every_ns = every_ns.unwrap_or(seconds * 1_000_000_000);
    let target = *target?.first()?;
    Some(Interference { pattern: pattern?, tenants: tenants?, target, every_ns, memory: memory? })
}

/// The tenants that are meant; none without a model.
fn tenants(table: &Table, model: Option<&Model>, errors: &mut Errors) -> Option<Vec<TenantId>> {
    table.require("tenant", &WORKLOAD_KEYS, "a tenant's name, e.g. tenant = \"web\"", errors);
    named(table, "tenant", model, errors)
}

/// The tenants that a key names.
pub(super) fn named(
    table: &Table,
    key: &str,
    model: Option<&Model>,
    errors: &mut Errors,
) -> Option<Vec<TenantId>> {
    table.read(key, errors, |value| {
        let name = value::text(value, "a tenant's name, e.g. \"web\"")?;
        let Some(model) = model else { return Ok(Vec::new()) };
        let meant = |tenant: &&rota_model::Tenant| is_called(&tenant.name, name);
        let found = (0..).zip(&model.tenants).filter(|(_, tenant)| meant(tenant));
        let found: Vec<TenantId> = found.map(|(id, _)| id).collect();
        match found.is_empty() {
            true => Err(format!("{} is no tenant; {}", quote(name), tenants_known(model))),
            false => Ok(found),
        }
    })
}

fn tenants_known(model: &Model) -> String {
    let names: Vec<&str> = model.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    match names[..] {
        [] => "there are none; write a [[tenant]]".to_owned(),
        [first, second, third, fourth, _, ..] => {
            format!("write one of {first}, {second}, {third}, {fourth} and {} more", names.len() - 4)
        }
        _ => format!("write one of {}", names.join(", ")),
    }
}

/// Whether a tenant's name is `pattern`, with digits in the place of each `{i}`.
fn is_called(name: &str, pattern: &str) -> bool {
    let Some((before, after)) = pattern.split_once(INDEX) else { return name == pattern };
    let Some(rest) = name.strip_prefix(before) else { return false };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    digits > 0 && is_called(&rest[digits..], after)
}

fn kind(value: &DeValue) -> Result<&'static Kind, String> {
    let name = value::text(value, "e.g. \"hog\"")?;
    let found = KINDS.iter().find(|kind| kind.name == name);
    found.ok_or_else(|| format!("{} is no program; write one of {}", quote(name), names()))
}

fn names() -> String {
    KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

/// A duration of at least 1 ns.
pub(super) fn some_duration(value: &DeValue) -> Result<u64, String> {
    match value::duration(value)? {
        0 => Err(format!("{} is no time; write more, e.g. \"2ms\"", value::show(value))),
        ns => Ok(ns),
    }
}

/// What times are drawn from.
pub(super) fn distribution(value: &DeValue) -> Result<Distribution, String> {
    const MEND: &str = "write \"2ms\", { uniform = [\"1ms\", \"3ms\"] } or { exponential = \"2ms\" }";
    let DeValue::Table(entries) = value else { return some_duration(value).map(Distribution::Constant) };
    let mut entries = entries.iter();
    let (Some((name, value)), None) = (entries.next(), entries.next()) else {
        return Err(format!("has not one entry; {MEND}"));
    };
    match (name.get_ref().as_ref(), value.get_ref()) {
        ("exponential", mean) => Ok(Distribution::Exponential(some_duration(mean)?)),
        ("uniform", DeValue::Array(limits)) if limits.len() == 2 => {
            let least_ns = value::duration(limits[0].get_ref())?;
            let most_ns = some_duration(limits[1].get_ref())?;
            if least_ns > most_ns {
                let [least, most] = [0, 1].map(|place: usize| value::show(limits[place].get_ref()));
                return Err(format!("{least} is more than {most}; exchange the two"));
            }
            Ok(Distribution::Uniform(least_ns, most_ns))
        }
        _ => Err(format!("{} means nothing here; {MEND}", quote(name.get_ref()))),
    }
}
