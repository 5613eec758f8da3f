//! What was seen of an experiment, request by request. Times are in seconds since the first request was due.

use std::time::Duration;

/// Everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExperimentObservation {
    /// Requests whose outcome is known, in the order in which they were due. Those that were not sent are not among them.
    pub requests: Vec<ObservedRequest>,
    /// Connections that were opened during it.
    pub connections: u64,
    /// Requests that were sent again, silently, because the server had closed an idle connection.
    pub retried: u64,
    /// Name lookups: how long each took, in seconds.
    pub lookups: Vec<f64>,
    /// Held connections ([`crate::experiment::Variation::held`]) that stood when the load was over.
    pub held: usize,
    /// Everything together, with the wait for what was outstanding.
    pub took: Duration,
    /// Why nothing of it can be believed: the generator's fault, in words.
    pub invalid: Option<String>,
    /// Why it could not be carried out at all, in words: this machine has no second address, the target is no name.
    pub impossible: Option<String>,
    /// Somebody wants everything to end.
    pub interrupted: bool,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObservedRequest {
    /// When it was to be sent.
    pub due: f64,
    /// When it was; none if it never had a connection.
    pub sent: Option<f64>,
    /// How long it was due before the generator came to send it: that it came so late is nothing of the target's.
    pub lag: f64,
    /// When it ended, well or badly.
    pub end: f64,
    /// What became of it.
    pub outcome: ObservedOutcome,
    /// Bytes of the answer's body.
    pub bytes: u64,
    /// What carried it; none if nothing did.
    pub carrying_connection: Option<RequestConnection>,
}

/// The connection of a request when it took it on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RequestConnection {
    /// Its number, unique in the experiment.
    pub number: u64,
    /// Requests that it was given before.
    pub earlier_requests_on_connection: u64,
    /// How long it had nothing to carry, in seconds.
    pub idle: f64,
    /// How long connecting its socket took, in seconds.
    pub connect: f64,
    /// How long its TLS handshake took, in seconds; none without TLS.
    pub tls: Option<f64>,
    /// From the first byte of the request to the first of the answer, in seconds; none if there was none.
    pub first_byte: Option<f64>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObservedOutcome {
    /// A good answer.
    Good,
    /// An answer that is not good, with its status: that of an error, or of a wrong answer.
    Status(u16),
    /// It was sent, and no answer came in its time.
    TimedOut,
    /// The experiment ended first.
    Unanswered,
    /// No connection stood in its time.
    Unconnected,
    /// The connection was refused.
    Refused,
    /// The connection was closed or reset under it.
    Cut,
    /// This machine has no port left for a connection.
    NoPort,
    /// The name has no address, or nobody said which.
    NoName,
    /// Anything else that is no answer.
    Failed,
}

impl ObservedRequest {
    /// From the instant when it was due, in seconds.
    #[must_use]
    pub fn response_time(&self) -> f64 {
        self.end - self.due
    }

    /// From the instant when it was sent: without lookup, connect and handshake, in seconds.
    #[must_use]
    pub fn service_time(&self) -> f64 {
        self.end - self.sent.unwrap_or(self.due)
    }
}
