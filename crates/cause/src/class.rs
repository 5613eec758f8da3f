//! The causes that are told apart. Their slugs are an interface: scripts read them.

use std::fmt;

/// Why a target can do no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CauseClass {
    /// Refuses what is beyond a rate, or beyond a number in a window of time.
    RateLimiter,
    /// Lets what is beyond a rate hang.
    HangingLimiter,
    /// Delays what is beyond a rate.
    DelayingLimiter,
    /// A core, or a worker, is busy all the time.
    CpuSaturation,
    /// A fixed number of workers are.
    PoolSaturation,
    /// Refuses what is beyond a number of requests at once.
    ConcurrencyCap,
    /// Takes a fixed number of connections, or as many as its backlog has room for.
    ConnectionCap,
    /// A CPU quota stops it in each period of 100 ms.
    CfsThrottling,
    /// New connections are what costs.
    ChurnCost,
    /// Closes idle or used connections while requests are under way to them.
    KeepAliveRace,
    /// Something between gives up first, or tries again.
    TimeoutChain,
    /// Stands still now and then.
    Pauses,
    /// One of several servers gets more than it can do.
    UnevenBalancing,
    /// Looking the name up.
    Dns,
    /// No local port is left.
    Ports,
    /// Bytes a second.
    Bandwidth,
    /// Not the target: what sends the load.
    Generator,
    /// None of these, or nothing that can be said.
    Unknown,
}

impl CauseClass {
    /// All of them.
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

    /// As in reports and in `--help`.
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
