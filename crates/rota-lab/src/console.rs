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

    /// An error that says what happened, shows the last lines and names the log.
    pub fn blame(&self, what: &str) -> Error {
        anyhow!("{what}; console in {}, its last lines:\n{}", self.path.display(), last_lines(&self.text))
    }
}

/// The end of a console's text.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}
