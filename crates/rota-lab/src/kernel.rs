//! Finds kernels that can run a sched_ext scheduler, by capability and not by one name.
//!
//! The kernels are Debian's `cloud-amd64` packages, downloaded through apt and unpacked into the lab's folder; nothing
//! is installed. Up to 6.18 one package (`linux-image-V`) holds kernel, modules and configuration; since 6.19 they are
//! apart in `linux-binary-V`, `linux-modules-V` and `linux-base-V`, and a mirror may have dropped some of them.

use crate::folder::{lab_folder, locked};
use anyhow::{Context, Result, bail, ensure};
use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kernels that are passed over although they have sched_ext.
/// 7.1.13: the verifier rejects every call of a sched_ext kernel function, because of that build's BTF.
const BROKEN: &[&str] = &["7.1.13"];

/// The first release whose Debian build has sched_ext switched on (6.12's has it off).
const OLDEST: &str = "6.16";

/// The flavour of Debian's kernels that the lab boots: small, with everything for QEMU built in.
const FLAVOUR: &str = "-cloud-amd64";

/// The name of a type that is in a kernel's BTF exactly when it was built with sched_ext.
const CAPABILITY: &[u8] = b"sched_ext_ops\0";

/// One kernel, unpacked and ready to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its release as `uname -r` prints it, `7.3.4+deb13-cloud-amd64`.
    pub version: String,
    /// The uncompressed ELF image.
    pub vmlinux: PathBuf,
    /// `.../modules/VERSION`, if the mirror had the modules.
    pub modules: Option<PathBuf>,
    /// The build configuration, if the mirror had it.
    pub config: Option<PathBuf>,
}

impl Kernel {
    /// The newest kernel that fits `request`: a release or the beginning of one (`"7"`, `"6.18"`), or `""` for any.
    ///
    /// Kernels already unpacked are preferred, so a machine that has one needs no network. When no fitting kernel
    /// is to be had any more, the nearest newer one is taken, else the newest of all, and `report` is told. It
    /// also hears of downloads.
    pub fn fetch(request: &str, report: &mut dyn FnMut(&str)) -> Result<Kernel> {
        let store = lab_folder().join("kernels");
        fs::create_dir_all(&store).with_context(|| format!("cannot create {}", store.display()))?;
        // Who else looks for a kernel waits: it may be the same, on its way.
        let _alone = locked(&store.join(".lock"))?;
        let mut unpacked = releases_in(&store);
        unpacked.retain(|release| fits(release, request) && usable(release));
        if let Some(release) = unpacked.pop() {
            return Kernel::open(&store.join(&release), &release);
        }
        let packages = listed_packages()?;
        let mut candidates = candidates(&packages, request);
        ensure!(
            !candidates.is_empty(),
            "no kernel of {OLDEST} or later in apt's lists: run scripts/setup.sh as root, which adds a suite with some"
        );
        let mut refused = String::new();
        while let Some(release) = candidates.pop() {
            if !fits(&release, request) {
                report(&format!("no kernel {request} to be had here; taking {release} instead"));
            }
            let folder = store.join(&release);
            match download(&packages, &release, &folder, report) {
                Ok(()) => return Kernel::open(&folder, &release),
                Err(error) => refused = format!("{refused}\n  {release}: {error:#}"),
            }
        }
        bail!("none of the kernels in apt's lists could be had:{refused}")
    }

    /// The kernel unpacked in `folder`.
    fn open(folder: &Path, release: &str) -> Result<Kernel> {
        let modules = folder.join("usr/lib/modules").join(release);
        let config = [modules.join("config"), folder.join(format!("boot/config-{release}"))];
        let kernel = Kernel {
            version: release.to_owned(),
            vmlinux: folder.join("vmlinux"),
            config: config.into_iter().find(|path| path.is_file()),
            modules: Some(modules).filter(|path| path.join("kernel").is_dir()),
        };
        ensure!(
            kernel.vmlinux.is_file(),
            "{} is missing: remove {} and try again",
            kernel.vmlinux.display(),
            folder.display()
        );
        Ok(kernel)
    }
}

/// The releases unpacked in `store`, oldest first.
fn releases_in(store: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(store) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut releases: Vec<String> = names.filter(|name| name.ends_with(FLAVOUR)).collect();
    releases.sort_by(|a, b| by_release(a, b));
    releases
}

/// The names of all kernel packages of the lab's flavour that apt knows.
fn listed_packages() -> Result<Vec<String>> {
    let output = Command::new("apt-cache").args(["pkgnames", "linux-"]).output();
    let output = output.context("cannot run apt-cache: the lab takes its kernels from a Debian mirror")?;
    let names = String::from_utf8(output.stdout)?;
    Ok(names.lines().filter(|name| name.ends_with(FLAVOUR)).map(str::to_owned).collect())
}

/// The releases worth trying for `request`, best last.
fn candidates(packages: &[String], request: &str) -> Vec<String> {
    let release = |name: &String| {
        let release = name.strip_prefix("linux-binary-").or_else(|| name.strip_prefix("linux-image-"))?;
        (release.starts_with(|c: char| c.is_ascii_digit()) && usable(release)).then(|| release.to_owned())
    };
    let mut releases: Vec<String> = packages.iter().filter_map(release).collect();
    releases.sort_by(|a, b| by_release(a, b));
    releases.dedup();
    let (fitting, others): (Vec<_>, Vec<_>) =
        releases.into_iter().partition(|release| fits(release, request));
    let is_newer = |release: &String| numbers(release) > numbers(request);
    let (newer, older): (Vec<_>, Vec<_>) = others.into_iter().partition(is_newer);
    older.into_iter().chain(newer.into_iter().rev()).chain(fitting).collect()
}

/// The numbers a release begins with: `7.3.4+deb13-cloud-amd64` is `[7, 3, 4]`.
fn numbers(release: &str) -> Vec<u32> {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    release[..end].split('.').filter_map(|part| part.parse().ok()).collect()
}

/// Orders releases by their numbers; by text where those are equal.
fn by_release(a: &str, b: &str) -> Ordering {
    numbers(a).cmp(&numbers(b)).then_with(|| a.cmp(b))
}

fn fits(release: &str, request: &str) -> bool {
    numbers(release).starts_with(&numbers(request))
}

fn usable(release: &str) -> bool {
    let numbers_of_release = numbers(release);
    numbers_of_release >= numbers(OLDEST)
        && !BROKEN.iter().any(|broken| numbers(broken) == numbers_of_release)
}

/// Downloads and unpacks `release` into `folder`, which appears only when it is complete.
fn download(packages: &[String], release: &str, folder: &Path, report: &mut dyn FnMut(&str)) -> Result<()> {
    let listed = |part: &str| Some(format!("{part}{release}")).filter(|name| packages.contains(name));
    let wanted: Vec<String> = match listed("linux-binary-") {
        Some(binary) => {
            [Some(binary), listed("linux-modules-"), listed("linux-base-")].into_iter().flatten().collect()
        }
        None => vec![format!("linux-image-{release}")],
    };
    report(&format!("downloading kernel {release}"));
    let parent = folder.parent().context("a kernel's folder has a parent")?;
    let partial = parent.join(format!(".{release}.part"));
    // Who was ended while it downloaded may have left a part.
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
    let done = unpack(&wanted, release, &partial).and_then(|()| Ok(fs::rename(&partial, folder)?));
    if done.is_err() {
        let _ = fs::remove_dir_all(&partial);
    }
    done
}

/// Fetches and unpacks `packages` into `folder`, and extracts the kernel's ELF image there.
fn unpack(packages: &[String], release: &str, folder: &Path) -> Result<()> {
    let mut apt = Command::new("apt-get");
    // apt's sandbox user cannot write here, and its warning about that helps nobody.
    apt.args(["-q", "-o", "APT::Sandbox::User=root", "download"]).args(packages).current_dir(folder);
    run_quietly(&mut apt)?;
    for entry in fs::read_dir(folder)? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            run_quietly(Command::new("dpkg").arg("-x").arg(&package).arg(folder))?;
            fs::remove_file(&package)?;
        }
    }
    let places = [format!("usr/lib/modules/{release}/vmlinuz"), format!("boot/vmlinuz-{release}")]
        .map(|p| folder.join(p));
    let image = places.iter().find(|path| path.is_file());
    let image = image.with_context(|| format!("the packages {packages:?} hold no vmlinuz"))?;
    let elf = extract_elf(&fs::read(image)?).with_context(|| format!("cannot unpack {}", image.display()))?;
    ensure!(has_capability(&elf), "it was built without sched_ext");
    fs::write(folder.join("vmlinux"), elf)?;
    Ok(())
}

/// Runs a command and makes its standard error the error's text if it fails.
fn run_quietly(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed ({}): {}", output.status, complaint.trim());
    Ok(())
}

fn has_capability(elf: &[u8]) -> bool {
    elf.windows(CAPABILITY.len()).any(|window| window == CAPABILITY)
}

/// The ELF file inside a bzImage whose payload is compressed with zstd, as Debian's are.
///
/// Where the payload lies is in the setup header: number of 512-byte setup sectors at 0x1f1, payload offset and length
/// at 0x248 and 0x24c (Documentation/arch/x86/boot.rst, protocol 2.08 and later).
fn extract_elf(image: &[u8]) -> Result<Vec<u8>> {
    let word = |at: usize| -> Result<usize> {
        let bytes = image.get(at..at + 4).context("the file is too short for a kernel")?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    };
    ensure!(image.get(0x202..0x206) == Some(b"HdrS".as_slice()), "it is no bzImage");
    let setup_sectors = usize::from(image[0x1f1]);
    let start = (setup_sectors + 1) * 512 + word(0x248)?;
    let payload = image.get(start..start + word(0x24c)?).context("its payload is cut short")?;
    ensure!(payload.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]), "its payload is not compressed with zstd");
    // The payload is one zstd frame with the uncompressed length, four bytes, appended.
    let mut elf = Vec::new();
    let mut decoder = zstd::Decoder::new(payload)?.single_frame();
    std::io::Read::read_to_end(&mut decoder, &mut elf)?;
    ensure!(elf.starts_with(b"\x7fELF"), "its payload is no ELF file");
    Ok(elf)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &[&str] = &[
        "linux-image-6.12.95+deb12-cloud-amd64",
        "linux-image-6.12-cloud-amd64",
        "linux-image-cloud-amd64",
        "linux-image-6.16.3+deb13-cloud-amd64",
        "linux-image-6.18.5+deb13-cloud-amd64",
        "linux-image-6.18.15+deb13-cloud-amd64",
        "linux-image-7.1.13+deb13-cloud-amd64",
        "linux-binary-7.1.13+deb13-cloud-amd64",
        "linux-binary-7.1.8+deb13-cloud-amd64",
        "linux-binary-unsigned-7.3.4+deb13-cloud-amd64",
        "linux-binary-7.3.4+deb13-cloud-amd64",
        "linux-image-7.3.4+deb13-cloud-amd64",
        "linux-modules-7.3.4+deb13-cloud-amd64",
    ];

    /// The numbers of the releases that would be tried for `request`, in the order of trying.
    fn tried(request: &str) -> Vec<String> {
        let packages: Vec<String> = LISTED.iter().map(|&name| name.to_owned()).collect();
        let tried = candidates(&packages, request).into_iter().rev();
        tried.map(|release| release.split('+').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_newest_usable_kernel_is_tried_first() {
        assert_eq!(tried(""), ["7.3.4", "7.1.8", "6.18.15", "6.18.5", "6.16.3"]);
    }

    #[test]
    fn fitting_kernels_come_first_then_newer_then_older_ones() {
        assert_eq!(tried("6.18"), ["6.18.15", "6.18.5", "7.1.8", "7.3.4", "6.16.3"]);
        assert_eq!(tried("6.17"), ["6.18.5", "6.18.15", "7.1.8", "7.3.4", "6.16.3"]);
        assert_eq!(tried("7.1")[0], "7.1.8");
        assert_eq!(tried("8")[0], "7.3.4");
    }

    #[test]
    fn a_release_fits_by_whole_numbers() {
        assert!(fits("6.18.15+deb13-cloud-amd64", "6.18"));
        assert!(!fits("6.18.15+deb13-cloud-amd64", "6.1"));
    }

    #[test]
    fn only_a_kernel_image_is_unpacked() {
        assert!(extract_elf(b"").is_err());
        let mut image = vec![0; 4096];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        assert!(format!("{:#}", extract_elf(&image).unwrap_err()).contains("not compressed with zstd"));
        image[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(format!("{:#}", extract_elf(&image).unwrap_err()).contains("cut short"));
    }
}
