//! Fake metadata servers of each cloud, with a secret in every credential, and helpers for their findings.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use seawall_fetch::{FetchError, FetchRequest, FetchResponse};
use seawall_probe::file_reader::fake::Texts;

use crate::check::CheckContext;
use crate::finding::{DoctorFinding, DoctorStatus, test_helpers};
use crate::http_client::fake::{Servers, answer, status};
use crate::identity::examine;

pub(super) const LINK_LOCAL: &str = "169.254.169.254:80";

/// The secret in every credential of these tests.
pub(super) const SECRET: &str = "DoNotShow";

/// The current time of these tests: 2026-01-01T00:00:00Z.
pub(super) const NOW: u64 = 1_767_225_600;

pub(super) fn flavored(code: u16, body: &str) -> Result<FetchResponse, FetchError> {
    Ok(FetchResponse::new(
        code,
        &[("Metadata-Flavor", "Google"), ("Content-Type", "text/html")],
        body.as_bytes(),
    ))
}

/// Google's server with tokens that have this many seconds left.
pub(super) fn google(
    email: &'static str,
    left: i64,
    is_own: bool,
) -> impl Fn(&FetchRequest) -> Result<FetchResponse, FetchError> {
    move |request| {
        if !request.headers.contains(&("Metadata-Flavor", "Google")) {
            return flavored(403, "");
        }
        match request.target.strip_prefix("/computeMetadata/v1/instance/") {
            Some("service-accounts/default/email") if !email.is_empty() => flavored(200, email),
            Some("service-accounts/default/token") if !email.is_empty() => flavored(
                200,
                &format!(r#"{{"access_token":"{SECRET}","expires_in":{left},"token_type":"Bearer"}}"#),
            ),
            Some("disks/") if is_own => flavored(200, "0/"),
            _ => flavored(404, ""),
        }
    }
}

fn time(at: i64) -> String {
    jiff::Timestamp::from_second(NOW as i64 + at).unwrap().to_string()
}

/// Returns a document of keys with its issue and its end, in seconds from now.
pub(super) fn keys(begin: i64, end: i64) -> String {
    format!(
        r#"{{"Code":"Success","LastUpdated":"{}","Type":"AWS-HMAC","AccessKeyId":"{SECRET}","SecretAccessKey":"{SECRET}","Token":"{SECRET}","Expiration":"{}","AccountId":"123456789012"}}"#,
        time(begin),
        time(end)
    )
}

/// Returns a document of keys with this secret in one field.
pub(super) fn lent(secret: &str) -> String {
    keys(-600, 3000).replacen(SECRET, secret, 1)
}

/// AWS's server: its response to a token request, to a request without a token, and its document.
#[derive(Clone)]
pub(super) struct Aws {
    pub(super) put: Result<u16, FetchError>,
    pub(super) without: u16,
    pub(super) document: String,
    pub(super) is_own: bool,
}

pub(super) fn aws() -> Aws {
    Aws { put: Ok(200), without: 401, document: keys(-600, 6 * 3600 - 600), is_own: false }
}

impl Aws {
    pub(super) fn reply(self) -> impl Fn(&FetchRequest) -> Result<FetchResponse, FetchError> {
        move |request| {
            if request.method == "PUT" {
                return match &self.put {
                    Ok(200) => answer(SECRET),
                    Ok(code) => status(*code),
                    Err(why) => Err(why.clone()),
                };
            }
            let token = request.headers.iter().find(|(name, _)| *name == "X-aws-ec2-metadata-token");
            if token.is_none_or(|(_, token)| *token != SECRET) && self.without != 200 {
                return status(self.without);
            }
            match request.target {
                "/latest/meta-data/iam/security-credentials/" => answer("shop"),
                "/latest/meta-data/iam/security-credentials/shop" => answer(&self.document),
                "/latest/meta-data/identity-credentials/ec2/info" if self.is_own => answer("{}"),
                _ => status(404),
            }
        }
    }
}

/// Azure's server, which writes numbers as text.
pub(super) fn azure(request: &FetchRequest) -> Result<FetchResponse, FetchError> {
    let json = |code, body: String| {
        Ok(FetchResponse::new(code, &[("Content-Type", "application/json")], body.as_bytes()))
    };
    if !request.headers.contains(&("Metadata", "true")) {
        return json(
            400,
            r#"{"error":"invalid_request","error_description":"Required metadata header not specified"}"#
                .to_owned(),
        );
    }
    if request.target.starts_with("/metadata/identity/oauth2/token?") {
        return json(
            200,
            format!(
                r#"{{"access_token":"{SECRET}","client_id":"{CLIENT}","expires_in":"3500","expires_on":"{}","not_before":"{}","token_type":"Bearer"}}"#,
                NOW + 3500,
                NOW - 100
            ),
        );
    }
    json(404, r#"{"error":"not_found"}"#.to_owned())
}

/// Returns the findings with this environment.
pub(super) fn found(servers: &Servers, environment: &[(&str, &str)]) -> Vec<DoctorFinding> {
    let texts = Texts::new(&[("/var/run/token", SECRET), ("/var/run/broken", &format!("{SECRET}\n"))]);
    let variable =
        |name: &str| environment.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
    let now = || servers.passed.get();
    let wall = || SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    examine(&CheckContext {
        http_fetcher: servers,
        now: &now,
        wall: &wall,
        environment: &variable,
        ..CheckContext::for_test(&texts)
    })
}

pub(super) fn complaints(
    servers: &Servers,
    environment: &[(&str, &str)],
) -> Vec<(&'static str, DoctorStatus)> {
    test_helpers::complaints(found(servers, environment))
}

/// Returns the servers with one server at the default address.
pub(super) fn at_the_address<'a>(
    reply: impl Fn(&FetchRequest) -> Result<FetchResponse, FetchError> + 'a,
) -> Servers<'a> {
    let servers = Servers::default();
    let reply = Rc::new(reply);
    // As in a cluster that knows Google's name.
    let by_name = Rc::clone(&reply);
    servers.serve("metadata.google.internal:80", move |request| by_name(request));
    servers.serve(LINK_LOCAL, move |request| reply(request));
    servers
}

pub(super) const POD: (&str, &str) = ("KUBERNETES_SERVICE_HOST", "10.96.0.1");
pub(super) const CLIENT: &str = "11111111-2222-3333-4444-555555555555";
pub(super) const EMAIL: &str = "shop@reef.iam.gserviceaccount.com";

/// Returns the bodies of a stub that sends the same to every path: a token, documents with tokens in every field (complete and
/// truncated), and a bare token.
pub(super) fn bodies_of_stubs() -> [String; 5] {
    let whole = format!(
        r#"{{"RoleArn":"{SECRET}","AccountId":"{SECRET}","client_id":"{SECRET}","access_token":"{SECRET}"}}"#
    );
    [
        format!(r#"{{"access_token":"{SECRET}","expires_in":3599}}"#),
        whole.trim_end_matches('}').to_owned(),
        whole,
        SECRET.to_owned(),
        format!("ya29.{SECRET}\u{1b}[2J@"),
    ]
}

/// Documents that no SDK accepts as keys.
pub(super) fn odd_documents() -> Vec<String> {
    let odd = ["", "{", "{}", "[]", "null", "7", "\u{0}", "<html>", r#"{"Code":"Success"}"#];
    let whole = keys(-600, 3000);
    let without = ["AccessKeyId", "SecretAccessKey", "Token", "Expiration"]
        .map(|name| whole.replace(&format!("\"{name}\""), "\"x\""));
    let empty = whole.replace(SECRET, "");
    let failed = whole.replace("Success", "AssumeRoleUnauthorizedAccess");
    let half = whole[..whole.len() - 9].to_owned();
    odd.into_iter().map(str::to_owned).chain(without).chain([empty, failed, half]).collect()
}

/// Responses that Google's libraries do not accept as a token.
pub(super) const ODD_TOKENS: [&str; 8] = [
    "",
    "{}",
    "[]",
    r#"{"expires_in":3599}"#,
    r#"{"access_token":"","expires_in":3599}"#,
    r#"{"access_token":"a b","expires_in":3599}"#,
    r#"{"access_token":"a","expires_in":"3599"}"#,
    r#"{"access_token":"a","expires_in":1e99}"#,
];
