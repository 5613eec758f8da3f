//! The numbers of one cloud's broker, each with the reason for its default.

use std::time::Duration;

use seawall_core::Floor;

/// The limits and times of one broker.
#[derive(Clone, Copy, Debug)]
pub struct BrokerSettings {
    /// The least remaining life of responses, and the remaining life at which renewal starts.
    pub floor: Floor,
    /// The most credentials that one pod may hold at once. A pod invents scopes and audiences as it likes; a healthy one uses a
    /// handful. Above the limit, the broker drops the credential that was unused for the longest time.
    pub principals_per_pod: usize,
    /// The sustained rate at which one pod may ask for credentials that are not cached. Cached credentials are never limited.
    pub misses_per_second: u32,
    /// The burst of such requests beyond [`BrokerSettings::misses_per_second`].
    pub misses_at_once: u32,
    /// The most calls that requests of one pod may have queued; further calls are refused. It equals the burst of misses: more
    /// calls would only wait longer, in memory that all pods share.
    pub queued_per_pod: usize,
    /// The longest wait of a call in the queue. It is long enough for a pod's retries to find the call there instead of starting at
    /// the end again. That includes a full node's second credentials at one chain a second.
    pub queue_deadline: Duration,
    /// The deadline of one chain of upstream calls. A refresh has the same time as a first fetch: no request waits for it, so
    /// hurrying it would only lose slow responses.
    pub call_deadline: Duration,
    /// The longest wait of a request for a credential that is not cached, counted from the first waiting request of its pod. A
    /// later request waits for the rest of that time, so that the tries of one client wait once and not each. Google's libraries
    /// for Python and Node give a request 3 s, Node's for all its tries together. If the agent responds in time, and at once to the
    /// next tries, the client shows our sentence instead of a timeout. A busy process has used up to a second of the 3 s before it
    /// connects. The call continues, so a later try finds what the first one fetched.
    pub max_wait: Duration,
    /// The most call chains started per second, and the initial rate. Throttling halves the rate, success grows it.
    pub calls_per_second: f64,
    /// The most call chains in flight at once.
    pub calls_at_once: usize,
    /// The first pause between renewal attempts while the upstream fails.
    pub retry_first: Duration,
    /// The longest pause between renewal attempts; pauses double from [`BrokerSettings::retry_first`] on.
    pub retry_ceiling: Duration,
}

impl BrokerSettings {
    /// Returns the settings that all clouds share, with a cloud's own floor and its sustainable calls per second.
    pub const fn of(floor: Floor, calls_per_second: f64) -> Self {
        Self {
            floor,
            principals_per_pod: 64,
            misses_per_second: 10,
            misses_at_once: 30,
            queued_per_pod: 30,
            queue_deadline: Duration::from_secs(120),
            call_deadline: Duration::from_secs(5),
            max_wait: Duration::from_secs(2),
            calls_per_second,
            calls_at_once: 32,
            retry_first: Duration::from_secs(1),
            retry_ceiling: Duration::from_secs(60),
        }
    }
}
