//! The Debian package, in a clean Debian.

use std::path::{Path, PathBuf};
use std::process::Command;

use rota_lab::{Seats, tell_wait};

#[test]
#[ignore = "makes a Debian"]
fn a_clean_debian_has_the_package_installed_upgraded_and_purged() {
    let _seat = Seats::wait_for(1, &mut tell_wait).unwrap();
    let said = run("deb.sh", "dev");
    let package = said.lines().last().expect("deb.sh ends with the package's path");
    run("try-deb.sh", package);
}

/// Runs one of the project's scripts, and gives what it wrote.
fn run(script: &str, argument: &str) -> String {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output =
        Command::new(root.join("scripts").join(script)).arg(argument).current_dir(root).output().unwrap();
    let [said, complaints] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{script}: {said}\n{complaints}");
    said
}
