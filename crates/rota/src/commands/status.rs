//! `rota status`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rota_rules::status::{
    ByCause, InterferenceStatus, KubernetesStatus, PlacePressure, SpareStatus, State, Status, TenantStatus,
};
use rotad::server::{SOCKET, ask};

use super::{Failure, print_json, print_text};

/// Show what every tenant was promised and what it got
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    /// Where `rota up` listens
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let status = ask(&arguments.socket)?;
    if arguments.json { print_json(&status) } else { print_text(&text(&status)) }
}

/// The answer for people.
fn text(status: &Status) -> String {
    let mut text = match status.generation {
        0 => "no table in force".to_owned(),
        generation => {
            let length_ms = status.table_length_ns as f64 / 1e6;
            format!("table {generation} in force, {length_ms:.3} ms long")
        }
    };
    text += &format!(
        "; scheduling for {:.0} s; shares in CPUs over the last {:.1} s\n\n",
        status.up_s, status.window_s
    );
    if let Some(reason) = &status.edit_refused {
        text += &format!("the edited configuration is not used: {reason}\n\n");
    }
    if let Some(why) = &status.scheduler.lost_why {
        let times = status.scheduler.lost;
        let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        text += &format!("the kernel has ended the scheduler {times}, the last time because of: {why}\n\n");
    }
    if let Some(why) = &status.scheduler.branch_records_off {
        text += &format!("branch records are not read: {why}\n\n");
    }
    if !status.offline.is_empty() {
        text += &format!("CPUs {} are offline, and nothing is planned there\n\n", status.offline);
    }
    text += &columns(HEADINGS, 3, &status.tenants.iter().map(row).collect::<Vec<_>>());
    for tenant in &status.tenants {
        notes(tenant, &mut text);
    }
    text.push('\n');
    for SpareStatus { share, latency_ns, count, ready } in &status.spares {
        text += &format!("spares: {ready} of {count} ready of share {share}, {}\n", ns(*latency_ns));
    }
    if let Some(kubernetes) = &status.kubernetes {
        pods(kubernetes, &mut text);
    }
    if let Some(interference) = &status.interference {
        neighbours(interference, &mut text);
    }
    for cpu in &status.cpus {
        text += &format!(
            "CPU {}: table {}, idle {:.1} %, background {:.1} %, second level {:.1} %{}\n",
            cpu.cpu,
            cpu.generation,
            100.0 * cpu.idle,
            100.0 * cpu.background,
            100.0 * cpu.second_level,
            causes(", taken from tenants so far: ", &cpu.lost_ns, ns)
        );
    }
    text
}

/// Who tells of pods, and which are not served as they ask.
pub fn pods(status: &KubernetesStatus, text: &mut String) {
    let KubernetesStatus { runtime, lost, pods, matched, refused, .. } = status;
    *text += &match (runtime, lost) {
        (Some(runtime), _) => {
            format!("{runtime} tells of {pods} pods, and {matched} have their cgroup here\n")
        }
        (None, Some(lost)) => format!("pods are not heard of, {pods} are as they were: {lost}\n"),
        (None, None) => "pods are not heard of yet\n".to_owned(),
    };
    text.extend(refused.iter().map(|(pod, reason)| format!("{pod}: {reason}\n")));
}

/// What is done about cache interference, and how much is fetched where.
fn neighbours(status: &InterferenceStatus, text: &mut String) {
    let InterferenceStatus { strategy, exchanges, moves, hungry, alarms, .. } = status;
    let by = status.counted_by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
    *text += &format!("cache interference: {strategy}{by}; {moves} vCPUs moved by {exchanges} tables so far");
    if let Some(reason) = &status.no_counters {
        *text += &format!("; not measured: {reason}");
    } else if strategy == "measured" {
        *text += &format!("; {hungry} vCPUs fill caches now, found {alarms} times");
    }
    if let (Some(last), Some(ago_s)) = (&status.last, status.last_s) {
        *text += &format!("\n  {ago_s:.1} s ago {last}");
    }
    let mut sockets: BTreeMap<u32, Vec<&PlacePressure>> = BTreeMap::new();
    for place in status.cpus.iter().filter(|_| *hungry > 0) {
        sockets.entry(place.socket).or_default().push(place);
    }
    for (socket, places) in sockets {
        let sum: u64 = places.iter().map(|place| place.lines_per_ms).sum();
        let each = places.iter().map(|place| format!("CPU {} {}", place.cpu, place.lines_per_ms));
        *text +=
            &format!("\n  socket {socket} fetches {sum} lines a ms: {}", each.collect::<Vec<_>>().join(", "));
    }
    text.push('\n');
}

const HEADINGS: [&str; 11] = [
    "TENANT", "CLASS", "STATE", "PROMISED", "RECEIVED", "WANTED", "LAG", "BLACKOUT", "BOUND", "MISSED",
    "WAITS",
];

fn row(tenant: &TenantStatus) -> [String; 11] {
    let dash = || "-".to_owned();
    let here = |value: String| if tenant.id.is_some() { value } else { dash() };
    [
        tenant.name.clone(),
        tenant.class.clone(),
        state(tenant.state).to_owned(),
        tenant.promised.map_or_else(dash, |share| format!("{share:.3}")),
        here(format!("{:.3}", tenant.received)),
        here(format!("{:.0} %", 100.0 * tenant.wanted)),
        tenant.lag_ns.map_or_else(dash, lag),
        here(ns(tenant.blackout_max_ns)),
        tenant.bound_ns.map_or_else(dash, ns),
        if tenant.bound_ns.is_some() { tenant.missed.to_string() } else { dash() },
        here(waits(tenant)),
    ]
}

/// A tenant's state in a word.
pub fn state(state: State) -> &'static str {
    match state {
        State::Absent => "absent",
        State::Served => "served",
        State::Waiting => "waiting",
        State::Refused => "refused",
        State::Leaving => "leaving",
    }
}

/// The part of the time that its threads waited for a CPU, and for whom most.
fn waits(tenant: &TenantStatus) -> String {
    let part = format!("{:.0} %", 100.0 * tenant.waits);
    match &tenant.waits_for {
        Some(name) if tenant.waits >= 0.005 => format!("{part} for {name}"),
        _ => part,
    }
}

/// Columns as wide as their widest; the first `texts` of them to the left, figures to the right.
pub fn columns<const N: usize>(headings: [&str; N], texts: usize, rows: &[[String; N]]) -> String {
    let headings = headings.map(str::to_owned);
    let all = || std::iter::once(&headings).chain(rows);
    let widths: [usize; N] =
        std::array::from_fn(|column| all().map(|row| row[column].len()).max().unwrap_or(0));
    let mut text = String::new();
    for row in all() {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < texts { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// What does not fit into a column: why a tenant is refused, what it lost and what it missed, and to whom.
fn notes(tenant: &TenantStatus, text: &mut String) {
    let name = &tenant.name;
    if let Some(refused) = &tenant.refused {
        *text += &format!("{name}: no room for its reservation: {refused}\n");
    }
    if let (Some(monitor), Some(_)) = (&tenant.monitor, tenant.id) {
        *text += &format!("{name}: its monitor runs as {monitor}\n");
    }
    *text += &causes(&format!("{name}: missed its bound by: "), &tenant.missed_by_cause, |count| {
        count.to_string()
    });
    if tenant.missed_by_cause.total() > 0 {
        text.push('\n');
    }
    *text += &causes(&format!("{name}: lost in its slots to: "), &tenant.lost_ns, ns);
    if tenant.lost_ns.total() > 0 {
        text.push('\n');
    }
}

/// The causes that are not zero, after `intro`; nothing if all are.
fn causes(intro: &str, by_cause: &ByCause, show: fn(u64) -> String) -> String {
    let named = ByCause::NAMES.iter().zip(by_cause.values()).filter(|(_, value)| *value > 0);
    let parts: Vec<String> = named.map(|(name, value)| format!("{name} {}", show(value))).collect();
    if parts.is_empty() { String::new() } else { format!("{intro}{}", parts.join(", ")) }
}

/// CPU time that a tenant is owed, or with a minus is ahead.
pub fn lag(lag_ns: i64) -> String {
    match lag_ns as f64 / 1e6 {
        ms if ms.abs() < 0.005 => "0.00 ms".to_owned(),
        ms => format!("{ms:+.2} ms"),
    }
}

/// A time for people, three digits at least.
pub fn ns(time: u64) -> String {
    match time as f64 {
        time if time < 1e6 => format!("{:.1} us", time / 1e3),
        time if time < 1e9 => format!("{:.2} ms", time / 1e6),
        time => format!("{:.2} s", time / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_rules::profile::Spending;

    fn tenant(name: &str, id: Option<u32>) -> TenantStatus {
        TenantStatus {
            name: name.into(),
            id,
            class: "reserved".into(),
            state: if id.is_some() { State::Served } else { State::Absent },
            refused: None,
            cgroup: None,
            kind: "container".into(),
            vcpus: 1,
            promised: id.map(|_| 0.2),
            together: false,
            matching: false,
            monitor: None,
            parts: Vec::new(),
            received: 0.2034,
            used_ns: 2_400_000_000,
            received_total: 0.2,
            wanted: 0.999,
            lag_ns: None,
            blackout_max_ns: 16_300_000,
            bound_ns: id.map(|_| 20_000_000),
            missed: 0,
            missed_by_cause: ByCause::default(),
            lost_ns: ByCause::default(),
            dispatches: 1,
            migrations: 0,
            preempted: 0,
            yields: 0,
            spins: 0,
            spins_ns: 0,
            runnable: 1,
            waits: 0.306,
            waits_for: Some("make".into()),
            spending: Spending::default(),
            queues: vec![],
        }
    }

    fn spread() -> InterferenceStatus {
        let place = |(cpu, socket, lines_per_ms)| PlacePressure { cpu, domain: socket, socket, lines_per_ms };
        InterferenceStatus {
            strategy: "measured".into(),
            no_counters: None,
            counted_by: Some("resctrl".into()),
            exchanges: 3,
            moves: 8,
            alarms: 5,
            hungry: 2,
            last: Some("2 vCPUs have changed places: cache domain 0 fetched 900 lines a ms".into()),
            last_s: Some(1.25),
            cpus: [(0, 0, 500), (1, 0, 0), (2, 1, 400)].map(place).into(),
        }
    }

    #[test]
    fn the_table_is_aligned_and_says_what_was_lost_to_whom() {
        let mut web = tenant("web-0", Some(1));
        web.lost_ns.kernel_thread = 120_000;
        web.missed_by_cause.higher_class = 2;
        let shared = |name, id, lag_ns| TenantStatus {
            class: "shared".into(),
            promised: None,
            lag_ns,
            bound_ns: None,
            ..tenant(name, id)
        };
        let status = Status {
            pid: 1,
            up_s: 12.0,
            generation: 3,
            table_length_ns: 102_702_600,
            window_s: 5.0,
            edit_refused: None,
            offline: String::new(),
            tenants: vec![
                web,
                tenant("db", None),
                shared("make", Some(2), Some(1_204_000)),
                shared("index", Some(3), Some(-1_204_000)),
                shared("mail", Some(4), Some(-4_999)),
                shared("gone", None, None),
            ],
            cpus: vec![],
            scheduler: rota_rules::status::SchedulerStatus::default(),
            spares: vec![SpareStatus { share: 0.25, latency_ns: 20_000_000, count: 2, ready: 1 }],
            interference: Some(spread()),
            kubernetes: Some(KubernetesStatus {
                runtime: Some("containerd v2.1.4".to_owned()),
                lost: None,
                pods: 12,
                matched: 11,
                refused: [("shop/db-0".to_owned(), "cpus: \"x\" is none".to_owned())].into(),
                refused_by: [("annotation".to_owned(), 1)].into(),
            }),
        };
        let expected = "\
table 3 in force, 102.703 ms long; scheduling for 12 s; shares in CPUs over the last 5.0 s

TENANT  CLASS     STATE   PROMISED  RECEIVED  WANTED       LAG  BLACKOUT     BOUND  MISSED          WAITS
web-0   reserved  served     0.200     0.203   100 %         -  16.30 ms  20.00 ms       0  31 % for make
db      reserved  absent         -         -       -         -         -         -       -              -
make    shared    served         -     0.203   100 %  +1.20 ms  16.30 ms         -       -  31 % for make
index   shared    served         -     0.203   100 %  -1.20 ms  16.30 ms         -       -  31 % for make
mail    shared    served         -     0.203   100 %   0.00 ms  16.30 ms         -       -  31 % for make
gone    shared    absent         -         -       -         -         -         -       -              -
web-0: missed its bound by: higher scheduling classes 2
web-0: lost in its slots to: kernel threads 120.0 us

spares: 1 of 2 ready of share 0.25, 20.00 ms
containerd v2.1.4 tells of 12 pods, and 11 have their cgroup here
shop/db-0: cpus: \"x\" is none
cache interference: measured by resctrl; 8 vCPUs moved by 3 tables so far; 2 vCPUs fill caches now, found 5 times
  1.2 s ago 2 vCPUs have changed places: cache domain 0 fetched 900 lines a ms
  socket 0 fetches 500 lines a ms: CPU 0 500, CPU 1 0
  socket 1 fetches 400 lines a ms: CPU 2 400
";
        assert_eq!(text(&status), expected);
    }
}
