//! Lists Google's SDKs that send a User-Agent in token requests, and the remaining lifetime at which each SDK refreshes a token.

use std::time::Duration;

use crate::sdk_refresh_times::{
    DEFAULT_NO_USER_AGENT_DESCRIPTION, SdkProfile, SdkProfiles, SdksFetchingEveryCall,
};

const fn client(agent: &'static str, name: &'static str, seconds: u64) -> SdkProfile {
    SdkProfile {
        user_agent_prefix: agent,
        name,
        refresh_window: Duration::from_secs(seconds),
        poll_interval: None,
    }
}

/// The profiles of Google's SDKs.
pub(crate) const ALL: SdkProfiles = SdkProfiles {
    profiles: KNOWN,
    max_normal_fetches_per_hour: 13,
    no_user_agent_description: DEFAULT_NO_USER_AGENT_DESCRIPTION,
    lifetime_advice: "Use a newer SDK release. The agent renews Google's one-hour access tokens when ten minutes are left, so an SDK that \
                      refreshes earlier gets the same token again.",
    sdks_fetching_every_call: Some(SdksFetchingEveryCall {
        fetch_every_call_below: Duration::from_secs(240),
        sdk_names: "object_store and Google's library for Go",
    }),
};

/// The known SDKs. Sources: 225 s from golang/oauth2, `google/google.go`; 240 s from arrow-rs-object-store, `gcp/credential.rs`.
const KNOWN: &[SdkProfile] = &[
    client("gcloud-golang/", "Google's library for Go", 225),
    client("Go-http-client/", "a Go client", 225),
    client("object_store/", "object_store", 240),
];
