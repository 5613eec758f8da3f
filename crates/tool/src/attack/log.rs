//! `--hdr`: response time, service time and lag by the second, as an HDR log.
//!
//! Small whatever the rate, exact to add up over generators, and what `seawall plot` needs beside results to show how
//! late the generator was.

use std::fs::File;
use std::io::BufWriter;

use anyhow::Context as _;
use seawall_load::clock::{Nanos, RunClock, SECOND};
use seawall_load::engine::Tick;
use seawall_load::results::hdr;

/// A log that is being written.
#[derive(Debug)]
pub(crate) struct Log {
    log: hdr::Log<BufWriter<File>>,
    name: String,
    written_to: Nanos,
}

impl Log {
    /// Creates the file, or empties it. The run begins within milliseconds from now.
    pub(crate) fn create(name: &str) -> anyhow::Result<Self> {
        let start = RunClock::start().unix_ns(0) as f64 / SECOND as f64;
        let log = File::create(name).and_then(|file| hdr::Log::start(BufWriter::new(file), start));
        Ok(Self {
            log: log.with_context(|| format!("cannot write {name}"))?,
            name: name.to_owned(),
            written_to: 0,
        })
    }

    /// Writes down what was measured since the last time.
    pub(crate) fn add(&mut self, tick: &Tick<'_>) -> anyhow::Result<()> {
        let seconds = |nanos: Nanos| nanos as f64 / SECOND as f64;
        let (since, length) = (seconds(self.written_to), seconds(tick.at.saturating_sub(self.written_to)));
        self.written_to = tick.at;
        let all = tick.stats.all();
        let measured = [("response", &all.response), ("service", &all.service), ("lag", &tick.stats.lag)];
        measured
            .into_iter()
            .try_for_each(|(tag, values)| self.log.add(tag, since, length, values.spread()))
            .and_then(|()| self.log.flush())
            .with_context(|| format!("cannot write {}", self.name))
    }
}
