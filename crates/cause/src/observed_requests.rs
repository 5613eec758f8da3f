//! The observation of an experiment, request by request. Times are in seconds since the first request was due.

use std::time::Duration;

/// The observation of an experiment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExperimentObservation {
    /// The requests with a known outcome, in the order in which they were due. Unsent requests are not included.
    pub requests: Vec<ObservedRequest>,
    /// The number of connections opened during the experiment.
    pub opened_connection_count: u64,
    /// The requests that the client silently retried because the server had closed an idle connection.
    pub silent_retry_count: u64,
    /// The duration of each DNS lookup, in seconds.
    pub seconds_of_each_lookup: Vec<f64>,
    /// The held connections ([`crate::experiment::Variation::held_idle_connections`]) that were still open at the end of the load.
    pub held_connections_still_open: usize,
    /// The duration of the experiment, including the wait for outstanding requests.
    pub took: Duration,
    /// The fault of the generator that makes the observation invalid.
    pub invalid_reason: Option<String>,
    /// The reason why the experiment was impossible, such as a machine without a second address.
    pub impossible_reason: Option<String>,
    /// True if the user interrupted the experiment.
    pub interrupted: bool,
}

/// One request of an experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObservedRequest {
    /// The time when the request was due.
    pub due: f64,
    /// The time when the request was sent; none if it never had a connection.
    pub sent: Option<f64>,
    /// The generator's own delay before it handled the request, in seconds. The target did not cause this delay.
    pub generator_lag: f64,
    /// The time when the request ended, with success or failure.
    pub end: f64,
    /// The outcome of the request.
    pub outcome: ObservedOutcome,
    /// The size of the response body in bytes.
    pub bytes: u64,
    /// The connection that carried the request, if any.
    pub carrying_connection: Option<RequestConnection>,
}

/// The state of a connection when it took on a request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RequestConnection {
    /// The number of the connection, unique in the experiment.
    pub number: u64,
    /// The number of earlier requests on the connection.
    pub earlier_requests_on_connection: u64,
    /// The idle time of the connection before the request, in seconds.
    pub idle: f64,
    /// The duration of the TCP connect, in seconds.
    pub connect: f64,
    /// The duration of the TLS handshake, in seconds; none without TLS.
    pub tls_handshake_seconds: Option<f64>,
    /// The time from the first byte of the request to the first byte of the response, in seconds; none without a response.
    pub first_byte: Option<f64>,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObservedOutcome {
    /// A good response.
    Good,
    /// A response that is not good, with its status: an error status, or a wrong answer.
    BadResponse(u16),
    /// The request was sent but got no response in time.
    TimedOut,
    /// The experiment ended before the response came.
    UnansweredAtEnd,
    /// No connection was established in time.
    ConnectTimedOut,
    /// The target refused the connection.
    ConnectionRefused,
    /// The target closed or reset the connection during the request.
    Cut,
    /// This machine had no free local port.
    NoPort,
    /// The name did not resolve.
    NameUnresolved,
    /// Another failure without a response.
    OtherFailureWithoutResponse,
}

impl ObservedRequest {
    /// Returns the time from when the request was due to its end, in seconds.
    #[must_use]
    pub fn response_time(&self) -> f64 {
        self.end - self.due
    }

    /// Returns the time from sending the request to its end, in seconds: without lookup, connect and handshake.
    #[must_use]
    pub fn service_time(&self) -> f64 {
        self.end - self.sent.unwrap_or(self.due)
    }
}
