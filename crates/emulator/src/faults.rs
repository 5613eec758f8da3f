//! Injected faults of a cloud, and the gate that applies them to each request.
//!
//! The gate waits and decides; each cloud formats the response. A rate limit comes first, as in front of a real service. Then a request
//! hangs, is cut off, or is answered after the latency, successfully or with an error.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall_core::{Clock, Gcra};

/// The faults with their frequencies. The default has no faults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The delay of every response.
    pub latency: Duration,
    /// The largest additional delay, drawn uniformly for each response.
    pub jitter: Duration,
    /// The share of requests (0 to 1) that fail with [`Faults::error_status`].
    pub error_rate: f64,
    /// The status of a failed request; the default is 500.
    pub error_status: Option<u16>,
    /// True if failed requests get an HTML page, as from a load balancer, instead of JSON.
    pub html_errors: bool,
    /// The share of requests (0 to 1) without a response: the connection stays open.
    pub hang_rate: f64,
    /// The share of requests (0 to 1) whose connection is closed without a response.
    pub close_rate: f64,
    /// The share of requests (0 to 1) with status 200 and a truncated JSON body.
    pub truncated_body_rate: f64,
    /// The rate limit, if any.
    pub throttle: Option<Throttle>,
}

/// A rate limit and its action for excess requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// The sustained number of requests per second.
    pub per_second: u32,
    /// The number of requests in a burst.
    pub burst: u32,
    /// The action for excess requests.
    pub excess: ExcessAction,
}

/// The action of a rate limiter for an excess request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExcessAction {
    /// Respond 429 with `Retry-After`.
    Refuse,
    /// Queue the request until it has a permit. The latency is unbounded, as at the limit of a metadata server.
    Queue,
    /// Never respond.
    Hang,
}

/// The decision about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultDecision {
    /// The service responds.
    Answer,
    /// The service responds, but half of the body is missing.
    Truncate,
    /// The request fails with this status, as HTML if `html` is true.
    Fail { status: u16, html: bool },
    /// The request is refused with this wait.
    Throttle(Duration),
    /// The connection is closed.
    Close,
}

/// The faults of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct EndpointFaults {
    /// A mutex, because a test's thread may change the faults; it is never held across an await.
    now: Mutex<Arc<ActiveFaults>>,
}

/// The faults of all endpoints of a cloud.
#[derive(Debug)]
pub(crate) struct FaultInjector<E>(BTreeMap<E, EndpointFaults>);

impl<E: Copy + Ord> FaultInjector<E> {
    /// Creates the faults of `all` endpoints. Those in `faulty` start with these faults.
    pub(crate) fn new(all: &[E], faulty: &[E], faults: &Faults) -> Self {
        let gate = |endpoint: &E| {
            let faults = if faulty.contains(endpoint) { faults.clone() } else { Faults::default() };
            (*endpoint, EndpointFaults::with_faults(faults))
        };
        Self(all.iter().map(gate).collect())
    }

    /// Waits as the endpoint's faults require, and decides about a request.
    pub(crate) async fn delay_and_decide(&self, endpoint: E, clock: &Clock) -> FaultDecision {
        match self.0.get(&endpoint) {
            Some(gate) => gate.delay_and_decide(clock).await,
            None => FaultDecision::Close,
        }
    }

    pub(crate) fn set_faults(&self, endpoint: E, faults: Faults) {
        if let Some(gate) = self.0.get(&endpoint) {
            gate.set_faults(faults);
        }
    }
}

#[derive(Debug, Default)]
struct ActiveFaults {
    faults: Faults,
    limit: Option<Gcra>,
    /// The queue of [`ExcessAction::Queue`]. The mutex is fair, so requests leave in the order of arrival.
    line: tokio::sync::Mutex<()>,
}

impl EndpointFaults {
    pub(crate) fn with_faults(faults: Faults) -> Self {
        let gate = Self::default();
        gate.set_faults(faults);
        gate
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        let limit = faults.throttle.map(|throttle| Gcra::new(throttle.per_second, throttle.burst));
        *self.lock() = Arc::new(ActiveFaults { faults, limit, line: tokio::sync::Mutex::default() });
    }

    fn lock(&self) -> MutexGuard<'_, Arc<ActiveFaults>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as the faults require and decides. A request that hangs waits for ever.
    pub(crate) async fn delay_and_decide(&self, clock: &Clock) -> FaultDecision {
        let weather = self.lock().clone();
        if let Some(wait) = weather.limited(clock).await {
            return FaultDecision::Throttle(wait);
        }
        let faults = &weather.faults;
        if happens(faults.hang_rate) {
            std::future::pending::<()>().await;
        }
        if happens(faults.close_rate) {
            return FaultDecision::Close;
        }
        clock.sleep(faults.latency.saturating_add(faults.jitter.mul_f64(fastrand::f64()))).await;
        if happens(faults.error_rate) {
            return FaultDecision::Fail {
                status: faults.error_status.unwrap_or(500),
                html: faults.html_errors,
            };
        }
        if happens(faults.truncated_body_rate) { FaultDecision::Truncate } else { FaultDecision::Answer }
    }
}

impl ActiveFaults {
    /// Returns the wait in a refusal; none after a permit was taken.
    async fn limited(&self, clock: &Clock) -> Option<Duration> {
        let (limit, throttle) = (self.limit.as_ref()?, self.faults.throttle?);
        match throttle.excess {
            ExcessAction::Refuse => limit.take(clock.now()).err(),
            ExcessAction::Hang => {
                if limit.take(clock.now()).is_err() {
                    std::future::pending::<()>().await;
                }
                None
            }
            ExcessAction::Queue => {
                let _turn = self.line.lock().await;
                while let Err(wait) = limit.take(clock.now()) {
                    clock.sleep(wait).await;
                }
                None
            }
        }
    }
}

/// Draws an event with this probability: never for 0, always for 1.
fn happens(rate: f64) -> bool {
    rate > 0.0 && fastrand::f64() < rate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttled(excess: ExcessAction) -> EndpointFaults {
        EndpointFaults::with_faults(Faults {
            throttle: Some(Throttle { per_second: 10, burst: 2, excess }),
            ..Faults::default()
        })
    }

    #[tokio::test]
    async fn no_faults_answer_at_once() {
        let (clock, _hand) = Clock::manual();
        assert_eq!(EndpointFaults::default().delay_and_decide(&clock).await, FaultDecision::Answer);
    }

    #[tokio::test]
    async fn a_refusing_limit_names_the_wait() {
        let (clock, hand) = Clock::manual();
        let gate = throttled(ExcessAction::Refuse);
        assert_eq!(gate.delay_and_decide(&clock).await, FaultDecision::Answer);
        assert_eq!(gate.delay_and_decide(&clock).await, FaultDecision::Answer);
        assert_eq!(gate.delay_and_decide(&clock).await, FaultDecision::Throttle(Duration::from_millis(100)));
        hand.advance(Duration::from_millis(100));
        assert_eq!(gate.delay_and_decide(&clock).await, FaultDecision::Answer);
    }

    #[tokio::test]
    async fn a_queueing_limit_lets_everyone_through_at_its_rate() {
        let (clock, hand) = Clock::manual();
        let gate = Arc::new(throttled(ExcessAction::Queue));
        let mut line = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let (gate, clock) = (gate.clone(), clock.clone());
            line.spawn(async move { (gate.delay_and_decide(&clock).await, clock.now()) });
        }
        let mut answered = Vec::new();
        while answered.len() < 5 {
            match line.try_join_next() {
                Some(done) => answered.push(done.unwrap().1.as_nanos() / 1_000_000),
                None if hand.next_deadline().is_some() => hand.advance(Duration::from_millis(10)),
                None => tokio::task::yield_now().await,
            }
        }
        assert_eq!(answered, [0, 0, 100, 200, 300]);
    }

    #[tokio::test]
    async fn a_sure_fault_always_happens_and_an_impossible_one_never() {
        let (clock, _hand) = Clock::manual();
        let broken = EndpointFaults::with_faults(Faults {
            error_rate: 1.0,
            error_status: Some(503),
            ..Faults::default()
        });
        let closed = EndpointFaults::with_faults(Faults { close_rate: 1.0, ..Faults::default() });
        for _ in 0..1000 {
            assert_eq!(
                broken.delay_and_decide(&clock).await,
                FaultDecision::Fail { status: 503, html: false }
            );
            assert_eq!(closed.delay_and_decide(&clock).await, FaultDecision::Close);
            assert_eq!(EndpointFaults::default().delay_and_decide(&clock).await, FaultDecision::Answer);
        }
    }
}
