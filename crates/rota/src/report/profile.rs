//! A tenant's profile, and what is foretold of it, as a page.

use maud::{Markup, html};
use rota_rules::profile::{BySpent, Spending};

use super::chart::{self, Part};
use super::{document, format, spending};

/// What is shown of a tenant.
pub struct Shown<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// In a sentence.
    pub headline: String,
    /// Names and values.
    pub facts: Vec<(&'static str, String)>,
    /// Of each of its queues: the name, and what its threads spent all of the time on.
    pub queues: Vec<(String, BySpent)>,
    /// Of each of its threads, as far as they are told one by one.
    pub threads: Vec<(String, BySpent)>,
    /// As of the queues, in one step of time after the other; queues in the same order.
    pub steps: Vec<Step>,
    /// For whom its threads waited.
    pub spending: &'a Spending,
    /// What the figures do not tell.
    pub not_known: &'a [String],
}

/// One step of time.
pub struct Step {
    /// From the beginning of the profile to the step's own, in s.
    pub from_s: f64,
    /// And to its end.
    pub to_s: f64,
    /// What the threads of each queue spent it on.
    pub spent: Vec<BySpent>,
}

/// The page.
pub fn page(shown: &Shown) -> String {
    let all: Vec<Part> = shown.queues.iter().flat_map(|(_, spent)| spending::parts(spent, 0)).collect();
    let body = html! {
        header {
            p.name { "Rota" span { "profile" } }
            h1 { (shown.tenant) }
            p.lead { (shown.headline) }
        }
        dl.conditions { @for (name, value) in &shown.facts { div { dt { (name) } dd { (value) } } } }
        section {
            h2 { "Where its threads' time went" }
            p.words { "Of all of the time, and below it from left to right as it went by." }
            (spending::legend(&all))
            div.chart { @for (index, (name, spent)) in shown.queues.iter().enumerate() {
                (chart::bar(name, "", &spending::parts(spent, 0)))
                (timeline(&shown.steps, index, name))
            } }
        }
        (one_by_one(&shown.threads))
        (waits(shown))
        @if !shown.not_known.is_empty() {
            section.reading {
                h2 { "What is not known" }
                @for words in shown.not_known { p { (words) } }
            }
        }
    };
    document(shown.tenant, &body)
}

/// A bar for each thread, if there are several.
fn one_by_one(threads: &[(String, BySpent)]) -> Markup {
    if threads.len() < 2 {
        return html! {};
    }
    html! {
        section {
            h2 { "Thread by thread" }
            p.words { "Those that had most to do come first." }
            div.chart { @for (name, spent) in threads { (chart::bar(name, "", &spending::parts(spent, 0))) } }
        }
    }
}

/// The height of a timeline, in pixels.
const HEIGHT: f64 = 90.0;

/// A column for each step, as high as the threads' time in it is.
fn timeline(steps: &[Step], queue: usize, name: &str) -> Markup {
    let Some(end_s) = steps.last().map(|step| step.to_s) else { return html! {} };
    let threads =
        |step: &Step| step.spent[queue].total() as f64 / 1e9 / (step.to_s - step.from_s).max(f64::EPSILON);
    let most = steps.iter().map(threads).fold(f64::EPSILON, f64::max);
    html! {
        div.label { span.note { "up to " (format::ratio(most)) " threads" br; "in " (format!("{end_s:.1}")) " s" } }
        svg.plot width="100%" height=(HEIGHT) shape-rendering="crispEdges" role="img"
            aria-label=(format!("{name} over time")) {
            @for step in steps {
                (column(step, queue, end_s, HEIGHT * threads(step) / most))
            }
        }
    }
}

/// The parts of a step on top of each other.
fn column(step: &Step, queue: usize, end_s: f64, height: f64) -> Markup {
    let (x, width) = (100.0 * step.from_s / end_s, 100.0 * (step.to_s - step.from_s) / end_s);
    let parts = spending::parts(&step.spent[queue], 0);
    let placed = parts.iter().scan(HEIGHT, |top, part| {
        *top -= part.part * height;
        Some((*top, part))
    });
    html! {
        @for (top, part) in placed {
            rect class=(part.class) x=(chart::percent(x)) width=(chart::percent(width))
                y=(format!("{top:.1}")) height=(format!("{:.1}", part.part * height)) {
                title { (format!("{:.1} s: ", step.from_s)) (part.label) " " (format::percent(part.part)) }
            }
        }
    }
}

/// For whom its threads waited.
fn waits(shown: &Shown) -> Markup {
    let waited = shown.spending.waited_for();
    if waited.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Who ran while it waited for a CPU" }
            div.chart { @for (name, part) in &waited {
                @let bar = [Part { class: "waiting", label: "of its waits", part: *part }];
                (chart::bar(name, if *name == shown.tenant { "its own threads" } else { "" }, &bar))
            } }
        }
    }
}

/// What is foretold, and from what.
pub struct Foretold<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// In a sentence.
    pub headline: String,
    /// Useful work as a part of its threads' time: beside others, and with these held off.
    pub useful: [f64; 2],
    /// Of each part of the sample, in turn: beside others, and with these held off.
    pub parts: &'a [[f64; 2]],
    /// How it was measured.
    pub method: &'a str,
}

/// What is foretold as a page.
pub fn foretold_page(foretold: &Foretold) -> String {
    const NAMES: [&str; 2] = ["beside others", "with others held off"];
    let bar = |name: &str, useful: f64| {
        let rest = Part { class: "idle", label: "the rest", part: (1.0 - useful).max(0.0) };
        chart::bar(name, "", &[Part { class: "running", label: "useful work", part: useful }, rest])
    };
    let body = html! {
        header {
            p.name { "Rota" span { "foretold" } }
            h1 { (foretold.tenant) }
            p.lead { (foretold.headline) }
        }
        section {
            h2 { "Useful work" }
            p.words { "As a part of its threads' time. The slowdown is the second over the first." }
            div.chart { @for (name, useful) in NAMES.iter().zip(foretold.useful) { (bar(name, useful)) } }
        }
        section {
            h2 { "Part by part" }
            p.words { "Each part of the sample for itself. Where they differ much, nothing is foretold." }
            div.wide { table {
                thead { tr { th { "part" } @for name in NAMES { th.n { (name) } } } }
                tbody { @for (index, useful) in foretold.parts.iter().enumerate() { tr {
                    th { (index + 1) } @for part in useful { td.n { (format::percent(*part)) } }
                } } }
            } }
        }
        section.reading { h2 { "How it was measured" } p { (foretold.method) } }
    };
    document(foretold.tenant, &body)
}
