//! What packaging/ has for Grafana and Prometheus follows from the table of metrics, or is held against it.
//!
//! `ROTA_DASHBOARD=write` writes the dashboard anew.

#![allow(clippy::unwrap_used)] // as in every test; here also in what the tests share

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rota_model::Topology;
use rota_model::config::parse;
use rota_rules::accounts::absent;
use rota_rules::measures::{
    CPU, INTERFERENCE, KUBERNETES, Kind, Measure, PRESSURE, SCHEDULER, TENANT, Value,
};
use rota_rules::status::{ByCause, CpuStatus, KubernetesStatus, TenantStatus};
use serde_json::{Value as Json, json};

/// Panels in a row, and the columns of a page of Grafana's.
const IN_A_ROW: usize = 3;
const COLUMNS: usize = 24;
const HEIGHT: usize = 8;

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(packaging(path)).unwrap()
}

fn metrics() -> BTreeSet<String> {
    let of_host = INTERFERENCE.iter().map(Measure::full_name).chain(PRESSURE.iter().map(Measure::full_name));
    let of_host = of_host.chain(KUBERNETES.iter().map(Measure::full_name));
    let others = TENANT.iter().map(Measure::full_name).chain(CPU.iter().map(Measure::full_name));
    others.chain(of_host).chain(SCHEDULER.iter().map(Measure::full_name)).collect()
}

/// The words in a text that are metrics, or claim to be.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("rota_")).collect()
}

/// A panel, but for its place.
fn panel(title: &str, help: &str, unit: &str, queries: &[(&str, &str)]) -> Json {
    let targets = ["A", "B"].iter().zip(queries);
    let targets =
        targets.map(|(id, (query, legend))| json!({ "refId": id, "expr": query, "legendFormat": legend }));
    json!({
        "type": "timeseries",
        "title": title,
        "description": help,
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "fieldConfig": { "defaults": { "unit": unit }, "overrides": [] },
        "targets": targets.collect::<Vec<_>>(),
    })
}

/// One figure of each tenant or CPU; `value` is one of these. What only grows is shown by how fast it does.
fn panel_of<T>(measure: &Measure<T>, of: &str, value: Value) -> Json {
    let name = measure.full_name();
    let which = match of {
        "tenant" => "instance=~\"$instance\", tenant=~\"$tenant\"",
        _ => "instance=~\"$instance\"",
    };
    let series = format!("{name}{{{which}}}");
    let (query, unit) = match (measure.kind, measure.in_seconds) {
        (Kind::Counter, true) => (format!("rate({series}[$__rate_interval])"), "percentunit"),
        (Kind::Counter, false) => (format!("rate({series}[$__rate_interval])"), "cps"),
        (Kind::Gauge, true) => (series, "s"),
        (Kind::Gauge, false) if name.ends_with("_ratio") => (series, "percentunit"),
        (Kind::Gauge, false) => (series, "short"),
    };
    let label = if let Value::By(label, _) = value { format!(": {{{{{label}}}}}") } else { String::new() };
    panel(&name, measure.help, unit, &[(&query, &format!("{{{{instance}}}} {{{{{of}}}}}{label}"))])
}

/// What one looks at first.
fn promises() -> Vec<Json> {
    let of = "instance=~\"$instance\", tenant=~\"$tenant\"";
    let received = format!("rota_tenant_received_cpus{{{of}}}");
    let promised = format!("rota_tenant_promised_cpus{{{of}}}");
    let wait =
        format!("rota_tenant_blackout_max_seconds{{{of}}} / rota_tenant_blackout_bound_seconds{{{of}}}");
    let missed = format!("increase(rota_tenant_missed_promises_total{{{of}}}[$__rate_interval])");
    vec![
        panel(
            "Received and promised",
            "CPUs that each tenant received, and those that it was promised",
            "short",
            &[(&received, "{{tenant}}"), (&promised, "{{tenant}}, promised")],
        ),
        panel(
            "Longest wait, of its bound",
            "Beyond 100 % a promise was broken",
            "percentunit",
            &[(&wait, "{{tenant}}")],
        ),
        panel(
            "Missed promises",
            "Waits beyond the bound, by cause",
            "short",
            &[(&missed, "{{tenant}}: {{cause}}")],
        ),
    ]
}

fn variable(name: &str, query: &str) -> Json {
    json!({
        "name": name,
        "type": "query",
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "query": { "query": query, "refId": name },
        "refresh": 2,
        "multi": true,
        "includeAll": true,
        "allValue": ".*",
        "current": { "text": "All", "value": "$__all" },
    })
}

fn idle_cpu() -> CpuStatus {
    let (idle, background, second_level) = (1.0, 0.0, 0.0);
    let lost_ns = ByCause::default();
    CpuStatus { cpu: 0, generation: 1, mixed: 0, idle, background, second_level, lost_ns }
}

fn kubernetes() -> Vec<Json> {
    let model = parse(&[], &Topology::flat(&(0..1).collect())).unwrap();
    let none = KubernetesStatus::default().with(&BTreeMap::new(), &model, &[]);
    KUBERNETES.iter().map(|measure| panel_of(measure, "instance", (measure.value)(&none))).collect()
}

fn dashboard() -> String {
    let tenant = rota_model::Tenant::system(rota_model::Reservation::SYSTEM, &(0..1).collect());
    let tenant = TenantStatus { bound_ns: Some(1), ..absent(&tenant) };
    let tenants = TENANT.iter().map(|measure| panel_of(measure, "tenant", (measure.value)(&tenant)));
    let cpus = CPU.iter().map(|measure| panel_of(measure, "cpu", (measure.value)(&idle_cpu())));
    let one = || Value::One(0.0);
    let interference = INTERFERENCE.iter().map(|measure| panel_of(measure, "strategy", one()));
    let pressure = PRESSURE.iter().map(|measure| panel_of(measure, "cpu", one()));
    let scheduler = SCHEDULER.iter().map(|measure| panel_of(measure, "instance", one()));
    let sections = [
        ("Promises", promises()),
        ("Each figure of a tenant", tenants.collect()),
        ("Each figure of a CPU", cpus.collect()),
        ("The scheduler", scheduler.collect()),
        ("Pods", kubernetes()),
        ("Cache interference", interference.chain(pressure).collect()),
    ];
    let (mut panels, mut line) = (Vec::new(), 0);
    for (title, content) in sections {
        let place = json!({ "x": 0, "y": line, "w": COLUMNS, "h": 1 });
        panels.push(
            json!({ "type": "row", "title": title, "collapsed": false, "panels": [], "gridPos": place }),
        );
        line += 1;
        let rows = content.len().div_ceil(IN_A_ROW);
        for (number, mut panel) in content.into_iter().enumerate() {
            let width = COLUMNS / IN_A_ROW;
            let (x, y) = (number % IN_A_ROW * width, line + number / IN_A_ROW * HEIGHT);
            panel["gridPos"] = json!({ "x": x, "y": y, "w": width, "h": HEIGHT });
            panels.push(panel);
        }
        line += rows * HEIGHT;
    }
    for (panel, id) in panels.iter_mut().zip(1..) {
        panel["id"] = json!(id);
    }
    let source = json!({ "name": "datasource", "type": "datasource", "query": "prometheus" });
    let variables = json!([
        source,
        variable("instance", "label_values(rota_cpu_table_generation, instance)"),
        variable("tenant", "label_values(rota_tenant_cpu_seconds_total{instance=~\"$instance\"}, tenant)"),
    ]);
    let dashboard = json!({
        "title": "Rota",
        "uid": "rota",
        "tags": ["rota"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": variables },
        "panels": panels,
    });
    serde_json::to_string_pretty(&dashboard).unwrap() + "\n"
}

#[test]
fn the_dashboard_is_made_from_the_table() {
    let path = packaging("grafana/rota.json");
    if std::env::var_os("ROTA_DASHBOARD").is_some_and(|value| value == "write") {
        fs::write(&path, dashboard()).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == dashboard(),
        "packaging/grafana/rota.json is not what the table of metrics makes; ROTA_DASHBOARD=write writes it anew"
    );
}

/// The queries of a dashboard's panels.
fn queries(dashboard: &Json) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array());
    targets.flatten().map(|target| target["expr"].as_str().unwrap()).collect()
}

#[test]
fn every_metric_is_on_the_dashboard_and_only_those() {
    let dashboard: Json = serde_json::from_str(&dashboard()).unwrap();
    let queries = queries(&dashboard);
    let shown: BTreeSet<String> = queries.iter().flat_map(|query| named(query)).map(str::to_owned).collect();
    assert_eq!(shown, metrics());
    let variables = dashboard["templating"]["list"].to_string();
    assert!(named(&variables).iter().all(|name| metrics().contains(*name)), "{variables}");
}

#[test]
fn alerts_name_metrics_that_there_are() {
    for file in ["prometheus/rota.rules.yml", "prometheus/rota.rules.test.yml"] {
        let text = read(file);
        let names = named(&text);
        assert!(names.len() >= 5, "{file} names {names:?}");
        for name in names {
            assert!(metrics().contains(name), "{file}: {name} is no metric of docs/METRICS.md");
        }
    }
    assert_eq!(named("rate(rota_x_total[5m]) > rota_y"), BTreeSet::from(["rota_x_total", "rota_y"]));
}

/// The dashboard's queries as rules, which promtool can look at.
fn queries_as_rules() -> String {
    let dashboard: Json = serde_json::from_str(&dashboard()).unwrap();
    let rule = |(number, query): (usize, &str)| {
        let query = query.replace("$__rate_interval", "5m");
        json!({ "record": format!("panel:{number}"), "expr": query })
    };
    let rules: Vec<Json> = queries(&dashboard).into_iter().enumerate().map(rule).collect();
    json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string()
}

#[test]
fn prometheus_takes_alerts_and_queries_and_the_alerts_fire() {
    let queries = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard.rules.yml");
    fs::write(&queries, queries_as_rules()).unwrap();
    for arguments in [
        ["check", "rules", "rota.rules.yml"],
        ["test", "rules", "rota.rules.test.yml"],
        ["check", "rules", queries.to_str().unwrap()],
    ] {
        let run = Command::new("promtool").args(arguments).current_dir(packaging("prometheus")).output();
        let Ok(output) = run else {
            println!(
                "SKIPPED: prometheus_takes_alerts_and_queries_and_the_alerts_fire: promtool is not installed"
            );
            return;
        };
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "promtool {arguments:?}\n{}", String::from_utf8_lossy(&text));
    }
}
