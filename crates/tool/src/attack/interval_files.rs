//! Files that intervals go to while a run goes on: the HDR log and the intervals as data.
//!
//! A file that cannot be written to its end gets no more of it, and the run goes on: a full disk must not cost what is being
//! measured. What went wrong is kept for the end, for a terminal may be showing the run until then.

use seawall_load::interval::IntervalStats;

use super::hdr_log::{HdrLogFile, PendingHdrLog};
use super::json_run_metadata::RunMetadata;
use super::timeseries_file::{IntervalsFooter, IntervalsWriter};

/// The files that were asked for and can be written.
pub(super) struct IntervalOutputFiles {
    log: Option<HdrLogFile>,
    intervals: Option<IntervalsWriter>,
    failed: Vec<anyhow::Error>,
}

impl IntervalOutputFiles {
    /// Starts the files of a run that begins at `unix_ns` (nanoseconds since the Unix epoch), with a header about the run.
    pub(super) fn begin(
        log: Option<PendingHdrLog>,
        intervals: Option<IntervalsWriter>,
        unix_ns: i64,
        about: &RunMetadata,
    ) -> Self {
        let (log, error) = log
            .map(|log| log.start(unix_ns))
            .transpose()
            .map_or_else(|error| (None, Some(error)), |log| (log, None));
        let mut written = Self { log, intervals, failed: error.into_iter().collect() };
        attempt(&mut written.intervals, &mut written.failed, |intervals| intervals.write_header(about));
        written
    }

    /// Writes down what was measured.
    pub(super) fn write_interval(&mut self, interval: &IntervalStats) {
        attempt(&mut self.log, &mut self.failed, |log| log.write_interval(interval));
        attempt(&mut self.intervals, &mut self.failed, |intervals| intervals.write_interval(interval));
    }

    /// Writes down how it ended; answers with what could not be written, one error per file, which it names.
    pub(super) fn finish(mut self, end: &IntervalsFooter) -> Vec<anyhow::Error> {
        attempt(&mut self.intervals, &mut self.failed, |intervals| intervals.write_footer(end));
        self.failed
    }
}

/// Writes to a file that could be written so far.
fn attempt<F>(
    file: &mut Option<F>,
    failed: &mut Vec<anyhow::Error>,
    write: impl FnOnce(&mut F) -> anyhow::Result<()>,
) {
    if let Some(Err(error)) = file.as_mut().map(write) {
        failed.push(error);
        *file = None;
    }
}
