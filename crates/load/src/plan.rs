//! The plan of a run: the requests, their times, their transport, and the results to write.
//!
//! All rules of a run are values here, checked by the code that made them; nothing reads flags, files or the terminal. Made by
//! the tool's `attack` and the search methods, used by [`crate::load_session`].

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::clock::{Nanos, nanos};
use crate::control::ErrorBudget;
use crate::origin_resolution::DialOptions;
use crate::record_output::SlowOutputPolicy;
use crate::request::{Origin, RequestFraming};
use crate::request_accounting::AccountingConfig;
use crate::request_source::RequestSource;
use crate::results::ResultFormat;
use crate::schedule::{ArrivalModel, ScheduleShard, StopCondition};
use crate::sender::{SaturationPolicy, SenderConfig};
use crate::variant::VariantProtocol;

/// The plan of a whole run: a session and the load of its one trial.
#[derive(Debug)]
pub struct RunPlan {
    /// The session.
    pub session: SessionSetup,
    /// The trial.
    pub load: LoadSpec,
}

/// The minimum length of an interval. Each interval costs the senders a wake-up and the collector a constant amount of work.
pub const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// The default length of an interval.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// The default for [`LoadSpec::late_send_time_after_end`].
pub const DEFAULT_LATE_SEND_TIME_AFTER_END: Duration = Duration::from_millis(100);

impl RunPlan {
    /// Makes a plan with one thread, up to 64 requests in flight, and the defaults of vegeta for everything else.
    #[must_use]
    pub fn new(source: RequestSource, arrivals: ArrivalModel) -> Self {
        Self { session: SessionSetup::new(source), load: LoadSpec::new(arrivals, 64) }
    }

    /// Returns the two parts. The number of threads is limited to the number of requests in flight.
    #[must_use]
    pub fn split(self) -> (SessionSetup, LoadSpec) {
        let Self { session: setup, load } = self;
        (SessionSetup { max_threads: setup.max_threads.min(load.in_flight_limit.limit), ..setup }, load)
    }
}

/// The settings that stay the same during a session.
#[derive(Debug)]
pub struct SessionSetup {
    /// The source of requests. An input that is read during the run serves one trial.
    pub source: RequestSource,
    /// The transport of requests.
    pub transport: TransportOptions,
    /// The framing of requests.
    pub framing: RequestFraming,
    /// The maximum number of sending threads; no more are started than there are connections to share.
    pub max_threads: usize,
    /// A thread busy-polls if it waits for less than this time, because a sleep ends late. Use 0 under a CPU quota, which busy
    /// polling uses up, and if no CPU is left for the target.
    pub busy_poll_max_wait: Duration,
}

impl SessionSetup {
    /// Makes a session with one thread and the defaults of vegeta for everything else.
    #[must_use]
    pub fn new(source: RequestSource) -> Self {
        Self {
            source,
            transport: TransportOptions::default(),
            framing: RequestFraming::default(),
            max_threads: 1,
            busy_poll_max_wait: Duration::ZERO,
        }
    }
}

/// The load of one trial.
#[derive(Debug, Clone)]
pub struct LoadSpec {
    /// The name of the attack in the records.
    pub name: String,
    /// The times at which requests are due.
    pub arrivals: ArrivalModel,
    /// The index in the session's list of the first request. A trial can so continue where the one before it ended. It has no
    /// effect on an input that is read during the run.
    pub first_request_index: u64,
    /// The part of the arrivals that this run sends. Rates, and the numbers in [`LoadSpec::stop_condition`], are those of the whole.
    pub shard: ScheduleShard,
    /// The start of the schedule, in nanoseconds since the Unix epoch. `None` starts at once.
    pub start_unix_ns: Option<i64>,
    /// The condition that stops sending, apart from the schedule's own end and from [`crate::control::Control`].
    pub stop_condition: StopCondition,
    /// The number of errors after which the trial ends.
    pub error_budget: Option<ErrorBudget>,
    /// The limit of requests in flight, and the treatment of further requests.
    pub in_flight_limit: InFlightLimit,
    /// In a closed loop: the time for which a failed request keeps its place in flight, during which the client sends nothing.
    /// With 0, a target that refuses at once gets requests as fast as this machine can send them.
    pub failure_pause: Duration,
    /// The length of the warm-up. Requests that are due in it are sent, and neither counted nor recorded.
    pub warm_up: Duration,
    /// The time after the end of the schedule in which requests are sent that are late because of this machine. Requests that are
    /// late because the in-flight bound was reached are not sent after the end, so that the run ends on time.
    pub late_send_time_after_end: Duration,
    /// The time for which late responses are awaited after the last request; requests in flight after that time are aborted.
    /// Without a value, each request is awaited until its own timeout.
    pub drain_timeout: Option<Duration>,
    /// True to fill [`crate::stats::LoadStats::outcomes`], which takes some nanoseconds per request.
    pub collect_target_outcomes: bool,
    /// The maximum number of responses of each outcome that are kept in [`crate::stats::LoadStats::response_samples`]. Each costs
    /// a copy of its head and of the start of its body.
    pub max_response_samples_per_outcome: usize,
    /// True to report the outcome of each request ([`crate::stats::LoadStats::completed_requests`]). This takes a hundred bytes
    /// per request and as much time as filling a record.
    pub report_each_request: bool,
    /// The length of an interval of the figures; at least [`MIN_INTERVAL`].
    pub interval: Duration,
}

impl LoadSpec {
    /// Makes a load with the defaults of vegeta.
    #[must_use]
    pub fn new(arrivals: ArrivalModel, in_flight: usize) -> Self {
        Self {
            name: String::new(),
            arrivals,
            first_request_index: 0,
            shard: ScheduleShard::default(),
            start_unix_ns: None,
            stop_condition: StopCondition::default(),
            error_budget: None,
            in_flight_limit: InFlightLimit { limit: in_flight, on_saturation: SaturationPolicy::Queue },
            failure_pause: Duration::ZERO,
            warm_up: Duration::ZERO,
            late_send_time_after_end: DEFAULT_LATE_SEND_TIME_AFTER_END,
            drain_timeout: None,
            collect_target_outcomes: false,
            max_response_samples_per_outcome: 0,
            report_each_request: false,
            interval: DEFAULT_INTERVAL,
        }
    }

    /// Returns the time after which no request is due, in run time, if it is known.
    #[must_use]
    pub fn known_end(&self) -> Option<Nanos> {
        Some(self.end()).filter(|&end| end != Nanos::MAX)
    }

    /// Returns the settings of the send loop, in session time, for a trial that starts at `begins`.
    pub(crate) fn sender_config(
        &self,
        travel: &TransportOptions,
        busy_poll: Duration,
        begins: Nanos,
    ) -> SenderConfig {
        let closed = matches!(self.arrivals, ArrivalModel::Closed);
        SenderConfig {
            trial_start: begins,
            max_in_flight: self.in_flight_limit.limit,
            // In a closed loop nothing is due before there is room: what is dropped then has no end.
            on_saturation: if closed { SaturationPolicy::Queue } else { self.in_flight_limit.on_saturation },
            timeout: travel.timeout.map_or(Nanos::MAX, nanos),
            deadline: travel.deadline.map_or(Nanos::MAX, nanos),
            end: self.end().saturating_add(begins),
            late_send_time_after_end: nanos(self.late_send_time_after_end),
            drain_timeout: self.drain_timeout.map_or(Nanos::MAX, nanos),
            client_pause_after_failure: if closed { nanos(self.failure_pause) } else { 0 },
            max_redirects: travel.max_redirects,
            retries_enabled: travel.retries_enabled,
            busy_poll_max_wait: nanos(busy_poll),
            interval: nanos(self.interval.max(MIN_INTERVAL)),
        }
    }

    /// Returns the end of the schedule, apart from a number of requests or a command that ends it earlier.
    pub(crate) fn end(&self) -> Nanos {
        let planned = match &self.arrivals {
            ArrivalModel::Closed => None,
            ArrivalModel::Open(schedule) => schedule.end(),
        };
        planned.unwrap_or(Nanos::MAX).min(self.stop_condition.stop_time)
    }

    /// Returns the settings of the accounting, in session time, for a trial that starts at `begins`.
    pub(crate) fn accounting_config(&self, begins: Nanos) -> AccountingConfig {
        AccountingConfig {
            trial_start: begins,
            warm_up_end: nanos(self.warm_up).saturating_add(begins),
            schedule_end: self.end().saturating_add(begins),
            is_closed_loop: matches!(self.arrivals, ArrivalModel::Closed),
            collect_target_outcomes: self.collect_target_outcomes,
            max_body: 0,
            cut_body_callback: None,
            max_samples_per_outcome: self.max_response_samples_per_outcome,
            report_each_request: self.report_each_request,
            write_connection_timings: false,
            attack_name: self.name.clone(),
        }
    }
}

/// The limit of requests in flight.
#[derive(Debug, Clone, Copy)]
pub struct InFlightLimit {
    /// The maximum number of requests in flight.
    pub limit: usize,
    /// The treatment of a request for which there is no room.
    pub on_saturation: SaturationPolicy,
}

/// The transport of requests.
#[derive(Debug, Clone)]
pub struct TransportOptions {
    /// The time limit for a complete response, counted from the send. A request also waits at most this time for a connection.
    /// `None` means no limit.
    pub timeout: Option<Duration>,
    /// The time limit for a complete response, counted from the intended instant.
    pub deadline: Option<Duration>,
    /// The maximum number of redirects to follow. `None` takes a redirect as the response.
    pub max_redirects: Option<u32>,
    /// True if a request is sent again after the server closed its idle connection, or reported that it did not process the
    /// request.
    pub retries_enabled: bool,
    /// True if connections are reused, unless a variant says otherwise.
    pub keep_alive: bool,
    /// The maximum number of connections per origin.
    pub max_connections: usize,
    /// The maximum number of idle connections per origin.
    pub max_idle_connections: usize,
    /// The number of requests after which a connection is closed.
    pub max_requests_per_connection: u64,
    /// The age after which a connection carries no more requests.
    pub max_connection_age: Option<Duration>,
    /// The source addresses, used in turn. If empty, the system chooses.
    pub source_addresses: Vec<IpAddr>,
    /// The places to which connections go instead of the targets' own addresses.
    pub dial: DialOptions,
    /// The TLS configuration; `None` if no target needs TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// The HTTP/2 settings.
    pub http2: Http2Options,
}

/// The HTTP/2 settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Options {
    /// True if a TLS handshake may choose HTTP/2; the TLS configuration offers it.
    pub over_tls: bool,
    /// True if requests without TLS use HTTP/2 with prior knowledge (h2c).
    pub prior_knowledge: bool,
    /// The maximum number of streams on one connection.
    pub max_streams: usize,
    /// The number of connections per origin and thread, as long as their streams suffice.
    pub connections_per_origin_and_thread: usize,
}

impl TransportOptions {
    /// True if a connection to this origin can carry several requests at once.
    #[must_use]
    pub fn multiplexes(&self, origin: &Origin) -> bool {
        let wanted = origin.variant.as_ref().and_then(|variant| variant.protocol);
        let run = if origin.tls { self.http2.over_tls } else { self.http2.prior_knowledge };
        wanted.map_or(run, |protocol| protocol == VariantProtocol::Http2)
    }

    /// True if connections to this origin are reused.
    #[must_use]
    pub fn reuses_connections(&self, origin: &Origin) -> bool {
        origin.variant.as_ref().and_then(|variant| variant.keep_alive).unwrap_or(self.keep_alive)
    }
}

impl Default for Http2Options {
    fn default() -> Self {
        Self {
            over_tls: true,
            prior_knowledge: false,
            max_streams: 100,
            connections_per_origin_and_thread: 1,
        }
    }
}

impl Default for TransportOptions {
    fn default() -> Self {
        Self {
            timeout: Some(Duration::from_secs(30)),
            deadline: None,
            max_redirects: Some(10),
            retries_enabled: true,
            keep_alive: true,
            max_connections: usize::MAX,
            max_idle_connections: 10_000,
            max_requests_per_connection: u64::MAX,
            max_connection_age: None,
            source_addresses: Vec::new(),
            dial: DialOptions::default(),
            tls: None,
            http2: Http2Options::default(),
        }
    }
}

/// The output for records.
pub struct ResultsOutput {
    /// The format of the records.
    pub format: ResultFormat,
    /// The output.
    pub output: Box<dyn Write + Send>,
    /// The maximum number of body bytes to keep in a record.
    pub max_body: usize,
    /// The function that is called with the length of each body that is longer than `max_body`, on any thread.
    pub cut_body_callback: Option<fn(u64)>,
    /// True to write the timings of the connection into each record; gob has no place for them.
    pub write_connection_timings: bool,
    /// The behaviour of a sender when the output is slower than the run.
    pub on_slow_output: SlowOutputPolicy,
}
