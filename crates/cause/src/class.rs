//! The classes of causes. Their slugs are an interface for scripts.

use std::fmt;

/// A reason why a target reaches its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CauseClass {
    /// The target refuses requests above a rate or above a number per time window.
    RateLimiter,
    /// The target lets requests above a rate hang.
    HangingLimiter,
    /// The target delays requests above a rate.
    DelayingLimiter,
    /// One CPU core or one worker is always busy.
    CpuSaturation,
    /// All workers of a fixed pool are busy.
    PoolSaturation,
    /// The target refuses requests above a number of concurrent requests.
    ConcurrencyCap,
    /// The target serves a fixed number of connections; further ones wait in its backlog or are closed.
    ConnectionCap,
    /// A CPU quota stops the target in each period of 100 ms.
    CfsThrottling,
    /// The cost of new connections is the limit.
    ChurnCost,
    /// The target closes idle or reused connections while requests are on their way.
    KeepAliveRace,
    /// A proxy in between gives up first or retries.
    TimeoutChain,
    /// The target stalls now and then.
    Pauses,
    /// One of several servers gets more requests than it can serve.
    UnevenBalancing,
    /// The DNS lookup of the target's name is slow or fails.
    Dns,
    /// The client has no free local port.
    Ports,
    /// The network bandwidth is the limit.
    Bandwidth,
    /// The load generator, not the target, is the limit.
    Generator,
    /// Another cause, or no evidence for any cause.
    Unknown,
}

impl CauseClass {
    /// All classes.
    pub const ALL: [Self; 18] = [
        Self::RateLimiter,
        Self::HangingLimiter,
        Self::DelayingLimiter,
        Self::CpuSaturation,
        Self::PoolSaturation,
        Self::ConcurrencyCap,
        Self::ConnectionCap,
        Self::CfsThrottling,
        Self::ChurnCost,
        Self::KeepAliveRace,
        Self::TimeoutChain,
        Self::Pauses,
        Self::UnevenBalancing,
        Self::Dns,
        Self::Ports,
        Self::Bandwidth,
        Self::Generator,
        Self::Unknown,
    ];

    /// Returns the name in reports and in `--help`.
    #[must_use]
    pub fn slug(self) -> &'static str {
        match self {
            Self::RateLimiter => "rate-limiter",
            Self::HangingLimiter => "hanging-limiter",
            Self::DelayingLimiter => "delaying-limiter",
            Self::CpuSaturation => "cpu-saturation",
            Self::PoolSaturation => "pool-saturation",
            Self::ConcurrencyCap => "concurrency-cap",
            Self::ConnectionCap => "connection-cap",
            Self::CfsThrottling => "cfs-throttling",
            Self::ChurnCost => "churn-cost",
            Self::KeepAliveRace => "keep-alive-race",
            Self::TimeoutChain => "timeout-chain",
            Self::Pauses => "pauses",
            Self::UnevenBalancing => "uneven-balancing",
            Self::Dns => "dns",
            Self::Ports => "ports",
            Self::Bandwidth => "bandwidth",
            Self::Generator => "generator",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for CauseClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.slug())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_slug_of_its_own() {
        let mut slugs: Vec<_> = CauseClass::ALL.iter().map(|class| class.slug()).collect();
        slugs.sort_unstable();
        slugs.dedup();
        assert_eq!(slugs.len(), CauseClass::ALL.len());
    }
}
