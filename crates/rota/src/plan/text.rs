//! A plan for people.

use std::collections::BTreeMap;

use rota_model::{CpuSet, Model};
use rota_plan::{CpuPlan, Plan, SlotsAlone, WINDOW_VCPUS_MAX, slots_alone};

use super::{count, duration, used_percent, vcpu_name};

/// Characters of a CPU's lane.
const LANE: u64 = 48;
/// What stands for a CPU's vCPUs in its lane, in this order; more than these share the last.
const MARKS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ#";

/// A table of the CPUs, each with its lane, and one of the vCPUs.
pub fn render_text(plan: &Plan, model: &Model) -> String {
    let busy = plan.cpus.iter().filter(|cpu| !cpu.slots.is_empty()).count();
    let mut text = format!(
        "{} on {busy} of {}; the table repeats every {}.\n",
        count(plan.vcpus.len(), "reserved vCPU"),
        count(plan.cpus.len(), "CPU"),
        duration(plan.table_length_ns),
    );
    if plan.short_slots > 0 {
        text += &format!(
            "{} shorter than {} could not be avoided.\n",
            count(plan.short_slots, "slot"),
            duration(model.host.slot_min_ns),
        );
    }
    for (spare, ready) in model.host.spares.iter().zip(&plan.spares) {
        let (share, latency) = (spare.share, duration(spare.latency_ns));
        text += &format!(
            "{ready} of {} ready of share {share}, {latency}.\n",
            count(spare.count as usize, "spare")
        );
    }
    text += &monitors(model);
    text += &by_slots(plan, model);
    text += "\n";
    text += &columns(cpu_rows(plan, model));
    if !plan.vcpus.is_empty() {
        text += "\n";
        text += &columns(vcpu_rows(plan, model));
    }
    text
}

/// A line for each tenant that has the threads of VMs' monitors.
fn monitors(model: &Model) -> String {
    let mut vms: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for vm in &model.tenants {
        vm.team.monitor.name().into_iter().for_each(|name| vms.entry(name).or_default().push(&vm.name));
    }
    let line = |(name, vms): (&str, Vec<&str>)| match vms[..] {
        [vm] => format!("The monitor of {vm} runs as {name}.\n"),
        _ => format!("The monitors of {} VMs run as {name}.\n", vms.len()),
    };
    vms.into_iter().map(line).collect()
}

/// A line for each reason why CPUs go by their slots alone.
fn by_slots(plan: &Plan, model: &Model) -> String {
    let switch_ns = model.host.costs.switch_ns;
    let [mut migrated, mut together, mut shown, mut crowded, mut busy] = [const { Vec::new() }; 5];
    for cpu in &plan.cpus {
        match slots_alone(plan, cpu, switch_ns) {
            Some(SlotsAlone::Migrates(_)) => migrated.push(cpu.cpu),
            Some(SlotsAlone::Together(_)) => together.push(cpu.cpu),
            Some(SlotsAlone::Shown(_)) => shown.push(cpu.cpu),
            Some(SlotsAlone::Many(_)) => crowded.push(cpu.cpu),
            Some(SlotsAlone::Changes) => busy.push(cpu.cpu),
            None => {}
        }
    }
    let line = |cpus: Vec<u32>, each: &str| {
        let cpus: CpuSet = cpus.into_iter().collect();
        match cpus.len() {
            0 => String::new(),
            1 => format!("CPU {cpus} has {each}; there vCPUs wait for their slots when they wake.\n"),
            _ => format!("CPUs {cpus} have {each}; there vCPUs wait for their slots when they wake.\n"),
        }
    };
    line(migrated, "a vCPU that migrates")
        + &line(together, "slots that come together with others")
        + &line(shown, "slots that a guest is shown")
        + &line(crowded, &format!("more than {WINDOW_VCPUS_MAX} vCPUs"))
        + &line(busy, "no time for more changes of task than slots make")
}

type Row<const N: usize> = [String; N];

fn cpu_rows(plan: &Plan, model: &Model) -> Vec<Row<6>> {
    let mut rows = vec![["CPU", "REPEATS", "USED", "SLOTS", "ONE REPETITION", "VCPUS"].map(String::from)];
    for cpu in &plan.cpus {
        let owners = owners(cpu);
        let name =
            |(place, &vcpu): (usize, &u32)| format!("{}={}", mark(place), vcpu_name(plan, model, vcpu));
        let names: Vec<String> = owners.iter().enumerate().map(name).collect();
        let names = match cpu.exclusive_to.filter(|_| cpu.slots.is_empty()) {
            Some(tenant) => format!("(kept from others for {})", model.tenants[tenant as usize].name),
            None if model.host.housekeeping.contains(cpu.cpu) => "(housekeeping)".to_owned(),
            None => names.join(" "),
        };
        rows.push([
            cpu.cpu.to_string(),
            duration(cpu.length_ns),
            format!("{:.1} %", used_percent(cpu)),
            cpu.slots.len().to_string(),
            lane(cpu, &owners),
            names,
        ]);
    }
    rows
}

/// Who has slots on the CPU, in the order of their first.
fn owners(cpu: &CpuPlan) -> Vec<u32> {
    let mut owners = Vec::new();
    for slot in &cpu.slots {
        if !owners.contains(&slot.vcpu) {
            owners.push(slot.vcpu);
        }
    }
    owners
}

fn mark(place: usize) -> char {
    char::from(MARKS[place.min(MARKS.len() - 1)])
}

/// Each character is the owner of the middle of its part of the CPU's length.
fn lane(cpu: &CpuPlan, owners: &[u32]) -> String {
    let character = |column: u64| {
        let middle = (2 * column + 1) * cpu.length_ns / (2 * LANE);
        let slot = cpu.slots.partition_point(|slot| slot.end_ns <= middle);
        let slot = cpu.slots.get(slot).filter(|slot| slot.start_ns <= middle);
        let place = slot.and_then(|slot| owners.iter().position(|&owner| owner == slot.vcpu));
        place.map_or('.', mark)
    };
    (0..LANE).map(character).collect()
}

fn vcpu_rows(plan: &Plan, model: &Model) -> Vec<Row<8>> {
    let head = ["VCPU", "SHARE", "BUDGET", "EVERY", "BLACKOUT", "BOUND", "CPUS", "METHOD"];
    let mut rows = vec![head.map(String::from)];
    for (place, vcpu) in (0..).zip(&plan.vcpus) {
        let cpus: CpuSet = vcpu.cpus.iter().copied().collect();
        rows.push([
            vcpu_name(plan, model, place),
            vcpu.share.to_string(),
            duration(vcpu.budget_ns),
            duration(vcpu.period_ns),
            duration(vcpu.blackout_ns),
            duration(vcpu.latency_ns),
            cpus.to_string(),
            vcpu.method.to_string(),
        ]);
    }
    rows
}

/// The rows below each other: figures to the right, everything else to the left.
pub fn columns<const N: usize>(rows: Vec<Row<N>>) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let is_figure = |column: usize| {
        rows[1..].iter().all(|row| row[column].starts_with(|first: char| first.is_ascii_digit()))
    };
    let figures: [bool; N] = std::array::from_fn(is_figure);
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            line += &if figures[column] { format!("{cell:>width$}  ") } else { format!("{cell:width$}  ") };
        }
        text += line.trim_end();
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::{migrating, of_changes, of_many, small};
    use super::*;

    #[test]
    fn the_text_is_a_table() {
        let (plan, model) = small();
        let expected = "\
3 reserved vCPUs on 2 of 3 CPUs; the table repeats every 12.838 ms.

CPU    REPEATS     USED  SLOTS  ONE REPETITION                                    VCPUS
  0  12.838 ms    0.0 %      0  ................................................  (housekeeping)
  1  12.838 ms  100.0 %      1  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa  a=db/0
  2  12.838 ms   50.0 %      2  aaaaaaaaaaaabbbbbbbbbbbb........................  a=a<&>\"b/0 b=a<&>\"b/1

VCPU      SHARE     BUDGET      EVERY  BLACKOUT  BOUND  CPUS  METHOD
db/0          1  12.838 ms  12.838 ms      0 ns   1 ms     1  dedicated
a<&>\"b/0   0.25   3.209 ms  12.838 ms  9.628 ms  20 ms     2  partitioned
a<&>\"b/1   0.25   3.209 ms  12.838 ms  9.628 ms  20 ms     2  partitioned
";
        assert_eq!(render_text(&plan, &model), expected);
    }

    #[test]
    fn cpus_that_go_by_their_slots_alone_are_named() {
        let (plan, model) = migrating();
        let text = render_text(&plan, &model);
        let line = "CPUs 1-2 have a vCPU that migrates; there vCPUs wait for their slots when they wake.\n\n";
        assert!(text.contains(line), "{text}");
        let (plan, model) = of_many();
        let text = render_text(&plan, &model);
        let line = "CPU 2 has more than 16 vCPUs; there vCPUs wait for their slots when they wake.\n\n";
        assert!(text.contains(line), "{text}");
        let (plan, model) = of_changes();
        let text = render_text(&plan, &model);
        let line =
            "CPU 2 has no time for more changes of task than slots make; there vCPUs wait for their slots";
        assert!(text.contains(line), "{text}");
    }
}
