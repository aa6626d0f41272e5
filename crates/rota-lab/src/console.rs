//! Follows a guest's console in the file that QEMU writes it to.

use anyhow::{Error, Result, anyhow};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// Lines of the console shown in an error.
const SHOWN: usize = 15;

/// The console of a running guest.
pub struct Console {
    path: PathBuf,
    file: Option<File>,
    text: String,
    /// Bytes of `text` that have been handed out, up to a line's end.
    seen: usize,
}

impl Console {
    /// The console that QEMU writes, or will write, to `path`.
    pub fn new(path: PathBuf) -> Console {
        Console { path, file: None, text: String::new(), seen: 0 }
    }

    /// Reads what is new and hands each finished line to `on_line`.
    pub fn follow(&mut self, on_line: &mut dyn FnMut(&str)) -> Result<()> {
        if self.file.is_none() {
            // QEMU creates it when it starts.
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut new = Vec::new();
        file.read_to_end(&mut new)?;
        self.text += &String::from_utf8_lossy(&new).replace('\r', "");
        while let Some(length) = self.text[self.seen..].find('\n') {
            on_line(&self.text[self.seen..self.seen + length]);
            self.seen += length + 1;
        }
        Ok(())
    }

    /// All that was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An error that says what happened and why the kernel died if it did, shows the last lines and names the log.
    pub fn blame(&self, what: &str) -> Error {
        let cause = cause(&self.text).map(|line| format!(" ({line})")).unwrap_or_default();
        anyhow!(
            "{what}{cause}; console in {}, its last lines:\n{}",
            self.path.display(),
            last_lines(&self.text)
        )
    }
}

/// The first line with which the kernel announces its end: what follows is a long dump.
fn cause(text: &str) -> Option<&str> {
    text.lines().find(|line| ["Kernel panic", "BUG: ", "Oops: "].iter().any(|sign| line.contains(sign)))
}

/// The end of a console's text.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_handed_out_whole_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        let mut console = Console::new(path.clone());
        let mut lines = Vec::new();
        for text in ["", "one\r\ntw", "one\r\ntwo\r\nthr"] {
            if !text.is_empty() {
                std::fs::write(&path, text).unwrap();
            }
            console.follow(&mut |line| lines.push(line.to_owned())).unwrap();
        }
        assert_eq!(lines, ["one", "two"]);
        assert_eq!(console.text(), "one\ntwo\nthr");
    }

    #[test]
    fn an_error_names_the_cause_and_the_log() {
        let mut console = Console::new(PathBuf::from("/log"));
        console.text = format!("Kernel panic - not syncing: x\n{}", "dump\n".repeat(100));
        let message = console.blame("it ended").to_string();
        assert!(message.starts_with("it ended (Kernel panic - not syncing: x); console in /log, its last"));
        assert_eq!(message.matches("dump").count(), SHOWN);
    }
}
