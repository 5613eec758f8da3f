//! What a run is to do, and how its time is shared out between the search and the cause.

use std::time::Duration;

use seawall_search::goal::{LatencyGoal, SearchGoal};
use seawall_search::profile::Profile;
use seawall_search::search::RateBounds;

use super::answer::{self, FindConfig};
use super::resume::{ResumeError, seconds};

/// A run, before anything was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct FindPlan {
    /// What the target is held to.
    pub goal: SearchGoal,
    /// How much may be spent, and how sure it must be for that.
    pub profile: Profile,
    /// `--max-rate`, requests a second.
    pub max_rate: Option<f64>,
    /// Everything together; none: as long as it takes.
    pub budget: Option<Duration>,
    /// Whether to look for the cause.
    pub looks_for_cause: bool,
    /// What is known of the target without asking it.
    pub target: TargetInfo,
    /// How requests are spaced.
    pub arrivals: answer::ReportedArrivals,
    /// What becomes of connections.
    pub connections: answer::ConnectionPolicy,
    /// How long an answer may take; none: for ever.
    pub timeout: Option<Duration>,
    /// What is sent, and which way; none: that is not kept.
    pub fingerprint: Option<answer::RequestFingerprint>,
}

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetInfo {
    /// Its URL without user, password and query; the first of several.
    pub url: String,
    /// How many there are.
    pub count: usize,
    /// Over TLS.
    pub uses_tls: bool,
    /// By a name, and no address.
    pub has_host_name: bool,
}

/// Shortest budget: a baseline, a ramp, and a few trials.
pub const MIN_BUDGET: Duration = Duration::from_secs(20);
/// A quick run with its cause, where nobody says otherwise.
pub const QUICK_BUDGET: Duration = Duration::from_secs(90);
/// What is kept for the cause, as a share of the budget, and no more than this.
const CAUSE: (f64, Duration) = (0.3, Duration::from_secs(60));
/// Of a search, beside what its profile counts: the rested look and the recovery.
const AROUND: Duration = Duration::from_secs(15);

impl FindPlan {
    /// As it stands in an answer.
    #[must_use]
    pub fn config(&self) -> FindConfig {
        FindConfig {
            target: self.target.url.clone(),
            target_count: self.target.count,
            slo: self.goal.into(),
            effort: self.profile.name.to_owned(),
            arrivals: self.arrivals,
            max_rate: self.max_rate,
            connections: self.connections.clone(),
            timeout_seconds: self.timeout.map(|timeout| timeout.as_secs_f64()),
            request_fingerprint: self.fingerprint.clone(),
        }
    }

    /// What a search may offer, of a generator that can send so much.
    #[must_use]
    pub fn bounds(&self, generator: Option<f64>) -> RateBounds {
        RateBounds { max_rate: self.max_rate, generator, ..RateBounds::default() }
    }

    /// What the search may take of so much that is left, so that enough is left for the cause.
    #[must_use]
    pub fn search_budget(&self, left: Duration) -> Duration {
        if self.looks_for_cause { left - left.mul_f64(CAUSE.0).min(CAUSE.1) } else { left }
    }

    /// The profile's times for the cliff and the knee, shortened so that the whole search takes no longer than this.
    #[must_use]
    pub fn split_budget(&self, search: Option<Duration>) -> (Duration, Duration) {
        let Profile { budget, knee_budget, .. } = self.profile;
        let knee = if self.goal.late.is_some() { knee_budget } else { Duration::ZERO };
        let whole = budget + knee + AROUND;
        let share = search.map_or(1.0, |search| (search.as_secs_f64() / whole.as_secs_f64()).min(1.0));
        (budget.mul_f64(share), knee_budget.mul_f64(share))
    }
}

impl FindPlan {
    /// Whether so much time for the search is less than its profile asks for.
    #[must_use]
    pub fn shortens_search(&self, search: Option<Duration>) -> bool {
        self.split_budget(search).0 < self.profile.budget
    }
}

impl From<SearchGoal> for answer::ReportedGoal {
    fn from(goal: SearchGoal) -> Self {
        let late = goal.late.map(|LatencyGoal { share, than }| answer::ReportedLatencyGoal {
            max_late_ratio: share,
            limit_seconds: than.as_secs_f64(),
        });
        Self { max_error_ratio: goal.errors, latency: late }
    }
}

impl answer::ReportedGoal {
    /// As a search has it.
    ///
    /// # Errors
    /// [`ResumeError::InvalidTime`].
    pub fn searched(&self) -> Result<SearchGoal, ResumeError> {
        let late = self
            .latency
            .map(|late| Ok(LatencyGoal { share: late.max_late_ratio, than: seconds(late.limit_seconds)? }));
        Ok(SearchGoal { errors: self.max_error_ratio, late: late.transpose()? })
    }
}
