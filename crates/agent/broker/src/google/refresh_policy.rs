//! The renewal times of Google's credentials, and how long a credential is served from memory, by its kind.
//!
//! The broker serves an access token while it is valid: the response states the token's life, and renewal keeps it above the floor.
//! Not every client reads an identity token's life, so identity tokens have a higher floor, which a cached token soon falls below.
//! A request that finds a token below it triggers a new fetch and falls back to the old token.

use std::time::Duration;

use seawall_core::Floor;

use super::credential_request::CredentialRequest;
use crate::settings::BrokerSettings;

/// The floor: 6 minutes, aiming at 10. Of Google's libraries, that for Node refreshes earliest, with 300 s left
/// (google-auth-library-nodejs, `eagerRefreshThresholdMillis`).
pub const FLOOR: Floor = Floor { hard: Duration::from_secs(6 * 60), target: Duration::from_secs(10 * 60) };

/// A broker's numbers for Google. A node full of pods (the kubelet's default is 110) is served within some seconds; it is a
/// third of the 100 exchanges a second that Google's STS allows a project, because there are other nodes.
pub const SETTINGS: BrokerSettings = BrokerSettings::of(FLOOR, 32.0);

/// The least remaining life of an identity token while the cloud responds. Go's clients believe that every identity token lives an
/// hour from when they get it, whatever its `exp` says, and ask again 5 minutes before (cloud.google.com/go/auth,
/// credentials/idtoken/compute.go; google.golang.org/api/idtoken). With less than 55 minutes left they would use an expired token.
const IDENTITY_FLOOR: Duration = Duration::from_secs(55 * 60);

/// An identity token whose life leaves less than this above its floor is shared for [`SHARED`] all the same. Google's live an
/// hour, less the time of the call and a second of rounding.
const LEAST_SHARED: Duration = Duration::from_secs(4 * 60);

/// The age up to which a short-lived identity token is served from memory. It bounds the cost: twelve calls an hour.
const SHARED: Duration = Duration::from_secs(5 * 60);

/// The least remaining life of responses of this kind while the cloud responds.
pub(super) fn min_lifetime(want: &CredentialRequest, floor: Floor) -> Duration {
    match want {
        CredentialRequest::AccessToken { .. } => floor.hard,
        CredentialRequest::IdToken { .. } => IDENTITY_FLOOR,
    }
}

/// The age up to which a credential is served from memory; `None` means while it is valid.
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
