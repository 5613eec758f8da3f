//! A file that is there as a whole or not at all: it is written beside its place, and moved there when it is complete.
//!
//! It is created before anything is measured, so that a place that cannot be written to is found out then.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A file that is not there yet. Dropped before it is finished, nothing is left of it.
#[derive(Debug)]
pub(super) struct Draft {
    file: File,
    place: PathBuf,
    /// Where it is until it is finished; none where its place is no plain file, such as a pipe.
    beside: Option<PathBuf>,
}

impl Draft {
    /// # Errors
    /// The place cannot be written to, which is named.
    pub(super) fn create(place: &Path) -> anyhow::Result<Self> {
        Self::open(place).with_context(|| format!("cannot write {}", place.display()))
    }

    fn open(place: &Path) -> std::io::Result<Self> {
        let is_special = std::fs::metadata(place).is_ok_and(|there| !there.is_file());
        if is_special {
            let file = OpenOptions::new().write(true).open(place)?;
            return Ok(Self { file, place: place.to_owned(), beside: None });
        }
        let name = place.file_name().ok_or(std::io::ErrorKind::InvalidFilename)?;
        let beside = place.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
        Ok(Self { file, place: place.to_owned(), beside: Some(beside) })
    }

    /// Writes it, and moves it to its place.
    ///
    /// # Errors
    /// It cannot be written to its end; what was at its place before is there still.
    pub(super) fn finish(mut self, text: &str) -> anyhow::Result<()> {
        self.put(text).with_context(|| format!("cannot write {}", self.place.display()))
    }

    fn put(&mut self, text: &str) -> std::io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        let Some(beside) = &self.beside else { return Ok(()) };
        self.file.sync_all()?;
        std::fs::rename(beside, &self.place)?;
        self.beside = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // What cannot be removed has a name that says whose it is.
            let _ = std::fs::remove_file(beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_as_a_whole_or_as_it_was() {
        let room = tempfile::tempdir().unwrap();
        let place = room.path().join("run.json");
        let names = || std::fs::read_dir(room.path()).unwrap().count();
        drop(Draft::create(&place).unwrap());
        assert_eq!(names(), 0, "nothing is left of what was not finished");
        Draft::create(&place).unwrap().finish("first").unwrap();
        let second = Draft::create(&place).unwrap();
        assert_eq!(std::fs::read_to_string(&place).unwrap(), "first");
        second.finish("second").unwrap();
        assert_eq!((std::fs::read_to_string(&place).unwrap().as_str(), names()), ("second", 1));
    }

    #[test]
    fn a_place_that_cannot_be_written_to_is_named() {
        let error = Draft::create(Path::new("/nonexistent/run.json")).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot write /nonexistent/run.json: "), "{error:#}");
        assert!(Draft::create(Path::new("/dev/null")).unwrap().finish("x").is_ok());
    }
}
