//! Google's clients that name themselves when they ask for a token, and what life of one each refreshes (their sources).

use std::time::Duration;

use crate::sdk_profile::{FirstExpiringSdks, SdkProfile, SdkProfiles, UNNAMED_CLIENT};

const fn client(agent: &'static str, name: &'static str, seconds: u64) -> SdkProfile {
    SdkProfile { user_agent: agent, name, refresh_window: Duration::from_secs(seconds), poll_interval: None }
}

/// All of them.
pub(crate) const ALL: SdkProfiles = SdkProfiles {
    known: KNOWN,
    normal_fetches_per_hour: 13,
    unnamed_description: UNNAMED_CLIENT,
    lifetime_advice: "Use a newer release: Google's access tokens live an hour, and are renewed with ten minutes left.",
    earliest_affected: Some(FirstExpiringSdks {
        remaining: Duration::from_secs(240),
        sdk_names: "object_store and Google's library for Go",
    }),
};

/// 225 s: golang/oauth2, `google/google.go`; 240 s: arrow-rs-object-store, `gcp/credential.rs`.
const KNOWN: &[SdkProfile] = &[
    client("gcloud-golang/", "Google's library for Go", 225),
    client("Go-http-client/", "a client of Go's", 225),
    client("object_store/", "object_store", 240),
];
