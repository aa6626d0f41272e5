//! `[host]`: the CPUs to plan for, and what is kept from tenants.

use toml::Spanned;
use toml::de::DeValue;

use super::Ground;
use super::error::Errors;
use super::table::Table;
use super::value;
use crate::{
    Costs, CpuPlace, CpuSet, Host, Interference, Placement, Reservation, Spare, Tenant, Topology, quote,
};

const KEYS: [&str; 15] = [
    "cpus",
    "housekeeping",
    "floor",
    "slot_min",
    "placement",
    "interference",
    "branch_records",
    "switch_cost",
    "migration_cost",
    "spares",
    "system",
    "siblings",
    "caches",
    "nodes",
    "sockets",
];
const TOPOLOGY_KEYS: [&str; 4] = ["siblings", "caches", "nodes", "sockets"];

/// Longer least slots would refuse nearly every latency bound that is worth asking for.
const SLOT_MIN_LIMIT_NS: u64 = 10_000_000;
/// More than a host has vCPUs.
const SPARES_LIMIT: u32 = 65_536;
/// What costs more than this, of a change of tasks or of a CPU, leaves nothing of the shorter periods.
const COST_LIMIT_NS: u64 = 1_000_000;

/// Reads `[host]`; none if its CPUs are wrong. Other mistakes are in `errors` alone.
pub(super) fn read(table: &Table, ground: &Ground, errors: &mut Errors) -> Option<Host> {
    table.refuse_unknown(&KEYS, errors);
    let housekeeping = table.read("housekeeping", errors, value::cpus);
    let floor_ppb = table.read("floor", errors, value::floor).unwrap_or(Host::FLOOR_PPB);
    let slot_min_ns = table.read("slot_min", errors, slot_min).unwrap_or(Host::SLOT_MIN_NS);
    let placement = table.read("placement", errors, placement).unwrap_or_default();
    let interference = table.read("interference", errors, interference).unwrap_or_default();
    let branch_records = table.read("branch_records", errors, value::truth).unwrap_or_default();
    let costs = Costs {
        switch_ns: table.read("switch_cost", errors, cost).unwrap_or(Costs::DEFAULT.switch_ns),
        migration_ns: table.read("migration_cost", errors, cost).unwrap_or(Costs::DEFAULT.migration_ns),
    };
    let cpus = match table.has("cpus") {
        true => table.read("cpus", errors, value::some_cpus)?,
        false => ground.machine.topology.cpus().difference(&ground.machine.isolated),
    };
    if cpus.is_empty() {
        errors.push(table.error("cpus", "the machine's CPUs are not known; write e.g. cpus = \"0-7\""));
        return None;
    }
    let topology = topology(table, &cpus, ground, errors);
    let housekeeping = housekeeping.unwrap_or_default();
    if ground.is_here {
        check_here(table, &cpus, &housekeeping, ground, errors);
    }
    let outside = housekeeping.difference(&cpus);
    if !outside.is_empty() {
        let message = format!("CPUs {outside} are not in host.cpus ({cpus}); leave them out");
        errors.push(table.error("housekeeping", message));
    } else if housekeeping == cpus {
        let message = format!("is all of host.cpus ({cpus}), which leaves tenants none; leave some out");
        errors.push(table.error("housekeeping", message));
    }
    let spares = table.tables("spares", errors).iter().filter_map(|entry| spare(entry, errors)).collect();
    Some(Host {
        cpus,
        housekeeping,
        topology,
        floor_ppb,
        slot_min_ns,
        placement,
        costs,
        spares,
        interference,
        branch_records,
    })
}

/// Whether this machine has the host's CPUs, and one that is online is left for tenants.
fn check_here(table: &Table, cpus: &CpuSet, housekeeping: &CpuSet, ground: &Ground, errors: &mut Errors) {
    let (online, offline) = (ground.machine.topology.cpus(), &ground.machine.offline);
    let all: CpuSet = online.iter().chain(offline.iter()).collect();
    let isolated = cpus.intersection(&ground.machine.isolated);
    let lacking = cpus.difference(&all);
    let message = if !lacking.is_empty() {
        format!(
            "CPUs {lacking} are not on this machine, which has {all}; leave them out, or use `rota plan` to plan for \
             another machine"
        )
    } else if !isolated.is_empty() {
        format!(
            "CPUs {isolated} are isolated, and no thread comes there by itself; leave them out, or boot without them \
             in isolcpus"
        )
    } else if cpus.difference(housekeeping).difference(offline).is_empty() {
        let offline = cpus.intersection(offline);
        format!("CPUs {offline} are offline, which leaves tenants none; bring one online, or write others")
    } else {
        return;
    };
    errors.push(table.error("cpus", message));
}

fn spare(table: &Table, errors: &mut Errors) -> Option<Spare> {
    const SPARE_KEYS: [&str; 3] = ["share", "latency", "count"];
    table.refuse_unknown(&SPARE_KEYS, errors);
    for (key, mend) in [("share", "e.g. share = 0.25"), ("latency", "e.g. latency = \"20ms\"")] {
        table.require(key, &SPARE_KEYS, mend, errors);
    }
    let share = table.read("share", errors, value::share);
    let latency_ns = table.read("latency", errors, value::latency);
    let count = match table.has("count") {
        true => table.read("count", errors, |count| value::whole(count, 1..=SPARES_LIMIT)),
        false => Some(1),
    };
    Some(Spare { share: share?, latency_ns: latency_ns?, count: count? })
}

/// The system's own tenant, on a host without housekeeping CPUs.
pub(super) fn system(table: &Table, host: Option<&Host>, errors: &mut Errors) -> Option<Tenant> {
    let mut reservation = Reservation::SYSTEM;
    if let Some(system) = table.table("system", "system = { share = 0.05, latency = \"50ms\" }", errors) {
        system.refuse_unknown(&["share", "latency"], errors);
        reservation.share = system.read("share", errors, value::share).unwrap_or(reservation.share);
        reservation.latency_ns =
            system.read("latency", errors, value::latency).unwrap_or(reservation.latency_ns);
    }
    let host = host?;
    if !host.housekeeping.is_empty() {
        if table.has("system") {
            let kept = &host.housekeeping;
            let message =
                format!("the system's tasks have the housekeeping CPUs ({kept}); remove one of the two");
            errors.push(table.error("system", message));
        }
        return None;
    }
    Some(Tenant::system(reservation, &host.cpus))
}

fn slot_min(value: &DeValue) -> Result<u64, String> {
    match value::duration(value)? {
        ns if ns > SLOT_MIN_LIMIT_NS => {
            Err(format!("{} would forbid most tables; write \"10ms\" at most", value::show(value)))
        }
        ns => Ok(ns),
    }
}

fn placement(value: &DeValue) -> Result<Placement, String> {
    const MEND: &str = "\"worst-fit\" (spread the load) or \"best-fit\" (free whole CPUs)";
    match value::text(value, MEND)? {
        "worst-fit" => Ok(Placement::WorstFit),
        "best-fit" => Ok(Placement::BestFit),
        other => Err(format!("{} is no placement; write {MEND}", quote(other))),
    }
}

fn interference(value: &DeValue) -> Result<Interference, String> {
    const MEND: &str = "\"off\", \"random\" or \"measured\"";
    match value::text(value, MEND)? {
        "off" => Ok(Interference::Off),
        "random" => Ok(Interference::Random),
        "measured" => Ok(Interference::Measured),
        other => Err(format!("{} is nothing that can be done; write {MEND}", quote(other))),
    }
}

fn cost(value: &DeValue) -> Result<u64, String> {
    match value::duration(value)? {
        ns if ns > COST_LIMIT_NS => {
            Err(format!("{} is more than many periods have; write \"1ms\" at most", value::show(value)))
        }
        ns => Ok(ns),
    }
}

/// The declared topology if any of it is declared; the machine's if it has all the CPUs; else a flat one, for another
/// machine is meant.
fn topology(table: &Table, cpus: &CpuSet, ground: &Ground, errors: &mut Errors) -> Topology {
    if !TOPOLOGY_KEYS.iter().any(|key| table.has(key)) {
        let (machine, offline) = (&ground.machine.topology, &ground.machine.offline);
        let is_this_machine = cpus.difference(&machine.cpus()).difference(offline).is_empty();
        // All of it: a sibling that is not in host.cpus is a sibling. Of those that are offline no place is known.
        return if is_this_machine { machine.with(offline) } else { Topology::flat(cpus) };
    }
    let [siblings, caches, nodes, sockets] = TOPOLOGY_KEYS.map(|key| Domains::read(table, key, cpus, errors));
    let place = |cpu| CpuPlace {
        cpu,
        core: siblings.list_of(cpu).and_then(CpuSet::first).unwrap_or(cpu),
        cache: caches.number_of(cpu),
        node: nodes.number_of(cpu),
        socket: sockets.number_of(cpu),
    };
    for core in &siblings.0 {
        for (key, domains) in [("caches", &caches), ("nodes", &nodes), ("sockets", &sockets)] {
            let mut numbers = core.iter().map(|cpu| domains.number_of(cpu));
            let first = numbers.next();
            if numbers.any(|number| Some(number) != first) {
                let message =
                    format!("\"{core}\" is one core, yet in several of host.{key}; correct one of the two");
                errors.push(table.error("siblings", message));
            }
        }
    }
    Topology { places: cpus.iter().map(place).collect() }
}

/// Disjoint CPU lists: the cores, caches, nodes or sockets of a machine.
struct Domains(Vec<CpuSet>);

impl Domains {
    fn read(table: &Table, key: &str, cpus: &CpuSet, errors: &mut Errors) -> Domains {
        let mut domains = Domains(Vec::new());
        let Some(value) = table.get(key) else { return domains };
        let DeValue::Array(items) = value.get_ref() else {
            let got = value::show(value.get_ref());
            errors.push(table.error(key, format!("{got} is no list; write e.g. [\"0-3\", \"4-7\"]")));
            return domains;
        };
        for item in items.iter() {
            match domains.admit(item, cpus) {
                Ok(list) => domains.0.push(list),
                Err(message) => {
                    errors.push(table.file.error(item.span().start, format!("host.{key}"), message));
                }
            }
        }
        domains
    }

    fn admit(&self, item: &Spanned<DeValue>, cpus: &CpuSet) -> Result<CpuSet, String> {
        let list = value::some_cpus(item.get_ref())?;
        let shown = quote(&list.to_string());
        let outside = list.difference(cpus);
        if !outside.is_empty() {
            return Err(format!("{shown} has CPUs {outside}, not in host.cpus ({cpus}); leave them out"));
        }
        let taken = list.iter().find(|cpu| self.list_of(*cpu).is_some());
        match taken {
            Some(cpu) => Err(format!("{shown} has CPU {cpu}, as an earlier list has; leave it out of one")),
            None => Ok(list),
        }
    }

    fn list_of(&self, cpu: u32) -> Option<&CpuSet> {
        self.0.iter().find(|list| list.contains(cpu))
    }

    /// The place of the CPU's list; the CPUs in none share one more number.
    fn number_of(&self, cpu: u32) -> u32 {
        self.0.iter().position(|list| list.contains(cpu)).unwrap_or(self.0.len()) as u32
    }
}
