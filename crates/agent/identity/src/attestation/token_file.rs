//! Reads a pod's Kubernetes token from a file that the kubelet projects.
//!
//! The kubelet replaces the file when the kubelet renews the token. So the agent reads the file again for each token exchange,
//! about once an hour. The agent reads only regular files of limited size, because a read from a FIFO or a device could block.

use std::path::PathBuf;

use seawall_core::pod::{SubjectFuture, SubjectTokenError, SubjectTokens};
use seawall_core::{Secret, disk_thread, file};

/// The maximum size of a token file, in bytes. A Kubernetes token has one to two thousand bytes.
const LARGEST: usize = 64 * 1024;

/// Reads one pod's token from a file.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    /// Creates a reader of this file, without reading it yet.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Reads the token now.
    ///
    /// # Errors
    /// The error names the file and the problem, and never contains content of the file. Every error is retryable, because the
    /// kubelet may write the file at any moment.
    pub(crate) fn read(&self) -> Result<Secret<String>, SubjectTokenError> {
        file::read_text(&self.path, LARGEST).and_then(|text| jwt(&text)).map_err(|what| SubjectTokenError {
            reason: format!("the token file {}: {what}", self.path.display()),
            is_retryable: true,
        })
    }
}

/// Parses a compact JWS: three base64url parts (RFC 7515 section 7.1). The cloud verifies the signature.
fn jwt(text: &Secret<String>) -> Result<Secret<String>, String> {
    let text = text.expose().trim_end_matches(['\n', '\r']);
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let parts = text.split('.');
    if text.is_empty() {
        return Err("is empty".into());
    }
    if parts.clone().count() != 3 || !parts.clone().all(is_part) {
        return Err("does not contain a JSON Web Token (three base64url parts)".into());
    }
    Ok(Secret::new(text.to_owned()))
}

impl SubjectTokens for TokenFile {
    /// Returns the token in the file and ignores the requested audience: the kubelet set the audience when it projected the file.
    fn subject_token<'a>(&'a self, _audience: &'a str) -> SubjectFuture<'a> {
        let file = self.clone();
        Box::pin(async move {
            let (path, read) = (file.path.clone(), disk_thread::run_with_timeout(move || file.read()).await);
            read.unwrap_or_else(|slow| {
                Err(SubjectTokenError {
                    reason: format!("the token file {}: {slow}", path.display()),
                    is_retryable: true,
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::Mode;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("seawall-token-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn file(&self, content: &[u8]) -> TokenFile {
            let path = self.0.join("token");
            std::fs::write(&path, content).unwrap();
            TokenFile::new(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_renewed_file_is_read_anew() {
        let scratch = Scratch::new("renewed");
        let file = scratch.file(b"e30.e30.c2ln\n");
        assert_eq!(file.read().unwrap().expose(), "e30.e30.c2ln");
        scratch.file(b"e30.e30.bmV3");
        assert_eq!(file.read().unwrap().expose(), "e30.e30.bmV3");
    }

    #[test]
    fn what_is_no_token_is_named_and_never_shown() {
        let scratch = Scratch::new("wrong");
        for (content, what) in [
            (&b""[..], "empty"),
            (b"hunter2", "JSON Web Token"),
            (b"a.b.c.d", "JSON Web Token"),
            (b"a.hunter2 .c", "JSON Web Token"),
            (b"a.b.", "JSON Web Token"),
            (b"\xff\xfe", "not text"),
            (&[b'a'; LARGEST + 1], "larger"),
        ] {
            let error = scratch.file(content).read().unwrap_err();
            assert!(error.reason.contains(what), "{error}");
            assert!(!error.reason.contains("hunter2"), "{error}");
            assert!(error.is_retryable);
        }
    }

    #[test]
    fn a_missing_file_a_folder_and_a_fifo_are_states_and_do_not_block() {
        let scratch = Scratch::new("odd");
        let missing = TokenFile::new(scratch.0.join("none"));
        assert!(missing.read().unwrap_err().reason.contains("No such file"));
        assert!(TokenFile::new(&scratch.0).read().unwrap_err().reason.contains("regular"));
        let fifo = scratch.0.join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        assert!(TokenFile::new(fifo).read().unwrap_err().reason.contains("regular"));
    }
}
