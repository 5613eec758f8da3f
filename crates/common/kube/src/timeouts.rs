//! How long to wait for the API server.

use std::time::Duration;

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeTimeouts {
    /// For a TCP connection.
    pub connect: Duration,
    /// For the answer to a small request, connection and TLS included, and for the head of a list or watch.
    pub response: Duration,
    /// As `answer`, for renewing something of which a valid copy is at hand.
    pub renewal: Duration,
    /// For one page of a list.
    pub list_page: Duration,
    /// How long a watch may be silent before it counts as dead. The API server sends a bookmark about once a minute
    /// (kubernetes, apiserver/pkg/storage/cacher), so more than that.
    pub watch_idle: Duration,
    /// Longest pause between tries while nobody answers. Short, because a refused connection costs next to nothing
    /// and because pods wait for the end of an outage.
    pub max_unreachable_backoff: Duration,
    /// Longest pause between tries while the API server answers and refuses. Long, because it is at work.
    pub max_refused_backoff: Duration,
}

impl Default for KubeTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            response: Duration::from_secs(5),
            renewal: Duration::from_secs(1),
            list_page: Duration::from_secs(30),
            watch_idle: Duration::from_secs(90),
            max_unreachable_backoff: Duration::from_secs(3),
            max_refused_backoff: Duration::from_secs(30),
        }
    }
}
