//! What is tried out to tell causes apart: a load, and what is different about it from the load of the search.

use std::time::Duration;

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// For whoever reads the report: "row of bursts".
    pub name: &'static str,
    /// What is sent.
    pub load: ExperimentLoad,
    /// In what it differs from what the search sent.
    pub variation: Variation,
    /// Sending ends early once so many requests are without an answer: more of them would say nothing more.
    pub most_in_flight: usize,
    /// How long what is outstanding at the end of the load is waited for; then it is closed, and is [`crate::watched::ObservedOutcome::Unanswered`].
    pub drain: Duration,
}

/// Requests, and when.
#[derive(Debug, Clone, PartialEq)]
pub enum ExperimentLoad {
    /// At a rate.
    Rate {
        /// Requests a second.
        rate: f64,
        /// For how long.
        lasts: Duration,
        /// How they are spaced.
        spacing: RequestSpacing,
    },
    /// From clients each of which sends again as soon as it has its answer.
    Clients {
        /// How many.
        clients: usize,
        /// For how long at most.
        lasts: Duration,
        /// How many requests at most: against a target that refuses, clients without a bound send as fast as they can.
        requests: u64,
    },
    /// So many at one instant, again and again. Nothing is sent before the first for [`ExperimentLoad::Bursts::quiet`].
    Bursts {
        /// Requests of each.
        size: u64,
        /// How many.
        times: u64,
        /// From the begin of one to the begin of the next.
        every: Duration,
        /// Silence before the first.
        quiet: Duration,
    },
}

/// How the requests of a rate are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSpacing {
    /// At equal distances.
    Constant,
    /// By chance, as those of many users are.
    Poisson,
}

/// In what an experiment differs. [`Variation::NONE`] is what the search sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Variation {
    /// Whether connections are used again; none leaves it as it is.
    pub keep_alive: Option<bool>,
    /// Most connections; none leaves it as it is.
    pub connections: Option<usize>,
    /// Connections that are opened before the load and carry nothing, until it is over.
    pub held: usize,
    /// HEAD in place of the method, where that is GET.
    pub head: bool,
    /// From another source address.
    pub another_source: bool,
    /// To the address that the name has, without looking it up.
    pub literal: bool,
    /// How long an answer may take; none leaves it as it is.
    pub timeout: Option<Duration>,
}

impl Variation {
    /// Nothing is different.
    pub const NONE: Self = Self {
        keep_alive: None,
        connections: None,
        held: 0,
        head: false,
        another_source: false,
        literal: false,
        timeout: None,
    };
}
