//! How long a lease is answered with from memory, by kind of credential.
//!
//! An access token is answered with while it is valid: its life goes along, and renewal keeps it above the floor. An
//! identity token's life does not go along in a way that every client reads, so it has a floor that one from memory
//! soon falls below. A request that finds one below it has a new one fetched and falls back to the old.

use std::time::Duration;

use seawall_core::{Moment, Want};

use crate::settings::Settings;

/// An identity token whose life leaves less than this above its floor is shared for [`SHARED`] all the same. Google's live an
/// hour, less the time of the call and a second of rounding.
const LEAST_SHARED: Duration = Duration::from_secs(4 * 60);

/// Bounds what a cloud of short lives costs: twelve calls an hour.
const SHARED: Duration = Duration::from_secs(5 * 60);

/// The least life that answers of this kind carry while the cloud answers.
pub(crate) fn floor(want: &Want, settings: &Settings) -> Duration {
    match want {
        Want::AccessToken { .. } => settings.floor.hard,
        Want::IdToken { .. } => settings.identity_floor,
    }
}

/// Until when it is answered with from memory.
pub(crate) fn until(want: &Want, settings: &Settings, issued: Moment, lifetime: Duration) -> Moment {
    match want {
        Want::AccessToken { .. } => Moment::from_nanos(u64::MAX),
        Want::IdToken { .. } => {
            let above = lifetime.saturating_sub(settings.identity_floor);
            issued + if above >= LEAST_SHARED { above } else { SHARED.min(lifetime / 2) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_token_is_shared_while_it_is_above_its_floor_and_a_short_one_for_a_while() {
        let want = Want::IdToken { audience: "a".into(), include_email: false };
        let shared = |lifetime| {
            let lifetime = Duration::from_secs(lifetime);
            until(&want, &Settings::default(), Moment::from_nanos(0), lifetime).as_nanos() / 1_000_000_000
        };
        assert_eq!([3600, 3598, 3400, 1800, 300].map(shared), [300, 298, 300, 300, 150]);
    }

    #[test]
    fn an_access_token_is_answered_with_as_long_as_it_is_valid() {
        let want = Want::AccessToken { scopes: "a".into() };
        let until = until(&want, &Settings::default(), Moment::from_nanos(0), Duration::from_secs(60));
        assert_eq!(until, Moment::from_nanos(u64::MAX));
    }
}
