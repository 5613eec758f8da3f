//! AWS credentials: a key id, a secret key, a session token and an expiry time. The agent checks the credentials once, when it
//! receives them.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use seawall_core::Secret;
use seawall_core::name_syntax::needs_no_escape;

/// The credentials of a session.
///
/// All text fields consist of visible ASCII characters except `"` and `\`. So responses can contain the fields in JSON without
/// escapes.
#[derive(Debug)]
pub struct AwsCredential {
    access_key_id: Box<str>,
    secret_access_key: Secret<String>,
    session_token: Secret<String>,
    expires: SystemTime,
    role: Box<str>,
    /// The position of the account in `role`. The constructor computes the position once, because responses to pods contain the
    /// account.
    account: Range<usize>,
}

/// The parts of a credential before they are checked.
#[derive(Debug)]
pub struct AwsCredentialParts {
    /// The id of the access key, which begins with `ASIA`.
    pub access_key_id: String,
    /// The secret key that signs requests.
    pub secret_access_key: Secret<String>,
    /// The session token, which requests contain in addition to the signature.
    pub session_token: Secret<String>,
    /// The expiry time that AWS states.
    pub expires: SystemTime,
    /// The ARN of the assumed role: `arn:PARTITION:sts::ACCOUNT:assumed-role/ROLE/SESSION`.
    pub assumed_role_arn: String,
}

/// The error for credentials that contain invalid characters or lack a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's credentials are empty, too long, or contain characters that are not allowed")]
pub struct AwsCredentialError;

/// The maximum length of a key, in bytes. Today, AWS's key ids have 20 bytes (AWS allows 128), and AWS's secret keys have 40
/// bytes.
const KEY: usize = 128;

/// The maximum length of a session token, in bytes. AWS states no limit; tokens of chained roles with many tags have several
/// thousand bytes.
const TOKEN: usize = 16 * 1024;

/// The maximum length of an ARN, in bytes.
const ARN: usize = 2048;

impl AwsCredential {
    /// Checks credentials. The function truncates the expiry time to whole seconds, so responses never state a later time than
    /// AWS states.
    ///
    /// # Errors
    /// The credentials lack a part, are too long, or contain characters that need escapes.
    pub fn new(parts: AwsCredentialParts) -> Result<Self, AwsCredentialError> {
        let is_good = needs_no_escape(&parts.access_key_id, KEY)
            && needs_no_escape(parts.secret_access_key.expose(), KEY)
            && needs_no_escape(parts.session_token.expose(), TOKEN)
            && needs_no_escape(&parts.assumed_role_arn, ARN);
        let since = parts.expires.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| AwsCredentialError)?;
        if !is_good {
            return Err(AwsCredentialError);
        }
        Ok(Self {
            access_key_id: parts.access_key_id.into(),
            secret_access_key: parts.secret_access_key,
            session_token: parts.session_token,
            expires: SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()),
            account: account(&parts.assumed_role_arn),
            role: parts.assumed_role_arn.into(),
        })
    }

    /// Returns the key id, which begins with `ASIA`. The key id is not secret: CloudTrail shows it with every action of the
    /// credential.
    pub fn access_key_id(&self) -> &str {
        &self.access_key_id
    }

    /// Returns the secret key that signs requests. In code reviews, check each use of this method.
    pub fn secret_access_key(&self) -> &str {
        self.secret_access_key.expose()
    }

    /// Returns the session token, which requests contain in addition to the signature.
    /// In code reviews, check each use of this method.
    pub fn session_token(&self) -> &str {
        self.session_token.expose()
    }

    /// Returns the expiry time that AWS states, or the end of the longest possible session if that end is earlier.
    /// The time comes from AWS's clock and not from the node's clock. The time has no fraction of a second.
    pub fn expires(&self) -> SystemTime {
        self.expires
    }

    /// Returns the ARN of the assumed role: `arn:PARTITION:sts::ACCOUNT:assumed-role/ROLE/SESSION`.
    pub fn assumed_role_arn(&self) -> &str {
        &self.role
    }

    /// Returns the account of the role.
    pub fn account(&self) -> &str {
        self.role.get(self.account.clone()).unwrap_or_default()
    }

    /// Returns the name of the role.
    pub fn role_name(&self) -> &str {
        self.role.split('/').nth(1).unwrap_or_default()
    }
}

/// Returns the position of the account in an ARN: between the fourth and the fifth colon.
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
            assumed_role_arn: "arn:aws:sts::123456789012:assumed-role/cart/shop".into(),
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
                AwsCredential::new(AwsCredentialParts { assumed_role_arn: role.into(), ..parts() })
                    .unwrap()
                    .account(),
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
                AwsCredential::new(AwsCredentialParts { assumed_role_arn: odd.into(), ..parts() }).is_err(),
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
