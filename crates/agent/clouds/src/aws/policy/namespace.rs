//! Reads the namespace annotations of KIAM and kube2iam to decide which roles the namespace's pods may use.
//!
//! A user who is allowed to create pods in a namespace can write any role into the pods' own annotations. This check prevents
//! pods of one namespace from using the roles of another namespace. A namespace permits a role only if an annotation allows the
//! role, unless the operator turns the check off. In kube2iam the check is off by default.
//!
//! An expression must match the whole name of a role. In KIAM and kube2iam a partial match can suffice. KIAM puts `^` and `$`
//! around the expression, so each alternative of `a|b` is anchored at one side only. kube2iam adds no anchors.

use seawall_core::annotations::{Annotations, LengthCheckedAnnotation};
use seawall_http::Refusal;
use seawall_protocols::aws::Pattern;

use super::annotations::{ALLOWED_ROLES_ANNOTATION, PERMITTED_ROLES_ANNOTATION};
use super::role_arn::{BaseRoleArn, NamedRole};

/// The namespace annotations that the agent uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::aws) struct NamespaceRules {
    /// True if the agent uses `iam.amazonaws.com/permitted`.
    pub(in crate::aws) uses_kiam_annotation: bool,
    /// The settings for `iam.amazonaws.com/allowed-roles`. `None` if the agent ignores the annotations of kube2iam.
    pub(in crate::aws) kube2iam: Option<Kube2iamFlags>,
}

/// The flags with which the operator ran kube2iam.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::aws) struct Kube2iamFlags {
    /// True if the agent applies `allowed-roles`, as kube2iam does with its flag `--namespace-restrictions`.
    /// In that case, a namespace without the annotation permits no role.
    pub(in crate::aws) namespace_restrictions: bool,
    /// The format of the list, as in kube2iam's flag `--namespace-restriction-format`.
    pub(in crate::aws) namespace_restriction_format: AllowedRolesFormat,
}

/// The format of the entries of `allowed-roles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::aws) enum AllowedRolesFormat {
    /// Entries are globs, in which `*` matches any text.
    Glob,
    /// Entries are regular expressions.
    Regexp,
}

const NO_PERMITTED_ANNOTATION: Refusal = Refusal::new(
    403,
    "no_permitted_annotation",
    "This pod's namespace permits no role: it has no annotation iam.amazonaws.com/permitted.",
);
const NO_ALLOWED_ROLES_ANNOTATION: Refusal = Refusal::new(
    403,
    "no_allowed_roles_annotation",
    "This pod's namespace permits no role: it has no annotation iam.amazonaws.com/allowed-roles.",
);
const ROLE_NOT_PERMITTED: Refusal = Refusal::new(
    403,
    "role_not_permitted",
    "The annotation iam.amazonaws.com/permitted of this pod's namespace does not match the whole name or ARN of the role that the pod names.",
);
const ROLE_NOT_ALLOWED: Refusal = Refusal::new(
    403,
    "role_not_allowed",
    "No entry in the annotation iam.amazonaws.com/allowed-roles of this pod's namespace matches the role that the pod names.",
);
const MALFORMED_PERMITTED: Refusal = Refusal::new(
    403,
    "malformed_permitted",
    "The annotation iam.amazonaws.com/permitted of this pod's namespace is not a usable regular expression.",
);
const MALFORMED_ALLOWED: Refusal = Refusal::new(
    403,
    "malformed_allowed_roles",
    "The annotation iam.amazonaws.com/allowed-roles of this pod's namespace is not a usable JSON list of roles.",
);
const NO_NAMESPACE: Refusal =
    Refusal::new(403, "no_namespace", "This pod's namespace does not exist, so it permits no role.");

impl NamespaceRules {
    /// Checks that a namespace permits a role. Each annotation that the namespace has and that the agent uses must permit the
    /// role.
    ///
    /// At least one annotation must be present, unless only kube2iam without restrictions is configured.
    ///
    /// # Errors
    /// Returns the refusal for the annotation that is missing or does not permit the role.
    pub(in crate::aws) fn check_role_permitted(
        self,
        namespace: Option<&Annotations>,
        role: &NamedRole,
        base: Option<&BaseRoleArn>,
    ) -> Result<(), Refusal> {
        let namespace = namespace.ok_or(NO_NAMESPACE)?;
        let permitted = namespace
            .find(PERMITTED_ROLES_ANNOTATION)
            .filter(|text| self.uses_kiam_annotation && !is_empty(text));
        let allowed = self
            .restricting()
            .and_then(|kube2iam| Some((kube2iam, namespace.find(ALLOWED_ROLES_ANNOTATION)?)));
        if let Some(expression) = permitted {
            matches_permitted(expression, role, base)?;
        }
        if let Some((kube2iam, list)) = allowed.filter(|(_, list)| !is_empty(list)) {
            return is_among(list, kube2iam.namespace_restriction_format, role, base);
        }
        if permitted.is_some() { Ok(()) } else { self.without_any() }
    }

    /// Returns the settings for `allowed-roles`, or `None` if the agent ignores the list.
    ///
    /// Without the flag `--namespace-restrictions`, kube2iam ignores the list. A namespace can therefore have an outdated list.
    /// If Seawall enforced an outdated list, pods would lose roles at the migration from kube2iam.
    fn restricting(self) -> Option<Kube2iamFlags> {
        self.kube2iam.filter(|kube2iam| kube2iam.namespace_restrictions)
    }

    /// Decides about a namespace without annotations that the agent uses. An empty annotation counts as absent.
    fn without_any(self) -> Result<(), Refusal> {
        match self.kube2iam {
            _ if self.uses_kiam_annotation => Err(NO_PERMITTED_ANNOTATION),
            Some(Kube2iamFlags { namespace_restrictions: false, .. }) => Ok(()),
            _ => Err(NO_ALLOWED_ROLES_ANNOTATION),
        }
    }
}

fn is_empty(text: &LengthCheckedAnnotation) -> bool {
    matches!(text, LengthCheckedAnnotation::Whole(text) if text.is_empty())
}

/// Checks that the expression of `permitted` matches the role.
///
/// Since version 4, KIAM compares the expression with the ARN. Older versions compared the expression with the text of the pod's
/// annotation. Therefore, for a role below the base ARN, either the ARN or the name must match. For other roles only the ARN
/// counts, so `cart` never matches the role `cart` of another account.
fn matches_permitted(
    expression: &LengthCheckedAnnotation,
    role: &NamedRole,
    base: Option<&BaseRoleArn>,
) -> Result<(), Refusal> {
    let LengthCheckedAnnotation::Whole(expression) = expression else { return Err(MALFORMED_PERMITTED) };
    let pattern = Pattern::new(expression).map_err(|_| MALFORMED_PERMITTED)?;
    let below = base.and_then(|base| base.path_below(role));
    let is_match = pattern.matches(role.arn_str()) || below.is_some_and(|name| pattern.matches(name));
    if is_match { Ok(()) } else { Err(ROLE_NOT_PERMITTED) }
}

/// Checks that an entry of the list matches the role. Entries are ARNs, or names below the base ARN.
///
/// Without a base ARN, the function compares each entry with the full ARN of the role. In that case `*` matches every role, as in
/// kube2iam.
fn is_among(
    list: &LengthCheckedAnnotation,
    format: AllowedRolesFormat,
    role: &NamedRole,
    base: Option<&BaseRoleArn>,
) -> Result<(), Refusal> {
    let LengthCheckedAnnotation::Whole(list) = list else { return Err(MALFORMED_ALLOWED) };
    let entries: Vec<String> = serde_json::from_str(list).map_err(|_| MALFORMED_ALLOWED)?;
    for entry in &entries {
        if is_entry_of(entry, format, role, base)? {
            return Ok(());
        }
    }
    Err(ROLE_NOT_ALLOWED)
}

fn is_entry_of(
    entry: &str,
    format: AllowedRolesFormat,
    role: &NamedRole,
    base: Option<&BaseRoleArn>,
) -> Result<bool, Refusal> {
    let is_whole = entry.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("arn:"));
    let text = match base {
        Some(base) if !is_whole => base.path_below(role),
        _ => Some(role.arn_str()),
    };
    let Some(text) = text else { return Ok(false) };
    match format {
        AllowedRolesFormat::Glob => Ok(is_glob_of(entry, text)),
        AllowedRolesFormat::Regexp => {
            Pattern::new(entry).map(|p| p.matches(text)).map_err(|_| MALFORMED_ALLOWED)
        }
    }
}

/// True if the pattern matches the whole text. `*` matches any text, including slashes.
///
/// The function searches each part of the pattern once, from the end of the previous match. The time is therefore at most
/// proportional to the length of the pattern times the length of the text. Both lengths are limited.
fn is_glob_of(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut left) = text.strip_prefix(first).and_then(|left| left.strip_suffix(last)) else {
        return false;
    };
    for part in middle.split('*') {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIAM: NamespaceRules = NamespaceRules { uses_kiam_annotation: true, kube2iam: None };
    const GLOB: NamespaceRules = NamespaceRules {
        uses_kiam_annotation: false,
        kube2iam: Some(Kube2iamFlags {
            namespace_restrictions: true,
            namespace_restriction_format: AllowedRolesFormat::Glob,
        }),
    };
    const REGEXP: NamespaceRules = NamespaceRules {
        uses_kiam_annotation: false,
        kube2iam: Some(Kube2iamFlags {
            namespace_restrictions: true,
            namespace_restriction_format: AllowedRolesFormat::Regexp,
        }),
    };
    const OPEN: NamespaceRules = NamespaceRules {
        uses_kiam_annotation: false,
        kube2iam: Some(Kube2iamFlags {
            namespace_restrictions: false,
            namespace_restriction_format: AllowedRolesFormat::Glob,
        }),
    };
    const BOTH: NamespaceRules = NamespaceRules { uses_kiam_annotation: true, ..GLOB };

    const OWN: &str = "arn:aws:iam::123456789012:role/";
    const OTHERS: &str = "arn:aws:iam::999999999999:role/cart";

    fn decide(rules: NamespaceRules, said: &[(&'static str, &str)], role: &str) -> Result<(), &'static str> {
        let said = said.iter().map(|(key, text)| (*key, LengthCheckedAnnotation::from(*text))).collect();
        let role = if role.starts_with("arn:") { role.to_owned() } else { format!("{OWN}{role}") };
        let (role, base) = (NamedRole::new(&role).unwrap(), BaseRoleArn::new(OWN));
        rules.check_role_permitted(Some(&said), &role, base.as_ref()).map_err(|refusal| {
            assert_eq!(refusal.status, 403);
            refusal.code
        })
    }

    #[test]
    fn kiams_expression_permits_what_it_matches_as_a_whole() {
        const NO: Result<(), &str> = Err("role_not_permitted");
        for (expression, role, expected) in [
            (".*", "cart", Ok(())),
            (".*", OTHERS, Ok(())),
            ("cart", "cart", Ok(())),
            ("car", "cart", NO),
            ("art", "cart", NO),
            ("^red.*$|^.red.*$", "red_role", Ok(())),
            ("^red.*$|^.red.*$", "orange_role", NO),
            // KIAM accepts the next two roles, because it anchors each alternative at one side only.
            ("red|blue", "redder", NO),
            ("red|blue", "darkblue", NO),
            ("red|blue", "blue", Ok(())),
            (".*role", "red_role", Ok(())),
            ("arn:aws:iam::123456789012:role/.*", "red", Ok(())),
            ("arn:aws:iam::123456789012:role/.*", OTHERS, NO),
            (".*/web/.*", "web/cart", Ok(())),
            ("web/.*", "web/cart", Ok(())),
            ("cart", "web/cart", NO),
            // The name must not match a role in another account.
            ("cart", OTHERS, NO),
            (OTHERS, OTHERS, Ok(())),
            ("(", "cart", Err("malformed_permitted")),
            ("a)|(.*", "cart", Err("malformed_permitted")),
        ] {
            assert_eq!(
                decide(KIAM, &[(PERMITTED_ROLES_ANNOTATION, expression)], role),
                expected,
                "{expression} {role}"
            );
        }
    }

    #[test]
    fn a_namespace_that_says_nothing_permits_nothing_unless_kube2iam_ran_so() {
        for (rules, said, expected) in [
            (KIAM, &[][..], Err("no_permitted_annotation")),
            (KIAM, &[(PERMITTED_ROLES_ANNOTATION, "")], Err("no_permitted_annotation")),
            (KIAM, &[(ALLOWED_ROLES_ANNOTATION, "[\"*\"]")], Err("no_permitted_annotation")),
            (GLOB, &[], Err("no_allowed_roles_annotation")),
            (GLOB, &[(ALLOWED_ROLES_ANNOTATION, "")], Err("no_allowed_roles_annotation")),
            (GLOB, &[(ALLOWED_ROLES_ANNOTATION, "[]")], Err("role_not_allowed")),
            (GLOB, &[(PERMITTED_ROLES_ANNOTATION, ".*")], Err("no_allowed_roles_annotation")),
            (OPEN, &[], Ok(())),
            (BOTH, &[], Err("no_permitted_annotation")),
        ] {
            assert_eq!(decide(rules, said, "cart"), expected, "{rules:?} {said:?}");
        }
        let role = NamedRole::new(OTHERS).unwrap();
        assert_eq!(OPEN.check_role_permitted(None, &role, None), Err(NO_NAMESPACE));
    }

    /// Regression: the agent enforced a list even if `namespace_restrictions` was false. Pods lost roles that kube2iam had given
    /// them.
    #[test]
    fn without_namespace_restrictions_a_list_decides_nothing() {
        let long = "x".repeat(seawall_core::annotations::MAX_VALUE_LENGTH + 1);
        for list in ["[]", r#"["pay"]"#, "no list", &long] {
            assert_eq!(decide(OPEN, &[(ALLOWED_ROLES_ANNOTATION, list)], "cart"), Ok(()), "{list}");
        }
        let with_kiam = NamespaceRules { uses_kiam_annotation: true, ..OPEN };
        let said =
            |permitted| [(PERMITTED_ROLES_ANNOTATION, permitted), (ALLOWED_ROLES_ANNOTATION, r#"["cart"]"#)];
        assert_eq!(decide(with_kiam, &said("pay"), "cart"), Err("role_not_permitted"));
        assert_eq!(decide(with_kiam, &said("cart"), "cart"), Ok(()));
        assert_eq!(decide(with_kiam, &said(""), "cart"), Err("no_permitted_annotation"));
    }

    /// Regression: only entries that began with `arn:` matched, so `["*"]` permitted nothing.
    #[test]
    fn without_a_base_an_entry_is_of_a_whole_arn() {
        let role = NamedRole::new(OTHERS).unwrap();
        for (rules, list, expected) in [
            (GLOB, r#"["*"]"#, Ok(())),
            (GLOB, r#"["*:role/cart"]"#, Ok(())),
            (GLOB, r#"["*:role/pay"]"#, Err(ROLE_NOT_ALLOWED)),
            (GLOB, r#"["cart"]"#, Err(ROLE_NOT_ALLOWED)),
            (REGEXP, r#"[".*/cart"]"#, Ok(())),
            (REGEXP, r#"["cart"]"#, Err(ROLE_NOT_ALLOWED)),
        ] {
            let said =
                [(ALLOWED_ROLES_ANNOTATION, LengthCheckedAnnotation::from(list))].into_iter().collect();
            assert_eq!(rules.check_role_permitted(Some(&said), &role, None), expected, "{list}");
        }
    }

    #[test]
    fn kube2iams_list_names_roles_by_name_pattern_and_arn() {
        const NO: Result<(), &str> = Err("role_not_allowed");
        for (list, role, expected) in [
            (r#"["cart"]"#, "cart", Ok(())),
            (r#"["pay", "cart"]"#, "cart", Ok(())),
            (r#"["pay"]"#, "cart", NO),
            (r#"["car"]"#, "cart", NO),
            (r#"["ca*"]"#, "cart", Ok(())),
            (r#"["*rt"]"#, "cart", Ok(())),
            (r#"["c*r*t"]"#, "cart", Ok(())),
            (r#"["ca*art"]"#, "cart", NO),
            (r#"["*"]"#, "web/cart", Ok(())),
            (r#"["*"]"#, OTHERS, NO),
            (r#"["web/*"]"#, "web/cart", Ok(())),
            (r#"["arn:aws:iam::999999999999:role/*"]"#, OTHERS, Ok(())),
            (r#"["arn:*"]"#, OTHERS, Ok(())),
            (r#"["cart""#, "cart", Err("malformed_allowed_roles")),
            ("cart", "cart", Err("malformed_allowed_roles")),
            (r#"[1]"#, "cart", Err("malformed_allowed_roles")),
        ] {
            assert_eq!(decide(GLOB, &[(ALLOWED_ROLES_ANNOTATION, list)], role), expected, "{list} {role}");
        }
        for (list, role, expected) in [
            (r#"["ca.t"]"#, "cart", Ok(())),
            (r#"["ca"]"#, "cart", NO),
            (r#"["arn:aws:iam::\\d+:role/ca.*"]"#, OTHERS, Ok(())),
            (r#"["("]"#, "cart", Err("malformed_allowed_roles")),
        ] {
            assert_eq!(decide(REGEXP, &[(ALLOWED_ROLES_ANNOTATION, list)], role), expected, "{list} {role}");
        }
    }

    #[test]
    fn where_both_count_both_must_permit() {
        for (permitted, allowed, expected) in [
            ("cart", r#"["cart"]"#, Ok(())),
            ("pay", r#"["cart"]"#, Err("role_not_permitted")),
            ("cart", r#"["pay"]"#, Err("role_not_allowed")),
            ("cart", "", Ok(())),
            ("", r#"["cart"]"#, Ok(())),
        ] {
            let said = [(PERMITTED_ROLES_ANNOTATION, permitted), (ALLOWED_ROLES_ANNOTATION, allowed)];
            assert_eq!(decide(BOTH, &said, "cart"), expected, "{said:?}");
        }
    }

    #[test]
    fn a_text_too_long_to_be_kept_permits_nothing() {
        let long = format!("cart|{}", "x".repeat(seawall_core::annotations::MAX_VALUE_LENGTH));
        assert_eq!(decide(KIAM, &[(PERMITTED_ROLES_ANNOTATION, &long)], "cart"), Err("malformed_permitted"));
        assert_eq!(
            decide(GLOB, &[(ALLOWED_ROLES_ANNOTATION, &long)], "cart"),
            Err("malformed_allowed_roles")
        );
    }

    #[test]
    fn a_glob_is_of_the_whole_text_and_its_parts_do_not_overlap() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("**", "a", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*b", "a-b", false),
            ("*b*", "abc", true),
            ("é*", "éa", true),
        ] {
            assert_eq!(is_glob_of(pattern, text), expected, "{pattern} {text}");
        }
    }
}
