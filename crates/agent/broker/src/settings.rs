//! The settings of one cloud's broker, with the reason for each default.

use std::time::Duration;

use seawall_core::LifetimeFloor;

/// The limits and times of one broker.
#[derive(Clone, Copy, Debug)]
pub struct BrokerSettings {
    /// The least remaining lifetime of credentials in responses, and the remaining lifetime at which renewal starts.
    pub lifetime_floor: LifetimeFloor,
    /// The maximum number of cached credentials of one pod. To cache another credential, the broker evicts the least recently
    /// used credential. A pod can request any number of different scopes and audiences, but a normal pod uses only a few.
    pub principals_per_pod: usize,
    /// The number of cached credentials that all pods share. A pod with at least [`BrokerSettings::guaranteed_principals_per_pod`] may
    /// have at most as many as are free of these. Then it gets another one in the place of its own least recently used ones. Each pod by
    /// itself is bounded, but one tenant can have dozens of pods on a node. A credential with the longest audience (2 KiB, which is in
    /// the token, too) takes about 8 KiB, so these take 4 MiB, and 6 MiB with [`BrokerSettings::principals_shared_beyond`]. The
    /// guaranteed ones of 110 hostile pods take 7 MiB. A principal whose lease was dropped without use counts, too.
    pub shared_principals: usize,
    /// The number of further cached credentials beyond which a pod in a full room also pays for a credential that another pod has
    /// already.
    pub principals_shared_beyond: usize,
    /// The number of credentials that each pod can cache, however many the others have.
    pub guaranteed_principals_per_pod: usize,
    /// The sustained rate at which one pod can request credentials that are not cached, per second. Requests for cached
    /// credentials have no limit.
    pub misses_per_second_per_pod: u32,
    /// The number of requests for uncached credentials that one pod can send at once, beyond
    /// [`BrokerSettings::misses_per_second_per_pod`].
    pub miss_burst_per_pod: u32,
    /// The maximum number of queued calls for requests of one pod. The limiter refuses further calls.
    /// The default equals that of [`BrokerSettings::miss_burst_per_pod`]. More calls would only wait longer and use memory that
    /// all pods share.
    pub queued_calls_per_pod: usize,
    /// The longest time that a call waits in the queue. The time is long, so that a pod's retry finds the queued call and waits
    /// for it. Otherwise each retry would queue a new call.
    /// At one call chain per second, 120 s are enough for one call of each pod of a full node (110 pods).
    pub queue_deadline: Duration,
    /// The time limit for one chain of upstream calls. A renewal has the same limit as a first fetch.
    /// No request waits for a renewal, so a shorter limit for renewals would only discard slow responses.
    pub call_deadline: Duration,
    /// The longest wait of a request for a credential that is not cached, counted from the first waiting request of its pod.
    /// A later request of the pod waits only until the same deadline, so a client that retries does not wait this long at each
    /// try. Google's libraries for Python and Node allow 3 s for a request; Node's library allows 3 s for all its tries together.
    /// If the agent answers within these 3 s, the client reports the agent's refusal instead of a timeout. A busy client process
    /// can use one of the 3 s before it connects, so the default is 2 s. The upstream call continues after the wait, so a later
    /// try finds its result.
    pub max_request_wait: Duration,
    /// The highest rate of call chains, per second. A call chain is the sequence of upstream calls by which a fetch gets a
    /// credential. The rate starts at this value. Throttling halves the rate, and success increases it up to this value.
    pub calls_per_second: f64,
    /// The maximum number of call chains in flight.
    pub calls_at_once: usize,
    /// The first pause between renewal attempts while the upstream fails.
    pub first_retry_delay: Duration,
    /// The longest pause between renewal attempts. Pauses start at [`BrokerSettings::first_retry_delay`] and double.
    pub max_retry_delay: Duration,
}

impl BrokerSettings {
    /// Returns the settings that all clouds share, with a cloud's own floor and its sustainable rate of calls.
    pub const fn for_cloud(floor: LifetimeFloor, calls_per_second: f64) -> Self {
        Self {
            lifetime_floor: floor,
            principals_per_pod: 64,
            shared_principals: 512,
            principals_shared_beyond: 256,
            guaranteed_principals_per_pod: 8,
            misses_per_second_per_pod: 10,
            miss_burst_per_pod: 30,
            queued_calls_per_pod: 30,
            queue_deadline: Duration::from_secs(120),
            call_deadline: Duration::from_secs(5),
            max_request_wait: Duration::from_secs(2),
            calls_per_second,
            calls_at_once: 32,
            first_retry_delay: Duration::from_secs(1),
            max_retry_delay: Duration::from_secs(60),
        }
    }
}
