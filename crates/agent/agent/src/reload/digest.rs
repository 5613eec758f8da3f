//! Computes the digest of a file's content, which distinguishes versions of the file.

use std::fmt;

use ring::digest::{SHA256, digest};

/// The SHA-256 digest of a file's content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    pub(crate) fn of_text(text: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self(bytes)
    }

    /// Returns the first characters of the digest, as `sha256sum` prints them.
    /// These characters are enough to distinguish the files of an operator.
    pub(crate) fn short_hex(&self) -> String {
        self.0[..6].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short_hex())
    }
}
