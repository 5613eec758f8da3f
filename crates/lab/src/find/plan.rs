//! What a run is to do, and how its time is shared out between the search and the cause.

use std::time::Duration;

use seawall_search::goal::{Goal, Lateness};
use seawall_search::profile::Profile;
use seawall_search::search::Bounds;

use super::answer::{self, Asked};
use super::resume::{Diverged, seconds};

/// A run, before anything was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What the target is held to.
    pub goal: Goal,
    /// How much may be spent, and how sure it must be for that.
    pub profile: Profile,
    /// `--max-rate`, requests a second.
    pub max_rate: Option<f64>,
    /// Everything together; none: as long as it takes.
    pub budget: Option<Duration>,
    /// Whether to look for the cause.
    pub cause: bool,
    /// What is known of the target without asking it.
    pub target: Target,
    /// How requests are spaced.
    pub arrivals: answer::Arrivals,
    /// What becomes of connections.
    pub connections: answer::Connections,
    /// How long an answer may take; none: for ever.
    pub timeout: Option<Duration>,
    /// What is sent, and which way; none: that is not kept.
    pub sent: Option<answer::Sent>,
}

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its URL without user, password and query; the first of several.
    pub url: String,
    /// How many there are.
    pub count: usize,
    /// Over TLS.
    pub tls: bool,
    /// By a name, and no address.
    pub named: bool,
}

/// Shortest budget: a baseline, a ladder, and a few trials.
pub const LEAST: Duration = Duration::from_secs(20);
/// A quick run with its cause, where nobody says otherwise.
pub const QUICK: Duration = Duration::from_secs(90);
/// What is kept for the cause, as a share of the budget, and no more than this.
const CAUSE: (f64, Duration) = (0.3, Duration::from_secs(60));
/// Of a search, beside what its profile counts: the rested look and the recovery.
const AROUND: Duration = Duration::from_secs(15);

impl Plan {
    /// As it stands in an answer.
    #[must_use]
    pub fn asked(&self) -> Asked {
        Asked {
            target: self.target.url.clone(),
            targets: self.target.count,
            goal: self.goal.into(),
            profile: self.profile.name.to_owned(),
            arrivals: self.arrivals,
            max_rate: self.max_rate,
            connections: self.connections.clone(),
            timeout: self.timeout.map(|timeout| timeout.as_secs_f64()),
            sent: self.sent.clone(),
        }
    }

    /// What a search may offer, of a generator that can send so much.
    #[must_use]
    pub fn bounds(&self, generator: Option<f64>) -> Bounds {
        Bounds { max_rate: self.max_rate, generator, ..Bounds::default() }
    }

    /// What the search may take of so much that is left, so that enough is left for the cause.
    #[must_use]
    pub fn for_search(&self, left: Duration) -> Duration {
        if self.cause { left - left.mul_f64(CAUSE.0).min(CAUSE.1) } else { left }
    }

    /// The profile's times for the cliff and the knee, shortened so that the whole search takes no longer than this.
    #[must_use]
    pub fn shares(&self, search: Option<Duration>) -> (Duration, Duration) {
        let Profile { budget, knee_budget, .. } = self.profile;
        let knee = if self.goal.late.is_some() { knee_budget } else { Duration::ZERO };
        let whole = budget + knee + AROUND;
        let share = search.map_or(1.0, |search| (search.as_secs_f64() / whole.as_secs_f64()).min(1.0));
        (budget.mul_f64(share), knee_budget.mul_f64(share))
    }
}

impl From<Goal> for answer::Goal {
    fn from(goal: Goal) -> Self {
        let late =
            goal.late.map(|Lateness { share, than }| answer::Lateness { share, than: than.as_secs_f64() });
        Self { errors: goal.errors, late }
    }
}

impl answer::Goal {
    /// As a search has it.
    ///
    /// # Errors
    /// [`Diverged::Time`].
    pub fn searched(&self) -> Result<Goal, Diverged> {
        let late = self.late.map(|late| Ok(Lateness { share: late.share, than: seconds(late.than)? }));
        Ok(Goal { errors: self.errors, late: late.transpose()? })
    }
}
