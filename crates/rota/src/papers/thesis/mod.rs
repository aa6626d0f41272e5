//! M. Vanga, *A table-driven approach to practical VM scheduling*, doctoral thesis, TU Kaiserslautern 2020: chapter 6.

mod interference;
mod serving;

use anyhow::Result;
use rota_model::histogram::Histogram;
use rota_peers::Credit;
use rota_scenario::policies::Entry;
use rota_scenario::{Outcome, TenantOutcome};

use super::table::Third;
use super::{Case, Figure, Published, Row, Study, Table, Unit, called};
use crate::report::format;
use Published::{About, Below, Each, Nothing, Said, UpTo};
pub use interference::{MITIGATED, SOCKETS, TARGETED};
pub use serving::{NGINX, NGINX_THRASHED};

const MS: f64 = 1e6;
const US: f64 = 1e3;

/// 16 cores in two sockets, of which four are the first domain's; and 48 VMs of one vCPU, four a core.
const HOST: &str = r#"
[host]
cpus = "0-15"
housekeeping = "12-15"
sockets = ["0-7", "8-15"]
caches = ["0-7", "8-15"]
"#;

/// What of a core each of four VMs is promised: what is left of a quarter if changes of task are paid from it.
const SHARE: f64 = 0.2375;

/// The guest system's own processes, where no benchmark runs. Assumed.
const NONE: &str = r#"
program = "phases"
compute = { exponential = "50us" }
sleep = { exponential = "50ms" }
"#;

/// `stress-ng --io 1`: computes for a while, waits for a shorter while. Assumed.
const IO: &str = r#"
program = "phases"
compute = { uniform = ["10us", "2ms"] }
sleep = { uniform = ["10us", "500us"] }
"#;

/// `stress-ng --cpu 1`.
const CPU: &str = "program = \"hog\"\n";

/// `redis-cli --intrinsic-latency`.
const PROBE: &str = "program = \"probe\"\n";

/// Eight threads of a client that ping at random, 0 to 200 ms apart; an answer takes 10 us of the guest's kernel
/// (assumed).
const PINGED: &str = r#"
program = "server"
service = "10us"
clients = 8
think = { uniform = ["0ns", "200ms"] }
"#;

const BACKGROUNDS: [(&str, &str); 3] = [("no BG", NONE), ("I/O BG", IO), ("CPU BG", CPU)];

/// Credit as the thesis had it: its time slice was 5 ms.
fn credit() -> Entry {
    Entry { make: |_| Ok(Box::new(Credit::with_slice(5_000_000))), ..called("credit", "Credit, 5 ms") }
}

/// The schedulers that can cap, or those that can do without a cap.
fn schedulers(capped: bool) -> [Entry; 4] {
    let third = if capped { called("rtds", "RTDS") } else { called("credit2", "Credit2") };
    [credit(), called("credit", "Credit, 30 ms"), third, called("rota", "Rota")]
}

/// The VMs, each with something to do; the first is the one that is looked at.
fn high_density(duration: &str, capped: bool, vantage: &[&str], others: &str) -> String {
    let reservation =
        format!("class = \"reserved\"\nshare = {SHARE}\nlatency = \"20ms\"\ncapped = {capped}\n");
    let mut text = format!("duration = \"{duration}\"\n{HOST}");
    text += &format!("[[tenant]]\nname = \"vantage\"\nmatch = {{ vm = \"qemu:vantage\" }}\n{reservation}");
    text += &format!(
        "[[tenant]]\nname = \"vm-{{i}}\"\ncount = 47\nmatch = {{ vm = \"qemu:vm-{{i}}\" }}\n{reservation}"
    );
    for program in vantage {
        text += &format!("[[workload]]\ntenant = \"vantage\"\n{program}");
    }
    text + &format!("[[workload]]\ntenant = \"vm-{{i}}\"\n{others}")
}

/// Each background under each scheduler.
fn studied(study: &Study, duration: &str, capped: bool, vantage: &[&str]) -> Result<Vec<(Setting, Outcome)>> {
    let settings: Vec<Setting> = BACKGROUNDS
        .iter()
        .flat_map(|&(background, _)| schedulers(capped).map(|policy| Setting { background, capped, policy }))
        .collect();
    let program = |setting: &Setting| {
        let found = BACKGROUNDS.iter().find(|(name, _)| *name == setting.background);
        found.map_or(NONE, |(_, program)| program)
    };
    let case = |setting: &Setting| Case {
        policy: setting.policy,
        scenario: high_density(duration, capped, vantage, program(setting)),
    };
    let outcomes = study.run(&settings.iter().map(case).collect::<Vec<_>>())?;
    Ok(settings.into_iter().zip(outcomes).collect())
}

struct Setting {
    background: &'static str,
    capped: bool,
    policy: Entry,
}

impl Setting {
    fn row(&self, published: Published, ours: f64) -> Row {
        Row { setting: self.background.to_owned(), policy: self.policy.label, published, ours }
    }
}

fn caption(what: &str, capped: bool) -> String {
    format!("{what}, {}", if capped { "capped" } else { "uncapped" })
}

fn vantage(outcome: &Outcome) -> &TenantOutcome {
    &outcome.tenants[0]
}

/// How the VMs are made, said of each figure.
const DENSE: &str = "There: Xen 4.9 on 16 cores of 3.2 GHz in two sockets, four of them for dom0; on the other \
    twelve 48 VMs of one vCPU, 25 % of a core and at most 20 ms of delay each; one of them is looked at. Here: the \
    same, but that each VM is promised 23.75 %, as Rota pays changes of task from the rest (the thesis' own table \
    has 3.2 ms in 13 ms, which is 24.6 %). `no BG`: the other VMs run their systems' own processes, 50 us every 50 \
    ms (assumed). `I/O BG`: each computes for 10 us to 2 ms and waits for 10 us to 0.5 ms, for `stress-ng --io 1` \
    (assumed). `CPU BG`: each computes all the time.";

/// Which Credit.
const SLICES: &str = "Credit has a time slice of 5 ms, as there (section 6.2), and for comparison its default of 30 \
    ms. Tableau's place is taken by Rota.";

pub const INTRINSIC_LATENCY: Figure = Figure {
    name: "003-fig6.3",
    title: "the longest that a VM which computes is kept from it",
    source: "Vanga, thesis, section 6.3 and figure 6.3; the bars' heights are those that the text gives",
    setting: &[
        DENSE,
        "The VM that is looked at computes and looks at the clock (`redis-cli --intrinsic-latency`). Ours is its \
         vCPU's longest blackout in 30 s.",
        SLICES,
    ],
    differs: &[
        "Credit with slices of 5 ms waits for less here, both capped and not. 220 ms lie near what slices of 30 ms \
         give: whoever wakes up is boosted for up to a tick, which is a third of the slice. Either the slice was not \
         in force there, or its guests woke up in other ways than ours.",
        "With a cap, a vCPU under Credit is parked until it owes nothing, and what it may owe grows with the slice: \
         with 30 ms it waits for longest where it was alone, and burnt most at once.",
        "RTDS' 13 ms beside others do not occur: all periods begin at one time here, and the earliest deadlines are \
         served in much the same order in each.",
        "Rota's blackouts are up to a period, 12.8 ms, where Tableau's are a gap of its table: others may be served \
         as they wake, before it. With others that sleep, less, as the second level gives it what they leave.",
    ],
    study: |study| {
        let published = |setting: &Setting| match (setting.capped, setting.policy.label, setting.background) {
            (true, "Credit, 5 ms", _) => UpTo(44.0 * MS),
            (true, "RTDS", "no BG") => About(10.0 * MS),
            (true, "RTDS", _) => UpTo(13.0 * MS),
            (true, "Rota", _) => About(10.0 * MS),
            (false, "Credit, 5 ms" | "Credit2" | "Rota", "no BG") => Below(MS),
            (false, "Credit, 5 ms", _) => UpTo(220.0 * MS),
            (false, "Credit2", "I/O BG") => Said("not so well"),
            (false, "Credit2", _) => Said("well"),
            (false, "Rota", _) => UpTo(10.0 * MS),
            _ => Nothing,
        };
        let table = |capped: bool| {
            let studied = studied(study, "30s", capped, &[PROBE])?;
            let row = |(setting, outcome): &(Setting, Outcome)| {
                setting.row(published(setting), vantage(outcome).metrics.blackout_max_ns as f64)
            };
            Ok(Table::new(caption("Longest delay", capped), Unit::Time, studied.iter().map(row).collect()))
        };
        [true, false].into_iter().map(table).collect()
    },
};

pub const PING: Figure = Figure {
    name: "003-fig6.4",
    title: "how long a VM takes to answer a ping",
    source: "Vanga, thesis, section 6.3 and figure 6.4; only what the text gives of the bars' heights",
    setting: &[
        DENSE,
        "The VM that is looked at answers pings of eight threads, each of which waits for 0 to 200 ms between two; \
         and runs its system's own processes. Ours is from the request to the answer, without a network, in 60 s; \
         there, 40,000 pings over a network took about 100 us where nobody else computed. Averages are of a \
         histogram's buckets, 1/16 wide.",
        SLICES,
    ],
    differs: &[
        "The least that a ping takes there is the network's and dom0's time, which is not simulated.",
        "Credit's longest waits are in the tail's end: which of them a run meets is chance, and ours has 4,800 pings.",
        "RTDS alone has no waits here: 50 us every 50 ms use no budget up. What the guests' systems did there is not \
         known.",
        "A woken vCPU of Rota does not wait for its slot, as Tableau's does: with budget left it runs at once, capped \
         or not, so the longest wait is a fortieth of theirs.",
        "Beside I/O, Credit boosts everybody that wakes up, and so nobody: the longest wait is that for the boosted \
         ones before it, more than ten times that beside hogs.",
    ],
    study: |study| {
        let mut tables = Vec::new();
        let (mut averages, mut longest) = (Vec::new(), Vec::new());
        for capped in [false, true] {
            let studied = studied(study, "60s", capped, &[PINGED, NONE])?;
            let table = |what: &str, row: &dyn Fn(&Setting, &Histogram) -> Row| {
                let rows = studied
                    .iter()
                    .map(|(setting, outcome)| row(setting, &vantage(outcome).metrics.latencies));
                Table::new(caption(what, capped), Unit::Time, rows.collect())
            };
            averages.push(table("Average", &|setting, times| {
                setting.row(published_average(setting), mean(times))
            }));
            longest.push(table("Longest", &|setting, times| {
                setting.row(published_longest(setting), times.quantile(1.0).unwrap_or(0) as f64)
            }));
        }
        tables.append(&mut averages);
        tables.append(&mut longest);
        Ok(tables)
    },
};

fn published_average(setting: &Setting) -> Published {
    match (setting.capped, setting.policy.label, setting.background) {
        (_, "Credit, 30 ms", _) => Nothing,
        (false, _, "no BG") => About(100.0 * US),
        (false, _, "I/O BG") => Said("low"),
        (false, "Rota", _) => Said("clearly higher"),
        (false, ..) => Said("almost at once"),
        (true, "Rota", "no BG") => Said("clearly higher"),
        _ => Nothing,
    }
}

fn published_longest(setting: &Setting) -> Published {
    match (setting.capped, setting.policy.label, setting.background) {
        (_, "Credit, 30 ms", _) => Nothing,
        (false, _, "no BG") => About(200.0 * US),
        (false, "Credit, 5 ms", "I/O BG") => UpTo(75.0 * MS),
        (false, "Credit2", _) => Said("good"),
        (true, "Credit, 5 ms", "no BG") => UpTo(15.0 * MS),
        (true, "Credit, 5 ms", "I/O BG") => About(30.0 * MS),
        (true, "RTDS", _) => UpTo(9.0 * MS),
        (true, "Rota", _) => UpTo(10.0 * MS),
        _ => Nothing,
    }
}

/// In ns; of the buckets' upper ends.
fn mean(times: &Histogram) -> f64 {
    let counted = Vec::<(u64, u64)>::from(times.clone());
    let sum: f64 = counted.iter().map(|(upper_ns, count)| *upper_ns as f64 * *count as f64).sum();
    sum / times.total().max(1) as f64
}

/// The VMs' cores.
const CORES: f64 = 12.0;

pub const OVERHEADS: Figure = Figure {
    name: "003-tab6.1",
    title: "how often a scheduler has something to do",
    source: "Vanga, thesis, section 6.2 and table 6.1",
    setting: &[
        DENSE,
        "Every VM does I/O, and none is capped but under RTDS, which always does. There, what a decision, a wake-up \
         and the work after a change of task take was measured, in us each. The simulator does not run their code; \
         it counts how often each happens, for each of the twelve cores in a second. The last column is what their \
         prices and our counts come to, as a part of a core.",
        SLICES,
    ],
    differs: &[
        "Prices are theirs, counts ours; what Rota's own decisions take is in BENCHMARKS.md.",
        "Rota decides about as often as the others; but nobody ever moves.",
    ],
    study: |study| {
        let policies =
            [credit(), called("credit2", "Credit2"), called("rtds", "RTDS"), called("rota", "Rota")];
        let cases = policies.map(|policy| Case { policy, scenario: high_density("10s", false, &[IO], IO) });
        let outcomes = study.run(&cases)?;
        let rate = |outcome: &Outcome, count: u64| count as f64 * 1e9 / outcome.window_ns as f64 / CORES;
        let sum =
            |outcome: &Outcome, of: fn(&TenantOutcome) -> u64| outcome.tenants.iter().map(of).sum::<u64>();
        type Count<'c> = &'c dyn Fn(&Outcome) -> u64;
        let table = |what: &str, prices_us: Option<[f64; 4]>, count: Count| {
            let row = |(place, policy): (usize, &Entry)| Row {
                setting: "I/O everywhere".to_owned(),
                policy: policy.label,
                published: prices_us.map_or(Nothing, |prices_us| Each(prices_us[place] * US)),
                ours: rate(&outcomes[place], count(&outcomes[place])),
            };
            let rows = policies.iter().enumerate().map(row).collect();
            let caption = format!("{what}, for each core and second");
            Table { third: prices_us.map(|_| OF_A_CORE), ..Table::new(caption, Unit::Rate, rows) }
        };
        Ok(vec![
            table("Decisions (`Schedule`)", Some([8.08, 3.51, 2.86, 1.43]), &|outcome| outcome.decisions),
            table("Wake-ups (`Wakeup`)", Some([2.12, 5.19, 3.90, 1.06]), &|outcome| {
                sum(outcome, |tenant| tenant.metrics.wakeups.total())
            }),
            table("Changes of task (`Migrate` follows each)", Some([0.32, 5.55, 9.42, 0.43]), &|outcome| {
                sum(outcome, |tenant| tenant.metrics.dispatches)
            }),
            table("Moves to another CPU", None, &|outcome| sum(outcome, |tenant| tenant.metrics.migrations)),
        ])
    },
};

/// Price times count.
const OF_A_CORE: Third = ("of a core", |row| match row.published {
    Each(ns) => format::percent(ns * row.ours / 1e9),
    _ => "-".to_owned(),
});

/// A VM with a core to itself, of which it may have no more than a part, and a background VM.
fn tiers(share: f64, first: &str, second: &str) -> String {
    format!(
        "duration = \"60s\"\n[host]\ncpus = \"0-1\"\nhousekeeping = \"1\"
        [[tenant]]\nname = \"first\"\nmatch = {{ vm = \"qemu:first\" }}
        class = \"reserved\"\nshare = {share}\nlatency = \"20ms\"\ncapped = true
        [[tenant]]\nname = \"second\"\nmatch = {{ vm = \"qemu:second\" }}\nclass = \"background\"
        [[workload]]\ntenant = \"first\"\n{first}
        [[workload]]\ntenant = \"second\"\n{second}"
    )
}

/// Requests that take half of a share.
fn half_load(share: f64) -> String {
    let between_us = (200.0 / (share / 2.0)).round();
    format!(
        "program = \"server\"\nservice = {{ exponential = \"200us\" }}\n\
         arrival = {{ exponential = \"{between_us}us\" }}"
    )
}

const CAPS: [f64; 4] = [0.2, 0.4, 0.6, 0.8];

pub const TIER_2: Figure = Figure {
    name: "003-fig6.12",
    title: "what background VMs harvest, and what that costs the others",
    source: "Vanga, thesis, section 6.6 and figures 6.12 and 6.13; the text has orders, no numbers",
    setting: &[
        "There: a VM of the first tier on a core of its own, capped at 20, 40, 60 or 80 %, and a VM of the second \
         tier, which has what the other leaves. Here: the same, the second tier in Rota's class `background`.",
        "First both VMs compute all the time: harvested is what the second received of the core. Then the first tier \
         answers requests that take half of its share, and its slowest hundredth is looked at beside a second tier \
         that idles, computes or does I/O.",
    ],
    differs: &[
        "They measured requests a second of nginx, we CPU time: in both, what the cap leaves is what the second tier \
         has.",
        "A capped VM answers as it wakes, while it has budget, whatever the second tier does.",
    ],
    study: |study| {
        let rota = called("rota", "Rota");
        let harvested = CAPS.map(|share| Case { policy: rota, scenario: tiers(share, CPU, CPU) });
        let answered = CAPS.map(|share| {
            BACKGROUNDS
                .map(|(_, second)| Case { policy: rota, scenario: tiers(share, &half_load(share), second) })
        });
        let outcomes = study.run(&[&harvested[..], &answered.concat()[..]].concat())?;
        let (harvested, answered) = outcomes.split_at(CAPS.len());
        let harvest = |(cap, outcome): (&f64, &Outcome)| Row {
            setting: format!("capped at {:.0} %", cap * 100.0),
            policy: rota.label,
            published: UpTo(1.0 - cap),
            ours: outcome.tenants[1].metrics.received_ns as f64 / outcome.window_ns as f64,
        };
        let slowest = |(cap, outcomes): (&f64, &[Outcome])| -> Vec<Row> {
            let row = |((background, _), outcome): (&(&str, &str), &Outcome)| Row {
                setting: format!("capped at {:.0} %, {background}", cap * 100.0),
                policy: rota.label,
                published: Said("as if idle"),
                ours: vantage(outcome).metrics.latencies.quantile(0.99).unwrap_or(0) as f64,
            };
            BACKGROUNDS.iter().zip(outcomes).map(row).collect()
        };
        let answers = CAPS.iter().zip(answered.chunks(BACKGROUNDS.len())).flat_map(slowest);
        Ok(vec![
            Table::new(
                "Harvested of the core",
                Unit::Part,
                CAPS.iter().zip(harvested).map(harvest).collect(),
            ),
            Table::new("The first tier's answers, 99th percentile", Unit::Time, answers.collect()),
        ])
    },
};
