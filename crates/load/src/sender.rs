//! The loop: one thread, its sockets, its share of a trial's schedule, its figures.
//!
//! Three values meet here and know nothing of each other: the [`ScheduleCursor`] says which hit is due, the
//! [`SenderConfig`] say how long it may take and when the run is over, the [`ConnectionPool`] moves bytes. Open and closed loop,
//! recorded or not, one target or many: the same few functions run. Nothing is shared with the other threads but
//! [`ControlState`], which is read, and the number of the next hit where the loop is closed.
//!
//! In the steady state a request costs one write, one read, two looks at the clock and a handful of histogram
//! increments; nothing is allocated.

use std::sync::Arc;

use crate::accounting::{Accounting, OutcomeTally};
use crate::clock::{Nanos, RunClock, SECOND};
use crate::control::{ControlState, LiveSettings, RunCommand, RunStopReason};
use crate::failed_clients::PausedSlots;
use crate::in_flight::InFlightTable;
use crate::poller::{Event, EventPoller, token};
use crate::request_fault::RequestFault;
use crate::request_source::{RequestAvailability, SenderRequests};
use crate::schedule::{Arrival, NextArrival, ScheduleCursor};
use crate::session::share;
use crate::transport::pool::ConnectionPool;
use crate::transport::response_parser::CaptureOptions;

/// Due hits sent in one go before answers are looked at again.
const BURST: usize = 64;

/// The interval at which results, gauges and commands are handled.
const TICK: Nanos = SECOND / 10;

/// The limits and times of a trial for this thread. Its instants are session time.
#[derive(Debug, Clone)]
pub(crate) struct SenderConfig {
    /// The start of the trial.
    pub(crate) begins: Nanos,
    /// Most requests in flight.
    pub(crate) max_in_flight: usize,
    pub(crate) on_saturation: SaturationPolicy,
    /// From the send.
    pub(crate) timeout: Nanos,
    /// From the intended instant.
    pub(crate) deadline: Nanos,
    /// The end of the schedule.
    pub(crate) end: Nanos,
    /// The time after the end of the schedule in which requests are sent that are late because of this machine.
    pub(crate) grace: Nanos,
    /// The time for which late responses are awaited after the last request.
    pub(crate) drain_timeout: Nanos,
    /// The time for which a failed request keeps its place in flight.
    pub(crate) failure_pause: Nanos,
    /// True if requests are sent again that Go's client would send again.
    pub(crate) retries_enabled: bool,
    /// Redirects followed for one hit; `None` takes a redirect as the answer.
    pub(crate) redirects: Option<u32>,
    /// A thread busy-polls waits shorter than this.
    pub(crate) busy_poll: Nanos,
    /// The length of an interval.
    pub(crate) interval: Nanos,
}

/// The treatment of a request that is due while the in-flight bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SaturationPolicy {
    /// It waits for room; its response time runs from when it was due.
    #[default]
    Queue,
    /// It is not sent, and counted.
    Drop,
}

/// One thread's part of a trial.
pub(crate) struct SenderTask {
    /// The thread's.
    pub(crate) index: usize,
    /// The trial's number in its session.
    pub(crate) trial: u64,
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
    pub(crate) state: LoopState,
}

/// The state of the send loop.
#[derive(Debug, Default)]
pub(crate) struct LoopState {
    pub(crate) now: Nanos,
    /// The time of the next look at the schedule.
    pub(crate) next_due: Nanos,
    next_tick: Nanos,
    /// The time of the next report of figures.
    pub(crate) interval_end: Nanos,
    /// Since when there has been room in flight.
    pub(crate) room_since: Nanos,
    /// Since when the in-flight bound is reached.
    pub(crate) saturated_since: Option<Nanos>,
    /// A due hit whose request has not been read yet.
    held: Option<Arrival>,
    /// Since when there are no more hits.
    over: Option<Nanos>,
    revision: u64,
}

/// A turn of spinning takes about a microsecond; what takes longer was spent without a CPU.
const SPIN_STEP: Nanos = 5_000;

impl SenderLoop {
    /// A part of a trial on what the thread has from the trials before.
    pub(crate) fn new(
        part: SenderTask,
        clock: RunClock,
        mut pool: ConnectionPool<EventPoller>,
        mut flights: InFlightTable,
    ) -> Self {
        let SenderTask {
            index,
            trial,
            control_state: shared,
            config: rules,
            cursor,
            requests: supply,
            capture: keep,
            accounting,
        } = part;
        pool.capture = keep;
        flights.begin_trial(trial);
        let progress = LoopState {
            next_tick: rules.begins,
            interval_end: rules.begins.saturating_add(rules.interval),
            ..LoopState::default()
        };
        let paused_slots = PausedSlots::new(rules.failure_pause);
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

    /// Runs to the end of the schedule, or to a command, and to the last answer; gives back what outlives the trial.
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
            self.run_transport(ConnectionPool::drive_pending);
            self.tick();
        }
        self.publish();
        self.accounting.hand_over_stats(self.state.now.saturating_sub(self.config.begins), true);
        (self.pool, self.flights)
    }

    #[inline]
    fn refresh(&mut self) {
        self.advance_time(self.pool.network.check_time());
    }

    /// Sets the time of the following events. Events of one interval are counted before all events of the next interval.
    #[inline]
    pub(crate) fn advance_time(&mut self, at: Nanos) {
        let progress = &mut self.state;
        progress.now = progress.now.max(at);
        if progress.now >= progress.interval_end {
            self.end_interval();
        }
    }

    /// Figures to the collector. Where it has no empty box yet, they stay for the end of the next interval.
    #[cold]
    fn end_interval(&mut self) {
        let LoopState { now, interval_end, .. } = self.state;
        let ended = interval_end + (now - interval_end) / self.config.interval * self.config.interval;
        self.state.interval_end = ended + self.config.interval;
        self.accounting.hand_over_stats(ended - self.config.begins, false);
    }

    fn is_finished(&self) -> bool {
        self.state.over.is_some() && self.flights.len() == 0
    }

    /// Sleeps until something can happen. Waits too short to sleep are spent polling.
    fn wait(&mut self, events: &mut Vec<Event>) {
        self.refresh();
        let LoopState { now, next_due, next_tick, interval_end, over, .. } = self.state;
        let due = if over.is_some() { Nanos::MAX } else { next_due };
        let until = due
            .min(next_tick)
            .min(interval_end)
            .min(self.flights.first_expiry())
            .min(self.paused_slots.next_expiry());
        let spins = until <= now.saturating_add(self.config.busy_poll);
        let polled = if spins {
            self.pool.network.poll(events)
        } else {
            self.pool.network.wait(events, now, until - self.config.busy_poll)
        };
        self.check(polled);
        if spins && events.is_empty() && now < due {
            self.accounting.stats.busy_poll_time += self.clock.now().saturating_sub(now).min(SPIN_STEP);
        }
    }

    /// An epoll set that cannot be waited for is a broken program, not a load result: end the run.
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

    /// Goes on as it is steered now.
    #[cold]
    fn apply_settings(&mut self, steered: LiveSettings) {
        let LiveSettings { arrivals, max_in_flight: in_flight, paused } = steered;
        self.cursor.replace(arrivals, paused);
        self.config.max_in_flight = share(in_flight, self.index, self.control_state.gauges.len());
        if !self.is_full() {
            self.end_saturation();
        }
        self.state.next_due = 0;
    }

    /// True if the in-flight bound is reached. Resting places count.
    #[inline]
    fn is_full(&self) -> bool {
        self.flights.len() + self.paused_slots.len() >= self.config.max_in_flight
    }

    /// Places that have rested for long enough are free again.
    #[inline]
    fn rested(&mut self) {
        if self.paused_slots.free_expired(self.state.now) {
            self.end_saturation();
        }
    }

    /// There is room in flight.
    #[inline]
    pub(crate) fn end_saturation(&mut self) {
        if let Some(since) = self.state.saturated_since.take() {
            self.accounting.record_saturation(since, self.state.now);
            self.state.room_since = self.state.now;
            self.state.next_due = 0;
        }
    }

    #[cold]
    fn abort(&mut self) {
        self.end_for_command();
        while let Some(key) = self.flights.first_to_expire() {
            self.give_up(key, RequestFault::Aborted);
        }
    }

    /// Sends what is due.
    #[inline]
    fn send_due_requests(&mut self) {
        if self.state.now < self.state.next_due || self.state.over.is_some() {
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
                    self.state.next_due = at;
                    return;
                }
                NextArrival::Over => return self.end_schedule(),
            }
        }
    }

    /// The next hit that has a request, which it uses up whatever becomes of it.
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

    /// The schedule counts from the beginning of the trial, the loop from that of the session.
    #[inline]
    fn next_due(&mut self) -> NextArrival {
        let begins = self.config.begins;
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
        let now = self.state.now.saturating_sub(self.config.begins);
        self.end_at(self.control_state.requested_stop().map_or(now, |(at, _)| at));
    }

    /// Nothing more is sent; what is answered after this instant of the trial came late.
    fn end_at(&mut self, at: Nanos) {
        if self.state.over.is_none() {
            self.state.over = Some(self.state.now);
            self.control_state.mark_thread_over();
        }
        self.accounting.set_schedule_end(at.saturating_add(self.config.begins));
    }

    /// After the end of the schedule nothing is sent that waited for room, and nothing at all after the grace: the run
    /// ends on time. What was not sent is counted by the engine.
    fn is_too_late(&self, hit: Arrival) -> bool {
        let LoopState { now, room_since, .. } = self.state;
        let end = self.config.end;
        now >= end && (hit.due < room_since || now - end >= self.config.grace)
    }

    /// The in-flight bound is reached: hits wait in the schedule, where they cost nothing, or are dropped.
    #[cold]
    fn be_busy(&mut self) {
        self.state.saturated_since.get_or_insert(self.state.now);
        self.state.next_due = Nanos::MAX;
        if self.config.on_saturation == SaturationPolicy::Queue {
            return;
        }
        loop {
            match self.next_hit() {
                NextArrival::Due(hit) => self.record_never_sent(hit, RequestFault::Dropped),
                NextArrival::Later(at) => {
                    self.state.next_due = at;
                    return;
                }
                NextArrival::Over => return self.end_schedule(),
            }
        }
    }

    #[inline]
    fn on_event(&mut self, event: &Event) {
        let Some(token) = token(event) else { return };
        self.run_transport(|pool, now, desk| pool.drive(token, event.flags, now, desk));
    }

    /// Checks the state that can change without an event: addresses, and requests that are read during the run.
    #[inline]
    fn look_again(&mut self) {
        self.run_transport(ConnectionPool::adopt_resolved);
        if self.state.held.is_some() {
            self.state.next_due = 0;
        }
    }

    /// Ten times a second: results out, gauges up.
    #[inline]
    fn tick(&mut self) {
        let LoopState { now, next_tick, .. } = self.state;
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
        let begins = self.config.begins;
        self.state.next_tick = begins + ((now - begins) / TICK + 1) * TICK;
        self.run_transport(ConnectionPool::expire_attempts);
        self.accounting.flush_records();
        self.publish();
        self.control_state.enforce_error_budget();
    }

    /// A thread that has no share of a closed loop any more looks at the schedule here alone.
    fn end_without_room(&mut self) {
        let now = self.state.now.saturating_sub(self.config.begins);
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
