//! Rules about any text: how long, and what it must not say.

use super::{Source, check_each};

const COLUMNS_MAX: usize = 120;
const LINES_MAX: usize = 600;
const TAB_COLUMNS: usize = 8;

/// Notes to oneself that must not be left behind, and names of hosts and places that belong to one machine's set-up:
/// mirrors are read from the machine's own configuration. Each is split in two, or this file would break its own rule.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "mend it"),
    (concat!("XX", "X"), "mend it"),
    (concat!("crates", ".io"), "name no registry"),
    (concat!("deb.", "debian.org"), "read the mirror from the machine's apt configuration"),
    (concat!("snapshot.", "debian.org"), "read the mirror from the machine's apt configuration"),
    (concat!("pypi", ".org"), "name no registry"),
    (concat!("/wo", "rk/"), "use paths relative to the repository"),
];

fn line_length(source: &Source) -> Vec<String> {
    if !source.is_code() {
        return vec![];
    }
    let columns = |line: &str| line.chars().map(|c| if c == '\t' { TAB_COLUMNS } else { 1 }).sum::<usize>();
    source
        .lines()
        // A row of a table in a doc comment cannot be wrapped.
        .filter(|(_, line)| columns(line) > COLUMNS_MAX && !line.trim_start().starts_with("//! |"))
        .map(|(number, _)| format!("{}:{number}: longer than {COLUMNS_MAX} columns", source.path))
        .collect()
}

fn file_length(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    if source.is_code() && lines > LINES_MAX {
        return vec![format!("{}: {lines} lines, more than {LINES_MAX}: split it by subject", source.path)];
    }
    vec![]
}

fn forbidden_words(source: &Source) -> Vec<String> {
    let mut findings = vec![];
    for (number, line) in source.lines() {
        for (word, mend) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word)) {
            findings.push(format!("{}:{number}: says `{word}`: {mend}", source.path));
        }
    }
    findings
}

fn white_space(source: &Source) -> Vec<String> {
    // Not `lines`, which would swallow a carriage return.
    let mut findings: Vec<String> = source
        .text
        .split('\n')
        .zip(1..)
        .filter(|(line, _)| line.ends_with([' ', '\t', '\r']))
        .map(|(_, number)| format!("{}:{number}: ends in white space", source.path))
        .collect();
    if !source.text.is_empty() && !source.text.ends_with('\n') {
        findings.push(format!("{}: lacks the newline at its end", source.path));
    }
    findings
}

#[test]
fn no_line_is_too_long() {
    check_each(line_length);
}

#[test]
fn no_file_is_too_long() {
    check_each(file_length);
}

#[test]
fn no_forbidden_word_is_said() {
    check_each(forbidden_words);
}

#[test]
fn no_white_space_is_left_over() {
    check_each(white_space);
}

#[test]
fn catches_long_lines() {
    let fits = "x".repeat(COLUMNS_MAX);
    assert!(line_length(&Source::new("a.rs", &fits)).is_empty());
    assert_eq!(line_length(&Source::new("a.rs", &format!("\n{fits}x"))), ["a.rs:2: longer than 120 columns"]);
    assert_eq!(line_length(&Source::new("a.c", &format!("\t{}", "x".repeat(113)))).len(), 1);
    assert!(line_length(&Source::new("a.md", &format!("{fits}x"))).is_empty());
    assert!(line_length(&Source::new("a.rs", &format!("//! | {fits} |"))).is_empty());
}

#[test]
fn catches_long_files() {
    assert!(file_length(&Source::new("a.rs", &"\n".repeat(LINES_MAX))).is_empty());
    assert_eq!(
        file_length(&Source::new("run", &format!("#!/bin/sh{}", "\n".repeat(LINES_MAX + 1)))).len(),
        1
    );
}

#[test]
fn catches_forbidden_words() {
    for (word, _) in FORBIDDEN {
        assert_eq!(
            forbidden_words(&Source::new("a.md", &format!("one\nsee {word} there"))).len(),
            1,
            "{word}"
        );
    }
    assert!(forbidden_words(&Source::new("a.md", "all is well")).is_empty());
}

#[test]
fn catches_left_over_white_space() {
    assert_eq!(white_space(&Source::new("a.rs", "a \nb\r\nc")).len(), 3);
    assert!(white_space(&Source::new("a.rs", "a\n\nb\n")).is_empty());
    assert!(white_space(&Source::new("a.rs", "")).is_empty());
}
