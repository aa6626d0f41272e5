//! Guests that are booted once: a snapshot of the machine just before it has its files, for all on equal machines.
//!
//! A snapshot holds nothing of the project's programs. It is made by the first guest that needs it and kept in the
//! lab's folder. See `wake.c` for how the guest stops and gets its files.

use crate::accel::Accel;
use crate::folder::{RunFolder, locked};
use crate::image::{Image, on_path};
use crate::kernel::Kernel;
use crate::machine::Start;
use crate::qmp::Qmp;
use crate::scenario::result::Clock;
use crate::vm::{Guest, QEMU, Vm, complaint, write_image};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, SystemTime};

/// The guest's program that has the machine saved.
const WAKE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wake"));

/// How long a guest may take to boot and be saved.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked whether a snapshot is complete.
const POLL: Duration = Duration::from_millis(5);
/// Bytes a second that QEMU may write: as many as it can.
const UNLIMITED: u64 = 1 << 40;
/// How many snapshots are kept, those used last. One takes about 20 MB.
const KEPT: usize = 24;
/// Of zstd: the fastest one.
const LEVEL: i32 = 1;

/// Whether guests on such a machine are restored: not where the kernel is told more words, for a test may be about the
/// boot then, not under KVM, which boots in a second, and not where that would make runs differ ([`Vm::repeats`]).
pub fn serves(vm: &Vm, accel: Accel) -> bool {
    let must_boot = vm.repeats && vm.clock == Clock::Instructions && vm.cpus > 1;
    accel == Accel::Tcg && vm.append.is_empty() && !must_boot
}

/// What a guest has when it is saved.
///
/// # Errors
///
/// The image's programs are not installed.
pub fn base(kernel: &Kernel) -> Result<Image> {
    let mut image = Image::new(kernel)?;
    image.bytes("/lab/wake", 0o755, WAKE);
    Ok(image)
}

/// A machine that was saved.
pub struct Snapshot {
    path: PathBuf,
    state: Box<dyn Read + Send>,
}

impl Snapshot {
    /// The one in `store` for guests that have what `base` has, which is made if there is none.
    ///
    /// # Errors
    ///
    /// The guest does not boot, QEMU does not save it, or there is no room for it.
    pub fn find(vm: &Vm, accel: Accel, base: &Image, store: &Path) -> Result<Snapshot> {
        fs::create_dir_all(store).with_context(|| format!("cannot create {}", store.display()))?;
        let path = store.join(format!("{:016x}", key(vm, accel, base)?));
        // Who else needs it waits until it is made.
        let _alone = locked(&path.with_extension("lock"))?;
        if !path.is_file() {
            remove_old(store)?;
            make(vm, accel, base, &path)?;
        }
        let state = open(&path).inspect_err(|_| forget(&path))?;
        Ok(Snapshot { path, state })
    }

    /// Writes it to the standard input of a QEMU, which fails if that is cut short.
    ///
    /// # Errors
    ///
    /// That is no pipe.
    pub fn feed(&mut self, qemu: &mut Child) -> Result<()> {
        let mut input = qemu.stdin.take().context("no standard input")?;
        let mut state = std::mem::replace(&mut self.state, Box::new(io::empty()));
        thread::spawn(move || io::copy(&mut state, &mut input));
        Ok(())
    }

    /// Has the next guest make another one.
    pub fn forget(&self) {
        forget(&self.path);
    }
}

fn forget(path: &Path) {
    // Somebody else may have removed it.
    let _ = fs::remove_file(path);
}

/// What QEMU wrote, and that it can be read: it would wait for ever for a stream that ends before it begins.
fn open(path: &Path) -> Result<Box<dyn Read + Send>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    // So that it is not the one used longest ago.
    let _ = file.set_modified(SystemTime::now());
    let mut state = zstd::Decoder::new(file)?;
    let mut first = [0; 4];
    state.read_exact(&mut first).with_context(|| format!("{} is broken", path.display()))?;
    Ok(Box::new(io::Cursor::new(first).chain(state)))
}

/// A number that differs if anything does that is saved.
fn key(vm: &Vm, accel: Accel, base: &Image) -> Result<u64> {
    let mut image = Vec::new();
    base.write(&mut image)?;
    let mut hasher = DefaultHasher::new();
    (vm.machine(accel), image).hash(&mut hasher);
    let qemu = on_path(QEMU).with_context(|| format!("there is no {QEMU} on PATH"))?;
    for file in [&qemu, &vm.kernel.vmlinux] {
        let about = fs::metadata(file).with_context(|| format!("there is no {}", file.display()))?;
        (file, about.ino(), about.len(), about.mtime(), about.mtime_nsec()).hash(&mut hasher);
    }
    if vm.clock == Clock::Real {
        // The guest knows how fast this machine's clock is.
        fs::read("/proc/sys/kernel/random/boot_id")?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// Boots a guest with `base` and saves it as `path`, which appears when it is complete.
fn make(vm: &Vm, accel: Accel, base: &Image, path: &Path) -> Result<()> {
    let folder = RunFolder::create()?;
    write_image(base, &folder)?;
    let mut guest = Guest::start(&vm.arguments(accel, &folder, Start::Save)?, &folder)?;
    let state = folder.path("state");
    save(&mut guest.0, &state).with_context(|| complaint(&folder))?;
    let store = path.parent().context("a snapshot is in a folder")?;
    let mut partial = tempfile::NamedTempFile::new_in(store)?;
    zstd::stream::copy_encode(File::open(state)?, &mut partial, LEVEL)?;
    partial.persist(path)?;
    folder.remove();
    Ok(())
}

/// Waits until the guest has stopped the machine, and saves it.
fn save(qemu: &mut Child, state: &Path) -> Result<()> {
    let mut qmp = Qmp::open(qemu, PATIENCE)?;
    qmp.event("STOP").context("the guest does not stop to be saved")?;
    qmp.ask("migrate-set-parameters", &json!({ "max-bandwidth": UNLIMITED }))?;
    qmp.ask("migrate", &json!({ "uri": format!("file:{}", state.display()) }))?;
    loop {
        let answer = qmp.ask("query-migrate", &json!({}))?;
        match answer["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed") => bail!("QEMU cannot save the machine: {answer}"),
            _ => thread::sleep(POLL),
        }
    }
}

/// Leaves room for one more.
fn remove_old(store: &Path) -> Result<()> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(store)? {
        let path = entry?.path();
        if let (None, Ok(about)) = (path.extension(), fs::metadata(&path)) {
            kept.push((about.modified()?, path));
        }
    }
    kept.sort();
    for (_, path) in kept.iter().rev().skip(KEPT - 1) {
        // Somebody else may have removed it.
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(path.with_extension("lock"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seats::tell_wait;
    use crate::vm::Outcome;

    const TIMEOUT: Duration = Duration::from_secs(240);

    fn machine() -> Vm {
        let kernel = Kernel::fetch("7", &mut |message| println!("{message}")).unwrap();
        Vm { clock: Clock::Instructions, ..Vm::new(kernel, 1) }
    }

    fn run(vm: &Vm, store: &Path, command: &str, lines: &mut Vec<String>) -> Outcome {
        let mut image = Image::new(&vm.kernel).unwrap();
        image.command(command);
        let mut on_line = |line: &str| {
            tell_wait(line);
            lines.push(line.to_owned());
        };
        vm.run_from(store, &image, TIMEOUT, &mut on_line).unwrap().ok().unwrap()
    }

    fn snapshots(store: &Path) -> Vec<PathBuf> {
        let paths = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_none()).collect()
    }

    #[test]
    #[ignore = "boots a kernel"]
    fn a_guest_is_the_same_from_a_snapshot_that_is_made_anew() {
        let (vm, stores) = (machine(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
        let command = "cat /proc/interrupts /proc/uptime /proc/schedstat /proc/stat /proc/meminfo";
        let [first, second] = stores.each_ref().map(|store| run(&vm, store.path(), command, &mut vec![]));
        assert_eq!(first.console, second.console);
        let [first, second] = stores.each_ref().map(|store| snapshots(store.path()));
        assert_eq!(first.len(), 1, "{first:?}");
        assert_eq!(first[0].file_name(), second[0].file_name());
    }

    #[test]
    #[ignore = "boots a kernel"]
    fn a_guest_boots_and_says_so_if_its_snapshot_is_broken() {
        let (vm, store) = (machine(), tempfile::tempdir().unwrap());
        let name = format!("{:016x}", key(&vm, Accel::Tcg, &base(&vm.kernel).unwrap()).unwrap());
        let told =
            |lines: &[String]| lines.iter().any(|line| line.starts_with("lab: the guest boots, because"));
        fs::write(store.path().join(&name), "no snapshot").unwrap();
        for broken in [true, false] {
            let mut lines = Vec::new();
            run(&vm, store.path(), "true", &mut lines);
            assert_eq!(told(&lines), broken, "{lines:?}");
        }
        assert_eq!(snapshots(store.path()), [store.path().join(name)]);
    }

    #[test]
    fn who_was_used_last_is_kept() {
        let store = tempfile::tempdir().unwrap();
        for age in 0..KEPT as u64 + 5 {
            let file = File::create(store.path().join(format!("{age}"))).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        remove_old(store.path()).unwrap();
        let mut kept = snapshots(store.path());
        kept.sort();
        let mut expected: Vec<_> = (0..KEPT - 1).map(|age| store.path().join(age.to_string())).collect();
        expected.sort();
        assert_eq!(kept, expected);
    }
}
