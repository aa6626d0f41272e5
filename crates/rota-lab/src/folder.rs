//! Where the lab keeps kernels and the consoles of failed runs.

use std::path::{Path, PathBuf};

/// The lab's own folder: `$ROTA_LAB_DIR`, or `.lab` in the repository's root.
///
/// Outside a checkout (no `Cargo.lock` above the current folder) it is `.lab` in the current folder.
pub fn lab_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("ROTA_LAB_DIR") {
        return folder.into();
    }
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let root = here.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap_or(Path::new(&here)).join(".lab")
}
