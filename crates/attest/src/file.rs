//! Reads small files without trusting that they are small, or files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use seawall_core::Secret;

/// The text of a regular file of at most `largest` bytes. A FIFO, a device or a directory in its place is an error and
/// never blocks. Links are followed: the kubelet renews projected files by them.
///
/// # Errors
/// What is wrong; never a byte of the content.
pub(crate) fn read(path: &Path, largest: usize) -> Result<Secret<String>, String> {
    // O_NONBLOCK: opening a FIFO without a writer would block for ever.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file: File = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| error.to_string())?.into();
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("is not a regular file".into());
    }
    // Room for all of it at once: a buffer that grows leaves copies behind that nobody overwrites.
    let room = usize::try_from(about.len()).unwrap_or(largest).min(largest) + 1;
    let mut bytes = Secret::new(Vec::with_capacity(room));
    file.take(largest as u64 + 1).read_to_end(bytes.expose_mut()).map_err(|error| error.to_string())?;
    if bytes.expose().len() > largest {
        return Err(format!("is larger than {largest} bytes"));
    }
    let text = std::str::from_utf8(bytes.expose()).map_err(|_| "is not text")?;
    Ok(Secret::new(text.to_owned()))
}
