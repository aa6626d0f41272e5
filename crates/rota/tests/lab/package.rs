//! The Debian package, in a clean Debian: installed, upgraded, purged, and run by its systemd.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rota_lab::{Kernel, Seats, tell_wait};

use crate::guest::NEWEST;

#[test]
#[ignore = "makes a Debian"]
fn a_clean_debian_has_the_package_installed_run_by_systemd_and_purged() {
    let kernel = Kernel::fetch(NEWEST, &mut |message| println!("{message}")).unwrap();
    let _seat = Seats::wait_for(1, &mut tell_wait).unwrap();
    let said = run("deb.sh", &["dev".as_ref()]);
    let package = said.lines().last().expect("deb.sh ends with the package's path");
    run("try-deb.sh", &[package.as_ref(), kernel.vmlinux.as_os_str()]);
}

/// Runs one of the project's scripts, and gives what it wrote.
fn run(script: &str, arguments: &[&OsStr]) -> String {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output =
        Command::new(root.join("scripts").join(script)).args(arguments).current_dir(root).output().unwrap();
    let [said, complaints] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{script}: {said}\n{complaints}");
    said
}
