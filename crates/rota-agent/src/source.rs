//! Where a guest's timetables come from.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rota_table::Timetable;

use crate::file::File;
use crate::host::Host;
use crate::load;
use crate::tables::Table;

/// What is written in a file's place for the host itself.
const VSOCK: &str = "vsock";
/// A file that is taken if none is named, and the host does not answer.
const FILE: &str = "/run/rota-host/timetable";
/// For so long the host is waited for, if it is not the only source.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where timetables come from.
#[derive(Debug)]
pub enum Source {
    /// A file.
    File(File),
    /// The host, over vsock.
    Host(Host),
}

impl Source {
    /// The source that was named: `vsock`, or a file. If none was, the host if it answers, else the file
    /// `/run/rota-host/timetable`.
    ///
    /// # Errors
    ///
    /// There is no vsock here, or no file, or what is there is no timetable, or another machine's.
    pub fn find(named: Option<&Path>) -> Result<Source> {
        match named {
            Some(path) if path == Path::new(VSOCK) => Ok(Source::Host(Host::new()?)),
            Some(path) => Source::of_file(path.to_owned()),
            None => Source::of_capability(),
        }
    }

    fn of_capability() -> Result<Source> {
        let why = match Host::new() {
            Ok(mut host) => {
                if host.answers(PATIENCE) {
                    return Ok(Source::Host(host));
                }
                "the host does not answer over vsock".to_owned()
            }
            Err(error) => format!("{error:#}"),
        };
        if Path::new(FILE).exists() {
            return Source::of_file(FILE.into());
        }
        bail!("{why}, and {FILE} is not there; name the timetable's file, or `vsock` to wait for the host")
    }

    fn of_file(path: PathBuf) -> Result<Source> {
        let file = File::new(path);
        check(file.path())?;
        Ok(Source::File(file))
    }

    /// The timetable, or none, if that has changed since the last time.
    ///
    /// # Errors
    ///
    /// It cannot be had, or is no timetable. Said once, until it changes.
    pub fn read(&mut self) -> Result<Option<Option<Timetable>>> {
        match self {
            Source::File(file) => file.read(),
            Source::Host(host) => host.read(),
        }
    }

    /// Can be read when there may be something new; else that is seen by asking now and then.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Source::File(_) => None,
            Source::Host(host) => host.fd(),
        }
    }
}

/// What a machine that begins with this file would do wrong.
fn check(path: &Path) -> Result<Timetable> {
    let timetable = File::new(path.to_owned()).read()?.flatten();
    let timetable = timetable.with_context(|| {
        format!("{} is not there; the host publishes it for a VM with timetable = true", path.display())
    })?;
    Table::new(&timetable, load::nr_cpus()?).with_context(|| path.display().to_string())?;
    Ok(timetable)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TEXT: &str = "rota-timetable 1\ngeneration 3\nfrom 0\nclock own\nvcpu 0 of 1000: 0-500\nend\n";

    #[test]
    fn what_cannot_be_a_timetable_is_told_before_anything_is_attached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timetable");
        let refused = || check(&path).map_err(|error| format!("{error:#}")).unwrap_err();
        assert!(refused().ends_with("is not there; the host publishes it for a VM with timetable = true"));
        fs::write(&path, TEXT.replace("vcpu 0", "vcpu 1000")).unwrap();
        assert!(refused().contains("it lists vcpu 1000, and this machine's CPUs are 0 to"), "{}", refused());
        fs::write(&path, TEXT).unwrap();
        assert_eq!(check(&path).unwrap().generation, 3);
        assert!(format!("{:#}", check(folder.path()).unwrap_err()).contains("is no file"));
    }
}
