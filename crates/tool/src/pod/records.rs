//! The records of a pod: in a file of its own, or reported in lines.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use seawall_fleet::protocol::{MAX_RECORD_BYTES_PER_TRIAL, PodReport};

use super::pod_output::PodOutput;

/// Bytes of records in a line: in base64 it is no longer than what container runtimes keep in one piece (16 KiB).
const CHUNK: usize = 11 << 10;

/// Opens the destination of the records of a trial: none, a file, or lines.
pub(super) fn open_records_output(
    name: &str,
    index: u64,
    told: impl FnOnce() -> RecordLineWriter,
) -> anyhow::Result<Option<Box<dyn Write + Send>>> {
    Ok(match name {
        "none" => None,
        "stdout" | "-" => Some(Box::new(told())),
        file => {
            let file = numbered_path(file, index);
            let created = File::create(&file).with_context(|| format!("cannot write {file}"))?;
            Some(Box::new(created))
        }
    })
}

/// Inserts the number of the pod before the extension, if there is one.
fn numbered_path(file: &str, index: u64) -> String {
    let path = Path::new(file);
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    let name = format!("{stem}-{index}{}", extension.unwrap_or_default());
    path.with_file_name(name).to_string_lossy().into_owned()
}

/// Reports records in lines, up to a limit.
pub(super) struct RecordLineWriter {
    trial: u64,
    voice: Arc<PodOutput>,
    sent_bytes: usize,
    truncated: Arc<AtomicBool>,
}

impl RecordLineWriter {
    /// Makes a writer for a trial; it sets `cut` if it drops records.
    pub(super) fn new(trial: u64, voice: &Arc<PodOutput>, cut: &Arc<AtomicBool>) -> Self {
        Self { trial, voice: Arc::clone(voice), sent_bytes: 0, truncated: Arc::clone(cut) }
    }
}

impl Write for RecordLineWriter {
    /// Writes whole records or drops them, because the engine writes whole records at once.
    fn write(&mut self, records: &[u8]) -> io::Result<usize> {
        if self.sent_bytes + records.len() > MAX_RECORD_BYTES_PER_TRIAL
            || self.truncated.load(Ordering::Relaxed)
        {
            self.truncated.store(true, Ordering::Relaxed);
            return Ok(records.len());
        }
        self.sent_bytes += records.len();
        for chunk in records.chunks(CHUNK) {
            let chunk = BASE64_STANDARD.encode(chunk);
            self.voice.send(&PodReport::<(), ()>::Records { trial: self.trial, chunk });
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
            ["results.gob", "/a.b/results", "/out/.hidden", "a/b.tar.gz"].map(|name| numbered_path(name, 3));
        assert_eq!(named, ["results-3.gob", "/a.b/results-3", "/out/.hidden-3", "a/b.tar-3.gz"]);
    }

    #[test]
    fn records_beyond_what_a_pod_may_tell_are_left_out_and_that_is_known() {
        let cut = Arc::default();
        let mut lines = RecordLineWriter {
            sent_bytes: MAX_RECORD_BYTES_PER_TRIAL - 3,
            ..RecordLineWriter::new(1, &Arc::default(), &cut)
        };
        assert_eq!(lines.write(&[0; 4]).unwrap(), 4);
        assert_eq!((lines.sent_bytes, cut.load(Ordering::Relaxed)), (MAX_RECORD_BYTES_PER_TRIAL - 3, true));
    }
}
