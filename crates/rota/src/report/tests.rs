//! The page follows the data, whatever is missing from it.

use rota_lab::scenario::Policy;
use rota_lab::scenario::result::{
    Blackouts, Clock, Control, Gaps, Moves, PolicyResult, Requests, TenantResult,
};

use rota_rules::profile::{BySpent, NOBODY, Spending};

use super::finding::{Summary, Verdict, comparison, headline};
use super::measure::fairness;
use super::run::{Contestant, Inside, Lag, Report, Run, Times};

const MS: u64 = 1_000_000;
const WINDOW_NS: u64 = 30_000 * MS;

/// A tenant that wants all it can get, promised a fifth of a CPU within 20 ms.
fn tenant(name: &str, longest_ms: u64, received_share: f64) -> TenantResult {
    TenantResult {
        name: name.to_owned(),
        class: "reserved".to_owned(),
        vcpus: 1,
        promised_share: Some(0.2),
        latency_bound_ns: Some(20 * MS),
        capped: false,
        cpu_ns: (received_share * WINDOW_NS as f64) as u64,
        received_share,
        blackouts: Blackouts { longest_ns: longest_ms * MS, wanted_ns: WINDOW_NS, ..Blackouts::default() },
        wanted_ns: Vec::new(),
        moves: Moves::default(),
        throttled: None,
        probe: None,
        requests: None,
        work: None,
    }
}

fn result(policy: Policy, tenants: Vec<TenantResult>) -> PolicyResult {
    PolicyResult {
        scenario: "two".to_owned(),
        policy,
        kernel: "7.3.4".to_owned(),
        cpus: 2,
        clock: Clock::Real,
        warm_up_ns: 2_000 * MS,
        window_ns: WINDOW_NS,
        control: vec![Control {
            cpu: 0,
            gaps: Gaps { longest_ns: 3 * MS, ..Gaps::default() },
            late: Gaps::default(),
        }],
        busy_ns: WINDOW_NS,
        system_ns: WINDOW_NS / 50,
        tenants,
        status: None,
    }
}

fn runs(results: &[PolicyResult]) -> Vec<Run> {
    results.iter().map(Run::from).collect()
}

fn headline_of(results: &[PolicyResult]) -> String {
    headline(&runs(results).iter().map(Summary::of).collect::<Vec<_>>())
}

fn render(results: &[PolicyResult], timetable: Option<&str>) -> String {
    super::render(&Report::of_lab(results, timetable.map(str::to_owned)))
}

fn text(results: &[PolicyResult]) -> String {
    super::text(&Report::of_lab(results, None))
}

#[test]
fn the_headline_follows_the_data() {
    let rota = |tenants| headline_of(&[result(Policy::Rota, tenants)]);
    let kept = rota(vec![tenant("a", 18, 0.21), tenant("b", 12, 0.2)]);
    assert!(kept.contains("kept every promise: the longest wait was 18.0 ms, the bound is 20 ms"), "{kept}");
    let machine = rota(vec![tenant("a", 22, 0.21)]);
    assert!(
        machine.contains("22.0 ms, against a bound of 20 ms and 3.00 ms taken by the machine"),
        "{machine}"
    );
    let late = rota(vec![tenant("a", 95, 0.21), tenant("b", 12, 0.2)]);
    assert!(late.contains("1 of 2 tenants waited beyond their bound: a 95.0 ms instead of 20 ms"), "{late}");
    let short = rota(vec![tenant("a", 12, 0.15), tenant("b", 12, 0.2)]);
    assert!(short.contains("1 of 2 tenants missed their share"), "{short}");
    let mut idle = tenant("c", 0, 0.0);
    idle.blackouts.wanted_ns = 0;
    let partly = rota(vec![tenant("a", 0, 0.21), idle.clone()]);
    assert!(
        partly.ends_with("no tenant with a reservation waited at all; 1 of 2 tenants never wanted to run"),
        "{partly}"
    );
    let idle = rota(vec![idle]);
    assert_eq!(idle, "No tenant with a reservation wanted to run, so no promise was put to the test");
    assert!(
        headline_of(&[result(Policy::Max, vec![tenant("a", 12, 0.2)])]).contains("other schedulers only")
    );
    assert!(headline_of(&[]).contains("other schedulers only"));
}

#[test]
fn the_comparison_follows_the_data() {
    let results = [
        result(Policy::Weight, vec![tenant("a", 90, 0.2)]),
        result(Policy::Max, vec![tenant("a", 15, 0.2)]),
        result(Policy::Rota, vec![tenant("a", 12, 0.2)]),
    ];
    assert_eq!(
        comparison(&runs(&results).iter().map(Summary::of).collect::<Vec<_>>()),
        "The same tenants waited up to 90.0 ms (4.50 times the bound) with cpu.weight and up to 15.0 ms (within \
         the bound) with cpu.max."
    );
}

fn verdict_of(tenant: TenantResult) -> Verdict {
    Summary::of(&Run::from(&result(Policy::Rota, vec![tenant]))).verdict()
}

#[test]
fn a_share_is_due_but_for_one_wait_at_the_windows_ends() {
    let due = 0.2 * (1.0 - 20.0 / 30_000.0);
    for (received, verdict) in [(due - 1e-6, Verdict::Broken), (due + 1e-6, Verdict::Kept)] {
        assert_eq!(verdict_of(tenant("a", 5, received)), verdict);
    }
    let mut idler = tenant("a", 5, 0.01);
    idler.blackouts.wanted_ns = WINDOW_NS / 10;
    assert_eq!(verdict_of(idler.clone()), Verdict::Kept);
    idler.blackouts.wanted_ns = 0;
    assert_eq!(verdict_of(idler), Verdict::Untested);
}

#[test]
fn the_text_shows_every_tenant_and_each_broken_promise() {
    let results = [
        result(Policy::Max, vec![tenant("a", 90, 0.2), tenant("longer", 15, 0.1)]),
        result(Policy::Rota, vec![tenant("a", 12, 0.2), tenant("longer", 9, 0.2)]),
    ];
    let text = text(&results);
    for row in [
        "        promised      share received    longest blackout",
        "tenant  share  bound  cpu.max    Rota   cpu.max      Rota",
        "a       0.200  20 ms    0.200   0.200   90.0 ms!  12.0 ms",
        "longer  0.200  20 ms    0.100!  0.200   15.0 ms   9.00 ms",
    ] {
        assert!(text.lines().any(|line| line == row), "{row}\n{text}");
    }
    assert!(text.contains("Rota kept every promise"), "{text}");
}

#[test]
fn one_policy_alone_has_room_for_its_heads() {
    let text = text(&[result(Policy::Rota, vec![tenant("a", 12, 0.2)])]);
    for row in [
        "        promised      share received  longest blackout",
        "tenant  share  bound           Rota              Rota",
        "a       0.200  20 ms          0.200           12.0 ms",
    ] {
        assert!(text.lines().any(|line| line == row), "{row}\n{text}");
    }
}

#[test]
fn many_policies_have_a_table_for_each_measure() {
    let mut report = Report::of_lab(&[], None);
    let run = |label| Run { policy: Contestant { label, look: 1 }, ..simulated(&[[5, 5]]) };
    report.runs = ["one", "two", "three", "four", "five"].map(run).into();
    let text = super::text(&report);
    for row in [
        "        promised      share received",
        "tenant  share  bound    one     two   three    four    five",
        "a       0.200  20 ms  0.200   0.200   0.200   0.200   0.200",
        "        promised      longest blackout",
        "a       0.200  20 ms  12.0 ms   12.0 ms   12.0 ms   12.0 ms   12.0 ms",
    ] {
        assert!(text.lines().any(|line| line == row), "{row}\n{text}");
    }
    assert_eq!(text.matches("Share and blackout").count(), 1);
}

#[test]
fn names_are_escaped() {
    let mut results = [result(Policy::Rota, vec![tenant("<script>alert('a')</script>&\"", 12, 0.2)])];
    results[0].kernel = "<b>7</b>".to_owned();
    let page = render(&results, None);
    assert!(!page.contains("<script>") && !page.contains("<b>"), "{page}");
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn missing_values_leave_a_page() {
    let page = render(&[], None);
    assert!(page.contains("There are no results"));
    let mut background = tenant("harvester", 900, 0.3);
    (background.class, background.promised_share, background.latency_bound_ns) =
        ("background".into(), None, None);
    let mut bare = result(Policy::Rota, vec![background]);
    (bare.window_ns, bare.cpus, bare.control) = (0, 0, vec![]);
    let page = render(&[bare], None);
    assert!(page.contains("No tenant of this scenario has a reservation") && page.contains("harvester"));
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    // A tenant that one run has and the other has not; a server that never answered.
    let mut silent = tenant("b", 12, 0.2);
    silent.requests = Some(Requests::default());
    let page = render(
        &[
            result(Policy::Max, vec![tenant("a", 12, 0.2)]),
            result(Policy::Rota, vec![tenant("a", 9, 0.2), silent]),
        ],
        Some("<svg id=\"lanes\"></svg>"),
    );
    assert!(page.contains("\u{2013}") && page.contains("data:image/svg+xml,%3Csvg id=%22lanes%22%3E"));
    assert!(!page.contains("NaN") && !page.contains("inf%"), "{page}");
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let page = render(&[result(Policy::Rota, vec![tenant("a", 12, 0.2)])], Some("<svg/>"));
    assert_eq!(page.matches("src=").count(), page.matches("src=\"data:").count());
    for word in ["http:", "https:", "<script", "<link", "url(", "@import"] {
        assert!(!page.contains(word), "{word}");
    }
}

/// Tenants of one class that want all the time, and what each received in each part of the window.
fn simulated(received_ms: &[[u64; 2]]) -> Run {
    let mut run = Run::from(&result(Policy::Rota, vec![tenant("a", 12, 0.2); received_ms.len()]));
    run.window_ns = 20 * MS;
    for (tenant, received_ms) in run.tenants.iter_mut().zip(received_ms) {
        let service = received_ms.iter().map(|ms| (ms * MS, 10 * MS)).collect();
        let latencies = Times { p50_ns: MS, p99_ns: 3 * MS, ..Times::default() };
        tenant.inside =
            Some(Inside { entitlement: 1.0, units: 1, work: 70, latencies, service, ..Inside::default() });
    }
    run
}

#[test]
fn fairness_is_jains() {
    let fair = fairness(&simulated(&[[5, 10], [5, 0]]));
    assert_eq!(fair, [Some(1.0), Some(0.5)]);
    let mut entitled = simulated(&[[6, 8], [3, 4], [0, 0]]);
    for (tenant, entitlement) in entitled.tenants.iter_mut().zip([2.0, 1.0, 1.0]) {
        tenant.inside.as_mut().unwrap().entitlement = entitlement;
    }
    // The third one did not want to run in the second part.
    entitled.tenants[2].inside.as_mut().unwrap().service[1].1 = 0;
    let fair = fairness(&entitled);
    assert!((fair[0].unwrap() - 2.0 / 3.0).abs() < 1e-9 && fair[1] == Some(1.0), "{fair:?}");
    assert_eq!(fairness(&simulated(&[[1, 1]])), [None, None], "nobody to compare it with");
    assert!(fairness(&Run::from(&result(Policy::Rota, vec![]))).is_empty());
}

#[test]
fn who_shares_by_weight_is_behind_or_ahead() {
    let mut run = simulated(&[[5, 5], [5, 5], [5, 5]]);
    for (number, tenant) in (0..2).zip(&mut run.tenants) {
        tenant.seen.name = format!("sharer-{number}");
        let lag =
            Lag { over_time_ns: vec![3_000_000, -4_000_000], behind_max_ns: 7 * MS, ahead_max_ns: 9 * MS };
        tenant.inside.as_mut().unwrap().lag = Some(lag);
    }
    let mut report = Report::of_lab(&[], None);
    report.runs = vec![run];
    let (page, text) = (super::render(&report), super::text(&report));
    let panel = |name: &str| page.contains(&format!("<h3>{name}</h3>"));
    assert_eq!(["sharer-0", "sharer-1", "a"].map(panel), [true, true, false]);
    assert!(page.contains(">+3 ms<") && page.contains(">\u{2212}4 ms<"));
    assert!(text.contains("7.00 ms") && text.contains("9.00 ms"), "{text}");
    report.runs = vec![simulated(&[[5, 5]])];
    assert!(!super::render(&report).contains("Behind and ahead"));
}

#[test]
fn where_time_went_is_in_bars_and_tables() {
    let mut run = simulated(&[[5, 5], [5, 5]]);
    let inside = run.tenants[0].inside.as_mut().unwrap();
    let spent_ns =
        BySpent { running: 4 * MS, waiting: 4 * MS, synchronisation: 2 * MS, ..BySpent::default() };
    let waited_for_ns = [("b<c".to_owned(), 3 * MS), (NOBODY.to_owned(), MS)].into();
    inside.spending = Spending { spent_ns, waited_for_ns };
    inside.spinning_ns = MS;
    let mut report = Report::of_lab(&[], None);
    report.runs = vec![run];
    let (page, text) = (super::render(&report), super::text(&report));
    // Of ten: four run, one of these busily waits.
    for part in
        ["running 30.0 %", "waiting busily 10.0 %", "waiting for a CPU 40.0 %", "synchronisation 20.0 %"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(
        page.contains("waits: 75.0 % for b&lt;c") && !page.contains("class=\"key\"><rect class=\"devices")
    );
    let expected = "        promised      running  waiting busily  waiting for a cpu  synchronisation\n";
    assert!(text.contains(expected) && text.contains("40.0 %"), "{text}");
    assert!(text.contains("2.00x") && text.contains("75.0 % b<c") && !text.contains("halted"), "{text}");
}

#[test]
fn a_simulation_shows_what_the_lab_cannot_see() {
    let mut report = Report::of_lab(&[], None);
    report.runs = vec![simulated(&[[5, 5], [5, 5]])];
    let (page, text) = (super::render(&report), super::text(&report));
    assert!(page.contains("Fairness over time") && text.contains("3500/s"), "{text}");
    let lab = render(&[result(Policy::Rota, vec![tenant("a", 12, 0.2)])], None);
    assert!(!lab.contains("Fairness over time") && !lab.contains("Preemptions"));
}
