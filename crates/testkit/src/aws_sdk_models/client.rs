//! One program's client: what it holds, and what a call of the program makes of it.

use fastrand::Rng;

use super::sdk_rules::{ExpiredCredentialsPolicy, FailedFetchPolicy, Rule};

/// The outcome of one call of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// Credentials with so many seconds left; they may have ended.
    UsesCredentials(i64),
    /// The SDK gave the program an error.
    Fails,
}

impl CallOutcome {
    /// Returns true if the request of the program can succeed: AWS refuses expired credentials.
    pub fn is_good(self) -> bool {
        matches!(self, Self::UsesCredentials(left) if left > 0)
    }
}

/// A client of one family at one endpoint.
#[derive(Debug)]
pub struct SimulatedSdkClient {
    rule: &'static Rule,
    random: Rng,
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    expires: i64,
    /// From when on a call fetches.
    due: i64,
    /// True if the last fetch brought no credentials.
    has_missed: bool,
}

impl SimulatedSdkClient {
    /// A client that has just been made; what it draws is drawn from this seed.
    pub fn new(rule: &'static Rule, seed: u64) -> Self {
        Self { rule, random: Rng::with_seed(seed), held: None }
    }

    /// The refresh rule of this client.
    pub fn rule(&self) -> &'static Rule {
        self.rule
    }

    /// Returns true if a call at `now` begins with a fetch. The outcome is then that of
    /// [`SimulatedSdkClient::call_after_fetch`], else that of [`SimulatedSdkClient::call_with_cached`].
    pub fn is_due(&self, now: i64) -> bool {
        self.held.is_none_or(|held| now >= held.due)
    }

    /// A call without a fetch.
    pub fn call_with_cached(&self, now: i64) -> CallOutcome {
        self.held.map_or(CallOutcome::Fails, |held| CallOutcome::UsesCredentials(held.expires - now))
    }

    /// A call whose fetch brought credentials that end at `expires`, or nothing.
    pub fn call_after_fetch(&mut self, now: i64, expires: Option<i64>) -> CallOutcome {
        match expires {
            Some(expires) => self.takes(now, expires),
            None => self.misses(now),
        }
    }

    fn takes(&mut self, now: i64, expires: i64) -> CallOutcome {
        let due = self.rule.next_fetch_time(now, expires, &mut self.random);
        self.held = Some(Held { expires, due, has_missed: false });
        if expires <= now && self.rule.expired_policy == ExpiredCredentialsPolicy::Fails {
            CallOutcome::Fails
        } else {
            self.call_with_cached(now)
        }
    }

    fn misses(&mut self, now: i64) -> CallOutcome {
        let Some(held) = &mut self.held else { return CallOutcome::Fails };
        let fails = match self.rule.failed_fetch_policy {
            FailedFetchPolicy::FailsBelow(least) => held.expires - now < least,
            FailedFetchPolicy::FailsOnSecondMiss => held.has_missed,
            FailedFetchPolicy::PausesFetching(pause) => {
                held.due = now + self.random.i64(pause.0..=pause.1);
                false
            }
        };
        held.has_missed = true;
        if fails { CallOutcome::Fails } else { self.call_with_cached(now) }
    }

    /// A whole call; `fetch` is asked only if one is due.
    pub fn call(&mut self, now: i64, fetch: impl FnOnce() -> Option<i64>) -> CallOutcome {
        if self.is_due(now) { self.call_after_fetch(now, fetch()) } else { self.call_with_cached(now) }
    }
}
