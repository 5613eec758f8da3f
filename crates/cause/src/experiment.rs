//! Experiments that tell causes apart: a load and its differences from the load of the search.

use std::time::Duration;

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The name in the report, such as "three bursts in a row".
    pub name: &'static str,
    /// The load to send.
    pub load: ExperimentLoad,
    /// The differences from the load of the search.
    pub variation: Variation,
    /// The most requests in flight. Sending stops early at this number, because more requests would show nothing new.
    pub in_flight_cap: usize,
    /// The time to wait for outstanding requests after the load. Then they are closed and count as
    /// [`crate::observed_requests::ObservedOutcome::UnansweredAtEnd`].
    pub drain: Duration,
}

/// A kind of load with its schedule.
#[derive(Debug, Clone, PartialEq)]
pub enum ExperimentLoad {
    /// A load at a rate.
    Rate {
        /// The requests per second.
        rate: f64,
        /// The duration.
        lasts: Duration,
        /// The spacing of the requests.
        spacing: RequestSpacing,
    },
    /// A load from clients. Each client sends its next request as soon as it has a response.
    Clients {
        /// The number of clients.
        clients: usize,
        /// The longest duration.
        lasts: Duration,
        /// The most requests. Without this limit, clients would send as fast as possible to a target that refuses requests.
        requests: u64,
    },
    /// Bursts of simultaneous requests. Nothing is sent for [`ExperimentLoad::Bursts::quiet`] before the first burst.
    Bursts {
        /// The requests of one burst.
        size: u64,
        /// The number of bursts.
        times: u64,
        /// The time from the start of one burst to the start of the next.
        every: Duration,
        /// The silence before the first burst.
        quiet: Duration,
    },
}

/// The spacing of the requests at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSpacing {
    /// Equal distances.
    Constant,
    /// Random distances, like those of many independent users.
    Poisson,
}

/// The differences between an experiment and the load of the search. [`Variation::NONE`] has no difference.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Variation {
    /// Turns connection reuse on or off; none leaves the setting of the search.
    pub keep_alive: Option<bool>,
    /// The most connections; none leaves the setting of the search.
    pub max_connections: Option<usize>,
    /// The number of idle connections that stay open during the load.
    pub held_idle_connections: usize,
    /// True to send HEAD instead of GET.
    pub uses_head_method: bool,
    /// True to send from another source address.
    pub uses_another_source: bool,
    /// True to use the address of the name without a DNS lookup.
    pub skip_dns: bool,
    /// The time limit of a response; none leaves the setting of the search.
    pub timeout: Option<Duration>,
}

impl Variation {
    /// No difference from the load of the search.
    pub const NONE: Self = Self {
        keep_alive: None,
        max_connections: None,
        held_idle_connections: 0,
        uses_head_method: false,
        uses_another_source: false,
        skip_dns: false,
        timeout: None,
    };
}
