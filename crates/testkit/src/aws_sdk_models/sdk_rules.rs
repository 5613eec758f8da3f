//! What a family makes of an answer, and of none: pure functions of times and of a draw.

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

/// How long an answer that still lives is used before the next fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshTiming {
    /// Until less than this is left, so that each call fetches below it.
    Window(i64),
    /// The same, and an hour at the longest.
    WindowOrHour(i64),
    /// Until less than so much is left as is drawn with each answer.
    RandomWindow(UniformSeconds),
    /// As [`RefreshTiming::WindowOrHour`], but an answer with less left is used for as long as is drawn.
    WindowOrHourWithPause(i64, UniformSeconds),
    /// Until less than `window` is left of what it takes for the end; if not more than `window` and what is drawn of `stretch` are left,
    /// it takes for the end what is that much away.
    WindowWithExtendedExpiry {
        /// In seconds.
        window: i64,
        /// How far beyond the window.
        stretch: UniformSeconds,
    },
    /// Until an instant drawn between half of what is left (five minutes at least) and a minute before its stale time, a second before
    /// the end.
    HalfOfRemainingLife,
    /// Until an instant drawn between fifteen minutes before the end (in an hour at the latest) and a minute before its stale time, a
    /// minute before the end.
    QuarterHourBeforeEnd,
    /// So long, whatever it is.
    FixedInterval(i64),
}

/// What becomes of an answer that has ended already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredCredentialsPolicy {
    /// The call fails.
    Fails,
    /// It is used, and fetched again at the next call.
    Used,
    /// It is used for as long as is drawn.
    Extended(UniformSeconds),
}

/// What becomes of a call whose fetch brought nothing, while older credentials are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedFetchPolicy {
    /// It fails if less than this is left of them; else they are used, and the next call fetches again.
    FailsBelow(i64),
    /// They are used once more; the next call that misses fails.
    FailsOnSecondMiss,
    /// They are used, and not fetched again for as long as is drawn.
    PausesFetching(UniformSeconds),
}

impl FailedFetchPolicy {
    /// It fails whatever is left.
    pub const FAILS: Self = Self::FailsBelow(i64::MAX);
}

/// How a family refreshes at one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// While the answer lives.
    pub refresh_timing: RefreshTiming,
    /// When it does not.
    pub expired_policy: ExpiredCredentialsPolicy,
    /// When there is none.
    pub failed_fetch_policy: FailedFetchPolicy,
}

impl Rule {
    /// When the next fetch is due after one at `now` that brought what ends at `expires`.
    pub(super) fn next_fetch_time(&self, now: i64, expires: i64, random: &mut Rng) -> i64 {
        if expires > now {
            return self.refresh_timing.due(now, expires, random);
        }
        match self.expired_policy {
            ExpiredCredentialsPolicy::Fails | ExpiredCredentialsPolicy::Used => now,
            ExpiredCredentialsPolicy::Extended(span) => now + span.draw(random),
        }
    }

    /// It refreshes no answer that has more left than this, in seconds, but for one that has served an hour or half of its life.
    pub fn window_seconds(&self) -> i64 {
        match self.refresh_timing {
            RefreshTiming::Window(window)
            | RefreshTiming::WindowOrHour(window)
            | RefreshTiming::WindowOrHourWithPause(window, _) => window,
            RefreshTiming::WindowWithExtendedExpiry { window, .. } => window,
            RefreshTiming::RandomWindow(UniformSeconds(_, most)) => most,
            RefreshTiming::HalfOfRemainingLife => 0,
            RefreshTiming::QuarterHourBeforeEnd => 15 * MINUTE,
            RefreshTiming::FixedInterval(every) => every,
        }
    }

    /// The least life of what a call uses, in seconds, if each fetch brings credentials with at least `brought` left, which is more than
    /// any window; a call comes up to `late` after the instant that it is due at.
    pub fn least_life_used_seconds(&self, brought: i64, late: i64) -> i64 {
        match self.refresh_timing {
            RefreshTiming::Window(window)
            | RefreshTiming::WindowOrHour(window)
            | RefreshTiming::WindowOrHourWithPause(window, _) => window.max(1),
            RefreshTiming::RandomWindow(UniformSeconds(least, _)) => least,
            RefreshTiming::WindowWithExtendedExpiry { window, .. } => window,
            RefreshTiming::HalfOfRemainingLife => MINUTE + 1,
            RefreshTiming::QuarterHourBeforeEnd => 2 * MINUTE,
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
            Self::WindowOrHourWithPause(window, span) if below(window) <= now => now + span.draw(random),
            Self::WindowOrHourWithPause(window, _) => Self::WindowOrHour(window).due(now, expires, random),
            Self::WindowWithExtendedExpiry { window, stretch } => {
                let reach = window + stretch.draw(random);
                let end = if expires <= now + reach { now + reach } else { expires };
                end - window + 1
            }
            Self::HalfOfRemainingLife => {
                let half = now + ((expires - now) / 2).max(5 * MINUTE);
                jittered(half, expires - 1, random)
            }
            Self::QuarterHourBeforeEnd => {
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
