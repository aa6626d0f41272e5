//! Bars of where the time of each tenant's threads went, where a simulation has seen that.

use maud::{Markup, html};
use rota_rules::profile::BySpent;

use super::chart::{self, Part};
use super::measure::by_tenant;
use super::run::{Contestant, Run, Tenant};

/// The CSS class of each of [`BySpent::NAMES`], but for running that is no waiting.
const CLASSES: [&str; 7] = ["running", "waiting", "others", "devices", "sleep", "halted", "unknown"];
/// What is running, too, but does nothing.
const SPINNING: &str = "spinning";

/// A bar for each tenant and policy.
pub fn section(runs: &[Run]) -> Markup {
    let tenants = by_tenant(runs, |tenant| !of_tenant(tenant).is_empty());
    let all: Vec<Part> = runs.iter().flat_map(|run| run.tenants.iter().flat_map(of_tenant)).collect();
    if tenants.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Where the threads' time went" }
            p.words { "What the threads of each tenant spent their lifetime on. Waiting for a CPU is what a scheduler \
                can change; synchronisation follows from it where a thread waits for one that waits for a CPU." }
            (legend(&all))
            @for (name, cells) in &tenants {
                h3 { (name) }
                div.chart { @for (policy, tenant) in cells { (bar(*policy, tenant)) } }
            }
        }
    }
}

/// What the colours of these parts are.
pub fn legend(all: &[Part]) -> Markup {
    let known = [(CLASSES[0], BySpent::NAMES[0]), (SPINNING, SPINNING_NAME)];
    let known = known.into_iter().chain(CLASSES.into_iter().zip(BySpent::NAMES).skip(1));
    let shown = known.filter(|(class, _)| all.iter().any(|part| part.class == *class));
    html! {
        p.legend { @for (class, label) in shown {
            span.key { svg width="16" height="16" aria-hidden="true" {
                rect class=(class) width="16" height="16" rx="3" {} } (label) }
        } }
    }
}

/// What [`SPINNING`] is called.
const SPINNING_NAME: &str = "waiting busily";

fn bar(policy: Contestant, tenant: &Tenant) -> Markup {
    let waited = tenant.inside.as_ref().map(|inside| inside.spending.waited_for()).unwrap_or_default();
    let note =
        waited.first().map(|(name, part)| format!("waits: {} for {name}", super::format::percent(*part)));
    chart::bar(policy.label, &note.unwrap_or_default(), &of_tenant(tenant))
}

/// The parts of the threads' time; none where nobody has seen it.
fn of_tenant(tenant: &Tenant) -> Vec<Part> {
    let inside = tenant.inside.as_ref();
    inside.map(|inside| parts(&inside.spending.spent_ns, inside.spinning_ns)).unwrap_or_default()
}

/// The parts of some threads' time, of which they ran so long and did nothing; none where there is no time.
pub fn parts(spent: &BySpent, spinning_ns: u64) -> Vec<Part> {
    if spent.total() == 0 {
        return Vec::new();
    }
    let part = |ns: u64| ns as f64 / spent.total() as f64;
    let of =
        |((class, label), ns): ((&'static str, &'static str), u64)| Part { class, label, part: part(ns) };
    let named = CLASSES.into_iter().zip(BySpent::NAMES).zip(spent.values());
    let mut parts: Vec<Part> = named.map(of).collect();
    let spinning = part(spinning_ns);
    parts[0].part -= spinning;
    parts.insert(1, Part { class: SPINNING, label: SPINNING_NAME, part: spinning });
    parts.retain(|part| part.part > 0.0);
    parts
}
