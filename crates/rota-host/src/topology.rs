//! This machine's CPUs, as sysfs describes them.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use rota_model::config::Machine;
use rota_model::{CpuPlace, CpuSet, Topology};

/// Where Linux describes CPUs and NUMA nodes.
pub const SYSFS: &str = "/sys/devices/system";

/// The places of all online CPUs. `system` is [`SYSFS`] but in tests.
///
/// What a machine does not tell (a guest without cache information, a kernel without NUMA) is taken for shared by the
/// whole socket, or by the machine.
///
/// # Errors
/// If the list of online CPUs cannot be read.
pub fn read(system: &Path) -> Result<Topology> {
    let online = cpus(&system.join("cpu/online"))?;
    let nodes = nodes(system);
    let places = online.iter().map(|cpu| place(system, cpu, &nodes)).collect();
    Ok(Topology { places })
}

/// The machine with what of it is offline or isolated. What a kernel does not tell of these is taken for none.
///
/// # Errors
/// As [`read`].
pub fn machine(system: &Path) -> Result<Machine> {
    let topology = read(system)?;
    let told = |name: &str| cpus(&system.join("cpu").join(name)).unwrap_or_default();
    let offline = told("present").difference(&topology.cpus());
    Ok(Machine { topology, offline, isolated: told("isolated") })
}

/// The online CPUs.
///
/// # Errors
/// As [`read`].
pub fn online(system: &Path) -> Result<CpuSet> {
    cpus(&system.join("cpu/online"))
}

/// One more than the highest number that a CPU of this machine can ever have.
///
/// # Errors
/// If the list of possible CPUs cannot be read.
pub fn possible_count(system: &Path) -> Result<u32> {
    let path = system.join("cpu/possible");
    let last = cpus(&path)?.last().with_context(|| format!("{} is empty", path.display()))?;
    Ok(last + 1)
}

fn cpus(path: &Path) -> Result<CpuSet> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    text.trim().parse().with_context(|| format!("understanding {}", path.display()))
}

fn place(system: &Path, cpu: u32, nodes: &HashMap<u32, u32>) -> CpuPlace {
    let folder = system.join(format!("cpu/cpu{cpu}"));
    let number =
        |name: &str| -> Option<u32> { std::fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok() };
    // A group of CPUs is known by its first: `core_id` alone is unique within a socket only.
    let first = |name: &str| cpus(&folder.join(name)).ok()?.iter().next();
    let socket = number("topology/physical_package_id").unwrap_or(0);
    CpuPlace {
        cpu,
        core: first("topology/thread_siblings_list").unwrap_or(cpu),
        cache: first("cache/index3/shared_cpu_list")
            .or_else(|| first("topology/core_siblings_list"))
            .unwrap_or(0),
        node: nodes.get(&cpu).copied().unwrap_or(0),
        socket,
    }
}

/// Each CPU's NUMA node.
fn nodes(system: &Path) -> HashMap<u32, u32> {
    let mut nodes = HashMap::new();
    for entry in std::fs::read_dir(system.join("node")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse::<u32>().ok());
        if let (Some(node), Ok(cpus)) = (number, cpus(&entry.path().join("cpulist"))) {
            nodes.extend(cpus.iter().map(|cpu| (cpu, node)));
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    #[test]
    fn siblings_caches_nodes_and_sockets_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "cpu/online", "0-3");
        write(root, "cpu/possible", "0-7");
        for (cpu, siblings, cache, socket) in
            [(0, "0,2", "0-3", 0), (1, "1,3", "0-3", 0), (2, "0,2", "0-3", 0), (3, "1,3", "0-3", 1)]
        {
            write(root, &format!("cpu/cpu{cpu}/topology/thread_siblings_list"), siblings);
            write(root, &format!("cpu/cpu{cpu}/topology/physical_package_id"), &socket.to_string());
            write(root, &format!("cpu/cpu{cpu}/cache/index3/shared_cpu_list"), cache);
        }
        write(root, "node/node0/cpulist", "0-1");
        write(root, "node/node1/cpulist", "2-3");
        write(root, "node/online", "0-1");

        let topology = read(root).unwrap();
        let place = |cpu, core, node, socket| CpuPlace { cpu, core, cache: 0, node, socket };
        assert_eq!(
            topology.places,
            [place(0, 0, 0, 0), place(1, 1, 0, 0), place(2, 0, 1, 0), place(3, 1, 1, 1)]
        );
        assert_eq!(possible_count(root).unwrap(), 8);
        assert_eq!(online(root).unwrap().to_string(), "0-3");

        assert_eq!(machine(root).unwrap(), Machine { topology: topology.clone(), ..Machine::default() });
        write(root, "cpu/present", "0-5");
        write(root, "cpu/isolated", "3");
        let found = machine(root).unwrap();
        assert_eq!(
            (found.offline.to_string(), found.isolated.to_string()),
            ("4-5".to_owned(), "3".to_owned())
        );
    }

    #[test]
    fn what_is_not_told_is_shared() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "cpu/online", "0,5");
        let topology = read(folder.path()).unwrap();
        let place = |cpu| CpuPlace { cpu, core: cpu, cache: 0, node: 0, socket: 0 };
        assert_eq!(topology.places, [place(0), place(5)]);
    }

    #[test]
    fn this_machine_has_a_topology() {
        let topology = read(Path::new(SYSFS)).unwrap();
        assert!(!topology.places.is_empty());
        assert!(possible_count(Path::new(SYSFS)).unwrap() as usize >= topology.places.len());
    }
}
