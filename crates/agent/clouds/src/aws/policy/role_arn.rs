//! Identifies roles by their ARN, or by a name that the operator's base ARN completes.
//!
//! The agent never repairs an invalid ARN, because an ARN decides which role's credentials a pod gets and becomes part of a
//! signed request.

use std::sync::Arc;

use seawall_broker::aws::RoleArn;
use seawall_protocols::aws::RoleName;

/// The maximum length of an ARN in characters (IAM API reference, `arnType`).
const LONGEST: usize = 2048;

/// A role with its ARN and with the name that pods see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::aws) struct NamedRole {
    arn: RoleArn,
    name: RoleName,
}

impl NamedRole {
    /// Returns the role with this ARN, or `None` if the text is not the ARN of a role.
    pub(in crate::aws) fn new(text: &str) -> Option<Self> {
        let arn = RoleArn::parse(text).ok().filter(|_| text.len() <= LONGEST)?;
        let is_plain = !text.contains("//");
        Some(Self { name: RoleName::new(arn.name()).filter(|_| is_plain)?, arn })
    }

    /// Returns the role's ARN.
    pub(in crate::aws) fn arn(&self) -> &RoleArn {
        &self.arn
    }

    /// Returns the text of the role's ARN.
    pub(in crate::aws) fn arn_str(&self) -> &str {
        self.arn.as_str()
    }

    /// Returns the role's name without its path.
    pub(in crate::aws) fn name(&self) -> &RoleName {
        &self.name
    }
}

/// The prefix that turns a role's name into an ARN, such as `arn:aws:iam::123456789012:role/`. The prefix can include the
/// beginning of the role's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::aws) struct BaseRoleArn(Arc<str>);

impl BaseRoleArn {
    /// Returns the base ARN with this text, or `None` if the text and a name together do not form the ARN of a role.
    pub(in crate::aws) fn new(text: &str) -> Option<Self> {
        let is_base = text.ends_with('/') && NamedRole::new(&format!("{text}a")).is_some();
        is_base.then(|| Self(text.into()))
    }

    /// Returns the base ARN of all roles of an account.
    pub(in crate::aws) fn of_account(partition: &str, account: &str) -> Option<Self> {
        Self::new(&format!("arn:{partition}:iam::{account}:role/"))
    }

    /// Returns the base ARN as text.
    pub(in crate::aws) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part of a role's ARN after this base: the rest of the path and the name. Returns `None` if the ARN does not
    /// begin with this base.
    pub(in crate::aws) fn path_below<'a>(&self, role: &'a NamedRole) -> Option<&'a str> {
        role.arn_str().strip_prefix(&*self.0)
    }
}

/// Returns the role that an annotation names, either by its ARN in any account or by its name below the base ARN.
///
/// The function ignores a slash at the beginning of a name, as KIAM does.
pub(in crate::aws) fn resolve_role(text: &str, base: Option<&BaseRoleArn>) -> Option<NamedRole> {
    if text.starts_with("arn:") {
        return NamedRole::new(text);
    }
    let name = text.strip_prefix('/').unwrap_or(text);
    NamedRole::new(&format!("{}{name}", base?.as_str()))
}

/// True if the text is the number of an AWS account, which has 12 digits.
pub(in crate::aws) fn is_account_id(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit())
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
            let role = NamedRole::new(text).unwrap();
            assert_eq!((role.arn_str(), role.name().as_str(), role.arn().account()), (text, name, account));
        }
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
            assert_eq!(NamedRole::new(text), None, "{text:?}");
        }
        let named =
            |name: usize| NamedRole::new(&format!("arn:aws:iam::123456789012:role/{}", "n".repeat(name)));
        assert!(named(64).is_some() && named(65).is_none());
    }

    #[test]
    fn a_name_is_a_role_below_the_base_and_an_arn_is_itself() {
        let base = BaseRoleArn::new("arn:aws:iam::123456789012:role/pods/").unwrap();
        for (text, arn) in [
            ("cart", "arn:aws:iam::123456789012:role/pods/cart"),
            ("/cart", "arn:aws:iam::123456789012:role/pods/cart"),
            ("web/cart", "arn:aws:iam::123456789012:role/pods/web/cart"),
            ("arn:aws:iam::999999999999:role/cart", "arn:aws:iam::999999999999:role/cart"),
        ] {
            assert_eq!(resolve_role(text, Some(&base)).unwrap().arn_str(), arn, "{text}");
        }
        for text in ["", "/", "//cart", "web//cart", "a b", "cart/", "arn:aws:iam::1:role/cart", ".."] {
            assert_eq!(resolve_role(text, Some(&base)), None, "{text:?}");
        }
        assert_eq!(resolve_role("cart", None), None, "a name needs a base ARN");
    }

    #[test]
    fn a_base_ends_where_a_name_begins() {
        let whole = BaseRoleArn::of_account("aws", "123456789012").unwrap();
        assert_eq!(whole.as_str(), "arn:aws:iam::123456789012:role/");
        let role = NamedRole::new("arn:aws:iam::123456789012:role/pods/cart").unwrap();
        assert_eq!(whole.path_below(&role), Some("pods/cart"));
        assert_eq!(BaseRoleArn::of_account("aws", "999999999999").unwrap().path_below(&role), None);
        for text in [
            "arn:aws:iam::123456789012:role",
            "arn:aws:iam::123456789012:role/pods",
            "arn:aws:iam::123456789012:role//",
            "arn:aws:iam::123456789012:role/a//",
            "arn:aws:iam::12:role/",
            "",
        ] {
            assert_eq!(BaseRoleArn::new(text), None, "{text:?}");
        }
    }
}
