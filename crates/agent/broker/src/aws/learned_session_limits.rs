//! Remembers the longest session of each role that refused a longer session. The agent learns the limit of a role from refused
//! calls.
//! So AWS refuses one or two calls per role and day. Without this memory, AWS would refuse a call at each renewal.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use seawall_core::Moment;

use super::validated_names::RoleArn;

/// The durations to request after a refusal: the duration that every AWS role allows (1 h), and the shortest duration that STS
/// issues (15 min).
const SHORTER: [Duration; 2] = [Duration::from_secs(3600), Duration::from_secs(900)];

/// The time after which the agent forgets a limit, because an operator may have changed the role.
const FORGET: Duration = Duration::from_secs(24 * 3600);

/// The maximum number of remembered roles. It far exceeds the number of pods on one node.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct LearnedSessionLimits(Mutex<HashMap<RoleArn, (Duration, Moment)>>);

impl LearnedSessionLimits {
    /// Returns the duration to request: `wanted`, or the role's known limit if the limit is shorter.
    pub(super) fn clamp(&self, role: &RoleArn, wanted: Duration, now: Moment) -> Duration {
        let roles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let learnt = roles.get(role).filter(|(_, since)| now.since(*since) < FORGET);
        learnt.map_or(wanted, |(longest, _)| wanted.min(*longest))
    }

    /// Records that the role allowed `longest` after AWS had refused a longer duration.
    pub(super) fn record_longest(&self, role: &RoleArn, longest: Duration, now: Moment) {
        let mut roles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if roles.len() >= MOST {
            roles.clear();
        }
        roles.insert(role.clone(), (longest, now));
    }
}

/// Returns the next shorter duration to try after `refused`.
pub(super) fn next_shorter_duration(refused: Duration) -> Option<Duration> {
    SHORTER.into_iter().find(|length| *length < refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_is_asked_for_a_day() {
        let (longest, role) =
            (LearnedSessionLimits::default(), RoleArn::parse("arn:aws:iam::123456789012:role/a").unwrap());
        let hours = |n: u64| Duration::from_secs(n * 3600);
        let at = |n: u64| Moment::from_nanos(0) + hours(n);
        assert_eq!(longest.clamp(&role, hours(6), at(0)), hours(6));
        longest.record_longest(&role, hours(1), at(0));
        assert_eq!(longest.clamp(&role, hours(6), at(23)), hours(1));
        assert_eq!(longest.clamp(&role, hours(6), at(24)), hours(6));
    }

    #[test]
    fn an_hour_is_tried_before_a_quarter_of_one() {
        let minutes = |n: u64| Duration::from_secs(n * 60);
        assert_eq!(next_shorter_duration(minutes(360)), Some(minutes(60)));
        assert_eq!(next_shorter_duration(minutes(60)), Some(minutes(15)));
        assert_eq!(next_shorter_duration(minutes(15)), None);
    }
}
