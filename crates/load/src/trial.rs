//! A trial: one load on what a session holds, steered while it runs, with figures of its own.
//!
//! Gathers what the threads of the session measured of it, and says what that came to. How the trial was set up is
//! [`crate::session`]'s business, what the figures mean [`crate::outcome`]'s.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::books::{Ended, Harvest};
use crate::clock::{Nanos, RunClock, nanos};
use crate::control::{Control, Shared};
use crate::outcome::{Outcome, Tick, handed_out};
use crate::parts::Parts;
use crate::plan::Load;
use crate::recorder::{self, Patience};
use crate::results::EncodeError;
use crate::schedule::{Arrivals, Drawn, Until};
use crate::session::Session;
use crate::stats::Stats;
use crate::supply::Exhausted;

/// A trial under way. Dropping it aborts it and waits for the threads to be done with it.
pub struct Trial<'s> {
    pub(crate) session: Whose<'s>,
    pub(crate) course: Course,
}

/// A session that lives on, or one that was opened for a single trial.
pub(crate) enum Whose<'s> {
    Another(&'s mut Session),
    Own(Box<Session>),
}

/// What a trial has beside its session.
pub(crate) struct Course {
    control: Control,
    /// Shows the time since the trial began.
    clock: RunClock,
    warm_up: Nanos,
    /// When the schedule ends.
    end: Nanos,
    until: Until,
    harvest: Receiver<Harvest>,
    spares: Vec<Sender<Box<Stats>>>,
    /// Threads that have a part in it.
    threads: usize,
    /// Those that are not yet done with it.
    alive: usize,
    /// When the last of the threads that are done was.
    ended: Option<Nanos>,
    drawn: Drawn,
    pub(crate) total: Stats,
    since_tick: Stats,
    /// Most requests in flight, by thread.
    peaks: Vec<u64>,
    pub(crate) written: Option<Receiver<Result<u64, EncodeError>>>,
    pub(crate) exhausted: Option<Receiver<Exhausted>>,
}

impl Trial<'_> {
    /// The hand on it: another rate, a pause, an end.
    #[must_use]
    pub fn steer(&self) -> Control {
        self.course.control.clone()
    }

    /// Waits for the figures of the next second, or at most `patience`; `None` when the trial has ended.
    pub fn next(&mut self, patience: Duration) -> Option<Tick<'_>> {
        self.course.next(patience)
    }

    /// Waits for the end and sums up. After [`Control::abort`] that is a matter of moments, whatever stands still; a
    /// thread that writes to an output that does is left behind.
    #[must_use]
    pub fn finish(mut self) -> Outcome {
        let outcome = self.course.finish();
        self.session().count(&outcome.total);
        outcome
    }

    fn session(&mut self) -> &mut Session {
        match &mut self.session {
            Whose::Another(session) => session,
            Whose::Own(session) => session,
        }
    }
}

impl Drop for Trial<'_> {
    /// Nobody wants to hear what it comes to, so it must not go on sending.
    fn drop(&mut self) {
        if self.course.give_up() {
            let total = std::mem::take(&mut self.course.total);
            self.session().count(&total);
        }
    }
}

impl Course {
    /// Of parts that the threads have. Figures that are no thread's, and results, come on top.
    pub(crate) fn new(load: &Load, parts: Parts, (shared, clock): (Arc<Shared>, RunClock)) -> Self {
        let Parts { harvest, spares, .. } = parts;
        Self {
            control: Control(shared),
            clock,
            warm_up: nanos(load.warm_up),
            end: load.end(),
            until: load.until,
            harvest,
            threads: spares.len(),
            alive: spares.len(),
            peaks: vec![0; spares.len()],
            spares,
            ended: None,
            drawn: Drawn::default(),
            total: *Stats::reserved(),
            since_tick: *Stats::reserved(),
            written: None,
            exhausted: None,
        }
    }

    fn next(&mut self, patience: Duration) -> Option<Tick<'_>> {
        self.since_tick.clear();
        self.gather(patience).then(|| {
            self.total.add(&self.since_tick);
            self.total.in_flight_peak = self.peaks.iter().sum();
            Tick { at: self.clock.now(), stats: &self.since_tick }
        })
    }

    /// Waits until every thread has handed over, or for `patience`; false when none is left that could.
    fn gather(&mut self, patience: Duration) -> bool {
        let mut handed_over = 0;
        while self.alive > 0 {
            match self.harvest.recv_timeout(patience) {
                Ok(harvest) => self.take(harvest, handed_over == 0),
                Err(RecvTimeoutError::Timeout) => return true,
                // A thread that panicked has said so on standard error; its figures are missing and nothing else.
                Err(RecvTimeoutError::Disconnected) => {
                    self.alive = 0;
                    return handed_over > 0;
                }
            }
            handed_over += 1;
            if handed_over >= self.alive.max(1) {
                return true;
            }
        }
        false
    }

    /// Adds what a thread handed over to what the others did. This runs beside the senders, on a core that the target may
    /// need: the first to come is taken as it is, for the cleared figures of the last tick.
    fn take(&mut self, harvest: Harvest, first: bool) {
        let Harvest { shard, mut stats, ended } = harvest;
        self.peaks[shard] = self.peaks[shard].max(stats.in_flight_peak);
        if let Some(Ended { at, drawn }) = ended {
            self.alive -= 1;
            self.ended = self.ended.max(Some(at));
            self.drawn = std::mem::take(&mut self.drawn).and(drawn);
        }
        if first {
            std::mem::swap(&mut self.since_tick, &mut *stats);
        } else {
            self.since_tick.add(&stats);
            stats.clear();
        }
        // A thread that has ended needs no empty box.
        let _ = self.spares[shard].send(stats);
    }

    fn finish(&mut self) -> Outcome {
        while self.next(Duration::from_secs(1)).is_some() {}
        // Not now: this thread may have been busy with something else, and a closed loop is as long as its last answer.
        let ended = self.ended.unwrap_or_else(|| self.clock.now());
        let written = self.await_writer();
        let exhausted = self.exhausted.take().and_then(|exhausted| exhausted.try_recv().ok());
        if let Some(exhausted) = &exhausted {
            // As if their number had been known from the start.
            self.until.hits = self.until.hits.min(exhausted.requests);
        }
        let end = self.end(ended);
        Outcome {
            scheduled: self.scheduled(end),
            began_unix_ns: self.clock.unix_ns(0),
            scheduled_for: end.saturating_sub(self.warm_up),
            elapsed: ended.saturating_sub(self.warm_up),
            written,
            mistake: exhausted.and_then(|exhausted| exhausted.mistake),
            early: self.control.0.early(),
            threads: self.threads,
            total: std::mem::take(&mut self.total),
        }
    }

    /// Ends it at once, if it has not ended; says whether it had figures left.
    fn give_up(&mut self) -> bool {
        if self.alive == 0 {
            return false;
        }
        self.control.abort();
        while self.next(Duration::from_secs(1)).is_some() {}
        // Results that cannot be written are nobody's any more.
        let _ = self.await_writer();
        true
    }

    fn await_writer(&mut self) -> Result<u64, EncodeError> {
        let patience = Patience::new(Arc::clone(&self.control.0), self.clock);
        self.written.take().map_or(Ok(0), |writer| recorder::await_writer(&writer, patience))
    }

    /// When the schedule was over: where it was planned to be, although its last hit was due, and may have been answered,
    /// some time before; or upon a command before that. A closed loop plans nothing and goes on to the end.
    fn end(&self, ended: Nanos) -> Nanos {
        let told = self.control.0.ended().map(|(at, _)| at.min(ended));
        let arrivals = self.control.0.arrivals();
        let Arrivals::Open(schedule) = &*arrivals else { return told.unwrap_or(ended).min(self.end) };
        let latest = told.unwrap_or(Nanos::MAX).min(self.end);
        let over = schedule.over_knowing(self.until.hits, latest, &self.drawn);
        if over == Nanos::MAX { ended } else { over }
    }

    /// A thread hears of a command or of another rate a moment later, and has handed out what was due in between.
    fn scheduled(&self, end: Nanos) -> Option<u64> {
        let arrivals = self.control.0.arrivals();
        let Arrivals::Open(schedule) = &*arrivals else { return None };
        let hits = |at| schedule.hits_before_knowing(at, &self.drawn).min(self.until.hits);
        Some((hits(end) - hits(self.warm_up.min(end))).max(handed_out(&self.total)))
    }
}
