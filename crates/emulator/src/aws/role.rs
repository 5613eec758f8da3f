//! A role of IAM with its trust policy. This module knows no requests.

use std::collections::BTreeSet;
use std::time::Duration;

/// The default of a role's `MaxSessionDuration` in IAM.
const HOUR: Duration = Duration::from_secs(3600);

/// A role and its trust policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IamRole {
    /// The ARN `arn:aws:iam::ACCOUNT:role/NAME`.
    pub arn: String,
    /// The callers that may assume the role: `system:serviceaccount:NS:NAME`, or the ARN of a user or role. `None` allows every caller.
    pub trusts: Option<BTreeSet<String>>,
    /// The `ExternalId` that a signed request must name, if any. Requests with a token name none.
    pub external_id: Option<String>,
    /// The role's `MaxSessionDuration`. IAM's minimum is an hour; here it may be shorter, for tests.
    pub max_session_duration: Duration,
}

impl IamRole {
    /// Returns a role that trusts every caller, for sessions of at most an hour.
    pub fn trusting_everyone(arn: &str) -> Self {
        Self { arn: arn.to_owned(), trusts: None, external_id: None, max_session_duration: HOUR }
    }

    /// Adds a caller to the role's trust policy. A role with a trust policy trusts only these callers.
    #[must_use]
    pub fn with_trusted_caller(mut self, caller: &str) -> Self {
        self.trusts.get_or_insert_default().insert(caller.to_owned());
        self
    }

    pub(super) fn admits(&self, caller: &str) -> bool {
        self.trusts.as_ref().is_none_or(|trusted| trusted.contains(caller))
    }

    pub(super) fn admits_signer(&self, caller: &str, external_id: Option<&str>) -> bool {
        self.admits(caller) && self.external_id.as_deref().is_none_or(|wanted| external_id == Some(wanted))
    }
}

/// The account and the name in a role's ARN: `arn:PARTITION:iam::ACCOUNT:role/PATH/NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoleArnParts<'a> {
    pub(super) partition: &'a str,
    pub(super) account: &'a str,
    pub(super) name: &'a str,
}

impl<'a> RoleArnParts<'a> {
    pub(super) fn of(arn: &'a str) -> Option<Self> {
        let mut parts = arn.splitn(6, ':');
        let (Some("arn"), Some(partition), Some("iam"), Some(""), Some(account), Some(resource)) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let is_account = account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit());
        let name = resource.strip_prefix("role/")?.rsplit('/').next().filter(|name| !name.is_empty())?;
        is_account.then_some(Self { partition, account, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roles_name_is_the_last_part_of_its_path() {
        let name = RoleArnParts::of("arn:aws-cn:iam::123456789012:role/a/b/cart").unwrap();
        assert_eq!((name.partition, name.account, name.name), ("aws-cn", "123456789012", "cart"));
        for odd in [
            "",
            "cart",
            "arn:aws:iam::1:role/x",
            "arn:aws:iam::123456789012:user/x",
            "arn:aws:iam::123456789012:role/",
        ] {
            assert_eq!(RoleArnParts::of(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_role_admits_whom_it_trusts_and_by_its_external_id() {
        let role = IamRole {
            external_id: Some("x1".into()),
            ..IamRole::trusting_everyone("r").with_trusted_caller("a")
        };
        assert!(role.admits("a") && role.admits_signer("a", Some("x1")));
        assert!(!role.admits("b") && !role.admits_signer("b", Some("x1")));
        assert!(!role.admits_signer("a", None) && !role.admits_signer("a", Some("x2")));
    }
}
