//! Values of the emulators' flags.

use std::path::PathBuf;
use std::time::Duration;

use seawall_emulator::faults::{ExcessAction, Throttle};
use seawall_emulator::service_account_tokens::Workload;

/// `500ms`, `2s`, `1h30m`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    seawall_core::duration::parse(text)
        .ok_or_else(|| "expected a duration such as 500ms, 2s or 1h30m".to_owned())
}

/// Parses a duration of whole seconds, at least one, as a token can carry it.
pub(super) fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let whole = parse_duration(text).ok().filter(|span| span.as_secs() > 0 && span.subsec_nanos() == 0);
    whole.ok_or_else(|| "expected whole seconds, at least one, such as 60s or 1h".to_owned())
}

/// A share of requests.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    parsed.ok_or_else(|| "expected a share from 0 to 1, such as 0.05".to_owned())
}

/// `RATE` or `RATE:BURST`, per second; what becomes of the excess is another flag.
pub(super) fn parse_throttle(text: &str) -> Result<Throttle, String> {
    let (rate, burst) = text.split_once(':').unwrap_or((text, text));
    let positive = |number: &str| number.parse().ok().filter(|number: &u32| *number > 0);
    positive(rate)
        .zip(positive(burst))
        .map(|(per_second, burst)| Throttle { per_second, burst, excess: ExcessAction::Refuse })
        .ok_or_else(|| "expected requests per second, RATE or RATE:BURST, such as 100 or 100:20".to_owned())
}

/// The service account that a workload may impersonate: `NAMESPACE/SERVICEACCOUNT=EMAIL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImpersonationGrant {
    pub(super) workload: Workload,
    pub(super) email: String,
}

pub(super) fn parse_impersonation_grant(text: &str) -> Result<ImpersonationGrant, String> {
    let expected = || "expected NAMESPACE/SERVICEACCOUNT=EMAIL".to_owned();
    let (who, email) = text.split_once('=').ok_or_else(expected)?;
    let email = email.contains('@').then(|| email.to_owned()).ok_or_else(expected)?;
    Ok(ImpersonationGrant { workload: parse_workload(who).ok_or_else(expected)?, email })
}

/// A pod of the demo: `NAMESPACE/SERVICEACCOUNT`, and `=EMAIL` if not `SERVICEACCOUNT@PROJECT…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GooglePodArg {
    pub(super) workload: Workload,
    pub(super) email: Option<String>,
}

pub(super) fn parse_google_pod(text: &str) -> Result<GooglePodArg, String> {
    if text.contains('=') {
        return parse_impersonation_grant(text)
            .map(|grant| GooglePodArg { workload: grant.workload, email: Some(grant.email) });
    }
    let workload =
        parse_workload(text).ok_or_else(|| "expected NAMESPACE/SERVICEACCOUNT[=EMAIL]".to_owned())?;
    Ok(GooglePodArg { workload, email: None })
}

/// The role that a workload may assume: `NAMESPACE/SERVICEACCOUNT=ROLE`, the role by name or ARN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoleGrantArg {
    pub(super) workload: Workload,
    pub(super) role: String,
}

pub(super) fn parse_role_grant(text: &str) -> Result<RoleGrantArg, String> {
    let expected = || "expected NAMESPACE/SERVICEACCOUNT=ROLE, the role by name or ARN".to_owned();
    let (who, role) = text.split_once('=').ok_or_else(expected)?;
    let role = Some(role).filter(|role| is_role(role)).ok_or_else(expected)?;
    Ok(RoleGrantArg { workload: parse_workload(who).ok_or_else(expected)?, role: role.to_owned() })
}

/// A pod of AWS's demo: `NAMESPACE/SERVICEACCOUNT`, and `=ROLE` if not the role of the ServiceAccount's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AwsPodArg {
    pub(super) workload: Workload,
    pub(super) role: Option<String>,
}

pub(super) fn parse_aws_pod(text: &str) -> Result<AwsPodArg, String> {
    if text.contains('=') {
        return parse_role_grant(text)
            .map(|grant| AwsPodArg { workload: grant.workload, role: Some(grant.role) });
    }
    let workload =
        parse_workload(text).ok_or_else(|| "expected NAMESPACE/SERVICEACCOUNT[=ROLE]".to_owned())?;
    Ok(AwsPodArg { workload, role: None })
}

/// A name of IAM's, or the ARN of a role with such a name.
fn is_role(text: &str) -> bool {
    let name = match text.strip_prefix("arn:") {
        Some(rest) => {
            rest.split_once(":role/").map_or("", |(_, path)| path.rsplit('/').next().unwrap_or_default())
        }
        None => text,
    };
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_+=,.@-".contains(&b))
}

/// A user of IAM and the file for its keys: `NAME=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserKeyFileArg {
    pub(super) name: String,
    pub(super) file: PathBuf,
}

pub(super) fn parse_user_and_key_file_arg(text: &str) -> Result<UserKeyFileArg, String> {
    let parts = text.split_once('=').filter(|(name, file)| is_role(name) && !file.is_empty());
    let (name, file) = parts.ok_or_else(|| "expected NAME=FILE".to_owned())?;
    Ok(UserKeyFileArg { name: name.to_owned(), file: file.into() })
}

/// An account of AWS's.
pub(super) fn parse_aws_account(text: &str) -> Result<String, String> {
    let is_account = text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit());
    if is_account { Ok(text.to_owned()) } else { Err("expected an account: twelve digits".to_owned()) }
}

fn parse_workload(text: &str) -> Option<Workload> {
    let (namespace, name) = text.split_once('/')?;
    // A namespace has no dot (RFC 1123 label), a ServiceAccount may have (RFC 1123 subdomain).
    let is_label =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    (is_label(namespace) && name.split('.').all(is_label))
        .then(|| Workload::for_service_account(namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_two_dns_names() {
        for good in ["reef/coral", "kube-system/a.b-c"] {
            assert!(parse_workload(good).is_some(), "{good}");
        }
        for wrong in ["", "coral", "reef/", "/coral", "a.b/c", "a/b/c", "../x/y", "reef/..", "reef/a b"] {
            assert!(parse_workload(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn roles_are_names_or_arns() {
        for good in ["a/b=cart", "a/b=arn:aws:iam::123456789012:role/x/cart"] {
            assert!(parse_role_grant(good).is_ok(), "{good}");
        }
        for wrong in ["a/b", "a/b=", "a/b=x y", "a/b=arn:aws:iam::1:user/x", "=x"] {
            assert!(parse_role_grant(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_aws_pod("a/b").unwrap().role, None);
        assert!(
            parse_user_and_key_file_arg("kiam=./keys").is_ok()
                && parse_user_and_key_file_arg("kiam=").is_err()
                && parse_user_and_key_file_arg("kiam").is_err()
        );
        assert!(parse_aws_account("123456789012").is_ok() && parse_aws_account("12").is_err());
    }

    #[test]
    fn numbers_with_units_are_read() {
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert!(
            parse_duration("-1s").is_err()
                && parse_duration("5").is_err()
                && parse_lifetime("1500ms").is_err()
        );
        assert!(parse_share("1.01").is_err() && parse_share("NaN").is_err() && parse_share("0.5") == Ok(0.5));
        assert_eq!(parse_throttle("100:20").map(|t| (t.per_second, t.burst)), Ok((100, 20)));
        assert!(parse_throttle("0").is_err() && parse_throttle("5:").is_err());
        assert_eq!(parse_impersonation_grant("a/b=c@d").unwrap().email, "c@d");
        assert!(parse_impersonation_grant("a/b").is_err() && parse_impersonation_grant("a/b=c").is_err());
    }
}
