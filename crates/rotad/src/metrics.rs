//! What `rota status` shows, in OpenMetrics' text for Prometheus to scrape: `rota up --metrics ADDRESS:PORT|PATH`.
//!
//! Threads of their own answer a number of clients at a time, and ask the daemon as `rota status` does, once a second
//! at most. So a client can be as slow or as hostile as it likes: it costs the daemon nothing, and others seldom wait.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
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
use rota_rules::status::{InterferenceStatus, Status, TenantStatus};

use crate::server::Seat;
use crate::socket::{Patient, left, listen_at, write_all};

/// A client has so long for its request, and as long again to take the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// A request is no longer.
const REQUEST_MAX: usize = 8192;
/// So many clients are answered at a time; others wait.
const CLIENTS_MAX: usize = 32;
/// Who asks within this time gets the same answer.
const FRESH: Duration = Duration::from_secs(1);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where Prometheus asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Anybody who reaches it.
    Tcp(SocketAddr),
    /// Root, and the group that may ask for the status.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if text.contains('/') {
            return Ok(Address::Unix(text.into()));
        }
        let address = text.parse().map(Address::Tcp);
        address
            .map_err(|_| "is no address; write e.g. 127.0.0.1:9100, or a path for a Unix socket".to_owned())
    }
}

/// Listens, and answers in threads of its own as long as the process lives. Returns where it listens, as a URL.
///
/// # Errors
/// If the address cannot be had.
pub fn serve(
    address: &Address,
    group: Option<u32>,
    ask: impl Fn() -> Result<Status> + Send + 'static,
) -> Result<String> {
    let answers = Arc::new(Mutex::new(Answers { ask: Box::new(ask), last: None }));
    match address {
        Address::Tcp(address) => {
            let listener = TcpListener::bind(address).with_context(|| {
                format!(
                    "listening on {address}; give --metrics an address of this host and a free port, and a service the \
                     right to it (docs/METRICS.md)"
                )
            })?;
            let bound = listener.local_addr().context("listening for metrics")?;
            answer_all(answers, move || Ok(listener.accept()?.0))?;
            Ok(format!("http://{bound}/metrics"))
        }
        Address::Unix(path) => {
            let listener = listen_at(path, group)?;
            listener.set_nonblocking(false).context("listening for metrics")?;
            answer_all(answers, move || Ok(listener.accept()?.0))?;
            Ok(format!("unix://{}", path.display()))
        }
    }
}

/// The daemon's answers, each good for [`FRESH`].
struct Answers {
    ask: Box<dyn Fn() -> Result<Status> + Send>,
    last: Option<(Instant, Answer)>,
}

/// The metrics, or why there are none.
type Answer = Result<Arc<str>, Arc<str>>;

impl Answers {
    fn get(&mut self) -> Answer {
        if let Some((_, answer)) = self.last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return answer.clone();
        }
        let answer = (self.ask)().map(|status| text(&status).into());
        let answer = answer.map_err(|error| format!("{error:#}\n").into());
        self.last = Some((Instant::now(), answer.clone()));
        answer
    }
}

/// Takes clients in, each with a thread while there are not too many.
fn answer_all<C: Patient + Send + 'static>(
    answers: Arc<Mutex<Answers>>,
    accept: impl Fn() -> std::io::Result<C> + Send + 'static,
) -> Result<()> {
    let taken = Arc::default();
    let answer_all = move || {
        loop {
            let Some(seat) = Seat::take(&taken, CLIENTS_MAX) else {
                std::thread::sleep(PATIENCE / 100);
                continue;
            };
            let started = accept().and_then(|mut client| {
                let answers = answers.clone();
                let answer = move || {
                    // An error is the client's own: it went away or does not read.
                    let _ = answer(&mut client, &answers);
                    drop(seat);
                };
                std::thread::Builder::new().name("metrics".to_owned()).spawn(answer)
            });
            if started.is_err() {
                // Too many open files or threads, perhaps: not to be tried again at once.
                std::thread::sleep(PATIENCE);
            }
        }
    };
    let started = std::thread::Builder::new().name("metrics".to_owned()).spawn(answer_all);
    started.map(drop).context("starting a thread")
}

fn answer(client: &mut impl Patient, answers: &Mutex<Answers>) -> std::io::Result<()> {
    let (code, kind, body) = match request(client)?.as_deref() {
        // One who waits here waits for the answer that it gets.
        Some("GET /metrics") => match answers.lock().unwrap_or_else(PoisonError::into_inner).get() {
            Ok(text) => ("200 OK", OPEN_METRICS, text),
            Err(error) => ("503 Service Unavailable", "text/plain", error),
        },
        Some(_) => ("404 Not Found", "text/plain", "GET /metrics\n".into()),
        None => ("400 Bad Request", "text/plain", "not a request\n".into()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    write_all(client, (head + &body).as_bytes(), PATIENCE)
}

/// The method and the path of a request that has come to its end; nothing if it is too long or none at all.
fn request(client: &mut impl Patient) -> std::io::Result<Option<String>> {
    let end = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut part = [0; 1024];
        client.read_within(left(end)?)?;
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
        for measure in measures::SCHEDULER {
            family(&mut encoder, measure, &[(&self.0.scheduler, vec![])])?;
        }
        for measure in measures::TENANT {
            family(&mut encoder, measure, &tenants)?;
        }
        let names: Vec<String> = self.0.cpus.iter().map(|cpu| cpu.cpu.to_string()).collect();
        let labels = names.iter().map(|name| vec![("cpu", name.as_str())]);
        let cpus: Vec<_> = self.0.cpus.iter().zip(labels).collect();
        for measure in measures::CPU {
            family(&mut encoder, measure, &cpus)?;
        }
        if let Some(kubernetes) = &self.0.kubernetes {
            for measure in measures::KUBERNETES {
                family(&mut encoder, measure, &[(kubernetes, vec![])])?;
            }
        }
        self.0.interference.as_ref().map_or(Ok(()), |status| interference(&mut encoder, status))
    }
}

/// What is done about cache interference, and what is fetched on each CPU.
fn interference(encoder: &mut DescriptorEncoder, status: &InterferenceStatus) -> fmt::Result {
    for measure in measures::INTERFERENCE {
        family(encoder, measure, &[(status, vec![("strategy", status.strategy.as_str())])])?;
    }
    let names =
        status.cpus.iter().map(|place| [place.cpu, place.domain, place.socket].map(|n| n.to_string()));
    let names: Vec<[String; 3]> = names.collect();
    let labels = names.iter().map(|[cpu, domain, socket]| {
        vec![("cpu", cpu.as_str()), ("domain", domain.as_str()), ("socket", socket.as_str())]
    });
    let places: Vec<_> = status.cpus.iter().zip(labels).collect();
    measures::PRESSURE.iter().try_for_each(|measure| family(encoder, measure, &places))
}

/// What tells a metric's samples apart.
type Labels<'a> = Vec<(&'static str, &'a str)>;

fn tenant_labels(tenant: &TenantStatus) -> Labels<'_> {
    vec![("tenant", &tenant.name), ("class", &tenant.class)]
}

/// The samples of a measure, one for each tenant or CPU that has it, or one for each of what it is told by.
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
            Value::By(label, values) => {
                for (name, value) in &values {
                    let mut labels = labels.clone();
                    labels.push((label, name));
                    sample(&labels, *value)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod prometheus;

#[cfg(test)]
mod tests {
    use super::*;
    use rota_rules::status::{ByCause, CpuStatus, KubernetesStatus, PlacePressure, State};
    use std::io::Write;
    use std::net::TcpStream;
    use std::thread::spawn;

    fn tenant(name: &str, class: &str, id: Option<u32>) -> TenantStatus {
        let tenant = rota_model::Tenant {
            name: name.to_owned(),
            class: rota_model::Class::Background,
            vcpus: 1,
            affinity: None,
            pinned: false,
            exclusive_cores: false,
            oversubscribe: true,
            team: rota_model::Team::default(),
            matcher: None,
        };
        let state = State::Served;
        TenantStatus { id, state, class: class.to_owned(), ..rota_rules::accounts::absent(&tenant) }
    }

    pub(super) fn status() -> Status {
        let mut web = tenant("web", "reserved", Some(1));
        (web.promised, web.received, web.used_ns) = (Some(0.5), 0.25, 1_500_000_000);
        (web.blackout_max_ns, web.bound_ns) = (25_000_000, Some(20_000_000));
        (web.missed, web.missed_by_cause.interrupt) = (2, 2);
        (web.wanted, web.lost_ns.steal, web.runnable) = (0.5, 250_000_000, 3);
        (web.dispatches, web.migrations, web.waits) = (9, 4, 0.25);
        (web.preempted, web.yields) = (6, 1);
        (web.spending.spent_ns.running, web.spending.spent_ns.waiting) = (1_500_000_000, 500_000_000);
        web.spending.waited_for_ns = [("batch".to_owned(), 250_000_000)].into();
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
            scheduler: rota_rules::status::SchedulerStatus {
                lost: 2,
                lost_why: None,
                branch_records_off: None,
            },
            spares: vec![],
            kubernetes: Some(KubernetesStatus {
                runtime: Some("containerd v2.1.4".to_owned()),
                pods: 3,
                matched: 2,
                refused_by: [("annotation".to_owned(), 1), ("room".to_owned(), 0)].into(),
                ..KubernetesStatus::default()
            }),
            interference: Some(InterferenceStatus {
                strategy: "measured".to_owned(),
                no_counters: None,
                counted_by: Some("resctrl".to_owned()),
                exchanges: 3,
                moves: 8,
                alarms: 5,
                hungry: 4,
                last: None,
                last_s: None,
                cpus: vec![PlacePressure { cpu: 3, domain: 1, socket: 0, lines_per_ms: 1_250 }],
            }),
        }
    }

    pub(super) const EXPECTED: &str = r#"
rota_scheduler_lost_total{} 2.0
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
rota_tenant_preemptions_total{tenant="web",class="reserved"} 6.0
rota_tenant_preemptions_total{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_yields_total{tenant="web",class="reserved"} 1.0
rota_tenant_yields_total{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_spins_total{tenant="web",class="reserved"} 0.0
rota_tenant_spins_total{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_spinning_seconds_total{tenant="web",class="reserved"} 0.0
rota_tenant_spinning_seconds_total{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_waiting_ratio{tenant="web",class="reserved"} 0.25
rota_tenant_waiting_ratio{tenant="odd \"name\"",class="shared"} 0.0
rota_tenant_thread_time_seconds_total{tenant="web",class="reserved",on="running"} 1.5
rota_tenant_thread_time_seconds_total{tenant="web",class="reserved",on="waiting for a CPU"} 0.5
rota_tenant_thread_time_seconds_total{tenant="web",class="reserved",on="synchronisation"} 0.0
rota_tenant_thread_time_seconds_total{tenant="web",class="reserved",on="devices"} 0.0
rota_tenant_thread_time_seconds_total{tenant="web",class="reserved",on="sleep"} 0.0
rota_tenant_thread_time_seconds_total{tenant="web",class="reserved",on="halted"} 0.0
rota_tenant_thread_time_seconds_total{tenant="web",class="reserved",on="unknown"} 0.0
rota_tenant_thread_time_seconds_total{tenant="odd \"name\"",class="shared",on="running"} 0.0
rota_tenant_thread_time_seconds_total{tenant="odd \"name\"",class="shared",on="waiting for a CPU"} 0.0
rota_tenant_thread_time_seconds_total{tenant="odd \"name\"",class="shared",on="synchronisation"} 0.0
rota_tenant_thread_time_seconds_total{tenant="odd \"name\"",class="shared",on="devices"} 0.0
rota_tenant_thread_time_seconds_total{tenant="odd \"name\"",class="shared",on="sleep"} 0.0
rota_tenant_thread_time_seconds_total{tenant="odd \"name\"",class="shared",on="halted"} 0.0
rota_tenant_thread_time_seconds_total{tenant="odd \"name\"",class="shared",on="unknown"} 0.0
rota_tenant_waited_for_seconds{tenant="web",class="reserved",for="batch"} 0.25
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
rota_kubernetes_runtime_connected{} 1.0
rota_kubernetes_pods{} 3.0
rota_kubernetes_matched_pods{} 2.0
rota_kubernetes_refused_pods{reason="annotation"} 1.0
rota_kubernetes_refused_pods{reason="room"} 0.0
rota_interference_exchanges_total{strategy="measured"} 3.0
rota_interference_moves_total{strategy="measured"} 8.0
rota_interference_alarms_total{strategy="measured"} 5.0
rota_interference_hungry_vcpus{strategy="measured"} 4.0
rota_cpu_fetched_lines{cpu="3",domain="1",socket="0"} 1250.0
"#;

    #[test]
    fn each_value_is_there_once_in_base_units() {
        let text = text(&status());
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples.join("\n"), EXPECTED.trim(), "{text}");
        assert!(text.contains("# TYPE rota_tenant_lag_seconds gauge\n"), "{text}");
        assert!(text.contains("# TYPE rota_tenant_cpu_seconds counter\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    pub(super) fn said(mut stream: impl Patient, request: &[u8]) -> String {
        let mut answer = Vec::new();
        // A server that has heard enough does not read on: that is no answer, and no failure.
        let _ = stream.write_all(request).and_then(|()| stream.read_to_end(&mut answer));
        String::from_utf8(answer).unwrap()
    }

    /// A server on a free port, and how to connect to it.
    pub(super) fn served(ask: impl Fn() -> Result<Status> + Send + 'static) -> impl Fn() -> TcpStream + Copy {
        let url = serve(&"127.0.0.1:0".parse().unwrap(), None, ask).unwrap();
        let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
        let address: SocketAddr = address.parse().unwrap();
        move || TcpStream::connect(address).unwrap()
    }

    const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

    #[test]
    fn who_asks_is_answered_whoever_asked_before() {
        let connect = served(|| Ok(status()));
        let silent = connect();
        let endless = spawn(move || said(connect(), &vec![b'x'; 100_000]));
        let mut deaf = connect();
        deaf.write_all(GET).unwrap();
        assert!(said(connect(), b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(said(connect(), b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        let answer = said(connect(), GET);
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text;"),
            "{answer}"
        );
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, text(&status()));
        assert!(!endless.join().unwrap().contains("200 OK"));
        drop((silent, deaf));
    }

    /// A dozen silent clients once held a scrape for a dozen seconds, and each one made the daemon read all counters.
    #[test]
    fn silent_clients_hold_up_nobody_and_an_answer_is_good_for_many() {
        let (asked, asks) = std::sync::mpsc::channel();
        let connect = served(move || {
            asked.send(()).unwrap();
            Ok(status())
        });
        let silent: Vec<TcpStream> = (0..CLIENTS_MAX - 8).map(|_| connect()).collect();
        let began = Instant::now();
        let scrapes: Vec<_> = (0..4).map(|_| spawn(move || said(connect(), GET))).collect();
        assert!(scrapes.into_iter().all(|scrape| scrape.join().unwrap().contains("200 OK")));
        if began.elapsed() < FRESH {
            assert_eq!(asks.try_iter().count(), 1);
        }
        drop(silent);
    }

    #[test]
    fn metrics_are_also_at_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.sock");
        let address: Address = path.to_str().unwrap().parse().unwrap();
        serve(&address, None, || Ok(status())).unwrap();
        let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert!(said(stream, GET).contains("rota_tenant_received_cpus"));
        assert!("9100".parse::<Address>().unwrap_err().contains("127.0.0.1:9100"));
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_said_so() {
        let connect = served(|| Err(anyhow::anyhow!("no daemon answers")));
        let answer = said(connect(), GET);
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("no daemon answers\n"), "{answer}");
        let taken = Address::Tcp(connect().peer_addr().unwrap());
        let error = serve(&taken, None, || Ok(status())).unwrap_err().to_string();
        assert!(error.contains("a free port"), "{error}");
    }
}
