//! Transcripts: what a runtime and a plugin said to each other, as hexadecimal digits.

use std::path::Path;

/// Whether the runtime speaks, and what it or the plugin says: one step of a transcript.
pub type Step = (bool, Vec<u8>);

/// The transcript in this file.
pub fn read(path: &Path) -> Vec<Step> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(digits) = line.strip_prefix("    ") else {
            steps.push((line == "runtime", Vec::new()));
            continue;
        };
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        steps.last_mut().unwrap().1.extend((0..digits.len()).step_by(2).map(byte));
    }
    steps
}
