//! `--intervals`: a run as data, a line of JSON per interval between one that says what the run is and one that says how it
//! ended. `report` reads it.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use anyhow::Context as _;
use seawall_lab::judgement::Judgement;
use seawall_lab::verdict::VerdictReason;
use seawall_load::clock::Nanos;
use seawall_load::engine::RunOutcome;
use seawall_load::interval::IntervalStats;
use serde::{Deserialize, Serialize};

use super::about::RunMetadata;

/// The line that comes last: what intervals do not add up to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct IntervalsFooter {
    /// Hits that the schedule made due; none in a closed loop.
    pub(crate) scheduled: Option<u64>,
    /// For how long hits were counted.
    pub(crate) duration: Nanos,
    /// The same with the wait for the last answers.
    pub(crate) elapsed: Nanos,
    /// That sent.
    pub(crate) threads: usize,
    /// What speaks against the generator.
    pub(crate) findings: Vec<VerdictReason>,
}

impl IntervalsFooter {
    /// Of a run that is over.
    pub(crate) fn of(outcome: &RunOutcome, judgement: &Judgement) -> Self {
        Self {
            scheduled: outcome.scheduled,
            duration: outcome.scheduled_for,
            elapsed: outcome.elapsed,
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
    pub(crate) fn begin(&mut self, about: &RunMetadata) -> anyhow::Result<()> {
        self.line(about)
    }

    /// Writes down what was measured.
    pub(crate) fn add(&mut self, interval: &IntervalStats) -> anyhow::Result<()> {
        self.line(interval)
    }

    /// Writes the line that comes last.
    pub(crate) fn end(&mut self, end: &IntervalsFooter) -> anyhow::Result<()> {
        self.line(end)
    }

    fn line(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let written = serde_json::to_writer(&mut self.out, value).map_err(io::Error::from);
        let written = written.and_then(|()| self.out.write_all(b"\n")).and_then(|()| self.out.flush());
        written.with_context(|| format!("cannot write {}", self.name))
    }
}
