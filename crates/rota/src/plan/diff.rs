//! What a change moves: one plan beside another, by the names of tenants.

use std::collections::HashMap;
use std::fmt::Display;

use rota_model::CpuSet;
use serde::Serialize;

use super::json::{Cpu, Table, Vcpu};
use super::text::columns;
use super::{count, duration};

/// What a vCPU has in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Place {
    cpus: Vec<u32>,
    budget_ns: u64,
    period_ns: u64,
}

/// A vCPU that is not as it was: without `old` it came, without `new` it went.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Change {
    vcpu: String,
    old: Option<Place>,
    new: Option<Place>,
}

/// What differs between two plans.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// How many CPUs have exactly the slots that they had.
    same_cpus: usize,
    /// The others, ascending; those that only one of the two plans has are among them.
    changed_cpus: Vec<u32>,
    /// Who came, in the order of the new plan, then who went, in that of the old, then who changed.
    vcpus: Vec<Change>,
}

impl Diff {
    /// From `old` to `new`.
    pub fn new(old: &Table, new: &Table) -> Diff {
        let old_cpus: HashMap<u32, _> = old.cpus.iter().map(|cpu| (cpu.cpu, cpu)).collect();
        let same = new.cpus.iter().filter(|cpu| old_cpus.get(&cpu.cpu).is_some_and(|old| is_same(old, cpu)));
        let same: CpuSet = same.map(|cpu| cpu.cpu).collect();
        let all: CpuSet = old.cpus.iter().chain(&new.cpus).map(|cpu| cpu.cpu).collect();

        let place = |vcpu: &Vcpu| Place {
            cpus: vcpu.cpus.clone(),
            budget_ns: vcpu.budget_ns,
            period_ns: vcpu.period_ns,
        };
        let places = |table: &Table| -> HashMap<String, Place> {
            table.vcpus.iter().map(|vcpu| (vcpu.vcpu.clone().into_owned(), place(vcpu))).collect()
        };
        let (old_places, new_places) = (places(old), places(new));
        let change = |vcpu: &Vcpu| Change {
            vcpu: vcpu.vcpu.clone().into_owned(),
            old: old_places.get(&*vcpu.vcpu).cloned(),
            new: new_places.get(&*vcpu.vcpu).cloned(),
        };
        let came = new.vcpus.iter().map(change).filter(|change| change.old.is_none());
        let went = old.vcpus.iter().map(change).filter(|change| change.new.is_none());
        let changed =
            new.vcpus.iter().map(change).filter(|change| change.old.is_some() && change.old != change.new);
        Diff {
            same_cpus: same.len(),
            changed_cpus: all.difference(&same).iter().collect(),
            vcpus: came.chain(went).chain(changed).collect(),
        }
    }

    /// For people.
    pub fn render_text(&self) -> String {
        let kinds: Vec<&str> = self.vcpus.iter().map(Change::kind).collect();
        let counted: Vec<String> = ["came", "went", "moved", "changed"]
            .into_iter()
            .map(|kind| (kind, kinds.iter().filter(|other| **other == kind).count()))
            .filter(|&(_, count)| count > 0)
            .map(|(kind, number)| format!("{} {kind}", count(number, "vCPU")))
            .collect();
        let what = if counted.is_empty() { "No vCPU changed".to_owned() } else { counted.join(", ") };
        let all = count(self.same_cpus + self.changed_cpus.len(), "CPU");
        let changed: CpuSet = self.changed_cpus.iter().copied().collect();
        let cpus = match changed.len() {
            0 => format!("the slots of all {all} stay as they are"),
            number => format!("the slots of {number} of {all} change: {changed}"),
        };
        let mut text = format!("{what}; {cpus}.\n");
        if !self.vcpus.is_empty() {
            let head = ["VCPU", "WHAT", "CPUS", "BUDGET", "EVERY"].map(String::from);
            let rows = self.vcpus.iter().zip(kinds).map(|(change, kind)| change.row(kind));
            text += "\n";
            text += &columns(std::iter::once(head).chain(rows).collect());
        }
        text
    }
}

/// Whether a CPU's slots are the same. One that idles, or that one vCPU has to itself, has the table's length, which is
/// not its own.
fn is_same(old: &Cpu, new: &Cpu) -> bool {
    let whole = |cpu: &Cpu| matches!(&cpu.slots[..], [slot] if slot.end_ns - slot.start_ns == cpu.length_ns);
    if whole(old) && whole(new) {
        return old.slots[0].vcpu == new.slots[0].vcpu;
    }
    old.slots == new.slots && (old.length_ns == new.length_ns || new.slots.is_empty())
}

impl Change {
    fn kind(&self) -> &'static str {
        match (&self.old, &self.new) {
            (None, _) => "came",
            (_, None) => "went",
            (Some(old), Some(new)) if old.cpus != new.cpus => "moved",
            _ => "changed",
        }
    }

    fn row(&self, kind: &str) -> [String; 5] {
        let cpus = |place: &Place| place.cpus.iter().copied().collect::<CpuSet>().to_string();
        [
            self.vcpu.clone(),
            kind.to_owned(),
            self.both(cpus),
            self.both(|place| duration(place.budget_ns)),
            self.both(|place| duration(place.period_ns)),
        ]
    }

    /// What it was and what it is, or only what it is if that is the same.
    fn both<T: Display + PartialEq>(&self, of: impl Fn(&Place) -> T) -> String {
        match (self.old.as_ref().map(&of), self.new.as_ref().map(&of)) {
            (Some(old), Some(new)) if old != new => format!("{old} -> {new}"),
            (old, new) => new.or(old).map(|value| value.to_string()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rota_model::{Class, Model, Share};
    use rota_plan::{Options, plan};

    use super::super::json::{names, render_json};
    use super::super::tests::small;
    use super::*;

    fn diff(old: &str, model: &Model) -> Diff {
        let new = plan(model, &Options::default()).unwrap();
        Diff::new(&serde_json::from_str(old).unwrap(), &Table::new(&new, model, &names(&new, model)))
    }

    #[test]
    fn nothing_changed() {
        let (plan, model) = small();
        let same = diff(&render_json(&plan, &model, Vec::new()).unwrap(), &model);
        assert_eq!(same.render_text(), "No vCPU changed; the slots of all 3 CPUs stay as they are.\n");
    }

    /// Tenants are known by their names, whatever their places in the configuration.
    #[test]
    fn who_came_went_moved_and_changed() {
        let (plan, mut model) = small();
        let old = render_json(&plan, &model, Vec::new()).unwrap();
        model.tenants.swap_remove(0);
        model
            .tenants
            .insert(0, rota_model::Tenant { name: "new".to_owned(), vcpus: 1, ..model.tenants[0].clone() });
        model.tenants[1].affinity = Some([1].into_iter().collect());
        if let Class::Reserved(reservation) = &mut model.tenants[1].class {
            reservation.share = Share::from_fraction(0.45).unwrap();
        }
        let expected = "\
1 vCPU came, 1 vCPU went, 2 vCPUs moved; the slots of 2 of 3 CPUs change: 1-2.

VCPU      WHAT     CPUS                BUDGET                   EVERY
new/0     came        2              3.209 ms               12.838 ms
db/0      went        1             12.838 ms               12.838 ms
a<&>\"b/0  moved  2 -> 1  3.209 ms -> 7.703 ms  12.838 ms -> 17.117 ms
a<&>\"b/1  moved  2 -> 1  3.209 ms -> 7.703 ms  12.838 ms -> 17.117 ms
";
        assert_eq!(diff(&old, &model).render_text(), expected);
    }
}
