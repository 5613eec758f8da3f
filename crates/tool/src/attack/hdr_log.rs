//! `--hdr`: response time, service time and lag by the interval, as an HDR log.
//!
//! Small whatever the rate, exact to add up over generators, and what `seawall plot` needs beside results to show how
//! late the generator was.

use std::fs::File;
use std::io::BufWriter;

use anyhow::Context as _;
use seawall_load::clock::{Nanos, SECOND};
use seawall_load::interval::IntervalStats;
use seawall_load::results::hdr;

/// A log that is to be written. The file is there, or emptied, before anything is sent.
#[derive(Debug)]
pub(crate) struct PendingHdrLog {
    file: BufWriter<File>,
    name: String,
}

impl PendingHdrLog {
    /// Creates the file, or empties it.
    pub(crate) fn create(name: &str) -> anyhow::Result<Self> {
        let file = File::create(name).with_context(|| cannot_write(name))?;
        Ok(Self { file: BufWriter::new(file), name: name.to_owned() })
    }

    /// The log of a run that begins then, in nanoseconds since the Unix epoch.
    pub(crate) fn start(self, unix_ns: i64) -> anyhow::Result<HdrLogFile> {
        let Self { file, name } = self;
        let log = hdr::HdrLogWriter::start(file, unix_ns as f64 / SECOND as f64)
            .with_context(|| cannot_write(&name))?;
        Ok(HdrLogFile { log, name })
    }
}

fn cannot_write(name: &str) -> String {
    format!("cannot write {name}")
}

/// A log that is being written.
#[derive(Debug)]
pub(crate) struct HdrLogFile {
    log: hdr::HdrLogWriter<BufWriter<File>>,
    name: String,
}

impl HdrLogFile {
    /// Writes down what was measured.
    pub(crate) fn write_interval(&mut self, interval: &IntervalStats) -> anyhow::Result<()> {
        let IntervalStats { from, to, stats } = interval;
        let seconds = |nanos: Nanos| nanos as f64 / SECOND as f64;
        let (since, length) = (seconds(*from), seconds(to.saturating_sub(*from)));
        let all = stats.all_times();
        let measured =
            [("response", &all.response_time), ("service", &all.service_time), ("lag", &stats.send_lag)];
        measured
            .into_iter()
            .try_for_each(|(tag, values)| self.log.add(tag, since, length, values.distribution()))
            .and_then(|()| self.log.flush())
            .with_context(|| cannot_write(&self.name))
    }
}
