//! Files that are read and written. What was there before stays until all of its successor is.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::NamedTempFile;

/// A file to be written.
pub struct Output {
    path: PathBuf,
    to: To,
}

enum To {
    /// What is no file, a pipe or a terminal, is written as it is.
    There(File),
    /// A file is written beside its place, and then takes it.
    Aside(NamedTempFile),
}

impl Output {
    /// Makes sure that it can be written, and changes nothing yet.
    ///
    /// # Errors
    /// If its folder cannot be written, or what is at its place is no file and cannot be.
    pub fn open(path: &Path) -> Result<Output> {
        let writing = || format!("writing {}", path.display());
        // A link stays one: what it leads to is written.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let before = path.metadata().ok();
        if before.as_ref().is_some_and(|status| !status.is_file()) {
            let file = File::options().write(true).open(&path).with_context(writing)?;
            return Ok(Output { path, to: To::There(file) });
        }
        // As any new file; the umask takes its part of it.
        let mode = before.map_or(0o666, |status| status.permissions().mode() & 0o777);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(".rota-")
            .permissions(PermissionsExt::from_mode(mode))
            .tempfile_in(folder)
            .with_context(writing)?;
        Ok(Output { path, to: To::Aside(file) })
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// If the disk is full, say. What was there before is as it was then.
    pub fn write(self, bytes: &[u8]) -> Result<()> {
        let writing = || format!("writing {}", self.path.display());
        match self.to {
            To::There(mut file) => file.write_all(bytes).with_context(writing),
            To::Aside(mut file) => {
                file.write_all(bytes).and_then(|()| file.as_file().sync_all()).with_context(writing)?;
                file.persist(&self.path).map(drop).with_context(writing)
            }
        }
    }
}

/// Writes a file.
///
/// # Errors
/// As [`Output::open`] and [`Output::write`].
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    Output::open(path)?.write(bytes)
}

/// No table and no recording is larger.
const BYTES_MAX: u64 = 1 << 30;

/// Reads a file, or a pipe.
///
/// # Errors
/// If it cannot be read, or has no end.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let reading = || format!("reading {}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(reading)?;
    // A device such as /dev/zero has no end.
    let max = if file.metadata().is_ok_and(|status| status.is_file()) { BYTES_MAX } else { BYTES_MAX >> 4 };
    file.take(max + 1).read_to_end(&mut bytes).with_context(reading)?;
    ensure!(
        bytes.len() as u64 <= max,
        "{} is larger than {} MiB; name another file",
        path.display(),
        max >> 20
    );
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_when_all_is_written_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        drop(Output::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let link = folder.path().join("link");
        symlink("out", &link).unwrap();
        write(&link, b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(link.is_symlink());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(folder.path().read_dir().unwrap().count(), 2);
        write(Path::new("/dev/null"), b"new").unwrap();
        assert!(
            write(Path::new("/nonexistent/out"), b"").unwrap_err().to_string().contains("/nonexistent/out")
        );
    }

    #[test]
    fn a_device_without_an_end_is_refused() {
        assert!(read(Path::new("/dev/zero")).unwrap_err().to_string().contains("is larger than 64 MiB"));
    }
}
