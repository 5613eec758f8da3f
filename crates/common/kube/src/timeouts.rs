//! Defines the time limits for calls to the API server.

use std::time::Duration;

/// The maximum waits for the API server, and the maximum delays between retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeTimeouts {
    /// The maximum wait for a TCP connection.
    pub connect: Duration,
    /// The maximum wait for the response to a small request, including connection and TLS. For a watch, the limit applies to
    /// the head of the response.
    pub response: Duration,
    /// The maximum wait for the response to a token's renewal, while the old token is still valid.
    pub token_renewal: Duration,
    /// The maximum wait for one page of a list.
    pub list_page: Duration,
    /// The maximum silence of a watch before it counts as dead. This time exceeds the interval between bookmarks: the API
    /// server sends a bookmark about once a minute (kubernetes, apiserver/pkg/storage/cacher).
    pub watch_idle: Duration,
    /// The maximum delay between retries while the server is unreachable. The delay is short, because a refused connection
    /// costs almost nothing and pods wait for the end of the outage.
    pub max_unreachable_backoff: Duration,
    /// The maximum delay between retries while the API server responds with errors. The delay is long, because each retry
    /// causes work for the server.
    pub max_refused_backoff: Duration,
}

impl Default for KubeTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            response: Duration::from_secs(5),
            token_renewal: Duration::from_secs(1),
            list_page: Duration::from_secs(30),
            watch_idle: Duration::from_secs(90),
            max_unreachable_backoff: Duration::from_secs(3),
            max_refused_backoff: Duration::from_secs(30),
        }
    }
}
