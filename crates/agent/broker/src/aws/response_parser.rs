//! Parses AWS's responses. A missing or invalid field is an error; no field has a default value.

use std::time::{Duration, SystemTime};

use seawall_core::{Secret, ServiceAccount};
use serde::Deserialize;

use super::credential::AwsCredentialParts;
use super::xml;
use crate::failure::{ExchangeError, ExchangeFault};
use crate::upstream_bodies;

/// Parses a successful response of STS to `action`.
pub(super) fn parse_sts_session(
    step: &'static str,
    action: &str,
    body: &[u8],
) -> Result<AwsCredentialParts, ExchangeError> {
    let nonsense = |what: &str| {
        ExchangeError::new(ExchangeFault::Unavailable, step, format_args!("answered 200 with {what}"))
    };
    let at = |place: &str| format!("{action}Response/{action}Result/{place}");
    let places = [
        at("Credentials/AccessKeyId"),
        at("Credentials/SecretAccessKey"),
        at("Credentials/SessionToken"),
        at("Credentials/Expiration"),
        at("AssumedRoleUser/Arn"),
    ];
    let texts = xml::element_texts(body, places.each_ref().map(String::as_str));
    let texts = texts.map_err(|_| nonsense("a body that is not the expected XML"))?;
    let [Some(id), Some(secret), Some(token), Some(end), Some(role)] = texts else {
        return Err(nonsense("incomplete credentials"));
    };
    let end: jiff::Timestamp =
        end.expose().trim().parse().map_err(|_| nonsense("credentials whose expiry is unreadable"))?;
    Ok(AwsCredentialParts {
        access_key_id: id.expose().clone(),
        secret_access_key: secret,
        session_token: token,
        expires: end.into(),
        assumed_role_arn: role.expose().clone(),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodIdentity {
    subject: Subject,
    assumed_role_user: AssumedRoleUser,
    credentials: Credentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subject {
    namespace: String,
    service_account: String,
}

#[derive(Deserialize)]
struct AssumedRoleUser {
    arn: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    expiration: Instant,
}

/// A time in restJson1. The format uses seconds since 1970, but some servers send text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Instant {
    Seconds(f64),
    Text(jiff::Timestamp),
}

impl Instant {
    fn time(self) -> Option<SystemTime> {
        match self {
            Self::Seconds(seconds) => {
                SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
            }
            Self::Text(at) => Some(at.into()),
        }
    }
}

/// Parses a successful response of EKS Auth, and checks that the response is for this ServiceAccount.
/// EKS reads the ServiceAccount from the token. Without the check, a token of another workload would give the other workload's
/// role to this workload.
pub(super) fn parse_pod_identity_session(
    step: &'static str,
    body: &[u8],
    workload: &ServiceAccount,
) -> Result<AwsCredentialParts, ExchangeError> {
    let PodIdentity { subject, assumed_role_user, credentials } = upstream_bodies::parse_json(step, body)?;
    // A dropped `Secret` overwrites its memory. So this code wraps both values in `Secret` before a later step can fail.
    let secret_access_key = Secret::new(credentials.secret_access_key);
    let session_token = Secret::new(credentials.session_token);
    if *subject.namespace != *workload.namespace || *subject.service_account != *workload.name {
        let whose = format_args!(
            "answered for another ServiceAccount, {}/{}",
            subject.namespace, subject.service_account
        );
        return Err(ExchangeError::new(ExchangeFault::ExchangeRejected, step, whose));
    }
    let no_end = || {
        ExchangeError::new(
            ExchangeFault::Unavailable,
            step,
            "answered with credentials whose expiry is unreadable",
        )
    };
    Ok(AwsCredentialParts {
        access_key_id: credentials.access_key_id,
        secret_access_key,
        session_token,
        expires: credentials.expiration.time().ok_or_else(no_end)?,
        assumed_role_arn: assumed_role_user.arn,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a response in the format of the example in STS's API reference.
    fn answer(expiration: &str) -> String {
        format!(
            "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n<AssumeRoleResult>\n\
             <SourceIdentity>Alice</SourceIdentity><AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/demo/s</Arn>\
             <AssumedRoleId>ARO123:s</AssumedRoleId></AssumedRoleUser>\n<Credentials><AccessKeyId>ASIAX</AccessKeyId>\
             <SecretAccessKey>s3cret/a&amp;b</SecretAccessKey><SessionToken>t0ken=</SessionToken>\
             <Expiration>{expiration}</Expiration></Credentials><PackedPolicySize>8</PackedPolicySize>\n\
             </AssumeRoleResult><ResponseMetadata><RequestId>c6</RequestId></ResponseMetadata></AssumeRoleResponse>"
        )
    }

    fn cart() -> ServiceAccount {
        ServiceAccount { namespace: "shop".into(), name: "cart".into() }
    }

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn ends_are_read_with_and_without_fractions() {
        for (text, millis) in [
            ("1970-01-01T01:00:00Z", 3_600_000),
            ("1970-01-01T01:00:00.250Z", 3_600_250),
            ("1970-01-01T03:00:00+02:00", 3_600_000),
        ] {
            let parts = parse_sts_session("sts", "AssumeRole", answer(text).as_bytes()).unwrap();
            assert_eq!(parts.expires, at(millis), "{text}");
            assert_eq!((&*parts.access_key_id, &**parts.secret_access_key.expose()), ("ASIAX", "s3cret/a&b"));
        }
        for (end, millis) in
            [("3600", 3_600_000), ("3600.25", 3_600_250), ("\"1970-01-01T01:00:00Z\"", 3_600_000)]
        {
            let body = format!(
                r#"{{"subject":{{"namespace":"shop","serviceAccount":"cart"}},"assumedRoleUser":{{"arn":"r","assumeRoleId":"x"}},
                   "audience":"a","credentials":{{"accessKeyId":"i","secretAccessKey":"s","sessionToken":"t","expiration":{end}}}}}"#
            );
            assert_eq!(
                parse_pod_identity_session("eks", body.as_bytes(), &cart()).unwrap().expires,
                at(millis),
                "{end}"
            );
            let other = ServiceAccount { name: "till".into(), ..cart() };
            let error = parse_pod_identity_session("eks", body.as_bytes(), &other).unwrap_err();
            assert_eq!(
                (error.fault, &*error.detail),
                (ExchangeFault::ExchangeRejected, "answered for another ServiceAccount, shop/cart")
            );
        }
    }

    #[test]
    fn odd_answers_are_named_and_never_quoted() {
        let good = answer("1970-01-01T01:00:00Z");
        for odd in [
            String::new(),
            good[..good.len() - 5].to_owned(),
            good.replace("SessionToken", "Other"),
            answer("soon"),
            answer("1970-01-01T01:00:00"),
            "<html>s3cret</html>".to_owned(),
        ] {
            let error = parse_sts_session("sts", "AssumeRole", odd.as_bytes()).unwrap_err();
            assert_eq!(error.fault, ExchangeFault::Unavailable);
            assert!(!error.to_string().contains("s3cret") && !error.to_string().contains("t0ken"), "{error}");
        }
        assert!(parse_sts_session("sts", "AssumeRoleWithWebIdentity", good.as_bytes()).is_err());
        for odd in ["", "{}", r#"{"credentials":{"secretAccessKey":"s3cret","expiration":"s3cret"}}"#] {
            let error = parse_pod_identity_session("eks", odd.as_bytes(), &cart()).unwrap_err();
            assert!(!error.to_string().contains("s3cret"));
        }
    }
}
