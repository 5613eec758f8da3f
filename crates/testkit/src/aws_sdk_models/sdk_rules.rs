//! Refresh rules of a family, for responses and for failed fetches: pure functions of times and random draws.

use fastrand::Rng;

use super::{HOUR, MINUTE};

/// From the least to the most, in seconds, both included; drawn evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniformSeconds(pub i64, pub i64);

impl UniformSeconds {
    /// Always nothing.
    pub const ZERO: Self = Self(0, 0);

    fn draw(self, random: &mut Rng) -> i64 {
        if self.1 <= self.0 { self.0 } else { random.i64(self.0..=self.1) }
    }
}

/// The time for which a valid response is used before the next fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshTiming {
    /// Until less than this is left, so that the first call below it fetches.
    Window(i64),
    /// Until less than this is left, but for an hour at most.
    WindowOrHour(i64),
    /// Until less than a time is left that is drawn anew for each response.
    RandomWindow(UniformSeconds),
    /// Like [`RefreshTiming::WindowOrHour`], but a response with less left is used for a randomly drawn time.
    WindowOrHourReusingShortLived(i64, UniformSeconds),
    /// Until less than `window` is left. If at most `window` plus a drawn part of `stretch` is left at the fetch, the client
    /// assumes an expiry that much later than the fetch.
    WindowWithAssumedExpiry {
        /// The window, in seconds.
        window: i64,
        /// The range of the time beyond the window.
        stretch: UniformSeconds,
    },
    /// Until a random instant between half of the remaining life (at least five minutes) and a minute before the stale time,
    /// which is one second before the end.
    RandomAfterHalfOfRemainingLife,
    /// Until a random instant between fifteen minutes before the end (in an hour at the latest) and a minute before the stale
    /// time, which is one minute before the end.
    RandomInLastQuarterHour,
    /// For this time, whatever the expiry is.
    FixedInterval(i64),
}

/// The treatment of a response that is already expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredCredentialsPolicy {
    /// The call fails.
    Fails,
    /// The response is used, and the next call fetches again.
    UsedOnce,
    /// The response is used for a randomly drawn time.
    Extended(UniformSeconds),
}

/// The treatment of a call whose fetch failed while older credentials are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedFetchPolicy {
    /// The call fails if less than this is left; else it uses the old credentials, and the next call fetches again.
    FailsBelow(i64),
    /// The call uses the old credentials once more; the next call whose fetch fails gets an error.
    FailsOnSecondMiss,
    /// The call uses the old credentials, and no call fetches for a randomly drawn time.
    PausesFetching(UniformSeconds),
}

impl FailedFetchPolicy {
    /// The call fails, whatever is left.
    pub const FAILS: Self = Self::FailsBelow(i64::MAX);
}

/// The refresh rule of a family at one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The time of the next fetch while the response is valid.
    pub refresh_timing: RefreshTiming,
    /// The treatment of an expired response.
    pub expired_policy: ExpiredCredentialsPolicy,
    /// The treatment of a failed fetch.
    pub failed_fetch_policy: FailedFetchPolicy,
}

impl Rule {
    /// Returns the time of the next fetch, after a fetch at `now` that brought credentials which end at `expires`.
    pub(super) fn next_fetch_time(&self, now: i64, expires: i64, random: &mut Rng) -> i64 {
        if expires > now {
            return self.refresh_timing.due(now, expires, random);
        }
        match self.expired_policy {
            ExpiredCredentialsPolicy::Fails | ExpiredCredentialsPolicy::UsedOnce => now,
            ExpiredCredentialsPolicy::Extended(span) => now + span.draw(random),
        }
    }

    /// Returns the window in seconds. A response with more left is refreshed only after an hour, or half of its life.
    pub fn window_seconds(&self) -> i64 {
        match self.refresh_timing {
            RefreshTiming::Window(window)
            | RefreshTiming::WindowOrHour(window)
            | RefreshTiming::WindowOrHourReusingShortLived(window, _) => window,
            RefreshTiming::WindowWithAssumedExpiry { window, .. } => window,
            RefreshTiming::RandomWindow(UniformSeconds(_, most)) => most,
            RefreshTiming::RandomAfterHalfOfRemainingLife => 0,
            RefreshTiming::RandomInLastQuarterHour => 15 * MINUTE,
            RefreshTiming::FixedInterval(every) => every,
        }
    }

    /// Returns the least remaining life that a call uses, in seconds. Each fetch brings credentials with at least `brought` left,
    /// which is more than any window; a call comes up to `late` after its due time.
    pub fn least_life_used_seconds(&self, brought: i64, late: i64) -> i64 {
        match self.refresh_timing {
            RefreshTiming::Window(window)
            | RefreshTiming::WindowOrHour(window)
            | RefreshTiming::WindowOrHourReusingShortLived(window, _) => window.max(1),
            RefreshTiming::RandomWindow(UniformSeconds(least, _)) => least,
            RefreshTiming::WindowWithAssumedExpiry { window, .. } => window,
            RefreshTiming::RandomAfterHalfOfRemainingLife => MINUTE + 1,
            RefreshTiming::RandomInLastQuarterHour => 2 * MINUTE,
            RefreshTiming::FixedInterval(every) => brought - every - late,
        }
    }
}

impl RefreshTiming {
    fn due(self, now: i64, expires: i64, random: &mut Rng) -> i64 {
        // Of the seconds with less left than a window, the first.
        let below = |window| expires - window + 1;
        match self {
            Self::Window(0) => expires,
            Self::Window(window) => below(window),
            Self::WindowOrHour(0) => expires.min(now + HOUR),
            Self::WindowOrHour(window) => below(window).min(now + HOUR + 1),
            Self::RandomWindow(span) => below(span.draw(random)),
            Self::WindowOrHourReusingShortLived(window, span) if below(window) <= now => {
                now + span.draw(random)
            }
            Self::WindowOrHourReusingShortLived(window, _) => {
                Self::WindowOrHour(window).due(now, expires, random)
            }
            Self::WindowWithAssumedExpiry { window, stretch } => {
                let reach = window + stretch.draw(random);
                let end = if expires <= now + reach { now + reach } else { expires };
                end - window + 1
            }
            Self::RandomAfterHalfOfRemainingLife => {
                let half = now + ((expires - now) / 2).max(5 * MINUTE);
                jittered(half, expires - 1, random)
            }
            Self::RandomInLastQuarterHour => {
                let before = (expires - 15 * MINUTE).min(now + HOUR);
                jittered(before, expires - MINUTE, random)
            }
            Self::FixedInterval(every) => now + every,
        }
    }
}

/// Drawn between `earliest` and a minute before `stale`; at the latest `stale`.
fn jittered(earliest: i64, stale: i64, random: &mut Rng) -> i64 {
    UniformSeconds(earliest, stale - MINUTE).draw(random).min(stale)
}
