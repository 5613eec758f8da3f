//! One generator's file of intervals, read line by line: bytes in, intervals out, and why there are no more.
//!
//! Memory is that of a line. A file that is cut or damaged gives what stands in front of the break, and says what is wrong.

use std::io::{BufRead, Read};

use anyhow::{Context as _, bail, ensure};
use seawall_load::clock::Nanos;
use seawall_load::configuration::DOCUMENT_VERSION;
use seawall_load::interval::IntervalStats;
use seawall_load::results::rfc3339;
use seawall_load::run_outcome::requests_handed_out;
use seawall_load::schedule::ScheduleShard;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::attack::timeseries_file::{IntervalsFooter, TIMESERIES_KIND};
use crate::report::input::InputSource;

/// More than an interval with every histogram, status, target and variant that there is room for.
const LONGEST_LINE: u64 = 64 << 20;

/// No interval counts more, of requests, bytes or nanoseconds: the whole numbers that every reader of JSON has (RFC 8259,
/// section 6). Nine petabytes, or a hundred days of a thread.
const MOST: u64 = 1 << 53;

/// The interval file of one generator; after the first line, an iterator over its intervals.
pub(super) struct GeneratorFile {
    /// The name of the file.
    pub(super) name: String,
    /// The first line as it is.
    pub(super) raw_header: Value,
    /// The known fields of the first line.
    pub(super) header: IntervalsHeader,
    /// The end of the last interval, since the start.
    to: Nanos,
    /// Requests that were handed out until then.
    handed_out: u64,
    /// The last line.
    end: Option<IntervalsFooter>,
    /// The reason why the file ends without a last line, if it does.
    pub(super) read_problem: Option<String>,
    reader: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    number: u64,
}

/// The content of the first line.
#[derive(Debug, Deserialize)]
pub(super) struct IntervalsHeader {
    version: u32,
    /// The start of the run in RFC 3339. `None` in a year that RFC 3339 cannot write.
    pub(super) start: Option<String>,
    pub(super) config: GeneratorConfig,
}

/// The part of a plan that its figures cannot be read without.
#[derive(Debug, Deserialize)]
pub(super) struct GeneratorConfig {
    /// The name of the attack.
    pub(super) name: String,
    /// The time at the start whose requests are not counted.
    #[serde(rename = "warm_up_seconds", with = "seawall_load::duration_json")]
    pub(super) warm_up: Nanos,
    /// The part of the schedule that this generator sent.
    #[serde(deserialize_with = "shard")]
    pub(super) shard: ScheduleShard,
    /// The rate over time. `None` in a closed loop.
    pub(super) stages: Option<Vec<Value>>,
}

fn shard<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ScheduleShard, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// A line after the first.
enum IntervalsLine {
    Interval(Box<IntervalStats>),
    End(IntervalsFooter),
}

/// The first bytes of the three kinds of line.
const FIRST: &[u8] = b"{\"kind\":";
const INTERVAL: &[u8] = b"{\"start_seconds\":";
const LAST: &[u8] = b"{\"offered\":";

/// Returns true if an input with these first bytes is an interval file, or a part of one.
pub(crate) fn is_intervals_file(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    [FIRST, INTERVAL, LAST].iter().any(|line| head.starts_with(line))
}

impl GeneratorFile {
    /// Reads the first line.
    pub(super) fn open(InputSource { name, mut reader }: InputSource) -> anyhow::Result<Self> {
        let mut line = Vec::new();
        let header = read_line(&mut reader, &mut line).and_then(|_| Ok(serde_json::from_slice(&line)?));
        let about: Value = header.with_context(|| {
            format!("{name}: line 1 does not describe the run; expected a file of `attack --timeseries`")
        })?;
        ensure!(
            about.get("error_ratio").is_none(),
            "{name} contains a summary: `seawall report` reads results and files of `attack --timeseries`"
        );
        ensure!(
            about["kind"] == TIMESERIES_KIND,
            "{name}: line 1 does not describe the run; expected a file of `attack --timeseries`"
        );
        let header = IntervalsHeader::deserialize(&about).with_context(|| {
            format!("{name}: line 1 does not describe the run; expected a file of `attack --timeseries`")
        })?;
        ensure!(
            header.version == DOCUMENT_VERSION,
            "{name}: unknown version {}: expected {DOCUMENT_VERSION}",
            header.version
        );
        Ok(Self {
            name,
            raw_header: about,
            header,
            to: 0,
            handed_out: 0,
            end: None,
            read_problem: None,
            reader,
            line,
            number: 1,
        })
    }

    /// Returns the start of the run; 0 if it is unknown.
    pub(super) fn began_unix_ns(&self) -> i64 {
        let start = self.header.start.as_deref().and_then(rfc3339::parse);
        start.and_then(|start| i64::try_from(start.unix_ns()).ok()).unwrap_or(0)
    }

    /// Returns the end of the run. For a cut file, the run counts as ended there, with only the requests handed out so far due.
    pub(super) fn footer(&self) -> IntervalsFooter {
        let length = self.to.saturating_sub(self.header.config.warm_up);
        let scheduled = self.header.config.stages.is_some().then_some(self.handed_out);
        let cut = || IntervalsFooter {
            offered: scheduled,
            duration: length,
            elapsed: length,
            ..IntervalsFooter::default()
        };
        self.end.clone().unwrap_or_else(cut)
    }

    /// Returns the next interval; `None` after the last line.
    fn read(&mut self) -> anyhow::Result<Option<IntervalStats>> {
        self.line.clear();
        self.number += 1;
        if !read_line(&mut self.reader, &mut self.line)? {
            bail!("is missing: the last line must describe the end of the run");
        }
        match parse(&self.line)? {
            IntervalsLine::Interval(interval) => {
                let (expected, found) = (self.to, interval.from);
                ensure!(
                    found == expected && interval.to >= found,
                    "does not continue the line before it: expected an interval from {expected} ns"
                );
                let largest = interval.stats.largest_counter();
                ensure!(largest <= MOST, "has a count of {largest}: the limit is {MOST}");
                self.to = interval.to;
                self.handed_out = self.handed_out.saturating_add(requests_handed_out(&interval.stats));
                Ok(Some(*interval))
            }
            IntervalsLine::End(end) => {
                self.end = Some(end);
                self.nothing_more()?;
                Ok(None)
            }
        }
    }

    /// Files put one after the other into one are not read as one: the second would be lost.
    fn nothing_more(&mut self) -> anyhow::Result<()> {
        loop {
            self.line.clear();
            self.number += 1;
            if !read_line(&mut self.reader, &mut self.line)? {
                return Ok(());
            }
            ensure!(
                self.line.trim_ascii().is_empty(),
                "comes after the end of the run, but a file has the intervals of one generator only"
            );
        }
    }
}

impl Iterator for GeneratorFile {
    type Item = IntervalStats;

    fn next(&mut self) -> Option<IntervalStats> {
        if self.end.is_some() || self.read_problem.is_some() {
            return None;
        }
        self.read().unwrap_or_else(|why| {
            self.read_problem = Some(format!("{}: line {} {why:#}", self.name, self.number));
            None
        })
    }
}

fn parse(line: &[u8]) -> anyhow::Result<IntervalsLine> {
    let not = "is neither an interval nor the end of the run";
    if line.starts_with(INTERVAL) {
        return serde_json::from_slice(line).map(IntervalsLine::Interval).context(not);
    }
    serde_json::from_slice(line).map(IntervalsLine::End).context(not)
}

/// Reads one line into `line`; returns false at the end of the file.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> anyhow::Result<bool> {
    let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', line).context("cannot be read")?;
    ensure!((read as u64) < LONGEST_LINE, "is longer than {LONGEST_LINE} bytes");
    Ok(read > 0)
}
