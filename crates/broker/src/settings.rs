//! The broker's numbers, each with the reason for its default.

use std::time::Duration;

use seawall_core::Floor;

/// How the broker behaves.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// When credentials are renewed.
    pub floor: Floor,
    /// The least life of an identity token while the cloud answers. Go's clients believe that every one lives an hour from when
    /// they get it, whatever its `exp` says, and ask again 5 minutes before (cloud.google.com/go/auth,
    /// credentials/idtoken/compute.go; google.golang.org/api/idtoken): with less left than 55 minutes they would use a
    /// dead one.
    pub identity_floor: Duration,
    /// Credentials one pod may hold at once. A pod invents scopes and audiences as it likes; a healthy one uses a
    /// handful. Beyond the bound the one unused longest goes.
    pub principals_per_holder: usize,
    /// Credentials not yet held that one pod may ask for: sustained per second, and at once. What is held is never limited.
    pub misses_per_second: u32,
    /// See [`Settings::misses_per_second`].
    pub misses_at_once: u32,
    /// Calls that requests of one pod may have queued; further ones are refused. As many as may be asked for at once: more
    /// would only wait longer, in memory that is everybody's.
    pub queued_per_holder: usize,
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
    pub wait: Duration,
    /// Chains started per second at the start and at most; throttling halves the rate, success grows it.
    pub calls_per_second: f64,
    /// Chains under way at once.
    pub calls_at_once: usize,
    /// Waits between tries to renew while the upstream fails.
    pub retry_first: Duration,
    /// See [`Settings::retry_first`].
    pub retry_ceiling: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            floor: Floor::GOOGLE,
            identity_floor: Duration::from_secs(55 * 60),
            principals_per_holder: 64,
            misses_per_second: 10,
            misses_at_once: 30,
            queued_per_holder: 30,
            queue_deadline: Duration::from_secs(120),
            call_deadline: Duration::from_secs(5),
            wait: Duration::from_secs(2),
            // A node full of pods (the kubelet's default is 110) is served within some seconds; a third of the 100 exchanges a
            // second that Google's STS allows a project, because there are other nodes.
            calls_per_second: 32.0,
            calls_at_once: 32,
            retry_first: Duration::from_secs(1),
            retry_ceiling: Duration::from_secs(60),
        }
    }
}
