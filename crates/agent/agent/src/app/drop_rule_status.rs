//! Reports whether the node's drop rules are loaded. Another container of the pod keeps them (`redirect keep-drop-rules`) and writes its
//! result to a file beside the admin socket, because the agent itself has no right to read the rules.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use seawall_core::Clock;

/// The end of the file's name, after the whole name of the admin socket.
const SUFFIX: &str = ".drop-rules";

/// The age at which a result counts as lost. The other container writes one each minute.
const MAX_AGE: Duration = Duration::from_secs(180);

/// The maximum length in bytes of a result.
const MAX_BYTES: u64 = 1024;

/// The content of the file if the rules are loaded.
const LOADED: &str = "loaded";

/// The result of a look at the drop rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DropRuleState {
    /// The rules are loaded.
    Loaded,
    /// The rules are not loaded, for this reason.
    NotLoaded(String),
}

impl fmt::Display for DropRuleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loaded => f.write_str("the drop rules are loaded"),
            Self::NotLoaded(reason) => write!(f, "the drop rules are not loaded: {reason}"),
        }
    }
}

/// Writes the result for the agent. A reader finds the last result or this one, never a part.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(path: &Path, state: &DropRuleState) -> io::Result<()> {
    let text = match state {
        DropRuleState::Loaded => LOADED,
        DropRuleState::NotLoaded(reason) => reason,
    };
    let next = with_suffix(path, ".next");
    fs::write(&next, text)?;
    fs::rename(next, path)
}

/// Returns a warning for the operator if the rules are not loaded, or if nobody has looked at them for three minutes. Returns `None` on a
/// node where nothing writes the file: there an operator manages the rules.
pub(crate) fn warning(admin_socket: Option<&Path>, clock: &Clock) -> Option<String> {
    const OPEN: &str = "raw packets, and pods of gVisor and Kata, can reach the real metadata server";
    let path = with_suffix(admin_socket?, SUFFIX);
    let (text, age) = match read(&path, clock) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(format!("cannot read {}: {error}", path.display())),
    };
    if text != LOADED {
        return Some(format!("the drop rules are not loaded ({text}): {OPEN}"));
    }
    (age > MAX_AGE).then(|| {
        format!(
            "nobody has looked at the drop rules for {} s (container drop-rules): if they are gone, {OPEN}",
            age.as_secs()
        )
    })
}

/// Returns the content of the file and its age.
fn read(path: &Path, clock: &Clock) -> io::Result<(String, Duration)> {
    let file = fs::File::open(path)?;
    let changed = file.metadata()?.modified()?;
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok((text.trim().to_owned(), clock.wall_time().duration_since(changed).unwrap_or_default()))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_is_the_last_result_and_tells_when_nobody_looks() {
        let folder = tempfile::TempDir::with_prefix("seawall-drop-rules-").unwrap();
        let (socket, clock) = (folder.path().join("admin.sock"), Clock::system());
        let warning = || warning(Some(&socket), &clock);
        let file = with_suffix(&socket, SUFFIX);
        assert_eq!(warning(), None, "nothing keeps the rules here");
        write(&file, &DropRuleState::Loaded).unwrap();
        assert_eq!(warning(), None);
        write(&file, &DropRuleState::NotLoaded("no nf_tables".to_owned())).unwrap();
        assert!(warning().unwrap().contains("not loaded (no nf_tables)"));
        write(&file, &DropRuleState::Loaded).unwrap();
        let old = clock.wall_time() - MAX_AGE - Duration::from_secs(2);
        fs::File::options().append(true).open(&file).unwrap().set_modified(old).unwrap();
        assert!(warning().unwrap().contains("nobody has looked at the drop rules for 18"));
        assert_eq!(super::warning(None, &clock), None);
    }
}
