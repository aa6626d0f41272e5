//! A Prometheus of its own asks a daemon's server: what that says, Prometheus has.

use super::tests::{EXPECTED, said, served, status};
use serde_json::Value;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A Prometheus under load starts within this.
const STARTS: Duration = Duration::from_secs(60);

/// A Prometheus, ended when this is dropped.
struct Prometheus(Child, SocketAddr);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Prometheus {
    /// One that asks `target` each second, with its data in `folder`; nothing if it is not installed.
    fn start(target: SocketAddr, folder: &Path) -> Option<Prometheus> {
        let settings = format!(
            "global: {{ scrape_interval: 1s }}\n\
             scrape_configs: [{{ job_name: rota, static_configs: [{{ targets: ['{target}'] }}] }}]\n"
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, settings).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("prometheus.log")).unwrap())
            .spawn();
        child.ok().map(|child| Prometheus(child, address))
    }

    /// What it answers to a request for a path of its interface; nothing while it starts.
    fn answer(&self, path: &str) -> Option<Value> {
        let stream = TcpStream::connect(self.1).ok()?;
        // Of HTTP 1.0 the answer comes in one piece.
        let answer = said(stream, format!("GET /api/v1/{path} HTTP/1.0\r\n\r\n").as_bytes());
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// The samples that it has of the daemon, as `EXPECTED` has them: by their names and labels.
    fn samples(&self) -> Option<Vec<(String, f64)>> {
        let answer = self.answer("query?query=%7Bjob%3D%22rota%22%2C__name__%3D~%22rota_.%2A%22%7D")?;
        let sample = |sample: &Value| {
            let mut labels = sample["metric"].as_object().unwrap().clone();
            let name = labels.remove("__name__").unwrap().as_str().unwrap().to_owned();
            labels.retain(|label, _| !["job", "instance"].contains(&label.as_str()));
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
            (format!("{name}{{{}}}", labels.join(",")), sample["value"][1].as_str().unwrap().parse().unwrap())
        };
        Some(answer["data"]["result"].as_array()?.iter().map(sample).collect())
    }
}

/// A line of `EXPECTED`, with its labels in order.
fn expected(line: &str) -> (String, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.strip_suffix('}').unwrap().split_once('{').unwrap();
    let labels = labels.strip_suffix('"').unwrap_or_default().split("\",");
    let mut labels: Vec<String> =
        labels.filter(|label| !label.is_empty()).map(|label| format!("{label}\"")).collect();
    labels.sort_unstable();
    (format!("{name}{{{}}}", labels.join(",")), value.parse().unwrap())
}

#[test]
fn a_prometheus_has_what_the_daemon_says() {
    let folder = tempfile::tempdir().unwrap();
    let target = served(|| Ok(status()))().peer_addr().unwrap();
    let Some(prometheus) = Prometheus::start(target, folder.path()) else {
        println!("SKIPPED: a_prometheus_has_what_the_daemon_says: prometheus is not installed");
        return;
    };
    let mut wanted: Vec<(String, f64)> = EXPECTED.trim().lines().map(expected).collect();
    wanted.sort_by(|one, other| one.0.cmp(&other.0));
    let start = Instant::now();
    let mut found = Vec::new();
    while found.is_empty() {
        let log = || std::fs::read_to_string(folder.path().join("prometheus.log")).unwrap_or_default();
        assert!(start.elapsed() < STARTS, "{:?}\n{}", prometheus.answer("targets"), log());
        std::thread::sleep(Duration::from_millis(100));
        found = prometheus.samples().unwrap_or_default();
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(found, wanted);
}
