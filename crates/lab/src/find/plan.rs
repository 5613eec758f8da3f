//! The plan of a run, and the division of its time between the search and the search for the cause.

use std::time::Duration;

use seawall_search::goal::{LatencyGoal, SearchGoal};
use seawall_search::search::RateBounds;
use seawall_search::search_profile::Profile;

use super::find_report::{self, FindConfig};
use super::resume::{ResumeError, duration_from_seconds};

/// The plan of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct FindPlan {
    /// The goal that the target must keep.
    pub goal: SearchGoal,
    /// The effort: the time budgets and the required certainty.
    pub profile: Profile,
    /// The highest allowed rate in requests per second (`--max-rate`).
    pub max_rate: Option<f64>,
    /// The time budget of the whole run. `None`: the run takes as long as it needs.
    pub budget: Option<Duration>,
    /// True if the run looks for the cause.
    pub looks_for_cause: bool,
    /// The facts about the target that are known before the run.
    pub target_info: TargetInfo,
    /// The spacing of requests.
    pub arrivals: find_report::ReportedArrivals,
    /// The use of connections.
    pub connections: find_report::ConnectionPolicy,
    /// The timeout of a response. `None`: no timeout.
    pub timeout: Option<Duration>,
    /// The fingerprint of the requests and their route; none if it is not recorded.
    pub fingerprint: Option<find_report::RequestFingerprint>,
}

/// The target of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetInfo {
    /// The URL of the target without user, password and query; that of the first of several targets.
    pub url: String,
    /// The number of targets.
    pub count: usize,
    /// True if connections use TLS.
    pub uses_tls: bool,
    /// True if the URL has a host name instead of an IP address.
    pub has_host_name: bool,
}

/// The shortest budget: enough for a baseline, a ramp, and a few trials.
pub const MIN_BUDGET: Duration = Duration::from_secs(20);
/// The default budget of a quick run that also looks for the cause.
pub const QUICK_BUDGET: Duration = Duration::from_secs(90);
/// The share of the budget that is reserved for the search for the cause, and its maximum.
const CAUSE: (f64, Duration) = (0.3, Duration::from_secs(60));
/// The time of a search in addition to its profile: the trial after a pause and the recovery.
const AROUND: Duration = Duration::from_secs(15);

impl FindPlan {
    /// Returns the configuration as the report has it.
    #[must_use]
    pub fn config(&self) -> FindConfig {
        FindConfig {
            target: self.target_info.url.clone(),
            target_count: self.target_info.count,
            slo: self.goal.into(),
            effort: self.profile.name.to_owned(),
            arrivals: self.arrivals,
            max_rate: self.max_rate,
            connections: self.connections.clone(),
            timeout_seconds: self.timeout.map(|timeout| timeout.as_secs_f64()),
            request_fingerprint: self.fingerprint.clone(),
        }
    }

    /// Returns the rates that a search can offer with a generator of this capacity.
    #[must_use]
    pub fn bounds(&self, generator: Option<f64>) -> RateBounds {
        RateBounds { max_rate: self.max_rate, generator_max_rate: generator, ..RateBounds::default() }
    }

    /// Returns the part of the remaining time that the search can use. The rest is enough to look for the cause.
    #[must_use]
    pub fn search_budget(&self, left: Duration) -> Duration {
        if self.looks_for_cause { left - left.mul_f64(CAUSE.0).min(CAUSE.1) } else { left }
    }

    /// Returns the times of the profile for the cliff and the knee, shortened so that the whole search takes at most this long.
    #[must_use]
    pub fn split_budget(&self, search: Option<Duration>) -> (Duration, Duration) {
        let Profile { cliff_budget: budget, knee_budget, .. } = self.profile;
        let knee = if self.goal.latency_goal.is_some() { knee_budget } else { Duration::ZERO };
        let whole = budget + knee + AROUND;
        let share = search.map_or(1.0, |search| (search.as_secs_f64() / whole.as_secs_f64()).min(1.0));
        (budget.mul_f64(share), knee_budget.mul_f64(share))
    }
}

impl FindPlan {
    /// Returns true if this time for the search is shorter than the budget of its profile.
    #[must_use]
    pub fn shortens_search(&self, search: Option<Duration>) -> bool {
        self.split_budget(search).0 < self.profile.cliff_budget
    }
}

impl From<SearchGoal> for find_report::ReportedGoal {
    fn from(goal: SearchGoal) -> Self {
        let late = goal.latency_goal.map(|LatencyGoal { max_late_share: share, latency_limit: than }| {
            find_report::ReportedLatencyGoal { max_late_ratio: share, limit_seconds: than.as_secs_f64() }
        });
        Self { max_error_ratio: goal.max_error_share, latency: late }
    }
}

impl find_report::ReportedGoal {
    /// Converts the reported goal into the goal of a search.
    ///
    /// # Errors
    /// [`ResumeError::InvalidTime`].
    pub fn to_search_goal(&self) -> Result<SearchGoal, ResumeError> {
        let late = self.latency.map(|late| {
            Ok(LatencyGoal {
                max_late_share: late.max_late_ratio,
                latency_limit: duration_from_seconds(late.limit_seconds)?,
            })
        });
        Ok(SearchGoal { max_error_share: self.max_error_ratio, latency_goal: late.transpose()? })
    }
}
