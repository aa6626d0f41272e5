//! A scheduler goes on under the next daemon: all that this side has to know of it is read from its maps.
//!
//! Whatever the daemon before was doing when it ended, each entry of a map is whole, and the order in which entries are
//! written leaves nothing between two of them that is not looked at here.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rota_model::{Class, Costs, CpuSet, Reservation, Share, TenantId, Topology};
use rota_table::layout::{self, BYTES_MAX, Header};
use rota_table::{Certified, Promise, TableView, certify};

use super::{InBuffer, Installed, Known, Published, Scheduler, TenantKind, TenantSpec, queues_needed};
use crate::kernel::{Kernel, Memory};
use crate::placement::Placement;
use crate::shared::{self, Live, NEVER, NONE, Profile, Settings, TableRef, VcpuThread, class};

/// What a daemon finds that takes a scheduler over.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The newest table's number; 0 if there is none.
    pub generation: u64,
    /// Its length in ns.
    pub length_ns: u64,
    /// How many CPUs have slots in it.
    pub cpus: usize,
    /// The tenants, the system's own among them.
    pub tenants: Vec<FoundTenant>,
}

/// A tenant that a scheduler knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTenant {
    /// As it was told last.
    pub spec: TenantSpec,
    /// When it came, on CLOCK_MONOTONIC, in ns.
    pub since_ns: u64,
    /// Whose tasks are its.
    pub cgroup: Option<u64>,
    /// Its vCPU threads.
    pub threads: BTreeMap<i32, u32>,
    /// What the newest table promises each of its vCPUs.
    pub promised: Vec<Reservation>,
}

/// The newest table of a scheduler that was taken over, if it has one.
type Newest = Option<(Certified, InBuffer)>;

impl<K: Kernel> Scheduler<K> {
    /// Takes over the scheduler that is in `kernel`, which was loaded for `settings`. Its tables are certified anew,
    /// net of `costs`. The newest one is to be [settled](Scheduler::settle) when it is in force.
    ///
    /// # Errors
    ///
    /// What is in its maps is not sound.
    pub fn adopt(
        kernel: K,
        settings: Settings,
        topology: &Topology,
        costs: Costs,
    ) -> Result<(Scheduler<K>, Found, Option<Published>)> {
        let mut scheduler = Scheduler::with_settings(kernel, settings);
        scheduler.closed = None;
        // What the kernel has leaves out cores that were closed, and are perhaps open by now.
        let ring = scheduler.tenant_cpus()?;
        *scheduler.ring.borrow_mut() = ring;
        let newest = scheduler.find_tables(topology, costs)?;
        scheduler.find_tenants()?;
        let left = |queue| scheduler.is_busy(queue);
        scheduler.numbers.borrow_mut().remember_left(left);
        let found = scheduler.found(&newest)?;
        scheduler.memberships_changed()?;
        let published = newest.map(|(_, InBuffer { generation, from_ns, .. })| Published {
            from_ns,
            installed: Installed { generation, adopted_at_ns: from_ns },
        });
        Ok((scheduler, found, published))
    }

    /// Reads and certifies the tables in the buffers. Returns the newest.
    fn find_tables(&mut self, topology: &Topology, costs: Costs) -> Result<Newest> {
        let mut newest: Newest = None;
        for buffer in 0..shared::NR_BUFFERS {
            let at = offset_of!(Live, tables) + buffer * size_of::<TableRef>();
            let TableRef { from_ns, generation } = self.kernel.get(Memory::Live, at);
            if from_ns == NEVER {
                continue;
            }
            let table = self.certified(buffer, topology, costs)?;
            ensure!(
                table.generation() == generation,
                "buffer {buffer} has another table than the one in force"
            );
            let placement = Placement::new(&table, self.settings.nr_cpus)?;
            let in_buffer = InBuffer { generation, length_ns: placement.length_ns, from_ns };
            self.buffers[buffer] = Some(in_buffer);
            self.exclusive[buffer] = placement.exclusive;
            if generation > self.generation {
                self.generation = generation;
                newest = Some((table, in_buffer));
            }
        }
        Ok(newest)
    }

    /// The table in a buffer, if it keeps what it says that it promises.
    fn certified(&self, buffer: usize, topology: &Topology, costs: Costs) -> Result<Certified> {
        let at = buffer * self.settings.table_bytes as usize;
        let header: Header = self.kernel.get(Memory::Tables, at);
        let length = header.bytes.min(self.settings.table_bytes).min(BYTES_MAX) as usize;
        let mut bytes = vec![0; length.next_multiple_of(8)];
        self.kernel.read(Memory::Tables, at, &mut bytes);
        bytes.truncate(length);
        let promises = stated(&bytes, topology)?;
        certify(bytes, &promises, costs).with_context(|| format!("the table in buffer {buffer} is not sound"))
    }

    fn find_tenants(&self) -> Result<()> {
        for id in 0..self.settings.nr_tenants {
            let entry = self.kernel.entry("tenants", id)?;
            let record: shared::Tenant = bytemuck::pod_read_unaligned(&entry[..size_of::<shared::Tenant>()]);
            if record.class != class::NONE {
                let known = self.known(id, record)?;
                self.tenants.borrow_mut().insert(id, known);
            }
        }
        Ok(())
    }

    /// A tenant by its record, with its queues taken.
    fn known(&self, id: TenantId, mut record: shared::Tenant) -> Result<Known> {
        let spec = spec(id, &record);
        let queues = record.nr_queues;
        ensure!(queues >= queues_needed(spec.kind, spec.vcpus), "tenant {id} has too few queues");
        let mut numbers = self.numbers.borrow_mut();
        ensure!(numbers.take_these(record.first_queue, queues), "tenant {id} has queues of another one");
        let own = record.kind;
        let former = (record.former_entry.wrapping_sub(own), record.nr_former + own);
        // It was about to grow, and has not, if the queues from before are those that it has.
        let has_former = record.nr_former > 0 && former.0 != record.first_queue;
        if has_former {
            ensure!(numbers.take_these(former.0, former.1), "tenant {id} grew from queues of another one");
        } else if record.nr_former > 0 {
            record.nr_former = 0;
            self.kernel.put("tenants", id, &record)?;
        }
        Ok(Known { spec, queues, former: has_former.then_some(former), record })
    }

    /// What the daemon's rules begin with.
    fn found(&self, newest: &Newest) -> Result<Found> {
        let (mut cgroups, mut threads) = (self.bound_cgroups()?, self.bound_threads()?);
        let mut promised = newest.as_ref().map(|(table, _)| promised(table)).unwrap_or_default();
        let mut found = Found::default();
        if let Some((table, in_buffer)) = newest {
            (found.generation, found.length_ns) = (in_buffer.generation, in_buffer.length_ns);
            found.cpus = table.view().cpus().filter(|cpu| !cpu.slots.is_empty()).count();
        }
        for (&id, known) in self.tenants.borrow_mut().iter_mut() {
            let promised = promised.remove(&id).unwrap_or_default();
            if let (Class::Reserved(reservation), Some(first)) = (&mut known.spec.class, promised.first()) {
                (reservation.share, reservation.capped) = (first.share, first.capped);
            }
            let profile = self.kernel.entry("profiles", known.record.first_queue)?;
            let profile: Profile = bytemuck::pod_read_unaligned(&profile[..size_of::<Profile>()]);
            found.tenants.push(FoundTenant {
                spec: known.spec.clone(),
                since_ns: profile.born,
                cgroup: cgroups.remove(&id),
                threads: threads.remove(&id).unwrap_or_default(),
                promised,
            });
        }
        // Those of tenants that are gone.
        cgroups.into_values().try_for_each(|cgroup| self.kernel.remove("cgroups", cgroup))?;
        let lost: BTreeSet<i32> = threads.into_values().flat_map(BTreeMap::into_keys).collect();
        lost.into_iter().try_for_each(|tid| self.kernel.remove("vcpu_threads", tid))?;
        Ok(found)
    }

    /// Each tenant's cgroup. A tenant has one.
    fn bound_cgroups(&self) -> Result<BTreeMap<TenantId, u64>> {
        let mut cgroups = BTreeMap::new();
        for (key, value) in self.kernel.entries("cgroups")? {
            let (cgroup, id): (u64, u32) = (pod(&key)?, pod(&value)?);
            if let Some(other) = cgroups.insert(id, cgroup) {
                self.kernel.remove("cgroups", other)?;
            }
        }
        Ok(cgroups)
    }

    fn bound_threads(&self) -> Result<BTreeMap<TenantId, BTreeMap<i32, u32>>> {
        let mut threads: BTreeMap<TenantId, BTreeMap<i32, u32>> = BTreeMap::new();
        for (key, value) in self.kernel.entries("vcpu_threads")? {
            let (tid, VcpuThread { tenant, index }) = (pod(&key)?, pod(&value)?);
            threads.entry(tenant).or_default().insert(tid, index);
        }
        Ok(threads)
    }
}

fn pod<T: bytemuck::Pod>(bytes: &[u8]) -> Result<T> {
    let bytes = bytes.get(..size_of::<T>()).context("an entry of another size")?;
    Ok(bytemuck::pod_read_unaligned(bytes))
}

/// A tenant as its record has it. The table knows a reservation's share and cap: until then the share is by the weight.
fn spec(id: TenantId, record: &shared::Tenant) -> TenantSpec {
    let each_ppb = u64::from(record.weight) * 10_000_000 / u64::from(record.nr_vcpus.max(1));
    let share = Share::from_ppb(each_ppb.clamp(1, 1_000_000_000) as u32).expect("a part of a CPU");
    TenantSpec {
        id,
        class: match record.class {
            class::RESERVED => {
                Class::Reserved(Reservation { share, latency_ns: record.latency_ns, capped: false })
            }
            class::SHARED => Class::Shared { weight: record.weight },
            _ => Class::Background,
        },
        vcpus: record.nr_vcpus,
        kind: if record.kind == 0 { TenantKind::Container } else { TenantKind::Vm },
        oversubscribe: record.oversubscribe != 0,
        monitor: (record.monitor != NONE).then_some(record.monitor),
    }
}

fn reservation(vcpu: &layout::Vcpu) -> Result<Reservation> {
    let share =
        Share::from_ppb(vcpu.share_ppb).with_context(|| format!("a share of {} ppb", vcpu.share_ppb))?;
    let capped = vcpu.flags & layout::VCPU_CAPPED != 0;
    Ok(Reservation { share, latency_ns: vcpu.latency_ns, capped })
}

/// What a table says that it promises, to be held against it. Where tenants may run it does not say.
fn stated(bytes: &[u8], topology: &Topology) -> Result<Vec<Promise>> {
    let view = TableView::new(bytes).context("it is no table")?;
    let cpus: CpuSet = (0..view.header().nr_cpus).collect();
    let (cores, none): (Arc<[CpuSet]>, Arc<[CpuSet]>) = (topology.siblings().into(), [].into());
    let marked = view.cpus().filter(|cpu| cpu.record.flags & layout::CPU_EXCLUSIVE != 0);
    let unshared: BTreeSet<u32> = marked.flat_map(|cpu| cpu.locals.iter().collect::<Vec<_>>()).collect();
    let promise = |(place, vcpu): (u32, layout::Vcpu)| {
        Ok(Promise {
            tenant: vcpu.tenant,
            index: vcpu.index,
            reservation: reservation(&vcpu)?,
            cpus: cpus.clone(),
            unshared: if unshared.contains(&place) { cores.clone() } else { none.clone() },
            together: false,
        })
    };
    (0..).zip(view.vcpus().iter()).map(promise).collect()
}

/// What a table promises each tenant's vCPUs, in their order.
fn promised(table: &Certified) -> BTreeMap<TenantId, Vec<Reservation>> {
    let mut promised: BTreeMap<TenantId, Vec<Reservation>> = BTreeMap::new();
    for vcpu in table.view().vcpus().iter() {
        promised.entry(vcpu.tenant).or_default().extend(reservation(&vcpu));
    }
    promised
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;

    use super::*;

    #[test]
    fn a_tenant_is_what_its_record_says() {
        let record = shared::Tenant {
            class: class::RESERVED,
            kind: 1,
            weight: 50,
            nr_vcpus: 2,
            latency_ns: 7,
            oversubscribe: 1,
            monitor: 5,
            first_vcpu: [NONE; 2],
            ..Zeroable::zeroed()
        };
        let share = Share::from_ppb(250_000_000).unwrap();
        let class = Class::Reserved(Reservation { share, latency_ns: 7, capped: false });
        let expected = TenantSpec {
            id: 3,
            class,
            vcpus: 2,
            kind: TenantKind::Vm,
            oversubscribe: true,
            monitor: Some(5),
        };
        assert_eq!(spec(3, &record), expected);
    }

    #[test]
    fn what_is_no_table_promises_nothing() {
        let nowhere = Topology::default();
        assert!(stated(&[0; 128], &nowhere).is_err());
        assert!(stated(&[], &nowhere).is_err());
    }
}
