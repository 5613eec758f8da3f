//! The resources that live longer than one load: threads, connections and names. A session carries out trials, one after the
//! other.
//!
//! The caller (the tool's `attack`, the search methods) describes a [`SessionSetup`], opens a [`LoadSession`], and starts each
//! [`LoadSpec`] as a [`LoadTrial`]; [`start_single_trial`] does all of it for a single trial. [`crate::plan`] has the settings,
//! [`crate::sender_threads`] the threads and their connections, and [`crate::trial`] the measurements of a trial.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::clock::{Nanos, RunClock, nanos};
use crate::control::{Control, ControlState, RunCommand, RunStopReason};
use crate::origin_resolution::{self, DialOptions, LookupRequest, LookupResult};
use crate::plan::{LoadSpec, ResultsOutput, RunPlan, SessionSetup, TransportOptions};
use crate::poller::{EventPoller, SenderWaker};
use crate::record_output::RecordWriter;
use crate::request::{Origin, PreparedRequest, RequestFraming};
use crate::request_source::{RequestSource, split_source};
use crate::response_samples;
use crate::sender_threads::{ReplyChannel, SenderCommand, SenderThread};
use crate::stats::{LatencyHistogram, LoadStats};
use crate::thread_shares::SenderTaskBuilder;
use crate::tls;
use crate::transport::connector_config::{ConnectionLimits, ConnectorConfig};
use crate::transport::pool::ConnectionPool;
use crate::transport::response_parser::CaptureOptions;
use crate::transport::route_table::{RouteResolver, RouteTable};
use crate::transport::source_addresses::SourceAddresses;
use crate::trial::{LoadTrial, SessionRef, TrialState};

/// The reason why a trial did not start.
#[derive(Debug, thiserror::Error)]
pub enum TrialStartError {
    /// The system refused a thread or a descriptor.
    #[error("cannot start the run: {0}")]
    System(#[from] io::Error),
    /// The trial before has used up the targets.
    #[error("-lazy reads each target once, which is enough for one trial only")]
    TargetsUsedUp,
    /// The start time has passed, or is too early for the preparation of the trial. The value is the difference.
    #[error("the start time is {0:.3?} too early for the preparation of the run; give a later time")]
    Late(Duration),
    /// A sender thread panicked and has written the reason to standard error.
    #[error("a sender thread panicked")]
    SenderDied,
}

/// Opens a session for one trial. The first request is due some milliseconds later, when every thread is ready.
///
/// # Errors
/// [`TrialStartError`]; nothing has been sent then.
pub fn start_single_trial(
    plan: RunPlan,
    results: Option<ResultsOutput>,
) -> Result<LoadTrial<'static>, TrialStartError> {
    let (setup, load) = plan.split();
    let mut session = LoadSession::open(setup)?;
    let course = session.begin(&load, results)?;
    // Connections end with the trial, even if the caller reads its outcome later.
    session.hands.iter_mut().for_each(SenderThread::stop);
    Ok(LoadTrial { session: SessionRef::Owned(Box::new(session)), state: course })
}

/// The time for each thread to start and to allocate its batches before the first request is due.
const MUSTER: Duration = Duration::from_millis(5);

/// The time limit for opening connections that have no limit of their own.
const WARMING: Duration = Duration::from_secs(30);

/// The additional time for the response of a thread, which checks its connections ten times a second.
const ANSWERING: Duration = Duration::from_secs(5);

/// The threads, connections and names of a session. Dropping it ends the threads and with them the connections.
pub struct LoadSession {
    hands: Vec<SenderThread>,
    clock: RunClock,
    /// The source of requests; `None` after an input was read.
    source: Option<RequestSource>,
    style: RequestFraming,
    travel: TransportOptions,
    busy_poll: Duration,
    /// The durations of the lookups before the first trial, which counts them.
    lookups: LatencyHistogram,
    /// The number of trials that were begun.
    trials: u64,
    total: LoadStats,
}

impl LoadSession {
    /// Looks up the names and starts the threads; opens no connection.
    ///
    /// # Errors
    /// [`TrialStartError::System`].
    pub fn open(setup: SessionSetup) -> Result<Self, TrialStartError> {
        let SessionSetup {
            source,
            transport: travel,
            framing: style,
            max_threads: threads,
            busy_poll_max_wait: busy_poll,
        } = setup;
        if let Some(config) = travel.tls.as_ref().filter(|_| source.may_need_tls()) {
            tls::seed_random(config);
        }
        let mut lookups = LatencyHistogram::default();
        let dial = Arc::new(travel.dial.clone());
        let known = known_addresses(&source, &dial, &mut lookups);
        let clock = RunClock::start();
        let crew = SenderThreadBuilder {
            size: threads.min(travel.max_connections).max(1),
            clock,
            known,
            listed: source.listed_requests(),
            travel: &travel,
            making: making(&travel, Arc::clone(&dial)),
            questions: origin_resolution::spawn(dial)?,
        };
        let hands = (0..crew.size).map(|index| crew.hire(index)).collect::<Result<_, _>>()?;
        let (source, trials, total) = (Some(source), 0, LoadStats::default());
        Ok(Self { hands, clock, source, style, travel, busy_poll, lookups, trials, total })
    }

    /// Opens connections to every origin on the list before the first request: up to `each` per origin, within the limits of
    /// [`TransportOptions`]; over HTTP/2 as many as [`Http2Options::connections`](crate::plan::Http2Options) says. Waits for all
    /// of them together, for as long as one request may take. Returns the number of open connections, which is smaller if the
    /// server does not accept all.
    ///
    /// # Errors
    /// [`TrialStartError::SenderDied`].
    pub fn warm(&mut self, each: usize) -> Result<usize, TrialStartError> {
        let (reply, standing) = channel();
        let by = self.clock.now().saturating_add(nanos(self.travel.timeout.unwrap_or(WARMING)));
        for (index, hand) in self.hands.iter().enumerate() {
            let connections = thread_share(each, index, self.hands.len());
            if !hand.send(SenderCommand::Warm {
                connections,
                answer: ReplyChannel { reply_sender: reply.clone(), deadline: by },
            }) {
                return Err(TrialStartError::SenderDied);
            }
        }
        drop(reply);
        let each =
            self.hands.iter().map(|_| heard(&standing, by.saturating_add(nanos(ANSWERING)), self.clock));
        each.sum()
    }

    /// Begins a trial, whose first request is due some milliseconds later. It has its own cursor, settings and accounting, and
    /// uses the threads, connections and names of earlier trials. If the trial has fewer requests in flight than there are
    /// threads, only that number of threads takes part.
    ///
    /// # Errors
    /// [`TrialStartError`]; nothing has been sent then.
    pub fn start_trial(
        &mut self,
        load: &LoadSpec,
        results: Option<ResultsOutput>,
    ) -> Result<LoadTrial<'_>, TrialStartError> {
        let course = self.begin(load, results)?;
        Ok(LoadTrial { session: SessionRef::Borrowed(self), state: course })
    }

    /// Returns the sum of the figures of all ended trials, including those that were dropped.
    #[must_use]
    pub fn total_stats(&self) -> &LoadStats {
        &self.total
    }

    /// Adds the figures of a trial that has ended.
    pub(crate) fn add_trial_stats(&mut self, trial: &LoadStats) {
        self.total.merge(trial);
    }

    fn begin(
        &mut self,
        load: &LoadSpec,
        results: Option<ResultsOutput>,
    ) -> Result<TrialState, TrialStartError> {
        if self.source.is_none() {
            return Err(TrialStartError::TargetsUsedUp);
        }
        let hands = &self.hands[..self.hands.len().min(load.in_flight_limit.limit).max(1)];
        let soonest = self.clock.now() + nanos(MUSTER) * hands.len() as u64;
        let begins = match load.start_unix_ns {
            Some(at) => self.clock.run_time_of_unix_ns(at, soonest).map_err(TrialStartError::Late)?,
            None => soonest,
        };
        let clock = self.clock.starting_at(begins);
        let wakers: Vec<_> = hands.iter().map(SenderThread::waker).collect();
        let shared = Arc::new(ControlState::new(load, wakers.clone(), clock));
        let records_carriage = results.as_ref().is_some_and(|results| results.write_connection_timings);
        let keep = CaptureOptions {
            keep_location: self.travel.max_redirects.is_some(),
            record_body_limit: kept_of_bodies(results.as_ref(), load.max_response_samples_per_outcome),
            keep_connection_timings: records_carriage || load.report_each_request,
        };
        let max_body = results.as_ref().map_or(0, |results| results.max_body);
        let warn_of_cut_body = results.as_ref().and_then(|results| results.cut_body_callback);
        let writer =
            results.map(|results| RecordWriter::spawn(results, Control(Arc::clone(&shared)))).transpose()?;
        let rules = load.sender_config(&self.travel, self.busy_poll, begins);
        let mut parts =
            SenderTaskBuilder::new(hands.len(), load, rules, keep, (self.clock, Arc::clone(&shared)));
        self.trials += 1;
        parts.trial_number = self.trials;
        parts.set_record_contents(max_body, records_carriage, warn_of_cut_body);
        parts.record_sender =
            writer.as_ref().map(|writer| (writer.batch_sender.clone(), writer.on_slow_output));
        // The source is taken last: an input is used up by it, and a load that came too late may be started again.
        let source = next(&mut self.source)?;
        let (supplies, exhausted) = split_source(source, &self.style, load.shard, &wakers)?;
        for (hand, supply) in hands.iter().zip(supplies) {
            if !hand.send(SenderCommand::Trial(Box::new(
                parts.next(supply.starting_at(load.first_request_index)),
            ))) {
                shared.issue_command(RunCommand::Abort, RunStopReason::Commanded);
                return Err(TrialStartError::SenderDied);
            }
        }
        // The lookups before the first trial are counted in that trial.
        let beforehand =
            LoadStats { lookup: std::mem::take(&mut self.lookups), ..*LoadStats::preallocated() };
        let mut course = TrialState::new(load, parts, (shared, clock), beforehand);
        course.writer_result_receiver = writer.map(|writer| writer.result_receiver);
        course.input_end_receiver = exhausted;
        Ok(course)
    }
}

/// Returns the number of open connections of the next thread that responds by `by`; 0 if none responds.
fn heard(standing: &Receiver<usize>, by: Nanos, clock: RunClock) -> Result<usize, TrialStartError> {
    match standing.recv_timeout(Duration::from_nanos(by.saturating_sub(clock.now()))) {
        Ok(standing) => Ok(standing),
        Err(RecvTimeoutError::Timeout) => Ok(0),
        Err(RecvTimeoutError::Disconnected) => Err(TrialStartError::SenderDied),
    }
}

/// Returns the requests of the next trial: a list is sent again, and an input that is read during a run is used up.
fn next(source: &mut Option<RequestSource>) -> Result<RequestSource, TrialStartError> {
    if let Some(RequestSource::List(list)) = source {
        return Ok(RequestSource::List(list.clone()));
    }
    source.take().ok_or(TrialStartError::TargetsUsedUp)
}

/// Builds the part of a session for each thread.
struct SenderThreadBuilder<'s> {
    size: usize,
    clock: RunClock,
    known: HashMap<Origin, LookupResult>,
    listed: &'s [PreparedRequest],
    travel: &'s TransportOptions,
    making: ConnectorConfig,
    questions: Sender<LookupRequest>,
}

impl SenderThreadBuilder<'_> {
    /// Starts a thread.
    fn hire(&self, index: usize) -> io::Result<SenderThread> {
        let poller = EventPoller::new(self.clock)?;
        let limits = self.limits(index);
        let resolver = self.resolver(poller.waker());
        let mut routes =
            RouteTable::new(&self.known, self.making.clone(), limits.source_addresses.clone(), resolver);
        routes.register_requests(self.listed);
        SenderThread::spawn(index, self.clock, ConnectionPool::new(poller, routes, limits))
    }

    fn limits(&self, index: usize) -> ConnectionLimits {
        let travel = self.travel;
        ConnectionLimits {
            connections: thread_share(travel.max_connections, index, self.size),
            max_idle: thread_share(travel.max_idle_connections, index, self.size),
            requests: travel.max_requests_per_connection,
            age: travel.max_connection_age.map_or(Nanos::MAX, nanos),
            http2_connections: travel.http2.connections_per_origin_and_thread,
            opening_step_timeout: travel.timeout.map_or(Nanos::MAX, nanos),
            source_addresses: SourceAddresses::new(travel.source_addresses.clone(), index),
        }
    }

    fn resolver(&self, waker: SenderWaker) -> RouteResolver {
        let (reply, replies) = channel();
        RouteResolver {
            lookup_request_sender: self.questions.clone(),
            reply_sender: reply,
            reply_receiver: replies,
            waker,
            pending_lookups: 0,
        }
    }
}

/// Returns the share of a whole number for one of several threads; no limit stays no limit.
pub(crate) fn thread_share(whole: usize, index: usize, of: usize) -> usize {
    if whole == usize::MAX { whole } else { whole / of + usize::from(index < whole % of) }
}

fn making(travel: &TransportOptions, dial: Arc<DialOptions>) -> ConnectorConfig {
    ConnectorConfig {
        tls: travel.tls.clone(),
        may_negotiate_http2: travel.http2.over_tls,
        h2c: travel.http2.prior_knowledge,
        max_streams: travel.http2.max_streams,
        keep_alive: travel.keep_alive,
        dial,
        connections_begun: Arc::default(),
    }
}

/// Returns the number of body bytes to keep; `None` if heads are not kept either.
fn kept_of_bodies(results: Option<&ResultsOutput>, samples: usize) -> Option<usize> {
    let sampled = (samples > 0).then_some(response_samples::MAX_BODY_BYTES);
    results.map(|results| results.max_body).max(sampled)
}

/// Returns the addresses of all origins on the list, looked up before the clock of the run starts.
fn known_addresses(
    source: &RequestSource,
    dial: &DialOptions,
    times: &mut LatencyHistogram,
) -> HashMap<Origin, LookupResult> {
    let RequestSource::List(list) = source else { return HashMap::new() };
    let clock = RunClock::start();
    let mut known = HashMap::new();
    for request in list.requests() {
        let origin = request.origin();
        if known.contains_key(origin) {
            continue;
        }
        let began = clock.now();
        let found = dial.lookup(origin);
        if dial.known_addresses(origin).is_none() {
            times.record(clock.now().saturating_sub(began));
        }
        known.insert(origin.clone(), found);
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
        assert!(matches!(
            heard(&standing, clock.now() + 60 * SECOND, clock),
            Err(TrialStartError::SenderDied)
        ));
    }
}
