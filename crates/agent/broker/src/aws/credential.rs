//! AWS credentials: a key id, a secret key, a session token and an expiry; checked once where they enter.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use seawall_core::Secret;
use seawall_core::names::needs_no_escape;

/// A session's credentials.
///
/// All texts are visible ASCII without `"` and `\`, so answers can carry them in JSON unescaped.
#[derive(Debug)]
pub struct AwsCredential {
    access_key_id: Box<str>,
    secret_access_key: Secret<String>,
    session_token: Secret<String>,
    expires: SystemTime,
    role: Box<str>,
    /// The position of the account in `role`: computed once, because responses carry the account.
    account: Range<usize>,
}

/// The parts of a credential, before they are checked.
#[derive(Debug)]
pub struct AwsCredentialParts {
    /// `ASIA…`.
    pub access_key_id: String,
    /// The secret key that signs requests.
    pub secret_access_key: Secret<String>,
    /// The session token that requests carry beside the signature.
    pub session_token: Secret<String>,
    /// The end that AWS states.
    pub expires: SystemTime,
    /// `arn:PARTITION:sts::ACCOUNT:assumed-role/ROLE/SESSION`.
    pub role: String,
}

/// The error of credentials that hold invalid characters or lack a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's credentials are empty, too long, or contain characters that are not allowed")]
pub struct AwsCredentialError;

/// Longest key, in bytes: AWS's ids have 20 (up to 128 are allowed), its secrets 40.
const KEY: usize = 128;

/// Longest session token, in bytes. AWS promises no bound; those of chained roles with many tags reach some thousands.
const TOKEN: usize = 16 * 1024;

/// Longest ARN, in bytes.
const ARN: usize = 2048;

impl AwsCredential {
    /// Checks credentials. Cuts the expiry to the whole second, so that it is never stated later than it is.
    ///
    /// # Errors
    /// They cannot be passed on unescaped.
    pub fn new(parts: AwsCredentialParts) -> Result<Self, AwsCredentialError> {
        let is_good = needs_no_escape(&parts.access_key_id, KEY)
            && needs_no_escape(parts.secret_access_key.expose(), KEY)
            && needs_no_escape(parts.session_token.expose(), TOKEN)
            && needs_no_escape(&parts.role, ARN);
        let since = parts.expires.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| AwsCredentialError)?;
        if !is_good {
            return Err(AwsCredentialError);
        }
        Ok(Self {
            access_key_id: parts.access_key_id.into(),
            secret_access_key: parts.secret_access_key,
            session_token: parts.session_token,
            expires: SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()),
            account: account(&parts.role),
            role: parts.role.into(),
        })
    }

    /// The key id, `ASIA…`. It is not secret: CloudTrail shows it beside every action of the credential.
    pub fn access_key_id(&self) -> &str {
        &self.access_key_id
    }

    /// The secret key that signs requests. Review each use of this method.
    pub fn secret_access_key(&self) -> &str {
        self.secret_access_key.expose()
    }

    /// The session token that requests carry beside the signature. Review each use of this method.
    pub fn session_token(&self) -> &str {
        self.session_token.expose()
    }

    /// The expiry that AWS states, bounded to a possible time and cut to the whole second. It is a date of AWS's clock, not of
    /// ours.
    pub fn expires(&self) -> SystemTime {
        self.expires
    }

    /// `arn:PARTITION:sts::ACCOUNT:assumed-role/ROLE/SESSION`.
    pub fn assumed_role(&self) -> &str {
        &self.role
    }

    /// The account of the role.
    pub fn account(&self) -> &str {
        self.role.get(self.account.clone()).unwrap_or_default()
    }

    /// The name of the role.
    pub fn role_name(&self) -> &str {
        self.role.split('/').nth(1).unwrap_or_default()
    }
}

/// Returns the range of the account in an ARN: between the fourth and the fifth colon.
fn account(role: &str) -> Range<usize> {
    let mut colons = role.match_indices(':').map(|(at, _)| at).skip(3);
    let start = colons.next().map_or(role.len(), |at| at + 1);
    start..colons.next().unwrap_or(role.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> AwsCredentialParts {
        AwsCredentialParts {
            access_key_id: "ASIAEXAMPLE".into(),
            secret_access_key: Secret::new("s3cret/+=".into()),
            session_token: Secret::new("t0ken//==".into()),
            expires: SystemTime::UNIX_EPOCH + Duration::from_millis(7999),
            role: "arn:aws:sts::123456789012:assumed-role/cart/shop".into(),
        }
    }

    #[test]
    fn a_credential_tells_its_account_role_and_a_whole_second() {
        let credential = AwsCredential::new(parts()).unwrap();
        assert_eq!((credential.account(), credential.role_name()), ("123456789012", "cart"));
        assert_eq!(credential.expires(), SystemTime::UNIX_EPOCH + Duration::from_secs(7));
    }

    #[test]
    fn an_arn_that_names_no_account_has_none() {
        for (role, account) in
            [("a", ""), ("a:b:c:d", ""), ("a:b:c:d:", ""), ("a:b:c:d:7", "7"), ("a:b:c:d:7:e:f", "7")]
        {
            assert_eq!(
                AwsCredential::new(AwsCredentialParts { role: role.into(), ..parts() }).unwrap().account(),
                account,
                "{role}"
            );
        }
    }

    #[test]
    fn only_text_that_needs_no_escape_is_a_credential() {
        for odd in ["", "a b", "a\"b", "a\\b", "a\nb", "é", &"x".repeat(TOKEN + 1)] {
            let secret = || Secret::new(odd.to_owned());
            assert!(
                AwsCredential::new(AwsCredentialParts { access_key_id: odd.into(), ..parts() }).is_err(),
                "{odd:.8}"
            );
            assert!(
                AwsCredential::new(AwsCredentialParts { secret_access_key: secret(), ..parts() }).is_err(),
                "{odd:.8}"
            );
            assert!(
                AwsCredential::new(AwsCredentialParts { session_token: secret(), ..parts() }).is_err(),
                "{odd:.8}"
            );
            assert!(
                AwsCredential::new(AwsCredentialParts { role: odd.into(), ..parts() }).is_err(),
                "{odd:.8}"
            );
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let text = format!("{:?} {:?}", AwsCredential::new(parts()).unwrap(), parts());
        assert!(!text.contains("s3cret") && !text.contains("t0ken"), "{text}");
    }
}
