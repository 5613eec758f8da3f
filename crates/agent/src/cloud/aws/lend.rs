//! Credentials from memory, in the form of whichever endpoint asks: what both have in common.

use std::time::Duration;

use seawall_broker::aws::Credential;
use seawall_cloud::aws::{Credentials, Stamp, UnixTime};
use seawall_core::Lease;

/// A listing names a role only if its credentials live so much longer: the document is asked for next, and a client of the CRT ends its
/// process at a document that is refused.
pub(super) const LISTED: Duration = Duration::from_secs(10);

/// How long a client of the metadata service waits for an answer: the SDK for Go half a second, most others one (their sources, and
/// measured).
pub(super) const PATIENCE: Duration = Duration::from_millis(900);

/// See [`PATIENCE`].
pub(super) const PATIENCE_OF_GO: Duration = Duration::from_millis(400);

/// How long a request for a session token waits for the proof that the pod that is expected at its address is there: milliseconds where all
/// is well, and no client must do without a token where it is not.
pub(super) const PATIENCE_FOR_TOKENS: Duration = Duration::from_millis(100);

/// What a lease is written of. Its end is the date that AWS stated, not one that is counted here.
pub(super) fn credentials(lease: &Lease<Credential>) -> Credentials<'_> {
    let credential = &lease.value;
    let end = UnixTime::from(credential.expires());
    let life = lease.expires.since(lease.issued).as_secs();
    Credentials {
        access_key_id: credential.access_key_id(),
        secret_access_key: credential.secret_access_key(),
        session_token: credential.session_token(),
        expiration: Stamp::of(end),
        last_updated: Stamp::of(UnixTime(end.0.saturating_sub(life))),
        account_id: Some(credential.account()),
        role_arn: None,
    }
}
