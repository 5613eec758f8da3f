//! A trial: one load on a session, controlled while it runs, with figures of its own.
//!
//! Gathers the figures of the session's threads and makes the outcome of the trial. [`crate::load_session`] sets a trial up;
//! [`crate::run_outcome`] defines the figures.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::clock::{Nanos, RunClock, nanos};
use crate::control::{Control, ControlState};
use crate::interval::IntervalStats;
use crate::load_session::LoadSession;
use crate::plan::LoadSpec;
use crate::record_output::{self, WriterTimeout};
use crate::request_source::InputEnd;
use crate::results::EncodeError;
use crate::run_outcome::{RunOutcome, requests_handed_out};
use crate::schedule::{ArrivalModel, ScheduleShard, StopCondition};
use crate::stats::LoadStats;
use crate::stats_collector::{Collector, NextIntervalResult};
use crate::thread_shares::SenderTaskBuilder;

/// A trial that runs. Dropping it aborts it and waits for the threads to end it.
pub struct LoadTrial<'s> {
    pub(crate) session: SessionRef<'s>,
    pub(crate) state: TrialState,
}

/// A session that lives on, or one that was opened for a single trial.
pub(crate) enum SessionRef<'s> {
    Borrowed(&'s mut LoadSession),
    Owned(Box<LoadSession>),
}

/// The state of a trial beside its session.
pub(crate) struct TrialState {
    control: Control,
    /// A clock that shows the time since the trial began.
    clock: RunClock,
    warm_up: Nanos,
    /// The end of the schedule.
    end: Nanos,
    until: StopCondition,
    shard: ScheduleShard,
    /// The number of threads that take part.
    threads: usize,
    collector: Collector,
    pub(crate) writer_result_receiver: Option<Receiver<Result<u64, EncodeError>>>,
    pub(crate) input_end_receiver: Option<Receiver<InputEnd>>,
}

impl LoadTrial<'_> {
    /// Returns the controller of the trial: change the rate, pause, end.
    #[must_use]
    pub fn control(&self) -> Control {
        self.state.control.clone()
    }

    /// Returns the start of the trial's schedule, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn began_unix_ns(&self) -> i64 {
        self.state.clock.unix_ns(0)
    }

    /// Waits for the figures of the next interval, or at most `patience`. Intervals are in the time of the trial.
    pub fn next_interval(&mut self, patience: Duration) -> NextIntervalResult<'_> {
        self.state.collector.next(patience)
    }

    /// Returns the interval that [`Self::next_interval`] reported last; after a timeout the value is incomplete.
    #[must_use]
    pub fn last_interval(&self) -> &IntervalStats {
        self.state.collector.last_interval()
    }

    /// Returns the CPU time that each thread spent on busy polling
    /// ([`SessionSetup::busy_poll_max_wait`](crate::plan::SessionSetup::busy_poll_max_wait)) from the start until the end of that interval, in the
    /// order of the numbers in the threads' names.
    #[must_use]
    pub fn busy_poll_times(&self) -> &[Nanos] {
        self.state.collector.busy_poll_times()
    }

    /// Waits for the end and returns the outcome. After [`Control::abort`] this takes moments, even if an output is blocked; a
    /// thread that writes to a blocked output is left running.
    #[must_use]
    pub fn finish(mut self) -> RunOutcome {
        let outcome = self.state.finish();
        self.session().add_trial_stats(&outcome.total_stats);
        outcome
    }

    fn session(&mut self) -> &mut LoadSession {
        match &mut self.session {
            SessionRef::Borrowed(session) => session,
            SessionRef::Owned(session) => session,
        }
    }
}

impl Drop for LoadTrial<'_> {
    /// Aborts a trial that is dropped, so that it does not go on sending.
    fn drop(&mut self) {
        self.state.give_up();
        // The sum is empty if the trial was finished before.
        let total = self.state.collector.take_total();
        self.session().add_trial_stats(&total);
    }
}

impl TrialState {
    /// Makes the state of a trial from the parts of its threads. `beforehand` are figures that belong to no thread. The caller
    /// sets the results and the input.
    pub(crate) fn new(
        load: &LoadSpec,
        parts: SenderTaskBuilder,
        (shared, clock): (Arc<ControlState>, RunClock),
        beforehand: LoadStats,
    ) -> Self {
        let SenderTaskBuilder { report_receiver: harvest, spare_stats_senders: spares, .. } = parts;
        Self {
            control: Control(shared),
            clock,
            warm_up: nanos(load.warm_up),
            end: load.end(),
            until: load.stop_condition,
            shard: load.shard,
            threads: spares.len(),
            collector: Collector::new(harvest, spares, beforehand),
            writer_result_receiver: None,
            input_end_receiver: None,
        }
    }

    fn finish(&mut self) -> RunOutcome {
        self.hear_all();
        // The end is not the present time: this thread may have been busy, and a closed loop lasts until its last response.
        let ended = self.collector.end_time();
        let written = self.await_writer();
        let exhausted = self.input_end_receiver.take().and_then(|exhausted| exhausted.try_recv().ok());
        if let Some(exhausted) = &exhausted {
            // The number of requests is known now, as if it had been known from the start.
            self.until.max_requests = self.until.max_requests.min(exhausted.request_count);
        }
        let end = self.end(ended);
        RunOutcome {
            scheduled_count: self.scheduled(end),
            began_unix_ns: self.clock.unix_ns(0),
            counted_duration: end.saturating_sub(self.warm_up),
            rate_window: self.rate_window(end),
            ended_by_count: self.ended_by_count(end),
            elapsed_after_warm_up: ended.saturating_sub(self.warm_up),
            records_written: written,
            input_error: exhausted.and_then(|exhausted| exhausted.mistake),
            stop_reason: self.control.0.early_end_reason(),
            threads: self.threads,
            total_stats: self.collector.take_total(),
        }
    }

    /// Ends the trial at once, if it has not ended, and waits for its threads and its results.
    fn give_up(&mut self) {
        if !self.collector.is_over() {
            self.control.abort();
            self.hear_all();
        }
        // A failure to write results is not reported any more.
        let _ = self.await_writer();
    }

    fn hear_all(&mut self) {
        while !matches!(self.collector.next(Duration::from_secs(1)), NextIntervalResult::Ended) {}
    }

    fn await_writer(&mut self) -> Result<u64, EncodeError> {
        let patience = WriterTimeout::new(Arc::clone(&self.control.0), self.clock);
        self.writer_result_receiver
            .take()
            .map_or(Ok(0), |writer| record_output::await_writer(&writer, patience))
    }

    /// Returns the end of the schedule: the planned end, or the time of an earlier command. The last request can be due, and
    /// answered, some time before. A closed loop has no planned end and goes on to its real end.
    fn end(&self, ended: Nanos) -> Nanos {
        let told = self.control.0.requested_stop().map(|(at, _)| at.min(ended));
        let arrivals = self.control.0.arrivals();
        let ArrivalModel::Open(schedule) = &*arrivals else { return told.unwrap_or(ended).min(self.end) };
        let latest = told.unwrap_or(Nanos::MAX).min(self.end);
        let over = schedule.end_after_hits(self.until.max_requests, latest);
        if over == Nanos::MAX { ended } else { over }
    }

    fn ended_by_count(&self, end: Nanos) -> bool {
        let arrivals = self.control.0.arrivals();
        matches!(&*arrivals, ArrivalModel::Open(schedule) if schedule.hits_before(end) >= self.until.max_requests)
    }

    fn rate_window(&self, end: Nanos) -> Option<Nanos> {
        let arrivals = self.control.0.arrivals();
        let ArrivalModel::Open(schedule) = &*arrivals else { return None };
        schedule.constant_rate_window(self.warm_up.min(end), end, self.until.max_requests)
    }

    /// Returns the number of requests that were due. A thread learns of a command or of another rate a moment later, so that it
    /// may have sent more; then that number counts.
    fn scheduled(&self, end: Nanos) -> Option<u64> {
        let arrivals = self.control.0.arrivals();
        let ArrivalModel::Open(schedule) = &*arrivals else { return None };
        let hits = |at| self.shard.requests_among(schedule.hits_before(at).min(self.until.max_requests));
        Some(
            (hits(end) - hits(self.warm_up.min(end)))
                .max(requests_handed_out(self.collector.reported_total())),
        )
    }
}
