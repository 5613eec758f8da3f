//! Roles by their full names (ARNs), and by names that an operator's base makes full ones.
//!
//! An ARN decides whose credentials a pod gets and travels into a signed request, so what is not one is never mended.

use std::fmt;
use std::sync::Arc;

use seawall_cloud::aws::RoleName;

/// Longest ARN, in characters (IAM API reference, `arnType`).
const LONGEST: usize = 2048;

/// Longest path of a role, in characters (IAM user guide, "IAM and AWS STS quotas").
const LONGEST_PATH: usize = 512;

/// A role's full name: `arn:PARTITION:iam::ACCOUNT:role/PATH/NAME`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct RoleArn {
    text: Arc<str>,
    name: RoleName,
}

impl fmt::Debug for RoleArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl RoleArn {
    /// The role of this ARN, if it is a role's.
    pub(super) fn new(text: &str) -> Option<Self> {
        let (_, _, path_and_name) = split(text)?;
        let (path, name) = path_and_name.rsplit_once('/').unwrap_or(("", path_and_name));
        let fits = text.len() <= LONGEST && path.len() <= LONGEST_PATH;
        let fits = fits && !path_and_name.starts_with('/') && is_path(path);
        Some(Self { name: RoleName::new(name).filter(|_| fits)?, text: text.into() })
    }

    /// The ARN.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// What pods see of it: its name without its path.
    pub(super) fn name(&self) -> &RoleName {
        &self.name
    }

    /// The account that it is in: twelve digits.
    pub(super) fn account(&self) -> &str {
        split(&self.text).map(|(_, account, _)| account).unwrap_or_default()
    }

    /// `aws`, or that of another part of AWS that has accounts of its own.
    pub(super) fn partition(&self) -> &str {
        split(&self.text).map(|(partition, ..)| partition).unwrap_or_default()
    }
}

/// What roles are below that are given by name: an ARN that ends before the name, `arn:aws:iam::123456789012:role/`, or after a part of
/// the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base(Arc<str>);

impl Base {
    /// The base of this text.
    pub(super) fn new(text: &str) -> Option<Self> {
        let (_, _, path) = split(text)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let ends = text.ends_with('/') && !text.ends_with("//");
        (ends && text.len() <= LONGEST && is_path(path)).then(|| Self(text.into()))
    }

    /// All roles of an account.
    pub(super) fn of_account(partition: &str, account: &str) -> Option<Self> {
        Self::new(&format!("arn:{partition}:iam::{account}:role/"))
    }

    /// The text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// What a role is called below here, with what it has of a path; nothing if it is elsewhere.
    pub(super) fn below<'a>(&self, role: &'a RoleArn) -> Option<&'a str> {
        role.as_str().strip_prefix(&*self.0)
    }
}

/// The role that an annotation names: by its ARN, in whichever account, or by what it is called below the base; there a slash at the
/// beginning means nothing, as it does to KIAM.
pub(super) fn resolve(text: &str, base: Option<&Base>) -> Option<RoleArn> {
    if text.starts_with("arn:") {
        return RoleArn::new(text);
    }
    let name = text.strip_prefix('/').unwrap_or(text);
    RoleArn::new(&format!("{}{name}", base?.as_str()))
}

/// Partition, account, and what follows `role/`.
fn split(arn: &str) -> Option<(&str, &str, &str)> {
    let (partition, rest) = arn.strip_prefix("arn:")?.split_once(":iam::")?;
    let (account, role) = rest.split_once(":role/")?;
    let is_partition = partition.starts_with("aws")
        && partition.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    (is_partition && is_account(account)).then_some((partition, account, role))
}

/// Whether this is an account's number.
pub(super) fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit())
}

/// A role's path without the slashes at its ends; of what IAM allows (`!` to `~`) without what JSON escapes.
fn is_path(path: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
    };
    path.is_empty() || path.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_of_a_role_is_read_with_its_path_and_whichever_account() {
        for (text, name, account) in [
            ("arn:aws:iam::123456789012:role/cart", "cart", "123456789012"),
            (
                "arn:aws-cn:iam::000000000001:role/team/web/cart+x=1,2.3@4_5-6",
                "cart+x=1,2.3@4_5-6",
                "000000000001",
            ),
            ("arn:aws-us-gov:iam::123456789012:role/aws-service-role/x/y", "y", "123456789012"),
        ] {
            let role = RoleArn::new(text).unwrap();
            assert_eq!((role.as_str(), role.name().as_str(), role.account()), (text, name, account));
        }
        assert_eq!(RoleArn::new("arn:aws-cn:iam::123456789012:role/x").unwrap().partition(), "aws-cn");
    }

    #[test]
    fn what_is_no_arn_of_a_role_is_none() {
        for text in [
            "",
            "cart",
            "arn:aws:iam::123456789012:role/",
            "arn:aws:iam::123456789012:role/x/",
            "arn:aws:iam::123456789012:role//x",
            "arn:aws:iam::123456789012:role/a//x",
            "arn:aws:iam::12345678901:role/x",
            "arn:aws:iam::1234567890123:role/x",
            "arn:aws:iam::12345678901a:role/x",
            "arn:aws:iam::123456789012:user/x",
            "arn:aws:iam:eu:123456789012:role/x",
            "arn:aws:sts::123456789012:assumed-role/x/y",
            "arn:AWS:iam::123456789012:role/x",
            "arn:other:iam::123456789012:role/x",
            "ARN:aws:iam::123456789012:role/x",
            "arn:aws:iam::123456789012:role/x y",
            "arn:aws:iam::123456789012:role/x\n",
            "arn:aws:iam::123456789012:role/x\"",
            "arn:aws:iam::123456789012:role/a\"b/x",
            "arn:aws:iam::123456789012:role/é/x",
            "arn:aws:iam::123456789012:role/..",
            " arn:aws:iam::123456789012:role/x",
        ] {
            assert_eq!(RoleArn::new(text), None, "{text:?}");
        }
        let long = |path: usize, name: usize| {
            RoleArn::new(&format!("arn:aws:iam::123456789012:role/{}/{}", "p".repeat(path), "n".repeat(name)))
        };
        assert!(long(512, 64).is_some() && long(513, 64).is_none() && long(512, 65).is_none());
    }

    #[test]
    fn a_name_is_a_role_below_the_base_and_an_arn_is_itself() {
        let base = Base::new("arn:aws:iam::123456789012:role/pods/").unwrap();
        for (text, arn) in [
            ("cart", "arn:aws:iam::123456789012:role/pods/cart"),
            ("/cart", "arn:aws:iam::123456789012:role/pods/cart"),
            ("web/cart", "arn:aws:iam::123456789012:role/pods/web/cart"),
            ("arn:aws:iam::999999999999:role/cart", "arn:aws:iam::999999999999:role/cart"),
        ] {
            assert_eq!(resolve(text, Some(&base)).unwrap().as_str(), arn, "{text}");
        }
        for text in ["", "/", "//cart", "web//cart", "a b", "cart/", "arn:aws:iam::1:role/cart", ".."] {
            assert_eq!(resolve(text, Some(&base)), None, "{text:?}");
        }
        assert_eq!(resolve("cart", None), None, "no base, no name");
    }

    #[test]
    fn a_base_ends_where_a_name_begins() {
        let whole = Base::of_account("aws", "123456789012").unwrap();
        assert_eq!(whole.as_str(), "arn:aws:iam::123456789012:role/");
        let role = RoleArn::new("arn:aws:iam::123456789012:role/pods/cart").unwrap();
        assert_eq!(whole.below(&role), Some("pods/cart"));
        assert_eq!(Base::of_account("aws", "999999999999").unwrap().below(&role), None);
        for text in [
            "arn:aws:iam::123456789012:role",
            "arn:aws:iam::123456789012:role/pods",
            "arn:aws:iam::123456789012:role//",
            "arn:aws:iam::123456789012:role/a//",
            "arn:aws:iam::12:role/",
            "",
        ] {
            assert_eq!(Base::new(text), None, "{text:?}");
        }
    }
}
