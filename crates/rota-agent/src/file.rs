//! Timetables from a file, which is read again when it is replaced.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use rota_table::Timetable;

use crate::tables::TEXT_MAX;

/// A file that holds a timetable, or will again.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// Inode, time of change and length, as it was read last.
    seen: Option<(u64, i64, i64, u64)>,
}

impl File {
    /// That at a path.
    pub fn new(path: PathBuf) -> File {
        File { path, seen: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it, if it was replaced since the last time; none in it if it has gone.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no timetable: with the line, and the mend.
    pub fn read(&mut self) -> Result<Option<Option<Timetable>>> {
        let status = match fs::metadata(&self.path) {
            Ok(status) => status,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(self.seen.take().map(|_| None));
            }
            Err(error) => return Err(error).with_context(|| format!("reading {}", self.path.display())),
        };
        let seen = (status.ino(), status.mtime(), status.mtime_nsec(), status.len());
        if self.seen.replace(seen) == Some(seen) {
            return Ok(None);
        }
        let shown = self.path.display();
        ensure!(status.is_file(), "{shown} is no file; name the timetable that the host has published");
        ensure!(status.len() <= TEXT_MAX, "{shown} is larger than {} MiB: no timetable is", TEXT_MAX >> 20);
        let text = fs::read_to_string(&self.path).with_context(|| format!("reading {shown}"))?;
        let timetable = text.parse::<Timetable>().map_err(|error| anyhow!("{shown}: {error}"))?;
        Ok(Some(Some(timetable)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "rota-timetable 1\ngeneration 3\nfrom 0\nclock own\nvcpu 0 of 1000: 0-500\nend\n";

    #[test]
    fn a_file_is_read_when_it_was_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timetable");
        let mut file = File::new(path.clone());
        assert_eq!(file.read().unwrap(), None, "it is not there yet");
        let replace = |text: &str| {
            fs::write(folder.path().join("new"), text).unwrap();
            fs::rename(folder.path().join("new"), &path).unwrap();
        };
        replace(TEXT);
        assert_eq!(file.read().unwrap().unwrap().unwrap().generation, 3);
        assert_eq!(file.read().unwrap(), None);
        replace(&TEXT.replace("generation 3", "generation 4"));
        assert_eq!(file.read().unwrap().unwrap().unwrap().generation, 4);
        replace(&TEXT.replace("0-500", "0-5x0"));
        let error = file.read().unwrap_err().to_string();
        assert!(error.ends_with(
            "timetable: line 5: \"0-5x0\" is no slot; write its start and end in ns, as in 0-500"
        ));
        assert_eq!(file.read().unwrap(), None, "it is said once");
        fs::remove_file(&path).unwrap();
        assert_eq!(file.read().unwrap(), Some(None));
        assert_eq!(file.read().unwrap(), None);
    }
}
