//! The Rust mirror against the C header, as the machine's own compiler sees it.

#![allow(clippy::unwrap_used)] // a failed helper is a failed test

use std::fmt::Write as _;
use std::process::Command;

use rota_table::layout::{self, RECORDS};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/rota_table.h");

const CONSTANTS: &[(&str, u64)] = &[
    ("ROTA_TABLE_MAGIC", layout::MAGIC),
    ("ROTA_TABLE_VERSION", layout::VERSION as u64),
    ("ROTA_TABLE_ALIGN", layout::ALIGN as u64),
    ("ROTA_TABLE_BYTES_MAX", layout::BYTES_MAX as u64),
    ("ROTA_TABLE_CPUS_MAX", layout::CPUS_MAX as u64),
    ("ROTA_TABLE_VCPUS_MAX", layout::VCPUS_MAX as u64),
    ("ROTA_TABLE_SLICES_MAX", layout::SLICES_MAX as u64),
    ("ROTA_VCPU_CPUS_MAX", layout::VCPU_CPUS_MAX as u64),
    ("ROTA_WINDOW_VCPUS_MAX", layout::WINDOW_VCPUS_MAX as u64),
    ("ROTA_HYPERPERIOD_NS", layout::HYPERPERIOD_NS as u64),
    ("ROTA_CPU_EXCLUSIVE", layout::CPU_EXCLUSIVE as u64),
    ("ROTA_CPU_WINDOWS", layout::CPU_WINDOWS as u64),
    ("ROTA_VCPU_CAPPED", layout::VCPU_CAPPED as u64),
];

/// Compiles and runs a C program that includes the header, and returns what it prints.
fn run_c(main: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("layout.c");
    let program = dir.path().join("layout");
    let text = format!(
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#define ROTA_NO_LINUX_TYPES\n\
         typedef uint32_t __u32;\ntypedef uint64_t __u64;\n#include \"{HEADER}\"\n\
         int main(void) {{\n{main}return 0;\n}}\n"
    );
    std::fs::write(&source, text).unwrap();
    let compiler = ["cc", "gcc", "clang"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())
        .expect("no C compiler found; install gcc or clang");
    let built = Command::new(compiler)
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(&source)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap()
}

#[test]
fn records_and_constants_are_the_headers() {
    let (mut program, mut expected) = (String::new(), String::new());
    for &(record, size, fields) in RECORDS {
        writeln!(program, "printf(\"{record} %zu\\n\", sizeof(struct {record}));").unwrap();
        writeln!(expected, "{record} {size}").unwrap();
        for &(field, offset, size) in fields {
            let name = format!("{record}.{field}");
            writeln!(
                program,
                "printf(\"{name} %zu %zu\\n\", offsetof(struct {record}, {field}), \
                 sizeof(((struct {record} *)0)->{field}));"
            )
            .unwrap();
            writeln!(expected, "{name} {offset} {size}").unwrap();
        }
    }
    for (name, value) in CONSTANTS {
        writeln!(program, "printf(\"{name} %llu\\n\", (unsigned long long){name});").unwrap();
        writeln!(expected, "{name} {value}").unwrap();
    }
    assert_eq!(run_c(&program), expected);
}

/// The program above asks for what the Rust side knows; this is the other direction.
#[test]
fn nothing_in_the_header_is_missing_here() {
    for &(record, size, fields) in RECORDS {
        let covered: usize = fields.iter().map(|&(_, _, size)| size).sum();
        assert_eq!(covered, size, "{record} has bytes that no field covers");
    }
    let header = std::fs::read_to_string(HEADER).unwrap();
    let structs = header.matches("\nstruct ").count();
    assert_eq!(structs, RECORDS.len());
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define "));
    let constants = defined.filter_map(|line| line.split_once(char::is_whitespace));
    let names: Vec<&str> = constants.map(|(name, _)| name).collect();
    assert_eq!(names, CONSTANTS.iter().map(|&(name, _)| name).collect::<Vec<_>>());
}
