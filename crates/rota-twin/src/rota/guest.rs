//! What `rota guest` is in a simulated guest: its scheduler's C as a sched_ext scheduler, told of tables and of steal
//! time as its loader does it.

use std::cell::Cell;
use std::mem::size_of;
use std::ptr;
use std::rc::Rc;

use anyhow::{Result, ensure};
use bytemuck::bytes_of;
use rota_agent::{Account, Live, Maps, Published, Settings, Steal, Table, set_stolen};
use rota_sched::{CpuView, NR_BUFFERS};
use rota_sim::{Guest, GuestScheduler, Rng, Timetable};
use rota_table::{HostClock, OwnSlots};

use crate::ext::Ext;
use crate::rota::instance::Instance;
use crate::rota::native::{self, Code};
use crate::rota::ops::NativeOps;

/// The agent of one guest.
pub struct GuestAgent {
    nr_cpus: u32,
    published: Published,
    generation: u64,
    steal: Steal,
    account: Rc<Cell<Account>>,
    /// The variable of this name.
    live: *mut u8,
}

/// `/proc/stat` counts in these.
const TICK_NS: u64 = 10_000_000;

impl GuestAgent {
    /// A guest of so many vCPUs in which it runs, and what its scheduler has counted, up to the last second.
    pub fn guest(code: &Code, vcpus: u32, rng: Rng) -> (Guest, Rc<Cell<Account>>) {
        let ops = native::operations(code);
        let instance = Instance::new(code);
        let settings = Settings::new(vcpus, 0..vcpus);
        put(code, "settings", bytes_of(&settings));
        put(code, "live", bytes_of(&Live::default()));
        let maps = crate::rota::maps::Maps::new(native::maps(code), |name| match name {
            "tables" => (NR_BUFFERS as u32, settings.table_bytes),
            "views" => (vcpus * NR_BUFFERS as u32, 0),
            _ => (vcpus, 0),
        });
        let account = Rc::new(Cell::new(Account::default()));
        let agent = GuestAgent {
            nr_cpus: vcpus,
            published: Published::new(vcpus),
            generation: 0,
            steal: Steal::default(),
            account: account.clone(),
            live: native::variable(code, "live").0.cast(),
        };
        let mut ops = NativeOps::new(ops, native::moment(code), maps, agent);
        ops.model.instance = Some(instance);
        (Guest::with_scheduler(vcpus, rng, Ext::new(ops)), account)
    }
}

/// Sets one of this thread's variables.
fn put(code: &Code, name: &str, bytes: &[u8]) {
    let (address, size) = native::variable(code, name);
    assert_eq!(size as usize, bytes.len(), "{name} is as large as its mirror in Rust");
    // SAFETY: a variable of this thread's of this size, of which there are no references in Rust.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), bytes.len()) };
}

/// The scheduler's maps, for the loader.
struct InModel<'a> {
    maps: &'a mut crate::rota::maps::Maps,
    live: *mut u8,
}

impl Maps for InModel<'_> {
    fn write_tables(&mut self, offset: usize, bytes: &[u8]) {
        self.maps.write("tables", offset, bytes);
    }

    fn write_live(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= size_of::<Live>(), "outside of the variable");
        // SAFETY: within a variable of this thread's, of which there are no references in Rust.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.live.add(offset), bytes.len()) };
    }

    fn put_view(&mut self, index: u32, view: &CpuView) -> Result<()> {
        ensure!(self.maps.put("views", &index.to_le_bytes(), bytes_of(view)), "no view {index}");
        Ok(())
    }
}

impl Ext<NativeOps<GuestAgent>> {
    /// What the loader does, with the scheduler's maps.
    fn load<T>(&mut self, call: impl FnOnce(&mut GuestAgent, &mut InModel<'_>) -> T) -> T {
        let NativeOps { model, loader, .. } = &mut self.ops;
        model.instance.iter().for_each(Instance::enter);
        let live = loader.live;
        call(loader, &mut InModel { maps: &mut model.maps, live })
    }
}

impl GuestScheduler for Ext<NativeOps<GuestAgent>> {
    /// The host's timetable holds from its clock's zero on, which is the guest's.
    fn publish(&mut self, now_ns: u64, timetable: Option<&Timetable>) {
        self.load(|agent, maps| {
            let Some(timetable) = timetable else { return agent.published.withdraw(maps) };
            let own = |(index, slots): (u32, &rota_sim::Slots)| OwnSlots {
                index,
                length_ns: slots.length_ns,
                slots: slots.slots.clone(),
            };
            let vcpus = (0..).zip(timetable.vcpus()).filter(|(_, slots)| !slots.slots.is_empty()).map(own);
            agent.generation += 1;
            let timetable = rota_table::Timetable {
                generation: agent.generation,
                from_ns: 0,
                clock: HostClock::Own,
                vcpus: vcpus.collect(),
            };
            let table = Table::new(&timetable, agent.nr_cpus).expect("a host publishes what makes a table");
            let published = agent.published.publish(maps, &table, agent.generation, 0, now_ns);
            published.expect("the model refuses nothing");
        });
    }

    fn stolen(&mut self, now_ns: u64, stolen_ns: &[u64]) {
        self.load(|agent, maps| {
            let line = |(cpu, stolen_ns): (usize, &u64)| {
                let (ran, stolen) = ((now_ns - stolen_ns) / TICK_NS, stolen_ns / TICK_NS);
                format!("cpu{cpu} {ran} 0 0 0 0 0 0 {stolen} 0 0\n")
            };
            let stat: String = stolen_ns.iter().enumerate().map(line).collect();
            set_stolen(maps, agent.steal.update(&stat));
            let mut account = Account::default();
            for cpu in 0..agent.nr_cpus {
                let vcpu = maps.maps.entry("vcpus", cpu).expect("each CPU has an entry");
                account += bytemuck::pod_read_unaligned(&vcpu[..size_of::<Account>()]);
            }
            agent.account.set(account);
        });
    }

    fn failed(&self) -> Option<String> {
        self.exited().map(ToString::to_string)
    }
}
