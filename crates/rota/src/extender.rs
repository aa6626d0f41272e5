//! Kubernetes' question which nodes could take a pod, and which of them best: its scheduler's extender protocol
//! (KEP-1819), as functions from a request's text to an answer's.
//!
//! A pod asks by annotations: `rota/cpus: "2500m"` and `rota/latency: 20ms` are the keys `cpus` and `latency` of a
//! tenant. A pod without any asks for nothing, and every node will do.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use rota_model::config::Source;
use rota_rules::fleet::{Answer, Host, Newcomers, rank};
use rota_rules::pods;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::parallel;

/// The highest score that an extender may give: `MaxExtenderPriority`.
const SCORE_MAX: usize = 10;

/// The hosts of a fleet by their nodes' names, as they are now.
pub trait Hosts: Sync {
    /// The host that a node is; nothing if no file describes it.
    ///
    /// # Errors
    /// Its file cannot be read, or is wrong.
    fn host(&self, node: &str) -> Result<Option<Arc<Host>>>;
}

/// `ExtenderArgs`. The names are as in `extender/v1`, or as they were before.
#[derive(Debug, Deserialize)]
struct Question {
    #[serde(rename = "Pod", alias = "pod")]
    pod: Pod,
    /// If the scheduler's `nodeCacheCapable` is false.
    #[serde(rename = "Nodes", alias = "nodes", default)]
    nodes: Option<Nodes>,
    /// If it is true.
    #[serde(rename = "NodeNames", alias = "nodenames", default)]
    names: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default = "default_namespace")]
    namespace: String,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

#[derive(Debug, Deserialize)]
struct Nodes {
    #[serde(default)]
    items: Vec<Value>,
}

/// `ExtenderFilterResult`.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Filtered {
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_names: Option<Vec<String>>,
    failed_nodes: BTreeMap<String, String>,
    error: String,
}

/// `HostPriority`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Scored {
    host: String,
    score: usize,
}

/// Answers `filter`: which nodes have room. What is wrong with the pod itself is the answer's `Error`.
///
/// # Errors
/// The request is none.
pub fn filter(hosts: &impl Hosts, request: &str) -> Result<String> {
    let question = read(request)?;
    let mut filtered = Filtered::default();
    match answers(hosts, &question) {
        Ok(answers) => {
            filtered.failed_nodes = answers
                .iter()
                .filter_map(|answer| Some((answer.host.clone(), answer.reason.clone()?)))
                .collect();
            let fits = |name: &str| !filtered.failed_nodes.contains_key(name);
            filtered.node_names =
                question.names.map(|names| names.into_iter().filter(|name| fits(name)).collect());
            filtered.nodes = question.nodes.map(|nodes| {
                let items: Vec<Value> = nodes.items.into_iter().filter(|node| fits(name(node))).collect();
                serde_json::json!({ "items": items })
            });
        }
        Err(error) => filtered.error = format!("{error:#}"),
    }
    serde_json::to_string(&filtered).context("writing JSON")
}

/// Answers `prioritize`: 10 for the node on which least would move, then with most room, and less for others.
///
/// # Errors
/// The request is none, or the pod asks for what no tenant can have.
pub fn prioritize(hosts: &impl Hosts, request: &str) -> Result<String> {
    let mut answers = answers(hosts, &read(request)?)?;
    rank(&mut answers);
    let last = answers.len().saturating_sub(1).max(1);
    let score = |(place, answer): (usize, &Answer)| Scored {
        host: answer.host.clone(),
        score: if answer.fits { SCORE_MAX - SCORE_MAX * place / last } else { 0 },
    };
    let scores: Vec<Scored> = answers.iter().enumerate().map(score).collect();
    serde_json::to_string(&scores).context("writing JSON")
}

fn read(request: &str) -> Result<Question> {
    serde_json::from_str(request).context("this is no ExtenderArgs of Kubernetes' scheduler")
}

/// A node's name.
fn name(node: &Value) -> &str {
    node["metadata"]["name"].as_str().unwrap_or_default()
}

/// What each node's host says. One that fits has no reason.
fn answers(hosts: &impl Hosts, question: &Question) -> Result<Vec<Answer>> {
    let of_nodes = question.nodes.iter().flat_map(|nodes| &nodes.items).map(|node| name(node).to_owned());
    let names: Vec<String> = match &question.names {
        Some(names) => names.clone(),
        None => of_nodes.collect(),
    };
    let Some(tenant) = tenant(&question.pod.metadata) else {
        let yes = |host| Answer { host, fits: true, ..Answer::default() };
        return Ok(names.into_iter().map(yes).collect());
    };
    let (path, newcomers) = (tenant.path.clone(), Newcomers::new(tenant));
    parallel::map(&names, |node| answer(hosts, node, &path, &newcomers)).into_iter().collect()
}

/// What a node says to the tenant of a file called `path`.
fn answer(hosts: &impl Hosts, node: &str, path: &str, newcomers: &Newcomers) -> Result<Answer> {
    let no = |reason: String| Answer { host: node.to_owned(), reason: Some(reason), ..Answer::default() };
    let host = match hosts.host(node) {
        Ok(Some(host)) => host,
        Ok(None) => return Ok(no(format!("no file of the fleet describes it: write {node}.toml"))),
        Err(error) => return Ok(no(format!("{error:#}"))),
    };
    let answer = host.ask(newcomers);
    match &answer.reason {
        // What is wrong with the annotations is wrong on every node.
        Some(reason) if reason.starts_with(path) => Err(anyhow::anyhow!("{reason}")),
        _ => Ok(Answer { host: node.to_owned(), ..answer }),
    }
}

/// The tenant that a pod's annotations describe, each on a line of its own; nothing if there are none.
fn tenant(pod: &Metadata) -> Option<Source> {
    let none = BTreeMap::new();
    let keys: Vec<(&str, String)> = pods::asked(pod.annotations.as_ref().unwrap_or(&none)).collect();
    if keys.is_empty() {
        return None;
    }
    let name = pods::quoted(&[&pod.namespace, ".", &pod.name].concat());
    let mut text = format!("[[tenant]]\nname = {name}\n");
    if !keys.iter().any(|(key, _)| *key == "class") {
        text += "class = \"reserved\"\n";
    }
    text.extend(keys.iter().map(|(key, value)| format!("{} = {value}\n", pods::quoted(key))));
    Some(Source { path: format!("annotations of pod {}/{}", pod.namespace, pod.name), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two CPUs for tenants, and so many tenants of half a CPU.
    struct Fleet(BTreeMap<&'static str, u32>);

    impl Hosts for Fleet {
        fn host(&self, node: &str) -> Result<Option<Arc<Host>>> {
            let tenants = |count: &u32| match count {
                0 => String::new(),
                count => format!(
                    "[[tenant]]\nname = \"t{{i}}\"\ncount = {count}\nclass = \"reserved\"\nshare = 0.45\n\
                     latency = \"20ms\"\n"
                ),
            };
            let text = |count| format!("[host]\ncpus = \"0-2\"\nhousekeeping = \"0\"\n{}", tenants(count));
            let source = |count| Source { path: node.to_owned(), text: text(count) };
            self.0.get(node).map(|count| Ok(Arc::new(Host::new(source(count))?))).transpose()
        }
    }

    fn fleet() -> Fleet {
        Fleet(BTreeMap::from([("free", 0), ("half", 2), ("full", 4)]))
    }

    fn request(annotations: &str, rest: &str) -> String {
        let metadata = format!(r#"{{"name": "web", "namespace": "shop", "annotations": {{{annotations}}}}}"#);
        format!(r#"{{"Pod": {{"metadata": {metadata}}}, {rest}}}"#)
    }

    const ASKS: &str = r#""rota/share": "0.5", "rota/latency": "20ms", "other/share": "9""#;
    const NAMES: &str = r#""NodeNames": ["full", "half", "free", "new"]"#;

    #[test]
    fn nodes_without_room_fail_with_the_reason() {
        let answer: Value = serde_json::from_str(&filter(&fleet(), &request(ASKS, NAMES)).unwrap()).unwrap();
        assert_eq!(answer["NodeNames"], serde_json::json!(["half", "free"]), "{answer}");
        assert!(answer["FailedNodes"]["full"].as_str().unwrap().starts_with("over-utilised"), "{answer}");
        assert!(answer["FailedNodes"]["new"].as_str().unwrap().ends_with("write new.toml"), "{answer}");
        assert_eq!(answer["Error"], "");
        // As a scheduler asks that has no cache.
        let nodes = r#""nodes": {"items": [{"metadata": {"name": "full"}},
            {"metadata": {"name": "free"}, "spec": 7}]}"#;
        let answer: Value = serde_json::from_str(&filter(&fleet(), &request(ASKS, nodes)).unwrap()).unwrap();
        let free = serde_json::json!([{"metadata": {"name": "free"}, "spec": 7}]);
        assert_eq!((&answer["Nodes"]["items"], &answer["NodeNames"]), (&free, &Value::Null));
    }

    #[test]
    fn the_node_with_most_room_is_the_best() {
        let scores: Value =
            serde_json::from_str(&prioritize(&fleet(), &request(ASKS, NAMES)).unwrap()).unwrap();
        let score = |host: &str| {
            let found = scores.as_array().unwrap().iter().find(|scored| scored["Host"] == host);
            found.unwrap()["Score"].as_u64().unwrap()
        };
        assert_eq!((score("free"), score("full"), score("new")), (10, 0, 0), "{scores}");
        assert!((1..10).contains(&score("half")), "{scores}");
    }

    #[test]
    fn a_pod_that_asks_for_nothing_fits_everywhere_and_a_wrong_one_is_told() {
        let answer = filter(&fleet(), &request(r#""a": "b""#, NAMES)).unwrap();
        assert!(answer.contains(r#"["full","half","free","new"]"#), "{answer}");
        let answer = filter(&fleet(), &request(r#""rota/shore": "0.5""#, NAMES)).unwrap();
        assert!(answer.contains("annotations of pod shop/web:4:1: tenant.shore"), "{answer}");
        // A value is one value, whatever is in it.
        let answer =
            filter(&fleet(), &request(r#""rota/latency": "\"\n[host]\ncpus = \"7""#, NAMES)).unwrap();
        assert!(answer.contains("tenant.latency"), "{answer}");
        assert!(filter(&fleet(), "{}").is_err() && prioritize(&fleet(), "[").is_err());
    }
}
