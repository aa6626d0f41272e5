//! `[[tenant]]`: templates, expanded and checked against the host and each other.

use std::collections::HashMap;

use toml::de::DeValue;

use super::amount;
use super::error::Errors;
use super::matcher;
use super::monitor;
use super::table::Table;
use super::{VCPUS_MAX, value};
use crate::{Class, CpuSet, Host, Match, Monitor, Reservation, Share, Team, Tenant, quote};

const KEYS: [&str; 18] = [
    "name",
    "count",
    "class",
    "vcpus",
    "cpus",
    "share",
    "latency",
    "capped",
    "weight",
    "affinity",
    "node",
    "exclusive_cores",
    "oversubscribe",
    "together",
    "matching",
    "timetable",
    "monitor",
    "match",
];

/// Keys that say what a reserved tenant is promised, or where its slots are.
const RESERVED: [&str; 10] = [
    "share",
    "cpus",
    "latency",
    "capped",
    "affinity",
    "node",
    "exclusive_cores",
    "together",
    "matching",
    "timetable",
];

/// Keys that are right on one host and wrong on another.
const OF_HOST: [&str; 4] = ["affinity", "node", "exclusive_cores", "together"];

/// Whether what a `[[tenant]]` says depends on its host.
pub(super) fn depends_on_host(table: &Table) -> bool {
    OF_HOST.iter().any(|key| table.has(key))
}

/// What `{i}` in a template stands for is written in this.
pub(super) const INDEX: &str = "{i}";

/// The longest name, with its number.
const NAME_MAX: usize = 100;

const WEIGHT_DEFAULT: u32 = 100;

/// Where a name or a match was first seen: file and line.
type Place<'a> = (&'a str, usize);

/// The tenants read so far.
pub(super) struct Tenants<'a> {
    host: Option<&'a Host>,
    list: Vec<Tenant>,
    names: HashMap<String, Place<'a>>,
    matches: HashMap<Match, Place<'a>>,
    /// The tables of VMs whose monitors' threads are another tenant's, with that one's name.
    monitored: Vec<(Table<'a>, String)>,
    vcpus: u64,
}

/// One `[[tenant]]` before its expansion.
struct Template {
    count: u32,
    tenant: Tenant,
}

impl<'a> Tenants<'a> {
    /// None yet but the system's own. Without a host, affinities are not checked against it.
    pub fn new(host: Option<&'a Host>, system: Option<Tenant>) -> Tenants<'a> {
        let vcpus = system.as_ref().map_or(0, |system| system.vcpus.into());
        let (names, matches, monitored) = Default::default();
        Tenants { host, list: system.into_iter().collect(), names, matches, monitored, vcpus }
    }

    /// Reads one `[[tenant]]` and adds what it makes.
    pub fn read(&mut self, table: &Table<'a>, errors: &mut Errors) {
        if let Some(template) = self.template(table, errors) {
            self.expand(&template, table, errors);
        }
    }

    /// How many have been read.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// All tenants, in the order of reading; the system's own first.
    pub fn finish(self, errors: &mut Errors) -> Vec<Tenant> {
        for (table, name) in &self.monitored {
            errors.extend(
                monitor::check(name, &self.list).err().map(|message| table.error("monitor", message)),
            );
        }
        self.list
    }

    /// One template, if all that its expansion needs is right.
    fn template(&self, table: &Table, errors: &mut Errors) -> Option<Template> {
        table.refuse_unknown(&KEYS, errors);
        let count = table.read("count", errors, |value| value::whole(value, 1..=VCPUS_MAX));
        let indexed = table.has("count");
        table.require("name", &KEYS, "e.g. name = \"web\"", errors);
        let name = table.read("name", errors, |value| name(value, indexed, count.unwrap_or(1)));
        let vcpus = table.read("vcpus", errors, |value| value::whole(value, 1..=VCPUS_MAX));
        let affinity = table.read("affinity", errors, |value| affinity(value, self.host));
        let node = table.read("node", errors, |value| node(value, affinity.as_ref(), self.host));
        let affinity = node.flatten().or(affinity);
        let exclusive_cores = table
            .read("exclusive_cores", errors, |value| exclusive_cores(value, affinity.as_ref(), self.host));
        let oversubscribe = table.read("oversubscribe", errors, oversubscribe);
        let matcher = matcher::read(table, indexed, errors);
        let cpus = table.read("cpus", errors, |value| cpus(value, vcpus, matcher.as_ref()));
        let vcpus = vcpus.or(cpus.map(|(vcpus, _)| vcpus)).unwrap_or(1);
        let class = class(table, vcpus, cpus.map(|(_, share)| share), errors);
        let usable = self.host.map(|host| {
            let cpus = if exclusive_cores == Some(true) { host.exclusive_cpus() } else { host.tenant_cpus() };
            affinity.as_ref().map_or_else(|| cpus.clone(), |affinity| affinity.intersection(&cpus))
        });
        let together = table.read("together", errors, |value| together(value, vcpus, usable.as_ref()));
        let matching = table.read("matching", errors, |value| {
            matching(value, vcpus, together, class.as_ref(), matcher.as_ref())
        });
        let timetable = table.read("timetable", errors, |value| timetable(value, matcher.as_ref()));
        let monitor = table.read("monitor", errors, |value| monitor::read(value, indexed, matcher.as_ref()));
        let (name, class) = (name?, class?);
        Some(Template {
            count: count.unwrap_or(1),
            tenant: Tenant {
                name,
                class,
                vcpus,
                affinity,
                pinned: false,
                exclusive_cores: exclusive_cores.unwrap_or(false),
                oversubscribe: oversubscribe.unwrap_or(true),
                team: Team {
                    together: together.unwrap_or(false),
                    matching: matching.unwrap_or(false),
                    timetable: timetable.unwrap_or(false),
                    monitor: monitor.unwrap_or_default(),
                    parts: Vec::new(),
                },
                matcher,
            },
        })
    }

    fn expand(&mut self, template: &Template, table: &Table<'a>, errors: &mut Errors) {
        let Template { count, tenant } = template;
        let before = self.vcpus;
        self.vcpus += u64::from(*count) * u64::from(tenant.vcpus);
        if self.vcpus > VCPUS_MAX.into() {
            if before <= VCPUS_MAX.into() {
                let key = if table.has("count") { "count" } else { "vcpus" };
                let message = format!(
                    "the tenants up to here have {} vCPUs, and a table holds {VCPUS_MAX}; write fewer",
                    self.vcpus
                );
                errors.push(table.error(key, message));
            }
            return;
        }
        let place = |key| (table.file.path, table.line(key));
        for index in 0..*count {
            let index = index.to_string();
            let fill = |text: &str| text.replace(INDEX, &index);
            let name = fill(&tenant.name);
            if let Some((path, line)) = self.names.insert(name.clone(), place("name")) {
                let message = format!("{} is a name at {path}:{line} too; choose another", quote(&name));
                return errors.push(table.error("name", message));
            }
            let matcher = tenant.matcher.as_ref().map(|matcher| matcher::fill(matcher, fill));
            if let Some(matcher) = &matcher
                && let Some((path, line)) = self.matches.insert(matcher.clone(), place("match"))
            {
                let message = format!("{matcher} is matched at {path}:{line} too; a task has one tenant");
                return errors.push(table.error("match", message));
            }
            let affinity = tenant.affinity.clone();
            let mut team = tenant.team.clone();
            if let Monitor::Tenant(name) = &mut team.monitor {
                *name = fill(name);
                self.monitored.push((table.clone(), name.clone()));
            }
            self.list.push(Tenant { name, affinity, team, matcher, ..*tenant });
        }
    }
}

/// A name that is safe on a terminal and as a part of a cgroup's path, `{i}` aside.
fn name(value: &DeValue, indexed: bool, count: u32) -> Result<String, String> {
    let name = value::text(value, "e.g. \"web\"")?;
    let shown = quote(name);
    if name == Tenant::SYSTEM {
        return Err(format!("{shown} is the tenant of the system's own tasks; choose another name"));
    }
    matches_count(name, indexed)?;
    let longest = name.replace(INDEX, &(count - 1).to_string());
    if let Some(bad) = longest.chars().find(|c| !c.is_ascii_alphanumeric() && !"._-@:".contains(*c)) {
        return Err(format!("{shown} has the character {bad:?}; write letters, digits and . _ - @ : only"));
    }
    if !longest.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return Err(format!("{shown} does not begin with a letter or a digit; write e.g. \"web\""));
    }
    if longest.len() > NAME_MAX {
        return Err(format!("{shown} is longer than {NAME_MAX} characters; shorten it"));
    }
    Ok(name.to_owned())
}

/// Checks that a text has `{i}` if and only if there is a count.
pub(super) fn matches_count(text: &str, indexed: bool) -> Result<(), String> {
    match (text.contains(INDEX), indexed) {
        (true, false) => {
            Err(format!("{} has {INDEX}, but there is no count; write e.g. count = 4", quote(text)))
        }
        (false, true) => {
            Err(format!("{} is the same for every one of count; write {INDEX} into it", quote(text)))
        }
        _ => Ok(()),
    }
}

/// The CPUs of a tenant, housekeeping left out.
fn affinity(value: &DeValue, host: Option<&Host>) -> Result<CpuSet, String> {
    let cpus = value::some_cpus(value)?;
    let Some(host) = host else { return Ok(cpus) };
    let outside = cpus.difference(&host.cpus);
    if !outside.is_empty() {
        return Err(format!("CPUs {outside} are not in host.cpus ({}); leave them out", host.cpus));
    }
    let usable = cpus.difference(&host.housekeeping);
    if usable.is_empty() {
        let tenant_cpus = host.tenant_cpus();
        return Err(format!("has housekeeping CPUs ({cpus}) only; write some of {tenant_cpus}"));
    }
    Ok(usable)
}

/// The CPUs of a NUMA node, of those of the affinity; none if the host is not known.
fn node(value: &DeValue, affinity: Option<&CpuSet>, host: Option<&Host>) -> Result<Option<CpuSet>, String> {
    let number = value::whole(value, 0..=u32::MAX)?;
    let Some(host) = host else { return Ok(None) };
    let of_node = |cpu: &u32| host.topology.place(*cpu).is_some_and(|place| place.node == number);
    let cpus: CpuSet = host.cpus.iter().filter(of_node).collect();
    if cpus.is_empty() {
        let nodes = host.topology.places.iter().filter(|place| host.cpus.contains(place.cpu));
        let mut nodes: Vec<u32> = nodes.map(|place| place.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
        let (s, nodes) = (if nodes.len() == 1 { "" } else { "s" }, nodes.join(", "));
        return Err(format!(
            "the host's CPUs are in node{s} {nodes}; write one of these, or correct host.nodes"
        ));
    }
    let usable = cpus.difference(&host.housekeeping);
    if usable.is_empty() {
        return Err(format!("node {number} has housekeeping CPUs ({cpus}) only; write another"));
    }
    let Some(affinity) = affinity else { return Ok(Some(usable)) };
    match usable.intersection(affinity) {
        none if none.is_empty() => Err(format!(
            "node {number} has CPUs {usable}, the affinity has {affinity}; they have none in common; correct one of \
             the two"
        )),
        both => Ok(Some(both)),
    }
}

/// Whether to keep siblings from others: needs cores that have no CPU for the system, and no system on its CPUs.
fn exclusive_cores(value: &DeValue, affinity: Option<&CpuSet>, host: Option<&Host>) -> Result<bool, String> {
    let wanted = value::truth(value)?;
    let Some(host) = host.filter(|_| wanted) else { return Ok(wanted) };
    let exclusive = host.exclusive_cpus();
    let cpus = affinity.map_or_else(|| exclusive.clone(), |cpus| cpus.intersection(&exclusive));
    if host.housekeeping.is_empty() && !host.topology.siblings().is_empty() {
        return Err(
            "without housekeeping CPUs the system's tasks run on every CPU, siblings too; write e.g. \
                    host.housekeeping = \"0-1\""
                .to_owned(),
        );
    }
    if cpus.is_empty() {
        let cpus = affinity.map_or_else(|| host.tenant_cpus(), CpuSet::clone);
        return Err(format!(
            "each of its CPUs ({cpus}) has a sibling that tenants may not use; give it others"
        ));
    }
    Ok(wanted)
}

/// Whether threads that wait busily give way.
fn oversubscribe(value: &DeValue) -> Result<bool, String> {
    const MEND: &str = "\"auto\" or \"off\"";
    match value::text(value, MEND)? {
        "auto" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("{} is neither; write {MEND}", quote(other))),
    }
}

/// Whether all vCPUs have their slots at the same times: needs several, and a CPU for each.
fn together(value: &DeValue, vcpus: u32, usable: Option<&CpuSet>) -> Result<bool, String> {
    if !value::truth(value)? {
        return Ok(false);
    }
    if vcpus < 2 {
        return Err(
            "one vCPU has nobody to be together with; write vcpus = 2, or more, or remove it".to_owned()
        );
    }
    match usable.filter(|cpus| cpus.len() < vcpus as usize) {
        Some(cpus) => Err(format!(
            "{vcpus} vCPUs at the same time need as many CPUs, and the tenant may use {} ({cpus}); write fewer vCPUs, \
             or give it more CPUs",
            cpus.len()
        )),
        None => Ok(true),
    }
}

/// Whether parts of the total go to vCPUs by their load: needs several whose parts are their own, and may differ.
fn matching(
    value: &DeValue,
    vcpus: u32,
    together: Option<bool>,
    class: Option<&Class>,
    matcher: Option<&Match>,
) -> Result<bool, String> {
    if !value::truth(value)? {
        return Ok(false);
    }
    let is_whole =
        |class: &&Class| matches!(class, Class::Reserved(reservation) if reservation.share == Share::ONE);
    let refusal = if vcpus < 2 {
        "one vCPU has all there is; write vcpus = 2, or more, or remove it"
    } else if together == Some(true) {
        "vCPUs whose slots come together have the same part each; keep one of the two keys"
    } else if class.filter(is_whole).is_some() {
        "each vCPU has a CPU to itself, which leaves nothing to divide; remove it, or write a lower share"
    } else if !matches!(matcher, Some(Match::Vm { .. })) {
        "is for VMs: any thread of a container uses what any of its vCPUs has; remove it, or write match.vm"
    } else {
        return Ok(true);
    };
    Err(refusal.to_owned())
}

/// Whether a VM is shown its slots: nothing in a container could use them.
fn timetable(value: &DeValue, matcher: Option<&Match>) -> Result<bool, String> {
    if value::truth(value)? && !matches!(matcher, Some(Match::Vm { .. })) {
        return Err("is for VMs, whose kernels can use it; remove it, or write match.vm".to_owned());
    }
    value::truth(value)
}

/// The class with the keys that belong to it. `each` is what `cpus` makes of a share.
fn class(table: &Table, vcpus: u32, each: Option<Share>, errors: &mut Errors) -> Option<Class> {
    let share = table.read("share", errors, |value| share(value, vcpus)).or(each);
    let latency_ns = table.read("latency", errors, value::latency);
    let capped = table.read("capped", errors, value::truth).unwrap_or(false);
    let weight = table.read("weight", errors, |value| value::whole(value, 1..=10_000));
    let weight = weight.unwrap_or(WEIGHT_DEFAULT);
    let name = class_name(table, errors)?;
    let reserved = RESERVED.map(|key| (key, "reserved"));
    for (key, fits) in reserved.into_iter().chain([("weight", "shared")]) {
        if table.has(key) && fits != name {
            let message = format!("does not fit class \"{name}\"; remove it, or write class = \"{fits}\"");
            errors.push(table.error(key, message));
        }
    }
    match name {
        "reserved" => {
            if table.has("cpus") && table.has("share") {
                errors.push(table.error("cpus", "says of all vCPUs what share says of each; keep one"));
            } else if !table.has("cpus") {
                let mend = "what each vCPU is promised, e.g. share = 0.25, or all of them, e.g. cpus = 2.5";
                table.require("share", &KEYS, mend, errors);
            }
            table.require("latency", &KEYS, "the longest wait of a vCPU, e.g. latency = \"20ms\"", errors);
            Some(Class::Reserved(Reservation { share: share?, latency_ns: latency_ns?, capped }))
        }
        "shared" => Some(Class::Shared { weight }),
        _ => Some(Class::Background),
    }
}

/// What each vCPU is promised. More than one CPU is what several of them have.
fn share(value: &DeValue, vcpus: u32) -> Result<Share, String> {
    match (amount::meant(value), value.as_str()) {
        (Some(cpus), _) if cpus > 1.0 => {
            let vcpus = f64::from(vcpus).max(cpus.ceil());
            let each = (cpus / vcpus * 1e4).round() / 1e4;
            Err(format!(
                "{} is more than one CPU, and a share is what each vCPU has of one; write cpus = {cpus}, or e.g. \
                 vcpus = {vcpus} and share = {each}",
                value::show(value)
            ))
        }
        (Some(fraction), Some(_)) => {
            Err(format!("{} is no share of one CPU; write share = {fraction}", value::show(value)))
        }
        _ => value::share(value),
    }
}

/// How many vCPUs share an amount of CPU, and what each has of it: no more than one CPU, and together no less than all.
fn cpus(value: &DeValue, vcpus: Option<u32>, matcher: Option<&Match>) -> Result<(u32, Share), String> {
    let total_ppb = amount::cpus(value)?;
    let least = total_ppb.div_ceil(amount::ONE_PPB) as u32; // CpuSet::LIMIT at most
    let vcpus = match (vcpus, matcher) {
        (Some(vcpus), _) if vcpus < least => {
            return Err(format!(
                "{} is more than {vcpus} vCPUs can have; write vcpus = {least}, or more",
                value::show(value)
            ));
        }
        (Some(vcpus), _) => vcpus,
        (None, Some(Match::Vm { .. })) => {
            return Err("does not say how many vCPUs the VM has; write that too, e.g. vcpus = 4".to_owned());
        }
        (None, _) => least,
    };
    let each_ppb = total_ppb.div_ceil(u64::from(vcpus)) as u32;
    let share = Share::from_ppb(each_ppb).expect("at most one CPU, with as many vCPUs as the least");
    Ok((vcpus, share))
}

fn class_name(table: &Table, errors: &mut Errors) -> Option<&'static str> {
    const MEND: &str = "\"reserved\", \"shared\" or \"background\"";
    table.require("class", &KEYS, &format!("class = {MEND}"), errors);
    table.read("class", errors, |value| match value::text(value, MEND)? {
        "reserved" => Ok("reserved"),
        "shared" => Ok("shared"),
        "background" => Ok("background"),
        other => Err(format!("{} is no class; write {MEND}", quote(other))),
    })
}
