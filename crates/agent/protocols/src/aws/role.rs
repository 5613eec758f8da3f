//! Defines the name of a role, and the two ways in which a request names a role. The metadata service lists the name, and clients
//! insert the name into the path of the next request. Clients that were configured for KIAM can insert the role's ARN.

use std::borrow::Cow;
use std::sync::Arc;

/// The maximum length of a role's name (IAM user guide, "IAM and AWS STS quotas").
pub const MAX_ROLE_NAME_LENGTH: usize = 64;

/// A role's name. It consists of 1 to 64 letters, digits and `+ = , . @ _ -`, and is the last part of the role's ARN.
///
/// No character of the name ends a line or has a special meaning in a URL's path. Two clients abort if a listed name does not
/// form a valid URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoleName(Arc<str>);

impl RoleName {
    /// Returns the name if it is valid. `.` and `..` are invalid, because they have a special meaning in a path.
    pub fn new(name: &str) -> Option<Self> {
        is_role_name(name).then(|| Self(name.into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The role that a request names in its path.
///
/// Clients of KIAM can name either, because a pod's annotation can hold either (uswitch/kiam README).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedRole<'b> {
    /// The role's name, without its path. It is valid as a [`RoleName`].
    Name(Cow<'b, str>),
    /// The role's ARN: `arn:PARTITION:iam::ACCOUNT:role/PATH/NAME`, where the path can be absent.
    Arn(Cow<'b, str>),
}

/// The role of the requesting pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnRole<'a> {
    /// The role's name, without its path.
    pub name: &'a str,
    /// The role's ARN.
    pub arn: &'a str,
}

impl<'b> RequestedRole<'b> {
    /// Returns the role that a text names, or `None` if the text is neither a role's name nor a role's ARN.
    pub fn parse(text: Cow<'b, str>) -> Option<Self> {
        if is_role_name(&text) {
            return Some(Self::Name(text));
        }
        is_role_arn(&text).then_some(Self::Arn(text))
    }

    /// True if this is the pod's own role. An ARN must be equal in every character, because a role of the same name can exist in
    /// another account.
    pub fn is_own(&self, own: OwnRole<'_>) -> bool {
        match self {
            Self::Name(name) => name == own.name,
            Self::Arn(arn) => arn == own.arn,
        }
    }

    /// Returns the same role, with an ARN that has no path: `arn:PARTITION:iam::ACCOUNT:role/NAME`.
    #[must_use]
    pub fn without_path(&self) -> RequestedRole<'_> {
        match self {
            Self::Name(name) => RequestedRole::Name(Cow::Borrowed(name)),
            Self::Arn(arn) => {
                let (account, role) = arn.split_once(":role/").unwrap_or((arn, ""));
                let name = role.rsplit('/').next().unwrap_or_default();
                RequestedRole::Arn(format!("{account}:role/{name}").into())
            }
        }
    }

    /// Returns the same role without a borrow from the request.
    pub fn into_owned(self) -> RequestedRole<'static> {
        match self {
            Self::Name(name) => RequestedRole::Name(name.into_owned().into()),
            Self::Arn(arn) => RequestedRole::Arn(arn.into_owned().into()),
        }
    }
}

/// The maximum length of a role's path (IAM API reference, `pathType`).
const MAX_ROLE_PATH_LENGTH: usize = 512;

/// True for `arn:PARTITION:iam::ACCOUNT:role/PATH/NAME`. The path consists of the characters of names, and of slashes.
fn is_role_arn(text: &str) -> bool {
    let mut parts = text.splitn(6, ':');
    let [Some("arn"), Some(partition), Some("iam"), Some(""), Some(account), Some(resource)] =
        std::array::from_fn(|_| parts.next())
    else {
        return false;
    };
    let Some(role) = resource.strip_prefix("role/") else { return false };
    let (path, name) = role.rsplit_once('/').unwrap_or(("", role));
    let is_of_partition = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    partition.starts_with("aws")
        && partition.bytes().all(is_of_partition)
        && account.len() == 12
        && account.bytes().all(|byte| byte.is_ascii_digit())
        && path.len() <= MAX_ROLE_PATH_LENGTH
        && path.bytes().all(|byte| is_letter(byte) || byte == b'/')
        && is_role_name(name)
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte)
}

fn is_role_name(name: &str) -> bool {
    (1..=MAX_ROLE_NAME_LENGTH).contains(&name.len())
        && name.bytes().all(is_letter)
        && !matches!(name, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_iam_takes_for_one() {
        for name in ["a", "cart-reader", "A+b=c,d.e@f_g-9", "...", &"r".repeat(64)] {
            assert_eq!(RoleName::new(name).as_ref().map(RoleName::as_str), Some(name));
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a b",
            "a\n",
            "a\r\nb",
            "a%2B",
            "arn:aws:iam::1:role/a",
            "ä",
            &"r".repeat(65),
        ] {
            assert_eq!(RoleName::new(name), None, "{name:?}");
        }
    }

    #[test]
    fn an_arn_without_its_path_keeps_partition_account_and_name() {
        for (arn, expected) in [
            ("arn:aws-cn:iam::123456789012:role/a/b/cart", "arn:aws-cn:iam::123456789012:role/cart"),
            ("arn:aws:iam::123456789012:role/cart", "arn:aws:iam::123456789012:role/cart"),
        ] {
            let role = RequestedRole::parse(arn.into()).unwrap();
            assert_eq!(role.without_path(), RequestedRole::Arn(expected.into()));
        }
        let name = RequestedRole::parse("cart".into()).unwrap();
        assert_eq!(name.without_path(), name);
    }

    #[test]
    fn a_request_names_a_role_by_its_name_or_by_its_arn() {
        let own = OwnRole { name: "cart", arn: "arn:aws:iam::123456789012:role/pods/cart" };
        let asked = |text: &str| RequestedRole::parse(text.to_owned().into()).map(|role| role.is_own(own));
        for text in ["cart", own.arn] {
            assert_eq!(asked(text), Some(true), "{text}");
        }
        for text in [
            "shop",
            "arn:aws:iam::123456789012:role/cart",
            "arn:aws:iam::123456789012:role/pods/shop",
            "arn:aws:iam::123456789012:role/Pods/cart",
            "arn:aws:iam::123456789012:role/pods/x/cart",
            "arn:aws:iam::210987654321:role/pods/cart",
            "arn:aws-cn:iam::123456789012:role/pods/cart",
            &format!("arn:aws:iam::123456789012:role/{}/cart", "p".repeat(512)),
        ] {
            assert_eq!(asked(text), Some(false), "{text}");
        }
        for text in [
            "",
            "pods/cart",
            "arn:aws:iam::123456789012:role",
            "arn:aws:iam::123456789012:role/",
            "arn:aws:iam::123456789012:role/pods/",
            "arn:aws:iam::123456789012:role/..",
            "arn:aws:iam::123456789012:role/pods/a:b",
            "arn:aws:iam::123456789012:role/p:q/cart",
            "arn:aws:iam::123456789012:role/pods/ca rt",
            "arn:aws:iam::12345678901:role/pods/cart",
            "arn:aws:iam::12345678901x:role/pods/cart",
            "arn:aws:iam:eu-west-1:123456789012:role/pods/cart",
            "arn:aws:iam::123456789012:user/pods/cart",
            "arn:aws:iam::123456789012:instance-profile/pods/cart",
            "arn:aws:sts::123456789012:assumed-role/cart/x",
            "arn:evil:iam::123456789012:role/pods/cart",
            "ARN:aws:iam::123456789012:role/pods/cart",
            &format!("arn:aws:iam::123456789012:role/{}/cart", "p".repeat(513)),
            &format!("arn:aws:iam::123456789012:role/{}", "r".repeat(65)),
        ] {
            assert_eq!(asked(text), None, "{text}");
        }
    }
}
