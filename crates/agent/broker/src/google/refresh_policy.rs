//! The renewal times of Google credentials, and the time for which a credential of each kind stays fresh.
//!
//! The broker answers with a cached access token while the token is valid. The response states the remaining lifetime, and
//! renewal keeps the remaining lifetime above the floor. Some clients do not read the lifetime of an identity token. So identity
//! tokens have a higher floor, and a cached identity token falls below this floor after a few minutes. The next request then
//! triggers a new fetch. The request gets the old token if the fetch fails or is late.

use std::time::Duration;

use seawall_core::LifetimeFloor;

use super::credential_request::CredentialRequest;
use crate::settings::BrokerSettings;

/// The floor is a remaining lifetime of 6 minutes, and renewal starts when 10 minutes are left. Of all Google libraries, the
/// library for Node refreshes earliest: when 300 s are left (google-auth-library-nodejs, `eagerRefreshThresholdMillis`).
pub const LIFETIME_FLOOR: LifetimeFloor =
    LifetimeFloor { min_remaining: Duration::from_secs(6 * 60), renew_below: Duration::from_secs(10 * 60) };

/// The settings of the broker for Google. At 32 call chains per second, a full node (110 pods by default) gets its credentials
/// within a few seconds.
/// Google's STS allows a project 100 exchanges per second. The rate is a third of that, because the project has other nodes, too.
pub const BROKER_SETTINGS: BrokerSettings = BrokerSettings::for_cloud(LIFETIME_FLOOR, 32.0);

/// The least remaining lifetime of an identity token while the cloud is available.
/// Go's clients assume that every identity token lives for an hour from its receipt, whatever its `exp` says. They request a new
/// token 5 minutes before the end of that hour (cloud.google.com/go/auth, credentials/idtoken/compute.go;
/// google.golang.org/api/idtoken). If the token had less than 55 minutes left, these clients would use the token after its
/// expiry.
const IDENTITY_FLOOR: Duration = Duration::from_secs(55 * 60);

/// If a token's lifetime exceeds [`IDENTITY_FLOOR`] by at least this time, the agent caches the token until it reaches that
/// floor. The agent caches a token with a shorter lifetime for [`SHARED`], but at most for half of the token's lifetime. Google's
/// identity tokens live for an hour, minus the duration of the call and a second of rounding. So these tokens exceed the floor by
/// almost 5 minutes.
const LEAST_SHARED: Duration = Duration::from_secs(4 * 60);

/// The age up to which the agent answers with a cached, short-lived identity token.
/// With this age, a token with a lifetime of at least ten minutes costs at most twelve calls per hour.
const SHARED: Duration = Duration::from_secs(5 * 60);

/// Returns the least remaining lifetime of this credential in responses while the cloud is available.
pub(super) fn min_lifetime(want: &CredentialRequest, floor: LifetimeFloor) -> Duration {
    match want {
        CredentialRequest::AccessToken { .. } => floor.min_remaining,
        CredentialRequest::IdToken { .. } => IDENTITY_FLOOR,
    }
}

/// Returns the age up to which the agent answers with a cached credential. `None` means: at any age, while the credential is
/// valid.
pub(super) fn max_cache_age(want: &CredentialRequest, lifetime: Duration) -> Option<Duration> {
    match want {
        CredentialRequest::AccessToken { .. } => None,
        CredentialRequest::IdToken { .. } => {
            let above = lifetime.saturating_sub(IDENTITY_FLOOR);
            Some(if above >= LEAST_SHARED { above } else { SHARED.min(lifetime / 2) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_token_is_shared_while_it_is_above_its_floor_and_a_short_one_for_a_while() {
        let want = CredentialRequest::IdToken { audience: "a".into(), include_email: false };
        let shared = |lifetime| max_cache_age(&want, Duration::from_secs(lifetime)).unwrap().as_secs();
        assert_eq!([3600, 3598, 3400, 1800, 300].map(shared), [300, 298, 300, 300, 150]);
    }

    #[test]
    fn an_access_token_is_answered_with_as_long_as_it_is_valid() {
        let want = CredentialRequest::AccessToken { scopes: "a".into() };
        assert_eq!(max_cache_age(&want, Duration::from_secs(60)), None);
    }
}
