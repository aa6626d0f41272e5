//! The project's own programs as guests get them: without what only a debugger reads. That is nine tenths of them, and
//! each guest would unpack it.

use crate::folder::lab_folder;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long the copies of former builds are kept: a guest may still be made of them.
const KEPT: Duration = Duration::from_secs(3600);

/// A copy of `program`, made once for each build of it and kept in the lab's folder.
///
/// # Errors
///
/// The program is not there, `strip` is not, or the copy cannot be written.
pub fn stripped(program: &Path) -> Result<PathBuf> {
    let about = fs::metadata(program).with_context(|| format!("there is no {}", program.display()))?;
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = lab_folder().join("programs");
    let built = format!("{:x}-{:x}-{:x}", about.ino(), about.len(), about.mtime_nsec());
    let copy = folder.join(format!("{name}-{built}"));
    if copy.is_file() {
        return Ok(copy);
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    remove_old(&folder)?;
    let partial = tempfile::NamedTempFile::new_in(&folder)?.into_temp_path();
    let status = Command::new("strip").arg("-o").arg(&partial).arg(program).status();
    ensure!(status.context("cannot run strip")?.success(), "strip {} failed", program.display());
    partial.persist(&copy)?;
    Ok(copy)
}

fn remove_old(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let age = fs::metadata(&path).and_then(|about| about.modified()).map(|time| time.elapsed());
        if matches!(age, Ok(Ok(age)) if age > KEPT) {
            // Somebody else may have removed it.
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_made_once_and_is_smaller() {
        let program = std::env::current_exe().unwrap();
        let [copy, again] = [stripped(&program), stripped(&program)].map(Result::unwrap);
        assert_eq!(copy, again);
        let length = |path: &Path| fs::metadata(path).unwrap().len();
        assert!(length(&copy) < length(&program));
    }
}
