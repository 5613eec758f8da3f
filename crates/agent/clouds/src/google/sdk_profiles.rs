//! Google's clients that name themselves when they ask for a token, and what life of one each refreshes (their sources).

use std::time::Duration;

use crate::sdk_profile::{Client, Clients, First, NAMELESS};

const fn client(agent: &'static str, name: &'static str, seconds: u64) -> Client {
    Client { agent, name, window: Duration::from_secs(seconds), every: None }
}

/// All of them.
pub(crate) const ALL: Clients = Clients {
    known: KNOWN,
    per_hour: 13,
    unnamed: NAMELESS,
    longer: "Use a newer release: Google's access tokens live an hour, and are renewed with ten minutes left.",
    first: Some(First { left: Duration::from_secs(240), who: "object_store and Google's library for Go" }),
};

/// 225 s: golang/oauth2, `google/google.go`; 240 s: arrow-rs-object-store, `gcp/credential.rs`.
const KNOWN: &[Client] = &[
    client("gcloud-golang/", "Google's library for Go", 225),
    client("Go-http-client/", "a client of Go's", 225),
    client("object_store/", "object_store", 240),
];
