//! Section 6.4: a web server among VMs that do I/O or thrash caches, asked ever more often until it is saturated.

use anyhow::Result;
use rota_scenario::Outcome;
use rota_scenario::policies::Entry;

use super::{Case, Figure, IO, MS, Row, Study, Table, Unit, caption, credit, high_density, mean, vantage};
use crate::papers::Published::{self, About, Nothing, Said};
use crate::papers::called;

/// Answers of one size.
struct Size {
    label: &'static str,
    arrivals: Arrivals,
    /// The CPU time that one takes.
    service_us: u64,
    /// Each rate is so many requests a second above the one before.
    step: u64,
    /// How long each rate lasts.
    window: &'static str,
}

/// How requests come at a rate.
#[derive(Clone, Copy)]
enum Arrivals {
    /// One after the other at even intervals.
    Even,
    /// From clients who do not know of each other.
    Random,
}
use Arrivals::{Even, Random};

impl Arrivals {
    /// The key for so many a second.
    fn key(self, rate: u64) -> String {
        let between_ns = 1_000_000_000 / rate;
        match self {
            Even => format!("arrival = \"{between_ns}ns\""),
            Random => format!("arrival = {{ exponential = \"{between_ns}ns\" }}"),
        }
    }
}

/// A server and its neighbours.
struct Serving {
    sizes: &'static [Size],
    /// The key for the memory that the server works on.
    memory: &'static str,
    /// What the other VMs do.
    others: &'static str,
    published: &'static [Fact],
}

/// With caps or without; which size; what of it; under which scheduler; and what was published.
type Fact = (bool, &'static str, Asked, &'static str, Published);

/// What is asked of a curve.
#[derive(Clone, Copy)]
enum Asked {
    /// What is answered in a second while the 99th percentile is within so many ms.
    Within(u64),
    /// The most requests that were answered in a second.
    Peak,
}
use Asked::{Peak, Within};

/// Agreed limits of the 99th percentile, in ms.
const LIMITS_MS: [u64; 3] = [100, 20, 10];

/// The most rates that are tried.
const RATES: u64 = 11;

/// A server is saturated once its slowest hundredth takes longer.
const SATURATED_NS: f64 = 500.0 * MS;

/// A size under a scheduler. Who heeds no cap, or always caps, runs once.
struct Series<'s> {
    size: &'s Size,
    capped: Option<bool>,
    policy: Entry,
}

/// What one rate came to.
struct Point {
    rate: u64,
    answered: f64,
    mean_ns: f64,
    slowest_hundredth_ns: f64,
    longest_ns: f64,
}

impl Point {
    fn of(rate: u64, outcome: &Outcome) -> Point {
        let times = &vantage(outcome).metrics.latencies;
        let quantile = |part: f64| times.quantile(part).unwrap_or(outcome.window_ns) as f64;
        Point {
            rate,
            answered: times.total() as f64 * 1e9 / outcome.window_ns as f64,
            mean_ns: mean(times),
            slowest_hundredth_ns: quantile(0.99),
            longest_ns: quantile(1.0),
        }
    }

    fn is_saturated(&self) -> bool {
        self.slowest_hundredth_ns > SATURATED_NS
    }
}

impl Asked {
    fn label(self, size: &str) -> String {
        match self {
            Within(ms) => format!("{size}, 99 % in {ms} ms"),
            Peak => format!("{size}, most answered"),
        }
    }

    /// In requests a second.
    fn of(self, curve: &[Point]) -> f64 {
        match self {
            Within(ms) => sustained(curve, ms as f64 * MS),
            Peak => curve.iter().map(|point| point.answered).fold(0.0, f64::max),
        }
    }
}

/// The most that is answered in a second within a limit of the 99th percentile, between a rate within it and the next
/// beyond; 0 if no rate is within.
fn sustained(curve: &[Point], limit_ns: f64) -> f64 {
    let answered = |place: usize| {
        let here = &curve[place];
        let beyond = curve.get(place + 1).filter(|next| next.slowest_hundredth_ns > limit_ns);
        let part = beyond.map_or(0.0, |next| {
            let log = |ns: f64| (ns / here.slowest_hundredth_ns).ln();
            log(limit_ns) / log(next.slowest_hundredth_ns) * (next.answered - here.answered).max(0.0)
        });
        here.answered + part
    };
    let within = (0..curve.len()).filter(|&place| curve[place].slowest_hundredth_ns <= limit_ns);
    within.map(answered).fold(0.0, f64::max)
}

/// Those whose results depend on caps, and the others.
fn schedulers() -> [(Entry, bool); 6] {
    [
        (credit(), true),
        (called("credit2", "Credit2"), false),
        (called("rtds", "RTDS"), false),
        (called("eevdf", "EEVDF"), false),
        (called("eevdf-max", "EEVDF, cpu.max"), false),
        (called("rota", "Rota"), true),
    ]
}

impl Serving {
    fn series(&self) -> Vec<Series<'_>> {
        let of_size = |size| {
            schedulers().into_iter().flat_map(move |(policy, heeds_caps)| {
                let caps: &[Option<bool>] = if heeds_caps { &[Some(true), Some(false)] } else { &[None] };
                caps.iter().map(move |&capped| Series { size, capped, policy })
            })
        };
        self.sizes.iter().flat_map(of_size).collect()
    }

    fn case(&self, series: &Series<'_>, rate: u64) -> Case {
        let Size { arrivals, service_us, window, .. } = series.size;
        let server = format!(
            "program = \"server\"\nservice = \"{service_us}us\"\n{}\n{}",
            arrivals.key(rate),
            self.memory
        );
        let scenario = high_density(window, series.capped.unwrap_or(true), &[&server], self.others);
        Case { policy: series.policy, scenario }
    }

    /// Raises the rate of each until it is saturated.
    fn curves(&self, study: &Study, series: &[Series<'_>]) -> Result<Vec<Vec<Point>>> {
        let mut curves: Vec<Vec<Point>> = series.iter().map(|_| Vec::new()).collect();
        for step in 1..=RATES {
            let goes_on = |curve: &[Point]| !curve.last().is_some_and(Point::is_saturated);
            let left: Vec<usize> = (0..series.len()).filter(|&place| goes_on(&curves[place])).collect();
            let rate = |place: usize| step * series[place].size.step;
            let cases: Vec<Case> = left.iter().map(|&place| self.case(&series[place], rate(place))).collect();
            for (place, outcome) in left.into_iter().zip(study.run(&cases)?) {
                curves[place].push(Point::of(rate(place), &outcome));
            }
        }
        Ok(curves)
    }

    fn tables(&self, study: &Study) -> Result<Vec<Table>> {
        let series = self.series();
        let curves: Vec<_> = self.curves(study, &series)?;
        let both: Vec<_> = series.iter().zip(&curves).map(|(series, curve)| (series, &curve[..])).collect();
        Ok([true, false].into_iter().flat_map(|capped| self.tables_of(capped, &both)).collect())
    }

    fn tables_of(&self, capped: bool, all: &[(&Series<'_>, &[Point])]) -> Vec<Table> {
        let of_these = |(series, _): &&(&Series<'_>, &[Point])| series.capped.is_none_or(|own| own == capped);
        let shown: Vec<_> = all.iter().filter(of_these).copied().collect();
        let agreed = shown.iter().flat_map(|(series, curve)| {
            LIMITS_MS.map(|ms| row(Within(ms).label(series.size.label), series, Within(ms).of(curve)))
        });
        let times = |what: &str, of: fn(&Point) -> f64| {
            let rows = shown.iter().flat_map(|(series, curve)| {
                let setting = |point: &Point| format!("{}, {}/s", series.size.label, point.rate);
                curve.iter().map(move |point| row(setting(point), series, of(point)))
            });
            Table::by_policy(caption(what, capped), Unit::Time, rows.collect())
        };
        vec![
            self.beside_published(capped, &shown),
            Table::by_policy(
                caption("Answers a second within a limit", capped),
                Unit::Rate,
                agreed.collect(),
            ),
            times("Mean", |point| point.mean_ns),
            times("99th percentile", |point| point.slowest_hundredth_ns),
            times("Longest", |point| point.longest_ns),
        ]
    }

    fn beside_published(&self, capped: bool, shown: &[(&Series<'_>, &[Point])]) -> Table {
        let facts = self.published.iter().filter(|fact| fact.0 == capped);
        let rows = facts.flat_map(|&(_, size, asked, policy, published)| {
            let same = move |series: &Series<'_>| series.size.label == size && series.policy.label == policy;
            let found = shown.iter().filter(move |(series, _)| same(series));
            found.map(move |(series, curve)| Row {
                published,
                ..row(asked.label(size), series, asked.of(curve))
            })
        });
        Table::new(caption("Answers a second", capped), Unit::Rate, rows.collect())
    }
}

fn row(setting: String, series: &Series<'_>, ours: f64) -> Row {
    Row { setting, policy: series.policy.label, published: Nothing, ours }
}

const BESIDE_IO: Serving = Serving {
    sizes: &[
        Size { label: "1 KiB", arrivals: Even, service_us: 154, step: 250, window: "10s" },
        Size { label: "100 KiB", arrivals: Even, service_us: 410, step: 100, window: "10s" },
        Size { label: "100 KiB at random", arrivals: Random, service_us: 410, step: 100, window: "10s" },
        Size { label: "1 MiB", arrivals: Even, service_us: 2_800, step: 15, window: "20s" },
    ],
    memory: "",
    others: IO,
    published: &[
        (true, "1 KiB", Within(100), "Credit, 5 ms", About(1_400.0)),
        (true, "1 KiB", Within(100), "RTDS", About(1_000.0)),
        (true, "1 KiB", Within(100), "Rota", About(1_600.0)),
        (true, "1 KiB", Peak, "Credit, 5 ms", About(1_500.0)),
        (true, "1 KiB", Peak, "RTDS", About(1_000.0)),
        (true, "1 KiB", Peak, "Rota", About(1_500.0)),
        (true, "100 KiB", Peak, "Rota", About(600.0)),
        (true, "1 MiB", Peak, "Credit, 5 ms", Said("above Tableau")),
        (true, "1 MiB", Peak, "Rota", Said("below Credit")),
        (false, "1 KiB", Peak, "Credit, 5 ms", About(1_000.0)),
        (false, "1 KiB", Peak, "Credit2", About(1_100.0)),
        (false, "1 KiB", Peak, "Rota", About(2_200.0)),
        (false, "100 KiB", Within(100), "Credit, 5 ms", About(50.0)),
        (false, "100 KiB", Within(100), "Credit2", About(500.0)),
        (false, "100 KiB", Within(100), "Rota", About(800.0)),
        (false, "100 KiB", Peak, "Rota", About(850.0)),
    ],
};

const BESIDE_THRASHING: Serving = Serving {
    sizes: &[
        Size { label: "100 KiB", arrivals: Even, service_us: 476, step: 50, window: "20s" },
        Size { label: "100 KiB at random", arrivals: Random, service_us: 476, step: 50, window: "20s" },
    ],
    memory: "working_set = 1024\n",
    others: "program = \"hog\"\nworking_set = 2048\n",
    published: &[
        (true, "100 KiB", Peak, "Credit, 5 ms", Said("much as Tableau")),
        (true, "100 KiB", Peak, "RTDS", Said("much as Tableau")),
        (true, "100 KiB", Peak, "Rota", About(500.0)),
        (false, "100 KiB", Peak, "Credit, 5 ms", Said("below Tableau")),
        (false, "100 KiB", Peak, "Credit2", Said("below Credit")),
        (false, "100 KiB", Peak, "Rota", About(500.0)),
    ],
};

/// How the rates are tried, said of both figures.
const RATES_TRIED: &str = "Requests come at even intervals, as wrk2 sends them on each connection; `at random`, as \
    from clients who do not know of each other. Each rate lasts for 10 s or 20 s, and the last one is the first with \
    a 99th percentile above 500 ms. A latency counts from when its request comes. What is answered within a limit \
    lies between what is at a rate within it and at the next, on a line through logarithms; 0 says that no rate was. \
    `most answered` is of all rates.";

/// Who is capped, said of both figures.
const CAPS_HEEDED: &str = "EEVDF with weights and Credit2 cap nobody, RTDS and `cpu.max` always cap at the share: \
    their columns are the same in both halves. Credit has a time slice of 5 ms, as there. Tableau's place is taken by \
    Rota.";

pub const NGINX: Figure = Figure {
    name: "003-fig6.5",
    title: "what a web server answers beside VMs that do I/O",
    source: "Vanga, thesis, section 6.4 and figures 6.5, 6.7 and 6.8; only what the text gives of the curves",
    setting: &[
        "There: the VMs of 003-fig6.3, and in the one that is looked at nginx with a real-time priority, which sends \
         files of 1 KiB, 100 KiB or 1 MiB by HTTPS; wrk2 asks for them over a network of 10 Gbit/s, at a rate that is \
         raised until the server is saturated. The others run `stress-ng --io 1`. Here: the same VMs with the I/O of \
         003-fig6.3 (assumed), and a thread that computes for each request, without a network.",
        "An answer takes 154 us for 1 KiB, as a core alone answers 6,500 a second (section 6.5). It takes 410 us for \
         100 KiB, as Tableau answers 600 a second in 24.6 % of a core: with a cap, ours can hardly differ there. It \
         takes 2.8 ms for 1 MiB, if each KiB more costs the same (assumed).",
        RATES_TRIED,
        CAPS_HEEDED,
    ],
    differs: &[
        "Without caps Rota answers less than Tableau did: our neighbours want four fifths of a core each, and leave \
         little to share out. 2,200 answers of 154 us are a third of a core, so that theirs left more.",
        "RTDS keeps up here. There its lock took 9 us at each change of task (003-tab6.1), which is not simulated.",
        "Credit without caps fails first, as there: everybody who does I/O is boosted, and so nobody.",
        "At low rates Tableau's mean was above Credit's and RTDS', as requests wait for a slot. Rota's is below: it \
         serves a VM when it wakes, with a cap too.",
        "With a cap, Rota ends at the promised share. EEVDF with weights has no cap and gives the server its quarter, \
         and what others leave: it goes further at the limits where the share is what is short.",
        "Credit's lead over Tableau with 1 MiB came from a network card that idles between slots. There is none here.",
    ],
    study: |study| BESIDE_IO.tables(study),
};

pub const NGINX_THRASHED: Figure = Figure {
    name: "003-fig6.6",
    title: "what a web server answers beside VMs that thrash caches",
    source: "Vanga, thesis, section 6.4 and figure 6.6; only what the text gives of the curves",
    setting: &[
        "There: as in 003-fig6.5 with files of 100 KiB, the other VMs thrashing caches (`stress-ng`), which they do \
         without a pause. Here: the others compute on 2 MiB each, and the server works on 1 MiB (both assumed), which \
         comes into the caches anew when another has run. An answer takes 476 us, as a core alone beside such VMs \
         answers 2,100 a second (section 6.5).",
        RATES_TRIED,
        CAPS_HEEDED,
    ],
    differs: &[
        "What another core's thrashing costs is in the 476 us, whoever schedules; what a change of task costs is \
         counted.",
        "Without caps Credit2 falls behind Credit, and Tableau's 500 a second stay, as there. Credit does no worse \
         than Rota where requests come at even intervals: its boost has no rival, as nobody else wakes up.",
        "EEVDF has who wakes wait for others' slices, which end at ticks of 4 ms, at low rates too; with `cpu.max` for \
         about twice as long.",
        "At random some requests come close together, and with a cap they then wait: Rota leads in the half without \
         caps.",
    ],
    study: |study| BESIDE_THRASHING.tables(study),
};

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rate: u64, slowest_hundredth_ns: f64) -> Point {
        Point { rate, answered: rate as f64, mean_ns: 0.0, slowest_hundredth_ns, longest_ns: 0.0 }
    }

    #[test]
    fn a_rate_within_a_limit_lies_before_the_next_beyond() {
        let curve = [point(100, MS), point(200, 30.0 * MS), point(300, 10.0 * MS), point(400, 40.0 * MS)];
        assert!((sustained(&curve, 20.0 * MS) - 350.0).abs() < 0.1, "of the last crossing, halfway");
        assert_eq!(sustained(&curve, 0.5 * MS), 0.0, "nothing is within");
        assert_eq!(sustained(&curve, 50.0 * MS), 400.0, "all that was tried is within");
    }

    #[test]
    fn the_last_rate_is_the_first_that_is_saturated() {
        assert!(point(1, 600.0 * MS).is_saturated() && !point(1, 400.0 * MS).is_saturated());
        assert_eq!(Peak.of(&[point(3, MS), point(5, MS), point(4, MS)]), 5.0);
    }
}
