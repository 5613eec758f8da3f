//! Defines the name of a role. The metadata service lists the name, and clients insert the name into the path of the next
//! request.

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

pub(super) fn is_role_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
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
}
