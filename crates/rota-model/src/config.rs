//! The configuration: `rota.toml` for the host, and one file a tenant under `tenants.d/` if that is handier.
//!
//! The text is walked as a tree of TOML values that know their place, not deserialised into structures: so a reader
//! gets every mistake at once, each with its file, line, column, key and mend, and a mistake in one key hides no other.
//!
//! # Keys
//!
//! `[host]`, once, in the first file only; every key is optional:
//!
//! | key | value |
//! | --- | --- |
//! | `cpus` | CPU list, `"0-47"`; all CPUs of the machine that are online and not isolated by default |
//! | `housekeeping` | CPU list, a part of `cpus` but not all of it; none by default |
//! | `floor` | part of every CPU that stays unreserved, 0 to 0.5; 0.005 by default |
//! | `slot_min` | shortest slot that is planned, up to `"10ms"`; `"50us"` by default |
//! | `placement` | `"worst-fit"`: each vCPU to the CPU with most room, the default; `"best-fit"`: to the one with least that will do, which leaves other CPUs empty |
//! | `interference` | `"off"`, the default; `"random"`: vCPUs that are promised the same change places at random; `"measured"`: those that fill caches are spread |
//! | `branch_records` | the processor records branches all the time, by which more threads are seen that wait busily; `false` by default |
//! | `switch_cost` | what a change from one task to another takes of a CPU's time, up to `"1ms"`; `"5us"` by default: [`Costs::DEFAULT`](crate::Costs::DEFAULT) says what it stands for |
//! | `migration_cost` | what it takes beyond that if the vCPU ran on another CPU before, up to `"1ms"`; nothing by default |
//! | `system` | `{ share, latency }` of the system's own tenant on each CPU of a host without housekeeping CPUs; 0.05 and `"50ms"` by default |
//! | `siblings`, `caches`, `nodes`, `sockets` | lists of CPU lists: the threads of one core, and the CPUs of one last-level cache, NUMA node, socket |
//!
//! With any of the last row's keys the topology is the declared one: a CPU in no list of `siblings` is a core of its
//! own, and the CPUs in no list of another key share one more domain. With none of them it is the machine's, as long
//! as the machine has all of `cpus`; otherwise another machine is meant, and taken to be flat.
//!
//! `[[tenant]]`, any number, in any file:
//!
//! | key | value |
//! | --- | --- |
//! | `name` | letters, digits and `. _ - @ :`, a letter or digit first; `{i}` stands for 0, 1, ... with `count` |
//! | `count` | makes that many tenants of this one |
//! | `class` | `"reserved"`, `"shared"` or `"background"` |
//! | `vcpus` | 1 by default; with `cpus`, as many as that needs |
//! | `share`, `latency` | what each vCPU is promised: a fraction of one CPU, a duration; reserved only, and required there |
//! | `cpus` | what all vCPUs are promised together, in place of `share`: `2.5` or `"2500m"`; a VM has `vcpus` beside it |
//! | `capped` | never more than the share, `false` by default; reserved only |
//! | `weight` | 1 to 10000, 100 by default; shared only |
//! | `affinity` | CPU list; housekeeping CPUs in it are left out |
//! | `node` | the NUMA node whose CPUs it may use, by its number: its place in `nodes`, or the machine's; with `affinity`, what is in both |
//! | `exclusive_cores` | nobody else runs on the siblings of its CPUs, `false` by default; reserved only, on a host with housekeeping CPUs |
//! | `timetable` | a VM is shown when its vCPUs have their slots, `false` by default; reserved only |
//! | `monitor` | whose slots a VM's threads have that are no vCPUs: `"own"`, the default, `"system"`, or the name of a tenant without `match`; `{i}` may stand in it |
//! | `oversubscribe` | `"auto"`, the default: where the tenant's threads are more than its CPUs, a thread that waits busily gives way to the others; or `"off"` |
//! | `match` | one of `{ cgroup = "machine.slice/web" }`, `{ vm = "qemu:web" }`, `{ unit = "redis.service" }`, `{ container = "4f1c2a9be07d" }`, `{ pod = "0a1b2c3d-..." }`; `{i}` as in `name` |
//!
//! `[kubernetes]`, at most once, in the first file only, has the pods of this node be tenants:
//!
//! | key | value |
//! | --- | --- |
//! | `socket` | where the container runtime has its Node Resource Interface, `"/var/run/nri/nri.sock"` by default |
//! | `latency` | what a reserved pod is promised, and the least that it may ask for; `"20ms"` by default |
//!
//! A `match` is a whole name, never a pattern. `cgroup` is a path below the mount point of cgroups; what has a `\` in
//! it stands in single quotes. `unit` is a unit of the system's manager: one of a user's is matched by its cgroup.
//! `container` is an id in lower case, or its first 12 characters or more; a container's name is in no cgroup. `pod` is
//! the uid of a pod, as `kubectl get pod -o yaml` shows it.
//!
//! Durations are strings with a unit: `"20ms"`, `"1.5s"`; `ns`, `us`, `ms` or `s`.
//!
//! Kubernetes' classes map onto Rota's: Guaranteed is reserved and capped, Burstable is shared by what it requests,
//! BestEffort is background.
//!
//! A file that has a configuration and more in it, as a simulation's scenario has, is read by [`parse_with`], and the
//! more of it by the same means: [`Table`] and [`value`].

mod amount;
mod duration;
mod error;
mod host;
mod kubernetes;
mod matcher;
mod monitor;
mod syntax;
mod table;
mod tenant;
pub mod value;

use toml::de::DeTable;

use crate::{CpuSet, Host, Model, Tenant, Topology};

pub use duration::{DurationError, duration_ns};
pub use error::{ConfigError, ConfigErrors, Errors};
pub use kubernetes::Kubernetes;
pub use matcher::CGROUP_LEVELS;
pub use table::Table;

use error::File;
use tenant::Tenants;

/// One configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name in errors.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// The machine that a configuration is used on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its CPUs that are online.
    pub topology: Topology,
    /// Its CPUs that are not.
    pub offline: CpuSet,
    /// Those that no thread comes to by itself: `isolcpus` on the kernel's command line.
    pub isolated: CpuSet,
}

/// A configuration for the machine that it is read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    /// Without the CPUs that are offline: a tenant that may run on no other has none in it.
    pub model: Model,
    /// Which of the host's CPUs are offline.
    pub offline: CpuSet,
    /// How pods become tenants, if they do.
    pub kubernetes: Option<Kubernetes>,
}

/// What a configuration is read against.
struct Ground<'a> {
    machine: &'a Machine,
    /// It is to be used on that machine, and not only planned for.
    is_here: bool,
}

/// The most vCPUs of all tenants together: the table's limit.
pub const VCPUS_MAX: u32 = 1 << 20;

/// Reads the host file (the first source) and the files of `tenants.d/` (the others, where only tenants may stand).
/// `machine` is the topology of the machine this runs on, for what the host file leaves open.
///
/// # Errors
///
/// Every mistake in every file, in the order of the sources. A file that is not TOML is reported as such alone: what
/// the other files lack because of it is not known.
pub fn parse(sources: &[Source], machine: &Topology) -> Result<Model, ConfigErrors> {
    parse_with(sources, machine, &[], |_, _, _| ()).map(|(model, ())| model)
}

/// The same for files of which the first has more keys than a configuration, `keys`. `read` reads them from its root,
/// and is told the model, if that is without a mistake.
///
/// # Errors
///
/// Every mistake in every file, as [`parse`]; among them those that `read` has found.
pub fn parse_with<T>(
    sources: &[Source],
    machine: &Topology,
    keys: &[&str],
    read: impl FnOnce(&Table, Option<&Model>, &mut Errors) -> T,
) -> Result<(Model, T), ConfigErrors> {
    let machine = Machine { topology: machine.clone(), ..Machine::default() };
    let parsed = parse_on(sources, &Ground { machine: &machine, is_here: false }, keys, read)?;
    Ok((parsed.model, parsed.more))
}

/// As [`parse`], with what of the machine is offline or isolated: the first has no place there that is known, and the
/// others are not of the host unless it names them.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_for(sources: &[Source], machine: &Machine) -> Result<Model, ConfigErrors> {
    parse_on(sources, &Ground { machine, is_here: false }, &[], |_, _, _| ()).map(|parsed| parsed.model)
}

/// Reads the files for the machine itself, to be used there.
///
/// # Errors
///
/// As [`parse`]; and if the host has CPUs that the machine lacks or keeps isolated, or none that is online.
pub fn parse_here(sources: &[Source], machine: &Machine) -> Result<Here, ConfigErrors> {
    let parsed = parse_on(sources, &Ground { machine, is_here: true }, &[], |_, _, _| ())?;
    let Parsed { model, kubernetes, more: () } = parsed;
    let offline = model.host.cpus.intersection(&machine.offline);
    let model = if offline.is_empty() { model } else { model.without(&offline) };
    Ok(Here { model, offline, kubernetes })
}

/// Reads further tenants for a host that is known. Whether its other tenants have their names is for the caller to say.
///
/// # Errors
///
/// Every mistake in the file, as [`parse`].
pub fn parse_tenants(source: &Source, host: &Host) -> Result<Vec<Tenant>, ConfigErrors> {
    let tenants = read_tenants(source, Some(host))?;
    Ok(tenants.into_iter().map(|(tenant, _)| tenant).collect())
}

/// The same for hosts that are many: nothing if what the file says depends on which one is meant.
///
/// # Errors
///
/// As [`parse_tenants`].
pub fn parse_tenants_of_any(source: &Source) -> Result<Option<Vec<Tenant>>, ConfigErrors> {
    let tenants = read_tenants(source, None)?;
    Ok(tenants.into_iter().map(|(tenant, of_any)| of_any.then_some(tenant)).collect())
}

/// Each tenant of a file, and whether it means the same on every host.
fn read_tenants(source: &Source, host: Option<&Host>) -> Result<Vec<(Tenant, bool)>, ConfigErrors> {
    parse_keys(source, &["tenant"], |root, errors| {
        let mut of_any = Vec::new();
        let mut tenants = Tenants::new(host, None);
        for table in root.tables("tenant", errors) {
            tenants.read(&table, errors);
            of_any.resize(tenants.len(), !tenant::depends_on_host(&table));
        }
        tenants.finish(errors).into_iter().zip(of_any).collect()
    })
}

/// Reads a file that is no configuration and has the keys `keys` at its root; `read` reads them.
///
/// # Errors
///
/// Every mistake in the file, as [`parse`]; among them those that `read` has found.
pub fn parse_keys<T>(
    source: &Source,
    keys: &[&str],
    read: impl FnOnce(&Table, &mut Errors) -> T,
) -> Result<T, ConfigErrors> {
    let file = File::new(source);
    let (root, found) = DeTable::parse_recoverable(file.text);
    let mut errors: Errors = syntax::errors(&file, &found).into_iter().collect();
    if errors.is_empty() {
        let root = root.into_inner();
        let table = Table::new(&file, "", 0, &root);
        table.refuse_unknown(keys, &mut errors);
        let said = read(&table, &mut errors);
        if errors.is_empty() {
            return Ok(said);
        }
    }
    Err(error::in_reading_order(errors, std::slice::from_ref(source)))
}

/// What the files say.
struct Parsed<T> {
    model: Model,
    kubernetes: Option<Kubernetes>,
    more: T,
}

fn parse_on<T>(
    sources: &[Source],
    ground: &Ground,
    keys: &[&str],
    read: impl FnOnce(&Table, Option<&Model>, &mut Errors) -> T,
) -> Result<Parsed<T>, ConfigErrors> {
    let default = [Source { path: "rota.toml".to_owned(), text: String::new() }];
    let sources = if sources.is_empty() { &default } else { sources };
    let files: Vec<File> = sources.iter().map(File::new).collect();
    let mut errors = Errors::new();
    let mut roots = Vec::new();
    for file in &files {
        let (root, found) = DeTable::parse_recoverable(file.text);
        errors.extend(syntax::errors(file, &found));
        roots.push(root.into_inner());
    }
    if !errors.is_empty() {
        return Err(error::in_reading_order(errors, sources));
    }

    let nothing = DeTable::new();
    let tables = files.iter().zip(&roots).map(|(file, root)| Table::new(file, "", 0, root));
    let tables: Vec<Table> = tables.collect();
    let host_table = host_of(&tables[0], &nothing, &mut errors);
    let host = host::read(&host_table, ground, &mut errors);
    let system = host::system(&host_table, host.as_ref(), &mut errors);

    let kubernetes = kubernetes::read(&tables[0], &mut errors);
    let mut tenants = Tenants::new(host.as_ref(), system);
    for (index, root) in tables.iter().enumerate() {
        for key in ["host", "kubernetes"].into_iter().filter(|key| index > 0 && root.has(key)) {
            let message = format!("belongs in the host file only; move it to {}", files[0].path);
            errors.push(root.error(key, message));
        }
        let more = if index == 0 { keys } else { &[] };
        root.refuse_unknown(&[&["host", "kubernetes", "tenant"], more].concat(), &mut errors);
        for table in root.tables("tenant", &mut errors) {
            tenants.read(&table, &mut errors);
        }
    }
    let tenants = tenants.finish(&mut errors);
    let model = host.filter(|_| errors.is_empty()).map(|host| Model { host, tenants });
    let more = read(&tables[0], model.as_ref(), &mut errors);
    match model {
        Some(model) if errors.is_empty() => Ok(Parsed { model, kubernetes, more }),
        _ => Err(error::in_reading_order(errors, sources)),
    }
}

/// `[host]`, or `nothing` in its place.
fn host_of<'a>(root: &Table<'a>, nothing: &'a DeTable<'a>, errors: &mut Errors) -> Table<'a> {
    let table = root.table("host", "[host], once", errors);
    table.unwrap_or_else(|| Table::new(root.file, "host", 0, nothing))
}
