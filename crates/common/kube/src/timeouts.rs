//! The time limits for calls to the API server.

use std::time::Duration;

/// The longest waits for the API server, and the longest delays between retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeTimeouts {
    /// Longest wait for a TCP connection.
    pub connect: Duration,
    /// Longest wait for the response to a small request, connection and TLS included, and for the head of a list or watch.
    pub response: Duration,
    /// As `response`, to renew an object of which a valid copy is at hand.
    pub renewal: Duration,
    /// Longest wait for one page of a list.
    pub list_page: Duration,
    /// Longest silence of a watch before it counts as dead. The API server sends a bookmark about once a minute
    /// (kubernetes, apiserver/pkg/storage/cacher), so it is longer than that.
    pub watch_idle: Duration,
    /// Longest delay between retries while the server is unreachable. Short, because a refused connection costs next to nothing
    /// and because pods wait for the end of an outage.
    pub max_unreachable_backoff: Duration,
    /// Longest delay between retries while the API server answers with refusals. Long, because the server works.
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
