//! What `rota status` shows, in OpenMetrics' text for Prometheus to scrape: `rota up --metrics ADDRESS:PORT`.
//!
//! A thread of its own answers one client after the other, and asks the daemon as `rota status` does. So a client can
//! be as slow or as hostile as it likes: it keeps other clients waiting for two seconds, and the daemon not at all.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use rota_rules::status::{ByCause, Status, TenantStatus};

/// A client has so long for its request, and as long again to take the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// A request is no longer.
const REQUEST_MAX: usize = 8192;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens, and answers in a thread of its own as long as the process lives. Returns where it listens.
///
/// # Errors
/// If the address cannot be had.
pub fn serve(address: SocketAddr, ask: impl Fn() -> Result<Status> + Send + 'static) -> Result<SocketAddr> {
    let listener = TcpListener::bind(address).with_context(|| {
        format!("listening on {address}; give --metrics an address of this host and a free port")
    })?;
    let bound = listener.local_addr().context("listening for metrics")?;
    let answer_all = move || {
        for client in listener.incoming() {
            match client {
                // An error is the client's own: it went away or does not read.
                Ok(mut client) => drop(answer(&mut client, &ask)),
                // Too many open files, perhaps: not to be tried again at once.
                Err(_) => std::thread::sleep(PATIENCE),
            }
        }
    };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(answer_all).context("starting a thread")?;
    Ok(bound)
}

fn answer(client: &mut TcpStream, ask: &impl Fn() -> Result<Status>) -> std::io::Result<()> {
    let (code, kind, body) = match request(client)?.as_deref() {
        Some("GET /metrics") => match ask() {
            Ok(status) => ("200 OK", OPEN_METRICS, text(&status)),
            Err(error) => ("503 Service Unavailable", "text/plain", format!("{error:#}\n")),
        },
        Some(_) => ("404 Not Found", "text/plain", "GET /metrics\n".to_owned()),
        None => ("400 Bad Request", "text/plain", "not a request\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    within(client, (head + &body).as_bytes())
}

/// The method and the path of a request that has come to its end; nothing if it is too long or none at all.
fn request(client: &mut TcpStream) -> std::io::Result<Option<String>> {
    let end = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut part = [0; 1024];
        client.set_read_timeout(Some(left(end)?))?;
        match client.read(&mut part)? {
            0 => return Ok(None),
            read => bytes.extend_from_slice(&part[..read]),
        }
        if bytes.len() > REQUEST_MAX {
            return Ok(None);
        }
    }
    let line = String::from_utf8_lossy(&bytes);
    let mut words = line.lines().next().unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    Ok(is_http.then(|| format!("{method} {}", path.split('?').next().unwrap_or_default())))
}

/// Writes all of it, in [`PATIENCE`] however slowly it is taken.
fn within(client: &mut TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        client.set_write_timeout(Some(left(end)?))?;
        match client.write(bytes)? {
            0 => return Err(std::io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

fn left(end: Instant) -> std::io::Result<Duration> {
    end.checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
        .ok_or(std::io::ErrorKind::TimedOut.into())
}

/// The metrics of a status.
pub fn text(status: &Status) -> String {
    let mut registry = Registry::with_prefix("rota");
    registry.register_collector(Box::new(Metrics(status.clone())));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all");
    text
}

#[derive(Debug)]
struct Metrics(Status);

/// A metric's samples: for each its labels and its value.
type Samples<'a, V> = Vec<(Vec<(&'static str, &'a str)>, V)>;

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.service(&mut encoder)?;
        self.promises(&mut encoder)?;
        self.cpus(&mut encoder)
    }
}

impl Metrics {
    /// The tenants that are here.
    fn tenants(&self) -> impl Iterator<Item = &TenantStatus> {
        self.0.tenants.iter().filter(|tenant| tenant.id.is_some())
    }

    /// One sample for each tenant that has such a value.
    fn each<V>(&self, value: impl Fn(&TenantStatus) -> Option<V>) -> Samples<'_, V> {
        let sample = |tenant| Some((tenant_labels(tenant), value(tenant)?));
        self.tenants().filter_map(sample).collect()
    }

    fn service(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let lag = "CPU time that a shared tenant is behind what is fair now; negative if it is ahead";
        let lags = self.each(|tenant| tenant.lag_ns.map(|ns| ns as f64 / 1e9));
        gauge(encoder, "tenant_lag", lag, Some(&Unit::Seconds), lags)?;
        let used = self.each(|tenant| Some(seconds(tenant.used_ns)));
        counter(encoder, "tenant_cpu", "CPU time used since the tenant came", Some(&Unit::Seconds), used)?;
        let promised = "Guaranteed share of a reserved tenant, in CPUs";
        gauge(encoder, "tenant_promised_cpus", promised, None, self.each(|tenant| tenant.promised))?;
        let received = "CPUs received in the last seconds";
        gauge(encoder, "tenant_received_cpus", received, None, self.each(|tenant| Some(tenant.received)))
    }

    fn promises(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let longest = "The longest time in which one of the tenant's threads would have run and none did";
        let blackouts = self.each(|tenant| Some(seconds(tenant.blackout_max_ns)));
        gauge(encoder, "tenant_blackout_max", longest, Some(&Unit::Seconds), blackouts)?;
        let bounds = self.each(|tenant| tenant.bound_ns.map(seconds));
        gauge(encoder, "tenant_blackout_bound", "The promised bound of it", Some(&Unit::Seconds), bounds)?;
        let missed = "Blackouts beyond the bound, by what took most of the time";
        let mut samples: Samples<'_, u64> = Vec::new();
        for tenant in self.tenants().filter(|tenant| tenant.bound_ns.is_some()) {
            for (cause, count) in ByCause::NAMES.iter().zip(tenant.missed_by_cause.values()) {
                let mut labels = tenant_labels(tenant);
                labels.push(("cause", cause));
                samples.push((labels, count));
            }
        }
        counter(encoder, "tenant_missed_promises", missed, None, samples)
    }

    fn cpus(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let names: Vec<String> = self.0.cpus.iter().map(|cpu| cpu.cpu.to_string()).collect();
        let each = |value: Vec<f64>| -> Samples<'_, f64> {
            names.iter().map(|name| vec![("cpu", name.as_str())]).zip(value).collect()
        };
        let idle = each(self.0.cpus.iter().map(|cpu| cpu.idle).collect());
        let help = "The part of the last seconds with nothing to run";
        gauge(encoder, "cpu_idle_ratio", help, None, idle)?;
        let generations = each(self.0.cpus.iter().map(|cpu| cpu.generation as f64).collect());
        gauge(encoder, "cpu_table_generation", "The table that the CPU enacts", None, generations)
    }
}

fn tenant_labels(tenant: &TenantStatus) -> Vec<(&'static str, &str)> {
    vec![("tenant", &tenant.name), ("class", &tenant.class)]
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    samples: Samples<'_, f64>,
) -> fmt::Result {
    family(encoder, name, help, unit, MetricType::Gauge, samples, ConstGauge::new)
}

fn counter<V>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    samples: Samples<'_, V>,
) -> fmt::Result
where
    ConstCounter<V>: EncodeMetric,
{
    family(encoder, name, help, unit, MetricType::Counter, samples, ConstCounter::new)
}

fn family<V, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    kind: MetricType,
    samples: Samples<'_, V>,
    metric: impl Fn(V) -> M,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, unit, kind)?;
    for (labels, value) in samples {
        metric(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_rules::status::{CpuStatus, State};
    use std::thread::spawn;

    fn tenant(name: &str, class: &str, id: Option<u32>) -> TenantStatus {
        let tenant = rota_model::Tenant {
            name: name.to_owned(),
            class: rota_model::Class::Background,
            vcpus: 1,
            affinity: None,
            pinned: false,
            exclusive_cores: false,
            matcher: None,
        };
        let state = State::Served;
        TenantStatus { id, state, class: class.to_owned(), ..rota_rules::accounts::absent(&tenant) }
    }

    fn status() -> Status {
        let mut web = tenant("web", "reserved", Some(1));
        (web.promised, web.received, web.used_ns) = (Some(0.5), 0.25, 1_500_000_000);
        (web.blackout_max_ns, web.bound_ns) = (25_000_000, Some(20_000_000));
        (web.missed, web.missed_by_cause.interrupt) = (2, 2);
        let mut batch = tenant("odd \"name\"", "shared", Some(2));
        batch.lag_ns = Some(-1_250_000);
        let cpu = CpuStatus {
            cpu: 3,
            generation: 7,
            mixed: 0,
            idle: 0.75,
            background: 0.0,
            second_level: 0.0,
            lost_ns: ByCause::default(),
        };
        Status {
            pid: 7,
            up_s: 1.5,
            generation: 7,
            table_length_ns: 102_702_600,
            window_s: 1.0,
            edit_refused: None,
            tenants: vec![web, batch, tenant("gone", "shared", None)],
            cpus: vec![cpu],
            spares: vec![],
        }
    }

    #[test]
    fn each_value_is_there_once_in_base_units() {
        let expected = r#"
rota_tenant_lag_seconds{tenant="odd \"name\"",class="shared"} -0.00125
rota_tenant_cpu_seconds_total{tenant="web",class="reserved"} 1.5
rota_tenant_cpu_seconds_total{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_promised_cpus{tenant="web",class="reserved"} 0.5
rota_tenant_received_cpus{tenant="web",class="reserved"} 0.25
rota_tenant_received_cpus{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_blackout_max_seconds{tenant="web",class="reserved"} 0.025
rota_tenant_blackout_max_seconds{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_blackout_bound_seconds{tenant="web",class="reserved"} 0.02
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="kernel threads"} 0
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="higher scheduling classes"} 0
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="interrupts"} 2
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="host steal"} 0
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="the floor"} 0
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="rota itself"} 0
rota_cpu_idle_ratio{cpu="3"} 0.75
rota_cpu_table_generation{cpu="3"} 7.0
"#;
        let text = text(&status());
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples.join("\n"), expected.trim(), "{text}");
        assert!(text.contains("# TYPE rota_tenant_lag_seconds gauge\n"), "{text}");
        assert!(text.contains("# TYPE rota_tenant_cpu_seconds counter\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    fn said(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let mut answer = Vec::new();
        // A server that has heard enough does not read on: that is no answer, and no failure.
        let _ = stream.write_all(request).and_then(|()| stream.read_to_end(&mut answer));
        String::from_utf8(answer).unwrap()
    }

    const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

    #[test]
    fn who_asks_is_answered_whoever_asked_before() {
        let address = serve("127.0.0.1:0".parse().unwrap(), || Ok(status())).unwrap();
        let silent = TcpStream::connect(address).unwrap();
        let endless = spawn(move || said(address, &vec![b'x'; 100_000]));
        let mut deaf = TcpStream::connect(address).unwrap();
        deaf.write_all(GET).unwrap();
        assert!(said(address, b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(said(address, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        let answer = said(address, GET);
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text;"),
            "{answer}"
        );
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, text(&status()));
        assert!(!endless.join().unwrap().contains("200 OK"));
        drop((silent, deaf));
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_said_so() {
        let ask = || Err(anyhow::anyhow!("no daemon answers"));
        let address = serve("127.0.0.1:0".parse().unwrap(), ask).unwrap();
        let answer = said(address, GET);
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("no daemon answers\n"), "{answer}");
        let error = serve(address, || Ok(status())).unwrap_err().to_string();
        assert!(error.contains("a free port"), "{error}");
    }
}
