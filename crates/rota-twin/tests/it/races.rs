//! Races between CPUs: the simulator has one CPU act at a time, so a hand-over that two CPUs make at once is explored
//! here. The scheduler's C is compiled so that every access to what CPUs share is a point at which another CPU may go
//! on; `races/main.c` has the scenes and what must hold in them.
//!
//! Memory is sequentially consistent in it. On processors on which it is not, the scheduler relies on its atomic
//! operations being ordered with everything around them, which BPF's are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In each run one CPU may be left in the middle of something, besides those that wait. With two it takes an hour.
const PREEMPTIONS: &str = "1";

const SOURCES: [&str; 5] = ["kernel.c", "unasked.c", "main.c", "explore.c", "instrument.c"];

fn clang(arguments: &[&str], source: &Path, object: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new(env::var_os("ROTA_CLANG").unwrap_or_else(|| "clang-19".into()))
        .current_dir(folder)
        .args(["-O2", "-g", "-Wall", "-Werror", "-Wno-unused-parameter", "-fno-strict-aliasing"])
        .args(["-I", "tests/races", "-I", "src/native", "-I", "../rota-sched/src/bpf"])
        .args(["-I", "../rota-table/include", "-c"])
        .args(arguments)
        .arg(source)
        .arg("-o")
        .arg(object)
        .status();
    assert!(status.expect("clang 19 is needed: scripts/setup.sh installs it").success(), "{source:?}");
}

#[test]
fn no_hand_over_is_lost_or_doubled() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let object = |name: &str| folder.join(name).with_extension("o");
    let source = |name: &str| Path::new("tests/races").join(name);
    let mut objects: Vec<PathBuf> = vec![object("scheduler.c")];
    let seen = ["-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=0"];
    clang(&seen, &source("scheduler.c"), &objects[0]);
    for name in SOURCES {
        clang(&[], &source(name), &object(name));
        objects.push(object(name));
    }
    let program = folder.join("races");
    assert!(Command::new("cc").args(&objects).arg("-o").arg(&program).status().expect("cc").success());
    let output = Command::new(&program).arg(PREEMPTIONS).output().expect("it was just built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    println!("{}", text(&output.stdout));
}
