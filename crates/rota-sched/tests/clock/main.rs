//! The arithmetic of the scheduler's clocks, compiled for this machine and held against what it says of itself.

use std::path::Path;
use std::process::Command;

/// Whether the checks of `clock.c` hold for the `clock.bpf.h` of a folder, and what they print.
fn holds(folder: &Path, name: &str) -> (bool, String) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiled = Command::new("cc")
        .current_dir(here)
        .args(["-Wall", "-Werror", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover", "-I"])
        .arg(folder)
        .args(["-Isrc/bpf", "-I../rota-table/include", "tests/clock/clock.c", "-o"])
        .arg(&program)
        .status();
    assert!(compiled.expect("a C compiler").success(), "clock.c does not compile");
    let output = Command::new(&program).output().expect("it was just built");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn clocks_order_bound_and_weigh_times_also_where_they_wrap() {
    let (held, said) = holds(Path::new("src/bpf"), "clock");
    assert!(held, "{said}");
}

/// With a mistake each, the checks fail.
#[test]
fn mistakes_in_the_arithmetic_are_found() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf/clock.bpf.h");
    let text = std::fs::read_to_string(header).expect("the header is there");
    let mistakes = [
        ("(__s64)(a - b) < 0", "a < b"),
        ("vtime_before(a, b) ? b : a", "vtime_before(a, b) ? a : b"),
        ("min_vtime(reference + ahead, at)", "min_vtime(reference, at)"),
        ("ns * ROTA_WEIGHT_ONE / weight", "ns / weight * ROTA_WEIGHT_ONE"),
    ];
    for (index, (right, wrong)) in mistakes.into_iter().enumerate() {
        assert_eq!(text.matches(right).count(), 1, "{right}");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clock-{index}"));
        std::fs::create_dir_all(&folder).expect("cargo's folder is writable");
        std::fs::write(folder.join("clock.bpf.h"), text.replace(right, wrong)).expect("it is ours");
        assert!(!holds(&folder, &format!("clock-wrong-{index}")).0, "{wrong} passes");
    }
}
