//! A credential with its validity, the instant its refresh is due, and the floor its cloud's SDKs need.

use std::time::Duration;

use crate::clock::Moment;

/// The least remaining life of a credential in a response, per cloud.
///
/// `hard` is the floor: the largest refresh window of any of its SDKs plus a margin. `target` is where renewal
/// starts. Each cloud defines its own floor as a constant in its module of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Least remaining life any answer may carry.
    pub hard: Duration,
    /// Remaining life at which renewal starts.
    pub target: Duration,
}

/// Above this lifetime SDKs refresh at half-life (MSAL), so the agent renews at half-life, too.
const LONG_LIFE: Duration = Duration::from_secs(2 * 3600);

/// The part of the wait over which renewals are spread.
const SPREAD: f64 = 0.04;

impl Floor {
    /// Returns the moment at which to renew a credential that was issued at `issued` and lives for `lifetime`.
    ///
    /// `draw` in 0..=1 spreads renewals over the last [`SPREAD`] of the wait, so that credentials fetched together are
    /// not renewed together: two minutes for an hour's life. A wider spread would cost calls: with one of 4 %, a
    /// credential of one hour is renewed at most 30 times a day. A credential too short for the target is
    /// renewed at half of its life: the best that can be done for it.
    pub fn refresh_at(&self, issued: Moment, lifetime: Duration, draw: f64) -> Moment {
        let half = lifetime / 2;
        let ahead = if lifetime > LONG_LIFE { half } else { self.target.min(half) };
        let wait = lifetime.saturating_sub(ahead);
        issued + wait.mul_f64(1.0 - SPREAD * draw.clamp(0.0, 1.0))
    }

    /// Returns the moment from which a due renewal outranks everything else: half of the way from `refresh_at` to the floor. A
    /// full node (110 pods) at one call a second is renewed in what is left, two minutes of an hour's credential.
    /// A credential that cannot be kept above the floor is urgent from `refresh_at` on.
    pub fn urgent_at(&self, refresh_at: Moment, expires: Moment) -> Moment {
        refresh_at + expires.saturating_sub(self.hard).since(refresh_at) / 2
    }

    /// True if renewal can keep a credential of this lifetime above the hard floor.
    pub fn is_reachable_with(&self, lifetime: Duration) -> bool {
        lifetime / 2 >= self.hard
    }
}

/// A credential and its times.
#[derive(Debug)]
pub struct Lease<V> {
    /// The credential.
    pub value: V,
    /// The moment at which the upstream issued the credential.
    pub issued: Moment,
    /// The moment at which the credential expires.
    pub expires: Moment,
    /// The moment at which renewal is due.
    pub refresh_at: Moment,
}

impl<V> Lease<V> {
    /// Life left at `now`; zero once expired.
    pub fn remaining(&self, now: Moment) -> Duration {
        self.expires.since(now)
    }

    /// True while a response can carry the credential: until one second before it expires.
    ///
    /// Responses state life in whole seconds, rounded down, and clients refuse 0: Go's `compute/metadata` and `oauth2/google`
    /// call an `expires_in` of 0 an incomplete token. So the last second of a credential does not count.
    pub fn is_valid(&self, now: Moment) -> bool {
        self.remaining(now) >= Duration::from_secs(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: Floor = Floor { hard: Duration::from_secs(6 * 60), target: Duration::from_secs(10 * 60) };
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn an_hour_is_renewed_with_at_least_the_target_left() {
        for draw in [0.0, 0.3, 1.0] {
            let at = FLOOR.refresh_at(Moment::from_nanos(0), HOUR, draw);
            let left = (Moment::from_nanos(0) + HOUR).since(at);
            assert!(left >= FLOOR.target, "{left:?}");
            assert!(left <= Duration::from_secs(12 * 60), "{left:?}");
        }
    }

    #[test]
    fn the_last_second_is_no_life_because_it_would_be_stated_as_none() {
        let start = Moment::from_nanos(0);
        let lease = Lease { value: (), issued: start, expires: start + HOUR, refresh_at: start };
        let at = |left| start + (HOUR - left);
        assert!(lease.is_valid(at(Duration::from_secs(1))));
        assert!(!lease.is_valid(at(Duration::from_millis(999))));
        assert!(!lease.is_valid(start + 2 * HOUR));
    }

    #[test]
    fn a_long_life_is_renewed_by_half_and_a_short_one_by_half() {
        let start = Moment::from_nanos(0);
        assert_eq!(FLOOR.refresh_at(start, 8 * HOUR, 0.0), start + 4 * HOUR);
        let short = Duration::from_secs(300);
        assert_eq!(FLOOR.refresh_at(start, short, 0.0), start + short / 2);
        assert!(!FLOOR.is_reachable_with(short));
        assert!(FLOOR.is_reachable_with(HOUR));
    }

    #[test]
    fn a_renewal_is_urgent_half_of_the_way_to_the_floor_and_below_it_at_once() {
        let start = Moment::from_nanos(0);
        let minutes = |n: u64| start + Duration::from_secs(n * 60);
        assert_eq!(FLOOR.urgent_at(minutes(50), minutes(60)), minutes(52));
        assert_eq!(FLOOR.urgent_at(minutes(55), minutes(60)), minutes(55));
    }
}
