//! Rules about C, and the licence line that every C file and script carries.

use std::process::{Command, Stdio};

use super::{Source, check, check_each, root};

const FUNCTION_LINES_MAX: usize = 60;
const LICENCE: &str = "SPDX-License-Identifier: GPL-2.0-only";
/// The version whose verdict counts: another one breaks lines elsewhere.
const CLANG_FORMAT: &str = "clang-format-19";

/// In the kernel's style, which the formatter enforces, the braces of a function, and no others, stand in the first
/// column on lines of their own.
fn function_length(source: &Source) -> Vec<String> {
    let mut findings = vec![];
    let mut opened = None;
    for (number, line) in source.lines().filter(|_| source.is_c()) {
        match line {
            "{" => opened = Some(number),
            "}" => {
                let lines = number - opened.take().unwrap_or(number) + 1;
                if lines > FUNCTION_LINES_MAX {
                    findings.push(format!(
                        "{}:{number}: ends a function of {lines} lines, more than {FUNCTION_LINES_MAX}",
                        source.path
                    ));
                }
            }
            _ => {}
        }
    }
    findings
}

/// Rust files are covered by their package's `license` field, which is checked here too.
fn licence(source: &Source) -> Vec<String> {
    let has_licence = if source.path.ends_with("Cargo.toml") {
        source.text.contains("license.workspace = true") || source.text.contains("license = \"GPL-2.0-only\"")
    } else if source.is_c() || source.is_script() {
        source.text.lines().take(3).any(|line| line.contains(LICENCE))
    } else {
        true
    };
    if has_licence {
        vec![]
    } else {
        vec![format!("{}: says nothing of its licence ({LICENCE})", source.path)]
    }
}

/// Null-terminated diagnostics of the formatter for one text, named `path`.
fn format_findings(source: &Source) -> Vec<String> {
    use std::io::Write;
    let mut child = Command::new(CLANG_FORMAT)
        .args(["--dry-run", "--Werror", "--style=file", "--assume-filename", &source.path])
        .current_dir(root())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{CLANG_FORMAT}: {error}; scripts/setup.sh installs it"));
    child
        .stdin
        .take()
        .expect("stdin is piped")
        .write_all(source.text.as_bytes())
        .expect("clang-format reads");
    let output = child.wait_with_output().expect("clang-format ends");
    if output.status.success() {
        return vec![];
    }
    vec![String::from_utf8_lossy(&output.stderr).replace("<stdin>", &source.path)]
}

#[test]
fn no_c_function_is_too_long() {
    check_each(function_length);
}

#[test]
fn every_file_has_its_licence() {
    check_each(licence);
}

#[test]
fn c_is_formatted() {
    check(|sources| sources.iter().filter(|source| source.is_c()).flat_map(format_findings).collect());
}

#[test]
fn catches_long_functions() {
    let function = |body: usize| format!("static int f(void)\n{{\n{}}}\n", "\tx++;\n".repeat(body));
    assert!(function_length(&Source::new("a.c", &function(58))).is_empty());
    assert_eq!(function_length(&Source::new("a.bpf.c", &function(59))).len(), 1);
    assert!(function_length(&Source::new("a.rs", &function(59))).is_empty());
}

#[test]
fn catches_missing_licences() {
    for path in ["a.c", "a.h", "a.sh", "Cargo.toml"] {
        assert_eq!(licence(&Source::new(path, "x\n")).len(), 1, "{path}");
    }
    assert_eq!(licence(&Source::new("run", "#!/bin/sh\n")).len(), 1);
    assert!(licence(&Source::new("run", &format!("#!/bin/sh\n# {LICENCE}\n"))).is_empty());
    assert!(licence(&Source::new("a.rs", "x\n")).is_empty());
}

#[test]
fn catches_unformatted_c() {
    assert_eq!(format_findings(&Source::new("a.c", "int f ( void ){return 1;}\n")).len(), 1);
    assert!(format_findings(&Source::new("a.c", "int f(void)\n{\n\treturn 1;\n}\n")).is_empty());
}
