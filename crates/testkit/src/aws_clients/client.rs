//! One program's client: what it holds, and what a call of the program makes of it.

use fastrand::Rng;

use super::sdk_rules::{Ended, Missed, Rule};

/// What came of a call of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Credentials with so many seconds left; they may have ended.
    Uses(i64),
    /// The SDK gave the program an error.
    Fails,
}

impl Call {
    /// Whether the program's request can succeed: AWS refuses what has ended.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Uses(left) if left > 0)
    }
}

/// A client of one family at one endpoint.
#[derive(Debug)]
pub struct Client {
    rule: &'static Rule,
    random: Rng,
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    expires: i64,
    /// From when on a call fetches.
    due: i64,
    /// Whether the last fetch brought nothing.
    has_missed: bool,
}

impl Client {
    /// A client that has just been made; what it draws is drawn from this seed.
    pub fn new(rule: &'static Rule, seed: u64) -> Self {
        Self { rule, random: Rng::with_seed(seed), held: None }
    }

    /// By what it refreshes.
    pub fn rule(&self) -> &'static Rule {
        self.rule
    }

    /// Whether a call at `now` begins with a fetch. Then [`Client::fetched`] says what comes of it, else [`Client::kept`].
    pub fn is_due(&self, now: i64) -> bool {
        self.held.is_none_or(|held| now >= held.due)
    }

    /// A call without a fetch.
    pub fn kept(&self, now: i64) -> Call {
        self.held.map_or(Call::Fails, |held| Call::Uses(held.expires - now))
    }

    /// A call whose fetch brought credentials that end at `expires`, or nothing.
    pub fn fetched(&mut self, now: i64, expires: Option<i64>) -> Call {
        match expires {
            Some(expires) => self.takes(now, expires),
            None => self.misses(now),
        }
    }

    fn takes(&mut self, now: i64, expires: i64) -> Call {
        let due = self.rule.due(now, expires, &mut self.random);
        self.held = Some(Held { expires, due, has_missed: false });
        if expires <= now && self.rule.ended == Ended::Fails { Call::Fails } else { self.kept(now) }
    }

    fn misses(&mut self, now: i64) -> Call {
        let Some(held) = &mut self.held else { return Call::Fails };
        let fails = match self.rule.missed {
            Missed::FailsBelow(least) => held.expires - now < least,
            Missed::FailsNext => held.has_missed,
            Missed::Keeps(pause) => {
                held.due = now + self.random.i64(pause.0..=pause.1);
                false
            }
        };
        held.has_missed = true;
        if fails { Call::Fails } else { self.kept(now) }
    }

    /// A whole call; `fetch` is asked only if one is due.
    pub fn call(&mut self, now: i64, fetch: impl FnOnce() -> Option<i64>) -> Call {
        if self.is_due(now) { self.fetched(now, fetch()) } else { self.kept(now) }
    }
}
