//! Reads the files that a plan is made of, in one place.
//!
//! Targets name files of bodies, templates name files of rows, and flags name files of certificates. A controller that sends a
//! load from other machines must send all of these files, and only their readers know which they are. So each reader gets an
//! [`InputFiles`], which reads files and, on request, keeps their contents. The load then sends the bytes that were checked, even
//! if a file has changed since.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read as _, stdin};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Reads files by name. Clones keep their files in one place.
#[derive(Debug, Clone, Default)]
pub struct InputFiles(Option<Arc<Mutex<CapturedInputs>>>);

/// The inputs that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapturedInputs {
    /// The files, each once, in the order in which they were read first.
    pub files: Vec<CapturedFile>,
    /// The whole standard input, if it was read.
    pub stdin: Option<Vec<u8>>,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedFile {
    /// The path as the user wrote it.
    pub path: PathBuf,
    /// The whole content.
    pub bytes: Vec<u8>,
}

impl InputFiles {
    /// Makes a reader that keeps the files it reads.
    #[must_use]
    pub fn capturing() -> Self {
        Self(Some(Arc::default()))
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let bytes = std::fs::read(&path)?;
        self.capture(path.as_ref(), &bytes);
        Ok(bytes)
    }

    /// Opens a file for reading. If this value keeps files, the whole file is read at once.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<Box<dyn BufRead + Send>> {
        if self.0.is_some() {
            return Ok(Box::new(Cursor::new(self.read(path)?)));
        }
        Ok(Box::new(BufReader::new(File::open(path)?)))
    }

    /// Opens standard input. If this value keeps files, the whole input is read at once.
    ///
    /// # Errors
    /// Standard input cannot be read.
    pub fn open_stdin(&self) -> io::Result<Box<dyn BufRead + Send>> {
        let Some(kept) = &self.0 else { return Ok(Box::new(BufReader::new(stdin()))) };
        let mut bytes = Vec::new();
        stdin().read_to_end(&mut bytes)?;
        kept.lock().unwrap_or_else(PoisonError::into_inner).stdin = Some(bytes.clone());
        Ok(Box::new(Cursor::new(bytes)))
    }

    /// Keeps the content of a file that was read elsewhere.
    pub fn capture(&self, path: &Path, bytes: &[u8]) {
        let Some(kept) = &self.0 else { return };
        // A lock, because the readers of one plan may be on any thread. It is held only for a push.
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.files.iter().any(|named| named.path == path) {
            kept.files.push(CapturedFile { path: path.to_owned(), bytes: bytes.to_owned() });
        }
    }

    /// Returns the inputs that were read so far; empty if this value does not keep inputs.
    #[must_use]
    pub fn captured(&self) -> CapturedInputs {
        let kept = self.0.as_ref().map(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner).clone());
        kept.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_kept_once_and_only_where_that_is_asked_for() {
        let room = tempfile::tempdir().unwrap();
        let (a, b) = (room.path().join("a"), room.path().join("b"));
        std::fs::write(&a, "one").unwrap();
        std::fs::write(&b, "two\nthree\n").unwrap();
        for (files, names) in [(InputFiles::default(), 0), (InputFiles::capturing(), 2)] {
            let mut line = String::new();
            files.clone().open(&b).unwrap().read_line(&mut line).unwrap();
            assert_eq!(line, "two\n");
            assert_eq!(
                (files.read(&a).unwrap(), files.read(&a).unwrap()),
                (b"one".to_vec(), b"one".to_vec())
            );
            assert!(files.read(room.path().join("c")).is_err());
            let kept = files.captured();
            assert_eq!((kept.files.len(), kept.stdin), (names, None));
            assert!(kept.files.first().is_none_or(|first| first.path == b && first.bytes == b"two\nthree\n"));
        }
    }
}
