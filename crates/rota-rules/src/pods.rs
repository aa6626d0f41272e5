//! Pods as tenants: what Kubernetes' classes mean here, and what a pod's author may ask for beside that.
//!
//! | class | tenant |
//! | --- | --- |
//! | Guaranteed | reserved and capped, with the CPUs that it requests |
//! | Burstable | shared, with a weight of 100 for each CPU that it requests |
//! | BestEffort | background |
//!
//! An annotation `rota/KEY` is the key of a tenant. Whoever may make a pod writes it, so it gives no more than
//! Kubernetes has admitted: a pod is promised at most what it requests, and no shorter waits than the node's
//! configuration says.

mod refusal;

use std::collections::{BTreeMap, BTreeSet};

use rota_model::config::{ConfigErrors, Here, Kubernetes, Machine, Source, parse_here};
use rota_model::{Class, Pod, Qos, Reservation, Tenant};

pub use refusal::{Reason, Refusal};

/// What annotations begin with.
const PREFIX: &str = "rota/";
/// The keys of a tenant that a pod's author may write.
const KEYS: [&str; 8] = ["class", "cpus", "vcpus", "share", "latency", "capped", "weight", "oversubscribe"];
/// Those that only a reservation has.
const OF_RESERVED: [&str; 5] = ["cpus", "vcpus", "share", "latency", "capped"];
/// What each vCPU of a pod that asks for several has at least, in thousandths of a CPU: the least slots of many vCPUs
/// are more than they are promised together.
const VCPU_MILLIS_MIN: u64 = 10;
/// The longest name of a tenant.
const NAME_MAX: usize = 100;
/// A thousandth of a CPU, in the unit of shares.
const PPB_OF_MILLI: u64 = 1_000_000;

/// A configuration with the pods of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What the files say, with a tenant more for each pod.
    pub here: Here,
    /// By pod (`namespace/name`) why it is not served as its author asks.
    pub refused: BTreeMap<String, Refusal>,
}

/// How much of what a pod asks for is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Used {
    /// All.
    Annotations,
    /// What its class says.
    Class,
    /// Nothing: it is no tenant.
    Nothing,
}

/// A pod on its way to be a tenant.
struct Candidate<'a> {
    pod: &'a Pod,
    /// Of the tenant.
    name: String,
    used: Used,
    refused: Option<Refusal>,
}

/// Reads the files for this machine, with the pods as further tenants if there is a `[kubernetes]`.
///
/// # Errors
///
/// As [`parse_here`]. Pods are no error: one that asks for what it cannot have is served as its class says.
pub fn parse_node(sources: &[Source], machine: &Machine, pods: &[Pod]) -> Result<Node, ConfigErrors> {
    let here = parse_here(sources, machine)?;
    let Some(kubernetes) = here.kubernetes.clone().filter(|_| !pods.is_empty()) else {
        return Ok(Node { here, refused: BTreeMap::new() });
    };
    let mut candidates = candidates(pods, here.model.host.tenant_cpus().len());
    loop {
        let written: Vec<Source> =
            candidates.iter().filter_map(|candidate| candidate.written(&kubernetes)).collect();
        let (wrong, errors) = match parse_here(&[sources, &written].concat(), machine) {
            Ok(here) => match beyond_requests(&candidates, &here, &kubernetes) {
                none if none.is_empty() => return Ok(node(here, candidates)),
                wrong => (wrong, ConfigErrors::default()),
            },
            Err(errors) => (by_path(&errors), errors),
        };
        // Each round takes something back from somebody, so this ends.
        let mut is_anybodys = false;
        for candidate in &mut candidates {
            if let Some(reason) = wrong.get(&candidate.path()) {
                candidate.take_back(reason.clone());
                is_anybodys = true;
            }
        }
        if !is_anybodys {
            return Err(errors);
        }
    }
}

fn node(here: Here, candidates: Vec<Candidate>) -> Node {
    let refused =
        candidates.into_iter().filter_map(|candidate| Some((label(candidate.pod), candidate.refused?)));
    Node { here, refused: refused.collect() }
}

/// What an operator knows a pod by.
fn label(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}

/// Each pod with a name that no other has. `cpus` is how many the node has for tenants.
fn candidates(pods: &[Pod], cpus: usize) -> Vec<Candidate<'_>> {
    let mut names = BTreeSet::new();
    let candidate = |pod| {
        let name = tenant_name(pod);
        let is_free = name.len() <= NAME_MAX && names.insert(name.clone());
        let name = if is_free { name } else { format!("pod-{}", pod.uid) };
        let mut candidate = Candidate { pod, name, used: Used::Annotations, refused: None };
        if let Some(reason) = foreign(pod).or_else(|| beyond_node(pod, cpus)) {
            candidate.take_back(reason);
        }
        candidate
    };
    pods.iter().map(candidate).collect()
}

/// Which annotation is none of a pod's author.
fn foreign(pod: &Pod) -> Option<Refusal> {
    let (foreign, _) = asked(&pod.annotations).find(|(key, _)| !KEYS.contains(key))?;
    let keys = KEYS.join(", ");
    let why = format!("{PREFIX}{foreign} is no annotation that counts; those are {PREFIX} and {keys}");
    Some(Refusal::new(Reason::Annotation, why))
}

/// Whether the pod asks for more virtual CPUs than the node has CPUs. Together they would be more than tables hold.
fn beyond_node(pod: &Pod, cpus: usize) -> Option<Refusal> {
    let (_, vcpus) = asked(&pod.annotations).find(|(key, _)| *key == "vcpus")?;
    let is_beyond = vcpus.parse().is_ok_and(|vcpus: f64| vcpus > cpus as f64);
    let why = || format!("asks for {vcpus} vCPUs, and this node has {cpus} CPUs for tenants; ask for fewer");
    is_beyond.then(|| Refusal::new(Reason::Vcpus, why()))
}

/// What the tenant of a pod is called.
fn tenant_name(pod: &Pod) -> String {
    format!("{}.{}", pod.namespace, pod.name)
}

/// The first mistake of each file.
fn by_path(errors: &ConfigErrors) -> BTreeMap<String, Refusal> {
    let mut wrong = BTreeMap::new();
    for error in &errors.0 {
        let refusal = || Refusal::new(Reason::Annotation, format!("{}: {}", error.key, error.message));
        wrong.entry(error.path.clone()).or_insert_with(refusal);
    }
    wrong
}

/// The pods that ask for more than they request, and why not.
fn beyond_requests(
    candidates: &[Candidate],
    here: &Here,
    kubernetes: &Kubernetes,
) -> BTreeMap<String, Refusal> {
    let tenants: BTreeMap<&str, &Tenant> =
        here.model.tenants.iter().map(|tenant| (tenant.name.as_str(), tenant)).collect();
    let asking = candidates.iter().filter(|candidate| candidate.used == Used::Annotations);
    let wrong = asking.filter_map(|candidate| {
        let tenant = tenants.get(candidate.name.as_str())?;
        Some((candidate.path(), beyond_request(candidate.pod, tenant, kubernetes)?))
    });
    wrong.collect()
}

fn beyond_request(pod: &Pod, tenant: &Tenant, kubernetes: &Kubernetes) -> Option<Refusal> {
    let requested = pod.request_millis;
    match tenant.class {
        Class::Reserved(Reservation { share, latency_ns, .. }) => {
            // Shares of several vCPUs are rounded up, by less than a millionth of a request.
            let total_ppb = u64::from(share.ppb()) * u64::from(tenant.vcpus);
            let asked = total_ppb.saturating_sub(u64::from(tenant.vcpus)).div_ceil(PPB_OF_MILLI);
            if asked > requested {
                let why = format!(
                    "asks for {asked}m of CPU and requests {requested}m; request as much, or ask for less"
                );
                return Some(Refusal::new(Reason::Request, why));
            }
            let least_of_all = u64::from(tenant.vcpus) * VCPU_MILLIS_MIN;
            if tenant.vcpus > 1 && asked < least_of_all {
                let why = format!(
                    "asks for {asked}m of CPU for {} vCPUs, and each takes {VCPU_MILLIS_MIN}m at least; ask for fewer",
                    tenant.vcpus
                );
                return Some(Refusal::new(Reason::Vcpus, why));
            }
            let least_ns = kubernetes.latency_ns;
            let why = || {
                format!(
                    "asks for waits of {} us at most, and this node promises none below {} us; ask for those, or set \
                     kubernetes.latency",
                    latency_ns / 1_000,
                    least_ns / 1_000
                )
            };
            (latency_ns < least_ns).then(|| Refusal::new(Reason::Latency, why()))
        }
        Class::Shared { weight } => {
            let most = Class::weight_of_millis(requested);
            let why = || {
                format!("asks for weight {weight}, and its request has {most}; request more, or ask for less")
            };
            (weight > most).then(|| Refusal::new(Reason::Request, why()))
        }
        Class::Background => None,
    }
}

impl Candidate<'_> {
    /// What its tenant's errors are found by.
    fn path(&self) -> String {
        format!("pod {} ({})", label(self.pod), self.pod.uid)
    }

    /// Gives up what is wrong.
    fn take_back(&mut self, Refusal { reason, why }: Refusal) {
        self.used = match self.used {
            Used::Annotations if asked(&self.pod.annotations).next().is_some() => Used::Class,
            _ => Used::Nothing,
        };
        let why = why.strip_prefix("tenant.").unwrap_or(&why);
        let (served, reason) = match self.used {
            Used::Nothing => ("it is no tenant", Reason::NoTenant),
            _ => ("it is served as its class says", reason),
        };
        self.refused = Some(Refusal::new(reason, format!("{why}; {served}")));
    }

    /// Its tenant as a configuration file, if it is one.
    fn written(&self, kubernetes: &Kubernetes) -> Option<Source> {
        let mut keys: BTreeMap<&str, String> = match self.used {
            Used::Annotations => asked(&self.pod.annotations).collect(),
            Used::Class => BTreeMap::new(),
            Used::Nothing => return None,
        };
        let millis = self.pod.request_millis;
        let has_reserved = OF_RESERVED.iter().any(|key| keys.contains_key(key));
        let class = match self.pod.qos {
            _ if has_reserved => "reserved",
            Qos::Guaranteed if millis > 0 => "reserved",
            Qos::Guaranteed | Qos::Burstable => "shared",
            Qos::BestEffort => "background",
        };
        let class = keys.entry("class").or_insert_with(|| quoted(class)).clone();
        if class == quoted("reserved") {
            if !keys.contains_key("share") {
                keys.entry("cpus").or_insert_with(|| quoted(&format!("{millis}m")));
            }
            keys.entry("latency").or_insert_with(|| quoted(&format!("{}ns", kubernetes.latency_ns)));
            keys.entry("capped").or_insert_with(|| (self.pod.qos == Qos::Guaranteed).to_string());
        } else if class == quoted("shared") {
            keys.entry("weight").or_insert_with(|| Class::weight_of_millis(millis).to_string());
        }
        let mut text = format!(
            "[[tenant]]\nname = {}\nmatch = {{ pod = {} }}\n",
            quoted(&self.name),
            quoted(&self.pod.uid)
        );
        text.extend(keys.iter().map(|(key, value)| format!("{key} = {value}\n")));
        Some(Source { path: self.path(), text })
    }
}

/// What annotations ask for, as keys and values of a tenant.
pub fn asked(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, String)> {
    annotations.iter().filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, written(value))))
}

/// An annotation's text as a value: numbers and truths as such.
fn written(value: &str) -> String {
    let is_bare = matches!(value, "true" | "false") || value.parse::<f64>().is_ok_and(f64::is_finite);
    if is_bare { value.to_owned() } else { quoted(value) }
}

/// A text in double quotes, whatever is in it.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            _ if letter.is_control() => quoted += &format!("\\u{:04x}", u32::from(letter)),
            _ => quoted.push(letter),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use rota_model::{Match, Share, Topology};

    use super::*;
    use crate::status::KubernetesStatus;

    const UID: &str = "0a1b2c3d-0000-4000-8000-00000000000";

    fn pod(number: u32, qos: Qos, request_millis: u64, annotations: &[(&str, &str)]) -> Pod {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Pod {
            uid: format!("{UID}{number}"),
            namespace: "shop".to_owned(),
            name: format!("p{number}"),
            qos,
            request_millis,
            annotations: annotations.collect(),
        }
    }

    fn node(more: &str, pods: &[Pod]) -> Node {
        let topology = Topology::flat(&"0-7".parse().unwrap());
        let machine = Machine { topology, ..Machine::default() };
        let text = format!("[host]\nhousekeeping = \"0\"\n[kubernetes]\nlatency = \"10ms\"\n{more}");
        parse_node(&[Source { path: "rota.toml".to_owned(), text }], &machine, pods).unwrap()
    }

    /// The only pod as a tenant, and why it is not as it asks.
    fn one(pod: Pod) -> (Tenant, Option<Refusal>) {
        let mut node = node("", std::slice::from_ref(&pod));
        assert_eq!(node.here.model.tenants.len(), 1);
        let tenant = node.here.model.tenants.remove(0);
        assert_eq!((&tenant.name[..], &tenant.matcher), ("shop.p1", &Some(Match::Pod(pod.uid))));
        (tenant, node.refused.remove("shop/p1"))
    }

    fn reserved(vcpus: u32, ppb: u32, latency_ms: u64, capped: bool) -> (u32, Class) {
        let share = Share::from_ppb(ppb).unwrap();
        (vcpus, Class::Reserved(Reservation { share, latency_ns: latency_ms * 1_000_000, capped }))
    }

    fn shared(weight: u32) -> (u32, Class) {
        (1, Class::Shared { weight })
    }

    #[test]
    fn classes_become_classes() {
        for (qos, request, expected) in [
            (Qos::Guaranteed, 2_500, reserved(3, 833_333_334, 10, true)),
            (Qos::Guaranteed, 100, reserved(1, 100_000_000, 10, true)),
            (Qos::Guaranteed, 0, shared(1)),
            (Qos::Burstable, 250, shared(25)),
            (Qos::Burstable, 0, shared(1)),
            (Qos::Burstable, 4_000_000, shared(10_000)),
            (Qos::BestEffort, 0, (1, Class::Background)),
        ] {
            let (tenant, refused) = one(pod(1, qos, request, &[("kubernetes.io/x", "y")]));
            assert_eq!(((tenant.vcpus, tenant.class), refused), (expected, None), "{qos:?} {request}");
        }
    }

    #[test]
    fn annotations_ask_for_less_or_otherwise() {
        let (guaranteed, burstable) = (Qos::Guaranteed, Qos::Burstable);
        for (qos, annotations, expected) in [
            (
                guaranteed,
                &[("rota/cpus", "1500m"), ("rota/latency", "50ms")][..],
                reserved(2, 750_000_000, 50, true),
            ),
            (guaranteed, &[("rota/capped", "false")], reserved(2, 1_000_000_000, 10, false)),
            (guaranteed, &[("rota/vcpus", "4")], reserved(4, 500_000_000, 10, true)),
            (guaranteed, &[("rota/share", "0.5"), ("rota/vcpus", "2")], reserved(2, 500_000_000, 10, true)),
            (guaranteed, &[("rota/class", "shared")], shared(200)),
            (burstable, &[("rota/cpus", "2")], reserved(2, 1_000_000_000, 10, false)),
            (burstable, &[("rota/latency", "20ms")], reserved(2, 1_000_000_000, 20, false)),
            (burstable, &[("rota/weight", "7")], shared(7)),
            (burstable, &[("rota/class", "background")], (1, Class::Background)),
        ] {
            let (tenant, refused) = one(pod(1, qos, 2_000, annotations));
            assert_eq!(((tenant.vcpus, tenant.class), refused), (expected, None), "{annotations:?}");
        }
    }

    /// Whoever may make a pod would have the node otherwise.
    #[test]
    fn nobody_asks_for_more_than_kubernetes_has_admitted() {
        for (annotations, part) in [
            (&[("rota/cpus", "2001m")][..], "asks for 2001m of CPU and requests 2000m"),
            (&[("rota/share", "1"), ("rota/vcpus", "3")], "asks for 3000m of CPU"),
            (
                &[("rota/class", "shared"), ("rota/weight", "201")],
                "asks for weight 201, and its request has 200",
            ),
            (&[("rota/latency", "9ms")], "asks for waits of 9000 us at most"),
            (&[("rota/affinity", "1")], "rota/affinity is no annotation that counts"),
            (&[("rota/exclusive_cores", "true")], "rota/exclusive_cores is no annotation that counts"),
            (&[("rota/match", "x"), ("rota/cpus", "1")], "rota/match is no annotation that counts"),
            (&[("rota/cpus", "many")], "cpus: \"many\" is no number of CPUs"),
            (&[("rota/cpus", "1\"\n[[tenant]]")], "cpus: "),
            (&[("rota/cpus", ".5")], ""),
            (
                &[("rota/vcpus", "1000000000")],
                "asks for 1000000000 vCPUs, and this node has 7 CPUs for tenants",
            ),
            (&[("rota/vcpus", "8")], "asks for 8 vCPUs"),
            (
                &[("rota/vcpus", "7"), ("rota/cpus", "69m")],
                "asks for 69m of CPU for 7 vCPUs, and each takes 10m",
            ),
            (&[("rota/vcpus", "-1")], "vcpus: "),
        ] {
            let (tenant, refused) = one(pod(1, Qos::Guaranteed, 2_000, annotations));
            assert_eq!((tenant.vcpus, tenant.class), reserved(2, 1_000_000_000, 10, true), "{annotations:?}");
            let refused = refused.unwrap().why;
            assert!(refused.contains(part) && refused.ends_with("as its class says"), "{refused}");
        }
        let (tenant, refused) = one(pod(1, Qos::BestEffort, 0, &[("rota/cpus", "1")]));
        assert_eq!((tenant.class, refused.is_some()), (Class::Background, true));
    }

    #[test]
    fn one_wrong_pod_is_nobody_elses_matter() {
        let mut pods =
            vec![pod(1, Qos::Guaranteed, 1_000, &[("rota/cpus", "x")]), pod(2, Qos::Burstable, 500, &[])];
        let mut namesake = pod(3, Qos::BestEffort, 0, &[]);
        namesake.name = "p2".to_owned();
        let mut long = pod(4, Qos::BestEffort, 0, &[]);
        long.name = "n".repeat(250);
        let mut taken = pod(5, Qos::BestEffort, 0, &[]);
        taken.name = "taken".to_owned();
        let mut odd = pod(6, Qos::BestEffort, 0, &[]);
        odd.uid = "../x".to_owned();
        pods.extend([namesake, long, taken, odd]);
        let own = "[[tenant]]\nname = \"shop.taken\"\nclass = \"background\"\n";
        let node = node(own, &pods);
        let names: Vec<&str> = node.here.model.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
        let by_uid = [format!("pod-{UID}3"), format!("pod-{UID}4")];
        assert_eq!(names, ["shop.taken", "shop.p1", "shop.p2", &by_uid[0], &by_uid[1]]);
        let refused: Vec<&str> = node.refused.keys().map(String::as_str).collect();
        assert_eq!(refused, ["shop/p1", "shop/p6", "shop/taken"]);
        assert!(node.refused["shop/taken"].why.ends_with("it is no tenant"), "{:?}", node.refused);
        let told = KubernetesStatus::default().with(&node.refused, &node.here.model, &[]);
        let counts = |reason: Reason| told.refused_by[reason.name()];
        assert_eq!(Reason::ALL.map(counts), [1, 0, 0, 0, 2, 0], "by reason");
        let without = super::parse_node(
            &[],
            &Machine { topology: node.here.model.host.topology, ..Machine::default() },
            &pods,
        );
        assert_eq!(without.unwrap().here.model.tenants.len(), 1, "no [kubernetes], no pods");
    }

    #[test]
    fn the_configuration_in_the_manifest_is_right() {
        let manifest = include_str!("../../../packaging/kubernetes/rota.yaml");
        let (_, block) = manifest.split_once("  rota.toml: |\n").unwrap();
        let (text, _) = block.split_once("---").unwrap();
        let topology = Topology::flat(&"0-7".parse().unwrap());
        let machine = Machine { topology, ..Machine::default() };
        let source = Source { path: "rota.yaml".to_owned(), text: text.to_owned() };
        let node = parse_node(&[source], &machine, &[pod(1, Qos::Guaranteed, 2_000, &[])]).unwrap();
        assert_eq!((node.here.model.tenants.len(), node.here.model.host.housekeeping.len()), (1, 1));
    }

    /// A pod without room is shared, as Kubernetes has admitted it to the node; another tenant is background.
    #[test]
    fn a_pod_without_slots_is_shared_by_what_it_asks_for() {
        let (tenant, _) = one(pod(1, Qos::Guaranteed, 2_500, &[]));
        assert_eq!(tenant.class_without_slots(), Class::Shared { weight: 250 });
        let other = Tenant { matcher: None, ..tenant };
        assert_eq!(other.class_without_slots(), Class::Background);
    }
}
