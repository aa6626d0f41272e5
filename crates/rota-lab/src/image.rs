//! The guest's file system: an initramfs with busybox, chosen programs of the host and the libraries they need.

use crate::kernel::Kernel;
use crate::strip::stripped;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const INIT: &str = include_str!("init.sh");
const BUSYBOX: &str = "/usr/bin/busybox";

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// One file of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Folder,
    /// A file with these permissions and this content.
    Bytes(u32, Vec<u8>),
    /// A copy of a file of the host.
    Host(PathBuf),
    Link(String),
    /// A character device with major and minor number.
    Device(u32, u32),
}

/// What the guest will find in its root file system.
///
/// Paths in the guest are absolute. `/bin`, `/sbin`, `/lib` and `/lib64` are links into `/usr`, as on the host, so a
/// library keeps the path that the loader looks for.
#[derive(Clone, Debug)]
pub struct Image {
    /// By path without the leading slash. Sorted, so parents come before children and equal images are equal bytes.
    entries: BTreeMap<String, Entry>,
    modules: Option<PathBuf>,
}

impl Image {
    /// An image for `kernel` with busybox, an init and what glibc looks for; its command does nothing yet.
    pub fn new(kernel: &Kernel) -> Result<Image> {
        let mut image = Image { entries: BTreeMap::new(), modules: kernel.modules.clone() };
        for folder in ["bin", "sbin", "lib", "lib64"] {
            image.insert(&format!("usr/{folder}"), Entry::Folder);
            image.insert(folder, Entry::Link(format!("usr/{folder}")));
        }
        for folder in ["dev", "proc", "sys", "tmp", "run", "root", "var/tmp", "lab", "results"] {
            image.insert(folder, Entry::Folder);
        }
        image.insert("var/run", Entry::Link("/run".to_owned()));
        image.insert("dev/console", Entry::Device(5, 1));
        image.bytes("/init", 0o755, INIT);
        image.bytes(
            "/etc/passwd",
            0o644,
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
        );
        image.bytes("/etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n");
        image.bytes("/etc/hosts", 0o644, "127.0.0.1 localhost rota\n::1 localhost\n");
        image.bytes("/etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files\n");
        image.bytes("/lab/modules", 0o644, "");
        image.command("true");
        image.busybox()?;
        if let Some(config) = &kernel.config {
            image.file(config, &format!("/boot/config-{}", kernel.version))?;
        }
        Ok(image)
    }

    /// Adds busybox and a link for each of its programs.
    fn busybox(&mut self) -> Result<()> {
        let list = Command::new(BUSYBOX).arg("--list").output();
        let list = list.with_context(|| format!("{BUSYBOX} is missing: run scripts/setup.sh as root"))?;
        for name in String::from_utf8_lossy(&list.stdout).lines() {
            self.insert(&format!("usr/bin/{name}"), Entry::Link("busybox".to_owned()));
        }
        self.program(Path::new(BUSYBOX), "/usr/bin/busybox")
    }

    /// Sets the shell script that the guest runs; the run's exit status is its.
    pub fn command(&mut self, script: &str) {
        self.bytes("/lab/command", 0o644, script);
    }

    /// Adds a file with this content.
    pub fn bytes(&mut self, guest: &str, permissions: u32, content: impl Into<Vec<u8>>) {
        self.insert(guest, Entry::Bytes(permissions, content.into()));
    }

    /// Adds a copy of a file of the host, with its permissions; links are followed.
    pub fn file(&mut self, host: &Path, guest: &str) -> Result<()> {
        ensure!(host.is_file(), "{} is no file, so it cannot be {guest} in the guest", host.display());
        self.insert(guest, Entry::Host(host.to_owned()));
        Ok(())
    }

    /// Adds a copy of a folder of the host and everything in it; links inside it are followed.
    pub fn folder(&mut self, host: &Path, guest: &str) -> Result<()> {
        self.insert(guest, Entry::Folder);
        let entries = fs::read_dir(host).with_context(|| format!("cannot read {}", host.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let guest = format!("{}/{name}", guest.trim_end_matches('/'));
            if path.is_dir() { self.folder(&path, &guest)? } else { self.file(&path, &guest)? }
        }
        Ok(())
    }

    /// Adds a program of the host with the shared libraries it needs.
    pub fn program(&mut self, host: &Path, guest: &str) -> Result<()> {
        self.file(host, guest)?;
        for library in shared_libraries(host)? {
            self.file(Path::new(&library), &library)?;
        }
        Ok(())
    }

    /// Adds a program of this project's own, which a debug build makes large.
    pub fn own_program(&mut self, host: &Path, guest: &str) -> Result<()> {
        self.program(&stripped(host)?, guest)
    }

    /// Adds the program `name` found on the host's PATH, at the same path.
    pub fn program_on_path(&mut self, name: &str) -> Result<()> {
        let found = on_path(name)
            .with_context(|| format!("no program {name} on this machine: run scripts/setup.sh as root"))?;
        self.program(&found, &found.to_string_lossy())
    }

    /// Adds the scheduler `name`, wherever on the host's PATH it is, in the guest's `/usr/bin` and without its debug
    /// information.
    pub fn scheduler(&mut self, name: &str) -> Result<()> {
        self.own_program(&installed_scheduler(name)?, &format!("/usr/bin/{name}"))
    }

    /// Has the guest load a kernel module, and before it those it depends on.
    pub fn module(&mut self, name: &str) -> Result<()> {
        let Some(folder) = &self.modules else {
            bail!("this kernel came without modules, so {name} cannot be loaded: ask for another kernel");
        };
        let mut loaded = match self.entries.get("lab/modules") {
            Some(Entry::Bytes(_, list)) => String::from_utf8_lossy(list).into_owned(),
            _ => String::new(),
        };
        for (name, content) in crate::module::with_dependencies(folder, name)? {
            let guest = format!("/lab/modules.d/{name}.ko");
            if !loaded.lines().any(|line| line == guest) {
                loaded += &format!("{guest}\n");
                self.bytes(&guest, 0o644, content);
            }
        }
        self.bytes("/lab/modules", 0o644, loaded);
        Ok(())
    }

    /// Puts an entry at its real path, below the real folders above it.
    fn insert(&mut self, guest: &str, entry: Entry) {
        let path = guest.trim_matches('/');
        let first = path.split('/').next().unwrap_or_default();
        let path = match first {
            "bin" | "sbin" | "lib" | "lib64" if first != path => format!("usr/{path}"),
            _ => path.to_owned(),
        };
        for (at, _) in path.match_indices('/') {
            self.entries.entry(path[..at].to_owned()).or_insert(Entry::Folder);
        }
        self.entries.insert(path, entry);
    }

    /// What it has beyond, or other than, `base`.
    pub(crate) fn beyond(&self, base: &Image) -> Image {
        let beyond = self.entries.iter().filter(|(path, entry)| base.entries.get(*path) != Some(entry));
        let entries = beyond.map(|(path, entry)| (path.clone(), entry.clone())).collect();
        Image { entries, modules: self.modules.clone() }
    }

    /// Writes the image as a newc cpio archive. Equal images give equal bytes.
    ///
    /// It is not compressed: unpacking under emulation costs far more than reading from the host's page cache.
    pub fn write(&self, out: &mut dyn Write) -> Result<()> {
        for (number, (path, entry)) in (1..).zip(&self.entries) {
            let header = |mode: u32| cpio::newc::Builder::new(path).ino(number).nlink(1).mode(mode);
            let (header, content): (_, Box<dyn io::Read>) = match entry {
                Entry::Folder => (header(DIRECTORY | 0o755), Box::new(io::empty())),
                Entry::Bytes(mode, content) => (header(REGULAR | mode), Box::new(content.as_slice())),
                Entry::Link(target) => (header(SYMLINK | 0o777), Box::new(target.as_bytes())),
                Entry::Device(major, minor) => {
                    let header = header(CHARACTER_DEVICE | 0o600).rdev_major(*major).rdev_minor(*minor);
                    (header, Box::new(io::empty()))
                }
                Entry::Host(host) => {
                    let file = File::open(host).with_context(|| format!("cannot read {}", host.display()))?;
                    let mode = file.metadata()?.permissions().mode() & 0o7777;
                    (header(REGULAR | mode), Box::new(file))
                }
            };
            copy(header, content, out).with_context(|| format!("cannot put /{path} into the image"))?;
        }
        cpio::newc::trailer(out)?;
        Ok(())
    }
}

/// The program of that name on this process's PATH.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Where on this process's PATH the scheduler `name` is.
pub(crate) fn installed_scheduler(name: &str) -> Result<PathBuf> {
    on_path(name).with_context(|| {
        format!(
            "no program {name} on PATH: install it (`cargo install --locked {name}`, then ~/.cargo/bin in PATH), or \
             leave it out"
        )
    })
}

/// Writes one archive member. The header needs the size first, so the content is read whole.
fn copy(header: cpio::newc::Builder, mut content: Box<dyn io::Read + '_>, out: &mut dyn Write) -> Result<()> {
    let mut bytes = Vec::new();
    content.read_to_end(&mut bytes)?;
    let mut member = header.write(out, u32::try_from(bytes.len()).context("it is larger than 4 GiB")?);
    member.write_all(&bytes)?;
    member.finish()?;
    Ok(())
}

/// The paths of the shared libraries and the loader that a program needs; none for a static program or a script.
fn shared_libraries(program: &Path) -> Result<Vec<String>> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    let listing = String::from_utf8_lossy(&output.stdout);
    let mut libraries = Vec::new();
    for line in listing.lines() {
        ensure!(!line.contains("not found"), "{} needs a library that is missing:{line}", program.display());
        libraries.extend(line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned));
    }
    // For a program that is not dynamic ldd lists nothing and fails.
    Ok(libraries)
}
