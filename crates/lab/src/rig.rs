//! Runs a search and an inquiry on a real target, with sessions of the load engine and one load after the other.
//!
//! A [`LocalDriver`] sends loads and reports its observations. [`seawall_search`] and [`seawall_cause`] choose the loads. The
//! parts:
//!
//! - `blocks` makes the blocks of a trial, and `blocks_by_send_time` makes them from the send times.
//! - `trial_details` makes the summary of a trial.
//! - `outage_detector` detects a target that is gone.
//! - `closed_loop` sends for clients that wait for their responses.
//! - `experiments` makes the observations of an inquiry.
//! - `validity` and `send_bursts` give the reasons why a load is invalid.
//! - `sessions` has the sessions.
//! - `load_share` is one generator's part of a common load.
//! - `idle_connections` opens connections without requests.
//! - `null_server` is the test server for the calibration.
//! - [`StopSwitch`] ends everything.
//!
//! The tool's `find` calls this module. [`crate::isolate`] sends through the same sessions and searches its variants with
//! [`LocalDriver`]s.

mod blocks;
mod blocks_by_send_time;
mod closed_loop;
mod experiment_conversion;
mod generator_share;
mod idle_connections;
mod late_send_bursts;
mod load_sessions;
mod null_server;
mod outage_detector;
mod stop;
mod trial_details;
mod validity;

use std::ops::RangeInclusive;
use std::time::Duration;

use seawall_cause::experiment::Experiment;
use seawall_cause::experiment_target::ExperimentTarget;
use seawall_cause::observed_requests::ExperimentObservation;
use seawall_load::clock::{Nanos, RunClock, nanos};
use seawall_load::completed_request::CompletedRequest;
use seawall_load::control::Control;
use seawall_load::load_session::{LoadSession, TrialStartError};
use seawall_load::plan::LoadSpec;
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::request_source::RequestList;
use seawall_load::schedule::{ArrivalModel, ArrivalSpacing, Schedule, StopCondition};
use seawall_load::stats::LoadStats;
use seawall_load::target::{Target as Asked, Weight};
use seawall_search::evidence::TrialEvidence;
use seawall_search::observation::{BLOCK_SECONDS, BlockCounts, TrialObservation};
use seawall_search::target::SearchTarget;
use seawall_search::trial_spec::{StopRule, TrialSpec};
use seawall_search::trial_verdict::TrialVerdict;

use self::blocks::BlockBuilder;
use self::blocks_by_send_time::BlocksBySendTime;
pub(crate) use self::experiment_conversion::{record_every_request, to_request_rate};
pub use self::generator_share::LoadPart;
use self::generator_share::LoadShare;
use self::idle_connections::IdleConnections;
pub use self::load_sessions::SessionConfig;
pub(crate) use self::load_sessions::SessionError;
use self::load_sessions::{MAX_SESSIONS, SessionPool};
use self::null_server::NullServer;
use self::outage_detector::OutageDetector;
pub use self::stop::StopSwitch;
pub use self::trial_details::summarize;
use self::validity::{ValidityLimits, join_reasons, port_shortage};
use crate::generator_resources;
use crate::running_trial::{RunningTrial, TrialProgress, TrialResult};
use crate::target_driver::{Calibration, TargetDriver};
use seawall_probe::LocalFiles;
use seawall_probe::file_reader::HostFiles;
use seawall_probe::net::{self, PORT_RANGE_PATH};

/// Receives the blocks of a running trial after each new block.
pub type TrialObserver = Box<dyn FnMut(&TrialSpec, &[BlockCounts]) + Send>;

/// Runs trials and experiments on a real target from this machine.
pub struct LocalDriver {
    sessions: SessionPool,
    spacing: ArrivalSpacing,
    bound: Option<Duration>,
    /// The connections for which there are descriptors, to all targets together.
    room: usize,
    stop: StopSwitch,
    observer: Option<TrialObserver>,
    /// The number of loads so far. Each load has its own random numbers.
    loads: u64,
    /// The index of the first request of the next load. Trials continue through the list, because a limit can show only when all
    /// targets are in use.
    next_request: u64,
    /// The share of the load that this generator sends.
    share: LoadShare,
    /// The most requests per second that clients who wait for their responses have reached.
    fastest: f64,
}

/// The longest wait for an interval before the loop checks for other work.
const PATIENCE: Duration = Duration::from_millis(100);

/// The room in flight above the limit of a trial, in seconds of its rate. The trial notices damage only after three blocks.
const MARGIN: f64 = 0.5;
/// The least room in flight above the limit of a trial, in requests, for low rates.
const LEAST_MARGIN: f64 = 64.0;

impl LocalDriver {
    /// Creates a driver for a setup and an arrival process. Responses later than `bound` after their due time are late. It raises
    /// the soft limit of open files and sends nothing.
    ///
    /// # Errors
    /// The system refuses the limit.
    pub fn new(
        mut kit: SessionConfig,
        spacing: ArrivalSpacing,
        bound: Option<Duration>,
    ) -> std::io::Result<Self> {
        let room = kit.limit_connections(generator_resources::raise_open_files()?);
        let (sessions, stop) = (SessionPool::new(kit), StopSwitch::default());
        Ok(Self {
            sessions,
            spacing,
            bound,
            room,
            stop,
            observer: None,
            loads: 0,
            next_request: 0,
            share: LoadShare::default(),
            fastest: 0.0,
        })
    }

    /// Passes the blocks of each running trial to an observer.
    #[must_use]
    pub fn with_block_observer(self, observer: TrialObserver) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Uses another switch to end everything.
    #[must_use]
    pub fn with_stop(self, stop: StopSwitch) -> Self {
        Self { stop, ..self }
    }

    /// Returns the switch that stops everything at once.
    #[must_use]
    pub fn stop_switch(&self) -> StopSwitch {
        self.stop.clone()
    }

    /// Returns the requests of this driver and their transport.
    #[must_use]
    pub fn session_config(&self) -> &SessionConfig {
        self.sessions.config()
    }

    /// Looks names up and starts a thread, so that the first load need not wait.
    ///
    /// # Errors
    /// The reason, in words, why no session can be opened.
    pub fn prepare(&mut self) -> Result<(), String> {
        self.sessions.unvaried_session(0.0).map(|_| ()).map_err(|error| error.to_string())
    }

    /// Runs one part of a trial that other generators send, too, and returns its figures as well. The sent requests and those in
    /// flight are those of this part. The coordinator sees all parts and decides when to stop.
    pub fn run_trial_part(&mut self, offer: &TrialSpec, part: &LoadPart) -> (TrialObservation, LoadStats) {
        self.share = LoadShare::of(part);
        let mut total = LoadStats::default();
        let seen = self.timed(|rig| rig.try_offer(offer, &mut total));
        self.share = LoadShare::default();
        (seen, total)
    }

    /// Runs one part of an experiment that other generators send, too. The times of its requests count from the start of all
    /// parts. The coordinator that sets the start also waits before a load of bursts.
    pub fn run_experiment_part(&mut self, experiment: &Experiment, part: &LoadPart) -> ExperimentObservation {
        self.share = LoadShare::of(part);
        let watched = self.run_experiment(experiment);
        self.share = LoadShare::default();
        watched
    }

    /// Returns the seed for the spacing of the next load.
    fn next_seed(&mut self) -> u64 {
        self.loads = self.share.load_number().unwrap_or_else(|| self.loads.wrapping_add(1));
        let seed = if let ArrivalSpacing::Poisson(seed) = self.spacing { seed } else { 0 };
        seed.wrapping_add(self.loads.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn beginning_at_next_request(&self, load: LoadSpec) -> LoadSpec {
        LoadSpec { first_request_index: self.next_request, ..load }
    }

    /// Continues the request list after this load. Other generators have sent about as much of it as this one.
    fn go_on_after(&mut self, sent: &LoadStats) {
        let whole = sent.completed as f64 * self.share.part_count();
        self.next_request = self.next_request.wrapping_add(whole as u64);
    }

    fn schedule(&mut self, rate: f64) -> Option<Schedule> {
        let seed = self.next_seed();
        let spacing = if let ArrivalSpacing::Poisson(_) = self.spacing {
            ArrivalSpacing::Poisson(seed)
        } else {
            self.spacing
        };
        Some(Schedule::constant(to_request_rate(rate)?, spacing))
    }

    fn try_offer(
        &mut self,
        offer: &TrialSpec,
        total: &mut LoadStats,
    ) -> Result<TrialObservation, SessionError> {
        let Some(schedule) = self.schedule(offer.rate) else {
            return Err(SessionError::Impossible(format!(
                "the rate {} requests/s is out of range",
                offer.rate
            )));
        };
        let own = self.share.scale_trial(offer);
        let load = self.beginning_at_next_request(self.share.with_shard_and_start(offered(&own, &schedule)));
        let mut blocks = BlockBuilder::new(&schedule, load.shard, self.bound);
        let mut launched = BlocksBySendTime::new(self.bound);
        let (mut away, mut enough, mut no_port) = (OutageDetector::default(), false, 0);
        let Self { sessions, stop, observer, share, .. } = self;
        let carried = run_load(sessions.unvaried_session(own.rate)?, &load, stop, |progress| {
            no_port += experiment_conversion::count_without_port(progress.completed_requests);
            if enough {
                return false;
            }
            away.record(progress.completed_requests);
            blocks.record_ended(progress.completed_requests, |fate, is_excused| {
                launched.record(fate, is_excused);
            });
            let known = blocks.completed_blocks().len();
            while !enough && blocks.complete_one(progress.known_until) {
                enough = share.is_enough(&own, blocks.completed_blocks());
            }
            enough |= share.is_stop_requested();
            if let Some(observer) = observer.as_mut().filter(|_| blocks.completed_blocks().len() > known) {
                observer(offer, blocks.completed_blocks());
            }
            enough
        })?;
        let fails = fails(&own, blocks.completed_blocks());
        let lack = port_shortage(no_port, carried.outcome.total_stats.completed, fails, port_range());
        let [against, delay] = self.invalid_reasons(&carried, own.in_flight_cap, no_port);
        let against = join_reasons(
            lack.into_iter().chain(against).chain(blocks.late_burst_tally().invalid_reason(fails)),
        );
        let beside = summarize(&carried.outcome.total_stats);
        self.go_on_after(&carried.outcome.total_stats);
        *total = carried.outcome.total_stats;
        let blocks = blocks.into_complete();
        // The coordinator decides about a trial in parts, and it has their blocks by due time.
        let is_asked = delay.is_some() && against.is_none() && !self.share.is_part();
        let sent = if is_asked { launched.blocks_if_same_verdict(&own, &blocks) } else { None };
        let (delay, late) = if sent.is_some() { (delay, None) } else { (None, delay) };
        Ok(TrialObservation {
            blocks: sent.unwrap_or(blocks),
            invalid_reason: join_reasons(against.into_iter().chain(late)),
            requests_without_port: no_port,
            generator_delay_description: delay,
            details: beside,
            target_is_down: away.is_target_down(),
            ..TrialObservation::default()
        })
    }

    fn try_experiment(&mut self, experiment: &Experiment) -> Result<ExperimentObservation, SessionError> {
        let seed = self.next_seed();
        let Some((own, share)) = self.share.scale_experiment(experiment) else {
            return Ok(ExperimentObservation::default());
        };
        let Some(load) = experiment_conversion::load_spec(&own, seed) else {
            return Err(SessionError::Impossible("the experiment's rate is out of range".into()));
        };
        let load = self.beginning_at_next_request(share.with_shard_and_start(load));
        let mut held = self.open_idle_connections(own.variation.held_idle_connections)?;
        if !share.is_part() && !self.stop.sleep(experiment_conversion::quiet_period(experiment)) {
            return Ok(ExperimentObservation::default());
        }
        let Self { sessions, stop, .. } = self;
        let session = sessions
            .varied_session(&own.variation, experiment_conversion::request_rate(&own) / share.part_count())?;
        let mut fates = Vec::new();
        let carried = run_load(session, &load, stop, |progress| {
            fates.extend_from_slice(progress.completed_requests);
            let ended = fates.len() as u64;
            share.is_stop_requested() || unanswered(&load, progress, ended) > own.in_flight_cap as u64
        })?;
        let no_port = experiment_conversion::count_without_port(&fates);
        let against = self.invalid_reasons(&carried, own.in_flight_cap as f64, no_port).into_iter().flatten();
        let tally = experiment_conversion::exclude_late_burst_failures(&own, share.part_count(), &mut fates);
        let invalid = join_reasons(against.chain(tally.invalid_reason(false)));
        let total = &carried.outcome.total_stats;
        self.go_on_after(total);
        Ok(ExperimentObservation {
            requests: experiment_conversion::observed_requests(fates, share.is_part()),
            opened_connection_count: total.connections,
            silent_retry_count: total.retried,
            seconds_of_each_lookup: experiment_conversion::lookup_seconds(total.lookup.distribution()),
            held_connections_still_open: held.count_open(),
            invalid_reason: invalid,
            ..ExperimentObservation::default()
        })
    }

    /// Opens this many connections to the target, which carry no requests.
    fn open_idle_connections(&self, connections: usize) -> Result<IdleConnections, SessionError> {
        if connections == 0 {
            return Ok(IdleConnections::default());
        }
        let addresses = self.session_config().addresses()?;
        let address =
            addresses.first().ok_or_else(|| SessionError::Impossible("the target has no address".into()))?;
        Ok(IdleConnections::open(*address, connections.min(self.room / MAX_SESSIONS), &self.stop))
    }

    /// Returns the reason why a load says nothing about the target. The second text says how late this machine was, if it was too
    /// late.
    fn invalid_reasons(
        &self,
        carried: &TrialResult,
        most_in_flight: f64,
        no_port: u64,
    ) -> [Option<String>; 2] {
        let room = self.room as u64;
        // With enough room, the target gets as many requests at once as allowed. With less room, the others wait for its
        // responses.
        let few = most_in_flight > room as f64 && !self.session_config().multiplexes();
        let (limits, total) =
            (ValidityLimits::new(self.bound, few.then_some(room)), &carried.outcome.total_stats);
        [limits.invalid_reason(&carried.judgement, total, no_port), limits.delay_reason(total)]
    }

    /// Describes an error, and closes all sessions if a thread has died, because the rest of such a session is useless.
    fn describe_error(&mut self, error: &SessionError) -> String {
        if matches!(error, SessionError::Start(TrialStartError::SenderDied)) {
            self.sessions.close_all();
        }
        error.to_string()
    }

    /// Runs a trial and measures its duration; the result is empty if everything is to stop.
    fn timed(
        &mut self,
        try_it: impl FnOnce(&mut Self) -> Result<TrialObservation, SessionError>,
    ) -> TrialObservation {
        if self.stop.is_stopped() {
            return TrialObservation { interrupted: true, ..TrialObservation::default() };
        }
        let clock = RunClock::start();
        let seen = try_it(self).unwrap_or_else(|error| TrialObservation {
            invalid_reason: Some(self.describe_error(&error)),
            ..TrialObservation::default()
        });
        TrialObservation {
            took: Duration::from_nanos(clock.now()),
            interrupted: self.stop.is_stopped(),
            ..seen
        }
    }

    fn measure_generator(&self) -> Option<(f64, usize)> {
        let senders = (self.session_config().max_sender_threads / 2).max(1);
        let sinks: Vec<_> = (0..senders).map(|_| NullServer::start()).collect::<Result<_, _>>().ok()?;
        let requests = sinks.iter().map(|sink| plain(&format!("http://{}/", sink.address())));
        let list = RequestList::new(requests.collect::<Option<_>>()?).ok()?;
        let kit = SessionConfig {
            request_list: list,
            transport: Default::default(),
            request_framing: RequestFraming::default(),
            max_sender_threads: senders,
            max_busy_poll: None,
        };
        let mut session = kit.open(senders).ok()?;
        let until = StopCondition { stop_time: CALIBRATION.as_nanos() as Nanos, ..StopCondition::default() };
        let load = LoadSpec {
            stop_condition: until,
            drain_timeout: Some(PATIENCE),
            ..LoadSpec::new(ArrivalModel::Closed, CLIENTS * senders)
        };
        let carried =
            run_load(&mut session, &load, &self.stop, |progress| progress.known_until > 2 * until.stop_time)
                .ok()?;
        let figures = &carried.outcome;
        let seconds = Duration::from_nanos(figures.elapsed_after_warm_up).as_secs_f64();
        Some((figures.total_stats.good_count() as f64 / seconds.max(f64::MIN_POSITIVE), senders))
    }
}

/// The clients per thread in the calibration. With fewer clients the thread waits, and more clients only queue.
const CLIENTS: usize = 16;
/// The duration of the calibration.
const CALIBRATION: Duration = Duration::from_secs(1);
/// The share of the closed-loop rate that counts as the generator's capacity. In an open loop at full capacity, a thread would be
/// late for half of its requests.
const SHARE: f64 = 0.7;

fn plain(url: &str) -> Option<(PreparedRequest, Weight)> {
    let asked = Asked { method: "GET".into(), url: url.to_owned(), ..Asked::default() };
    Some((PreparedRequest::new(&asked, &RequestFraming::default()).ok()?, Weight::default()))
}

/// Returns the ports from which this machine connects; none if unknown.
fn port_range() -> Option<RangeInclusive<u16>> {
    LocalFiles.read(PORT_RANGE_PATH).ok().and_then(|text| net::parse_port_range(&text))
}

/// Returns whether a trial is bad by its errors.
fn fails(offer: &TrialSpec, blocks: &[BlockCounts]) -> bool {
    let (StopRule::FullDurationUnlessBad(standard) | StopRule::Decided(standard)) = offer.rule else {
        return false;
    };
    let evidence = TrialEvidence::of(offer.rate, blocks, &standard);
    evidence.errors.value() > standard.goal.max_error_share && standard.judge(&evidence) == TrialVerdict::Bad
}

/// Returns the load of a trial. It ends a moment after the last block of the trial.
fn offered(offer: &TrialSpec, schedule: &Schedule) -> LoadSpec {
    let blocks = (offer.max_duration.as_secs_f64() / BLOCK_SECONDS).ceil() as usize;
    let until = StopCondition {
        stop_time: blocks::block_start(blocks.saturating_add(2)),
        ..StopCondition::default()
    };
    let room = offer.in_flight_cap + (offer.rate * MARGIN).max(LEAST_MARGIN);
    let load = LoadSpec {
        stop_condition: until,
        ..LoadSpec::new(ArrivalModel::Open(schedule.clone()), room as usize)
    };
    record_every_request(load, offer.drain)
}

/// The progress of a load.
#[derive(Clone, Copy)]
pub(crate) struct LoadProgress<'p> {
    /// The requests that ended since the last report.
    pub(crate) completed_requests: &'p [CompletedRequest],
    /// The time up to which all ended requests are known.
    pub(crate) known_until: Nanos,
    pub(crate) control: &'p Control,
}

/// Runs a load until `enough` returns true. Then it aborts outstanding requests at once: the engine alone looks only ten times a
/// second, and an emptied token bucket would refill meanwhile.
pub(crate) fn run_load(
    session: &mut LoadSession,
    load: &LoadSpec,
    stop: &StopSwitch,
    mut enough: impl FnMut(LoadProgress<'_>) -> bool,
) -> Result<TrialResult, SessionError> {
    let mut carriage = RunningTrial::new(session.start_trial(load, None)?, load.warm_up);
    let control = carriage.control();
    stop.set_running_load(control.clone());
    let clock = RunClock::start();
    let mut given_up = None;
    loop {
        let left =
            given_up.map_or(PATIENCE, |at: Nanos| Duration::from_nanos(at.saturating_sub(clock.now())));
        if left.is_zero() {
            control.abort();
        }
        match carriage.wait(if left.is_zero() { PATIENCE } else { left.min(PATIENCE) }) {
            TrialProgress::Pending => continue,
            TrialProgress::Finished => break,
            TrialProgress::Interval => {}
        }
        let interval = carriage.interval();
        if enough(LoadProgress {
            completed_requests: &interval.stats.completed_requests,
            known_until: interval.to,
            control: &control,
        }) {
            control.drain();
            given_up.get_or_insert_with(|| clock.now().saturating_add(load.drain_timeout.map_or(0, nanos)));
        }
    }
    stop.clear_running_load();
    Ok(carriage.finish(None))
}

/// Returns the requests that were due and have not ended; in a closed loop, those in flight.
pub(crate) fn unanswered(load: &LoadSpec, progress: LoadProgress<'_>, ended: u64) -> u64 {
    match &load.arrivals {
        ArrivalModel::Open(schedule) => {
            let due = schedule
                .hits_before(progress.known_until.min(load.stop_condition.stop_time))
                .min(load.stop_condition.max_requests);
            load.shard.requests_among(due).saturating_sub(ended)
        }
        ArrivalModel::Closed => progress.control.in_flight() as u64,
    }
}

impl SearchTarget for LocalDriver {
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation {
        self.timed(|rig| rig.try_offer(offer, &mut LoadStats::default()))
    }

    fn rest(&mut self, time: Duration) -> bool {
        self.stop.sleep(time)
    }
}

impl ExperimentTarget for LocalDriver {
    fn run_experiment(&mut self, experiment: &Experiment) -> ExperimentObservation {
        if self.stop.is_stopped() {
            return ExperimentObservation { interrupted: true, ..ExperimentObservation::default() };
        }
        let clock = RunClock::start();
        let watched = match self.try_experiment(experiment) {
            Ok(watched) => watched,
            Err(SessionError::Impossible(why)) => {
                ExperimentObservation { impossible_reason: Some(why), ..ExperimentObservation::default() }
            }
            Err(error) => ExperimentObservation {
                invalid_reason: Some(self.describe_error(&error)),
                ..ExperimentObservation::default()
            },
        };
        self.sessions.close_varied_session();
        ExperimentObservation {
            took: Duration::from_nanos(clock.now()),
            interrupted: self.stop.is_stopped(),
            ..watched
        }
    }

    fn pause(&mut self, time: Duration) -> bool {
        self.stop.sleep(time)
    }
}

impl TargetDriver for LocalDriver {
    fn close_connections(&mut self) {
        self.sessions.close_all();
    }

    fn max_clients(&self) -> u32 {
        self.max_busy_clients()
    }

    fn calibrate(&mut self) -> Calibration {
        let clock = RunClock::start();
        let found = if self.stop.is_stopped() {
            None
        } else {
            self.measure_generator().filter(|(rate, _)| *rate > 0.0)
        };
        let how = match found {
            Some((rate, senders)) => format!(
                "{:.0} % of {rate:.0} requests/s, the highest rate that {senders} sending thread(s) reached against a test \
                 server on this machine's loopback, with plain HTTP/1.1 and keep-alive; TLS, HTTP/2 and new connections \
                 lower this rate",
                100.0 * SHARE
            ),
            None => "the generator's own limit could not be measured, but each trial checks whether the generator keeps up"
                .to_owned(),
        };
        Calibration {
            max_rate: found.map(|(rate, _)| rate * SHARE),
            explanation: how,
            took: Duration::from_nanos(clock.now()),
            interrupted: self.stop.is_stopped(),
        }
    }
}
