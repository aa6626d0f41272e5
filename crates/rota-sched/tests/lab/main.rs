//! The scheduler on real kernels: each test boots a guest.

#![allow(clippy::unwrap_used)] // as in every test; here also in what the tests share

mod switches;
mod vms;

use std::path::PathBuf;
use std::process::Command;

/// A program of the workspace, by its path beside the tests. It is built as `cargo test --workspace` builds it: alone,
/// its libraries would have other features, and all of them would be compiled once more.
fn program(path: &str) -> PathBuf {
    let cargo = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--workspace", "--bins", "--examples"])
        .env_remove("RUSTC_BOOTSTRAP") // meant for this test's own process, and a reason to compile all anew
        .status();
    assert!(cargo.unwrap().success(), "the workspace does not build");
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join(path)
}

/// Shows a guest's line.
fn tell(line: &str) {
    println!("{line}");
    rota_lab::tell_wait(line);
}
