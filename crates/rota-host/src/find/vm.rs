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

/// The vsock context id that the kernel gives the VM of this command line: `guest-cid` of QEMU's `vhost-vsock` device,
/// which may be written as JSON. The other monitors pass vsock on through a socket of their own.
///
/// Up to 2 an id is no VM's.
pub fn context_of_command(arguments: &[&str]) -> Option<u32> {
    if monitor(Path::new(arguments.first()?).file_name()?.to_str()?)? != "qemu" {
        return None;
    }
    let devices = arguments.windows(2).filter(|pair| ["-device", "--device"].contains(&pair[0]));
    let mut contexts =
        devices.filter_map(|pair| context_of_device(pair[1])).filter(|id| (3..u32::MAX).contains(id));
    let context = contexts.next()?;
    contexts.all(|other| other == context).then_some(context)
}

/// `vhost-vsock-pci,guest-cid=3`, or `{"driver":"vhost-vsock-pci","guest-cid":3}`.
fn context_of_device(device: &str) -> Option<u32> {
    const DRIVER: &str = "vhost-vsock";
    if device.starts_with('{') {
        let device: serde_json::Value = serde_json::from_str(device).ok()?;
        let is_vsock = device.get("driver")?.as_str()?.starts_with(DRIVER);
        return u32::try_from(device.get("guest-cid").filter(|_| is_vsock)?.as_u64()?).ok();
    }
    let driver = device.strip_prefix("driver=").unwrap_or(device);
    let mut settings = driver.starts_with(DRIVER).then(|| driver.split(','))?;
    let id = settings.find_map(|setting| setting.strip_prefix("guest-cid="))?;
    match id.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => id.parse().ok(),
    }
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

    #[test]
    fn a_vms_context_id_is_its_vsock_devices() {
        let context = |line: &str| context_of_command(&line.split(' ').collect::<Vec<_>>());
        let qemu =
            |device: &str| context(&format!("qemu-kvm -name web-0 -device virtio-rng-pci -device {device}"));
        assert_eq!(qemu("vhost-vsock-pci,guest-cid=3"), Some(3));
        assert_eq!(qemu("vhost-vsock-device,id=v,guest-cid=0x10,x=y"), Some(16));
        assert_eq!(
            qemu(r#"{"driver":"vhost-vsock-pci","id":"vsock0","guest-cid":4,"vhostfd":"25"}"#),
            Some(4)
        );
        assert_eq!(qemu(r#"{"driver":"virtio-net-pci","guest-cid":4}"#), None);
        assert_eq!(qemu(r#"{"guest-cid":4}"#), None);
        assert_eq!(qemu(r#"{"driver":"vhost-vsock-pci","id":"\"guest-cid\":5"}"#), None);
        assert_eq!(qemu(r#"{"driver":"vhost-vsock-pci","guest-cid":"x"}"#), None);
        assert_eq!(qemu(r#"{"driver":"vhost-vsock-pci","#), None);
        for nobodys in ["2", "1", "0", "-1", "4294967295", "4294967296", "x"] {
            assert_eq!(qemu(&format!("vhost-vsock-pci,guest-cid={nobodys}")), None, "{nobodys}");
        }
        assert_eq!(qemu("vhost-vsock-pci,guest-cid=3 -device vhost-vsock-pci,guest-cid=4"), None, "which?");
        assert_eq!(context("qemu-kvm -name vhost-vsock-pci,guest-cid=3"), None);
        assert_eq!(context("cloud-hypervisor --api-socket /a.sock --vsock cid=3,socket=/b.sock"), None);
        assert_eq!(context("vim -device vhost-vsock-pci,guest-cid=3"), None);
    }
}
