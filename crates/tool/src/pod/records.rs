//! Results of a pod: a file of its own, or lines in which they are told.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use seawall_fleet::protocol::{MOST_RECORDS, Told};

use super::voice::Voice;

/// Bytes of records in a line: in base64 it is no longer than what container runtimes keep in one piece (16 KiB).
const CHUNK: usize = 11 << 10;

/// Where the records of a trial go: nowhere, to a file, or into lines.
pub(super) fn output(
    name: &str,
    index: u64,
    told: impl FnOnce() -> Lines,
) -> anyhow::Result<Option<Box<dyn Write + Send>>> {
    Ok(match name {
        "none" => None,
        "stdout" | "-" => Some(Box::new(told())),
        file => {
            let file = numbered(file, index);
            let created = File::create(&file).with_context(|| format!("cannot write {file}"))?;
            Some(Box::new(created))
        }
    })
}

/// The pod's number before the extension, if there is one.
fn numbered(file: &str, index: u64) -> String {
    let path = Path::new(file);
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    let name = format!("{stem}-{index}{}", extension.unwrap_or_default());
    path.with_file_name(name).to_string_lossy().into_owned()
}

/// Tells records in lines, up to a bound.
pub(super) struct Lines {
    trial: u64,
    voice: Arc<Voice>,
    told: usize,
    cut: Arc<AtomicBool>,
}

impl Lines {
    /// Of a trial; sets `cut` if there are more records than are told.
    pub(super) fn new(trial: u64, voice: &Arc<Voice>, cut: &Arc<AtomicBool>) -> Self {
        Self { trial, voice: Arc::clone(voice), told: 0, cut: Arc::clone(cut) }
    }
}

impl Write for Lines {
    /// The engine writes whole records at once, and so whole ones are left out.
    fn write(&mut self, records: &[u8]) -> io::Result<usize> {
        if self.told + records.len() > MOST_RECORDS || self.cut.load(Ordering::Relaxed) {
            self.cut.store(true, Ordering::Relaxed);
            return Ok(records.len());
        }
        self.told += records.len();
        for chunk in records.chunks(CHUNK) {
            let chunk = BASE64_STANDARD.encode(chunk);
            self.voice.tell(&Told::<(), ()>::Records { trial: self.trial, chunk });
        }
        Ok(records.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_results_has_its_pods_number_before_its_extension() {
        let named =
            ["results.gob", "/a.b/results", "/out/.hidden", "a/b.tar.gz"].map(|name| numbered(name, 3));
        assert_eq!(named, ["results-3.gob", "/a.b/results-3", "/out/.hidden-3", "a/b.tar-3.gz"]);
    }

    #[test]
    fn records_beyond_what_a_pod_may_tell_are_left_out_and_that_is_known() {
        let cut = Arc::default();
        let mut lines = Lines { told: MOST_RECORDS - 3, ..Lines::new(1, &Arc::default(), &cut) };
        assert_eq!(lines.write(&[0; 4]).unwrap(), 4);
        assert_eq!((lines.told, cut.load(Ordering::Relaxed)), (MOST_RECORDS - 3, true));
    }
}
