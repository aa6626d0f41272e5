//! All stages, for a whole host.

use rota_model::{Host, Model, Placement, Share};

use crate::demand::Places;
use crate::edit::restock;
use crate::exclusive::Cores;
use crate::known::Known;
use crate::lay_out::{FEW, Wanted, Way};
use crate::period::HYPERPERIOD_NS;
use crate::reason::Journal;
use crate::roster::Roster;
use crate::shortage;
use crate::{Infeasible, Plan};

const WHOLE: u64 = Share::ONE.ppb() as u64;

/// How to plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which CPU a vCPU goes to.
    pub placement: Placement,
}

/// Plans every reservation of the model.
///
/// # Errors
///
/// [`Infeasible`], if not every promise can be kept.
pub fn plan(model: &Model, options: &Options) -> Result<Plan, Infeasible> {
    decide(model, options, None)
}

/// And notes why in the journal.
pub(crate) fn decide(
    model: &Model,
    options: &Options,
    journal: Option<&Journal>,
) -> Result<Plan, Infeasible> {
    let mut ground = Ground::new(&model.host, options);
    let roster = ground.plan(model, journal)?;
    Ok(roster.plan(model, &ground.places.cpus))
}

/// What there is to plan on.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    pub places: Places,
    pub cores: Cores,
    /// What a CPU that is not dedicated has to give, in ns of a hyperperiod.
    pub capacity: u64,
    pub placement: Placement,
    pub known: Known,
}

impl Ground {
    pub fn new(host: &Host, options: &Options) -> Ground {
        let places = Places::new(host);
        let floor = (HYPERPERIOD_NS * u64::from(host.floor_ppb)).div_ceil(WHOLE);
        let capacity = HYPERPERIOD_NS.saturating_sub(floor);
        Ground {
            cores: Cores::new(host, &places.cpus),
            places,
            capacity,
            placement: options.placement,
            known: Known::new(host, capacity),
        }
    }

    /// Everybody, from nothing, and then the spares. Where vCPUs are divided the others are only kept apart if they
    /// are few, and if no more are divided for that.
    pub fn plan(&mut self, model: &Model, journal: Option<&Journal>) -> Result<Roster, Infeasible> {
        let mut roster = self.lay_out(model, Way::Anyhow, journal)?;
        let (divided, pairs) = roster.burdens();
        let is_few = roster.len() <= FEW && self.placement == Placement::WorstFit;
        if divided > 0 && pairs > 0 && is_few {
            let notes = journal.map(Journal::notes);
            match self.lay_out(model, Way::Apart, journal) {
                Ok(other) if other.burdens().0 <= divided && other.burdens().1 < pairs => roster = other,
                _ => journal.zip(notes).into_iter().for_each(|(journal, notes)| journal.set(notes)),
            }
        }
        restock(model, self, &mut roster);
        Ok(roster)
    }

    /// As [`Wanted::lay_out`].
    fn lay_out(&mut self, model: &Model, way: Way, journal: Option<&Journal>) -> Result<Roster, Infeasible> {
        let demands = self.places.collect(&model.tenants)?;
        let (cpus, capacity) = (&self.places.cpus, self.capacity);
        let wholes = shortage::check_shares(model, &demands, cpus, capacity)?;
        let wanted = Wanted { model, demands: &demands, wholes: &wholes, cpus, capacity, journal };
        let layout = wanted.lay_out(self.placement, way, &mut self.known)?;
        for (group, timetable) in &layout.groups {
            let Some(timetable) = timetable.as_ref().filter(|timetable| !timetable.is_storable()) else {
                continue;
            };
            if let Some(place) = timetable.scattered() {
                let demand = &demands[group.vcpus[place] as usize];
                let tenant = model.tenants[demand.tenant as usize].name.clone();
                return Err(Infeasible::Scattered { tenant, index: demand.index });
            }
            if let Some((place, sliced)) = timetable.most_sliced() {
                return Err(Infeasible::Slices {
                    cpu: cpus[group.cpus[place]],
                    slot_ns: sliced.slot_min_ns(),
                    length_ns: sliced.length_ns,
                    tenants: wanted.tenant_names(&group.vcpus),
                });
            }
        }
        let spares = model.host.spares.len();
        Ok(Roster::new(demands, layout, self.places.cpus.len(), capacity, &self.cores, spares))
    }
}
