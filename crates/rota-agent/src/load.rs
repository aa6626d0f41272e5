//! The guest's scheduler in the kernel: loaded, attached, and told of tables.

use anyhow::{Context, Result, anyhow, bail};
use libbpf_rs::{Link, Map, MapCore, MapFlags, MapHandle, MapMut, Object, ObjectBuilder};
use nix::unistd::{SysconfVar, sysconf};
use rota_sched::{CpuView, NR_BUFFERS, Shared};

use crate::published::{Maps, Published, set_offset, set_stolen};
use crate::shared::{Account, CPUS_MAX, EXIT_HEAD, EXIT_MSG, EXIT_REASON, Live, Settings};
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
    maps: InKernel,
    exit: Shared,
    _link: Link,
    /// The highest CPU number and 1.
    pub nr_cpus: u32,
    published: Published,
}

/// Its maps.
struct InKernel {
    object: Object,
    tables: Shared,
    live: Shared,
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
                    value[..size_of::<Live>()].copy_from_slice(bytemuck::bytes_of(&Live::default()));
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
        let maps = InKernel { object, tables, live };
        Ok(Loaded { maps, exit, _link: link, nr_cpus, published: Published::new(nr_cpus) })
    }

    /// Publishes a table: see [`Published::publish`].
    ///
    /// # Errors
    ///
    /// If the kernel does not take it.
    pub fn publish(&mut self, table: &Table, generation: u64, from_ns: u64, now_ns: u64) -> Result<()> {
        self.published.publish(&mut self.maps, table, generation, from_ns, now_ns)
    }

    /// No table is in force.
    pub fn withdraw(&mut self) {
        self.published.withdraw(&mut self.maps);
    }

    /// What the host's time is beyond the guest's, in ns.
    pub fn set_offset(&mut self, offset_ns: i64) {
        set_offset(&mut self.maps, offset_ns);
    }

    /// What was stolen of each CPU's time of late, in thousandths.
    pub fn set_stolen(&mut self, stolen: &[u32]) {
        set_stolen(&mut self.maps, stolen);
    }

    /// What the scheduler has counted, on all CPUs.
    ///
    /// # Errors
    ///
    /// If the kernel does not say.
    pub fn account(&self) -> Result<Account> {
        let vcpus = map(&self.maps.object, "vcpus")?;
        let mut all = Account::default();
        for cpu in 0..self.nr_cpus {
            let value =
                vcpus.lookup(&cpu.to_ne_bytes(), MapFlags::ANY)?.context("each CPU has an account")?;
            let one: Account = bytemuck::pod_read_unaligned(&value[..size_of::<Account>()]);
            all += one;
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
}

impl Maps for InKernel {
    fn write_tables(&mut self, offset: usize, bytes: &[u8]) {
        self.tables.write(offset, bytes);
    }

    fn write_live(&mut self, offset: usize, bytes: &[u8]) {
        self.live.write(offset, bytes);
    }

    fn put_view(&mut self, index: u32, view: &CpuView) -> Result<()> {
        let put =
            map(&self.object, "views")?.update(&index.to_ne_bytes(), bytemuck::bytes_of(view), MapFlags::ANY);
        put.context("writing views of the scheduler")
    }
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
    Ok(Settings::new(nr_cpus, online.iter()))
}
