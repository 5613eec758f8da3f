//! Defines the errors of calls to the API server, and the delays before a retry.
//!
//! Error messages are for operators. From a response, an error message quotes only the text of the `Status` object.

use std::error::Error;
use std::time::Duration;

use seawall_core::Backoff;
use serde::Deserialize;

use crate::timeouts::KubeTimeouts;

/// The reason why a call to the API server failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeError {
    /// The client cannot connect, or the connection broke.
    #[error("the API server does not answer: {0}")]
    Unreachable(String),
    /// The client cannot read its own credentials, so it sent no request.
    #[error("{0}")]
    Credentials(String),
    /// The API server sent no response in time.
    #[error("the API server did not answer within {0:?}")]
    TimedOut(Duration),
    /// The watch ended before its first event.
    #[error("the API server ended the watch before the first event")]
    WatchEndedBeforeFirstEvent,
    /// Status 401 or 403: the server rejects the client's own credentials.
    #[error("the API server denies access: {0}")]
    Forbidden(String),
    /// Status 404. `kind` is the missing object's kind in the plural, if the server reported the kind.
    #[error("not found: {message}")]
    NotFound {
        /// The field `details.kind` of the status.
        kind: String,
        /// The server's message.
        message: String,
    },
    /// Status 409: a conflict with another change or object.
    #[error("conflict: {0}")]
    Conflict(String),
    /// Status 410: the position in a list or watch is too old.
    #[error("the resource version is too old")]
    Expired,
    /// Status 429, with the wait that the server requests.
    #[error("the API server limits the request rate (429)")]
    Throttled(Option<Duration>),
    /// Status 5xx: the server failed.
    #[error("the API server fails ({code}): {message}")]
    Server {
        /// The HTTP status code.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// Any other status below 500: the request itself is wrong.
    #[error("the API server rejects the request ({code}): {message}")]
    Refused {
        /// The HTTP status code.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// The response has an unexpected form.
    #[error("cannot read the API server's answer: {0}")]
    Unreadable(String),
    /// The response or the event exceeds this number of bytes.
    #[error("the API server's answer is larger than {0} bytes")]
    TooLarge(usize),
}

/// A Kubernetes `Status` object: the reason why the API server refuses a request. Source: Kubernetes API conventions, "Response
/// Status Kind".
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct KubeStatus {
    /// The HTTP status code.
    pub code: u16,
    /// `Success` or `Failure`. The final status of an attachment (`kubectl attach`) has this field.
    pub status: String,
    /// The message for users.
    pub message: String,
    /// The part of the status that programs read.
    pub details: Option<KubeStatusDetails>,
}

/// The part of a [`KubeStatus`] that programs read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeStatusDetails {
    /// The kind of the refused object, in the plural, such as `pods`.
    pub kind: String,
    /// The wait that the server requests, in seconds; 0 means that the server requests no wait.
    pub retry_after_seconds: u32,
}

impl KubeError {
    /// True if the API server sent no usable response: it was unreachable, timed out, or ended a watch at once.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::TimedOut(_) | Self::WatchEndedBeforeFirstEvent)
    }

    /// True if the API server responds but refuses this client. Status 5xx is not such a refusal, because a server that fails
    /// can refuse all clients, including the kubelet.
    pub fn is_refusal(&self) -> bool {
        !self.is_unreachable() && !matches!(self, Self::Server { .. })
    }

    /// Creates the error for a connection that cannot be opened or that broke.
    pub fn unreachable(error: &(dyn Error + 'static)) -> Self {
        Self::Unreachable(chain(error))
    }

    /// Creates the error for a status object, from a response or from a watch.
    pub fn from_status(status: &KubeStatus) -> Self {
        let message = shortened(&status.message);
        let details = status.details.as_ref();
        match status.code {
            401 | 403 => Self::Forbidden(message),
            404 => Self::NotFound { kind: details.map(|d| shortened(&d.kind)).unwrap_or_default(), message },
            409 => Self::Conflict(message),
            410 => Self::Expired,
            429 => {
                let seconds = details.map_or(0, |d| d.retry_after_seconds);
                Self::Throttled((seconds > 0).then(|| Duration::from_secs(seconds.into())))
            }
            code @ 500.. => Self::Server { code, message },
            code => Self::Refused { code, message },
        }
    }
}

impl From<http::Error> for KubeError {
    /// Creates the error for a request that cannot be built. The cause is an invalid name from the API server.
    fn from(error: http::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl From<serde_json::Error> for KubeError {
    fn from(error: serde_json::Error) -> Self {
        // Do not use the error's text. It repeats the invalid value, which can be a token.
        let (kind, line, column) = (error.classify(), error.line(), error.column());
        Self::Unreadable(format!("{kind:?} error in JSON at line {line}, column {column}"))
    }
}

/// Returns an error's text with its causes. The outermost text alone is often only "client error".
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    shortened(&text)
}

/// The maximum number of characters that the client keeps of another program's text.
const KEPT: usize = 300;

fn shortened(text: &str) -> String {
    text.chars().take(KEPT).collect()
}

/// The delays between retries: one sequence for an unreachable server, and one for a server that refuses.
///
/// After an outage, the API server responds with 403 and 503 for some seconds, while it loads its rules. The second sequence
/// then starts with a short delay. So the client retries quickly after the first 403 or 503, even after an hour of refused
/// connections.
#[derive(Debug)]
pub struct RetryBackoff {
    absent: Backoff,
    refused: Backoff,
}

impl RetryBackoff {
    /// Creates both sequences at their start.
    pub fn new(patience: &KubeTimeouts) -> Self {
        Self {
            absent: Backoff::doubling(Duration::from_millis(100), patience.max_unreachable_backoff),
            refused: Backoff::doubling(Duration::from_millis(500), patience.max_refused_backoff),
        }
    }

    /// Returns the delay after this failure, with jitter.
    pub fn delay_after(&mut self, failure: &KubeError) -> Duration {
        let draw = fastrand::f64();
        let pause = if failure.is_unreachable() {
            self.absent.next_delay(draw)
        } else {
            self.refused.next_delay(draw)
        };
        match failure {
            // Obey the server's Retry-After, but limit the delay: a wrong value must not stop the client for long.
            KubeError::Throttled(Some(asked)) => pause.max((*asked).min(LONGEST_ASKED)),
            _ => pause,
        }
    }

    /// Restarts both sequences after a success.
    pub fn reset(&mut self) {
        self.absent.reset();
        self.refused.reset();
    }
}

/// The maximum Retry-After that the client obeys.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> KubeError {
        KubeError::from_status(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn statuses_become_reasons() {
        assert!(matches!(status(r#"{"code":403,"message":"no"}"#), KubeError::Forbidden(_)));
        assert!(matches!(status(r#"{"code":401}"#), KubeError::Forbidden(_)));
        assert_eq!(status(r#"{"code":410}"#), KubeError::Expired);
        assert_eq!(
            status(r#"{"code":404,"message":"gone","details":{"kind":"pods"}}"#),
            KubeError::NotFound { kind: "pods".into(), message: "gone".into() }
        );
        assert_eq!(
            status(r#"{"code":429,"details":{"retryAfterSeconds":7}}"#),
            KubeError::Throttled(Some(Duration::from_secs(7)))
        );
        assert_eq!(status(r#"{"code":429}"#), KubeError::Throttled(None));
        assert!(matches!(status(r#"{"code":503}"#), KubeError::Server { code: 503, .. }));
        assert!(matches!(status(r#"{"code":422}"#), KubeError::Refused { code: 422, .. }));
    }

    #[test]
    fn a_foreign_text_is_kept_short() {
        let text = format!(r#"{{"code":403,"message":"{}"}}"#, "x".repeat(100_000));
        let KubeError::Forbidden(kept) = status(&text) else { panic!("forbidden") };
        assert_eq!(kept.len(), KEPT);
    }

    #[test]
    fn the_first_refusal_after_a_long_outage_is_followed_up_quickly() {
        let mut pauses = RetryBackoff::new(&KubeTimeouts::default());
        let nobody = KubeError::Unreachable("refused".into());
        let longest = (0..1000).map(|_| pauses.delay_after(&nobody)).max().unwrap();
        assert!(longest <= Duration::from_millis(3300), "{longest:?}");
        let refusal = KubeError::Forbidden("RBAC is not loaded".into());
        assert!(pauses.delay_after(&refusal) <= Duration::from_millis(550));
    }

    #[test]
    fn a_server_that_asks_for_a_wait_is_given_one_within_reason() {
        let mut pauses = RetryBackoff::new(&KubeTimeouts::default());
        let hour = KubeError::Throttled(Some(Duration::from_secs(3600)));
        assert_eq!(pauses.delay_after(&hour), LONGEST_ASKED);
        assert!(
            pauses.delay_after(&KubeError::Throttled(Some(Duration::from_secs(5)))) >= Duration::from_secs(5)
        );
    }
}
