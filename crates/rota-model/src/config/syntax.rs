//! What is no TOML at all: the parser's words with the key and the mend beside them.

use super::error::{ConfigError, File};
use crate::quote;

/// One error for each line that the parser stumbles over; what follows on the same line follows from it.
pub(super) fn errors(file: &File, found: &[toml::de::Error]) -> Vec<ConfigError> {
    let mut errors: Vec<ConfigError> = found.iter().map(|error| located(file, error)).collect();
    errors.sort_by_key(|error| (error.line, error.column));
    errors.dedup_by_key(|error| error.line);
    errors
}

fn located(file: &File, error: &toml::de::Error) -> ConfigError {
    let offset = error.span().map_or(file.text.len(), |span| span.start);
    let (line, start) = file.line_text(file.line(offset));
    let message = match (unquoted(line, offset - start), error.message().split_once(", expected ")) {
        _ if error.message() == "duplicate key" => "is there twice; keep one".to_owned(),
        (Some(value), _) => {
            format!("not TOML: {value} stands without quotes; write {}", quote(value))
        }
        (None, Some((wrong, "nothing"))) => format!("not TOML: {wrong}; leave it out"),
        (None, Some((wrong, expected))) => format!("not TOML: {wrong}; write {expected}"),
        (None, None) => format!("not TOML: {}; see https://toml.io", error.message()),
    };
    file.error(offset, key_at(file, line, start), message)
}

/// The value that begins an unquoted word on this line, if that is what the parser stumbled over.
fn unquoted(line: &str, column: usize) -> Option<&str> {
    let (key, rest) = line.split_once('=')?;
    let value = rest.split('#').next()?.trim();
    let word = value.starts_with(|first: char| first.is_ascii_alphanumeric() || "-+".contains(first))
        && value.chars().all(|c| c.is_ascii_alphanumeric() || " .,:_@+-*/%{}".contains(c));
    (word && value.len() <= 60 && column > key.len()).then_some(value)
}

/// The key that a line of a broken text belongs to, as far as can be told: the header above it, and what stands before
/// its `=`.
fn key_at(file: &File, line: &str, start: usize) -> String {
    let key = line.split('=').next().and_then(bare);
    if line.trim_start().starts_with('[') {
        return key.unwrap_or_else(|| "table".to_owned());
    }
    let header = file.text[..start].lines().rev().find(|line| line.starts_with('[')).and_then(bare);
    match (header, key) {
        (Some(header), Some(key)) => format!("{header}.{key}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "file".to_owned(),
    }
}

/// A key or a header as it may stand in an error, brackets taken off.
fn bare(text: &str) -> Option<String> {
    let text = text.trim().trim_matches(['[', ']']).trim();
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    (plain && !text.is_empty() && text.len() <= 60).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A NUL behind a word once came out raw, on the terminal that shows the error.
    #[test]
    fn only_plain_words_are_shown_as_they_are() {
        assert_eq!(unquoted("cpus = 0-3 # all", 7), Some("0-3"));
        assert_eq!(unquoted("cpus = 0-3", 2), None);
        for line in ["=a=\0a", "cpus = 0\x1b[2J", "cpus = \"0", "cpus = .5", "cpus = é"] {
            assert_eq!(unquoted(line, line.len() - 1), None, "{line:?}");
        }
    }
}
