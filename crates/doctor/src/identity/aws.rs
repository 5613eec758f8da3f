//! AWS's instance metadata (IMDS) as AWS's SDKs use it: a session token, the role's name, the role's credentials.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use seawall_fetch::{FetchError, FetchResponse};
use seawall_probe::file_reader::{ProbeError, ProbeResult};
use serde::Deserialize;
use serde_json::Value;

use super::cloud_name_syntax::is_role_name;
use super::metadata_client::{CloudServerClient, RequestBudget};
use super::observed_metadata_server::{
    CloudServerOutcome, CredentialLifetime, CredentialServer, ImdsTokenStatus, InvalidServerVariable,
    RespondingServer, ServerPrincipal, describe_failure, is_sendable_text, no_lifetime_reason,
};
use super::refresh_windows::{AWS_IMDS_TIMEOUT, AWS_IMDS_WINDOWS};
use crate::check::CheckContext;

const ROLES: &str = "/latest/meta-data/iam/security-credentials/";

pub(super) fn examine(site: &CheckContext, pace: &RequestBudget) -> CloudServerOutcome {
    let wanted = match wanted(site) {
        None => return CloudServerOutcome::Disabled,
        Some(Ok(wanted)) => wanted,
        Some(Err(outcome)) => return outcome,
    };
    let asker = CloudServerClient::new(site, pace, &wanted);
    let put = asker.request_and_remember_secrets(
        "PUT",
        "/latest/api/token",
        &[("X-aws-ec2-metadata-token-ttl-seconds", "60")],
    );
    let without = asker.get(ROLES, &[]);
    let tokens = ImdsTokenStatus {
        put_status: status(&put),
        status_without_token: status(&without),
        is_server_slow: asker.is_slow(),
    };
    if let (Err(_), Err(why)) = (&put, &without) {
        return CloudServerOutcome::Absent(wanted, why.clone());
    }
    if !is_aws(&put, &without) {
        return CloudServerOutcome::from_unexpected(wanted, [&put, &without].into_iter().flatten());
    }
    let token = put.ok().filter(|answer| answer.status() == 200).map(|answer| answer.text());
    let headers: Vec<_> = token.iter().map(|token| ("X-aws-ec2-metadata-token", token.as_str())).collect();
    let listing = if token.is_some() { asker.get(ROLES, &headers) } else { without };
    let role = role(&listing);
    let (tries, good) = match &role {
        Ok(role) => asker.attempt_credentials(10, &[ROLES, role].concat(), &headers, missing_field, None),
        Err(_) => (Vec::new(), None),
    };
    let life =
        good.map_or_else(|| Err(no_lifetime_reason(&tries)), |good| parse_lifetime(&good, (site.wall)()));
    // No other server has the credentials of the instance itself, which exist beside those of its role.
    let own = asker.get("/latest/meta-data/identity-credentials/ec2/info", &headers);
    let is_machines_own = own.ok().map(|answer| answer.status() == 200);
    let principal = match role {
        Ok(role) => ServerPrincipal::Named("role ", role),
        Err(principal) => principal,
    };
    let server = RespondingServer {
        server: wanted.clone(),
        credential_attempts: tries,
        response_times: asker.recorded_response_times(),
        principal,
        lifetime: life,
        refresh_windows: AWS_IMDS_WINDOWS,
        sdk_timeout: AWS_IMDS_TIMEOUT,
        imds_token_status: Some(tokens),
        by_name_result: None,
        is_node_metadata_server: is_machines_own,
    };
    CloudServerOutcome::Responding(Box::new(server))
}

/// Returns the server to ask; none if the environment tells SDKs not to ask it.
fn wanted(site: &CheckContext) -> Option<Result<CredentialServer, CloudServerOutcome>> {
    let is =
        |name: &str, value: &str| (site.environment)(name).is_some_and(|set| set.eq_ignore_ascii_case(value));
    if is("AWS_EC2_METADATA_DISABLED", "true") {
        return None;
    }
    let name = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
    let named = (site.environment)(name).map(|url| (name, url));
    let is_ipv6 = is("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "ipv6");
    let usual = if is_ipv6 { "[fd00:ec2::254]:80" } else { "169.254.169.254:80" };
    Some(CredentialServer::new("AWS's metadata service", named, InvalidServerVariable::parse_url, usual))
}

fn status(answer: &Result<FetchResponse, FetchError>) -> Option<u16> {
    answer.as_ref().ok().map(FetchResponse::status)
}

/// Returns whether the server is AWS's. Other clouds' servers share the address: Google's names its flavor and has nothing at
/// these paths, and Azure's speaks JSON. A server that gives what the SDK asked for counts as AWS's, because SDKs use it.
fn is_aws(put: &Result<FetchResponse, FetchError>, without: &Result<FetchResponse, FetchError>) -> bool {
    let answers = || [put, without].into_iter().flatten();
    let is_json = |answer: &FetchResponse| answer.header("content-type").starts_with("application/json");
    let is_google = answers().any(|answer| !answer.header("metadata-flavor").is_empty());
    let is_answer = |answer: &FetchResponse| answer.status() == 200 || (answer.status() == 401 && !is_google);
    answers().any(|answer| answer.header("server") == "EC2ws")
        || answers().any(|answer| !is_json(answer) && is_answer(answer))
}

/// Returns the first role in the list, which most SDKs use; otherwise the reason why there is none.
fn role(listing: &Result<FetchResponse, FetchError>) -> Result<String, ServerPrincipal> {
    let unsaid = |why: &FetchError| {
        ServerPrincipal::Unknown(format!("it did not name its role: {}", describe_failure(why)))
    };
    let listing = listing.as_ref().map_err(unsaid)?;
    match listing.status() {
        200 => {
            let text = listing.text();
            let name = text.lines().next().unwrap_or_default().trim();
            let no_name = || ServerPrincipal::Unknown("its list does not begin with a role name".to_owned());
            if is_role_name(name) { Ok(name.to_owned()) } else { Err(no_name()) }
        }
        404 => Err(ServerPrincipal::NoIdentity(ServerPrincipal::reason_in(listing))),
        status @ 500.. => Err(ServerPrincipal::Failing(status)),
        _ => Err(ServerPrincipal::refused(listing, "role")),
    }
}

/// Returns the part that a document of keys lacks, if any. botocore needs all four fields; the SDKs for Ruby, PHP and Rust also
/// fail for another `Code`.
pub(super) fn missing_field(document: &FetchResponse) -> Option<&'static str> {
    let Ok(document) = serde_json::from_slice::<Value>(document.body()) else {
        return Some("without a JSON document of keys");
    };
    match document["Code"].as_str() {
        Some(code) if code != "Success" => return Some("with a Code other than Success"),
        _ => {}
    }
    let is_whole = ["AccessKeyId", "SecretAccessKey", "Token", "Expiration"]
        .iter()
        .all(|name| is_sendable_text(&document[name]));
    (!is_whole).then_some("without all of AccessKeyId, SecretAccessKey, Token and Expiration")
}

/// The times of a document with keys, and nothing else.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    expiration: Timestamp,
    last_updated: Option<Timestamp>,
}

/// Returns the lifetime of the credentials in a response, at this time.
pub(super) fn parse_lifetime(document: &FetchResponse, now: SystemTime) -> ProbeResult<CredentialLifetime> {
    let document: Document = serde_json::from_slice(document.body())
        .map_err(|_| ProbeError::NotApplicable("its response has no valid Expiration"))?;
    let now =
        now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    let end = document.expiration.as_second();
    let whole =
        document.last_updated.map(|begin| end.saturating_sub(begin.as_second())).filter(|whole| *whole > 0);
    Ok(CredentialLifetime { remaining_seconds: end.saturating_sub(now), total_seconds: whole })
}
