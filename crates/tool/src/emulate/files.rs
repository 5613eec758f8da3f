//! Files of the emulators: read with a name in the error, written whole or not at all.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::Context as _;

/// Permissions of a file that holds a secret.
pub(super) const SECRET_FILE_MODE: u32 = 0o600;
/// Permissions of a file without a secret.
pub(super) const PUBLIC_FILE_MODE: u32 = 0o644;

/// Largest file that is read: keys and key sets have a few KiB.
const LARGEST: u64 = 1024 * 1024;

pub(super) fn read_file(path: &Path) -> anyhow::Result<String> {
    let size = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
    anyhow::ensure!(size <= LARGEST, "{} has more than {LARGEST} bytes", path.display());
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes beside the file and renames, so that a reader sees the old content or the new, and never wider permissions.
pub(super) fn write_file_atomically(path: &Path, content: &str, mode: u32) -> anyhow::Result<()> {
    let name = path.file_name().with_context(|| format!("{} is not a file name", path.display()))?;
    let beside = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .and_then(|()| fs::rename(&beside, path));
    written
        .inspect_err(|_| drop(fs::remove_file(&beside)))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Removes a file; one that is not there is as good as removed.
pub(super) fn remove_file_if_exists(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
    .with_context(|| format!("cannot remove {}", path.display()))
}

/// A folder that only its owner may enter, made if it is not there.
pub(super) fn create_secret_directory(path: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot create the directory {}", path.display()))
}
