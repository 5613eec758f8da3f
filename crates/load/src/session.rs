//! What lives longer than one load: threads, connections and names. Trials are made of it, one after the other.
//!
//! The caller (the tool's `attack`, the search methods) describes a [`Setup`], opens a [`Session`], and has it carry out a
//! [`Load`] as a [`Trial`] as often as it likes; [`start`] does all of it for a single trial. What is asked is
//! [`crate::plan`]'s business; how threads keep their connections [`crate::crew`]'s; what a trial measures
//! [`crate::trial`]'s.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::clock::{Nanos, RunClock, nanos};
use crate::control::{Command, Control, Early, Shared};
use crate::crew::{Answer, Hand, Order};
use crate::evidence;
use crate::parts::Parts;
use crate::plan::{Load, Plan, Results, Setup, Travel};
use crate::poller::{Poller, Waker};
use crate::recorder::Writer;
use crate::request::{Origin, Request, Style};
use crate::resolve::{self, Dial, Found, Question};
use crate::stats::{Histogram, Stats};
use crate::supply::{Source, supplies};
use crate::tls;
use crate::transport::exchange::Keep;
use crate::transport::making::{Limits, Making};
use crate::transport::pool::Pool;
use crate::transport::routes::{Resolver, Routes};
use crate::transport::sources::Sources;
use crate::trial::{Course, Trial, Whose};

/// Why a trial did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused a thread or a descriptor.
    #[error("the system refuses what a run needs: {0}")]
    System(#[from] io::Error),
    /// The trial before has used them up.
    #[error("targets that are read during the run serve one trial, and there has been one")]
    Spent,
    /// The instant at which the trial was to start has passed, or is too near to be ready for it.
    #[error("the run could be ready {0:.3?} after that instant at the earliest")]
    Late(Duration),
    /// It panicked, and has said why on standard error.
    #[error("a thread of the session is gone")]
    Gone,
}

/// Opens a session for one trial. The first hit is due some milliseconds later, when every thread is there.
///
/// # Errors
/// [`StartError`]; nothing has been sent then.
pub fn start(plan: Plan, results: Option<Results>) -> Result<Trial<'static>, StartError> {
    let (setup, load) = plan.split();
    let mut session = Session::open(setup)?;
    let course = session.begin(&load, results)?;
    // Connections end with the trial, and not when somebody asks what it came to.
    session.hands.iter_mut().for_each(Hand::dismiss);
    Ok(Trial { session: Whose::Own(Box::new(session)), course })
}

/// Time given to each thread to be there, its batches made, before the first hit is due.
const MUSTER: Duration = Duration::from_millis(5);

/// How long connections are waited for that may take as long as they like.
const WARMING: Duration = Duration::from_secs(30);

/// How much later a thread's answer is waited for, which looks at its connections ten times a second.
const ANSWERING: Duration = Duration::from_secs(5);

/// Threads, connections and names. Dropping it ends the threads and with them the connections.
pub struct Session {
    hands: Vec<Hand>,
    clock: RunClock,
    /// None once it has been read.
    source: Option<Source>,
    style: Style,
    travel: Travel,
    spin: Duration,
    /// How long the names took that were looked up before the first trial, which counts them.
    lookups: Histogram,
    /// Trials begun.
    trials: u64,
    total: Stats,
}

impl Session {
    /// Looks up the names and starts the threads; opens no connection.
    ///
    /// # Errors
    /// [`StartError::System`].
    pub fn open(setup: Setup) -> Result<Self, StartError> {
        let Setup { source, travel, style, threads, spin } = setup;
        if let Some(config) = travel.tls.as_ref().filter(|_| source.may_need_tls()) {
            tls::seed(config);
        }
        let mut lookups = Histogram::default();
        let dial = Arc::new(travel.dial.clone());
        let known = known_addresses(&source, &dial, &mut lookups);
        let clock = RunClock::start();
        let crew = Crew {
            size: threads.min(travel.connections).max(1),
            clock,
            known,
            listed: source.listed(),
            travel: &travel,
            making: making(&travel, Arc::clone(&dial)),
            questions: resolve::spawn(dial)?,
        };
        let hands = (0..crew.size).map(|index| crew.hire(index)).collect::<Result<_, _>>()?;
        let (source, trials, total) = (Some(source), 0, Stats::default());
        Ok(Self { hands, clock, source, style, travel, spin, lookups, trials, total })
    }

    /// Opens connections of every origin on the list before any hit asks for them, as many as are lacking to `each`, within
    /// the limits of [`Travel`]; over HTTP/2 as many as [`Http2::connections`](crate::plan::Http2) says. Waits for them, for
    /// as long as a request may take and for all of them together, and returns how many stand then: fewer if the server does
    /// not take them.
    ///
    /// # Errors
    /// [`StartError::Gone`].
    pub fn warm(&mut self, each: usize) -> Result<usize, StartError> {
        let (reply, standing) = channel();
        let by = self.clock.now().saturating_add(nanos(self.travel.timeout.unwrap_or(WARMING)));
        for (index, hand) in self.hands.iter().enumerate() {
            let connections = share(each, index, self.hands.len());
            if !hand.tell(Order::Warm { connections, answer: Answer { reply: reply.clone(), by } }) {
                return Err(StartError::Gone);
            }
        }
        drop(reply);
        let each =
            self.hands.iter().map(|_| heard(&standing, by.saturating_add(nanos(ANSWERING)), self.clock));
        each.sum()
    }

    /// Begins a trial, whose first hit is due some milliseconds later. Its cursor, rules and books are its own; threads,
    /// connections and names are what the trials before have left. Of a trial with fewer requests in flight than there are
    /// threads, only so many threads have a part.
    ///
    /// # Errors
    /// [`StartError`]; nothing has been sent then.
    pub fn trial(&mut self, load: &Load, results: Option<Results>) -> Result<Trial<'_>, StartError> {
        let course = self.begin(load, results)?;
        Ok(Trial { session: Whose::Another(self), course })
    }

    /// All that its trials have measured, those that were dropped included.
    #[must_use]
    pub fn total(&self) -> &Stats {
        &self.total
    }

    /// A trial has ended.
    pub(crate) fn count(&mut self, trial: &Stats) {
        self.total.add(trial);
    }

    fn begin(&mut self, load: &Load, results: Option<Results>) -> Result<Course, StartError> {
        if self.source.is_none() {
            return Err(StartError::Spent);
        }
        let hands = &self.hands[..self.hands.len().min(load.in_flight.most).max(1)];
        let soonest = self.clock.now() + nanos(MUSTER) * hands.len() as u64;
        let begins = match load.start_at {
            Some(at) => self.clock.at_unix(at, soonest).map_err(StartError::Late)?,
            None => soonest,
        };
        let clock = self.clock.from(begins);
        let wakers: Vec<_> = hands.iter().map(Hand::waker).collect();
        let shared = Arc::new(Shared::new(load, wakers.clone(), clock));
        let records_carriage = results.as_ref().is_some_and(|results| results.carriage);
        let keep = Keep {
            location: self.travel.redirects.is_some(),
            record: kept_of_bodies(results.as_ref(), load.evidence),
            carriage: records_carriage || load.by_hit,
        };
        let max_body = results.as_ref().map_or(0, |results| results.max_body);
        let writer =
            results.map(|results| Writer::spawn(results, Control(Arc::clone(&shared)))).transpose()?;
        let rules = load.rules(&self.travel, self.spin, begins);
        let mut parts = Parts::new(hands.len(), load, rules, keep, (self.clock, Arc::clone(&shared)));
        self.trials += 1;
        parts.trial = self.trials;
        parts.of_records(max_body, records_carriage);
        parts.batches = writer.as_ref().map(|writer| (writer.batches.clone(), writer.when_full));
        // Not before: what is read is used up, and a load that came late may be asked for again.
        let source = next(&mut self.source)?;
        let (supplies, exhausted) = supplies(source, &self.style, load.slice, &wakers)?;
        for (hand, supply) in hands.iter().zip(supplies) {
            if !hand.tell(Order::Trial(Box::new(parts.next(supply)))) {
                shared.command(Command::Abort, Early::Commanded);
                return Err(StartError::Gone);
            }
        }
        // What was looked up before is counted where it was needed first.
        let beforehand = Stats { lookup: std::mem::take(&mut self.lookups), ..*Stats::reserved() };
        let mut course = Course::new(load, parts, (shared, clock), beforehand);
        course.written = writer.map(|writer| writer.written);
        course.exhausted = exhausted;
        Ok(course)
    }
}

/// How many connections of the next thread that answers stand, none if it has not by then.
fn heard(standing: &Receiver<usize>, by: Nanos, clock: RunClock) -> Result<usize, StartError> {
    match standing.recv_timeout(Duration::from_nanos(by.saturating_sub(clock.now()))) {
        Ok(standing) => Ok(standing),
        Err(RecvTimeoutError::Timeout) => Ok(0),
        Err(RecvTimeoutError::Disconnected) => Err(StartError::Gone),
    }
}

/// What the next trial sends: a list is sent again, what is read is used up.
fn next(source: &mut Option<Source>) -> Result<Source, StartError> {
    if let Some(Source::List(list)) = source {
        return Ok(Source::List(list.clone()));
    }
    source.take().ok_or(StartError::Spent)
}

/// What every thread of a session gets its share of.
struct Crew<'s> {
    size: usize,
    clock: RunClock,
    known: HashMap<Origin, Found>,
    listed: &'s [Request],
    travel: &'s Travel,
    making: Making,
    questions: Sender<Question>,
}

impl Crew<'_> {
    /// Starts a thread.
    fn hire(&self, index: usize) -> io::Result<Hand> {
        let poller = Poller::new(self.clock)?;
        let limits = self.limits(index);
        let resolver = self.resolver(poller.waker());
        let mut routes = Routes::new(&self.known, self.making.clone(), limits.sources.clone(), resolver);
        routes.list(self.listed);
        Hand::hire(index, self.clock, Pool::new(poller, routes, limits))
    }

    fn limits(&self, index: usize) -> Limits {
        let travel = self.travel;
        Limits {
            connections: share(travel.connections, index, self.size),
            idle: share(travel.idle, index, self.size),
            requests: travel.requests_per_connection,
            age: travel.connection_age.map_or(Nanos::MAX, nanos),
            http2_connections: travel.http2.connections,
            step: travel.timeout.map_or(Nanos::MAX, nanos),
            sources: Sources::new(travel.sources.clone(), index),
        }
    }

    fn resolver(&self, waker: Waker) -> Resolver {
        let (reply, replies) = channel();
        Resolver { questions: self.questions.clone(), reply, replies, waker, asked: 0 }
    }
}

/// The part of a whole number that falls to one of several; no limit stays no limit.
pub(crate) fn share(whole: usize, index: usize, of: usize) -> usize {
    if whole == usize::MAX { whole } else { whole / of + usize::from(index < whole % of) }
}

fn making(travel: &Travel, dial: Arc<Dial>) -> Making {
    Making {
        tls: travel.tls.clone(),
        http2: travel.http2.over_tls,
        h2c: travel.http2.clear,
        streams: travel.http2.streams,
        keep_alive: travel.keep_alive,
        dial,
        begun: Arc::default(),
    }
}

/// Bytes kept of each body; none where heads are not kept either.
fn kept_of_bodies(results: Option<&Results>, evidence: usize) -> Option<usize> {
    let evidence = (evidence > 0).then_some(evidence::BODY);
    results.map(|results| results.max_body).max(evidence)
}

/// The addresses of everything on the list, looked up before the clock of the run starts.
fn known_addresses(source: &Source, dial: &Dial, times: &mut Histogram) -> HashMap<Origin, Found> {
    let Source::List(list) = source else { return HashMap::new() };
    let clock = RunClock::start();
    let mut known = HashMap::new();
    for request in list.requests() {
        known.entry(request.origin.clone()).or_insert_with(|| {
            let began = clock.now();
            let found = dial.lookup(&request.origin);
            if dial.known(&request.origin).is_none() {
                times.record(clock.now().saturating_sub(began));
            }
            found
        });
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;

    #[test]
    fn a_thread_that_ended_without_an_answer_is_gone_and_one_that_is_late_has_no_connections() {
        let clock = RunClock::start();
        let (reply, standing) = channel();
        reply.send(3).unwrap();
        assert_eq!(heard(&standing, clock.now(), clock).unwrap(), 3, "said in time");
        assert_eq!(heard(&standing, clock.now(), clock).unwrap(), 0);
        drop(reply);
        assert!(matches!(heard(&standing, clock.now() + 60 * SECOND, clock), Err(StartError::Gone)));
    }
}
