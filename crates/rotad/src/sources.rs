//! The configuration's files: `rota.toml`, and one file a tenant in the folder `tenants.d` beside it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rota_model::config::Source;

/// The folder of tenants' files that belongs to a configuration file.
pub fn tenants_folder(config: &Path) -> PathBuf {
    config.with_file_name("tenants.d")
}

/// Reads the configuration file, and the `*.toml` files of its `tenants.d`, if there is one, in the order of their
/// names. Hidden files (an editor's) are left out.
///
/// # Errors
/// If one of them cannot be read, named.
pub fn read(config: &Path) -> Result<Vec<Source>> {
    let mut paths = vec![config.to_owned()];
    let folder = tenants_folder(config);
    match std::fs::read_dir(&folder) {
        Ok(entries) => {
            let mut tenants = Vec::new();
            for entry in entries {
                let path = entry.with_context(|| format!("reading {}", folder.display()))?.path();
                if is_tenant_file(&path) {
                    tenants.push(path);
                }
            }
            tenants.sort();
            paths.extend(tenants);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
    }
    paths.iter().map(|path| read_one(path)).collect()
}

fn read_one(path: &Path) -> Result<Source> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(Source { path: path.display().to_string(), text })
}

fn is_tenant_file(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension() == Some(OsStr::new("toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn tenants_files_follow_the_configuration_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("rota.toml");
        fs::write(&config, "[host]\n").unwrap();
        let names = |sources: &[Source]| -> Vec<String> {
            sources.iter().map(|source| source.path.rsplit('/').next().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&read(&config).unwrap()), ["rota.toml"]);

        fs::create_dir(folder.path().join("tenants.d")).unwrap();
        for name in ["b.toml", "a.toml", ".#a.toml", "a.toml~", "README"] {
            fs::write(folder.path().join("tenants.d").join(name), name).unwrap();
        }
        let sources = read(&config).unwrap();
        assert_eq!(names(&sources), ["rota.toml", "a.toml", "b.toml"]);
        assert_eq!(sources[1].text, "a.toml");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read(Path::new("/nonexistent/rota.toml")).unwrap_err();
        assert_eq!(error.to_string(), "reading /nonexistent/rota.toml");
    }
}
