//! What items need and CPUs have to give, as a flow network.
//!
//! Items that may use the same CPUs are one node, and CPUs that the same items may use are another, so the network is
//! as small as the configuration is simple, however many vCPUs there are. An item that may use one CPU only is taken
//! from what that CPU gives at once and is no node: the system's own tenant has such a vCPU on every CPU.

use std::collections::{BTreeMap, HashMap};

use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::partition::Item;

/// Items that may use the same CPUs, two at least.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// Places in the list of items, ascending.
    pub items: Vec<usize>,
    /// The CPUs that they may use; all of them if absent.
    pub allowed: Option<&'a [usize]>,
    /// The domains of these CPUs, ascending.
    pub domains: Vec<usize>,
}

/// CPUs that the same groups may use.
#[derive(Debug)]
pub(crate) struct Domain {
    /// Ascending.
    pub cpus: Vec<usize>,
    /// Whether an item that wants a CPU to itself can have one here: no pinned item has a part of it.
    pub is_clean: bool,
}

/// A maximum flow: how much goes from each group to each domain in the order of [`Group::domains`].
pub(crate) type Flow = Vec<Vec<u64>>;

/// Groups of items, and the domains of CPUs that they may use.
#[derive(Debug)]
pub(crate) struct Network<'a> {
    pub groups: Vec<Group<'a>>,
    pub domains: Vec<Domain>,
    /// What each CPU has to give when its pinned items have theirs.
    pub room: Vec<u64>,
}

impl Network<'_> {
    /// The network of items on CPUs that give `capacity` each, or a CPU that has too little for its pinned items.
    pub fn new<'a>(items: &[Item<'a>], cpus: usize, capacity: u64) -> Result<Network<'a>, usize> {
        let mut room = vec![capacity; cpus];
        let mut groups: Vec<Group> = Vec::new();
        let mut by_cpus: HashMap<Option<&[usize]>, usize> = HashMap::new();
        // Most items with an affinity share one list of CPUs, and its address is sooner looked up than its content.
        let mut by_address: HashMap<Option<(*const usize, usize)>, usize> = HashMap::new();
        for (place, item) in items.iter().enumerate() {
            if let Some(cpu) = item.pinned(cpus) {
                let needed = item.load_of(capacity);
                room[cpu] = room[cpu].checked_sub(needed).ok_or(cpu)?;
                continue;
            }
            let address = item.allowed.map(|cpus| (cpus.as_ptr(), cpus.len()));
            let group = *by_address.entry(address).or_insert_with(|| {
                *by_cpus.entry(item.allowed).or_insert_with(|| {
                    groups.push(Group { items: Vec::new(), allowed: item.allowed, domains: Vec::new() });
                    groups.len() - 1
                })
            });
            groups[group].items.push(place);
        }
        let is_clean = |cpu: usize| room[cpu] == capacity;
        let domains = domains(&mut groups, cpus, is_clean);
        Ok(Network { groups, domains, room })
    }

    /// What the CPUs of each domain have to give.
    pub fn supplies(&self) -> Vec<u64> {
        self.domains.iter().map(|domain| domain.cpus.iter().map(|&cpu| self.room[cpu]).sum()).collect()
    }

    /// A maximum flow of the groups' demands to the domains' supplies, by Dinic's algorithm (1970).
    pub fn flow(&self, demands: &[u64], supplies: &[u64]) -> Flow {
        let mut graph: DiGraph<(), u64> = DiGraph::new();
        let (source, sink) = (graph.add_node(()), graph.add_node(()));
        let of_domain: Vec<NodeIndex> = supplies.iter().map(|_| graph.add_node(())).collect();
        let mut first_edges = Vec::with_capacity(demands.len());
        for (group, &demand) in self.groups.iter().zip(demands) {
            let node = graph.add_node(());
            graph.add_edge(source, node, demand);
            first_edges.push(graph.edge_count());
            for &domain in &group.domains {
                graph.add_edge(node, of_domain[domain], demand.min(supplies[domain]));
            }
        }
        for (&node, &supply) in of_domain.iter().zip(supplies) {
            graph.add_edge(node, sink, supply);
        }
        let (_, flows) = dinics(&graph, source, sink);
        let of_group = |(group, &first): (&Group, &usize)| flows[first..first + group.domains.len()].to_vec();
        self.groups.iter().zip(&first_edges).map(of_group).collect()
    }

    /// The groups that `group` competes with in a maximum flow, itself included: those that have flow to where it may
    /// go, and those that have flow to where these may go, and so on. If `group` has not all that it demands, no domain
    /// that any of them may use has anything left.
    pub fn rivals(&self, group: usize, flow: &Flow) -> Vec<usize> {
        let mut found = vec![false; self.groups.len()];
        let mut reached = vec![false; self.domains.len()];
        let mut open = vec![group];
        found[group] = true;
        while let Some(group) = open.pop() {
            for &domain in &self.groups[group].domains {
                if std::mem::replace(&mut reached[domain], true) {
                    continue;
                }
                for (other, entry) in self.groups.iter().enumerate() {
                    let has_flow = entry.domains.binary_search(&domain).is_ok_and(|at| flow[other][at] > 0);
                    if has_flow && !std::mem::replace(&mut found[other], true) {
                        open.push(other);
                    }
                }
            }
        }
        (0..found.len()).filter(|&group| found[group]).collect()
    }
}

/// Sorts the CPUs into domains, and tells the groups theirs.
fn domains(groups: &mut [Group], cpus: usize, is_clean: impl Fn(usize) -> bool) -> Vec<Domain> {
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); cpus];
    for (number, group) in groups.iter().enumerate() {
        for &cpu in group.allowed.unwrap_or_default() {
            members[cpu].push(number);
        }
    }
    let mut by_members: BTreeMap<(&[usize], bool), Vec<usize>> = BTreeMap::new();
    for (cpu, members) in members.iter().enumerate() {
        by_members.entry((members, is_clean(cpu))).or_default().push(cpu);
    }
    let mut domains = Vec::with_capacity(by_members.len());
    for (number, ((members, is_clean), cpus)) in by_members.into_iter().enumerate() {
        for &group in members {
            groups[group].domains.push(number);
        }
        domains.push(Domain { cpus, is_clean });
    }
    for group in groups.iter_mut().filter(|group| group.allowed.is_none()) {
        group.domains = (0..domains.len()).collect();
    }
    domains
}
