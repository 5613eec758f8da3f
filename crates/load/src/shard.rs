//! The loop: one thread, its sockets, its share of the schedule, its figures.
//!
//! Three values meet here and know nothing of each other: the [`Cursor`] says which hit is due, the
//! [`Rules`] say how long it may take and when the run is over, the [`Pool`] moves bytes. Open and closed loop,
//! recorded or not, one target or many: the same few functions run. Nothing is shared with the other threads but
//! [`Shared`], which is read, and the number of the next hit where the loop is closed.
//!
//! In the steady state a request costs one write, one read, two looks at the clock and a handful of histogram
//! increments; nothing is allocated.

use std::sync::Arc;

use crate::books::{Books, Tally};
use crate::clock::{Nanos, RunClock, SECOND};
use crate::connection::Received;
use crate::control::{Command, Early, Shared};
use crate::fault::Fault;
use crate::flights::{Flight, FlightKey, Flights};
use crate::http2::Done;
use crate::poller::{Event, EventFlags, Poller, token};
use crate::pool::{Pool, Readiness, Want};
use crate::schedule::{Cursor, Drawn, Hit, Next};
use crate::supply::{Reach, Supply};

/// Due hits sent in one go before answers are looked at again.
const BURST: usize = 64;

/// A request that the server has not looked at goes out again this often, as with Go's client.
const MOST_REFUSALS: u32 = 6;

/// How often results, gauges and commands are looked after.
const TICK: Nanos = SECOND / 10;

/// What a run allows, in this thread's share.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// Most requests in flight.
    pub(crate) in_flight: usize,
    pub(crate) when_busy: WhenBusy,
    /// From the send.
    pub(crate) timeout: Nanos,
    /// From the intended instant.
    pub(crate) deadline: Nanos,
    /// When the schedule ends.
    pub(crate) end: Nanos,
    /// How long after that hits are sent that are late because of this machine.
    pub(crate) grace: Nanos,
    /// Redirects followed for one hit; `None` takes a redirect as the answer.
    pub(crate) redirects: Option<u32>,
    /// What Go's client sends again is sent again.
    pub(crate) retries: bool,
    /// Waits shorter than this are spun away.
    pub(crate) spin: Nanos,
}

/// What to do with a hit that is due while the in-flight bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenBusy {
    /// It waits for room; its response time runs from when it was due.
    #[default]
    Queue,
    /// It is not sent, and counted.
    Drop,
}

/// One thread of the engine.
pub(crate) struct Shard {
    pub(crate) index: usize,
    pub(crate) clock: RunClock,
    pub(crate) shared: Arc<Shared>,
    pub(crate) rules: Rules,
    pub(crate) cursor: Cursor,
    pub(crate) supply: Supply,
    pub(crate) pool: Pool,
    pub(crate) flights: Flights,
    pub(crate) books: Books,
    /// Used again by each [`Shard::drive`].
    pub(crate) done: Vec<Done>,
    pub(crate) progress: Progress,
}

/// Where the loop is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    now: Nanos,
    /// When to look at the schedule again.
    next_due: Nanos,
    next_tick: Nanos,
    /// Since when there has been room in flight.
    room_since: Nanos,
    /// Since when the in-flight bound is reached.
    busy_since: Option<Nanos>,
    /// A due hit whose request has not been read yet.
    held: Option<Hit>,
    /// No more hits.
    over: bool,
    revision: u64,
}

/// A turn of spinning takes about a microsecond; what takes longer was spent without a CPU.
const SPIN_STEP: Nanos = 5_000;

impl Shard {
    /// Runs to the end of the schedule, or to a command; says how far arrivals were drawn.
    pub(crate) fn run(mut self) -> Drawn {
        let mut events = Poller::events();
        while self.clock.is_before_start() && self.shared.commanded() == Command::Run {
            let waited = self.pool.poller.wait(&mut events, 0, 0);
            self.check(waited);
        }
        while !self.is_finished() {
            self.wait(&mut events);
            self.refresh();
            self.obey();
            for event in &events {
                self.on_event(event);
                self.release();
            }
            self.look_again();
            self.release();
            self.expire();
            self.drive_streams();
            self.serve_waiting();
            self.tick();
        }
        self.publish();
        self.books.hand_over(Some(self.progress.now));
        self.cursor.drawn()
    }

    #[inline]
    fn refresh(&mut self) {
        self.progress.now = self.clock.now();
    }

    fn is_finished(&self) -> bool {
        self.progress.over && self.flights.len() == 0
    }

    /// Sleeps until something can happen. Waits too short to sleep are spent polling.
    fn wait(&mut self, events: &mut Vec<Event>) {
        self.refresh();
        let Progress { now, next_due, next_tick, over, .. } = self.progress;
        let due = if over { Nanos::MAX } else { next_due };
        let until = due.min(next_tick).min(self.flights.first_expiry());
        let spins = until <= now.saturating_add(self.rules.spin);
        let polled = if spins {
            self.pool.poller.poll(events)
        } else {
            self.pool.poller.wait(events, now, until - self.rules.spin)
        };
        self.check(polled);
        if spins && events.is_empty() && now < due {
            self.books.stats.spun += self.clock.now().saturating_sub(now).min(SPIN_STEP);
        }
    }

    /// An epoll set that cannot be waited for is a broken program, not a load result: end the run.
    fn check(&self, polled: rustix::io::Result<()>) {
        if polled.is_err() {
            self.shared.command(Command::Abort, Early::Commanded);
        }
    }

    fn obey(&mut self) {
        match self.shared.commanded() {
            Command::Run => {}
            Command::Drain => self.end_for_command(),
            Command::Abort => self.abort(),
        }
        if let Some((revision, arrivals)) = self.shared.changed_arrivals(self.progress.revision) {
            self.progress.revision = revision;
            self.cursor.replace(arrivals);
            self.progress.next_due = 0;
        }
    }

    #[cold]
    fn abort(&mut self) {
        self.end_for_command();
        while let Some(key) = self.flights.any() {
            self.give_up(key, Fault::Aborted);
        }
    }

    /// Sends what is due.
    #[inline]
    fn release(&mut self) {
        if self.progress.now < self.progress.next_due || self.progress.over {
            return;
        }
        for _ in 0..BURST {
            if self.flights.len() >= self.rules.in_flight {
                return self.be_busy();
            }
            match self.next_hit() {
                Next::Due(hit) if self.is_too_late(hit) => return self.end_schedule(),
                Next::Due(hit) => self.launch(hit),
                Next::Later(at) => {
                    self.progress.next_due = at;
                    return;
                }
                Next::Over => return self.end_schedule(),
            }
        }
    }

    /// The next hit that has a request, which it uses up whatever becomes of it.
    #[inline]
    fn next_hit(&mut self) -> Next {
        let next = match self.progress.held.take() {
            Some(hit) => Next::Due(hit),
            None => self.cursor.next(self.progress.now),
        };
        let Next::Due(hit) = next else { return next };
        match self.supply.reach(hit.seq) {
            Reach::There => next,
            Reach::NotYet if !self.is_too_late(hit) => {
                self.progress.held = Some(hit);
                Next::Later(Nanos::MAX)
            }
            Reach::NotYet => Next::Over,
            Reach::Over => {
                self.cursor.cut(hit.seq);
                Next::Over
            }
        }
    }

    fn end_schedule(&mut self) {
        self.progress.over = true;
        self.books.schedule_ends(self.cursor.over());
    }

    fn end_for_command(&mut self) {
        self.progress.over = true;
        let (at, _) = self.shared.ended().unwrap_or((self.progress.now, Early::Commanded));
        self.books.schedule_ends(at);
    }

    /// After the end of the schedule nothing is sent that waited for room, and nothing at all after the grace: the run
    /// ends on time. What was not sent is counted by the engine.
    fn is_too_late(&self, hit: Hit) -> bool {
        let Progress { now, room_since, .. } = self.progress;
        let end = self.rules.end;
        now >= end && (hit.due < room_since || now - end >= self.rules.grace)
    }

    /// The in-flight bound is reached: hits wait in the schedule, where they cost nothing, or are dropped.
    #[cold]
    fn be_busy(&mut self) {
        self.progress.busy_since.get_or_insert(self.progress.now);
        self.progress.next_due = Nanos::MAX;
        if self.rules.when_busy == WhenBusy::Queue {
            return;
        }
        loop {
            match self.next_hit() {
                Next::Due(hit) => self.never_sent(hit, Fault::Dropped),
                Next::Later(at) => {
                    self.progress.next_due = at;
                    return;
                }
                Next::Over => return self.end_schedule(),
            }
        }
    }

    fn launch(&mut self, hit: Hit) {
        let now = self.progress.now;
        let deadline = hit.due.saturating_add(self.rules.deadline);
        if deadline <= now {
            return self.never_sent(hit, Fault::Shed);
        }
        let Some((which, target)) = self.supply.pick(hit.seq) else {
            return self.never_sent(hit, Fault::Template);
        };
        self.books.launched(hit, now, self.progress.room_since);
        let expires = deadline.min(now.saturating_add(self.rules.timeout));
        let key = self.flights.insert(hit, which, target, now, expires);
        self.books.stats.in_flight_peak = self.books.stats.in_flight_peak.max(self.flights.len() as u64);
        self.place(key);
    }

    /// Puts a flight on a connection, or into the queue for one. Its service time begins when it gets one.
    fn place(&mut self, key: FlightKey) {
        let Flight { which, connection, sent, boarded, .. } = self.flights.of(key);
        if !*boarded {
            *sent = self.progress.now;
        }
        let mut want = Want { key, request: self.supply.request(which), which, connection };
        let placed = self.pool.place(&mut want, self.progress.now, &mut self.books.stats);
        self.placed(key, placed);
    }

    /// Writing took time; what follows must not be dated before it.
    fn placed(&mut self, key: FlightKey, placed: Result<(), Fault>) {
        self.refresh();
        let flight = self.flights.of(key);
        if !flight.boarded && flight.connection.is_some() {
            flight.boarded = true;
            self.books.boarded(flight);
        }
        match placed {
            Ok(()) => {
                let request = self.supply.request(&flight.which);
                if flight.connection.is_some_and(|index| self.pool.has_sent(index, request)) {
                    self.books.written(flight, self.progress.now);
                }
            }
            Err(fault) => match flight.connection {
                Some(index) => self.unwritable(index, key, fault),
                None => self.finish(key, Err(fault)),
            },
        }
    }

    #[inline]
    fn on_event(&mut self, event: &Event) {
        let flags = event.flags;
        let Some(index) = token(event).and_then(|token| self.pool.find(token)) else { return };
        match self.pool.readiness(index, flags, &mut self.books.stats) {
            Readiness::Busy(key) => self.exchange(index, key),
            Readiness::Idle => {
                if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
                    self.pool.close(index);
                }
            }
            Readiness::Opening => {}
            Readiness::Opened(key) => self.begin(index, key),
            Readiness::Refused(key, fault) => self.refused(index, key, fault),
            Readiness::Streams => self.drive_streams(),
        }
        self.serve_waiting();
    }

    /// Goes on with the request and the answer on an HTTP/1.1 connection.
    fn exchange(&mut self, index: usize, key: FlightKey) {
        let flight = self.flights.of(key);
        let request = self.supply.request(&flight.which);
        match self.pool.send(index, request) {
            Ok(true) => self.books.written(flight, self.clock.now()),
            Ok(false) => {}
            Err(fault) => return self.unwritable(index, key, fault),
        }
        let received = self.pool.receive(index, request, &mut flight.answer);
        self.progress.now = self.clock.now();
        if flight.first_byte.is_none() && !matches!(received, Ok(Received::More { begun: false }) | Err(_)) {
            flight.first_byte = Some(self.progress.now);
        }
        match received {
            Ok(Received::More { .. }) => {}
            Ok(Received::Rest) => {
                if let Err(fault) = self.pool.report_again(index) {
                    self.broken(index, key, fault);
                }
            }
            Ok(Received::Done { reusable }) => self.answered(index, key, reusable),
            Err(fault) => self.broken(index, key, fault),
        }
    }

    /// A request cannot be written, or its connection not be made. A server that closes while it is being written to may
    /// have said why (RFC 9112, section 9.5).
    fn unwritable(&mut self, index: usize, key: FlightKey, fault: Fault) {
        let Flight { which, answer, first_byte, .. } = self.flights.of(key);
        let request = self.supply.request(which);
        let broken = matches!(fault, Fault::Broken(_));
        if broken && let Ok(Received::Done { .. }) = self.pool.receive(index, request, answer) {
            self.progress.now = self.clock.now();
            first_byte.get_or_insert(self.progress.now);
            return self.answered(index, key, false);
        }
        self.broken(index, key, fault);
    }

    /// Moves the bytes of all HTTP/2 connections that have any to move.
    #[inline]
    fn drive_streams(&mut self) {
        while let Some(index) = self.pool.next_dirty() {
            self.drive(index);
        }
    }

    fn drive(&mut self, index: usize) {
        let connection = self.pool.token(index);
        let mut done = std::mem::take(&mut self.done);
        let alive = self.pool.drive(index, &mut self.flights, &mut done);
        let stale = self.pool.was_stale(index);
        self.refresh();
        self.pool.served(index, done.iter().filter(|(_, outcome)| outcome.is_ok()).count() as u64);
        for (key, outcome) in done.drain(..) {
            match outcome {
                Ok(()) => self.conclude(key),
                Err(fault) => self.restart_or_fail(key, fault, stale),
            }
        }
        self.done = done;
        for key in self.pool.settle(connection, alive, self.progress.now) {
            self.restart_or_fail(key, Fault::ClosedEarly, stale);
        }
    }

    /// A stream has failed. If the server has not looked at the request it goes out again wherever there is room, as with
    /// Go's client; so does what an old connection lost, once.
    fn restart_or_fail(&mut self, key: FlightKey, fault: Fault, stale: bool) {
        let flight = self.flights.of(key);
        flight.connection = None;
        let again = match fault {
            Fault::RefusedStream => flight.retries < MOST_REFUSALS,
            Fault::ClosedEarly => {
                stale && flight.retries == 0 && self.supply.request(&flight.which).is_idempotent()
            }
            _ => false,
        };
        if again && self.rules.retries {
            self.send_again(key, Self::place);
        } else {
            self.finish(key, Err(fault));
        }
    }

    fn send_again(&mut self, key: FlightKey, how: impl FnOnce(&mut Self, FlightKey)) {
        let flight = self.flights.of(key);
        flight.retries += 1;
        flight.answer.clear();
        self.books.stats.retried += 1;
        how(self, key);
    }

    /// A complete answer on an HTTP/1.1 connection, which is free now.
    fn answered(&mut self, index: usize, key: FlightKey, reusable: bool) {
        let request = self.supply.request(&self.flights.of(key).which);
        // After half a request the server takes the next one for the other half (RFC 9112, section 9.3).
        let reusable = reusable && !request.close && self.pool.has_sent(index, request);
        self.pool.release(index, reusable, self.progress.now);
        self.conclude(key);
    }

    /// A flight with a complete answer is done or redirected.
    fn conclude(&mut self, key: FlightKey) {
        let flight = self.flights.of(key);
        flight.connection = None;
        let status = flight.answer.status;
        match (flight.answer.location.take(), self.rules.redirects) {
            (Some(location), Some(most)) => self.redirect(key, status, &location, most),
            _ => self.finish(key, Ok(status)),
        }
    }

    fn redirect(&mut self, key: FlightKey, status: u16, location: &str, most: u32) {
        let flight = self.flights.of(key);
        if flight.redirects >= most {
            return self.finish(key, Err(Fault::Redirects));
        }
        match self.supply.redirected(&flight.which, status, location) {
            Err(_) => self.finish(key, Err(Fault::Location)),
            Ok(which) => {
                flight.redirects += 1;
                let redirected = std::mem::replace(&mut flight.which, which);
                flight.first.get_or_insert(redirected);
                flight.answer.clear();
                self.books.stats.redirects += 1;
                self.place(key);
            }
        }
    }

    /// A connection broke under a flight, or the start of a stream did.
    fn broken(&mut self, index: usize, key: FlightKey, fault: Fault) {
        let stale = self.pool.was_stale(index) && matches!(fault, Fault::ClosedEarly | Fault::Broken(_));
        if self.pool.is_shared(index) {
            return self.restart_or_fail(key, fault, stale);
        }
        self.pool.close(index);
        self.retry_or_fail(key, fault, stale);
    }

    /// If the connection was an old one and the server had just let it go, the request goes out again on a new one,
    /// once, as Go's client does; the time it lost stays in its latency.
    fn retry_or_fail(&mut self, key: FlightKey, fault: Fault, stale: bool) {
        let flight = self.flights.of(key);
        flight.connection = None;
        let again = stale && flight.retries == 0 && self.supply.request(&flight.which).is_idempotent();
        if again && self.rules.retries {
            self.send_again(key, |shard, key| shard.reopen(key, None));
        } else {
            self.finish(key, Err(fault));
        }
    }

    /// The next address gets its chance; after the last the flight has failed.
    fn refused(&mut self, index: usize, key: FlightKey, fault: Fault) {
        let others =
            self.pool.alternatives(index).checked_sub(1).filter(|_| matches!(fault, Fault::Connect(_)));
        self.pool.close(index);
        self.flights.of(key).connection = None;
        self.refresh();
        match others {
            None => self.finish(key, Err(fault)),
            others => self.reopen(key, others),
        }
    }

    fn reopen(&mut self, key: FlightKey, others: Option<usize>) {
        let Flight { which, connection, .. } = self.flights.of(key);
        let mut want = Want { key, request: self.supply.request(which), which, connection };
        let placed = self.pool.reopen(others, &mut want, &mut self.books.stats);
        self.placed(key, placed);
    }

    /// A connection has become open; the flight that it was opened for begins.
    fn begin(&mut self, index: usize, key: FlightKey) {
        let Flight { which, connection, .. } = self.flights.of(key);
        let mut want = Want { key, request: self.supply.request(which), which, connection };
        let placed = self.pool.begin(index, &mut want);
        self.placed(key, placed);
    }

    /// Flights that wait for a connection get those that have become free.
    #[inline]
    fn serve_waiting(&mut self) {
        while let Some(key) = self.pool.next_waiting() {
            if self.flights.get_mut(key).is_some() {
                self.place(key);
            }
        }
    }

    /// What may have changed without an event: addresses, and requests that were not read yet.
    #[inline]
    fn look_again(&mut self) {
        self.pool.adopt_resolved(self.progress.now, &mut self.books.stats);
        self.serve_waiting();
        if self.progress.held.is_some() {
            self.progress.next_due = 0;
        }
    }

    /// Gives up what has taken too long.
    #[inline]
    fn expire(&mut self) {
        while let Some(key) = self.flights.expired(self.progress.now) {
            let flight = self.flights.of(key);
            let by_deadline = flight.expires == flight.hit.due.saturating_add(self.rules.deadline);
            self.give_up(key, if by_deadline { Fault::Deadline } else { Fault::Timeout });
        }
    }

    fn give_up(&mut self, key: FlightKey, fault: Fault) {
        if let Some(index) = self.flights.of(key).connection {
            self.pool.abandon(index, key);
        }
        self.finish(key, Err(fault));
    }

    /// Counts, records and forgets a flight.
    fn finish(&mut self, key: FlightKey, outcome: Result<u16, Fault>) {
        let flight = self.flights.of(key);
        self.books.finished(flight, outcome, self.progress.now, &self.supply);
        self.flights.remove(key);
        if let Some(since) = self.progress.busy_since.take() {
            self.books.stats.busy += self.progress.now.saturating_sub(since);
            self.progress.room_since = self.progress.now;
            self.progress.next_due = 0;
        }
    }

    fn never_sent(&mut self, hit: Hit, fault: Fault) {
        self.books.never_sent(hit, fault, self.progress.now, &self.supply);
    }

    /// Ten times a second: results out, gauges up, and once a second the figures to the collector.
    #[inline]
    fn tick(&mut self) {
        let Progress { now, next_tick, .. } = self.progress;
        if now < next_tick {
            return;
        }
        if !self.progress.over {
            self.books.looked_at_clock(next_tick, now, TICK);
        }
        self.progress.next_tick = (now / TICK + 1) * TICK;
        self.books.flush();
        self.publish();
        self.shared.check_errors();
        if next_tick / SECOND != self.progress.next_tick / SECOND {
            self.books.hand_over(None);
        }
    }

    fn publish(&self) {
        let Tally { done, errors } = self.books.tally();
        self.shared.gauges[self.index].publish(
            self.flights.len(),
            self.pool.open_connections(),
            done,
            errors,
        );
    }
}
