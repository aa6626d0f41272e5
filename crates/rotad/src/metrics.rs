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

use rota_rules::measures::{self, Kind, Measure, Value};
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

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let here = || self.0.tenants.iter().filter(|tenant| tenant.id.is_some());
        let tenants: Vec<_> = here().map(|tenant| (tenant, tenant_labels(tenant))).collect();
        for measure in measures::TENANT {
            family(&mut encoder, measure, &tenants)?;
        }
        let names: Vec<String> = self.0.cpus.iter().map(|cpu| cpu.cpu.to_string()).collect();
        let labels = names.iter().map(|name| vec![("cpu", name.as_str())]);
        let cpus: Vec<_> = self.0.cpus.iter().zip(labels).collect();
        for measure in measures::CPU {
            family(&mut encoder, measure, &cpus)?;
        }
        Ok(())
    }
}

/// What tells a metric's samples apart.
type Labels<'a> = Vec<(&'static str, &'a str)>;

fn tenant_labels(tenant: &TenantStatus) -> Labels<'_> {
    vec![("tenant", &tenant.name), ("class", &tenant.class)]
}

/// The samples of a measure, one for each tenant or CPU that has it, or one for each cause.
fn family<T>(encoder: &mut DescriptorEncoder, measure: &Measure<T>, all: &[(&T, Labels<'_>)]) -> fmt::Result {
    let unit = measure.in_seconds.then_some(&Unit::Seconds);
    let kind = match measure.kind {
        Kind::Gauge => MetricType::Gauge,
        Kind::Counter => MetricType::Counter,
    };
    let mut family = encoder.encode_descriptor(measure.name, measure.help, unit, kind)?;
    let mut sample = |labels: &Labels<'_>, value: f64| {
        let metric = family.encode_family(labels)?;
        match measure.kind {
            Kind::Gauge => ConstGauge::new(value).encode(metric),
            Kind::Counter => ConstCounter::new(value).encode(metric),
        }
    };
    for (one, labels) in all {
        match (measure.value)(one) {
            Value::None => {}
            Value::One(value) => sample(labels, value)?,
            Value::ByCause(values) => {
                for (cause, value) in ByCause::NAMES.iter().zip(values) {
                    let mut labels = labels.clone();
                    labels.push(("cause", cause));
                    sample(&labels, value)?;
                }
            }
        }
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
        (web.wanted, web.lost_ns.steal, web.runnable) = (0.5, 250_000_000, 3);
        (web.dispatches, web.migrations) = (9, 4);
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
            offline: String::new(),
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
rota_tenant_wanted_ratio{tenant="web",class="reserved"} 0.5
rota_tenant_wanted_ratio{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_blackout_max_seconds{tenant="web",class="reserved"} 0.025
rota_tenant_blackout_max_seconds{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_blackout_bound_seconds{tenant="web",class="reserved"} 0.02
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="kernel threads"} 0.0
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="higher scheduling classes"} 0.0
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="interrupts"} 2.0
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="host steal"} 0.0
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="the floor"} 0.0
rota_tenant_missed_promises_total{tenant="web",class="reserved",cause="rota itself"} 0.0
rota_tenant_lost_seconds_total{tenant="web",class="reserved",cause="kernel threads"} 0.0
rota_tenant_lost_seconds_total{tenant="web",class="reserved",cause="higher scheduling classes"} 0.0
rota_tenant_lost_seconds_total{tenant="web",class="reserved",cause="interrupts"} 0.0
rota_tenant_lost_seconds_total{tenant="web",class="reserved",cause="host steal"} 0.25
rota_tenant_lost_seconds_total{tenant="web",class="reserved",cause="the floor"} 0.0
rota_tenant_lost_seconds_total{tenant="web",class="reserved",cause="rota itself"} 0.0
rota_tenant_dispatches_total{tenant="web",class="reserved"} 9.0
rota_tenant_dispatches_total{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_migrations_total{tenant="web",class="reserved"} 4.0
rota_tenant_migrations_total{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_runnable_threads{tenant="web",class="reserved"} 3.0
rota_tenant_runnable_threads{tenant="odd \"name\"",class="shared"} 0.0
rota_cpu_idle_ratio{cpu="3"} 0.75
rota_cpu_background_ratio{cpu="3"} 0.0
rota_cpu_second_level_ratio{cpu="3"} 0.0
rota_cpu_lost_seconds_total{cpu="3",cause="kernel threads"} 0.0
rota_cpu_lost_seconds_total{cpu="3",cause="higher scheduling classes"} 0.0
rota_cpu_lost_seconds_total{cpu="3",cause="interrupts"} 0.0
rota_cpu_lost_seconds_total{cpu="3",cause="host steal"} 0.0
rota_cpu_lost_seconds_total{cpu="3",cause="the floor"} 0.0
rota_cpu_lost_seconds_total{cpu="3",cause="rota itself"} 0.0
rota_cpu_table_generation{cpu="3"} 7.0
rota_cpu_mixed_rounds_total{cpu="3"} 0.0
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
