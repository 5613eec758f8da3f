//! The outcome of a run: its figures for each second, and their sums.
//!
//! Only figures and their meaning; how they were gathered is [`crate::session`]'s business. Read by [`crate::summary`]
//! and by whoever judges a run.

use crate::clock::Nanos;
use crate::control::RunStopReason;
use crate::request_fault::RequestFault;
use crate::results::EncodeError;
use crate::stats::{AfterSchedule, LoadStats};
use crate::target::TargetError;

/// The outcome of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// All that was measured.
    pub total: LoadStats,
    /// Hits that the schedule made due after the warm-up and before the end, or the command to end; none in a closed
    /// loop.
    pub scheduled: Option<u64>,
    /// The start of the run, in nanoseconds since the Unix epoch.
    pub began_unix_ns: i64,
    /// For how long hits were counted: from the end of the warm-up to the end of the schedule or the command to end.
    pub counted_duration: Nanos,
    /// The time that the hits of a constant rate stand for, each for the time to the next: at one hit in 2 s three of them take 6 s, even if
    /// the run ends after 5.
    pub rate_window: Option<Nanos>,
    /// The schedule was over because all of its requests were due, and not because its time was.
    pub ended_by_count: bool,
    /// From the end of the warm-up to the end of the last thread.
    pub elapsed: Nanos,
    /// Records written, or why not all were.
    pub records_written: Result<u64, EncodeError>,
    /// A bad line in an input that was read during the run; the run ended there.
    pub input_error: Option<TargetError>,
    /// The reason why the run ended before its schedule, if it did.
    pub stop_reason: Option<RunStopReason>,
    /// Threads that sent.
    pub threads: usize,
}

/// The requests that were unfinished at the end of a trial. They count in the figures of this trial and not in those of the next trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnfinishedRequests {
    /// Hits that were due and never sent.
    pub backlog: u64,
    /// Requests that were sent in time and came to an end, well or badly, after the schedule: in no rate.
    pub late: AfterSchedule,
    /// Requests that were given up because the trial was to end, some of them among the late.
    pub aborted: u64,
}

impl RunOutcome {
    /// Figures that were counted over this time by one thread, of a load that began at the epoch and that nothing scheduled or cut short:
    /// what stands in for the rest where the figures alone are known.
    #[must_use]
    pub fn from_stats(total: LoadStats, over: Nanos) -> Self {
        Self {
            total,
            scheduled: None,
            began_unix_ns: 0,
            counted_duration: over,
            rate_window: None,
            ended_by_count: false,
            elapsed: over,
            records_written: Ok(0),
            input_error: None,
            stop_reason: None,
            threads: 1,
        }
    }

    /// Hits that were due and never sent because the run was over, dropped and shed ones not included.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.scheduled.map_or(0, |scheduled| scheduled.saturating_sub(requests_handed_out(&self.total)))
    }

    /// Returns the requests that were unfinished at the end.
    #[must_use]
    pub fn unfinished_requests(&self) -> UnfinishedRequests {
        let aborted = self.total.fault_count(RequestFault::Aborted);
        UnfinishedRequests { backlog: self.unsent(), late: self.total.after_schedule, aborted }
    }

    /// Hits that the schedule made due; in a closed loop those that there was room for.
    #[must_use]
    pub fn offered_requests(&self) -> u64 {
        self.scheduled.unwrap_or_else(|| requests_handed_out(&self.total))
    }
}

/// Hits that were sent, waited in vain, dropped, shed or no request.
#[must_use]
pub fn requests_handed_out(total: &LoadStats) -> u64 {
    let never_sent = RequestFault::NOT_ATTEMPTED.map(|fault| total.fault_count(fault));
    never_sent.into_iter().fold(total.sent.saturating_add(total.no_connection), u64::saturating_add)
}
