//! A file that is there as a whole or not at all: it is written beside its place, and moved there when it is complete. `-` is standard
//! output.
//!
//! It is created before anything is measured, so that a place that cannot be written to is found out then.

use std::fs::{File, OpenOptions};
use std::io::{Write as _, stdout};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

/// Files that programs before this one may have left beside a place when they were killed: those of a container all have the same
/// number.
const LEFT: u32 = 100;

/// Returns true if this names standard output.
pub(crate) fn is_stdout(place: &Path) -> bool {
    place == Path::new("-")
}

/// A file that does not exist yet. If it is dropped before it is finished, nothing is left of it.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    file: File,
    place: PathBuf,
    /// The temporary file; `None` if the place is not a plain file, such as a pipe.
    temporary: Option<PathBuf>,
}

impl AtomicFile {
    /// Opens a temporary file beside `place`, or `place` itself if it is not a plain file, such as a pipe.
    ///
    /// # Errors
    /// The place cannot be written to, which is named.
    pub(crate) fn create(place: &Path) -> anyhow::Result<Self> {
        Self::open(place).with_context(|| format!("cannot write {}", place.display()))
    }

    fn open(place: &Path) -> std::io::Result<Self> {
        if is_stdout(place) {
            let file = File::from(stdout().as_fd().try_clone_to_owned()?);
            return Ok(Self { file, place: "standard output".into(), temporary: None });
        }
        let is_special = std::fs::metadata(place).is_ok_and(|there| !there.is_file());
        if is_special {
            let file = special(place)?;
            return Ok(Self { file, place: place.to_owned(), temporary: None });
        }
        let name = place.file_name().ok_or(std::io::ErrorKind::InvalidFilename)?;
        let (file, beside) = create_temporary(place, &name.to_string_lossy(), std::process::id())?;
        Ok(Self { file, place: place.to_owned(), temporary: Some(beside) })
    }

    /// The path of the temporary file, if there is one.
    pub(crate) fn temporary_path(&self) -> Option<&Path> {
        self.temporary.as_deref()
    }

    /// Writes it, and moves it to its place.
    ///
    /// # Errors
    /// It cannot be written to its end; what was at its place before is there still.
    pub(crate) fn write_and_commit(mut self, text: &str) -> anyhow::Result<()> {
        self.put(text).with_context(|| format!("cannot write {}", self.place.display()))
    }

    fn put(&mut self, text: &str) -> std::io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        let Some(beside) = &self.temporary else { return Ok(()) };
        self.file.sync_all()?;
        std::fs::rename(beside, &self.place)?;
        self.temporary = None;
        Ok(())
    }
}

/// A place that is no plain file. Whoever opens a pipe that nobody reads waits until somebody does, in silence and for ever: it is refused.
fn special(place: &Path) -> std::io::Result<File> {
    let at_once = i32::try_from(OFlags::NONBLOCK.bits()).map_err(std::io::Error::other)?;
    let opened = OpenOptions::new().write(true).custom_flags(at_once).open(place);
    let file = opened.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NXIO) => std::io::Error::other("the pipe has no reader: start the reader first"),
        _ => error,
    })?;
    // What is written there waits for its reader as usual.
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// A new file beside a place, by the first name that is free.
fn create_temporary(place: &Path, name: &str, program: u32) -> std::io::Result<(File, PathBuf)> {
    let mut left = 0;
    loop {
        let number = if left == 0 { String::new() } else { format!(".{left}") };
        let beside = place.with_file_name(format!(".{name}.{program}{number}"));
        match OpenOptions::new().write(true).create_new(true).open(&beside) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && left < LEFT => left += 1,
            opened => return Ok((opened?, beside)),
        }
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.temporary {
            // What cannot be removed has a name that says whose it is.
            let _ = std::fs::remove_file(beside);
        }
    }
}

/// The files of a report: JSON for programs, and an HTML page.
#[derive(Debug, Default)]
pub(crate) struct ReportFiles {
    /// One of them is standard output.
    pub(crate) has_stdout: bool,
    json: Option<AtomicFile>,
    html: Option<AtomicFile>,
}

impl ReportFiles {
    /// Returns true if both paths name one file, of which only the last content would remain.
    pub(crate) fn is_same_file(json: Option<&Path>, html: Option<&Path>) -> bool {
        let places = [json, html].map(|path| path.and_then(place));
        places[0].is_some() && places[0] == places[1]
    }

    /// Creates the files before anything is sent, so that nothing is measured that cannot be written.
    ///
    /// # Errors
    /// A place cannot be written to, which is named.
    pub(crate) fn create(json: Option<&Path>, html: Option<&Path>) -> anyhow::Result<Self> {
        let has_stdout = [json, html].into_iter().flatten().any(is_stdout);
        let create = |place: Option<&Path>| place.map(AtomicFile::create).transpose();
        Ok(Self { has_stdout, json: create(json)?, html: create(html)? })
    }

    /// The files that remain if the program ends before it writes the report.
    pub(crate) fn temporary_paths(&self) -> Vec<PathBuf> {
        let files = [&self.json, &self.html].into_iter().flatten();
        files.filter_map(AtomicFile::temporary_path).map(Path::to_owned).collect()
    }

    /// Writes those that were asked for.
    ///
    /// # Errors
    /// They cannot be made, or written.
    pub(crate) fn write(
        self,
        json: impl FnOnce() -> anyhow::Result<String>,
        html: impl FnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        if let Some(draft) = self.json {
            draft.write_and_commit(&json()?)?;
        }
        if let Some(draft) = self.html {
            draft.write_and_commit(&html()?)?;
        }
        Ok(())
    }
}

/// Returns the canonical path of a file, or the path as typed if its directory does not exist.
fn place(path: &Path) -> Option<PathBuf> {
    let room = path.parent().filter(|room| !room.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(room) = room.canonicalize() else { return Some(path.to_owned()) };
    Some(room.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_as_a_whole_or_as_it_was() {
        let room = tempfile::tempdir().unwrap();
        let place = room.path().join("run.json");
        let names = || std::fs::read_dir(room.path()).unwrap().count();
        drop(AtomicFile::create(&place).unwrap());
        assert_eq!(names(), 0, "nothing is left of what was not finished");
        AtomicFile::create(&place).unwrap().write_and_commit("first").unwrap();
        let second = AtomicFile::create(&place).unwrap();
        assert_eq!(std::fs::read_to_string(&place).unwrap(), "first");
        second.write_and_commit("second").unwrap();
        assert_eq!((std::fs::read_to_string(&place).unwrap().as_str(), names()), ("second", 1));
    }

    #[test]
    fn what_a_killed_program_of_the_same_number_has_left_is_in_nobodys_way() {
        let room = tempfile::tempdir().unwrap();
        let place = room.path().join("run.json");
        let left = room.path().join(format!(".run.json.{}", std::process::id()));
        std::fs::write(&left, "half").unwrap();
        AtomicFile::create(&place).unwrap().write_and_commit("whole").unwrap();
        let texts = [&place, &left].map(|path| std::fs::read_to_string(path).unwrap());
        assert_eq!(texts, ["whole", "half"], "whose it is nobody knows for certain, so it stays");
    }

    /// `--json` at a pipe without a reader waited for ever, and said nothing.
    #[test]
    fn a_pipe_that_nobody_reads_is_refused_and_one_that_somebody_reads_is_written_to() {
        let room = tempfile::tempdir().unwrap();
        let place = room.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let error = format!("{:#}", AtomicFile::create(&place).unwrap_err());
        assert!(error.contains("pipe: the pipe has no reader"), "{error}");
        // Open to both sides, so that neither waits for the other.
        let mut reader = OpenOptions::new().read(true).write(true).open(&place).unwrap();
        AtomicFile::create(&place).unwrap().write_and_commit("whole").unwrap();
        let mut text = [0; 5];
        std::io::Read::read_exact(&mut reader, &mut text).unwrap();
        assert_eq!(&text, b"whole");
    }

    #[test]
    fn an_answer_and_a_page_are_two_files_however_they_are_named() {
        let room = tempfile::tempdir().unwrap();
        let [json, other] = ["run", "./run"].map(|name| room.path().join(name));
        let are_one = |json, html| ReportFiles::is_same_file(Some(json), Some(html));
        assert!(are_one(&json, &json) && are_one(&json, &other));
        assert!(are_one(Path::new("-"), Path::new("-")));
        assert!(!are_one(&json, &room.path().join("page")) && !ReportFiles::is_same_file(Some(&json), None));
        assert!(!ReportFiles::is_same_file(None, None));
    }

    #[test]
    fn a_place_that_cannot_be_written_to_is_named() {
        let error = AtomicFile::create(Path::new("/nonexistent/run.json")).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot write /nonexistent/run.json: "), "{error:#}");
        assert!(AtomicFile::create(Path::new("/dev/null")).unwrap().write_and_commit("x").is_ok());
    }
}
