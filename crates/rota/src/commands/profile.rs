//! `rota profile`.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use rota_rules::counters::Counted;
use rota_rules::profile::{BySpent, QueueStatus, Spending, ThreadStatus};
use rota_rules::status::{Status, TenantStatus};
use rotad::counters::Counters;
use rotad::server::{SOCKET, ask};
use rotad::threads::Looks;
use serde::Serialize;

use super::files::Output;
use super::{Failure, length, predict, print, print_json, print_text};
use crate::report::format::{percent, rate};
use crate::report::profile::{Shown, Step, page};

/// Show where a tenant's time goes, and for whom its threads wait
///
/// Asks the daemon twice, and shows what came between: the time of the tenant's threads, by what it was spent on, and
/// the tenants that ran while they waited for a CPU. For root it also shows the threads one by one, and counts what the
/// processor does meanwhile.
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
    /// Write it as a page, too: with how the time was spent from moment to moment
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,
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
    /// Those with most to do first; none if they cannot be told one by one.
    threads: Vec<ThreadStatus>,
    turns: Turns,
    /// What the processor counted; nothing without a PMU.
    counted: Option<Counted>,
    not_known: Vec<String>,
}

/// How often its threads came to a CPU, and left it.
#[derive(Debug, Serialize)]
struct Turns {
    /// Threads were put on a CPU.
    dispatches: u64,
    /// They stopped running and would have gone on.
    preempted: u64,
    /// They said that others may run.
    yields: u64,
    /// They were put on another CPU than before.
    migrations: u64,
}

pub fn run(Arguments { window: arguments, predict, report }: &Arguments) -> Result<(), Failure> {
    // A place that cannot be written is told before anybody waits.
    let output = report.as_deref().map(Output::open).transpose()?;
    if *predict {
        let foretold = predict::foretell(&arguments.socket, &arguments.tenant)?;
        if let Some(output) = output {
            output.write(predict::page(&foretold).as_bytes())?;
        }
        return if arguments.json {
            print_json(&foretold)
        } else {
            print(predict::text(&foretold).as_bytes())
        };
    }
    let steps = if report.is_some() { steps(arguments.length) } else { 1 };
    let Asked { answers, counted, threads } = asked(arguments, steps)?;
    let (before, after) = (&answers[0], &answers[answers.len() - 1]);
    let mut profile = difference(before, after, &arguments.tenant)?;
    match counted {
        Ok(counted) => {
            profile.not_known.extend(uncounted(&counted).map(str::to_owned));
            profile.counted = Some(counted);
        }
        Err(reason) => profile.not_known.push(format!("cycles, instructions and cache misses: {reason}")),
    }
    match threads {
        Ok(threads) => profile.threads = threads,
        Err(reason) => profile.not_known.push(format!("the threads one by one: {reason}")),
    }
    if let Some(output) = output {
        output.write(page_of(&profile, &answers)?.as_bytes())?;
    }
    if arguments.json { print_json(&profile) } else { print_text(&text(&profile)) }
}

/// The steps of a page: at most so many, and none shorter.
const STEPS_MAX: u32 = 100;
const STEP_MIN: Duration = Duration::from_millis(200);

fn steps(length: Duration) -> u32 {
    let fit = length.as_millis() / STEP_MIN.as_millis();
    fit.clamp(1, STEPS_MAX.into()) as u32
}

/// What is known of the time between two moments; or why not.
struct Asked {
    /// The daemon's, at the beginning and after each step.
    answers: Vec<Status>,
    /// What the processor counted.
    counted: Result<Counted, String>,
    threads: Result<Vec<ThreadStatus>, String>,
}

fn asked(arguments: &Window, steps: u32) -> Result<Asked, Failure> {
    let first = ask(&arguments.socket)?;
    let tenant = find(&first, &arguments.tenant).map_err(Failure::Usage)?;
    let looks = Looks::begin(tenant);
    let counters = counters(tenant, &first);
    let begun = counters.map(|counters| (counters.read(), counters));
    let mut answers = vec![first];
    for _ in 0..steps {
        thread::sleep(arguments.length / steps);
        answers.push(ask(&arguments.socket)?);
    }
    let counted = begun.map(|(before, counters)| counters.read().since(&before));
    Ok(Asked { answers, counted, threads: looks.and_then(|looks| looks.end()) })
}

/// Counts the tenant's threads from now on, on the CPUs that Rota schedules.
pub(super) fn counters(tenant: &TenantStatus, status: &Status) -> Result<Counters, String> {
    let cgroup = tenant.cgroup.as_deref().ok_or("the tenant has no cgroup of its own")?;
    let cpus: Vec<u32> = status.cpus.iter().map(|cpu| cpu.cpu).collect();
    Counters::open(cgroup, &cpus)
}

/// What the processor does not count, of what others do.
fn uncounted(counted: &Counted) -> impl Iterator<Item = &'static str> {
    let misses = counted.misses.is_none().then_some("cache misses: this processor does not count them");
    let stalled = counted.stalled.is_none().then_some("waits for memory: this processor does not count them");
    misses.into_iter().chain(stalled)
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
    let grown = |of: fn(&TenantStatus) -> u64| of(now).saturating_sub(of(then));
    let turns = Turns {
        dispatches: grown(|tenant| tenant.dispatches),
        preempted: grown(|tenant| tenant.preempted),
        yields: grown(|tenant| tenant.yields),
        migrations: grown(|tenant| tenant.migrations),
    };
    let for_s = after.up_s - before.up_s;
    let (tenant, threads) = (name.to_owned(), Vec::new());
    Ok(Profile { tenant, for_s, spending, queues, threads, turns, counted: None, not_known })
}

/// One character of a bar for each of [`BySpent::NAMES`].
const MARKS: [char; 7] = ['#', 'w', 's', 'd', '-', '.', '?'];
/// A bar's length.
const BAR: u64 = 50;
/// So many tenants are named.
const TOP: usize = 5;
/// So many threads are shown one by one.
const THREADS: usize = 12;

/// The answer for people.
fn text(profile: &Profile) -> String {
    let Profile { tenant, for_s, spending, queues, not_known, .. } = profile;
    let spent = &spending.spent_ns;
    let mut text = format!("{tenant} over {for_s:.1} s: ");
    if spent.total() == 0 {
        text += "it had no threads\n";
        return text;
    }
    let threads = spent.total() as f64 / 1e9 / for_s;
    text +=
        &format!("{:.2} s of its threads' time, {threads:.1} of them on average\n\n", ns_in_s(spent.total()));
    for queue in queues.iter().filter(|queue| queue.spending.spent_ns.total() > 0) {
        text += &format!("{:>8} |{}|\n", name_of(queue, queues), bar(&queue.spending.spent_ns));
    }
    text += &one_by_one(&profile.threads);
    text.push('\n');
    for ((name, mark), ns) in BySpent::NAMES.iter().zip(MARKS).zip(spent.values()).filter(|(_, ns)| *ns > 0) {
        let part = 100.0 * ns as f64 / spent.total() as f64;
        text += &format!("  {mark} {name:<18} {part:5.1} %  {:8.2} s\n", ns_in_s(ns));
    }
    text += &format!("\n{}", line(&turns(profile)));
    text += &profile.counted.as_ref().map(|counted| line(&on_cpu(counted))).unwrap_or_default();
    text += &waits(profile);
    for unknown in not_known {
        text += &format!("not known: {unknown}\n");
    }
    text
}

/// A bar for each of the threads that had most to do, if there are several.
fn one_by_one(threads: &[ThreadStatus]) -> String {
    let mut text = String::new();
    if threads.len() < 2 {
        return text;
    }
    text.push('\n');
    let seen = threads.iter().filter(|thread| thread.spent_ns.total() > 0);
    for ThreadStatus { tid, name, spent_ns } in seen.take(THREADS) {
        text += &format!("{tid:>8} |{}| {name}\n", bar(spent_ns));
    }
    if threads.len() > THREADS {
        text += &format!("         and {} threads that had less to do\n", threads.len() - THREADS);
    }
    text
}

/// What a queue is called, among those of its tenant.
fn name_of(queue: &QueueStatus, queues: &[QueueStatus]) -> String {
    let is_vm = queues.iter().any(|queue| queue.vcpu.is_some());
    match queue.vcpu {
        Some(vcpu) => format!("vCPU {vcpu}"),
        None if is_vm => "monitor".to_owned(),
        None => "threads".to_owned(),
    }
}

/// How often threads came to a CPU and left it.
fn turns(Profile { for_s, turns, .. }: &Profile) -> Vec<(&'static str, String)> {
    let Turns { dispatches, preempted, yields, migrations } = turns;
    let each = |name, count: &u64| match count {
        0 => (name, "none".to_owned()),
        _ => (name, rate(*count as f64 / for_s)),
    };
    vec![
        each("turns", dispatches),
        each("preempted", preempted),
        each("yields", yields),
        each("migrations", migrations),
    ]
}

/// What the processor counted meanwhile.
fn on_cpu(counted: &Counted) -> Vec<(&'static str, String)> {
    let over = |count: u64, of: u64| count as f64 / of.max(1) as f64;
    let per_cycle = format!("{:.2}", over(counted.instructions, counted.cycles));
    let misses = |misses: u64| format!("{:.2}", 1e3 * over(misses, counted.instructions));
    let mut told = vec![("instructions a cycle", per_cycle)];
    told.extend(
        counted.misses.map(|count| ("misses of the last-level cache in 1,000 instructions", misses(count))),
    );
    told.extend(counted.stalled_part().map(|part| ("of running, waits for memory", percent(part))));
    told
}

/// Names and values in a line.
fn line(facts: &[(&str, String)]) -> String {
    let told: Vec<String> = facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
    told.join(", ") + "\n"
}

/// The same as a page, with what came between each answer and the next.
fn page_of(profile: &Profile, answers: &[Status]) -> anyhow::Result<String> {
    let first_s = answers[0].up_s;
    let step = |pair: &[Status]| {
        let part = difference(&pair[0], &pair[1], &profile.tenant)?;
        let of = |queue: &QueueStatus| part.queues.iter().find(|of_part| of_part.vcpu == queue.vcpu);
        let spent = |queue| of(queue).map(|of_part| of_part.spending.spent_ns).unwrap_or_default();
        let [from_s, to_s] = [pair[0].up_s - first_s, pair[1].up_s - first_s];
        Ok(Step { from_s, to_s, spent: profile.queues.iter().map(spent).collect() })
    };
    let steps: anyhow::Result<Vec<Step>> = answers.windows(2).map(step).collect();
    let named = |queue: &QueueStatus| (name_of(queue, &profile.queues), queue.spending.spent_ns);
    let called = |thread: &ThreadStatus| (format!("{} {}", thread.tid, thread.name), thread.spent_ns);
    let spent = &profile.spending.spent_ns;
    let threads = spent.total() as f64 / 1e9 / profile.for_s;
    let mut facts =
        vec![("for", format!("{:.1} s", profile.for_s)), ("threads on average", format!("{threads:.1}"))];
    facts.extend(turns(profile));
    facts.extend(profile.counted.iter().flat_map(on_cpu));
    Ok(page(&Shown {
        tenant: &profile.tenant,
        headline: match spent.running {
            0 => "It had no thread that ran.".to_owned(),
            _ => format!("Slower by {:.2}x than with a CPU for each thread.", slower(spent)),
        },
        facts,
        queues: profile.queues.iter().map(named).collect(),
        threads: profile.threads.iter().map(called).collect(),
        steps: steps?,
        spending: &profile.spending,
        not_known: &profile.not_known,
    }))
}

/// How many times longer it takes than if no thread waited for a CPU.
fn slower(spent: &BySpent) -> f64 {
    (spent.running + spent.waiting) as f64 / spent.running as f64
}

/// For whom threads waited, the longest first.
fn waits(Profile { tenant, spending, .. }: &Profile) -> String {
    let spent = &spending.spent_ns;
    if spent.waiting == 0 || spending.waited_for_ns.is_empty() {
        return "\n".to_owned();
    }
    let mut text = String::new();
    if spent.running > 0 {
        text += &format!("\nslower by {:.2}x than with a CPU for each thread; ", slower(spent));
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

turns none, preempted none, yields none, migrations none

slower by 1.50x than with a CPU for each thread; while it waited there ran:
  100.0 %  make

";
        assert_eq!(text(&profile), expected);
        let json = serde_json::to_value(&profile).unwrap();
        assert_eq!(json["spent_ns"]["waiting"], 2_000_000_000_u64);
        assert_eq!(json["queues"][0]["waited_for_ns"]["make"], 2_000_000_000_u64);
    }

    #[test]
    fn what_the_processor_counts_is_told_as_far_as_it_does() {
        let mut profile =
            difference(&status(5.0, vec![queue(1, 1, 1)]), &status(6.0, vec![queue(2, 1, 1)]), "web")
                .unwrap();
        let counted =
            Counted { cycles: 1_000, instructions: 1_500, misses: Some(3), stalled: Some((250, 1_000)) };
        profile.counted = Some(counted);
        let told = "instructions a cycle 1.50, misses of the last-level cache in 1,000 instructions 2.00, of running, \
                    waits for memory 25.0 %\n";
        assert!(text(&profile).contains(told), "{}", text(&profile));
        assert_eq!(uncounted(&counted).count(), 0);
        let counted = Counted { misses: None, stalled: None, ..counted };
        profile.counted = Some(counted);
        assert!(text(&profile).contains("instructions a cycle 1.50\n"), "{}", text(&profile));
        assert_eq!(uncounted(&counted).count(), 2);
    }

    #[test]
    fn a_page_has_a_bar_and_a_timeline_for_each_queue() {
        let answers = [(5.0, 1), (6.0, 6), (7.0, 6)].map(|(up_s, ran)| status(up_s, vec![queue(ran, 1, 1)]));
        let profile = difference(&answers[0], &answers[2], "web").unwrap();
        let page = page_of(&profile, &answers).unwrap();
        assert!(page.contains("aria-label=\"vCPU 1: running 100.0 %\""), "{page}");
        assert!(page.contains("vCPU 1 over time") && page.contains("Slower by 1.00x"), "{page}");
        // In the first second it ran, in the other it had nothing to do.
        assert!(page.contains("<title>0.0 s: running 100.0 %</title>"), "{page}");
        assert!(!page.contains("<title>1.0 s:"), "{page}");
    }

    #[test]
    fn threads_are_shown_one_by_one_as_far_as_there_is_room() {
        let answers = [1, 6].map(|ran| status(ran as f64, vec![queue(ran, 1, 1)]));
        let mut profile = difference(&answers[0], &answers[1], "web").unwrap();
        let thread = |tid, running, waiting| {
            let spent_ns = BySpent { running, waiting, ..BySpent::default() };
            ThreadStatus { tid, name: "db".to_owned(), spent_ns }
        };
        profile.threads = vec![thread(7, 3, 2)];
        assert!(!text(&profile).contains("db"), "a single thread is its tenant");
        profile.threads = (7..7 + THREADS as i32 + 2).map(|tid| thread(tid, 3, 2)).collect();
        let text = text(&profile);
        let bar = format!("\n       7 |{}{}| db\n", "#".repeat(30), "w".repeat(20));
        assert!(text.contains(&bar) && text.contains("and 2 threads that had less to do"), "{text}");
        assert_eq!(text.matches(" db\n").count(), THREADS);
        assert!(page_of(&profile, &answers).unwrap().contains("aria-label=\"8 db: running 60.0 %"));
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
}
