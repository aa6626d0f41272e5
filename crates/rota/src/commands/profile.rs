//! `rota profile`.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use rota_rules::profile::{BySpent, QueueStatus, Spending};
use rota_rules::status::{Status, TenantStatus};
use rotad::server::{SOCKET, ask};
use serde::Serialize;

use super::{Failure, length, predict, print, print_json};

/// Show where a tenant's time goes, and for whom its threads wait
///
/// Asks the daemon twice, and shows what came between: the time of the tenant's threads, by what it was spent on, and
/// the tenants that ran while they waited for a CPU.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) window: Window,
    /// Foretell by how much others slow the tenant down, from short moments in which these are held off
    ///
    /// Takes about 20 s. Shared and background tenants are held off for 40 ms in 2 s, and get afterwards what they
    /// missed; who has a reservation is served as ever. Only root may ask for it.
    #[arg(long, conflicts_with = "length")]
    pub(super) predict: bool,
}

/// Whom the daemon is asked about, twice, and where.
#[derive(Debug, clap::Args)]
pub(super) struct Window {
    /// The tenant's name
    pub tenant: String,
    /// For how long
    #[arg(long = "for", value_name = "DURATION", default_value = "30s", value_parser = length)]
    pub length: Duration,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
    /// Where `rota up` listens
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
}

/// What is shown.
#[derive(Debug, Serialize)]
pub(super) struct Profile {
    tenant: String,
    pub for_s: f64,
    #[serde(flatten)]
    spending: Spending,
    pub queues: Vec<QueueStatus>,
    not_known: Vec<String>,
}

pub fn run(Arguments { window: arguments, predict }: &Arguments) -> Result<(), Failure> {
    if *predict {
        let foretold = predict::foretell(&arguments.socket, &arguments.tenant)?;
        return if arguments.json {
            print_json(&foretold)
        } else {
            print(predict::text(&foretold).as_bytes())
        };
    }
    let before = ask(&arguments.socket)?;
    find(&before, &arguments.tenant).map_err(Failure::Usage)?;
    thread::sleep(arguments.length);
    let after = ask(&arguments.socket)?;
    let mut profile = difference(&before, &after, &arguments.tenant)?;
    profile.not_known.push(counters(Path::new(PMUS)).to_owned());
    if arguments.json { print_json(&profile) } else { print(text(&profile).as_bytes()) }
}

/// Where the kernel lists what counts in hardware, among others.
const PMUS: &str = "/sys/bus/event_source/devices";

/// Why there are no figures of the hardware's counters.
fn counters(pmus: &Path) -> &'static str {
    let counts = |name: &str| name == "cpu" || name.starts_with("cpu_") || name.starts_with("armv");
    let mut names = pmus.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
    match names.any(|name| counts(&name.to_string_lossy())) {
        true => "cycles, instructions and cache misses: the PMU is not read",
        false => "cycles, instructions and cache misses: no PMU",
    }
}

/// The tenant, if it is here.
pub(super) fn find<'a>(status: &'a Status, name: &str) -> anyhow::Result<&'a TenantStatus> {
    let tenant = status.tenants.iter().find(|tenant| tenant.name == name).with_context(|| {
        let names: Vec<&str> = status.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
        format!("no tenant {name:?}; there are: {}", names.join(", "))
    })?;
    ensure!(tenant.id.is_some(), "tenant {name:?} is not on this host now");
    Ok(tenant)
}

/// What came between two answers.
pub(super) fn difference(before: &Status, after: &Status, name: &str) -> anyhow::Result<Profile> {
    ensure!(before.pid == after.pid, "`rota up` was started anew meanwhile; ask again");
    let (then, now) = (find(before, name)?, find(after, name)?);
    ensure!(then.id == now.id, "tenant {name:?} went and came back meanwhile; ask again");
    let nothing = Spending::default();
    let since = |queue: &QueueStatus| {
        let of_then = then.queues.iter().find(|then| then.vcpu == queue.vcpu);
        let spending = queue.spending.since(of_then.map_or(&nothing, |then| &then.spending));
        QueueStatus { vcpu: queue.vcpu, spending }
    };
    let queues: Vec<QueueStatus> = now.queues.iter().map(since).collect();
    let mut spending = Spending::default();
    queues.iter().for_each(|queue| spending.add(&queue.spending));
    let unknown = spending.spent_ns.unknown;
    let mut not_known = Vec::new();
    if unknown > 0 {
        let seconds = unknown as f64 / 1e9;
        not_known
            .push(format!("what threads waited for, for {seconds:.2} s: their system calls do not tell"));
    }
    Ok(Profile { tenant: name.to_owned(), for_s: after.up_s - before.up_s, spending, queues, not_known })
}

/// One character of a bar for each of [`BySpent::NAMES`].
const MARKS: [char; 7] = ['#', 'w', 's', 'd', '-', '.', '?'];
/// A bar's length.
const BAR: u64 = 50;
/// So many tenants are named.
const TOP: usize = 5;

/// The answer for people.
fn text(profile: &Profile) -> String {
    let Profile { tenant, for_s, spending, queues, not_known } = profile;
    let spent = &spending.spent_ns;
    let mut text = format!("{tenant} over {for_s:.1} s: ");
    if spent.total() == 0 {
        text += "it had no threads\n";
        return text;
    }
    let threads = spent.total() as f64 / 1e9 / for_s;
    text +=
        &format!("{:.2} s of its threads' time, {threads:.1} of them on average\n\n", ns_in_s(spent.total()));
    let is_vm = queues.iter().any(|queue| queue.vcpu.is_some());
    for queue in queues.iter().filter(|queue| queue.spending.spent_ns.total() > 0) {
        let name = match queue.vcpu {
            Some(vcpu) => format!("vCPU {vcpu}"),
            None if is_vm => "monitor".to_owned(),
            None => "threads".to_owned(),
        };
        text += &format!("{name:>8} |{}|\n", bar(&queue.spending.spent_ns));
    }
    text.push('\n');
    for ((name, mark), ns) in BySpent::NAMES.iter().zip(MARKS).zip(spent.values()).filter(|(_, ns)| *ns > 0) {
        let part = 100.0 * ns as f64 / spent.total() as f64;
        text += &format!("  {mark} {name:<18} {part:5.1} %  {:8.2} s\n", ns_in_s(ns));
    }
    text += &waits(profile);
    for unknown in not_known {
        text += &format!("not known: {unknown}\n");
    }
    text
}

/// For whom threads waited, the longest first.
fn waits(Profile { tenant, spending, .. }: &Profile) -> String {
    let spent = &spending.spent_ns;
    if spent.waiting == 0 || spending.waited_for_ns.is_empty() {
        return "\n".to_owned();
    }
    let mut text = String::new();
    if spent.running > 0 {
        let slower = (spent.running + spent.waiting) as f64 / spent.running as f64;
        text += &format!("\nslower by {slower:.2}x than with a CPU for each thread; ");
    } else {
        text.push('\n');
    }
    text += "while it waited there ran:\n";
    let waited = spending.waited_for();
    for (name, part) in waited.iter().take(TOP) {
        let itself = if name == tenant { " (its own threads)" } else { "" };
        text += &format!("  {:5.1} %  {name}{itself}\n", 100.0 * part);
    }
    let rest: f64 = waited.iter().skip(TOP).map(|(_, part)| part).sum();
    if rest > 0.0 {
        text += &format!("  {:5.1} %  others\n", 100.0 * rest);
    }
    text + "\n"
}

/// The times beside each other; each character stands for as much time.
fn bar(spent: &BySpent) -> String {
    let (mut bar, mut so_far, mut filled) = (String::new(), 0, 0);
    for (mark, ns) in MARKS.into_iter().zip(spent.values()) {
        so_far += ns;
        let upto = (u128::from(so_far) * u128::from(BAR) / u128::from(spent.total())) as u64;
        bar.extend((filled..upto).map(|_| mark));
        filled = upto;
    }
    bar
}

fn ns_in_s(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_rules::status::State;

    fn status(up_s: f64, queues: Vec<QueueStatus>) -> Status {
        let tenant = rota_model::Tenant {
            name: "web".to_owned(),
            class: rota_model::Class::Background,
            vcpus: 2,
            affinity: None,
            pinned: false,
            exclusive_cores: false,
            oversubscribe: true,
            team: rota_model::Team::default(),
            matcher: None,
        };
        let absent = rota_rules::accounts::absent(&tenant);
        let here = TenantStatus { id: Some(1), state: State::Served, queues, ..absent.clone() };
        Status {
            pid: 7,
            up_s,
            generation: 1,
            table_length_ns: 1,
            window_s: 1.0,
            edit_refused: None,
            offline: String::new(),
            tenants: vec![here, TenantStatus { name: "db".to_owned(), ..absent }],
            cpus: vec![],
            spares: vec![],
            interference: None,
            kubernetes: None,
            scheduler: rota_rules::status::SchedulerStatus::default(),
        }
    }

    /// Of vCPU 1: so many tenths of a second of running, waiting and waiting for the tenant `make`.
    fn queue(running: u64, waiting: u64, halted: u64) -> QueueStatus {
        let tenth = 100_000_000;
        let spent_ns = BySpent {
            running: running * tenth,
            waiting: waiting * tenth,
            halted: halted * tenth,
            ..BySpent::default()
        };
        let waited_for_ns = [("make".to_owned(), waiting * tenth), ("web".to_owned(), tenth)].into();
        QueueStatus { vcpu: Some(1), spending: Spending { spent_ns, waited_for_ns } }
    }

    #[test]
    fn what_came_between_two_answers_is_shown() {
        let (before, after) = (status(5.0, vec![queue(1, 1, 1)]), status(15.0, vec![queue(41, 21, 41)]));
        let profile = difference(&before, &after, "web").unwrap();
        let expected = "\
web over 10.0 s: 10.00 s of its threads' time, 1.0 of them on average

  vCPU 1 |####################wwwwwwwwww....................|

  # running             40.0 %      4.00 s
  w waiting for a CPU   20.0 %      2.00 s
  . halted              40.0 %      4.00 s

slower by 1.50x than with a CPU for each thread; while it waited there ran:
  100.0 %  make

";
        assert_eq!(text(&profile), expected);
        let json = serde_json::to_value(&profile).unwrap();
        assert_eq!(json["spent_ns"]["waiting"], 2_000_000_000_u64);
        assert_eq!(json["queues"][0]["waited_for_ns"]["make"], 2_000_000_000_u64);
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let (before, after) = (status(5.0, vec![queue(1, 1, 1)]), status(15.0, vec![queue(41, 21, 41)]));
        let refused = |before: &Status, after: &Status, name: &str| {
            difference(before, after, name).unwrap_err().to_string()
        };
        assert_eq!(refused(&before, &after, "x"), "no tenant \"x\"; there are: web, db");
        assert!(refused(&before, &after, "db").contains("not on this host"));
        assert!(refused(&before, &Status { pid: 8, ..after.clone() }, "web").contains("anew"));
        let mut other = after.clone();
        other.tenants[0].id = Some(2);
        assert!(refused(&before, &other, "web").contains("came back"));
    }

    #[test]
    fn a_machine_without_counters_is_said_to_have_none() {
        assert!(counters(Path::new("/nowhere")).ends_with("no PMU"));
    }
}
