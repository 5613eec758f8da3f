//! Reads files, or reports why a file is unreadable. No other module of this crate opens files.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// The longest text that is read. Only socket tables with more than 100,000 sockets are longer; they are then marked as cut. The limit
/// protects the memory from unexpected files.
const LONGEST_TEXT: u64 = 16 << 20;

/// The most names in a directory.
const MOST_NAMES: usize = 16_384;

/// The files of a machine: the real ones, or those of a test.
pub trait HostFiles {
    /// Reads the text of a regular file.
    ///
    /// # Errors
    /// The system's error; `Unsupported` for a FIFO, a device or a directory.
    fn read(&self, path: &str) -> io::Result<String>;

    /// Lists the names in a directory, in any order.
    ///
    /// # Errors
    /// The system's error.
    fn names(&self, path: &str) -> io::Result<Vec<String>>;

    /// Returns the size of a file, from `stat`.
    ///
    /// # Errors
    /// The system's error.
    fn size(&self, path: &str) -> io::Result<u64>;
}

impl<F: HostFiles + ?Sized> HostFiles for &F {
    fn read(&self, path: &str) -> io::Result<String> {
        F::read(self, path)
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        F::names(self, path)
    }

    fn size(&self, path: &str) -> io::Result<u64> {
        F::size(self, path)
    }
}

/// The files of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalFiles;

impl HostFiles for LocalFiles {
    fn read(&self, path: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        // The type is checked before opening, because opening a device may have effects (a watchdog starts, a tape rewinds). It is checked
        // again afterwards, because the file may have changed: a FIFO without a writer would block, and a device may have no end.
        if !Path::new(path).metadata()?.is_file() {
            return Err(ErrorKind::Unsupported.into());
        }
        let at_once = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(at_once).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(ErrorKind::Unsupported.into());
        }
        file.take(LONGEST_TEXT).read_to_end(&mut bytes)?;
        // Names of threads and mount points may contain any bytes; numbers do not.
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(path)?.take(MOST_NAMES);
        names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn size(&self, path: &str) -> io::Result<u64> {
        Ok(Path::new(path).metadata()?.len())
    }
}

/// A value, or the reason why it is unknown.
pub type ProbeResult<T> = Result<T, ProbeError>;

/// The reason why a value is unknown. [`fmt::Display`] continues the sentence "could not be tested: ...".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeError {
    /// The file does not exist: another kernel, a disabled feature, or a sandbox.
    Missing(String),
    /// The system refuses access.
    Refused(String, ErrorKind),
    /// The path is a FIFO, a device or a directory.
    Irregular(String),
    /// The file has an unexpected format.
    Malformed(String),
    /// The machine has nothing of this kind, for this reason.
    NotApplicable(&'static str),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "{path} does not exist on this machine"),
            Self::Refused(path, kind) => write!(f, "cannot read {path}: {kind}"),
            Self::Irregular(path) => write!(f, "{path} is not a regular file"),
            Self::Malformed(path) => write!(f, "{path} has an unknown format"),
            Self::NotApplicable(why) => f.write_str(why),
        }
    }
}

impl ProbeError {
    /// Returns the reason why a file could not be read.
    #[must_use]
    pub fn new(path: &str, error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Missing(path.to_owned()),
            // A kernel without pressure information returns the same kind of error, but with a number.
            ErrorKind::Unsupported if error.raw_os_error().is_none() => Self::Irregular(path.to_owned()),
            kind => Self::Refused(path.to_owned(), kind),
        }
    }
}

/// Reads and parses a file.
///
/// # Errors
/// The file is unreadable or has an unexpected format.
pub fn read_parsed<T>(
    files: &dyn HostFiles,
    path: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> ProbeResult<T> {
    let text = files.read(path).map_err(|error| ProbeError::new(path, &error))?;
    parse(&text).ok_or_else(|| ProbeError::Malformed(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

    use super::*;

    /// Creates a FIFO with this name, in a path of this process.
    fn fifo(name: &str) -> String {
        let fifo = std::env::temp_dir().join(format!("seawall-probe-{}-{name}", std::process::id()));
        let rights = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rights, 0).unwrap();
        fifo.into_os_string().into_string().unwrap()
    }

    #[test]
    fn what_is_no_regular_file_is_named_and_neither_waited_for_nor_read() {
        let fifo = fifo("named");
        for path in [&fifo, "/dev/zero", "/tmp"] {
            let told = read_parsed(&LocalFiles, path, |_| Some(())).unwrap_err();
            assert_eq!(told, ProbeError::Irregular(path.to_owned()));
        }
        std::fs::remove_file(&fifo).unwrap();
        assert!(LocalFiles.read("/proc/self/stat").is_ok());
    }

    /// Some devices act when they are opened. A test can use a FIFO instead.
    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        let fifo = fifo("closed");
        let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &fifo, WatchFlags::OPEN).unwrap();
        assert!(LocalFiles.read(&fifo).is_err());
        let mut events = [0; 256];
        assert_eq!(rustix::io::read(&watch, &mut events).unwrap_err(), rustix::io::Errno::AGAIN);
        std::fs::remove_file(&fifo).unwrap();
    }
}

/// The files of a fake machine for tests.
#[cfg(any(test, feature = "fake"))]
pub mod fake {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    /// Texts by path; `None` for a file that this user may not read.
    #[derive(Debug, Clone, Default)]
    pub struct Texts(RefCell<BTreeMap<String, Option<String>>>);

    impl Texts {
        /// Creates a machine with these texts at their paths.
        #[must_use]
        pub fn new(texts: &[(&str, &str)]) -> Self {
            let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned())));
            Self(RefCell::new(texts.collect()))
        }

        /// Adds or replaces a text.
        pub fn set(&self, path: &str, text: &str) {
            self.0.borrow_mut().insert(path.to_owned(), Some(text.to_owned()));
        }

        /// Makes a file or directory unreadable for this user.
        pub fn refuse(&self, path: &str) {
            self.0.borrow_mut().insert(path.to_owned(), None);
        }

        /// Returns the paths of all texts.
        #[must_use]
        pub fn paths(&self) -> Vec<String> {
            self.0.borrow().keys().cloned().collect()
        }

        /// Removes a text.
        pub fn remove(&self, path: &str) {
            self.0.borrow_mut().remove(path);
        }
    }

    impl HostFiles for Texts {
        fn read(&self, path: &str) -> io::Result<String> {
            let text = self.0.borrow().get(path).cloned().ok_or(ErrorKind::NotFound)?;
            text.ok_or_else(|| ErrorKind::PermissionDenied.into())
        }

        fn names(&self, path: &str) -> io::Result<Vec<String>> {
            let texts = self.0.borrow();
            if texts.get(path).is_some_and(Option::is_none) {
                return Err(ErrorKind::PermissionDenied.into());
            }
            let below = texts.keys().filter_map(|key| key.strip_prefix(path)?.strip_prefix('/'));
            let mut names: Vec<_> =
                below.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
            names.dedup();
            if names.is_empty() { Err(ErrorKind::NotFound.into()) } else { Ok(names) }
        }

        fn size(&self, path: &str) -> io::Result<u64> {
            let is_directory = self.names(path).is_ok();
            if is_directory { Ok(0) } else { self.read(path).map(|text| text.len() as u64) }
        }
    }
}
