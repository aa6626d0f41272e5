//! Virtual machines by their monitors' command lines.

use std::path::Path;

use rota_model::Match;

/// The monitor that a program of this name is.
pub fn monitor(program: &str) -> Option<&'static str> {
    // A wrapped program is hidden: NixOS has `.qemu-system-x86_64-wrapped`.
    let program = program.trim_start_matches('.');
    if program.starts_with("qemu-system") || program == "qemu-kvm" || program == "kvm" {
        Some("qemu")
    } else if program.starts_with("firecracker") {
        Some("firecracker")
    } else if program.starts_with("cloud-hypervisor") {
        Some("cloud-hypervisor")
    } else {
        None
    }
}

/// The monitor (`qemu`, `firecracker`, `cloud-hypervisor`) and the VM's name, if this command line is a monitor's.
///
/// The name is QEMU's `-name` (its `guest=` part) and Firecracker's `--id`. Kata starts Firecracker without one, in a
/// folder as the jailer's, which has the id. Cloud Hypervisor knows no names: there it comes from its `--api-socket`,
/// see [`Match::cloud_hypervisor_name`], or from libvirt's `--event-monitor`.
pub fn vm_of_command(arguments: &[&str]) -> Option<(&'static str, String)> {
    let monitor = monitor(Path::new(arguments.first()?).file_name()?.to_str()?)?;
    let name = match monitor {
        "qemu" => qemu_guest(option(arguments, &["-name", "--name"])?)?,
        "firecracker" => {
            let id = option(arguments, &["--id"]);
            id.or_else(|| jailed_id(option(arguments, &["--api-sock"])?))?.to_owned()
        }
        _ => cloud_hypervisor(arguments)?.to_owned(),
    };
    Some((monitor, name))
}

/// By the path of its socket. Libvirt hands the socket over open, and has the name in its event monitor's path.
fn cloud_hypervisor<'a>(arguments: &[&'a str]) -> Option<&'a str> {
    let path = |value: &'a str| {
        let value = value.split(',').next()?;
        Some(Path::new(value.strip_prefix("path=").unwrap_or(value)))
    };
    let socket = option(arguments, &["--api-socket"])?;
    if !socket.starts_with("fd=") {
        return Match::cloud_hypervisor_name(path(socket)?);
    }
    let monitor = path(option(arguments, &["--event-monitor"])?)?;
    monitor.file_name()?.to_str()?.strip_suffix("-event-monitor-fifo")
}

/// The id in a path of the jailer's: `/run/vc/firecracker/ID/root/run/firecracker.socket`.
fn jailed_id(socket: &str) -> Option<&str> {
    let (folder, _) = socket.split_once("/root/")?;
    let (base, id) = folder.rsplit_once('/')?;
    base.ends_with("/firecracker").then_some(id)
}

/// The value of an option written `--option value` or `--option=value`.
fn option<'a>(arguments: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if names.contains(argument) {
            return arguments.next().copied();
        }
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        if names.contains(&name) {
            return Some(value);
        }
    }
    None
}

/// QEMU's `-name` value is `NAME` or `guest=NAME`, then other settings, separated by commas; `,,` stands for a comma.
fn qemu_guest(value: &str) -> Option<String> {
    let value = value.replace(",,", "\0");
    let name = value.split(',').enumerate().find_map(|(place, part)| {
        part.strip_prefix("guest=").or_else(|| (place == 0 && !part.contains('=')).then_some(part))
    })?;
    Some(name.replace('\0', ","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitors_are_told_by_command_line() {
        let vm = |line: &str| vm_of_command(&line.split(' ').collect::<Vec<_>>());
        let qemu = |name: &str| Some(("qemu", name.to_owned()));
        assert_eq!(vm("/usr/bin/qemu-system-x86_64 -m 1G -name web-0"), qemu("web-0"));
        assert_eq!(vm("qemu-kvm -name guest=web-0,debug-threads=on"), qemu("web-0"));
        assert_eq!(vm("qemu-kvm -name debug-threads=on,guest=a,,b"), qemu("a,b"));
        assert_eq!(vm("qemu-system-x86_64 -name debug-threads=on"), None);
        assert_eq!(vm("qemu-system-x86_64 -m 1G"), None);
        assert_eq!(vm("/firecracker --id=f1 --api-sock /a"), Some(("firecracker", "f1".to_owned())));
        assert_eq!(vm("firecracker --no-api --id f1"), Some(("firecracker", "f1".to_owned())));
        let cloud = |name: &str| Some(("cloud-hypervisor", name.to_owned()));
        assert_eq!(vm("cloud-hypervisor --api-socket /run/vm1.sock"), cloud("vm1"));
        assert_eq!(vm("cloud-hypervisor --api-socket path=/run/vm1.sock,fd=3"), cloud("vm1"));
        // Kata's sandboxes were all one and the same VM, or none.
        assert_eq!(vm("cloud-hypervisor --api-socket /run/vc/vm/4f1c2a/clh-api.sock"), cloud("4f1c2a"));
        assert_eq!(vm("cloud-hypervisor --api-socket /run/kata/4f1c2b/ch-api.sock -v"), cloud("4f1c2b"));
        let libvirt =
            "cloud-hypervisor --api-socket fd=27 --event-monitor path=/run/libvirt/ch/a.b-event-monitor-fifo";
        assert_eq!(vm(libvirt), cloud("a.b"));
        assert_eq!(vm("cloud-hypervisor --api-socket fd=27"), None);
        let kata =
            "firecracker --api-sock /run/vc/firecracker/4f1c2c/root/run/firecracker.socket --config-file /a";
        assert_eq!(vm(kata), Some(("firecracker", "4f1c2c".to_owned())));
        assert_eq!(vm("firecracker --api-sock /root/run/firecracker.socket"), None);
        assert_eq!(vm("qemu-system-x86_64 -name sandbox-4f1c2d,debug-threads=on"), qemu("sandbox-4f1c2d"));
        assert_eq!(vm("vim -name web-0"), None);
        assert_eq!(vm_of_command(&[]), None);
    }
}
