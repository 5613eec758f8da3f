//! The load that the flags ask for: as in hey and oha if URLs are typed, and as in vegeta if targets are read.
//!
//! With URLs and without a rate, `-n`, `-z` and `-c` ask for a closed loop, as in hey and oha. Everything else is a rate.

use std::io::{IsTerminal as _, stdout};
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::fs::{FileType, fstat};
use seawall_load::rate::{RateSetting, RequestRate};

use super::args::AttackArgs;

/// Clients of a closed loop where URLs are typed and no number is given: hey's and oha's default.
const DEFAULT_CLIENTS: u64 = 50;

/// The duration of a run to typed URLs that no flag limits.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);

impl AttackArgs {
    /// Returns true if clients wait for their responses, so that there is no rate.
    pub(crate) fn is_closed_loop(&self) -> bool {
        let is_sized = self.concurrency.is_some()
            || !self.urls.is_empty() && (self.requests.is_some() || self.duration.is_some());
        self.stages.is_none()
            && match self.rate {
                Some(RateSetting::Unlimited) => true,
                Some(RateSetting::Exact(_)) => false,
                None => is_sized,
            }
    }

    /// The rate of an open loop; vegeta's default where none is given.
    pub(crate) fn open_loop_rate(&self) -> Option<RequestRate> {
        match self.rate {
            Some(RateSetting::Exact(rate)) => Some(rate),
            Some(RateSetting::Unlimited) => None,
            None => RequestRate::new(50, 1_000_000_000),
        }
    }

    /// The bound on requests in flight: clients of a closed loop, workers at a rate; none: open files are the bound.
    pub(crate) fn in_flight_limit(&self) -> Option<u64> {
        let workers = (self.max_workers != u64::MAX).then_some(self.max_workers);
        let usual = (self.is_closed_loop() && !self.urls.is_empty())
            .then(|| DEFAULT_CLIENTS.min(self.requests.unwrap_or(u64::MAX)));
        self.concurrency.or(workers).or(usual)
    }

    /// Time after which no more requests are sent; 0: nothing but `--requests`, stages or a signal ends the run.
    pub(crate) fn send_duration(&self) -> Duration {
        let usual = if self.needs_default_duration() { DEFAULT_DURATION } else { Duration::ZERO };
        self.duration.unwrap_or(usual)
    }

    /// Returns true if URLs are typed and no flag ends the run.
    pub(crate) fn needs_default_duration(&self) -> bool {
        !self.urls.is_empty()
            && self.duration.is_none()
            && self.requests.is_none()
            && self.stages.is_none()
            && !self.lazy
    }

    /// Returns the place to which records are written.
    pub(crate) fn records_output(&self) -> RecordsOutput<'_> {
        RecordsOutput::choose(self.output.as_deref(), !self.urls.is_empty(), StdoutKind::now(), is_ci())
    }
}

/// Returns true in a job of a CI system, which sets this variable.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// The place to which records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordsOutput<'a> {
    /// A summary is shown instead.
    Nowhere,
    /// Standard output.
    Stdout,
    /// A file.
    File(&'a str),
}

/// The kind of file that standard output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StdoutKind {
    Terminal,
    Pipe,
    File,
    /// A socket or a device.
    Other,
}

impl StdoutKind {
    fn now() -> Self {
        if stdout().is_terminal() {
            return Self::Terminal;
        }
        match fstat(stdout().as_fd()).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Fifo) => Self::Pipe,
            Ok(FileType::RegularFile) => Self::File,
            _ => Self::Other,
        }
    }
}

impl<'a> RecordsOutput<'a> {
    /// vegeta's rule for targets that are read: records, unless a person or a log of a CI job would get them. A pipe keeps
    /// records in CI, too, because `seawall attack … | seawall report` is typed there.
    fn choose(typed: Option<&'a str>, has_urls: bool, stdout: StdoutKind, is_ci: bool) -> Self {
        let shows_text = stdout == StdoutKind::Terminal;
        match typed {
            Some("none") => Self::Nowhere,
            Some("stdout" | "-") if shows_text => Self::Nowhere,
            Some("stdout" | "-") => Self::Stdout,
            Some(file) => Self::File(file),
            None if has_urls || shows_text || (is_ci && stdout == StdoutKind::Other) => Self::Nowhere,
            None => Self::Stdout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_where_programs_read_and_a_summary_where_people_do() {
        use RecordsOutput::{File, Nowhere, Stdout};
        use StdoutKind as Kind;
        for (typed, has_urls, stdout, is_ci, expected) in [
            (None, false, Kind::Pipe, false, Stdout),
            (None, false, Kind::Pipe, true, Stdout),
            (None, false, Kind::File, true, Stdout),
            (None, false, Kind::Other, false, Stdout),
            (None, false, Kind::Other, true, Nowhere),
            (None, false, Kind::Terminal, false, Nowhere),
            (None, true, Kind::Pipe, false, Nowhere),
            (None, true, Kind::File, true, Nowhere),
            (Some("-"), true, Kind::Pipe, false, Stdout),
            (Some("stdout"), false, Kind::Other, true, Stdout),
            (Some("a.gob"), true, Kind::Terminal, true, File("a.gob")),
            (Some("none"), false, Kind::Pipe, false, Nowhere),
        ] {
            let chosen = RecordsOutput::choose(typed, has_urls, stdout, is_ci);
            assert_eq!(chosen, expected, "{typed:?} {has_urls} {stdout:?} {is_ci}");
        }
    }
}
