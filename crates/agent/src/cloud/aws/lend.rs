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
        // The life is counted from the end of the second in which AWS answered; a second earlier, or this would be ahead of `Date`.
        last_updated: Stamp::of(UnixTime(end.0.saturating_sub(life + 1))),
        account_id: Some(credential.account()),
        role_arn: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use seawall_broker::aws::Parts;
    use seawall_core::{Moment, Secret};

    use super::*;

    /// It used to be rounded up.
    #[test]
    fn what_was_issued_is_never_updated_later_than_it_was() {
        let start = Duration::from_secs(1_767_225_600);
        let at = |after: Duration| Stamp::of(UnixTime::from(SystemTime::UNIX_EPOCH + start + after));
        // AWS answers at the tenth, its `Date` cut to the second; without one, life is counted from our own clock.
        for (answered, life) in [
            (Duration::from_millis(100), Duration::from_secs(3599)),
            (Duration::from_millis(100), Duration::from_millis(3_599_900)),
            (Duration::ZERO, Duration::from_secs(3600)),
        ] {
            let parts = Parts {
                access_key_id: "ASIAEXAMPLE".into(),
                secret_access_key: Secret::new("s3cret".into()),
                session_token: Secret::new("t0ken".into()),
                expires: SystemTime::UNIX_EPOCH + start + Duration::from_secs(3600),
                role: "arn:aws:sts::123456789012:assumed-role/cart/shop".into(),
            };
            let issued = Moment::from_nanos(0);
            let value = Credential::new(parts).unwrap();
            let lease = Lease { value, issued, expires: issued + life, refresh_at: issued };
            let last_updated = credentials(&lease).last_updated;
            assert!(last_updated.as_bytes() <= at(answered).as_bytes(), "{life:?}");
            assert!(last_updated.as_bytes() >= (Stamp::of(UnixTime(start.as_secs() - 1))).as_bytes());
        }
    }
}
