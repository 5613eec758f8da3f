//! The send loop: one thread, its sockets, its share of a trial's schedule, its figures.
//!
//! The loop joins three values that know nothing of each other: the [`ScheduleCursor`] returns the request that is due, the
//! [`SenderConfig`] has the time limits and the end of the run, and the [`ConnectionPool`] moves bytes. The same few functions
//! run an open or a closed loop, with or without records, for one target or many. The thread shares with other threads only
//! [`ControlState`], which it reads, and in a closed loop the number of the next request.
//!
//! In the steady state a request costs one write, one read, two looks at the clock and a handful of histogram increments; nothing
//! is allocated.

use std::sync::Arc;

use crate::clock::{Nanos, RunClock, SECOND};
use crate::control::{ControlState, LiveSettings, RunCommand, RunStopReason};
use crate::in_flight::InFlightTable;
use crate::load_session::thread_share;
use crate::paused_clients::PausedSlots;
use crate::poller::{Event, EventPoller, event_socket_token};
use crate::request_accounting::{Accounting, OutcomeTally};
use crate::request_failure_reason::RequestFault;
use crate::request_source::{RequestAvailability, SenderRequests};
use crate::schedule::{Arrival, NextArrival, ScheduleCursor};
use crate::transport::pool::ConnectionPool;
use crate::transport::response_parser::CaptureOptions;

/// The maximum number of due requests that are sent before the thread looks at responses again.
const BURST: usize = 64;

/// The interval at which results, gauges and commands are handled.
const TICK: Nanos = SECOND / 10;

/// The limits and times of a trial for this thread. Its instants are session time.
#[derive(Debug, Clone)]
pub(crate) struct SenderConfig {
    /// The start of the trial.
    pub(crate) trial_start: Nanos,
    /// The maximum number of requests in flight of this thread.
    pub(crate) max_in_flight: usize,
    pub(crate) on_saturation: SaturationPolicy,
    /// The time limit for a complete response, counted from the send.
    pub(crate) timeout: Nanos,
    /// The time limit for a complete response, counted from the intended instant.
    pub(crate) deadline: Nanos,
    /// The end of the schedule.
    pub(crate) end: Nanos,
    /// The time after the end of the schedule in which requests are sent that are late because of this machine.
    pub(crate) late_send_time_after_end: Nanos,
    /// The time for which late responses are awaited after the last request.
    pub(crate) drain_timeout: Nanos,
    /// The time for which a failed request keeps its place in flight.
    pub(crate) client_pause_after_failure: Nanos,
    /// True if requests are sent again that Go's client would send again.
    pub(crate) retries_enabled: bool,
    /// The maximum number of redirects of a request; `None` takes a redirect as the response.
    pub(crate) max_redirects: Option<u32>,
    /// The thread busy-polls if it waits for less than this time.
    pub(crate) busy_poll_max_wait: Nanos,
    /// The length of an interval.
    pub(crate) interval: Nanos,
}

/// The treatment of a request that is due while the in-flight bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SaturationPolicy {
    /// The request waits for room; its response time runs from the instant when it was due.
    #[default]
    Queue,
    /// The request is not sent, and is counted as dropped.
    Drop,
}

/// One thread's part of a trial.
pub(crate) struct SenderTask {
    /// The index of the thread.
    pub(crate) index: usize,
    /// The trial's number in its session.
    pub(crate) trial_number: u64,
    pub(crate) control_state: Arc<ControlState>,
    pub(crate) config: SenderConfig,
    pub(crate) cursor: ScheduleCursor,
    pub(crate) requests: SenderRequests,
    pub(crate) capture: CaptureOptions,
    pub(crate) accounting: Accounting,
}

/// One thread of the engine, during a trial.
pub(crate) struct SenderLoop {
    index: usize,
    clock: RunClock,
    pub(crate) control_state: Arc<ControlState>,
    pub(crate) config: SenderConfig,
    cursor: ScheduleCursor,
    pub(crate) requests: SenderRequests,
    pub(crate) pool: ConnectionPool<EventPoller>,
    pub(crate) flights: InFlightTable,
    pub(crate) paused_slots: PausedSlots,
    pub(crate) accounting: Accounting,
    pub(crate) state: LoopTimes,
}

/// The state of the send loop.
#[derive(Debug, Default)]
pub(crate) struct LoopTimes {
    pub(crate) now: Nanos,
    /// The time of the next look at the schedule.
    pub(crate) next_schedule_check: Nanos,
    next_tick: Nanos,
    /// The time of the next report of figures.
    pub(crate) interval_end: Nanos,
    /// The time since which there has been room in flight.
    pub(crate) room_since: Nanos,
    /// The time since which the in-flight bound is reached.
    pub(crate) saturated_since: Option<Nanos>,
    /// A due request that has not been read yet.
    held: Option<Arrival>,
    /// The time since which no more requests are sent.
    over: Option<Nanos>,
    revision: u64,
}

/// The maximum time of a turn of busy polling that is counted. A turn takes about a microsecond; a longer one was spent without a
/// CPU.
const SPIN_STEP: Nanos = 5_000;

impl SenderLoop {
    /// Makes the send loop of a trial from the thread's connections and tables of earlier trials.
    pub(crate) fn new(
        part: SenderTask,
        clock: RunClock,
        mut pool: ConnectionPool<EventPoller>,
        mut flights: InFlightTable,
    ) -> Self {
        let SenderTask {
            index,
            trial_number: trial,
            control_state: shared,
            config: rules,
            cursor,
            requests: supply,
            capture: keep,
            accounting,
        } = part;
        pool.capture = keep;
        flights.begin_trial(trial);
        let progress = LoopTimes {
            next_tick: rules.trial_start,
            interval_end: rules.trial_start.saturating_add(rules.interval),
            ..LoopTimes::default()
        };
        let paused_slots = PausedSlots::new(rules.client_pause_after_failure);
        Self {
            index,
            clock,
            control_state: shared,
            config: rules,
            cursor,
            requests: supply,
            pool,
            flights,
            paused_slots,
            accounting,
            state: progress,
        }
    }

    /// Runs to the end of the schedule, or to a command, and to the last response. Returns the connections and tables for the
    /// next trial.
    pub(crate) fn run(mut self) -> (ConnectionPool<EventPoller>, InFlightTable) {
        let mut events = EventPoller::new_event_buffer();
        while !self.is_finished() {
            self.wait(&mut events);
            self.refresh();
            self.apply_command();
            for event in &events {
                self.on_event(event);
                self.send_due_requests();
            }
            self.look_again();
            self.rested();
            self.send_due_requests();
            self.expire();
            self.act_on_transport(ConnectionPool::drive_marked_connections);
            self.tick();
        }
        self.publish();
        self.accounting.hand_over_stats(self.state.now.saturating_sub(self.config.trial_start), true);
        (self.pool, self.flights)
    }

    #[inline]
    fn refresh(&mut self) {
        self.advance_time_to(self.pool.network.read_clock());
    }

    /// Sets the time of the following events. Events of one interval are counted before all events of the next interval.
    #[inline]
    pub(crate) fn advance_time_to(&mut self, at: Nanos) {
        let progress = &mut self.state;
        progress.now = progress.now.max(at);
        if progress.now >= progress.interval_end {
            self.end_interval();
        }
    }

    /// Reports figures to the collector. Without an empty [`LoadStats`](crate::stats::LoadStats), they stay for the end of the
    /// next interval.
    #[cold]
    fn end_interval(&mut self) {
        let LoopTimes { now, interval_end, .. } = self.state;
        let ended = interval_end + (now - interval_end) / self.config.interval * self.config.interval;
        self.state.interval_end = ended + self.config.interval;
        self.accounting.hand_over_stats(ended - self.config.trial_start, false);
    }

    fn is_finished(&self) -> bool {
        self.state.over.is_some() && self.flights.len() == 0
    }

    /// Waits until an event, or until the next planned action. Waits that are too short for a sleep are spent polling.
    fn wait(&mut self, events: &mut Vec<Event>) {
        self.refresh();
        let LoopTimes { now, next_schedule_check: next_due, next_tick, interval_end, over, .. } = self.state;
        let due = if over.is_some() { Nanos::MAX } else { next_due };
        let until = due
            .min(next_tick)
            .min(interval_end)
            .min(self.flights.first_expiry())
            .min(self.paused_slots.next_expiry());
        let spins = until <= now.saturating_add(self.config.busy_poll_max_wait);
        let polled = if spins {
            self.pool.network.poll(events)
        } else {
            self.pool.network.wait(events, now, until - self.config.busy_poll_max_wait)
        };
        self.check(polled);
        if spins && events.is_empty() && now < due {
            self.accounting.stats.busy_poll_time += self.clock.now().saturating_sub(now).min(SPIN_STEP);
        }
    }

    /// Ends the run if polling failed: that is a defect of the program, not a load result.
    fn check(&self, polled: rustix::io::Result<()>) {
        if polled.is_err() {
            self.control_state.issue_command(RunCommand::Abort, RunStopReason::Commanded);
        }
    }

    fn apply_command(&mut self) {
        match self.control_state.current_command() {
            RunCommand::Run => {}
            RunCommand::Drain => self.end_for_command(),
            RunCommand::Abort => self.abort(),
        }
        if let Some((revision, steered)) = self.control_state.settings_if_changed(self.state.revision) {
            self.state.revision = revision;
            self.apply_settings(steered);
        }
    }

    /// Applies changed settings.
    #[cold]
    fn apply_settings(&mut self, steered: LiveSettings) {
        let LiveSettings { arrivals, max_in_flight: in_flight, paused } = steered;
        self.cursor.replace(arrivals, paused);
        self.config.max_in_flight = thread_share(in_flight, self.index, self.control_state.gauges.len());
        if !self.is_full() {
            self.end_saturation();
        }
        self.state.next_schedule_check = 0;
    }

    /// True if the in-flight bound is reached. Paused clients count as requests in flight.
    #[inline]
    fn is_full(&self) -> bool {
        self.flights.len() + self.paused_slots.len() >= self.config.max_in_flight
    }

    /// Ends the pauses of failed clients that are over.
    #[inline]
    fn rested(&mut self) {
        if self.paused_slots.free_expired(self.state.now) {
            self.end_saturation();
        }
    }

    /// Notes that there is room in flight again.
    #[inline]
    pub(crate) fn end_saturation(&mut self) {
        if let Some(since) = self.state.saturated_since.take() {
            self.accounting.record_saturated_time(since, self.state.now);
            self.state.room_since = self.state.now;
            self.state.next_schedule_check = 0;
        }
    }

    #[cold]
    fn abort(&mut self) {
        self.end_for_command();
        while let Some(key) = self.flights.first_to_expire() {
            self.give_up(key, RequestFault::Aborted);
        }
    }

    /// Sends the requests that are due.
    #[inline]
    fn send_due_requests(&mut self) {
        if self.state.now < self.state.next_schedule_check || self.state.over.is_some() {
            return;
        }
        for _ in 0..BURST {
            if self.is_full() {
                return self.be_busy();
            }
            match self.next_hit() {
                NextArrival::Due(hit) if self.is_too_late(hit) => return self.end_schedule(),
                NextArrival::Due(hit) => self.launch(hit),
                NextArrival::Later(at) => {
                    self.state.next_schedule_check = at;
                    return;
                }
                NextArrival::Over => return self.end_schedule(),
            }
        }
    }

    /// Returns the next request that has been read. The request is used up, whatever its outcome.
    #[inline]
    fn next_hit(&mut self) -> NextArrival {
        let next = match self.state.held.take() {
            Some(hit) => NextArrival::Due(hit),
            None => self.next_due(),
        };
        let NextArrival::Due(hit) = next else { return next };
        match self.requests.advance_to(hit.seq) {
            RequestAvailability::Ready => next,
            RequestAvailability::NotYet if !self.is_too_late(hit) => {
                self.state.held = Some(hit);
                NextArrival::Later(Nanos::MAX)
            }
            RequestAvailability::NotYet => NextArrival::Over,
            RequestAvailability::Exhausted => {
                self.cursor.stop_at_request(hit.seq);
                NextArrival::Over
            }
        }
    }

    /// Returns the next request of the schedule. The schedule counts from the start of the trial, the loop from that of the
    /// session.
    #[inline]
    fn next_due(&mut self) -> NextArrival {
        let begins = self.config.trial_start;
        let Some(now) = self.state.now.checked_sub(begins) else { return NextArrival::Later(begins) };
        match self.cursor.next(now) {
            NextArrival::Due(Arrival { seq, due }) => {
                NextArrival::Due(Arrival { seq, due: due.saturating_add(begins) })
            }
            NextArrival::Later(at) => NextArrival::Later(at.saturating_add(begins)),
            NextArrival::Over => NextArrival::Over,
        }
    }

    fn end_schedule(&mut self) {
        self.end_at(self.cursor.schedule_end());
    }

    fn end_for_command(&mut self) {
        let now = self.state.now.saturating_sub(self.config.trial_start);
        self.end_at(self.control_state.requested_stop().map_or(now, |(at, _)| at));
    }

    /// Stops sending. Responses that come after this instant of the trial count as late.
    fn end_at(&mut self, at: Nanos) {
        if self.state.over.is_none() {
            self.state.over = Some(self.state.now);
            self.control_state.mark_thread_over();
        }
        self.accounting.limit_schedule_end(at.saturating_add(self.config.trial_start));
    }

    /// True if a request must not be sent any more. After the end of the schedule, requests that waited for room are not sent,
    /// and after the grace period no requests at all, so that the run ends on time. The engine counts the requests that were not
    /// sent.
    fn is_too_late(&self, hit: Arrival) -> bool {
        let LoopTimes { now, room_since, .. } = self.state;
        let end = self.config.end;
        now >= end && (hit.due < room_since || now - end >= self.config.late_send_time_after_end)
    }

    /// Handles a reached in-flight bound: requests wait in the schedule, where they cost nothing, or are dropped.
    #[cold]
    fn be_busy(&mut self) {
        self.state.saturated_since.get_or_insert(self.state.now);
        self.state.next_schedule_check = Nanos::MAX;
        if self.config.on_saturation == SaturationPolicy::Queue {
            return;
        }
        loop {
            match self.next_hit() {
                NextArrival::Due(hit) => self.record_never_sent(hit, RequestFault::Dropped),
                NextArrival::Later(at) => {
                    self.state.next_schedule_check = at;
                    return;
                }
                NextArrival::Over => return self.end_schedule(),
            }
        }
    }

    #[inline]
    fn on_event(&mut self, event: &Event) {
        let Some(token) = event_socket_token(event) else { return };
        self.act_on_transport(|pool, now, desk| pool.drive(token, event.flags, now, desk));
    }

    /// Checks the state that can change without an event: addresses, and requests that are read during the run.
    #[inline]
    fn look_again(&mut self) {
        self.act_on_transport(ConnectionPool::adopt_resolved);
        if self.state.held.is_some() {
            self.state.next_schedule_check = 0;
        }
    }

    /// Flushes records and publishes gauges, ten times a second.
    #[inline]
    fn tick(&mut self) {
        let LoopTimes { now, next_tick, .. } = self.state;
        if now < next_tick {
            return;
        }
        match self.state.over {
            None => {
                self.accounting.record_scheduler_lag(next_tick, now, TICK);
                self.end_without_room();
            }
            Some(over) if now.saturating_sub(over) >= self.config.drain_timeout => self.abort(),
            Some(_) => {}
        }
        let begins = self.config.trial_start;
        self.state.next_tick = begins + ((now - begins) / TICK + 1) * TICK;
        self.act_on_transport(ConnectionPool::expire_attempts);
        self.accounting.flush_records();
        self.publish();
        self.control_state.enforce_error_budget();
    }

    /// Ends the schedule of a thread that has no clients of a closed loop any more: only this function checks its end.
    fn end_without_room(&mut self) {
        let now = self.state.now.saturating_sub(self.config.trial_start);
        if self.config.max_in_flight == 0 && self.cursor.is_over(now) {
            self.end_schedule();
        }
    }

    fn publish(&self) {
        let OutcomeTally { done, errors } = self.accounting.tally();
        self.control_state.gauges[self.index].publish(
            self.flights.len(),
            self.pool.connection_count(),
            done,
            errors,
        );
    }
}
