//! What executes the guest's instructions: KVM where it really boots a kernel, QEMU's emulation everywhere else.

use crate::folder::{RunFolder, lab_folder};
use crate::image::Image;
use crate::vm::Vm;
use anyhow::Result;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A working KVM boots a small guest in about a second.
const PROBE: Duration = Duration::from_secs(10);

/// What executes a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// The processor's virtualisation, through `/dev/kvm`.
    Kvm,
    /// QEMU's translator, one thread a CPU.
    Tcg,
}

/// The better one that works here, for guests that run in real time.
///
/// That `/dev/kvm` can be opened says little, above all inside a virtual machine: so a guest is booted once after each
/// start of this machine, and the finding kept in the lab's folder.
pub fn best(vm: &Vm) -> Result<Accel> {
    if fs::File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(Accel::Tcg);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let memory = lab_folder().join("accel");
    let known = fs::read_to_string(&memory).unwrap_or_default();
    match known.strip_prefix(&boot) {
        Some("kvm") => return Ok(Accel::Kvm),
        Some("tcg") => return Ok(Accel::Tcg),
        _ => {}
    }
    let works = probe(vm)?;
    write_at_once(&memory, &format!("{boot}{}", if works { "kvm" } else { "tcg" }))?;
    Ok(if works { Accel::Kvm } else { Accel::Tcg })
}

/// Whether a guest under KVM runs a command to its end.
fn probe(vm: &Vm) -> Result<bool> {
    let vm = Vm { nested: false, append: Vec::new(), ..vm.clone() };
    let image = Image::new(&vm.kernel)?;
    let folder = RunFolder::create()?;
    let outcome = vm.run_with(Accel::Kvm, &image, &folder, PROBE, &mut |_| {});
    folder.remove();
    Ok(outcome.is_ok_and(|outcome| outcome.status == 0))
}

/// Writes a file so that other processes see the old content or the new.
pub fn write_at_once(path: &Path, content: &str) -> Result<()> {
    let partial = path.with_extension(std::process::id().to_string());
    fs::write(&partial, content)?;
    fs::rename(&partial, path)?;
    Ok(())
}
