//! Reads small regular files, and rejects everything else without blocking. `identity` uses this module for identity files and
//! tokens. `kube` uses this module for the credentials for the API server. The agent uses this module for every other file that
//! its configuration names.
//!
//! A path in a configuration can name a FIFO, a device or a directory, by mistake or because a mount is missing. The open call
//! must not block, and the read must come to an end. The module must read the same file that it checked. The module therefore
//! opens the file without blocking and then checks the open descriptor. The module follows symbolic links: Kubernetes mounts
//! ConfigMaps, Secrets and tokens as links to regular files, and replaces the links to renew the files.

use std::fs::{File, FileType, Metadata};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::Secret;
use rustix::fs::{Mode, OFlags};

/// Reads the text of a regular file with at most `largest` bytes.
///
/// # Errors
/// The function cannot read the file, or the file is not a regular file, is too large, or is not UTF-8. The error contains
/// neither the content nor the path.
pub fn read_text(path: &Path, largest: usize) -> Result<Secret<String>, String> {
    let bytes = read_bytes(path, largest)?;
    let text = std::str::from_utf8(bytes.expose()).map_err(|_| "is not text")?;
    Ok(Secret::new(text.to_owned()))
}

/// Reads the bytes of a regular file with at most `largest` bytes.
///
/// # Errors
/// Returns the same errors as [`read_text`], but accepts content that is not UTF-8.
pub fn read_bytes(path: &Path, largest: usize) -> Result<Secret<Vec<u8>>, String> {
    let (file, about) = open(path, largest)?;
    // The buffer has the full size from the start. A growing buffer would leave copies of the secret in memory.
    let room = usize::try_from(about.len()).unwrap_or(largest).min(largest) + 1;
    let mut bytes = Secret::new(Vec::with_capacity(room));
    file.take(largest as u64 + 1).read_to_end(bytes.expose_mut()).map_err(|error| error.to_string())?;
    if bytes.expose().len() > largest {
        return Err(too_large(largest));
    }
    Ok(bytes)
}

fn open(path: &Path, largest: usize) -> Result<(File, Metadata), String> {
    // Without O_NONBLOCK, opening a FIFO without a writer would block forever.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file: File = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| error.to_string())?.into();
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err(format!("is {}, expected a regular file", kind(about.file_type())));
    }
    if about.len() > largest as u64 {
        return Err(too_large(largest));
    }
    Ok((file, about))
}

fn too_large(largest: usize) -> String {
    format!("is larger than {largest} bytes")
}

fn kind(kind: FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_small_regular_file_is_named_and_neither_waited_for_nor_read() {
        let folder = std::env::temp_dir().join(format!("seawall-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let fifo = folder.join("fifo");
        let rights = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rights, 0).unwrap();
        std::fs::write(folder.join("large"), [b'a'; 101]).unwrap();
        std::fs::write(folder.join("right"), [b'a'; 100]).unwrap();
        std::os::unix::fs::symlink("right", folder.join("link")).unwrap();
        std::os::unix::fs::symlink(&fifo, folder.join("link-to-fifo")).unwrap();
        let found = |path: &Path| read_text(path, 100).map(drop);
        for (name, what) in [
            ("fifo", "is a FIFO, expected a regular file"),
            ("link-to-fifo", "is a FIFO, expected a regular file"),
            (".", "is a directory, expected a regular file"),
            ("/dev/zero", "is a device, expected a regular file"),
            ("large", "is larger than 100 bytes"),
        ] {
            assert_eq!(found(&folder.join(name)), Err(what.to_owned()), "{name}");
        }
        for name in ["right", "link"] {
            assert_eq!(found(&folder.join(name)), Ok(()), "{name}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
