//! `rota advise`.

use std::thread;

use anyhow::{Context, ensure};
use rota_model::Costs;
use rota_rules::advice::{Advice, Help, Kind, Seen};
use rota_rules::matching::Load;
use rota_rules::profile::QueueStatus;
use rota_rules::status::{Status, TenantStatus};
use rotad::server::ask;
use serde::Serialize;

use super::profile::{Window, difference, find};
use super::{Failure, print_json, print_text};

/// Say what would help a reserved tenant's program to get more done
///
/// Asks the daemon twice, and judges by what came between: how parallel the program is, how often it blocks, what
/// speedup its vCPUs allow, what holds it back, and what would help.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    window: Window,
}

/// What is shown.
#[derive(Debug, Serialize)]
struct Shown {
    tenant: String,
    for_s: f64,
    vcpus: u32,
    promised: f64,
    latency_ns: u64,
    #[serde(flatten)]
    advice: Advice,
}

pub fn run(Arguments { window: arguments }: &Arguments) -> Result<(), Failure> {
    let before = ask(&arguments.socket)?;
    let tenant = find(&before, &arguments.tenant).map_err(Failure::Usage)?;
    promise(tenant).map_err(Failure::Usage)?;
    thread::sleep(arguments.length);
    let after = ask(&arguments.socket)?;
    let shown = judge(&before, &after, &arguments.tenant)?;
    if arguments.json { print_json(&shown) } else { print_text(&text(&shown)) }
}

/// What the tenant is promised in all, and its bound.
fn promise(tenant: &TenantStatus) -> anyhow::Result<(f64, u64)> {
    tenant.promised.zip(tenant.bound_ns).with_context(|| {
        format!(
            "tenant {:?} is promised nothing that it could use better; `rota profile` shows its time",
            tenant.name
        )
    })
}

/// By two answers.
fn judge(before: &Status, after: &Status, name: &str) -> anyhow::Result<Shown> {
    let (profile, then) = (difference(before, after, name)?, find(before, name)?);
    let now = find(after, name)?;
    let (promised, latency_ns) = promise(now)?;
    ensure!(now.vcpus == then.vcpus, "tenant {name:?} was configured anew meanwhile; ask again");
    let seen = Seen {
        vcpus: now.vcpus,
        promised,
        parts: now.parts.clone(),
        latency_ns,
        together: now.together,
        matching: now.matching,
        for_ns: profile.for_s * 1e9,
        loads: loads(&profile.queues, now.vcpus),
        dispatches: now.dispatches.saturating_sub(then.dispatches),
        switch_ns: Costs::DEFAULT.switch_ns,
    };
    let advice =
        seen.advice().with_context(|| format!("tenant {name:?} did not run meanwhile; ask again"))?;
    Ok(Shown {
        tenant: name.to_owned(),
        for_s: profile.for_s,
        vcpus: now.vcpus,
        promised,
        latency_ns,
        advice,
    })
}

/// Of each vCPU of a VM, but not of its monitor's other threads; of a container's threads together.
fn loads(queues: &[QueueStatus], vcpus: u32) -> Vec<Load> {
    let load = |queue: &QueueStatus| {
        let spent = &queue.spending.spent_ns;
        Load { running_ns: spent.running, waiting_ns: spent.waiting }
    };
    if queues.iter().all(|queue| queue.vcpu.is_none()) {
        return queues.iter().map(load).collect();
    }
    let of = |vcpu| queues.iter().find(|queue| queue.vcpu == Some(vcpu)).map(load).unwrap_or_default();
    (0..vcpus).map(of).collect()
}

/// The answer for people.
fn text(shown: &Shown) -> String {
    let Shown { tenant, for_s, vcpus, promised, latency_ns, advice } = shown;
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let mut text = format!(
        "{tenant} over {for_s:.1} s: {vcpus} vCPUs, promised {promised:.3} CPUs and waits of {} ms at most\n\n",
        *latency_ns as f64 / 1e6
    );
    text += &format!(
        "  {:<22}{:.2} of {vcpus} vCPUs would run on average, {} of that time they wait for a CPU\n",
        "workload parallelism",
        advice.active,
        percent(advice.waiting)
    );
    text += &format!(
        "  {:<22}{:.0} times a second at most for each vCPU\n",
        "synchronisation", advice.blocks_per_s
    );
    text += &format!("  {:<22}{} of 4: {}\n", "type", advice.kind.number(), kind(advice.kind));
    text += &format!(
        "  {:<22}{:.2} of {vcpus} over one vCPU; with a CPU for each {:.2}\n",
        "speedup", advice.speedup, advice.speedup_alone
    );
    text += &format!(
        "  {:<22}{} of what is promised is not used, {} goes on changes of task\n\n",
        "held back by",
        percent(advice.unused),
        percent(advice.switching)
    );
    if advice.help.is_empty() {
        return text + "nothing here would help\n";
    }
    text += "what would help:\n";
    advice.help.iter().for_each(|what| text += &format!("  {}\n", help(what)));
    text
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::ParallelAndSeldom => "vCPUs are busy and block seldom",
        Kind::NarrowAndOften => "few vCPUs are busy, and they block often",
        Kind::ParallelAndOften => "vCPUs are busy and block often",
        Kind::NarrowAndSeldom => "few vCPUs are busy, and they block seldom",
    }
}

fn help(help: &Help) -> String {
    match help {
        Help::Matching { speedup, parts } => {
            let parts: Vec<String> = parts.iter().map(|part| format!("{part:.3}")).collect();
            format!(
                "matching = true: one vCPU uses its part up, others do not. With parts of {} by load, {speedup:.2} is \
                 possible, if the guest leaves threads where they are",
                parts.join(", ")
            )
        }
        Help::Together => {
            "together = true: vCPUs block often and wait for a CPU. With slots at the same times none \
                           waits for one that is stopped"
                .to_owned()
        }
        Help::LongerLatency { period_ns } => format!(
            "a longer latency: the bound allows periods of {:.3} ms at most, and twice the period has half the changes",
            period_ns / 1e6
        ),
        Help::FewerVcpus(count) => format!("vcpus = {count}, with the same total: more are not busy"),
        Help::More => {
            "a larger share, or more vCPUs: what is promised is used, and more is wanted".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_rules::profile::{BySpent, Spending};
    use rota_rules::status::State;

    const SECOND: u64 = 1_000_000_000;

    /// Four vCPUs with tenths of seconds of running and waiting.
    fn status(up_s: f64, tenths: [(u64, u64); 4], dispatches: u64) -> Status {
        let share = rota_model::Share::from_fraction(0.45).unwrap();
        let tenant = rota_model::Tenant {
            name: "vm".to_owned(),
            class: rota_model::Class::Reserved(rota_model::Reservation {
                share,
                latency_ns: 12_000_000,
                capped: true,
            }),
            vcpus: 4,
            affinity: None,
            pinned: false,
            exclusive_cores: false,
            oversubscribe: true,
            team: rota_model::Team::default(),
            matcher: None,
        };
        let queue = |(vcpu, (running, waiting)): (u32, (u64, u64))| {
            let (running, waiting) = (running * SECOND / 10, waiting * SECOND / 10);
            let spent_ns = BySpent { running, waiting, ..BySpent::default() };
            QueueStatus { vcpu: Some(vcpu), spending: Spending { spent_ns, ..Spending::default() } }
        };
        let mut here = rota_rules::accounts::absent(&tenant);
        (here.id, here.state, here.dispatches) = (Some(1), State::Served, dispatches);
        (here.promised, here.bound_ns) = (Some(1.8), Some(12_000_000));
        here.queues = (0..).zip(tenths).map(queue).collect();
        let shared = TenantStatus { name: "web".to_owned(), promised: None, ..here.clone() };
        Status {
            pid: 7,
            up_s,
            generation: 1,
            table_length_ns: 1,
            window_s: 1.0,
            edit_refused: None,
            offline: String::new(),
            tenants: vec![here, shared],
            cpus: vec![],
            spares: vec![],
            interference: None,
            kubernetes: None,
            scheduler: rota_rules::status::SchedulerStatus::default(),
        }
    }

    #[test]
    fn the_worked_example_is_told_what_matching_would_do() {
        let before = status(0.0, [(0, 0); 4], 0);
        let after = status(10.0, [(45, 55), (15, 0), (15, 0), (15, 0)], 7_200);
        let shown = judge(&before, &after, "vm").unwrap();
        let expected = "\
vm over 10.0 s: 4 vCPUs, promised 1.800 CPUs and waits of 12 ms at most

  workload parallelism  1.45 of 4 vCPUs would run on average, 37.9 % of that time they wait for a CPU
  synchronisation       180 times a second at most for each vCPU
  type                  2 of 4: few vCPUs are busy, and they block often
  speedup               1.99 of 4 over one vCPU; with a CPU for each 1.45
  held back by          50.0 % of what is promised is not used, 0.2 % goes on changes of task

what would help:
  matching = true: one vCPU uses its part up, others do not. With parts of 0.900, 0.300, 0.300, 0.300 by load, 3.98 is \
possible, if the guest leaves threads where they are
";
        assert_eq!(text(&shown), expected);
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!(
            (&json["kind"], &json["help"][0]["what"]),
            (&"narrow_and_often".into(), &"matching".into())
        );
    }

    #[test]
    fn who_is_promised_nothing_gets_no_advice() {
        let before = status(0.0, [(0, 0); 4], 0);
        let error = promise(find(&before, "web").unwrap()).unwrap_err().to_string();
        assert!(error.contains("is promised nothing"), "{error}");
        let idle = judge(&before, &status(10.0, [(0, 0); 4], 0), "vm").unwrap_err().to_string();
        assert_eq!(idle, "tenant \"vm\" did not run meanwhile; ask again");
    }
}
