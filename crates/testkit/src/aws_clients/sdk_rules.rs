//! What a family makes of an answer, and of none: pure functions of times and of a draw.

use fastrand::Rng;

use super::{HOUR, MINUTE};

/// From the least to the most, in seconds, both included; drawn evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub i64, pub i64);

impl Span {
    /// Always nothing.
    pub const NONE: Self = Self(0, 0);

    fn draw(self, random: &mut Rng) -> i64 {
        if self.1 <= self.0 { self.0 } else { random.i64(self.0..=self.1) }
    }
}

/// How long an answer that still lives is used before the next fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Until less than this is left, so that each call fetches below it.
    Window(i64),
    /// The same, and an hour at the longest.
    WindowOrHour(i64),
    /// Until less than so much is left as is drawn with each answer.
    Drawn(Span),
    /// As [`Life::WindowOrHour`], but an answer with less left is used for as long as is drawn.
    Spaced(i64, Span),
    /// Until less than `window` is left of what it takes for the end; if not more than `window` and what is drawn of `stretch` are left,
    /// it takes for the end what is that much away.
    Stretched {
        /// In seconds.
        window: i64,
        /// How far beyond the window.
        stretch: Span,
    },
    /// Until an instant drawn between half of what is left (five minutes at least) and a minute before its stale time, a second before
    /// the end.
    Halved,
    /// Until an instant drawn between fifteen minutes before the end (in an hour at the latest) and a minute before its stale time, a
    /// minute before the end.
    Quarter,
    /// So long, whatever it is.
    Poll(i64),
}

/// What becomes of an answer that has ended already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The call fails.
    Fails,
    /// It is used, and fetched again at the next call.
    Used,
    /// It is used for as long as is drawn.
    Extended(Span),
}

/// What becomes of a call whose fetch brought nothing, while older credentials are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// It fails if less than this is left of them; else they are used, and the next call fetches again.
    FailsBelow(i64),
    /// They are used once more; the next call that misses fails.
    FailsNext,
    /// They are used, and not fetched again for as long as is drawn.
    Keeps(Span),
}

impl Missed {
    /// It fails whatever is left.
    pub const FAILS: Self = Self::FailsBelow(i64::MAX);
}

/// How a family refreshes at one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// While the answer lives.
    pub life: Life,
    /// When it does not.
    pub ended: Ended,
    /// When there is none.
    pub missed: Missed,
}

impl Rule {
    /// When the next fetch is due after one at `now` that brought what ends at `expires`.
    pub(super) fn due(&self, now: i64, expires: i64, random: &mut Rng) -> i64 {
        if expires > now {
            return self.life.due(now, expires, random);
        }
        match self.ended {
            Ended::Fails | Ended::Used => now,
            Ended::Extended(span) => now + span.draw(random),
        }
    }

    /// It refreshes no answer that has more left than this, in seconds, but for one that has served an hour or half of its life.
    pub fn window(&self) -> i64 {
        match self.life {
            Life::Window(window) | Life::WindowOrHour(window) | Life::Spaced(window, _) => window,
            Life::Stretched { window, .. } => window,
            Life::Drawn(Span(_, most)) => most,
            Life::Halved => 0,
            Life::Quarter => 15 * MINUTE,
            Life::Poll(every) => every,
        }
    }

    /// The least life of what a call uses, in seconds, if each fetch brings credentials with at least `brought` left, which is more than
    /// any window; a call comes up to `late` after the instant that it is due at.
    pub fn least_used(&self, brought: i64, late: i64) -> i64 {
        match self.life {
            Life::Window(window) | Life::WindowOrHour(window) | Life::Spaced(window, _) => window.max(1),
            Life::Drawn(Span(least, _)) => least,
            Life::Stretched { window, .. } => window,
            Life::Halved => MINUTE + 1,
            Life::Quarter => 2 * MINUTE,
            Life::Poll(every) => brought - every - late,
        }
    }
}

impl Life {
    fn due(self, now: i64, expires: i64, random: &mut Rng) -> i64 {
        // Of the seconds with less left than a window, the first.
        let below = |window| expires - window + 1;
        match self {
            Self::Window(0) => expires,
            Self::Window(window) => below(window),
            Self::WindowOrHour(0) => expires.min(now + HOUR),
            Self::WindowOrHour(window) => below(window).min(now + HOUR + 1),
            Self::Drawn(span) => below(span.draw(random)),
            Self::Spaced(window, span) if below(window) <= now => now + span.draw(random),
            Self::Spaced(window, _) => Self::WindowOrHour(window).due(now, expires, random),
            Self::Stretched { window, stretch } => {
                let reach = window + stretch.draw(random);
                let end = if expires <= now + reach { now + reach } else { expires };
                end - window + 1
            }
            Self::Halved => {
                let half = now + ((expires - now) / 2).max(5 * MINUTE);
                jittered(half, expires - 1, random)
            }
            Self::Quarter => {
                let before = (expires - 15 * MINUTE).min(now + HOUR);
                jittered(before, expires - MINUTE, random)
            }
            Self::Poll(every) => now + every,
        }
    }
}

/// Drawn between `earliest` and a minute before `stale`; at the latest `stale`.
fn jittered(earliest: i64, stale: i64, random: &mut Rng) -> i64 {
    Span(earliest, stale - MINUTE).draw(random).min(stale)
}
