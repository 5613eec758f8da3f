//! The endpoint of container credentials (ECS, EKS Pod Identity), which only environment variables name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use seawall_fetch::FetchResponse;
use seawall_probe::file_reader::ProbeError;
use serde::Deserialize;

use super::aws::{missing_field, parse_lifetime};
use super::cloud_name_syntax::{is_account_id, is_role_arn};
use super::metadata_client::{CloudServerClient, RequestBudget};
use super::observed_metadata_server::{
    CloudServerOutcome, CredentialServer, InvalidServerVariable, RespondingServer, ServerPrincipal,
    no_lifetime_reason,
};
use super::refresh_windows::{AWS_CONTAINER_CREDENTIALS_TIMEOUT, AWS_CONTAINER_CREDENTIALS_WINDOWS};
use crate::check::CheckContext;
use crate::http_client::HttpUrl;

const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
const TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
const TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";

/// The address of the ECS agent.
const ECS: &str = "169.254.170.2:80";

pub(super) fn examine(site: &CheckContext, pace: &RequestBudget) -> CloudServerOutcome {
    let wanted = match wanted(site) {
        None => return CloudServerOutcome::Disabled,
        Some(Ok(wanted)) => wanted,
        Some(Err(outcome)) => return outcome,
    };
    if !is_taken(&wanted.url) {
        return CloudServerOutcome::RefusedBySdks(wanted);
    }
    let token = match token(site) {
        Ok(token) => token,
        Err(why) => return CloudServerOutcome::NotAskedWithoutToken(wanted, why),
    };
    // ECS gives its tasks unguessable paths instead of tokens.
    if wanted.named_by == Some(RELATIVE) {
        pace.secrets().keep(wanted.url.path.rsplit('/').next().unwrap_or_default());
    }
    let asker = CloudServerClient::new(site, pace, &wanted);
    let headers: Vec<_> = token.iter().map(|token| ("Authorization", token.as_str())).collect();
    let first = match asker.get_secret("", &headers) {
        Ok(first) => first,
        Err(why) => return CloudServerOutcome::Absent(wanted, why),
    };
    let principal = principal(&first);
    let (tries, good) = asker.attempt_credentials(10, "", &headers, missing_field, Some(first));
    let life =
        good.map_or_else(|| Err(no_lifetime_reason(&tries)), |good| parse_lifetime(&good, (site.wall)()));
    let server = RespondingServer {
        server: wanted.clone(),
        credential_attempts: tries,
        response_times: asker.recorded_response_times(),
        principal,
        lifetime: life,
        refresh_windows: AWS_CONTAINER_CREDENTIALS_WINDOWS,
        sdk_timeout: AWS_CONTAINER_CREDENTIALS_TIMEOUT,
        imds_token_status: None,
        by_name_result: None,
        is_node_metadata_server: Some(false),
    };
    CloudServerOutcome::Responding(Box::new(server))
}

/// Returns the server to ask. The relative variable goes first, as in the SDKs.
fn wanted(site: &CheckContext) -> Option<Result<CredentialServer, CloudServerOutcome>> {
    let whose = "the server of containers' credentials";
    if let Some(path) = (site.environment)(RELATIVE) {
        let place = HttpUrl { authority: ECS.to_owned(), path };
        return Some(Ok(CredentialServer {
            server_description: whose,
            url: place,
            named_by: Some(RELATIVE),
        }));
    }
    let url = (site.environment)(FULL)?;
    Some(CredentialServer::new(whose, Some((FULL, url)), InvalidServerVariable::parse_url, ECS))
}

/// The addresses beside loopback that SDKs accept over plain HTTP: those of the ECS agent and of EKS Pod Identity (boto/botocore,
/// `utils.py`,
/// `ContainerMetadataFetcher`; aws/aws-sdk-go-v2, `config/resolve_credentials.go`). All SDKs accept the name `localhost`, and botocore
/// accepts no other name. The SDKs for Go and Java accept any name whose addresses are all in this list.
const TAKEN: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
];

/// Returns whether all SDKs send requests to this URL over plain HTTP.
fn is_taken(place: &HttpUrl) -> bool {
    place.ip_address().map_or_else(
        || place.authority.rsplit_once(':').is_some_and(|(host, _)| host.eq_ignore_ascii_case("localhost")),
        |address| address.is_loopback() || TAKEN.contains(&address),
    )
}

/// Returns the value of the `Authorization` header. SDKs strip surrounding whitespace and refuse a line end within the value
/// (boto/botocore, `credentials.py`, `ContainerProvider`).
fn token(site: &CheckContext) -> Result<Option<String>, String> {
    let (token, of) = match (site.environment)(TOKEN_FILE) {
        Some(file) => {
            // A value that does not look like a path may be the token itself.
            let is_shown = file.starts_with('/') && file.len() <= 256;
            let shown = if is_shown { file.as_str() } else { "the token file (its name is not shown)" };
            let text = site.files.read(&file);
            let text = text.map_err(|error| format!("{TOKEN_FILE}: {}", ProbeError::new(shown, &error)))?;
            (Some(text), format!("{shown} ({TOKEN_FILE})"))
        }
        None => ((site.environment)(TOKEN), TOKEN.to_owned()),
    };
    match token {
        Some(token) if token.contains(['\r', '\n']) => {
            Err(format!("the token in {of} contains a line end, which SDKs refuse"))
        }
        token => Ok(token.map(|token| token.trim_matches(' ').to_owned())),
    }
}

/// The owner that the response names beside the keys.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CredentialOwner {
    role_arn: Option<String>,
    account_id: Option<String>,
}

fn principal(answer: &FetchResponse) -> ServerPrincipal {
    match answer.status() {
        200 => {}
        status @ 500.. => return ServerPrincipal::Failing(status),
        status => {
            return ServerPrincipal::Unknown(format!("it responded {status} to the request for credentials"));
        }
    }
    let whose = serde_json::from_slice::<CredentialOwner>(answer.body()).ok();
    let named = whose.and_then(|whose| {
        let account =
            || Some(ServerPrincipal::named("a role of account ", &whose.account_id?, is_account_id));
        let role = whose.role_arn.map(|role| ServerPrincipal::named("", &role, is_role_arn));
        role.or_else(account)
    });
    named.unwrap_or_else(|| ServerPrincipal::Unknown("its response does not name their owner".to_owned()))
}
