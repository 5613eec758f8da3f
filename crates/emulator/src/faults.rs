//! How a cloud misbehaves: plain values, and the gate that carries them out for one request after the other.
//!
//! The gate waits and decides; what a refusal looks like in bytes is the cloud's part. A rate limit stands before
//! everything else, as in front of a real service; then a request hangs, is cut off, or is answered (well or badly)
//! after the latency.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall_core::{Clock, Gcra};

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
    pub excess: ExcessAction,
}

/// What a rate limiter does with a request too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExcessAction {
    /// 429 with `Retry-After`.
    Refuse,
    /// Waits in line for its permit: latency without bound, the shape of the identity cliff.
    Queue,
    /// Never answers.
    Hang,
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultDecision {
    /// It is answered.
    Answer,
    /// It is answered, and the body is cut in half.
    Truncate,
    /// It fails with this status, as HTML if told so.
    Fail { status: u16, html: bool },
    /// It is told to come back later.
    Throttle(Duration),
    /// Its connection is closed.
    Close,
}

/// One endpoint's faults at work.
#[derive(Debug, Default)]
pub(crate) struct EndpointFaults {
    /// A lock, because a test's thread changes what the server's reads; never held across an await.
    now: Mutex<Arc<ActiveFaults>>,
}

/// One gate for each endpoint of a cloud.
#[derive(Debug)]
pub(crate) struct FaultInjector<E>(BTreeMap<E, EndpointFaults>);

impl<E: Copy + Ord> FaultInjector<E> {
    /// Gates for `all`, of which those of `faulty` have these faults.
    pub(crate) fn new(all: &[E], faulty: &[E], faults: &Faults) -> Self {
        let gate = |endpoint: &E| {
            let faults = if faulty.contains(endpoint) { faults.clone() } else { Faults::default() };
            (*endpoint, EndpointFaults::new(faults))
        };
        Self(all.iter().map(gate).collect())
    }

    /// What becomes of a request, after the wait that its endpoint's faults ask for.
    pub(crate) async fn decide(&self, endpoint: E, clock: &Clock) -> FaultDecision {
        match self.0.get(&endpoint) {
            Some(gate) => gate.decide(clock).await,
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
    /// The line of [`ExcessAction::Queue`]; this lock is fair, so requests leave in the order they came.
    line: tokio::sync::Mutex<()>,
}

impl EndpointFaults {
    pub(crate) fn new(faults: Faults) -> Self {
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

    /// Waits as long as the faults demand (for ever, for a request that hangs) and decides.
    pub(crate) async fn decide(&self, clock: &Clock) -> FaultDecision {
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
        if happens(faults.garbage_rate) { FaultDecision::Truncate } else { FaultDecision::Answer }
    }
}

impl ActiveFaults {
    /// The wait that a refusal names; nothing once a permit is had.
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

/// Whether an event of this probability happens now. Never for 0, always for 1.
fn happens(rate: f64) -> bool {
    rate > 0.0 && fastrand::f64() < rate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttled(excess: ExcessAction) -> EndpointFaults {
        EndpointFaults::new(Faults {
            throttle: Some(Throttle { per_second: 10, burst: 2, excess }),
            ..Faults::default()
        })
    }

    #[tokio::test]
    async fn no_faults_answer_at_once() {
        let (clock, _hand) = Clock::manual();
        assert_eq!(EndpointFaults::default().decide(&clock).await, FaultDecision::Answer);
    }

    #[tokio::test]
    async fn a_refusing_limit_names_the_wait() {
        let (clock, hand) = Clock::manual();
        let gate = throttled(ExcessAction::Refuse);
        assert_eq!(gate.decide(&clock).await, FaultDecision::Answer);
        assert_eq!(gate.decide(&clock).await, FaultDecision::Answer);
        assert_eq!(gate.decide(&clock).await, FaultDecision::Throttle(Duration::from_millis(100)));
        hand.advance(Duration::from_millis(100));
        assert_eq!(gate.decide(&clock).await, FaultDecision::Answer);
    }

    #[tokio::test]
    async fn a_queueing_limit_lets_everyone_through_at_its_rate() {
        let (clock, hand) = Clock::manual();
        let gate = Arc::new(throttled(ExcessAction::Queue));
        let mut line = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let (gate, clock) = (gate.clone(), clock.clone());
            line.spawn(async move { (gate.decide(&clock).await, clock.now()) });
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
        let broken =
            EndpointFaults::new(Faults { error_rate: 1.0, error_status: Some(503), ..Faults::default() });
        let closed = EndpointFaults::new(Faults { close_rate: 1.0, ..Faults::default() });
        for _ in 0..1000 {
            assert_eq!(broken.decide(&clock).await, FaultDecision::Fail { status: 503, html: false });
            assert_eq!(closed.decide(&clock).await, FaultDecision::Close);
            assert_eq!(EndpointFaults::default().decide(&clock).await, FaultDecision::Answer);
        }
    }
}
