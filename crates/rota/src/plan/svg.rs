//! A plan as a picture: one lane a CPU, time from left to right.

use maud::{Markup, PreEscaped, html};
use rota_model::{Model, TenantId};
use rota_plan::{CpuPlan, Plan, Slot};

use super::{count, duration, used_percent, vcpu_name};

const WIDTH: f64 = 1280.0;
const MARGIN: f64 = 24.0;
/// Left of the lanes: the CPU's name.
const NAMES: f64 = 64.0;
/// Right of the lanes: how much of it is reserved.
const USED: f64 = 64.0;
const LANES: f64 = WIDTH - 2.0 * MARGIN - NAMES - USED;
/// Above the first lane: heading and axis.
const HEAD: f64 = 108.0;
/// Average advance of a character of the font, in parts of its size.
const ADVANCE: f64 = 0.56;
/// A legend of more tenants would be longer than the picture; their slots have labels and tool tips.
const LEGEND_MAX: usize = 24;

/// More rounds of one CPU than these are told, not drawn: they would be a texture.
const ROUNDS_MAX: u64 = 64;

/// Fill and ink: the colours of Okabe and Ito (2008), which people with any colour vision tell apart, then lighter ones
/// of them and a grey. Black and yellow are left out, being hard to see beside ink or page.
const COLOURS: [(&str, &str); 12] = [
    ("#0072b2", "#ffffff"),
    ("#e69f00", "#1a1a1a"),
    ("#009e73", "#ffffff"),
    ("#cc79a7", "#1a1a1a"),
    ("#56b4e9", "#1a1a1a"),
    ("#d55e00", "#ffffff"),
    ("#f2cf80", "#1a1a1a"),
    ("#6b7280", "#ffffff"),
    ("#80ceb9", "#1a1a1a"),
    ("#e5bcd3", "#1a1a1a"),
    ("#abd9f4", "#1a1a1a"),
    ("#eaae80", "#1a1a1a"),
];

const STYLE: &str = "text{font-family:system-ui,'Segoe UI',Roboto,'Noto Sans','Liberation Sans',sans-serif;\
    font-variant-numeric:tabular-nums;fill:#17191c}.soft{fill:#5a6169}.end{text-anchor:end}\
    .mid{text-anchor:middle}.grid{stroke:#c9cdd2;stroke-width:1}.again{opacity:.4}";

/// One picture without references to anything outside. A CPU that repeats within the table has its first round in full
/// colour and the others faded; every slot has a tool tip.
pub fn render_svg(plan: &Plan, model: &Model) -> String {
    let chart = Chart { plan, model, pitch: pitch(plan.cpus.len()) };
    let lanes_end = HEAD + chart.pitch * plan.cpus.len() as f64;
    let (legend, legend_height) = chart.legend(lanes_end + 28.0);
    let height = lanes_end + legend_height + MARGIN;
    let picture = html! {
        (PreEscaped("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"))
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height:.0}"))
            width=(WIDTH) height=(format!("{height:.0}")) role="img" {
            title { "Rota timetable" }
            style { (PreEscaped(STYLE)) }
            rect width="100%" height="100%" fill="#ffffff" {}
            (chart.heading())
            (chart.axis(lanes_end))
            @for (row, cpu) in plan.cpus.iter().enumerate() {
                (chart.lane(row, cpu))
            }
            (legend)
        }
    };
    picture.into_string()
}

/// Height of a lane with its gap: less for many CPUs, so that the picture can still be scrolled through.
fn pitch(cpus: usize) -> f64 {
    match cpus {
        0..=16 => 30.0,
        17..=64 => 22.0,
        65..=256 => 14.0,
        _ => 8.0,
    }
}

struct Chart<'a> {
    plan: &'a Plan,
    model: &'a Model,
    pitch: f64,
}

impl Chart<'_> {
    fn x(&self, ns: u64) -> f64 {
        ns as f64 / self.plan.table_length_ns as f64 * LANES
    }

    fn heading(&self) -> Markup {
        let busy = self.plan.cpus.iter().filter(|cpu| !cpu.slots.is_empty()).count();
        let repeats = self.plan.cpus.iter().any(|cpu| cpu.length_ns < self.plan.table_length_ns);
        let what = format!(
            "{} on {busy} of {}, repeating every {}{}",
            count(self.plan.vcpus.len(), "reserved vCPU"),
            count(self.plan.cpus.len(), "CPU"),
            duration(self.plan.table_length_ns),
            if repeats { "; faded where a CPU repeats sooner" } else { "" },
        );
        html! {
            text x=(MARGIN) y="40" font-size="22" font-weight="600" { "Timetable" }
            text x=(MARGIN) y="64" font-size="14" class="soft" { (what) }
            text x=(px(WIDTH - MARGIN)) y=(px(HEAD - 10.0)) font-size="12" class="soft end" { "reserved" }
        }
    }

    /// Vertical lines at round times, behind the lanes.
    fn axis(&self, lanes_end: f64) -> Markup {
        let step = round_step(self.plan.table_length_ns);
        let left = MARGIN + NAMES;
        html! {
            @for at in (0..=self.plan.table_length_ns).step_by(step as usize) {
                @let x = px(left + self.x(at));
                line class="grid" x1=(x) x2=(x) y1=(px(HEAD - 6.0)) y2=(px(lanes_end)) {}
                text x=(x) y=(px(HEAD - 10.0)) font-size="12" class="soft mid" {
                    @if at == 0 { "0" } @else { (duration(at)) }
                }
            }
        }
    }

    fn lane(&self, row: usize, cpu: &CpuPlan) -> Markup {
        let (top, height) = (HEAD + self.pitch * row as f64, self.pitch - 2.0);
        let baseline = px(top + height / 2.0 + self.font() * 0.36);
        let left = MARGIN + NAMES;
        html! {
            text x=(px(left - 10.0)) y=(baseline) font-size=(self.font()) class="end" { "CPU " (cpu.cpu) }
            @if cpu.slots.is_empty() {
                rect x=(px(left)) y=(px(top)) width=(px(LANES)) height=(px(height)) fill="#f1f2f4" {}
                text x=(px(left + 8.0)) y=(baseline) font-size=(self.font()) class="soft" {
                    @if self.model.host.housekeeping.contains(cpu.cpu) { "housekeeping" } @else { "idle" }
                }
            } @else {
                rect x=(px(left)) y=(px(top)) width=(px(LANES)) height=(px(height)) fill="#e4e6e9" {}
                g transform=(format!("translate({} {})", px(left), px(top))) { (self.rounds(cpu, height)) }
                text x=(px(WIDTH - MARGIN)) y=(baseline) font-size=(self.font()) class="soft end" {
                    (format!("{:.1} %", used_percent(cpu)))
                }
            }
        }
    }

    fn font(&self) -> f64 {
        (self.pitch * 0.55).min(13.0)
    }

    /// The first round slot by slot, the others as its shadows.
    fn rounds(&self, cpu: &CpuPlan, height: f64) -> Markup {
        let id = format!("rota-cpu-{}", cpu.cpu);
        let rounds = self.plan.table_length_ns / cpu.length_ns;
        html! {
            g id=(id) {
                @for slot in &cpu.slots { (self.slot(cpu, slot, height)) }
            }
            @if rounds > ROUNDS_MAX {
                @let (from, to) = (self.x(cpu.length_ns), LANES);
                text x=(px((from + to) / 2.0)) y=(px(height / 2.0 + self.font() * 0.36)) font-size=(self.font())
                    class="soft mid" { "repeats every " (duration(cpu.length_ns)) }
            } @else {
                @for round in 1..rounds {
                    use href=(format!("#{id}")) x=(px(self.x(round * cpu.length_ns))) class="again" {}
                }
            }
        }
    }

    fn slot(&self, cpu: &CpuPlan, slot: &Slot, height: f64) -> Markup {
        let vcpu = &self.plan.vcpus[slot.vcpu as usize];
        let name = vcpu_name(self.plan, self.model, slot.vcpu);
        let (fill, ink) = colour(vcpu.tenant);
        let (x, width) = (self.x(slot.start_ns), self.x(slot.len_ns()));
        // A hairline of page between two slots, as long as it leaves something of them.
        let drawn = if width > 3.0 { width - 1.0 } else { width };
        let fits = name.chars().count() as f64 * self.font() * ADVANCE + 8.0 < width;
        html! {
            rect x=(px(x)) width=(px(drawn)) height=(px(height)) fill=(fill) {
                title {
                    (name) " on CPU " (cpu.cpu) ": " (duration(slot.start_ns)) " to " (duration(slot.end_ns))
                    " (" (duration(slot.len_ns())) "); share " (vcpu.share) ", blackout "
                    (duration(vcpu.blackout_ns)) " of at most " (duration(vcpu.latency_ns))
                }
            }
            @if fits {
                text x=(px(x + width / 2.0)) y=(px(height / 2.0 + self.font() * 0.36)) font-size=(self.font())
                    class="mid" style=(format!("fill:{ink};pointer-events:none")) { (name) }
            }
        }
    }

    /// Which colour is whose, and how high that is.
    fn legend(&self, top: f64) -> (Markup, f64) {
        let mut tenants: Vec<TenantId> = self.plan.vcpus.iter().map(|vcpu| vcpu.tenant).collect();
        tenants.dedup();
        if tenants.is_empty() || tenants.len() > LEGEND_MAX {
            return (html! {}, 0.0);
        }
        let mut entries = Vec::new();
        let (mut x, mut y) = (MARGIN + NAMES, top);
        for tenant in tenants {
            let name = &self.model.tenants[tenant as usize].name;
            let width = 18.0 + name.chars().count() as f64 * 13.0 * ADVANCE + 18.0;
            if x + width > WIDTH - MARGIN {
                (x, y) = (MARGIN + NAMES, y + 22.0);
            }
            entries.push((x, y, colour(tenant).0, name));
            x += width;
        }
        let legend = html! {
            @for (x, y, fill, name) in entries {
                rect x=(px(x)) y=(px(y - 10.0)) width="12" height="12" rx="2" fill=(fill) {}
                text x=(px(x + 18.0)) y=(px(y)) font-size="13" { (name) }
            }
        };
        (legend, y - top + 36.0)
    }
}

/// A tenant's fill and ink, the same in every picture of its configuration.
fn colour(tenant: TenantId) -> (&'static str, &'static str) {
    COLOURS[tenant as usize % COLOURS.len()]
}

/// A number of 1, 2 or 5 and zeros, of which four to ten make up the length.
fn round_step(length_ns: u64) -> u64 {
    let steps = (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    steps.take_while(|step| *step <= length_ns).find(|step| length_ns / step <= 10).unwrap_or(length_ns)
}

/// A coordinate: a hundredth of a pixel is enough.
fn px(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::small;
    use super::*;

    #[test]
    fn every_slot_is_in_the_picture() {
        let (plan, model) = small();
        let svg = render_svg(&plan, &model);
        assert_eq!(svg.matches("<rect").count(), 1 + 3 + 3 + 2, "{svg}"); // page, lanes, slots, legend
        assert!(svg.contains("a&lt;&amp;&gt;&quot;b/1 on CPU 2: 3.209 ms to 6.419 ms (3.209 ms)"), "{svg}");
        assert!(svg.contains("housekeeping"), "{svg}");
        assert!(!svg.contains("http://www.w3.org/1999/xlink") && !svg.contains("a<&"), "{svg}");
    }

    #[test]
    fn the_axis_has_round_steps() {
        for (length_ns, step) in
            [(622_440, 100_000), (12_837_825, 2_000_000), (102_702_600, 10_000_000), (1, 1)]
        {
            assert_eq!(round_step(length_ns), step, "{length_ns}");
        }
    }
}
