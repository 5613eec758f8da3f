//! Azure's instance metadata, or an endpoint of App Service and similar platforms, as MSAL and azidentity use them.

mod endpoint;

use std::time::{SystemTime, UNIX_EPOCH};

use seawall_fetch::FetchResponse;
use serde_json::Value;

use self::endpoint::AzureEndpoint;
use super::cloud_name_syntax::is_client_id;
use super::metadata_client::{CloudServerClient, RequestBudget};
use super::observed_metadata_server::{
    CloudServerOutcome, CredentialLifetime, MissingFieldCheck, RespondingServer, ServerPrincipal,
    is_safe_to_show, is_sendable_text, no_lifetime_reason,
};
use super::refresh_windows::{AZURE_TIMEOUT, AZURE_WINDOWS};
use crate::check::CheckContext;

pub(super) fn examine(site: &CheckContext, pace: &RequestBudget) -> CloudServerOutcome {
    let AzureEndpoint {
        credential_server: wanted,
        path,
        headers,
        states_remaining_seconds: says_life,
        may_be_machine_metadata: is_machines,
    } = match AzureEndpoint::of(site) {
        Ok(way) => way,
        Err(outcome) => return outcome,
    };
    let asker = CloudServerClient::new(site, pace, &wanted);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let first = match asker.get_secret(path, &headers) {
        Ok(first) => first,
        Err(why) => return CloudServerOutcome::Absent(wanted, why),
    };
    let Some(said) = parse_token_response(&first) else {
        return CloudServerOutcome::from_unexpected(wanted, [&first]);
    };
    let lacks = if says_life { missing_lifetime_field } else { missing_expiry_field };
    let principal = principal(&first, &said, lacks);
    // The server allows five requests per second ("Azure Instance Metadata Service: rate limiting").
    let (tries, good) = match first.status() {
        200 => asker.attempt_credentials(4, path, &headers, lacks, Some(first)),
        _ => (Vec::new(), None),
    };
    let life = good.as_ref().and_then(parse_token_response).and_then(|said| said.lives((site.wall)()));
    let is_machines_own = if is_machines {
        let own = asker.get("/metadata/instance?api-version=2021-02-01", &headers);
        own.ok().map(|answer| answer.status() == 200)
    } else {
        Some(false)
    };
    let server = RespondingServer {
        server: wanted.clone(),
        response_times: asker.recorded_response_times(),
        principal,
        lifetime: life.ok_or_else(|| no_lifetime_reason(&tries)),
        credential_attempts: tries,
        refresh_windows: AZURE_WINDOWS,
        sdk_timeout: AZURE_TIMEOUT,
        imds_token_status: None,
        by_name_result: None,
        is_node_metadata_server: is_machines_own,
    };
    CloudServerOutcome::Responding(Box::new(server))
}

/// Returns the fields of a response beside the token; none if the response is not Azure's.
///
/// Azure's responses about tokens are JSON with a token or an error. Other clouds' servers may also refuse in JSON, but name themselves. A
/// server that gives a token counts as Azure's, because SDKs use it.
fn parse_token_response(answer: &FetchResponse) -> Option<AzureTokenResponse> {
    let is_others = answer.header("server") == "EC2ws" || !answer.header("metadata-flavor").is_empty();
    let all: Value = serde_json::from_slice(answer.body()).ok()?;
    // App Service's errors have a number and a message.
    let is_error = all["error"].is_string() || (all["statusCode"].is_i64() && all["message"].is_string());
    let is_azure = all["access_token"].is_string() || (is_error && !is_others);
    if !is_azure {
        return None;
    }
    let text = |name: &str| all[name].as_str().map(str::to_owned);
    // The real service writes numbers as text; some other servers write them as numbers.
    let number = |name: &str| all[name].as_i64().or_else(|| all[name].as_str()?.parse().ok());
    let whole = number("expires_on").zip(number("not_before")).map(|(end, begin)| end.saturating_sub(begin));
    Some(AzureTokenResponse {
        client: text("client_id"),
        error: ["error_description", "error", "message"].into_iter().find_map(text),
        left: number("expires_in"),
        end: number("expires_on"),
        whole: whole.filter(|whole| *whole > 0),
    })
}

struct AzureTokenResponse {
    client: Option<String>,
    error: Option<String>,
    left: Option<i64>,
    end: Option<i64>,
    whole: Option<i64>,
}

impl AzureTokenResponse {
    fn lives(self, now: SystemTime) -> Option<CredentialLifetime> {
        let now = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let until = |end: i64| end.saturating_sub(i64::try_from(now).unwrap_or(i64::MAX));
        Some(CredentialLifetime {
            remaining_seconds: self.left.or_else(|| self.end.map(until))?,
            total_seconds: self.whole,
        })
    }
}

fn principal(answer: &FetchResponse, said: &AzureTokenResponse, lacks: MissingFieldCheck) -> ServerPrincipal {
    match (answer.status(), &said.client, &said.error) {
        (200, ..) if lacks(answer).is_some() => {
            ServerPrincipal::Unknown("it responded 200 without a token".to_owned())
        }
        (200, Some(client), _) => {
            ServerPrincipal::named("managed identity with client id ", client, is_client_id)
        }
        (200, None, _) => ServerPrincipal::Named("an unnamed managed identity", String::new()),
        (400, _, Some(error)) if error.contains("dentity not found") => ServerPrincipal::NoIdentity(None),
        (status @ 500.., ..) => ServerPrincipal::Failing(status),
        (status, _, Some(error)) if is_safe_to_show(error) => ServerPrincipal::Refused(status, error.clone()),
        (status, ..) => ServerPrincipal::Unknown(format!("it responded {status} without an error text")),
    }
}

/// Returns the part that a response lacks to be a valid token, if any. For instance metadata, MSAL needs the token and its
/// lifetime; for other endpoints, the token and its expiry (AzureAD/microsoft-authentication-library-for-python,
/// `msal/managed_identity.py`).
fn missing_lifetime_field(token: &FetchResponse) -> Option<&'static str> {
    let is_whole = is_token(token) && parse_token_response(token).is_some_and(|said| said.left.is_some());
    (!is_whole).then_some("without an access_token and its lifetime (expires_in)")
}

fn missing_expiry_field(token: &FetchResponse) -> Option<&'static str> {
    let is_whole = is_token(token) && parse_token_response(token).is_some_and(|said| said.end.is_some());
    (!is_whole).then_some("without an access_token and its expiry (expires_on)")
}

fn is_token(token: &FetchResponse) -> bool {
    let all: Value = serde_json::from_slice(token.body()).unwrap_or_default();
    is_sendable_text(&all["access_token"])
}
