//! How a cloud misbehaves: plain values, and the decision for one request.
//!
//! A decision is drawn from the values alone; carrying it out (waiting, refusing, hanging) is the server's part.

use std::time::Duration;

/// What goes wrong, and how often. The default is: nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Every answer is held back this long.
    pub latency: Duration,
    /// Up to this much more, drawn evenly for each answer.
    pub jitter: Duration,
    /// Share of requests (0 to 1) that fail with [`Faults::error_status`].
    pub error_rate: f64,
    /// The status of a failed request; 500 when not set.
    pub error_status: Option<u16>,
    /// Failed requests carry an HTML page, as a load balancer in front of the service gives, instead of JSON.
    pub html_errors: bool,
    /// Share of requests (0 to 1) that get no answer: the connection stays open and silent.
    pub hang_rate: f64,
    /// Share of requests (0 to 1) whose connection is closed without an answer.
    pub close_rate: f64,
    /// Share of requests (0 to 1) answered 200 with a body cut off in the middle of its JSON.
    pub garbage_rate: f64,
    /// A limit on the rate.
    pub throttle: Option<Throttle>,
}

/// A rate limit and what happens above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Requests admitted per second, sustained.
    pub per_second: u32,
    /// Requests admitted at once.
    pub burst: u32,
    /// What happens to the others.
    pub excess: Excess,
}

/// What a rate limiter does with a request too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// 429 with `Retry-After`.
    Refuse,
    /// Waits in line for its permit: latency without bound, the shape of the identity cliff.
    Queue,
    /// Never answers.
    Hang,
}
