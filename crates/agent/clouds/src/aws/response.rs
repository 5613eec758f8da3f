//! Cached credentials in the format of the AWS endpoints.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use seawall_broker::aws::AwsCredential;
use seawall_core::{Lease, Moment};
use seawall_protocols::aws::{CredentialsDocument, Iso8601Time, UnixTime};

/// The listing names a role only if the role's credentials have at least this remaining lifetime.
///
/// Clients request the role's document after the listing. If the credentials expire in between and the agent refuses the
/// document, a client that uses the AWS CRT aborts its process.
pub(super) const MIN_LISTED_LIFETIME: Duration = Duration::from_secs(10);

/// Returns the credentials document of a lease.
pub(super) fn credentials_document(lease: &Lease<AwsCredential>) -> CredentialsDocument<'_> {
    FormattedDateCache::default().credentials_document(lease)
}

/// The formatted dates of the last written lease. Formatting both dates takes a tenth of the time of an answer with cached
/// credentials.
#[derive(Debug, Default)]
pub(super) struct FormattedDateCache(RefCell<Option<LeaseDates>>);

/// The formatted dates of a lease with the times `of`.
#[derive(Debug)]
struct LeaseDates {
    of: Span,
    expiration: Iso8601Time,
    last_updated: Iso8601Time,
}

/// The times that determine a lease's dates: the expiry that AWS stated, and the start and the expiry on the agent's clock.
type Span = (SystemTime, Moment, Moment);

impl FormattedDateCache {
    /// Returns the document of this lease. The function formats the dates only if the lease's times differ from those of the
    /// previous lease.
    pub(super) fn credentials_document<'a>(
        &self,
        lease: &'a Lease<AwsCredential>,
    ) -> CredentialsDocument<'a> {
        let (credential, of) = (&lease.value, (lease.value.expires(), lease.issued, lease.expires));
        let mut dated = self.0.borrow_mut();
        if dated.as_ref().is_none_or(|dated| dated.of != of) {
            *dated = None;
        }
        let dated = dated.get_or_insert_with(|| LeaseDates::new(of));
        CredentialsDocument {
            access_key_id: credential.access_key_id(),
            secret_access_key: credential.secret_access_key(),
            session_token: credential.session_token(),
            expiration: dated.expiration,
            last_updated: dated.last_updated,
            account_id: Some(credential.account()),
            role_arn: None,
        }
    }
}

impl LeaseDates {
    /// Formats the dates of a lease. The expiry is the date that AWS stated.
    ///
    /// The agent counts the lifetime from the end of the second in which AWS answered. `LastUpdated` is the beginning of that
    /// second. Otherwise `LastUpdated` would be later than the `Date` header of AWS's answer.
    fn new(of: Span) -> Self {
        let (end, issued, expires) = of;
        let end = UnixTime::from(end);
        let start = UnixTime(end.0.saturating_sub(expires.since(issued).as_secs() + 1));
        Self {
            of,
            expiration: Iso8601Time::from_unix_time(end),
            last_updated: Iso8601Time::from_unix_time(start),
        }
    }
}

#[cfg(test)]
mod tests {
    use seawall_broker::aws::AwsCredentialParts;
    use seawall_core::Secret;

    use super::*;

    /// Regression: the agent rounded `LastUpdated` up.
    #[test]
    fn what_was_issued_is_never_updated_later_than_it_was() {
        let start = Duration::from_secs(1_767_225_600);
        let at = |after: Duration| {
            Iso8601Time::from_unix_time(UnixTime::from(SystemTime::UNIX_EPOCH + start + after))
        };
        // AWS answers in the middle of a second, and the `Date` header of its answer omits the fraction. Without `Date`, the
        // lifetime counts from the agent's own clock.
        for (answered, life) in [
            (Duration::from_millis(100), Duration::from_secs(3599)),
            (Duration::from_millis(100), Duration::from_millis(3_599_900)),
            (Duration::ZERO, Duration::from_secs(3600)),
        ] {
            let parts = AwsCredentialParts {
                access_key_id: "ASIAEXAMPLE".into(),
                secret_access_key: Secret::new("s3cret".into()),
                session_token: Secret::new("t0ken".into()),
                expires: SystemTime::UNIX_EPOCH + start + Duration::from_secs(3600),
                assumed_role_arn: "arn:aws:sts::123456789012:assumed-role/cart/shop".into(),
            };
            let issued = Moment::from_nanos(0);
            let value = AwsCredential::new(parts).unwrap();
            let lease = Lease { value, issued, expires: issued + life, refresh_at: issued };
            let last_updated = credentials_document(&lease).last_updated;
            assert!(last_updated.as_bytes() <= at(answered).as_bytes(), "{life:?}");
            assert!(
                last_updated.as_bytes()
                    >= (Iso8601Time::from_unix_time(UnixTime(start.as_secs() - 1))).as_bytes()
            );
        }
    }
}
