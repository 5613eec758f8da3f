//! `--timeseries`: a run as JSON lines. The first line says what the run is, the last one how it ended, and between them stands a line
//! per interval. `report` reads such files.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use anyhow::Context as _;
use seawall_lab::generator_verdict::VerdictReason;
use seawall_lab::trial_judgement::Judgement;
use seawall_load::clock::Nanos;
use seawall_load::configuration::DOCUMENT_VERSION;
use seawall_load::engine::RunOutcome;
use seawall_load::interval::IntervalStats;
use serde::{Deserialize, Serialize};

use super::json_run_metadata::RunMetadata;

/// The `kind` of the first line.
pub(crate) const TIMESERIES_KIND: &str = "timeseries";

/// The first line.
#[derive(Serialize)]
struct FirstLine<'a> {
    kind: &'static str,
    version: u32,
    #[serde(flatten)]
    about: &'a RunMetadata,
}

/// The last line: what intervals do not add up to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct IntervalsFooter {
    /// Requests that the schedule made due. `None` in a closed loop.
    pub(crate) offered: Option<u64>,
    /// The time for which requests were counted.
    #[serde(rename = "duration_seconds", with = "seawall_load::duration_json")]
    pub(crate) duration: Nanos,
    /// The duration and the wait for the last responses.
    #[serde(rename = "elapsed_seconds", with = "seawall_load::duration_json")]
    pub(crate) elapsed: Nanos,
    /// Threads that sent.
    pub(crate) threads: usize,
    /// The findings against the generator.
    pub(crate) findings: Vec<VerdictReason>,
}

impl IntervalsFooter {
    /// Describes the end of a finished run.
    pub(crate) fn from_outcome(outcome: &RunOutcome, judgement: &Judgement) -> Self {
        Self {
            offered: outcome.scheduled_count,
            duration: outcome.counted_duration,
            elapsed: outcome.elapsed_after_warm_up,
            threads: outcome.threads,
            findings: judgement.reasons.clone(),
        }
    }
}

/// A file of intervals that is being written.
#[derive(Debug)]
pub(crate) struct IntervalsWriter {
    out: BufWriter<File>,
    name: String,
}

impl IntervalsWriter {
    /// Creates the file, or empties it.
    pub(crate) fn create(name: &str) -> anyhow::Result<Self> {
        let file = File::create(name).with_context(|| format!("cannot write {name}"))?;
        Ok(Self { out: BufWriter::new(file), name: name.to_owned() })
    }

    /// Writes the line that comes first.
    pub(crate) fn write_header(&mut self, about: &RunMetadata) -> anyhow::Result<()> {
        self.line(&FirstLine { kind: TIMESERIES_KIND, version: DOCUMENT_VERSION, about })
    }

    /// Writes down what was measured.
    pub(crate) fn write_interval(&mut self, interval: &IntervalStats) -> anyhow::Result<()> {
        self.line(interval)
    }

    /// Writes the line that comes last.
    pub(crate) fn write_footer(&mut self, end: &IntervalsFooter) -> anyhow::Result<()> {
        self.line(end)
    }

    fn line(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let written = serde_json::to_writer(&mut self.out, value).map_err(io::Error::from);
        let written = written.and_then(|()| self.out.write_all(b"\n")).and_then(|()| self.out.flush());
        written.with_context(|| format!("cannot write {}", self.name))
    }
}
