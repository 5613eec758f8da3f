//! Types for AWS names. The agent checks each name once, when it receives the name. A checked name contains no character with a
//! special meaning in a URL, a form or a header. The limits come from the API references (STS `AssumeRole`, EKS Auth
//! `AssumeRoleForPodIdentity`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The error for an invalid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NameError(&'static str);

/// A role's ARN: `arn:PARTITION:iam::ACCOUNT:role/PATH/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoleArn(Arc<str>);

impl RoleArn {
    /// Checks an ARN.
    ///
    /// # Errors
    /// The text is not the ARN of a role, or it is too long.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let refused = NameError("expected the ARN of a role, such as arn:aws:iam::123456789012:role/NAME");
        let (partition, rest) =
            text.strip_prefix("arn:").and_then(|rest| rest.split_once(':')).ok_or(refused)?;
        let (account, resource) =
            rest.strip_prefix("iam::").and_then(|rest| rest.split_once(':')).ok_or(refused)?;
        let path = resource.strip_prefix("role/").ok_or(refused)?;
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_partition = partition.starts_with("aws") && partition.bytes().all(is_of_host);
        let is_account = account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit());
        let is_path = path.len() <= 512 + 64 && path.bytes().all(|b| is_word(b) || b == b'/');
        if is_partition && is_account && is_path && (1..=64).contains(&name.len()) {
            return Ok(Self(text.into()));
        }
        Err(refused)
    }

    /// Returns the ARN as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the account that owns the role.
    pub fn account(&self) -> &str {
        self.0.split(':').nth(4).unwrap_or_default()
    }

    /// Returns the role's name without its path.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

/// The name of a session. CloudTrail shows the name together with the role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionName(Arc<str>);

/// The maximum length of a session name, in characters.
const SESSION_NAME: usize = 64;

impl SessionName {
    /// Checks a session name.
    ///
    /// # Errors
    /// The text does not consist of 2 to 64 letters, digits and characters of `_+=,.@-`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if (2..=SESSION_NAME).contains(&text.len()) && text.bytes().all(is_word) {
            return Ok(Self(text.into()));
        }
        Err(NameError("expected the name of a session: 2 to 64 letters, digits and _+=,.@-"))
    }

    /// Returns a valid name for any text. The function replaces invalid characters by `-`, truncates long text and pads short
    /// text.
    pub fn sanitized(text: &str) -> Self {
        let plain = |c: char| if u8::try_from(c).is_ok_and(is_word) { c } else { '-' };
        let mut name: String = text.chars().take(SESSION_NAME).map(plain).collect();
        while name.len() < 2 {
            name.push('-');
        }
        Self(name.into())
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The external id that a role in another account may require.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExternalId(Arc<str>);

impl ExternalId {
    /// Checks an external id.
    ///
    /// # Errors
    /// The text does not consist of 2 to 1224 letters, digits and characters of `_+=,.@:/-`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let is_in = |b| is_word(b) || b == b':' || b == b'/';
        if (2..=1224).contains(&text.len()) && text.bytes().all(is_in) {
            return Ok(Self(text.into()));
        }
        Err(NameError("expected an external id: 2 to 1224 letters, digits and _+=,.@:/-"))
    }

    /// Returns the external id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A tag of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionTag {
    /// The key of the tag.
    pub key: Arc<str>,
    /// The value of the tag, which may be empty.
    pub value: Arc<str>,
    /// True if the tag also applies to the sessions of roles that this session assumes (role chaining).
    pub is_transitive: bool,
}

/// The tags of a session. They are sorted, and each key occurs once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionTags(Arc<[SessionTag]>);

impl SessionTags {
    /// Checks the tags of a session.
    ///
    /// # Errors
    /// There are more than 50 tags, two tags have the same key (ignoring case), or a tag contains invalid text.
    pub fn new(mut tags: Vec<SessionTag>) -> Result<Self, NameError> {
        tags.sort();
        let mut keys: Vec<_> = tags.iter().map(|tag| tag.key.to_lowercase()).collect();
        keys.sort();
        let is_twice = keys.windows(2).any(|pair| pair[0] == pair[1]);
        if tags.len() <= 50 && !is_twice && tags.iter().all(SessionTag::is_good) {
            return Ok(Self(tags.into()));
        }
        Err(NameError(
            "expected at most 50 tags with different keys. A key has 1 to 128 characters and a value has 0 to 256 characters: letters, digits, spaces and _.:/=+-@",
        ))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SessionTag> {
        self.0.iter()
    }
}

impl SessionTag {
    fn is_good(&self) -> bool {
        let is_in = |c: char| c.is_alphanumeric() || c == ' ' || "_.:/=+-@".contains(c);
        let is_text = |text: &str| text.chars().all(is_in);
        (1..=128).contains(&self.key.chars().count())
            && self.value.chars().count() <= 256
            && is_text(&self.key)
            && is_text(&self.value)
    }
}

/// An AWS region, such as `eu-west-1`. The host names of AWS's services contain the region.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region(Arc<str>);

impl Region {
    /// Checks a region's format. The agent has no list of regions, because AWS adds regions each year.
    ///
    /// # Errors
    /// The text does not consist of 3 to 32 lower-case letters, digits and hyphens. Or it has no hyphen, or begins or ends with a
    /// hyphen.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let is_region = text.contains('-') && text.bytes().all(is_of_host);
        if is_region && (3..=32).contains(&text.len()) && !text.starts_with('-') && !text.ends_with('-') {
            return Ok(Self(text.into()));
        }
        Err(NameError("expected a region, such as eu-west-1"))
    }

    /// Returns the region as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of an EKS cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterName(Arc<str>);

impl ClusterName {
    /// Checks a cluster name.
    ///
    /// # Errors
    /// The text does not consist of 1 to 100 letters, digits, `-` and `_`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let is_in = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if (1..=100).contains(&text.len()) && text.bytes().all(is_in) {
            return Ok(Self(text.into()));
        }
        Err(NameError("expected the name of an EKS cluster: 1 to 100 letters, digits, - and _"))
    }

    /// Returns the cluster name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The requested duration of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionDuration(Duration);

impl SessionDuration {
    /// A duration of one hour. Every role allows this duration. For a role that another role assumes, one hour is the maximum.
    pub const HOUR: Self = Self(Duration::from_secs(3600));

    /// Checks a session duration, and truncates it to whole seconds.
    ///
    /// # Errors
    /// The duration is below one hour or above twelve hours. AWS also issues sessions of 15 minutes. But clients refresh
    /// credentials that have less than 15 minutes left, so with such sessions they would fetch credentials on every call.
    pub fn new(length: Duration) -> Result<Self, NameError> {
        if (3600..=12 * 3600).contains(&length.as_secs()) {
            return Ok(Self(Duration::from_secs(length.as_secs())));
        }
        Err(NameError(
            "expected a session of 1h to 12h. SDKs refresh credentials that have less than 15m left, so SDKs would refresh shorter sessions on every call",
        ))
    }

    /// Returns the duration.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl fmt::Display for RoleArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True if the byte is a word character in IAM names.
fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"_+=,.@-".contains(&b)
}

/// True if `text` is a role name without its path (IAM API reference, `roleNameType`). The names `.` and `..` are invalid,
/// because they would change a URL path.
pub(super) fn is_role_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(is_word) && !matches!(text, "." | "..")
}

fn is_of_host(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_told_by_their_account_and_name() {
        let role = RoleArn::parse("arn:aws-cn:iam::123456789012:role/a/b/cart+=,.@_-x").unwrap();
        assert_eq!((role.account(), role.name()), ("123456789012", "cart+=,.@_-x"));
        for odd in [
            "",
            "cart",
            "arn:aws:iam::12345678901:role/x",
            "arn:aws:iam::123456789012:user/x",
            "arn:aws:iam::123456789012:role/",
            "arn:aws:iam::123456789012:role/x y",
            "arn:aws:iam::123456789012:role/x%2fy",
            "arn:evil:iam::123456789012:role/x",
            "arn:aws:sts::123456789012:assumed-role/x/y",
            "arn:aws:iam::123456789012:role/x\n",
        ] {
            assert!(RoleArn::parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn what_a_role_is_called_leads_to_no_other_path() {
        assert!(["cart", "a+=,.@_-b", &"x".repeat(64)].into_iter().all(is_role_name));
        assert!(!["", ".", "..", "a/b", "a b", "a%2fb", &"x".repeat(65)].into_iter().any(is_role_name));
    }

    #[test]
    fn a_region_cannot_name_another_host() {
        assert!(
            ["eu-west-1", "us-gov-east-1", "eusc-de-east-1"].map(Region::parse).iter().all(Result::is_ok)
        );
        for odd in ["", "eu", "-eu-west-1", "eu-west-1-", "eu.evil-1", "eu-west-1/", "EU-WEST-1", "a-b@c"] {
            assert!(Region::parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn any_text_makes_the_name_of_a_session() {
        for (text, name) in [("", "--"), ("a", "a-"), ("shop/cart:é", "shop-cart--"), ("a@b", "a@b")] {
            assert_eq!(SessionName::sanitized(text).as_str(), name);
            assert!(SessionName::parse(name).is_ok());
        }
        assert_eq!(SessionName::sanitized(&"x".repeat(99)).as_str().len(), 64);
        assert!(["a", "a b", "a/b", &"x".repeat(65)].map(SessionName::parse).iter().all(Result::is_err));
    }

    #[test]
    fn sessions_of_less_than_an_hour_are_refused_by_name() {
        let minutes = |n: u64| SessionDuration::new(Duration::from_secs(n * 60));
        assert!(minutes(15).unwrap_err().to_string().contains("on every call"));
        assert!(minutes(59).is_err() && minutes(721).is_err());
        assert_eq!(minutes(60), Ok(SessionDuration::HOUR));
    }

    #[test]
    fn tags_are_sorted_and_no_key_is_there_twice() {
        let tag = |key: &str, value: &str| SessionTag {
            key: key.into(),
            value: value.into(),
            is_transitive: false,
        };
        let tags = SessionTags::new(vec![tag("b", ""), tag("a", "x y")]).unwrap();
        assert_eq!(tags.iter().map(|tag| &*tag.key).collect::<Vec<_>>(), ["a", "b"]);
        assert!(SessionTags::new(vec![tag("a", "1"), tag("A", "2")]).is_err());
        assert!(
            SessionTags::new(vec![tag("", "1")]).is_err() && SessionTags::new(vec![tag("a", "\n")]).is_err()
        );
        assert!(SessionTags::new((0..51).map(|n| tag(&n.to_string(), "")).collect()).is_err());
    }

    #[test]
    fn ids_and_clusters_hold_no_character_that_means_something_elsewhere() {
        assert!(ExternalId::parse("a:b/c@d").is_ok() && ClusterName::parse("my_cluster-1").is_ok());
        assert!(["x", "a&b", "a b"].map(ExternalId::parse).iter().all(Result::is_err));
        assert!(["", "a/b", "..", "a?b"].map(ClusterName::parse).iter().all(Result::is_err));
    }
}
