//! A credential with its validity, its renewal time, and the least remaining lifetime that the cloud's SDKs require.

use std::time::Duration;

use crate::clock::Moment;

/// The least remaining lifetime of a credential in a response. Each cloud has its own floor.
///
/// `min_remaining` is the floor: the largest refresh window of any SDK of the cloud, plus a margin. Renewal starts earlier, at
/// `renew_below`. Each cloud defines its floor as a constant in its module of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifetimeFloor {
    /// The least remaining lifetime of a credential in any response.
    pub min_remaining: Duration,
    /// The remaining lifetime at which renewal starts.
    pub renew_below: Duration,
}

/// If a credential's lifetime exceeds this time, the agent renews the credential at half of its lifetime. Microsoft's SDK MSAL
/// uses the same rule.
const LONG_LIFE: Duration = Duration::from_secs(2 * 3600);

/// The last part of the wait until a renewal, as a fraction. The agent spreads renewals over this part.
const SPREAD: f64 = 0.04;

impl LifetimeFloor {
    /// Returns the moment at which to renew a credential that was issued at `issued` and lives for `lifetime`.
    ///
    /// `draw` is a random number from 0 to 1. This number spreads renewals over the last [`SPREAD`] of the wait, which is two
    /// minutes for a lifetime of an hour. So if the agent fetches several credentials together, it does not renew them together.
    /// A wider spread would cost more calls. With 4 %, the agent renews a credential of one hour at most 30 times a day. If a
    /// credential's lifetime is below twice `renew_below`, the agent renews the credential at half of its lifetime.
    pub fn refresh_at(&self, issued: Moment, lifetime: Duration, draw: f64) -> Moment {
        let half = lifetime / 2;
        let ahead = if lifetime > LONG_LIFE { half } else { self.renew_below.min(half) };
        let wait = lifetime.saturating_sub(ahead);
        issued + wait.mul_f64(1.0 - SPREAD * draw.clamp(0.0, 1.0))
    }

    /// Returns the moment from which a renewal has priority over all other calls: halfway from `refresh_at` to the floor. For
    /// credentials of one hour, at least two minutes remain from that moment to the floor. At one call per second, this time is
    /// enough for the 110 pods of a full node. If the credential cannot stay above the floor, its renewal has priority from
    /// `refresh_at` on.
    pub fn urgent_at(&self, refresh_at: Moment, expires: Moment) -> Moment {
        refresh_at + expires.saturating_sub_duration(self.min_remaining).since(refresh_at) / 2
    }

    /// True if renewal can keep a credential with this lifetime above the floor.
    pub fn is_reachable_with(&self, lifetime: Duration) -> bool {
        lifetime / 2 >= self.min_remaining
    }
}

/// A credential with its times.
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
    /// Returns the remaining lifetime at `now`, or zero after the expiry.
    pub fn remaining(&self, now: Moment) -> Duration {
        self.expires.since(now)
    }

    /// True while a response can contain the credential: until one second before the credential expires.
    ///
    /// Responses state the remaining lifetime in whole seconds, rounded down. Go's `compute/metadata` and `oauth2/google` treat
    /// an `expires_in` of 0 as an incomplete token. The last second of a credential is therefore unusable.
    pub fn is_valid(&self, now: Moment) -> bool {
        self.remaining(now) >= Duration::from_secs(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: LifetimeFloor = LifetimeFloor {
        min_remaining: Duration::from_secs(6 * 60),
        renew_below: Duration::from_secs(10 * 60),
    };
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn an_hour_is_renewed_with_at_least_the_target_left() {
        for draw in [0.0, 0.3, 1.0] {
            let at = FLOOR.refresh_at(Moment::from_nanos(0), HOUR, draw);
            let left = (Moment::from_nanos(0) + HOUR).since(at);
            assert!(left >= FLOOR.renew_below, "{left:?}");
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
