//! The numbers of one cloud's broker, each with the reason for its default.

use std::time::Duration;

use seawall_core::Floor;

/// How a broker behaves.
#[derive(Clone, Copy, Debug)]
pub struct BrokerSettings {
    /// When credentials are renewed.
    pub floor: Floor,
    /// Credentials one pod may hold at once. A pod invents scopes and audiences as it likes; a healthy one uses a
    /// handful. Beyond the bound the one unused longest goes.
    pub principals_per_pod: usize,
    /// Credentials not yet held that one pod may ask for: sustained per second, and at once. What is held is never limited.
    pub misses_per_second: u32,
    /// See [`BrokerSettings::misses_per_second`].
    pub misses_at_once: u32,
    /// Calls that requests of one pod may have queued; further ones are refused. As many as may be asked for at once: more
    /// would only wait longer, in memory that is everybody's.
    pub queued_per_pod: usize,
    /// How long a call waits in the queue for its turn. Long enough for a pod's retries to find it there and not begin at the
    /// end again, a full node's second credentials at one chain a second included.
    pub queue_deadline: Duration,
    /// How long one chain of upstream calls may take. A refresh has the same time as a first fetch: no request waits
    /// for it, so hurrying it would only lose slow answers.
    pub call_deadline: Duration,
    /// How long requests wait for a credential not yet held, counted from the first that waits: one that comes later waits for
    /// what is left, so that the tries of one client wait once and not each. Google's libraries for Python and Node give a
    /// request 3 s, Node's all its tries together: one that is answered in time, and whose next tries are answered at once,
    /// shows our sentence instead of a timeout. A busy process has used up to a second of them before it connects. The call
    /// goes on, so a later try finds what the first one fetched.
    pub max_wait: Duration,
    /// Chains started per second at the start and at most; throttling halves the rate, success grows it.
    pub calls_per_second: f64,
    /// Chains under way at once.
    pub calls_at_once: usize,
    /// Waits between tries to renew while the upstream fails.
    pub retry_first: Duration,
    /// See [`BrokerSettings::retry_first`].
    pub retry_ceiling: Duration,
}

impl BrokerSettings {
    /// What is the same for every cloud, beside what a cloud decides: its floor, and how many calls a second it stands.
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
