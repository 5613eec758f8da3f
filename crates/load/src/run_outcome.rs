//! The outcome of a run: the sums of its figures, and how it ended.
//!
//! This module has only figures and their meaning; [`crate::load_session`] gathers them. [`crate::summary`] and the code that judges a
//! run read it.

use crate::clock::Nanos;
use crate::control::RunStopReason;
use crate::request_failure_reason::RequestFault;
use crate::results::EncodeError;
use crate::stats::{AfterSchedule, LoadStats};
use crate::target::TargetError;

/// The outcome of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The sum of all figures.
    pub total_stats: LoadStats,
    /// The number of requests that were due after the warm-up and before the end of the schedule, or the command to end; `None`
    /// in a closed loop.
    pub scheduled_count: Option<u64>,
    /// The start of the run, in nanoseconds since the Unix epoch.
    pub began_unix_ns: i64,
    /// The time in which requests were counted: from the end of the warm-up to the end of the schedule or the command to end.
    pub counted_duration: Nanos,
    /// The time that the requests of a constant rate stand for, each for the time to the next: at one request in 2 s, three
    /// requests take 6 s, even if the run ends after 5.
    pub rate_window: Option<Nanos>,
    /// True if the schedule ended because all of its requests were due, and not because its time was over.
    pub ended_by_count: bool,
    /// The time from the end of the warm-up to the end of the last thread.
    pub elapsed_after_warm_up: Nanos,
    /// The number of written records, or the reason why not all were written.
    pub records_written: Result<u64, EncodeError>,
    /// The bad line in an input that was read during the run; the run ended there.
    pub input_error: Option<TargetError>,
    /// The reason why the run ended before its schedule, if it did.
    pub stop_reason: Option<RunStopReason>,
    /// The number of sending threads.
    pub threads: usize,
}

/// The requests that were unfinished at the end of a trial. They count in the figures of this trial and not in those of the next
/// trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnfinishedRequests {
    /// Requests that were due and never sent.
    pub backlog: u64,
    /// Requests that were sent in time and ended after the schedule. They are in no rate.
    pub ended_after_schedule: AfterSchedule,
    /// Requests that were aborted at the end of the trial; some of them are also in `late`.
    pub aborted: u64,
}

impl RunOutcome {
    /// Makes an outcome from figures alone, as if one thread had counted them over this time, without a schedule and without an
    /// early end.
    #[must_use]
    pub fn from_stats(total: LoadStats, over: Nanos) -> Self {
        Self {
            total_stats: total,
            scheduled_count: None,
            began_unix_ns: 0,
            counted_duration: over,
            rate_window: None,
            ended_by_count: false,
            elapsed_after_warm_up: over,
            records_written: Ok(0),
            input_error: None,
            stop_reason: None,
            threads: 1,
        }
    }

    /// Returns the number of requests that were due and not sent because the run was over. Dropped and shed requests are
    /// excluded.
    #[must_use]
    pub fn unsent_at_end(&self) -> u64 {
        self.scheduled_count
            .map_or(0, |scheduled| scheduled.saturating_sub(requests_handed_out(&self.total_stats)))
    }

    /// Returns the requests that were unfinished at the end.
    #[must_use]
    pub fn unfinished_requests(&self) -> UnfinishedRequests {
        let aborted = self.total_stats.fault_count(RequestFault::Aborted);
        UnfinishedRequests {
            backlog: self.unsent_at_end(),
            ended_after_schedule: self.total_stats.after_schedule,
            aborted,
        }
    }

    /// Returns the number of requests that the schedule made due; in a closed loop, of those for which a client was free.
    #[must_use]
    pub fn offered_requests(&self) -> u64 {
        self.scheduled_count.unwrap_or_else(|| requests_handed_out(&self.total_stats))
    }
}

/// Returns the number of requests that were sent, waited in vain for a connection, or were dropped, shed or invalid.
#[must_use]
pub fn requests_handed_out(total: &LoadStats) -> u64 {
    let never_sent = RequestFault::NOT_ATTEMPTED.map(|fault| total.fault_count(fault));
    never_sent.into_iter().fold(total.sent.saturating_add(total.no_connection), u64::saturating_add)
}
