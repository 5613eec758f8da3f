//! `--intervals`: a run as data, a line of JSON per interval after one that says what the run is.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use anyhow::Context as _;
use seawall_load::interval::Interval;

use super::about::About;

/// A file of intervals that is being written.
#[derive(Debug)]
pub(crate) struct Intervals {
    out: BufWriter<File>,
    name: String,
}

impl Intervals {
    /// Creates the file, or empties it.
    pub(crate) fn create(name: &str) -> anyhow::Result<Self> {
        let file = File::create(name).with_context(|| format!("cannot write {name}"))?;
        Ok(Self { out: BufWriter::new(file), name: name.to_owned() })
    }

    /// Writes the line that comes first.
    pub(crate) fn begin(&mut self, about: &About) -> anyhow::Result<()> {
        self.line(about)
    }

    /// Writes down what was measured.
    pub(crate) fn add(&mut self, interval: &Interval) -> anyhow::Result<()> {
        self.line(interval)
    }

    fn line(&mut self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        let written = serde_json::to_writer(&mut self.out, value).map_err(io::Error::from);
        let written = written.and_then(|()| self.out.write_all(b"\n")).and_then(|()| self.out.flush());
        written.with_context(|| format!("cannot write {}", self.name))
    }
}
