//! Errors that say where they are.

use std::fmt;

use super::Source;

/// One mistake: `rota.toml:7:11: tenant.latency: "20" has no unit; write "20ms" (ns, us, ms, s)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as its [`Source`] names it.
    pub path: String,
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// The key, with the tables that it is in: `host.cpus`.
    pub key: String,
    /// What is wrong, and the mend.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}: {}", self.path, self.line, self.column, self.key, self.message)
    }
}

impl std::error::Error for ConfigError {}

/// Every mistake that was found, in the order of the files and within them from top to bottom. Prints one a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for error in &self.0 {
            write!(f, "{separator}{error}")?;
            separator = "\n";
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// The mistakes found so far, in the order of finding.
pub type Errors = Vec<ConfigError>;

/// The mistakes in the order in which someone reads the files.
pub(super) fn in_reading_order(mut errors: Errors, sources: &[Source]) -> ConfigErrors {
    errors.sort_by_cached_key(|error| {
        (sources.iter().position(|source| source.path == error.path), error.line, error.column)
    });
    ConfigErrors(errors)
}

/// A file, and where its lines start.
pub(super) struct File<'a> {
    pub path: &'a str,
    pub text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> File<'a> {
    pub fn new(source: &'a Source) -> File<'a> {
        let line_starts = source.text.match_indices('\n').map(|(newline, _)| newline + 1).collect();
        File { path: &source.path, text: &source.text, line_starts }
    }

    /// The line, counted from 1, of a byte offset.
    pub fn line(&self, offset: usize) -> usize {
        1 + self.line_starts.partition_point(|start| *start <= offset)
    }

    /// An error at a byte offset.
    pub fn error(&self, offset: usize, key: impl Into<String>, message: impl Into<String>) -> ConfigError {
        let line = self.line(offset);
        let start = self.line_start(line);
        let column = 1 + self.text.get(start..offset).map_or(0, |before| before.chars().count());
        let (path, key, message) = (self.path.to_owned(), key.into(), message.into());
        ConfigError { path, line, column, key, message }
    }

    /// The line's text, without its end, and the byte offset at which it starts.
    pub fn line_text(&self, line: usize) -> (&'a str, usize) {
        let start = self.line_start(line);
        (self.text[start..].lines().next().unwrap_or_default(), start)
    }

    fn line_start(&self, line: usize) -> usize {
        if line < 2 { 0 } else { self.line_starts[line - 2] }
    }
}
