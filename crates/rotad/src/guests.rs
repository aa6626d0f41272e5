//! Timetables for guests: each VM that is to know when its vCPUs have slots has a folder of its own, with one file.
//!
//! The folder is what a VM can be given to see, and nothing of anybody else is in it. The file is written aside and
//! renamed, so nobody reads half of one. Folders stay: a VM that was given one sees what comes into it later.
//!
//! A VM whose vsock context id is known is sent the same text when it connects (`vsock`).

pub mod vsock;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::libc::{EAFNOSUPPORT, O_NOFOLLOW};
use nix::time::{ClockId, clock_gettime};
use rota_host::Context as ContextId;
use rota_model::{Model, TenantId};
use rota_sched::Installed;
use rota_table::{Certified, HostClock, NO_TIMETABLE, OwnSlots, Timetable, VSOCK_PORT};

use crate::log::say;
use vsock::{Teller, Told};

/// The file in a VM's folder.
const FILE: &str = "timetable";
/// What becomes it.
const ASIDE: &str = ".timetable.new";

/// CLOCK_REALTIME is taken for set if it has moved by so much, in ns.
const SET_NS: i64 = 1_000;
/// Of so many readings of both clocks the one that took the least time counts.
const READINGS: u32 = 5;

/// The VMs' folders, and what is in them.
pub struct Guests {
    folder: PathBuf,
    /// By the VMs' names.
    published: BTreeMap<String, Timetable>,
    /// What CLOCK_REALTIME was at CLOCK_MONOTONIC's zero, in ns, as was published.
    zero_ns: i64,
    /// Who is to be shown anything.
    shown: BTreeSet<String>,
    /// The VMs' vsock context ids.
    contexts: BTreeMap<String, ContextId>,
    /// While anybody is to be shown anything, where there is vsock.
    teller: Option<Teller>,
    /// Whether what an earlier daemon has told may still hold.
    is_inherited: bool,
}

impl Guests {
    /// Those in `folder`. What an earlier daemon has left stays until a table is in force, or [`Guests::withdraw`].
    pub fn new(folder: PathBuf) -> Guests {
        Guests {
            folder,
            published: BTreeMap::new(),
            zero_ns: zero_ns(),
            shown: BTreeSet::new(),
            contexts: BTreeMap::new(),
            teller: None,
            is_inherited: true,
        }
    }

    /// Makes the folder of each VM that is to have one: it can be given to the VM before that starts. Listens for
    /// VMs, if there is one.
    pub fn prepare(&mut self, model: &Model) {
        let shown = model.tenants.iter().filter(|tenant| tenant.team.timetable);
        self.shown = shown.map(|tenant| tenant.name.clone()).collect();
        for name in &self.shown {
            let folder = self.folder.join(name);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            if let Err(error) = made {
                say(&format!("{name}: no folder for its timetable: {}: {error}", folder.display()));
            }
        }
        match (&self.teller, self.shown.is_empty()) {
            (Some(_), true) => self.teller = None,
            (None, false) => self.teller = listen(),
            _ => {}
        }
        self.tell();
    }

    /// These VMs have these vsock context ids. To be called now and then.
    pub fn reach(&mut self, contexts: BTreeMap<String, ContextId>) {
        if contexts != self.contexts {
            self.contexts = contexts;
            self.tell();
        }
    }

    /// Has VMs sent what there is to send.
    fn tell(&self) {
        let Some(teller) = &self.teller else { return };
        let contexts = self.contexts.iter().filter(|(name, _)| self.shown.contains(*name));
        let told = contexts.map(|(name, context)| {
            let text = match self.published.get(name) {
                Some(timetable) => timetable.to_string(),
                None if self.is_inherited => String::new(),
                None => NO_TIMETABLE.to_owned(),
            };
            let of_vm = context.clone();
            let is_there = Box::new(move || of_vm.is_there());
            (context.id(), Told { text: text.into(), is_there })
        });
        teller.tell(told.collect());
    }

    /// What of a table, which is about to be installed, the guests of `model` are shown.
    pub fn shown(
        model: &Model,
        number_of: impl Fn(&str) -> Option<TenantId>,
        table: &Certified,
    ) -> BTreeMap<String, Vec<OwnSlots>> {
        let shown = model.tenants.iter().filter(|tenant| tenant.team.timetable);
        let own = |name: &str| Some(table.view().own_slots(number_of(name)?)).filter(|own| !own.is_empty());
        shown.filter_map(|tenant| Some((tenant.name.clone(), own(&tenant.name)?))).collect()
    }

    /// A table is in force: its guests are told, those whose slots are as before are not, and who has none any more
    /// has no file.
    pub fn publish(&mut self, installed: &Installed, shown: BTreeMap<String, Vec<OwnSlots>>) {
        let names = self.published.keys().cloned().chain(self.left_behind());
        names.filter(|name| !shown.contains_key(name)).for_each(|name| self.remove(&name));
        self.published.retain(|name, _| shown.contains_key(name));
        for (name, vcpus) in shown {
            if self.published.get(&name).is_some_and(|published| published.vcpus == vcpus) {
                continue;
            }
            let (generation, from_ns) = (installed.generation, installed.adopted_at_ns);
            let clock = HostClock::Realtime(self.zero_ns);
            let timetable = Timetable { generation, from_ns, clock, vcpus };
            self.write(&name, &timetable);
            self.published.insert(name, timetable);
        }
        self.is_inherited = false;
        self.tell();
    }

    /// Tells all guests of the clocks, if CLOCK_REALTIME was set meanwhile. To be called now and then.
    pub fn follow_clock(&mut self) {
        let zero_ns = zero_ns();
        if zero_ns.abs_diff(self.zero_ns) <= SET_NS.unsigned_abs() {
            return;
        }
        self.zero_ns = zero_ns;
        let mut published = std::mem::take(&mut self.published);
        for (name, timetable) in &mut published {
            timetable.clock = HostClock::Realtime(zero_ns);
            self.write(name, timetable);
        }
        self.published = published;
        self.tell();
    }

    /// No table is in force any more.
    pub fn withdraw(&mut self) {
        let names = self.left_behind();
        names.iter().for_each(|name| self.remove(name));
        self.published.clear();
        self.is_inherited = false;
        self.tell();
    }

    /// Who has a folder.
    fn left_behind(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn remove(&self, name: &str) {
        match fs::remove_file(self.folder.join(name).join(FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                say(&format!("{name}: its timetable, which holds no more, stays: {error}"));
            }
            _ => {}
        }
    }

    fn write(&self, name: &str, timetable: &Timetable) {
        let folder = self.folder.join(name);
        if let Err(error) = replace(&folder, &timetable.to_string()) {
            // An older one is worse than none.
            self.remove(name);
            say(&format!("{name}: is not told its timetable: {error:#}"));
        }
    }
}

/// Listens for VMs. A kernel without vsock has none.
fn listen() -> Option<Teller> {
    match vsock::listen().and_then(|listener| Teller::start(listener, vsock::context_id)) {
        Ok(teller) => Some(teller),
        Err(error) if error.raw_os_error() == Some(EAFNOSUPPORT) => None,
        Err(error) => {
            say(&format!("VMs are not told their timetables over vsock port {VSOCK_PORT}: {error}"));
            None
        }
    }
}

/// Writes a VM's file. Whatever a guest has put into its folder is not followed.
fn replace(folder: &Path, text: &str) -> Result<()> {
    let aside = folder.join(ASIDE);
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", aside.display()));
        }
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(O_NOFOLLOW);
    let writing = || format!("writing {}", aside.display());
    options.open(&aside).and_then(|mut file| file.write_all(text.as_bytes())).with_context(writing)?;
    let path = folder.join(FILE);
    fs::rename(&aside, &path).with_context(|| format!("replacing {}", path.display()))
}

/// What CLOCK_REALTIME was when CLOCK_MONOTONIC was zero, in ns: constant but for when the clock is set. Both are
/// slowed and sped up alike.
fn zero_ns() -> i64 {
    let read = |clock| {
        let time = clock_gettime(clock).expect("every Linux has both clocks");
        time.tv_sec() * 1_000_000_000 + time.tv_nsec()
    };
    let reading = |_| {
        let before_ns = read(ClockId::CLOCK_MONOTONIC);
        let real_ns = read(ClockId::CLOCK_REALTIME);
        let took_ns = read(ClockId::CLOCK_MONOTONIC) - before_ns;
        (took_ns, real_ns - before_ns - took_ns / 2)
    };
    (0..READINGS).map(reading).min().map_or(0, |(_, zero_ns)| zero_ns)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn own(slots: &[(u64, u64)]) -> Vec<OwnSlots> {
        vec![OwnSlots { index: 0, length_ns: 1_000, slots: slots.to_vec() }]
    }

    fn shown(guests: &[(&str, Vec<OwnSlots>)]) -> BTreeMap<String, Vec<OwnSlots>> {
        guests.iter().map(|(name, own)| ((*name).to_owned(), own.clone())).collect()
    }

    fn installed(generation: u64) -> Installed {
        Installed { generation, adopted_at_ns: 7 }
    }

    /// A folder with two guests'.
    fn guests(folder: &Path) -> Guests {
        for name in ["web", "db"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        Guests::new(folder.to_owned())
    }

    #[test]
    fn a_guest_is_told_when_its_slots_change_and_not_else() {
        let folder = tempfile::tempdir().unwrap();
        let mut guests = guests(folder.path());
        let read = |name: &str| {
            let text = fs::read_to_string(folder.path().join(name).join(FILE)).ok()?;
            Some(text.parse::<Timetable>().unwrap())
        };
        guests.publish(&installed(1), shown(&[("web", own(&[(0, 5)])), ("db", own(&[(5, 9)]))]));
        assert_eq!(read("web").unwrap().vcpus, own(&[(0, 5)]));
        guests.publish(&installed(2), shown(&[("web", own(&[(0, 5)])), ("db", own(&[(5, 8)]))]));
        assert_eq!((read("web").unwrap().generation, read("db").unwrap().generation), (1, 2));
        guests.zero_ns -= 1_000_000;
        guests.follow_clock();
        assert_eq!(read("db").unwrap().clock, HostClock::Realtime(guests.zero_ns));
        guests.publish(&installed(3), shown(&[("web", own(&[(0, 5)]))]));
        assert!(read("db").is_none() && read("web").is_some());
        let mut next = Guests::new(folder.path().to_owned());
        next.publish(&installed(4), shown(&[("db", own(&[(0, 1)]))]));
        assert!(read("web").is_none(), "an earlier daemon's, whose VM has gone");
        next.withdraw();
        assert!(read("db").is_none() && folder.path().join("db").is_dir());
    }

    /// A VM may have been given its folder to write.
    #[test]
    fn what_a_guest_puts_into_its_folder_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let mut guests = guests(folder.path());
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        for name in [FILE, ASIDE] {
            symlink(&precious, folder.path().join("web").join(name)).unwrap();
        }
        guests.publish(&installed(1), shown(&[("web", own(&[(0, 5)]))]));
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        let path = folder.path().join("web").join(FILE);
        let status = path.symlink_metadata().unwrap();
        assert!(status.is_file() && status.permissions().mode() & 0o777 == 0o600);
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(path.join("deep")).unwrap();
        guests.publish(&installed(2), shown(&[("web", own(&[(1, 5)])), ("db", own(&[(5, 9)]))]));
        assert!(folder.path().join("db").join(FILE).is_file(), "others are told");
    }

    /// A VM's context id, as its monitor's command line says it.
    fn context(folder: &Path, id: u32) -> ContextId {
        let line = format!("qemu-kvm\0-name\0web\0-device\0vhost-vsock-pci,guest-cid={id}\0");
        fs::write(folder.join("cmdline"), line).unwrap();
        ContextId::of(rota_host::CommandLine::open(folder).unwrap()).unwrap()
    }

    #[test]
    fn what_is_published_is_sent_to_the_vm_with_the_id_and_what_is_withdrawn_too() {
        let folder = tempfile::tempdir().unwrap();
        let mut guests = guests(folder.path());
        let (teller, connect) = vsock::tests::unix(folder.path());
        guests.teller = Some(teller);
        guests.shown = BTreeSet::from(["web".to_owned()]);
        guests.reach(BTreeMap::from([
            ("web".to_owned(), context(folder.path(), 7)),
            ("other".to_owned(), context(&folder.path().join("db"), 8)),
        ]));
        let mut web = connect("7");
        guests.publish(&installed(1), shown(&[("web", own(&[(0, 5)]))]));
        let sent = guests.published["web"].to_string();
        assert_eq!(vsock::tests::next(&mut web, sent.len()), sent, "nothing before: an earlier one may hold");
        guests.withdraw();
        assert_eq!(vsock::tests::next(&mut web, NO_TIMETABLE.len()), NO_TIMETABLE);
        assert!(vsock::tests::is_closed(&mut connect("8")), "it is not to be shown anything");
    }
}
