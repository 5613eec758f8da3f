//! The instance metadata service with the paths for the node's own role: tokens, the role list, the credentials, the placement.
//!
//! docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::HeaderValue;
use http::request::Parts;
use http::{Method, StatusCode};
use serde_json::json;

use super::mint::AwsSession;
use super::reply::{EmulatorReply, html_reply, reply};
use super::role::RoleArnParts;
use super::state::AwsState;

const TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const TOKEN: &str = "x-aws-ec2-metadata-token";

/// The allowed lifetimes of a token, in seconds.
const TTLS: std::ops::RangeInclusive<u64> = 1..=21_600;

/// The remaining lifetime of the node's session: six hours, as on EC2.
const SIX_HOURS: Duration = Duration::from_secs(6 * 3600);

/// The path of the role's credentials.
const CREDENTIALS: &str = "/latest/meta-data/iam/security-credentials/";

/// Answers a request.
pub(super) fn answer(state: &AwsState, request: &Parts) -> EmulatorReply {
    if request.headers.contains_key("x-forwarded-for") {
        return html_reply(StatusCode::FORBIDDEN, "Forbidden.");
    }
    match (&request.method, request.uri.path()) {
        (&Method::PUT, "/latest/api/token") => token(state, request),
        (&Method::GET | &Method::HEAD, path) if is_admitted(state, request) => leaf(state, path),
        (&Method::GET | &Method::HEAD, _) => html_reply(StatusCode::UNAUTHORIZED, "Unauthorized."),
        _ => html_reply(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed."),
    }
}

fn token(state: &AwsState, request: &Parts) -> EmulatorReply {
    let stated = request.headers.get(TTL).and_then(|value| value.to_str().ok());
    let ttl = stated.and_then(|text| text.parse().ok()).filter(|ttl| TTLS.contains(ttl));
    let Some(ttl) = ttl else { return html_reply(StatusCode::BAD_REQUEST, "Bad request.") };
    let token = state.mint.metadata_token(state.unix_seconds() + ttl);
    let mut reply = reply(StatusCode::OK, "text/plain", token.expose().clone());
    reply.headers_mut().insert(TTL, HeaderValue::from(ttl));
    reply
}

/// Returns whether the request may proceed. A given token is checked even if none is required.
fn is_admitted(state: &AwsState, request: &Parts) -> bool {
    match request.headers.get(TOKEN) {
        Some(token) => {
            token.to_str().is_ok_and(|token| state.mint.is_metadata_token(token, state.unix_seconds()))
        }
        None => !state.instance.tokens_required,
    }
}

fn leaf(state: &AwsState, path: &str) -> EmulatorReply {
    let text = |text: String| reply(StatusCode::OK, "text/plain", text);
    let region = &state.instance.region;
    match path {
        "/latest/meta-data/instance-id" => text(state.instance.id.clone()),
        // These are the instance's own credentials, which no program gets from elsewhere (docs.aws.amazon.com, "Instance identity roles").
        "/latest/meta-data/identity-credentials/ec2/info" => text(identity(state)),
        "/latest/meta-data/placement/region" => text(region.clone()),
        "/latest/meta-data/placement/availability-zone" => text(format!("{region}a")),
        _ => credentials(state, path).unwrap_or_else(|| html_reply(StatusCode::NOT_FOUND, "Not found.")),
    }
}

/// Returns the document with the instance's account. The account is empty without a role.
fn identity(state: &AwsState) -> String {
    let account = state.instance.role.as_deref().and_then(|role| role.split(':').nth(4)).unwrap_or_default();
    let told = json!({"Code": "Success", "LastUpdated": state.format_expiry(state.unix_seconds()), "AccountId": account});
    format!("{told:#}")
}

fn credentials(state: &AwsState, path: &str) -> Option<EmulatorReply> {
    let role = state.instance.role.as_deref()?;
    let name = RoleArnParts::of(role)?.name;
    let asked =
        path.strip_prefix(CREDENTIALS).or((path == CREDENTIALS.trim_end_matches('/')).then_some(""))?;
    match asked {
        "" => Some(reply(StatusCode::OK, "text/plain", name.to_owned())),
        asked if asked == name => Some(document(state, role)),
        _ => None,
    }
}

fn document(state: &AwsState, role: &str) -> EmulatorReply {
    let session = AwsSession {
        access_key_id: String::new(),
        role: role.to_owned(),
        name: state.instance.id.clone(),
        taken_by: "ec2.amazonaws.com".into(),
        tags: BTreeMap::new(),
        exp: 0,
    };
    let issued = state.issue(session, SIX_HOURS);
    let told = json!({
        "Code": "Success",
        "LastUpdated": state.format_expiry(state.unix_seconds()),
        "Type": "AWS-HMAC",
        "AccessKeyId": issued.session.access_key_id,
        "SecretAccessKey": issued.secret.expose(),
        "Token": issued.token.expose(),
        "Expiration": state.format_expiry(issued.session.exp),
    });
    // The real service uses this content type.
    reply(StatusCode::OK, "text/plain", format!("{told:#}"))
}
