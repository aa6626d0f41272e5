//! Kernel modules, unpacked on the host because the emulated guest is slow at it.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The module `name` below `folder` and all it depends on: names and contents, in the order to load them.
pub fn with_dependencies(folder: &Path, name: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let mut ordered = Vec::new();
    add(folder, name, &mut ordered)?;
    Ok(ordered)
}

fn add(folder: &Path, name: &str, ordered: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let name = name.replace('-', "_");
    if ordered.iter().any(|(known, _)| *known == name) {
        return Ok(());
    }
    let path = find(&folder.join("kernel"), &name)?;
    let path = path.with_context(|| format!("there is no module {name} in {}", folder.display()))?;
    let content = read(&path).with_context(|| format!("cannot read the module {}", path.display()))?;
    for dependency in dependencies(&content) {
        add(folder, &dependency, ordered)?;
    }
    ordered.push((name, content));
    Ok(())
}

/// The file of the module `name` (written with underscores) in or below `folder`.
fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            if let Some(found) = find(&path, name)? {
                return Ok(Some(found));
            }
            continue;
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
        if matches!(file.strip_prefix(name), Some(".ko" | ".ko.xz" | ".ko.zst")) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut content = Vec::new();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => liblzma::read::XzDecoder::new(file).read_to_end(&mut content)?,
        Some("zst") => zstd::Decoder::new(file)?.read_to_end(&mut content)?,
        _ => { file }.read_to_end(&mut content)?,
    };
    Ok(content)
}

/// What a module says it depends on: the `depends=` string of its `.modinfo` section.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value).split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_modinfo() {
        assert_eq!(dependencies(b"..license=GPL\0depends=kvm,ccp\0name=x\0"), ["kvm", "ccp"]);
        assert!(dependencies(b"..license=GPL\0depends=\0name=x\0").is_empty());
        assert!(dependencies(b"no modinfo").is_empty());
    }
}
