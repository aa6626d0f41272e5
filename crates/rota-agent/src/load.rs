//! The guest's scheduler in the kernel: loaded, attached, and told of tables.

use std::mem::offset_of;

use anyhow::{Context, Result, anyhow, bail};
use libbpf_rs::{Link, Map, MapCore, MapFlags, MapHandle, MapMut, Object, ObjectBuilder};
use nix::unistd::{SysconfVar, sysconf};
use rota_sched::{NEVER, NR_BUFFERS, Shared};

use crate::shared::{Account, CPUS_MAX, EXIT_HEAD, EXIT_MSG, EXIT_REASON, Live, Settings, TableRef};
use crate::tables::{BYTES_MAX, Table};

/// `guest.bpf.c`, compiled by the build script.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static PROGRAM: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/guest.bpf.o")));

/// Where the kernel says which scheduler is attached.
const OPS: &str = "/sys/kernel/sched_ext/root/ops";
/// The CPUs that are online, as a list.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The scheduler. Dropped, it ends, and the kernel's own takes over.
pub struct Loaded {
    object: Object,
    tables: Shared,
    live: Shared,
    exit: Shared,
    _link: Link,
    /// The highest CPU number and 1.
    pub nr_cpus: u32,
    /// When the table in each buffer holds.
    from_ns: [u64; NR_BUFFERS],
}

impl Loaded {
    /// Loads and attaches it.
    ///
    /// # Errors
    ///
    /// The kernel has no sched_ext, or has a scheduler already, or this is not root.
    pub fn attach() -> Result<Loaded> {
        let settings = settings()?;
        let mut open = ObjectBuilder::default().open_memory(&PROGRAM.0).context("reading the scheduler")?;
        for mut map in open.maps_mut() {
            match map.name().to_string_lossy().as_ref() {
                ".rodata.settings" => {
                    let value = map.initial_value_mut().context("settings have a value")?;
                    value.copy_from_slice(bytemuck::bytes_of(&settings));
                }
                ".data.live" => {
                    let value = map.initial_value_mut().context("what is live has a value")?;
                    let never = TableRef { from_ns: NEVER, generation: 0 };
                    let live = Live { tables: [never; NR_BUFFERS], offset_ns: 0, stolen: [0; CPUS_MAX] };
                    value[..size_of::<Live>()].copy_from_slice(bytemuck::bytes_of(&live));
                }
                "tables" => map.set_value_size(BYTES_MAX)?,
                "views" => map.set_max_entries(settings.nr_cpus * NR_BUFFERS as u32)?,
                "vcpus" | "spinners" => map.set_max_entries(settings.nr_cpus)?,
                _ => {}
            }
        }
        let mut object = open.load().context(
            "loading the scheduler, which needs root and Linux 6.16 or later with CONFIG_SCHED_CLASS_EXT",
        )?;
        let page = |length: usize| length.next_multiple_of(4096);
        let shared = |name, length| Shared::new(&MapHandle::try_from(&map(&object, name)?)?, page(length));
        let tables = shared("tables", BYTES_MAX as usize * NR_BUFFERS)?;
        let live = shared(".data.live", size_of::<Live>())?;
        let exit = shared(".data.exit", EXIT_HEAD + EXIT_REASON + EXIT_MSG)?;
        let named = |map: &MapMut<'_>| map.name() == "rota_guest";
        let mut operations = object.maps_mut().find(named).context("the scheduler has no operations")?;
        let link = operations.attach_struct_ops().map_err(|error| refused(&error))?;
        let nr_cpus = settings.nr_cpus;
        Ok(Loaded { object, tables, live, exit, _link: link, nr_cpus, from_ns: [NEVER; NR_BUFFERS] })
    }

    /// Publishes a table, which holds from `from_ns` of the host's time on. The one in force at `now_ns` holds until
    /// then.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it.
    pub fn publish(&mut self, table: &Table, generation: u64, from_ns: u64, now_ns: u64) -> Result<()> {
        let in_force = (0..NR_BUFFERS).filter(|buffer| self.from_ns[*buffer] <= now_ns);
        let in_force = in_force.max_by_key(|buffer| self.from_ns[*buffer]);
        let buffer = in_force.map_or(0, |buffer| 1 - buffer);
        self.set_from(buffer, NEVER);
        self.tables.write(buffer * BYTES_MAX as usize, &table.bytes);
        for (cpu, view) in (0..).zip(&table.views) {
            self.put("views", buffer as u32 * self.nr_cpus + cpu, bytemuck::bytes_of(view))?;
        }
        let generation_at = at(buffer) + offset_of!(TableRef, generation);
        self.live.write(generation_at, &generation.to_ne_bytes());
        // Later than any other: a newer table may have an earlier start, as after a restart of the host.
        let since_ns = in_force.map_or(0, |in_force| self.from_ns[in_force] + 1);
        self.set_from(buffer, from_ns.max(since_ns));
        Ok(())
    }

    /// No table is in force.
    pub fn withdraw(&mut self) {
        (0..NR_BUFFERS).for_each(|buffer| self.set_from(buffer, NEVER));
    }

    fn set_from(&mut self, buffer: usize, from_ns: u64) {
        self.from_ns[buffer] = from_ns;
        self.live.write(at(buffer) + offset_of!(TableRef, from_ns), &from_ns.to_ne_bytes());
    }

    /// What the host's time is beyond the guest's, in ns.
    pub fn set_offset(&self, offset_ns: i64) {
        self.live.write(offset_of!(Live, offset_ns), &offset_ns.to_ne_bytes());
    }

    /// What was stolen of each CPU's time of late, in thousandths.
    pub fn set_stolen(&self, stolen: &[u32]) {
        let stolen = &stolen[..stolen.len().min(CPUS_MAX)];
        self.live.write(offset_of!(Live, stolen), bytemuck::cast_slice(stolen));
    }

    /// What the scheduler has counted, on all CPUs.
    ///
    /// # Errors
    ///
    /// If the kernel does not say.
    pub fn account(&self) -> Result<Account> {
        let vcpus = map(&self.object, "vcpus")?;
        let mut all = Account::default();
        for cpu in 0..self.nr_cpus {
            let value =
                vcpus.lookup(&cpu.to_ne_bytes(), MapFlags::ANY)?.context("each CPU has an account")?;
            let one: Account = bytemuck::pod_read_unaligned(&value[..size_of::<Account>()]);
            all.left += one.left;
            all.caught += one.caught;
            all.strays += one.strays;
            all.moved += one.moved;
            all.back += one.back;
            all.distrusted += one.distrusted;
            all.spins += one.spins;
        }
        Ok(all)
    }

    /// Why the kernel has ended the scheduler, once it has.
    pub fn exited(&self) -> Option<String> {
        let mut bytes = [0; EXIT_HEAD + EXIT_REASON + EXIT_MSG];
        self.exit.read(0, &mut bytes);
        let (head, texts) = bytes.split_at(EXIT_HEAD);
        if head[..4] == [0; 4] {
            return None;
        }
        let text = |bytes: &[u8]| {
            let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        let (reason, message) = (text(&texts[..EXIT_REASON]), text(&texts[EXIT_REASON..]));
        Some(if message.is_empty() { reason } else { format!("{reason}: {message}") })
    }

    fn put(&self, name: &str, key: u32, value: &[u8]) -> Result<()> {
        let put = map(&self.object, name)?.update(&key.to_ne_bytes(), value, MapFlags::ANY);
        put.with_context(|| format!("writing {name} of the scheduler"))
    }
}

/// Where a buffer's times are in what is live.
fn at(buffer: usize) -> usize {
    offset_of!(Live, tables) + buffer * size_of::<TableRef>()
}

fn map<'o>(object: &'o Object, name: &str) -> Result<Map<'o>> {
    object.maps().find(|map| map.name() == name).with_context(|| format!("the scheduler has no map {name}"))
}

/// Why the kernel does not attach it.
fn refused(error: &libbpf_rs::Error) -> anyhow::Error {
    match std::fs::read_to_string(OPS) {
        Ok(other) => anyhow!("the scheduler {} is attached here; end it first", other.trim()),
        Err(_) => anyhow!("the kernel does not attach the scheduler: {error}"),
    }
}

/// The highest number of this machine's CPUs and 1.
///
/// # Errors
///
/// More CPUs than the scheduler is for.
pub fn nr_cpus() -> Result<u32> {
    let count = sysconf(SysconfVar::_NPROCESSORS_CONF).ok().flatten().unwrap_or(0);
    let nr_cpus = u32::try_from(count).unwrap_or(0);
    if nr_cpus == 0 || nr_cpus as usize > CPUS_MAX {
        bail!("this machine has {count} CPUs; a guest's scheduler is for up to {CPUS_MAX}");
    }
    Ok(nr_cpus)
}

/// This machine's CPUs.
fn settings() -> Result<Settings> {
    let nr_cpus = nr_cpus()?;
    let online = std::fs::read_to_string(ONLINE).with_context(|| format!("reading {ONLINE}"))?;
    let online: rota_model::CpuSet = online.trim().parse().map_err(|error| anyhow!("{ONLINE}: {error}"))?;
    let mut settings = Settings { nr_cpus, table_bytes: BYTES_MAX, online: [0; CPUS_MAX / 64] };
    for cpu in online.iter().filter(|cpu| *cpu < nr_cpus) {
        settings.online[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    Ok(settings)
}
